//! Links of a built book: each leads to a file of the book, and to an element with that name.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::{is_foreign, resolve};
use crate::repository::Finding;
use crate::{TaskError, read};

/// Pages whose links mdBook makes for other places: it is served for any missing path.
const WITHOUT: [&str; 1] = ["404.html"];

/// A built page: its links and the names of its elements.
struct Page {
    links: Vec<String>,
    names: BTreeSet<String>,
}

/// Number of links, and findings for dead ones.
pub fn check(folder: &Path) -> Result<(usize, Vec<Finding>), TaskError> {
    let mut files = BTreeSet::new();
    list(folder, folder, &mut files)?;
    let mut pages = BTreeMap::new();
    for file in files.iter().filter(|file| file.ends_with(".html")) {
        let bytes = read(&folder.join(file))?;
        pages.insert(file.as_str(), parse(&String::from_utf8_lossy(&bytes)));
    }
    let mut findings = Vec::new();
    let mut count = 0;
    for (path, page) in pages.iter().filter(|(path, _)| !WITHOUT.contains(path)) {
        for link in page.links.iter().filter(|link| !is_foreign(link)) {
            count += 1;
            let (file, name) = link.split_once('#').unwrap_or((link, ""));
            let file = if file.is_empty() { Some((*path).to_owned()) } else { resolve(path, file) };
            let file = file.filter(|file| files.contains(file));
            let is_there = file.is_some_and(|file| {
                let target = pages.get(file.as_str());
                name.is_empty() || target.is_none_or(|target| target.names.contains(name))
            });
            if !is_there {
                findings.push(Finding::new(
                    path,
                    None,
                    format!("links to `{link}`: nothing there"),
                ));
            }
        }
    }
    Ok((count, findings))
}

fn list(root: &Path, folder: &Path, files: &mut BTreeSet<String>) -> Result<(), TaskError> {
    let failed = |source| TaskError::File { path: PathBuf::from(folder), source };
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            list(root, &path, files)?;
        } else if let Some(name) = path.strip_prefix(root).ok().and_then(Path::to_str) {
            files.insert(name.to_owned());
        }
    }
    Ok(())
}

fn parse(text: &str) -> Page {
    let values = |attribute: &str| {
        let mut all = Vec::new();
        for (start, _) in text.match_indices(attribute) {
            let value = &text[start + attribute.len()..];
            all.extend(value.split('"').next().map(|value| value.replace("&amp;", "&")));
        }
        all
    };
    let links = [values(" href=\""), values(" src=\"")].concat();
    Page { links, names: values(" id=\"").into_iter().collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_links_of_built_pages_are_found() {
        let folder = std::env::temp_dir().join(format!("recoded-html-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("docs")).unwrap();
        std::fs::write(folder.join("index.html"), "<a href=\"docs/a.html#x\"><a href=\"b.html\">")
            .unwrap();
        std::fs::write(
            folder.join("docs/a.html"),
            "<h1 id=\"x\"><a href=\"../index.html\"><a href=\"#y\"><a href=\"https://h.example\">",
        )
        .unwrap();
        let (count, findings) = check(&folder).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        let found: Vec<String> = findings.iter().map(Finding::to_string).collect();
        assert_eq!(count, 4);
        let expected = [
            "docs/a.html: links to `#y`: nothing there",
            "index.html: links to `b.html`: nothing there",
        ];
        assert_eq!(found, expected);
    }
}
