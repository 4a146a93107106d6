//! Tests that documents name: a word `path.rs::name` in backticks is a function of that file, so
//! that tables do not keep the names of removed tests.

use super::Finding;
use super::readmes::words_in_backticks;

/// Findings for functions that do not exist; `text_of` returns the text of a file of the
/// repository.
pub fn check(path: &str, text: &str, text_of: impl Fn(&str) -> Option<String>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for word in words_in_backticks(line) {
            let Some((file, name)) = word.split_once(".rs::") else { continue };
            let is_there = text_of(&format!("{file}.rs"))
                .is_some_and(|text| text.contains(&format!("fn {name}(")));
            if !is_there {
                let message = format!("names `{word}`, which does not exist");
                findings.push(Finding::new(path, Some(index + 1), message));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_that_are_there_are_found_and_others_reported_by_line() {
        let text_of = |file: &str| {
            (file == "a/tests/b.rs").then(|| "#[test]\nfn one_thing_holds() {}\n".to_owned())
        };
        let text = "| x | `a/tests/b.rs::one_thing_holds`, `b.rs` |\n`a/tests/b.rs::one_thing`\n\
                    `a/tests/c.rs::one_thing_holds`";
        let findings = check("T.md", text, text_of);
        let lines: Vec<_> = findings.iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [Some(2), Some(3)]);
    }
}
