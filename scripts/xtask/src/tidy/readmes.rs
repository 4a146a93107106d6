//! READMEs: every crate has one, and the paths that they and the pages of `docs` name in backticks
//! exist.
//!
//! A word in backticks counts as a path of the repository if its first component is an entry of the
//! document's folder or of the root, or if it ends like a tracked file ([`EXTENSIONS`]). Absolute
//! paths, globs, placeholders, URLs and build results are skipped, and so is everything in fenced
//! blocks. A page of `docs` may leave out the folder in front of a path.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use super::Finding;

/// A word with one of these endings is a file of this repository.
const EXTENSIONS: [&str; 4] = ["rs", "md", "o", "sv"];

/// Folders that builds and runs create.
const GENERATED: [&str; 2] = ["target", "results"];

/// Findings for folders without a README.
pub fn check_presence(folders: &[String], files: &BTreeSet<String>) -> Vec<Finding> {
    let missing = folders.iter().filter(|folder| !files.contains(&format!("{folder}/README.md")));
    missing.map(|folder| Finding::new(folder, None, "the folder lacks a README.md")).collect()
}

/// Findings for paths that do not exist; `files` are all files, relative to the root.
pub fn check_paths(path: &str, text: &str, files: &BTreeSet<String>) -> Vec<Finding> {
    let folder = Path::new(path).parent().unwrap_or(Path::new(""));
    let mut findings = Vec::new();
    let mut fenced = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            continue;
        }
        if fenced {
            continue;
        }
        for word in words_in_backticks(line) {
            if is_dangling(word, folder, files) {
                let message = format!("names `{word}`, which does not exist");
                findings.push(Finding::new(path, Some(index + 1), message));
            }
        }
    }
    findings
}

/// Words in backticks in a line.
pub fn words_in_backticks(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2).flat_map(str::split_whitespace)
}

fn is_dangling(word: &str, folder: &Path, files: &BTreeSet<String>) -> bool {
    let word = word.trim_end_matches(['/', ',', '.', ';']);
    let foreign = |symbol: char| "*<>$~{}()[]|=@:\"'".contains(symbol);
    if word.is_empty()
        || word.starts_with(['/', '-', '.']) && !word.starts_with("..")
        || word.contains(foreign)
    {
        return false;
    }
    let has_extension = Path::new(word)
        .extension()
        .and_then(|extension| extension.to_str())
        .is_some_and(|extension| EXTENSIONS.contains(&extension));
    if !word.contains('/') {
        // A bare file name: it must be the name of some file.
        let is_name = |file: &String| Path::new(file).file_name() == Some(word.as_ref());
        return has_extension && !files.iter().any(is_name);
    }
    if GENERATED.iter().any(|generated| Path::new(word).starts_with(generated)) {
        return false;
    }
    let candidates = [normalize(&folder.join(word)), normalize(Path::new(word))];
    if candidates.iter().flatten().any(|candidate| exists(candidate, files)) {
        return false;
    }
    // Pages name files below a folder that they state once.
    if folder.starts_with("docs") && ends_a_path(word, files) {
        return false;
    }
    let starts_here = candidates.iter().flatten().any(|candidate| {
        candidate.strip_prefix(folder).unwrap_or(candidate).components().next().is_some_and(
            |first| exists(&folder.join(first), files) || exists(Path::new(&first), files),
        )
    });
    has_extension || starts_here
}

/// Whether a file, or a folder with a file in it, has a path that ends with `word`.
fn ends_a_path(word: &str, files: &BTreeSet<String>) -> bool {
    let (file, folder) = (format!("/{word}"), format!("/{word}/"));
    files.iter().any(|path| path.ends_with(&file) || path.contains(&folder))
}

/// Whether this is a file, or a folder with a file in it.
fn exists(path: &Path, files: &BTreeSet<String>) -> bool {
    let Some(text) = path.to_str() else {
        return false;
    };
    let inside = format!("{text}/");
    let next = files.range(inside.clone()..).next();
    files.contains(text) || next.is_some_and(|file| file.starts_with(&inside))
}

/// The path without `.` and `..`, or `None` when it leaves the repository.
pub fn normalize(path: &Path) -> Option<PathBuf> {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir if !normal.pop() => return None,
            Component::ParentDir | Component::CurDir => {}
            other => normal.push(other),
        }
    }
    Some(normal)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files() -> BTreeSet<String> {
        [
            "README.md",
            "scripts/demo",
            "dataplane/wire/README.md",
            "dataplane/wire/src/steer.rs",
            "ebpf/recoded.bpf.o",
        ]
        .map(String::from)
        .into()
    }

    fn dangling(readme: &str, text: &str) -> Vec<String> {
        check_paths(readme, text, &files()).into_iter().map(|found| found.message).collect()
    }

    #[test]
    fn presence_missing_readme_found() {
        let folders = ["dataplane/wire".to_string(), "ebpf".to_string()];
        let findings = check_presence(&folders, &files());
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].path, "ebpf");
    }

    #[test]
    fn paths_existing_from_root_and_folder_no_finding() {
        let text = "`src/steer.rs`, `steer.rs`, `dataplane/wire/`, `sudo scripts/demo --hops 4`, \
                    `../../ebpf/recoded.bpf.o`";
        assert_eq!(dangling("dataplane/wire/README.md", text), [""; 0]);
    }

    #[test]
    fn paths_missing_found_with_line() {
        let text = "fine\nsee `src/gone.rs` and `dataplane/gone`";
        let findings = check_paths("dataplane/wire/README.md", text, &files());
        assert_eq!(findings.len(), 2);
        assert!(findings.iter().all(|finding| finding.line == Some(2)));
        assert_eq!(dangling("README.md", "`gone.rs`").len(), 1);
    }

    #[test]
    fn paths_in_pages_of_docs_may_begin_below_a_folder() {
        assert_eq!(dangling("docs/protocol/README.md", "`wire/src/steer.rs`, `wire/src`"), [""; 0]);
        assert_eq!(dangling("docs/protocol/README.md", "`wire/src/gone.rs`").len(), 1);
        assert_eq!(dangling("README.md", "`wire/src/steer.rs`").len(), 1);
    }

    #[test]
    fn paths_of_others_no_finding() {
        let text = "`/etc/recoded.toml` `10.99.0.1/24` `https://example.org/a.md` `ebpf/*.o` \
                    `target/release/recoded` `results/run.json` `std::net` `a/b` `<dir>/x.rs`";
        assert_eq!(dangling("README.md", text), [""; 0]);
    }

    #[test]
    fn paths_in_fenced_block_ignored() {
        assert_eq!(dangling("README.md", "```\n`scripts/gone.rs`\n```\n"), [""; 0]);
    }
}
