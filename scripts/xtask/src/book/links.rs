//! Links of Markdown files: their files exist, and so do the headings behind a `#`.

use std::collections::BTreeSet;

use super::{exists, is_foreign, resolve};
use crate::repository::Finding;

/// A link or an image outside of code.
#[derive(Clone, Copy, Debug)]
pub struct Link<'a> {
    /// Line, counted from 1.
    pub line: usize,
    /// Text between the brackets.
    pub text: &'a str,
    /// Text between the parentheses.
    pub target: &'a str,
    /// Bytes of the line before the bracket.
    pub start: usize,
    /// Bytes of the line up to and with the last parenthesis.
    pub end: usize,
}

/// Lines outside of fenced blocks, with their numbers from 1.
pub fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        (!is_fenced && !is_fence).then_some((index + 1, line))
    })
}

/// All links of a text.
pub fn of(text: &str) -> impl Iterator<Item = Link<'_>> {
    prose(text).flat_map(|(number, line)| of_line(number, line))
}

/// Links of a line.
pub fn of_line(line_number: usize, line: &str) -> Vec<Link<'_>> {
    let mut links = Vec::new();
    for (middle, _) in line.match_indices("](") {
        let Some(length) = line[middle..].find(')') else { continue };
        let Some(start) = line[..middle].rfind('[') else { continue };
        // Within backticks it is code.
        if line[..start].matches('`').count() % 2 == 1 {
            continue;
        }
        let (text, target) = (&line[start + 1..middle], &line[middle + 2..middle + length]);
        links.push(Link { line: line_number, text, target, start, end: middle + length + 1 });
    }
    links
}

/// Findings for links without a file or heading; `text_of` returns the text of a file.
pub fn check(
    path: &str,
    text: &str,
    files: &BTreeSet<String>,
    text_of: impl Fn(&str) -> Option<String>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for link in of(text).filter(|link| !is_foreign(link.target)) {
        let (file, heading) = link.target.split_once('#').unwrap_or((link.target, ""));
        let file = if file.is_empty() { Some(path.to_owned()) } else { resolve(path, file) };
        let file = file.filter(|file| exists(file, files));
        let problem = match file {
            None => Some("does not exist"),
            Some(_) if heading.is_empty() => None,
            Some(file) => {
                let has = text_of(&file).is_some_and(|text| has_heading(&text, heading));
                (!has).then_some("has no such heading")
            }
        };
        findings.extend(problem.map(|problem| {
            Finding::new(path, Some(link.line), format!("links to `{}`: {problem}", link.target))
        }));
    }
    findings
}

fn has_heading(text: &str, wanted: &str) -> bool {
    let headings = prose(text).filter_map(|(_, line)| line.strip_prefix('#'));
    headings.map(|heading| anchor(heading.trim_start_matches('#').trim())).any(|it| it == wanted)
}

/// The name of a heading in links, as GitHub and mdBook form it.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter_map(|symbol| match symbol {
        ' ' => Some('-'),
        _ if symbol.is_alphanumeric() || "-_".contains(symbol) => Some(symbol),
        _ => None,
    });
    kept.flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_links_and_headings_are_found_and_code_is_not() {
        let files: BTreeSet<String> = ["README.md", "docs/a.md"].map(String::from).into();
        let text = "# Boxes, by hand\n[a](a.md) and [b](b.md)\n`[c](c.md)` ![d](d.svg)\n```\n[e](e)\n```\n\
                    [f](#boxes-by-hand) [g](#boxes) [h](https://h.example/x) [i](../README.md#x)\n";
        let text_of = |file: &str| Some(if file == "docs/a.md" { text } else { "" }.to_owned());
        let findings = check("docs/a.md", text, &files, text_of);
        let found: Vec<String> = findings.iter().map(Finding::to_string).collect();
        let expected = [
            "docs/a.md:2: links to `b.md`: does not exist",
            "docs/a.md:3: links to `d.svg`: does not exist",
            "docs/a.md:7: links to `#boxes`: has no such heading",
            "docs/a.md:7: links to `../README.md#x`: has no such heading",
        ];
        assert_eq!(found, expected);
    }
}
