//! Files that depend on the code of a flow: those that name a variant or the name of a code are the
//! ones that [`PAGE`] lists, so that a new code has a complete list of places.
//!
//! Tests are not searched, nor the folder of each code.

use std::collections::BTreeSet;
use std::path::Path;

use super::Finding;
use super::readmes::{normalize, words_in_backticks};

/// The document with the list.
pub const PAGE: &str = "dataplane/pipeline/README.md";

/// Heading of the list; it ends at the next one.
const HEADING: &str = "## Places that depend on the code";

/// What these files contain. Variants of roles begin with the name of their code.
const NAMES: [&str; 9] = [
    "FlowCode::Rlnc",
    "FlowCode::Bats",
    "FlowCode::Stream",
    "RoleState::Rlnc",
    "RoleState::Bats",
    "RoleState::Stream",
    "\"rlnc\"",
    "\"bats\"",
    "\"stream\"",
];

/// Folders that are searched.
const FOLDERS: [&str; 3] = ["control", "dataplane", "scripts/recoded-demo"];

/// The folder of each code.
const CODES: [&str; 3] =
    ["dataplane/pipeline/src/bats", "dataplane/pipeline/src/rlnc", "dataplane/pipeline/src/stream"];

/// Findings for files that the list lacks, and for listed ones that do not depend on the code.
/// `sources` are all Rust files.
pub fn check(page: &str, sources: &[(&str, String)]) -> Vec<Finding> {
    let folder = Path::new(PAGE).parent().unwrap_or(Path::new(""));
    let lines = page.lines().skip_while(|line| *line != HEADING).skip(1);
    let listed: BTreeSet<String> = lines
        .take_while(|line| !line.starts_with('#'))
        .flat_map(words_in_backticks)
        .filter(|word| word.ends_with(".rs"))
        .filter_map(|word| normalize(&folder.join(word)))
        .map(|path| path.to_string_lossy().into_owned())
        .collect();
    let depend: BTreeSet<String> = sources
        .iter()
        .filter(|(path, text)| is_searched(path) && depends(text))
        .map(|(path, _)| (*path).to_owned())
        .collect();
    let lacks = depend.difference(&listed).map(|path| {
        let message = format!(
            "depends on the code: ask a method of `FlowCode`, or list it in {PAGE}, \"{HEADING}\""
        );
        Finding::new(path, None, message)
    });
    let stale = listed.difference(&depend).map(|path| {
        Finding::new(PAGE, None, format!("lists `{path}`, which does not depend on the code"))
    });
    lacks.chain(stale).collect()
}

fn is_searched(path: &str) -> bool {
    let is_in = |folders: &[&str]| folders.iter().any(|folder| Path::new(path).starts_with(folder));
    let is_test = path.contains("/tests/") || path.ends_with("/tests.rs");
    path.contains("/src/") && is_in(&FOLDERS) && !is_in(&CODES) && !is_test
}

/// Whether code, without tests, comments and attributes, names a code.
fn depends(text: &str) -> bool {
    let lines = text.lines().take_while(|line| *line != "mod tests {");
    let mut code = lines.map(str::trim).filter(|line| !line.starts_with(['/', '#']));
    code.any(|line| NAMES.iter().any(|name| line.contains(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "`x.rs`\n## Places that depend on the code\n| `src/stage.rs`, `../wire/src/a.rs` | x \
                        |\n## Next\n`y.rs`\n";

    #[test]
    fn listed_files_no_finding() {
        let text = "let code = FlowCode::Rlnc;".to_owned();
        let sources = [
            ("dataplane/pipeline/src/stage.rs", text.clone()),
            ("dataplane/wire/src/a.rs", "const NAME: &str = \"stream\";".to_owned()),
            ("dataplane/pipeline/src/rlnc/source.rs", text.clone()),
            ("dataplane/pipeline/tests/pipeline/line.rs", text.clone()),
            ("bench/src/line.rs", text.clone()),
            (
                "control/cli/src/a.rs",
                format!("// {text}\n#[cfg(feature = \"bats\")]\nmod tests {{\n{text}"),
            ),
        ];
        assert_eq!(check(LIST, &sources), []);
    }

    #[test]
    fn missing_and_stale_files_found() {
        let text = "matches!(code, FlowCode::Stream(_))".to_owned();
        let sources =
            [("dataplane/pipeline/src/stage.rs", text.clone()), ("control/a/src/b.rs", text)];
        let findings = check(LIST, &sources);
        let paths: Vec<_> = findings.iter().map(|finding| finding.path.as_str()).collect();
        assert_eq!(paths, ["control/a/src/b.rs", PAGE]);
        assert!(findings[1].message.contains("dataplane/wire/src/a.rs"));
    }
}
