//! `bench papers`: each figure, table and headline number of the five papers next to Recoded's.
//!
//! ```text
//!  bench/papers/*.toml --table--> rows: item, the paper's number, a pointer into a result file
//!  bench/results, docs, syn --document, pointer--> Recoded's number, its machine and date
//!                              |-> verdict  met, not met, not comparable, works, not measured
//!                              '-> page     docs/measurements/papers.md
//! ```
//!
//! No number of Recoded is written in a table: it is read from a committed file.

pub mod error;

mod document;
mod levels;
mod pointer;
mod table;

mod verdict;

mod page;

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::BenchError;
use crate::results;
use error::PapersError;

/// Write the scoreboard of the papers: every figure, table and headline number, met or not
///
/// Reads bench/papers and the committed results, and measures nothing. It fails if a figure or
/// table of a paper has no row, or if a row names a number or a test that does not exist.
#[derive(clap::Args)]
#[command(after_long_help = "Examples:
  cargo run -p bench -- papers
  cargo run -p bench -- papers --check")]
pub struct PapersOptions {
    /// The root of the repository
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    root: PathBuf,
    /// Write nothing; fail if the committed page differs
    #[arg(long)]
    check: bool,
}

/// Writes or checks the page.
///
/// # Errors
/// [`BenchError::Papers`] and [`BenchError::Os`].
pub fn run(options: &PapersOptions) -> Result<(), BenchError> {
    let path = options.root.join(PAGE);
    let text = render(&options.root)?;
    match options.check {
        true => check(&path, &text)?,
        false => results::write(&path, text)?,
    }
    println!("{}", path.display());
    Ok(())
}

/// The page of the tables and results in `root`.
fn render(root: &Path) -> Result<String, PapersError> {
    let sources = table::sources(root)?;
    let papers = PAPERS.iter().map(|name| table::paper(root, name));
    let papers = papers.collect::<Result<Vec<_>, _>>()?;
    let judged = papers.iter().map(|paper| verdict::judge(root, paper, &sources));
    let judged = judged.collect::<Result<Vec<_>, _>>()?;
    page::write(root, &sources, &judged)
}

/// Compares the committed page with `text`.
fn check(path: &Path, text: &str) -> Result<(), PapersError> {
    let committed = fs::read_to_string(path).map_err(PapersError::read(path))?;
    match committed == text {
        true => Ok(()),
        false => Err(PapersError::Stale { path: path.to_owned() }),
    }
}

/// The page, in the root.
const PAGE: &str = "docs/measurements/papers.md";

/// Tables in `bench/papers`, in the order of the page.
const PAPERS: [&str; 5] = ["nuclei", "extreme", "gibraltar", "cs-bats", "libmoepgf"];

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
    }

    #[test]
    fn committed_page_is_that_of_the_tables_and_results() {
        let text = render(&root()).unwrap_or_else(|error| panic!("{error}"));
        check(&root().join(PAGE), &text).unwrap_or_else(|error| panic!("{error}"));
    }

    #[test]
    fn page_that_differs_is_stale() {
        let error = check(&root().join(PAGE), "another").unwrap_err();
        assert!(matches!(error, PapersError::Stale { .. }));
    }

    #[test]
    fn folder_without_tables_is_an_error_with_a_fix() {
        let error = render(Path::new("/nonexistent")).unwrap_err().to_string();
        assert!(error.contains("--root"), "{error}");
    }
}
