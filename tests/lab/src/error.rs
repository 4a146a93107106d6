//! Failures of the lab, which distinguish a failed case from one that could not run.

use std::io;
use std::path::{Path, PathBuf};

use recoded_netns::BedError;

/// Failure of a case, or of a part that all cases need.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// This host lacks a package, a program or a mirror: the case cannot run here.
    #[error("{0}")]
    Unavailable(String),
    /// The case ran and its result is wrong.
    #[error("{0}")]
    Wrong(String),
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A program failed.
    #[error(transparent)]
    Program(#[from] BedError),
}

impl LabError {
    /// For `map_err` on file operations.
    pub fn file(path: &Path) -> impl FnOnce(io::Error) -> LabError + use<> {
        let path = path.to_owned();
        move |source| LabError::File { path, source }
    }

    /// A wrong result.
    pub fn wrong<T>(problem: impl Into<String>) -> Result<T, LabError> {
        Err(LabError::Wrong(problem.into()))
    }
}
