//! Layout of JSON results: one sample a line, so that a diff shows which samples changed.
//!
//! Not on the packet path. The layout works on the text of a document: numbers keep their digits,
//! and objects keep the order of their keys.
//!
//! ```text
//!   {
//!     "benchmark": "decode", "rounds": 61, "seed": 24301,     plain members share lines
//!     "machine": {"cores": 4, "processor": "AMD EPYC"},       fits into LINE_COLUMNS
//!     "rows": [
//!       {"n": 16, "samples": [7.4, 7.1, 7.3]},                a record: fits into RECORD_COLUMNS
//!       {"n": 32, "samples": [3.9, 3.8, 3.9]}
//!     ]
//!   }
//! ```

#![forbid(unsafe_code)]

mod document;

use serde::Serialize;
use serde::de::IgnoredAny;

use document::{Compound, Json};

/// Columns of a line. At half of it most objects take a line per member; at twice of it a line is
/// wider than a screen.
const LINE_COLUMNS: usize = 160;

/// Columns of a line that holds one record: an element of a list, or a list of plain values. A
/// sample of `bench line` has up to 4000 columns. At half of it many samples break into ten lines;
/// at twice of it several samples share a line.
const RECORD_COLUMNS: usize = 4000;

/// Spaces per level.
const INDENT: usize = 2;

/// JSON of `value`, laid out, with a newline at the end.
///
/// # Errors
/// [`serde_json::Error`]: `value` has no JSON form.
pub fn to_string(value: &impl Serialize) -> Result<String, serde_json::Error> {
    Ok(lay_out_valid(&serde_json::to_string(value)?))
}

/// Lays out a JSON document, with a newline at the end.
///
/// # Errors
/// [`serde_json::Error`]: `text` is not JSON.
pub fn lay_out(text: &str) -> Result<String, serde_json::Error> {
    serde_json::from_str::<IgnoredAny>(text)?;
    Ok(lay_out_valid(text))
}

fn lay_out_valid(text: &str) -> String {
    let mut printer = Printer { text: String::new(), column: 0 };
    printer.value(&document::read(text), 0, LINE_COLUMNS);
    printer.push("\n");
    printer.text
}

/// The text written so far.
struct Printer {
    text: String,
    /// Columns of the last line.
    column: usize,
}

impl Printer {
    /// Writes a value: in this line if it ends within `columns`, otherwise in several.
    fn value(&mut self, value: &Json, level: usize, columns: usize) {
        let compact = value.compact();
        match value {
            // A comma may follow.
            Json::Compound(compound) if self.column + width(&compact) >= columns => {
                self.compound(compound, level + 1);
            }
            _ => self.push(&compact),
        }
    }

    /// Writes an object or a list: plain values share lines, any other value begins a line.
    fn compound(&mut self, compound: &Compound, level: usize) {
        self.push(&compound.open.to_string());
        let mut after_plain = false;
        for (index, child) in compound.children.iter().enumerate() {
            let key = child.prefix();
            // With a space before and a comma behind.
            let fits = |plain: &str| self.column + width(&key) + width(plain) + 2 <= LINE_COLUMNS;
            match child.value {
                Json::Plain(text) if after_plain && fits(text) => self.push(" "),
                _ => self.new_line(level),
            }
            self.push(&key);
            let is_record = compound.is_list() || child.value.is_plain_list();
            let columns = if is_record { RECORD_COLUMNS } else { LINE_COLUMNS };
            self.value(&child.value, level, columns);
            if index + 1 < compound.children.len() {
                self.push(",");
            }
            after_plain = matches!(child.value, Json::Plain(_));
        }
        self.new_line(level - 1);
        self.push(&compound.close.to_string());
    }

    fn push(&mut self, text: &str) {
        self.text.push_str(text);
        self.column += width(text);
    }

    fn new_line(&mut self, level: usize) {
        self.text.push('\n');
        self.column = 0;
        self.push(&" ".repeat(level * INDENT));
    }
}

fn width(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use proptest::collection::{btree_map, vec};
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn documents() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            ".{0,60}".prop_map(Value::from),
        ];
        leaf.prop_recursive(6, 200, 12, |inner| {
            prop_oneof![
                vec(inner.clone(), 0..12).prop_map(Value::from),
                btree_map(".{0,20}", inner, 0..12)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    /// The tokens of a document: its text without white space between them.
    fn tokens(text: &str) -> String {
        document::read(text).compact()
    }

    proptest! {
        #[test]
        fn layout_keeps_every_token_and_is_stable(value in documents()) {
            let text = value.to_string();
            let laid_out = lay_out(&text).unwrap();
            prop_assert_eq!(tokens(&laid_out), tokens(&text));
            prop_assert_eq!(&to_string(&value).unwrap(), &laid_out);
            prop_assert_eq!(&lay_out(&laid_out).unwrap(), &laid_out);
            let parsed: Value = serde_json::from_str(&laid_out).unwrap();
            let expected: Value = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(parsed, expected);
        }
    }

    #[test]
    fn layout_keeps_digits_and_order_of_keys() {
        let text =
            r#" { "z" : 0.10000000000000000055 , "a":[ 1e3,-0.0 ],"b":"\u00e9 ,:{}[]\\\"" } "#;
        let expected =
            r#"{"z": 0.10000000000000000055, "a": [1e3, -0.0], "b": "\u00e9 ,:{}[]\\\""}"#;
        assert_eq!(lay_out(text).unwrap(), expected.to_owned() + "\n");
    }

    #[test]
    fn layout_gives_each_record_a_line() {
        let samples = vec![1.5; 60];
        let row = |n: u32| json!({ "n": n, "samples": samples });
        let machine = json!({ "cores": 4, "linux": "6.18" });
        let document =
            json!({ "machine": machine, "rows": [row(1), row(2)], "seed": 3, "unit": 1 });
        let list = ["1.5"; 60].join(", ");
        let expected = [
            "{",
            r#"  "machine": {"cores": 4, "linux": "6.18"},"#,
            r#"  "rows": ["#,
            &format!(r#"    {{"n": 1, "samples": [{list}]}},"#),
            &format!(r#"    {{"n": 2, "samples": [{list}]}}"#),
            "  ],",
            r#"  "seed": 3, "unit": 1"#,
            "}\n",
        ];
        assert_eq!(to_string(&document).unwrap(), expected.join("\n"));
    }

    #[test]
    fn lines_are_limited_where_records_break() {
        let rows: Vec<Value> = (0..400).map(|n| json!({ "mbit": n, "name": "row" })).collect();
        let laid_out = to_string(&json!([{ "rows": rows, "head": vec!["word"; 2000] }])).unwrap();
        for line in laid_out.lines() {
            assert!(width(line) <= LINE_COLUMNS, "{line}");
        }
        assert_eq!(laid_out.matches("\n      {").count(), rows.len());
    }

    #[test]
    fn empty_and_plain_documents_stay_whole() {
        for text in ["{}", "[]", "null", "\"word\"", "[{}, []]"] {
            assert_eq!(lay_out(text).unwrap(), text.to_owned() + "\n");
        }
        assert!(lay_out("{\"a\" 1}").is_err());
    }
}
