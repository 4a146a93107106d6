//! Copies pages for mdBook. In the copies, names of pages in backticks are links with their titles,
//! and links to files that are no pages are text, since the book is read without the repository.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::{SUMMARY, is_foreign, links, relative, resolve, summary};
use crate::repository::read_text;
use crate::{TaskError, read};

/// mdBook's configuration of the book.
const CONFIGURATION: &str = "docs/book.toml";

/// Titles of pages, by their paths.
type Titles = BTreeMap<String, String>;

/// Writes the copies; returns the number of pages.
pub fn copy(
    root: &Path,
    folder: &Path,
    summary: &str,
    files: &BTreeSet<String>,
) -> Result<usize, TaskError> {
    let pages = summary::titles(summary);
    let sources = folder.join("src");
    let mut images = BTreeSet::new();
    for path in pages.keys() {
        let text = rewrite(path, &read_text(root, path)?, &pages);
        let targets = links::of(&text).filter_map(|link| resolve(path, link.target));
        images
            .extend(targets.filter(|target| files.contains(target) && !pages.contains_key(target)));
        write(&sources.join(path), text.as_bytes())?;
    }
    for image in images {
        write(&sources.join(&image), &read(&root.join(&image))?)?;
    }
    write(&sources.join("SUMMARY.md"), list(summary).as_bytes())?;
    write(&folder.join("book.toml"), &read(&root.join(CONFIGURATION))?)?;
    Ok(pages.len())
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), TaskError> {
    let parent = path.parent().unwrap_or(path);
    let written = std::fs::create_dir_all(parent).and_then(|()| std::fs::write(path, bytes));
    written.map_err(|source| TaskError::File { path: path.to_path_buf(), source })
}

/// The list of pages with paths from the root.
fn list(summary: &str) -> String {
    let change = |line: &str| match links::of_line(0, line).first() {
        Some(link) => {
            let target = resolve(SUMMARY, link.target).unwrap_or_default();
            format!("{}[{}]({target})\n", &line[..link.start], link.text)
        }
        None => format!("{line}\n"),
    };
    summary.lines().map(change).collect()
}

/// A page as the book has it.
fn rewrite(path: &str, text: &str, pages: &Titles) -> String {
    let prose: BTreeSet<usize> = links::prose(text).map(|(number, _)| number).collect();
    let mut result = String::with_capacity(text.len());
    for (index, line) in text.lines().enumerate() {
        if prose.contains(&(index + 1)) && !line.starts_with('#') {
            result.push_str(&rewrite_line(path, line, pages));
        } else {
            result.push_str(line);
        }
        result.push('\n');
    }
    result
}

fn rewrite_line(path: &str, line: &str, pages: &Titles) -> String {
    let mut result = String::new();
    let mut done = 0;
    for link in links::of_line(0, line) {
        result.push_str(&name_pages(path, &line[done..link.start], pages));
        let is_image = line[..link.start].ends_with('!');
        let (file, heading) = link.target.split_once('#').unwrap_or((link.target, ""));
        let heading = if heading.is_empty() { String::new() } else { format!("#{heading}") };
        match resolve(path, file).and_then(|target| page(&target, pages)) {
            _ if is_foreign(link.target) || is_image || file.is_empty() => {
                result.push_str(&line[link.start..link.end]);
            }
            Some(page) => {
                let target = built(&relative(path, page));
                result.push_str(&format!("[{}]({target}{heading})", link.text));
            }
            None => result.push_str(link.text),
        }
        done = link.end;
    }
    result + &name_pages(path, &line[done..], pages)
}

/// Makes links of the names of pages in backticks.
fn name_pages(path: &str, text: &str, pages: &Titles) -> String {
    let mut result = String::new();
    for (index, part) in text.split('`').enumerate() {
        if index % 2 == 0 {
            result.push_str(part);
            continue;
        }
        let near = resolve(path, part).filter(|_| !part.is_empty());
        let near = near.and_then(|target| page(&target, pages));
        match near.or_else(|| page(part, pages)).filter(|target| *target != path) {
            Some(page) => {
                let target = built(&relative(path, page));
                result.push_str(&format!("[{}]({target})", pages[page]));
            }
            None => result.push_str(&format!("`{part}`")),
        }
    }
    // An odd number of backticks is no code.
    if text.matches('`').count().is_multiple_of(2) { result } else { text.to_owned() }
}

/// The page that a path means: itself, or the README.md of a folder.
fn page<'a>(target: &str, pages: &'a Titles) -> Option<&'a str> {
    let target = target.trim_end_matches('/');
    let index = format!("{target}/README.md");
    let found = pages.get_key_value(target).or_else(|| pages.get_key_value(&index));
    found.map(|(path, _)| path.as_str())
}

/// mdBook names the page of a README.md as index.
fn built(target: &str) -> String {
    match target.strip_suffix("README.md") {
        Some(folder) => format!("{folder}index.md"),
        None => target.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_pages_become_links_and_links_to_other_files_text() {
        let pages = [("README.md", "Start"), ("docs/a.md", "A"), ("docs/b/README.md", "B")];
        let pages = pages.map(|(path, title)| (path.to_owned(), title.to_owned())).into();
        let text = "# `docs/a.md`\nSee `README.md`, `docs/b`, `src/x.rs`, [B](b/README.md#y),\n\
                    [x](../src/x.rs), [h](https://h.example), ![i](i.svg).\n```\n`README.md`\n```\n";
        let expected = "# `docs/a.md`\nSee [Start](../index.md), [B](b/index.md), \
                        `src/x.rs`, [B](b/index.md#y),\nx, [h](https://h.example), ![i](i.svg).\n\
                        ```\n`README.md`\n```\n";
        assert_eq!(rewrite("docs/a.md", text, &pages), expected);
        assert_eq!(
            list("# Summary\n- [A](a.md)\n- [B](../b.md)"),
            "# Summary\n- [A](docs/a.md)\n- [B](b.md)\n"
        );
    }
}
