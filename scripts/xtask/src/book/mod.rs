//! The book: pages that `docs/SUMMARY.md` lists, as `scripts/book` builds them with mdBook.
//!
//! [`summary`]: the list, which has every page of `docs`. [`links`]: links of Markdown files.
//! [`stage`]: copies of the pages, with links for file names. [`html`]: links of the built book.
//! [`commands`], [`blocks`]: commands and configurations that the pages show, checked with built
//! programs. [`init`]: the first commands of a network, run. [`reference`]: the page of all command
//! lines.
//!
//! `cargo xtask tidy` runs the checks that need no program.

pub mod blocks;

pub mod commands;

pub mod html;

pub mod init;

pub mod links;

pub mod reference;

pub mod stage;

pub mod summary;

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use crate::TaskError;
use crate::repository::{Finding, list_files, read_text};

/// The list of pages.
pub const SUMMARY: &str = "docs/SUMMARY.md";

/// Pages outside of the book whose commands and configurations are checked, too.
const OTHERS: [&str; 5] = [
    "control/agent/README.md",
    "control/cli/README.md",
    "control/daemon/README.md",
    "control/network/README.md",
    "control/plan/README.md",
];

/// Copies the pages into the folder `src` of `folder`, for mdBook.
pub fn stage(root: &Path, folder: &Path) -> Result<String, TaskError> {
    let files = list_files(root)?;
    let text = read_text(root, SUMMARY)?;
    stop_at(summary::check(&text, &files))?;
    let pages = stage::copy(root, folder, &text, &files)?;
    Ok(format!("book: {pages} pages"))
}

/// Checks the links of a built book.
pub fn check_html(folder: &Path) -> Result<String, TaskError> {
    let (count, findings) = html::check(folder)?;
    stop_at(findings)?;
    Ok(format!("book: {count} links of the built pages lead somewhere"))
}

/// Checks what pages show with the programs of a folder; `is_writing` rewrites the reference.
pub fn check_shown(root: &Path, folder: &Path, is_writing: bool) -> Result<String, TaskError> {
    let mut programs = commands::Programs::new(folder);
    let page = reference::page(&mut programs)?;
    let mut findings = Vec::new();
    if is_writing {
        let path = root.join(reference::PAGE);
        std::fs::write(&path, &page).map_err(|source| TaskError::File { path, source })?;
    } else if read_text(root, reference::PAGE)? != page {
        let message = "differs from the programs: run `scripts/book --write`";
        findings.push(Finding::new(reference::PAGE, None, message));
    }
    let (mut shown, mut checked, mut run) = (0, 0, 0);
    let pages = summary::pages(&read_text(root, SUMMARY)?);
    let others = OTHERS.map(String::from);
    for path in pages.iter().chain(&others).filter(|path| *path != reference::PAGE) {
        let text = read_text(root, path)?;
        for command in commands::of(&text) {
            shown += 1;
            let problem = programs.check(&command.text)?;
            findings.extend(problem.map(|problem| Finding::new(path, Some(command.line), problem)));
        }
        let mut problems = Vec::new();
        run += init::run(&text, folder, &mut problems)?;
        let problems = problems.into_iter();
        findings.extend(problems.map(|it| Finding::new(path, Some(it.line), it.text)));
        for block in blocks::of(&text) {
            checked += 1;
            let problem = blocks::check(&block, folder)?;
            findings.extend(problem.map(|problem| Finding::new(path, Some(block.line), problem)));
        }
    }
    stop_at(findings)?;
    Ok(format!(
        "book: {shown} commands exist, {run} of them ran; {checked} configurations are valid"
    ))
}

fn stop_at(findings: Vec<Finding>) -> Result<(), TaskError> {
    if findings.is_empty() {
        return Ok(());
    }
    let report: Vec<String> = findings.iter().map(Finding::to_string).collect();
    Err(TaskError::Untidy { report: report.join("\n"), count: findings.len() })
}

/// The path of a link target: from the folder of the page with the link, without `.` and `..`.
/// `None` if it leaves the repository.
fn resolve(page: &str, target: &str) -> Option<String> {
    let folder = Path::new(page).parent().unwrap_or(Path::new(""));
    let mut normal = PathBuf::new();
    for component in folder.join(target).components() {
        match component {
            Component::ParentDir if !normal.pop() => return None,
            Component::ParentDir | Component::CurDir => {}
            other => normal.push(other),
        }
    }
    normal.to_str().map(str::to_owned)
}

/// The relative path from the folder of a page to a file.
fn relative(page: &str, file: &str) -> String {
    let from: Vec<&str> = page.split('/').collect();
    let to: Vec<&str> = file.split('/').collect();
    let folders = from.len() - 1;
    let shared = from[..folders].iter().zip(&to).take_while(|(one, other)| one == other).count();
    let shared = shared.min(to.len() - 1);
    let up = std::iter::repeat_n("..", folders - shared);
    up.chain(to[shared..].iter().copied()).collect::<Vec<_>>().join("/")
}

/// Whether a target is outside of the repository: a URL, or an address for mail.
fn is_foreign(target: &str) -> bool {
    target.contains("://") || target.starts_with("mailto:") || target.starts_with("data:")
}

/// Whether a target is a file, or a folder with a file in it.
fn exists(target: &str, files: &BTreeSet<String>) -> bool {
    let inside = format!("{target}/");
    let next = files.range(inside.clone()..).next();
    files.contains(target) || next.is_some_and(|file| file.starts_with(&inside))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_between_pages_are_short_and_stay_in_the_repository() {
        assert_eq!(resolve("docs/a.md", "../README.md").as_deref(), Some("README.md"));
        assert_eq!(resolve("docs/a.md", "b/c.md").as_deref(), Some("docs/b/c.md"));
        assert_eq!(resolve("README.md", "../x"), None);
        assert_eq!(relative("docs/internals/rate.md", "docs/limits.md"), "../limits.md");
        assert_eq!(relative("README.md", "docs/limits.md"), "docs/limits.md");
        assert_eq!(relative("docs/a.md", "README.md"), "../README.md");
        assert_eq!(relative("docs/a.md", "docs/b.md"), "b.md");
    }
}
