//! Errors of the scoreboard, each with its fix.

use std::io;
use std::path::{Path, PathBuf};

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
pub enum PapersError {
    /// A file is missing or not UTF-8.
    #[error("cannot read {}: {source}; run this in the repository, or name it by --root", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Error from Linux.
        source: io::Error,
    },

    /// A file is not valid TOML, JSON or CSV, or has other keys than a table has.
    #[error("cannot parse {}: {problem}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// The parser's message.
        problem: String,
    },

    /// A row contradicts itself.
    #[error("{paper}, {item}: {problem}")]
    Row {
        /// The paper's table.
        paper: String,
        /// The item of the row.
        item: String,
        /// The problem and its fix.
        problem: &'static str,
    },

    /// Figures or tables of a paper without a row.
    #[error("{paper}: no row for {}; add one, or a reason why nothing is measured", items.join(", "))]
    Missing {
        /// The paper's table.
        paper: String,
        /// The items.
        items: Vec<String>,
    },

    /// A pointer that yields no number.
    #[error("{row}: {at} in {}: {problem}; correct the pointer in bench/papers", file.display())]
    Pointer {
        /// The paper's table and the item of the row.
        row: String,
        /// The pointer.
        at: String,
        /// The result file.
        file: PathBuf,
        /// Why it yields no number.
        problem: PointerError,
    },

    /// A test that does not exist.
    #[error("{paper}, {item}: no test {test}; write it as FILE::FUNCTION")]
    Test {
        /// The paper's table.
        paper: String,
        /// The item of the row.
        item: String,
        /// The named test.
        test: String,
    },

    /// The committed page differs.
    #[error("{} differs from its tables and results; run: cargo run -p bench -- papers", path.display())]
    Stale {
        /// The page.
        path: PathBuf,
    },
}

impl PapersError {
    /// Wraps a failure to read `path`.
    pub fn read(path: &Path) -> impl FnOnce(io::Error) -> PapersError {
        let path = path.to_owned();
        move |source| PapersError::Read { path, source }
    }

    /// Wraps a parser's message about `path`.
    pub fn parse<E: ToString>(path: &Path) -> impl FnOnce(E) -> PapersError {
        let path = path.to_owned();
        move |error| PapersError::Parse { path, problem: error.to_string() }
    }
}

/// Why a pointer yields no number.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum PointerError {
    /// No member of this name, or no element that matches.
    #[error("nothing at {0}")]
    Nothing(String),

    /// Several elements match, and the row does not reduce them.
    #[error("{count} elements match {step}")]
    Several {
        /// The step.
        step: String,
        /// How many.
        count: usize,
    },

    /// The value is not a number.
    #[error("{0} is not a number")]
    NotANumber(String),
}
