//! The rules of the repository that the compiler does not check.
//!
//! [`dependencies`]: allowed imports between crates. [`locked`]: the source of third-party crates.
//! [`circles`]: import cycles of files. [`floors`]: the order of the folders of a crate.
//! [`codes`]: the files that depend on the code of a flow. [`clauses`]: those of the protocol.
//! [`sources`]: rules for the contents of a Rust file. [`parameters`]: no tuples as parameters of
//! functions. [`comments`]: their width. [`words`]: the glossary, and forbidden words.
//! [`sentences`]: their length in documents.
//! [`readmes`]: every crate has one, and the paths that documents name exist. [`named`],
//! [`functions`], [`constants`]: tests, functions and values that documents name. Of
//! [`crate::book`]: links, and the list of pages. Of [`crate::errors`]: the page of messages.
//!
//! Each check is a function from text to findings, so that its test needs no repository.

mod dependencies;

mod locked;

mod sources;

mod parameters;

mod circles;

mod floors;

mod codes;

mod clauses;

mod comments;

mod words;

mod sentences;

mod named;

mod functions;

mod constants;

mod readmes;

use std::collections::BTreeSet;
use std::path::Path;

use crate::repository::{Finding, list_files, read_text};
use crate::tidy::comments::Language;
use crate::tidy::dependencies::Package;
use crate::{TaskError, book, errors};

/// The page with the glossary.
const GLOSSARY: &str = "docs/glossary.md";

/// Checks the whole repository.
pub fn run(root: &Path) -> Result<String, TaskError> {
    let files = list_files(root)?;
    let packages = dependencies::packages(root)?;
    let mut findings = dependencies::check(&packages);
    findings.extend(dependencies::check_without(root)?);
    findings.extend(readmes::check_presence(&crate_folders(&packages), &files));
    for file in files.iter().filter(|file| file.ends_with(".rs")) {
        let text = read_text(root, file)?;
        findings.extend(sources::check(file, &text, needs_forbid(file, &packages)));
        findings.extend(parameters::check(file, &text));
    }
    findings.extend(circles_of(root, &packages, &files)?);
    let sources = files.iter().filter(|file| file.ends_with(".rs"));
    let sources = sources.map(|file| Ok((file.as_str(), read_text(root, file)?)));
    let sources = sources.collect::<Result<Vec<_>, TaskError>>()?;
    findings.extend(codes::check(&read_text(root, codes::PAGE)?, &sources));
    findings.extend(clauses::check(&read_text(root, clauses::PAGE)?, &sources));
    for file in &files {
        let text = read_text(root, file)?;
        let language = Language::of(file, &text);
        findings.extend(language.into_iter().flat_map(|it| comments::check(file, &text, it)));
        if language.is_some() || is_document(file) {
            findings.extend(words::check(file, &text));
        }
    }
    findings.extend(words::check_glossary(GLOSSARY, &read_text(root, GLOSSARY)?));
    for file in files.iter().filter(|file| names_paths(file)) {
        findings.extend(readmes::check_paths(file, &read_text(root, file)?, &files));
    }
    for file in files.iter().filter(|file| is_document(file)) {
        let text_of = |named: &str| read_text(root, named).ok();
        let text = read_text(root, file)?;
        findings.extend(book::links::check(file, &text, &files, text_of));
        findings.extend(sentences::check(file, &text));
        findings.extend(named::check(file, &text, text_of));
        findings.extend(functions::check(file, &text, text_of));
        findings.extend(constants::check(file, &text, text_of));
    }
    findings.extend(book::summary::check(&read_text(root, book::SUMMARY)?, &files));
    findings.extend(errors::check(root, &files)?);
    for file in files.iter().filter(|file| Path::new(file).ends_with("Cargo.lock")) {
        findings.extend(locked::check(file, &read_text(root, file)?));
    }
    if findings.is_empty() {
        return Ok(format!("tidy: {} files, {} crates, no findings", files.len(), packages.len()));
    }
    let report: Vec<String> = findings.iter().map(Finding::to_string).collect();
    Err(TaskError::Untidy { report: report.join("\n"), count: findings.len() })
}

fn circles_of(
    root: &Path,
    packages: &[Package],
    files: &BTreeSet<String>,
) -> Result<Vec<Finding>, TaskError> {
    let mut findings = Vec::new();
    for package in packages {
        let folder = format!("{}/src", package.folder);
        let own = files
            .iter()
            .filter(|file| file.ends_with(".rs") && Path::new(file).starts_with(&folder));
        let texts = own.map(|file| Ok((file, read_text(root, file)?)));
        let texts = texts.collect::<Result<Vec<_>, TaskError>>()?;
        let sources: Vec<_> =
            texts.iter().map(|(path, text)| circles::Source { path, text }).collect();
        findings.extend(circles::check(&folder, &sources));
        findings.extend(floors::check(&folder, &sources));
    }
    Ok(findings)
}

fn is_document(file: &str) -> bool {
    Path::new(file).extension().is_some_and(|extension| extension == "md")
}

/// Whether the paths that a document names are checked: READMEs and the pages of `docs`.
fn names_paths(file: &str) -> bool {
    Path::new(file).ends_with("README.md") || is_document(file) && file.starts_with("docs/")
}

/// Folders that need a README: those of the crates, and the eBPF workspace as a whole.
fn crate_folders(packages: &[Package]) -> Vec<String> {
    packages.iter().map(|package| package.folder.clone()).chain(["ebpf".into()]).collect()
}

/// Whether this file is the root of a library or binary that must forbid unsafe code.
fn needs_forbid(file: &str, packages: &[Package]) -> bool {
    packages.iter().any(|package| {
        !sources::MAY_BE_UNSAFE.contains(&package.name.as_str())
            && package.root_files.iter().any(|root| root == file)
    })
}
