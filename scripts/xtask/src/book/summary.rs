//! `docs/SUMMARY.md`: it lists each page of `docs` and of the root once, and only pages that exist.

use std::collections::{BTreeMap, BTreeSet};

use super::{SUMMARY, links, resolve};
use crate::repository::Finding;

/// Paths of the pages, from the root, in their order.
pub fn pages(text: &str) -> Vec<String> {
    links::of(text).filter_map(|link| resolve(SUMMARY, link.target)).collect()
}

/// Titles of the pages, by their paths.
pub fn titles(text: &str) -> BTreeMap<String, String> {
    let pages = links::of(text);
    pages.filter_map(|it| Some((resolve(SUMMARY, it.target)?, it.text.to_owned()))).collect()
}

/// Findings for pages that the list lacks, or names twice. Dead links are findings of [`links`].
pub fn check(text: &str, files: &BTreeSet<String>) -> Vec<Finding> {
    let pages = pages(text);
    let mut findings = Vec::new();
    let mut seen = BTreeSet::new();
    for page in &pages {
        if !seen.insert(page) {
            findings.push(Finding::new(SUMMARY, None, format!("lists `{page}` twice")));
        }
        if !files.contains(page) {
            findings.push(Finding::new(SUMMARY, None, format!("lists `{page}`, which is no file")));
        }
    }
    for file in files.iter().filter(|file| is_page(file) && !seen.contains(file)) {
        findings.push(Finding::new(SUMMARY, None, format!("does not list `{file}`")));
    }
    findings
}

/// Whether a file belongs to the book.
fn is_page(file: &str) -> bool {
    file.ends_with(".md") && (file.starts_with("docs/") || !file.contains('/')) && file != SUMMARY
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_missing_twice_and_dead_are_found() {
        let files = ["README.md", "docs/SUMMARY.md", "docs/a.md", "docs/b/c.md", "bench/README.md"];
        let files: BTreeSet<String> = files.map(String::from).into();
        let text = "# Summary\n[Start](../README.md)\n- [A](a.md)\n  - [C](b/c.md)\n";
        assert_eq!(check(text, &files), []);
        assert_eq!(pages(text), ["README.md", "docs/a.md", "docs/b/c.md"]);
        let text = "[Start](../README.md)\n- [A](a.md)\n- [A](a.md)\n- [D](d.md)\n";
        let findings = check(text, &files);
        let messages: Vec<String> = findings.iter().map(Finding::to_string).collect();
        let expected = [
            "docs/SUMMARY.md: lists `docs/a.md` twice",
            "docs/SUMMARY.md: lists `docs/d.md`, which is no file",
            "docs/SUMMARY.md: does not list `docs/b/c.md`",
        ];
        assert_eq!(messages, expected);
    }
}
