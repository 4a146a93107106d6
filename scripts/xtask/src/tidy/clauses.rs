//! Clauses of the protocol: each with MUST is cited by code and by a test, or stands in the list of
//! gaps of the specification.
//!
//! A clause is an item `- (a) ...` of a section `### 2.1 ...`, cited as
//! `//= docs/protocol §2.1(a)`, or a row of the budgets, cited as `//= docs/protocol §7.1 B1`. A
//! comment may cite several, separated by commas. A citation is of a test if its file is one, or if
//! it follows `#[cfg(test)]`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::Finding;

/// The specification.
pub const PAGE: &str = "docs/protocol/README.md";

/// Where code cites it.
const MARK: &str = "//= docs/protocol ";

/// Section of the budgets, whose rows are clauses too.
const BUDGETS: &str = "7.1";

/// Heading of the clauses that lack code or a test. Its rows are `| §2.1(a) | test | why |`.
const GAPS: &str = "### 7.5 ";

/// Who cites a clause.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Citer {
    Code,
    Test,
}

impl Citer {
    const ALL: [Citer; 2] = [Citer::Code, Citer::Test];

    const fn name(self) -> &'static str {
        match self {
            Citer::Code => "code",
            Citer::Test => "test",
        }
    }
}

/// A clause, and the line that it begins in.
#[derive(Debug)]
struct Clause {
    id: String,
    line: usize,
    has_must: bool,
}

/// Findings for clauses without code or test, for gaps that are none, and for citations of clauses
/// that do not exist. `sources` are Rust files with their text.
pub fn check(page: &str, sources: &[(&str, String)]) -> Vec<Finding> {
    let clauses = clauses(page);
    let known: BTreeSet<&str> = clauses.iter().map(|clause| &*clause.id).collect();
    let mut cited = BTreeSet::new();
    let mut findings = Vec::new();
    for (path, text) in sources {
        for (line, citer, id) in citations(path, text) {
            if !known.contains(&*id) {
                let message = format!("cites §{id}, which `{PAGE}` does not have");
                findings.push(Finding::new(path, Some(line), message));
            }
            cited.insert((id, citer));
        }
    }
    let mut gaps = gaps(page);
    for clause in clauses.iter().filter(|clause| clause.has_must) {
        for citer in Citer::ALL {
            let is_cited = cited.contains(&(clause.id.clone(), citer));
            let gap = gaps.remove(&(clause.id.clone(), citer));
            let (id, name) = (&clause.id, citer.name());
            let message = match (is_cited, gap) {
                (false, None) => format!(
                    "§{id} has MUST, and no {name} cites it: write `{MARK}§{id}` there, or a row \
                     of 7.5"
                ),
                (true, Some(_)) => format!("§{id} has a {name}: remove it from 7.5"),
                _ => continue,
            };
            findings.push(Finding::new(PAGE, Some(clause.line), message));
        }
    }
    let wrong = gaps.into_iter().map(|((id, citer), line)| {
        let message = format!("§{id} {} is no clause with MUST: remove the row", citer.name());
        Finding::new(PAGE, Some(line), message)
    });
    findings.extend(wrong);
    findings
}

/// The clauses of the specification, with and without MUST.
fn clauses(page: &str) -> Vec<Clause> {
    let mut clauses: Vec<Clause> = Vec::new();
    let (mut section, mut is_open) = ("", false);
    for (index, line) in page.lines().enumerate() {
        if line.starts_with('#') {
            section = line.split_whitespace().nth(1).unwrap_or_default();
        }
        let name = line.strip_prefix("- (").and_then(|rest| rest.split_once(')'));
        let row = line.strip_prefix("| B").and_then(|rest| rest.split_once(" |"));
        let id = match (name, row) {
            (Some((letter, _)), _) => Some(format!("{section}({letter})")),
            // A row may be of several budgets.
            (None, Some((numbers, _))) if section == BUDGETS && !numbers.contains(',') => {
                Some(format!("{section} B{numbers}"))
            }
            _ => None,
        };
        // A clause continues in indented lines.
        is_open = id.is_some() || is_open && line.starts_with("  ");
        if let Some(id) = id {
            clauses.push(Clause { id, line: index + 1, has_must: false });
        }
        if let Some(clause) = clauses.last_mut().filter(|_| is_open) {
            clause.has_must |= line.contains("MUST");
        }
    }
    clauses
}

