//! Result files as JSON: JSON itself, CSV and Markdown tables as lists of objects.

use std::fs;
use std::path::Path;

use serde_json::{Map, Value};

use crate::papers::error::PapersError;
use crate::papers::levels;

/// Key of a column whose header is empty.
const ROW: &str = "row";

/// Reads `file` in `root`, or compares the levels of the kernels with the library's.
///
/// # Errors
/// [`PapersError::Read`] and [`PapersError::Parse`].
pub fn read(root: &Path, file: &str) -> Result<Value, PapersError> {
    if let Some(file) = file.strip_suffix(levels::SUFFIX) {
        return Ok(levels::compare(&read(root, file)?));
    }
    let path = root.join(file);
    let text = fs::read_to_string(&path).map_err(PapersError::read(&path))?;
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("csv") => csv(&text).map_err(PapersError::parse(&path)),
        Some("md") => Ok(markdown(&text)),
        _ => serde_json::from_str(&text).map_err(PapersError::parse(&path)),
    }
}

fn csv(text: &str) -> Result<Value, csv::Error> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let header: Vec<String> = reader.headers()?.iter().map(str::to_owned).collect();
    let rows = reader.records().map(|record| {
        let record = record?;
        Ok(object(&header, record.iter()))
    });
    rows.collect()
}

/// The rows of all tables of a page.
fn markdown(text: &str) -> Value {
    let mut header: Vec<String> = Vec::new();
    let mut rows = Vec::new();
    for line in text.lines() {
        let Some(line) = line.strip_prefix('|').map(|line| line.trim_end_matches('|')) else {
            header.clear();
            continue;
        };
        let cells = line.split('|').map(str::trim);
        if header.is_empty() {
            header = cells.map(|cell| if cell.is_empty() { ROW } else { cell }.into()).collect();
        } else if !line.chars().all(|symbol| "-:| ".contains(symbol)) {
            rows.push(object(&header, cells));
        }
    }
    Value::Array(rows)
}

fn object<'a>(header: &[String], cells: impl Iterator<Item = &'a str>) -> Value {
    let members = header.iter().cloned().zip(cells.map(Value::from));
    Value::Object(members.collect::<Map<_, _>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tables_of_a_page_are_objects_by_header() {
        let page = "text\n| | peers |\n|---|---:|\n| alone | 24 500 |\n\n|a|b|\n|-|-|\n|1|2|\n";
        let expected = json!([{ "row": "alone", "peers": "24 500" }, { "a": "1", "b": "2" }]);
        assert_eq!(markdown(page), expected);
    }

    #[test]
    fn csv_is_objects_by_header() {
        let expected = json!([{ "a": "x, y", "b": "1.0" }]);
        assert_eq!(csv("a,b\n\"x, y\",1.0\n").expect("CSV"), expected);
        assert!(csv("a,b\n1\n").is_err());
    }
}
