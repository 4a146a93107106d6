//! Functions that documents name: after "`file.rs`, `Type::function`" both words stand in the file,
//! so that pages do not keep old names.

use super::Finding;
use super::constants::source_of;

/// Findings for names that the file before them does not have; `text_of` returns the text of a file
/// of the repository.
pub fn check(path: &str, text: &str, text_of: impl Fn(&str) -> Option<String>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for (file, names) in named(line) {
            // Other checks find paths without a file.
            let Some(source) = source_of(file, &text_of) else { continue };
            for name in names.into_iter().filter(|name| !has(&source, name)) {
                let message = format!("names `{name}`, which `{file}` does not have");
                findings.push(Finding::new(path, Some(index + 1), message));
            }
        }
    }
    findings
}

/// Rust files of a line, each with the names that follow it.
fn named(line: &str) -> Vec<(&str, Vec<&str>)> {
    let parts: Vec<&str> = line.split('`').collect();
    let mut all: Vec<(&str, Vec<&str>)> = Vec::new();
    // Every other part is in backticks.
    for index in (1..parts.len()).step_by(2) {
        let (before, part) = (parts[index - 1], parts[index]);
        let follows = index > 1 && before == ", ";
        if part.ends_with(".rs") {
            all.push((part, Vec::new()));
        } else if let Some((_, names)) = all.last_mut().filter(|_| follows && is_name(part)) {
            names.push(part);
        } else {
            // Anything else ends the list of the file before.
            all.push(("", Vec::new()));
        }
    }
    all.retain(|(_, names)| !names.is_empty());
    all
}

fn is_name(part: &str) -> bool {
    part.chars().all(|it| it.is_ascii_alphanumeric() || "_:".contains(it))
}

/// Whether all words of a name stand in a source.
fn has(source: &str, name: &str) -> bool {
    let is_part = |it: char| it.is_ascii_alphanumeric() || it == '_';
    name.split("::").all(|word| source.split(|it| !is_part(it)).any(|other| other == word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(line: &str) -> Vec<String> {
        let source = "impl Sender {\n    fn hear(&mut self) {}\n}\n";
        let text_of =
            |file: &str| (file == "dataplane/pipeline/src/a.rs").then(|| source.to_owned());
        check("d.md", line, text_of).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn names_of_the_file_are_right_and_what_does_not_follow_one_is_not_looked_at() {
        for line in [
            "`a.rs`, `Sender::hear`, `hear`",
            "`dataplane/pipeline/src/a.rs`, `hear` and `other`",
            "`a.rs` calls `other`",
            "`a.rs`, `see --help`, `other`",
            "`missing.rs`, `other`",
        ] {
            assert_eq!(found(line), [""; 0], "{line}");
        }
    }

    #[test]
    fn old_names_are_found() {
        for (line, name) in [
            ("1. `a.rs`, `Sent::hear`: text", "Sent::hear"),
            ("`a.rs`, `Sender::hear`, `Sender::listen`", "Sender::listen"),
        ] {
            assert_eq!(found(line), [format!("names `{name}`, which `a.rs` does not have")]);
        }
    }
}