/// The clauses listed as lacking code or a test, and the lines of the list.
fn gaps(page: &str) -> BTreeMap<(String, Citer), usize> {
    let lines = page.lines().enumerate().skip_while(|(_, line)| !line.starts_with(GAPS));
    let lines = lines.skip(1).take_while(|(_, line)| !line.starts_with('#'));
    let mut gaps = BTreeMap::new();
    for (index, line) in lines {
        let mut cells = line.split(" | ");
        let id = cells.next().and_then(|cell| cell.strip_prefix("| §"));
        let (Some(id), Some(lacks)) = (id, cells.next()) else { continue };
        for citer in Citer::ALL.into_iter().filter(|citer| lacks.contains(citer.name())) {
            gaps.insert((id.trim().to_owned(), citer), index + 1);
        }
    }
    gaps
}

/// Citations of a file: line, kind, and clause.
fn citations(path: &str, text: &str) -> Vec<(usize, Citer, String)> {
    let is_test_file = Path::new(path).components().any(|part| part.as_os_str() == "tests")
        || path.ends_with("tests.rs");
    let mut citer = if is_test_file { Citer::Test } else { Citer::Code };
    let mut citations = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim() == "#[cfg(test)]" {
            citer = Citer::Test;
        }
        let Some(ids) = line.trim_start().strip_prefix(MARK) else { continue };
        for id in ids.split(',') {
            citations.push((index + 1, citer, id.trim().trim_start_matches('§').to_owned()));
        }
    }
    citations
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE_TEXT: &str = "### 2.1 Header\n- (a) A receiver MUST drop it.\n- (b) It may, and\n  \
                             MUST NOT wait.\n- (c) Nothing.\n\nMUST of no clause.\n### 7.1 \
                             Budgets\n| B1 | MUST drop | x |\n| B4, B5 | none | |\n### 7.5 Lack\n\
                             | §2.1(b) | test | why |\n";

    fn found(sources: &[(&str, &str)]) -> Vec<String> {
        let sources: Vec<_> =
            sources.iter().map(|(path, text)| (*path, (*text).to_owned())).collect();
        check(PAGE_TEXT, &sources).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn clauses_cited_by_code_and_test_or_listed_as_gaps_are_right() {
        let code = "    //= docs/protocol §2.1(a), §2.1(b)\n    //= docs/protocol §7.1 B1\n\
                    #[cfg(test)]\nmod tests {\n    //= docs/protocol §7.1 B1\n}\n";
        let test = "//= docs/protocol §2.1(a)\nfn it_drops() {}\n";
        assert_eq!(found(&[("a/src/b.rs", code), ("a/tests/c.rs", test)]), [""; 0]);
    }

    #[test]
    fn clauses_without_code_or_test_and_citations_of_none_are_found() {
        let all =
            found(&[("a/src/b.rs", "//= docs/protocol §2.1(a)\n//= docs/protocol §9.9(z)\n")]);
        assert!(all[0].contains("§9.9(z), which"), "{all:?}");
        assert!(all[1].contains("§2.1(a) has MUST, and no test"), "{all:?}");
        assert!(all[2].contains("§2.1(b) has MUST, and no code"), "{all:?}");
        assert_eq!(all.len(), 5, "{all:?}");
        let all = found(&[("a/tests/b.rs", "//= docs/protocol §2.1(b)\n")]);
        assert!(all.iter().any(|found| found.contains("§2.1(b) has a test: remove")), "{all:?}");
    }
}
