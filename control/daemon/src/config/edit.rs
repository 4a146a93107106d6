//! Changes to the text of a configuration that preserve comments and formatting.

use std::collections::{BTreeMap, BTreeSet};
use toml_edit::{DocumentMut, Item, TableLike, Value};

/// Why a text cannot be changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EditError {
    /// It is not TOML.
    #[error("the file is not valid TOML ({0}): correct it first")]
    Syntax(String),
    /// The flow is not in it.
    #[error("flow {0} is not in the file: write it there first")]
    NoFlow(u32),
}

/// Returns `text` with values of a flow changed and its `forgotten` keys removed. Values are words
/// or TOML, as `set` takes them.
///
/// # Errors
/// [`EditError`]: the text has no such flow.
pub fn edit(
    text: &str,
    flow: u32,
    changes: &BTreeMap<String, String>,
    forgotten: &BTreeSet<String>,
) -> Result<String, EditError> {
    let parsed = text.parse::<DocumentMut>();
    let mut document = parsed.map_err(|error| {
        EditError::Syntax(error.message().lines().collect::<Vec<_>>().join(", "))
    })?;
    let Some(table) = document.get_mut("flow").and_then(|flows| find(flows, flow)) else {
        return Err(EditError::NoFlow(flow));
    };
    for key in forgotten {
        table.remove(key);
    }
    for (key, value) in changes {
        let value = value.parse::<Value>().unwrap_or_else(|_| Value::from(value.as_str()));
        replace(table, key, value);
    }
    Ok(document.to_string())
}

/// The table of a flow, written as `[[flow]]` or as an array.
fn find(flows: &mut Item, flow: u32) -> Option<&mut dyn TableLike> {
    let is_it =
        |table: &dyn TableLike| table.get("id").and_then(Item::as_integer) == Some(i64::from(flow));
    match flows {
        Item::ArrayOfTables(tables) => {
            tables.iter_mut().find(|table| is_it(*table)).map(|table| table as &mut dyn TableLike)
        }
        Item::Value(Value::Array(tables)) => tables
            .iter_mut()
            .filter_map(Value::as_inline_table_mut)
            .find(|table| is_it(*table))
            .map(|table| table as &mut dyn TableLike),
        _ => None,
    }
}

/// Replaces a value, keeping its comment.
fn replace(table: &mut dyn TableLike, key: &str, mut value: Value) {
    match table.get_mut(key).and_then(Item::as_value_mut) {
        Some(old) => {
            *value.decor_mut() = old.decor().clone();
            *old = value;
        }
        None => {
            table.insert(key, Item::Value(value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# What this box is for.
[daemon]
engine = \"cpu\"   # no card

[[flow]]
id = 1
# Bulk at night.
code = \"rlnc\"    # since May
generation_size = 32
redundancy = 1.5   # measured

# The other direction.
[[flow]]
id = 0x2
redundancy = \"auto\"
";

    fn changed(flow: u32, pairs: &[(&str, &str)], forgotten: &[&str]) -> String {
        let pairs = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let forgotten = forgotten.iter().map(|key| (*key).to_owned()).collect();
        edit(TEXT, flow, &pairs.collect(), &forgotten).unwrap()
    }

    #[test]
    fn values_change_and_every_other_byte_stays() {
        let edited = changed(1, &[("redundancy", "2"), ("code", "bats")], &["generation_size"]);
        let expected = TEXT
            .replace("redundancy = 1.5 ", "redundancy = 2 ")
            .replace("\"rlnc\"", "\"bats\"")
            .replace("generation_size = 32\n", "");
        assert_eq!(edited, expected);
        assert_eq!(changed(2, &[], &[]), TEXT);
    }

    #[test]
    fn new_key_is_written_in_its_own_flow() {
        let edited = changed(1, &[("target_loss", "1e-3")], &[]);
        let first = edited.split("[[flow]]").nth(1).unwrap();
        assert!(first.contains("target_loss = 1e-3\n"), "{edited}");
        let edited = changed(2, &[("redundancy", "1.25"), ("repair", "false")], &[]);
        assert!(edited.ends_with("id = 0x2\nredundancy = 1.25\nrepair = false\n"), "{edited}");
        let edited = changed(2, &[("redundancy", "a \"word\"\nid = 3")], &[]);
        let read = edited.parse::<DocumentMut>().unwrap();
        let flow = &read["flow"][1];
        let (id, text) = (flow["id"].as_integer(), flow["redundancy"].as_str());
        assert_eq!((id, text), (Some(2), Some("a \"word\"\nid = 3")), "{edited}");
    }

    #[test]
    fn flow_in_an_array_is_found_and_a_missing_one_is_not() {
        let text = "flow = [{ id = 7, repair = true }]\n";
        let pairs = BTreeMap::from([("repair".to_owned(), "false".to_owned())]);
        let edited = edit(text, 7, &pairs, &BTreeSet::new()).unwrap();
        assert_eq!(edited, "flow = [{ id = 7, repair = false }]\n");
        assert_eq!(edit(text, 8, &pairs, &BTreeSet::new()), Err(EditError::NoFlow(8)));
        assert!(matches!(edit("flow = [", 8, &pairs, &BTreeSet::new()), Err(EditError::Syntax(_))));
    }
}
