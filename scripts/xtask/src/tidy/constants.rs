//! Constants that documents state: a row "| `file.rs` `NAME` | `value` ..." has the value of the
//! source, so that pages do not keep old numbers.

use super::Finding;
use super::readmes::words_in_backticks;

/// Where the path of a row may begin, in addition to the root.
const FROM: [&str; 1] = ["dataplane/pipeline/src/"];

/// Findings for rows that name no constant or another value; `text_of` returns the text of a file
/// of the repository.
pub fn check(path: &str, text: &str, text_of: impl Fn(&str) -> Option<String>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let Some((file, name, stated)) = row(line) else { continue };
        let source = source_of(file, &text_of);
        let problem = match source.as_deref().map(|source| value_of(source, name)) {
            None => Some(format!("names `{file}`, which does not exist")),
            Some(None) => Some(format!("names `{name}`, which `{file}` does not define")),
            Some(Some(value)) if !is_equal(&value, stated) => {
                Some(format!("states `{name}` as `{stated}`; `{file}` has `{value}`"))
            }
            Some(Some(_)) => None,
        };
        findings.extend(problem.map(|message| Finding::new(path, Some(index + 1), message)));
    }
    findings
}

/// Text of a file that a document names.
pub(super) fn source_of(file: &str, text_of: impl Fn(&str) -> Option<String>) -> Option<String> {
    std::iter::once("").chain(FROM).find_map(|from| text_of(&format!("{from}{file}")))
}

/// File, constant and value of a row, if the line is one.
fn row(line: &str) -> Option<(&str, &str, &str)> {
    let mut cells = line.strip_prefix("| ")?.split(" | ");
    let (left, right) = (cells.next()?, cells.next()?);
    let named: Vec<&str> = words_in_backticks(left).collect();
    let [file, name] = named[..] else { return None };
    let is_constant =
        |name: &str| name.chars().all(|it| it.is_ascii_uppercase() || "_0123456789".contains(it));
    let stated = right.strip_prefix('`')?.split('`').next()?;
    (file.ends_with(".rs") && is_constant(name)).then_some((file, name, stated))
}

/// The value of a constant as it stands in a source, on one line.
fn value_of(source: &str, name: &str) -> Option<String> {
    let start = source.find(&format!("const {name}: "))?;
    let (_, rest) = source[start..].split_once(" =")?;
    // A type may hold a semicolon, a value ends with one at the end of a line.
    let (value, _) = rest.split_once(";\n")?;
    Some(value.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Whether two values differ in layout only.
fn is_equal(one: &str, other: &str) -> bool {
    let bare = |text: &str| text.replace(' ', "").replace(",)", ")").replace(",]", "]");
    bare(one) == bare(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "/// A.\nconst DELAY_NANOS: Nanos = 500_000;\npub(crate) const STEPS: [(f64, u8); 2] =\n    \
                          [(0.5, 1), (0.25, 2)];\n";

    fn found(line: &str) -> Vec<String> {
        let text_of =
            |file: &str| (file == "dataplane/pipeline/src/a.rs").then(|| SOURCE.to_owned());
        check("d.md", line, text_of).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn rows_with_the_value_of_the_source_are_right() {
        for line in [
            "| `a.rs` `DELAY_NANOS` | `500_000` ns | why |",
            "| `dataplane/pipeline/src/a.rs` `DELAY_NANOS` | `500_000` | why |",
            "| `a.rs` `STEPS` | `[(0.5, 1), (0.25, 2)]` | why |",
            "| `a.rs` | no constant |",
            "| `a.rs` `function` | `500` |",
            "text with `a.rs` `DELAY_NANOS` | `7` |",
        ] {
            assert_eq!(found(line), [""; 0], "{line}");
        }
    }

    #[test]
    fn old_values_and_missing_names_are_found() {
        for (line, message) in [
            (
                "| `a.rs` `DELAY_NANOS` | `400_000` | x |",
                "states `DELAY_NANOS` as `400_000`; `a.rs` has `500_000`",
            ),
            ("| `a.rs` `OTHER` | `1` | x |", "names `OTHER`, which `a.rs` does not define"),
            ("| `b.rs` `OTHER` | `1` | x |", "names `b.rs`, which does not exist"),
        ] {
            assert_eq!(found(line), [message]);
        }
    }
}
