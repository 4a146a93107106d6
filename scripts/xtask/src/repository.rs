//! Files of the repository, and findings about them.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use crate::{TaskError, output, read};

/// One broken rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// File, relative to the root.
    pub path: String,
    /// Line, counted from 1; `None` for the file as a whole.
    pub line: Option<usize>,
    /// The problem, and how to fix it.
    pub message: String,
}

impl Finding {
    pub fn new(path: &str, line: Option<usize>, message: impl Into<String>) -> Self {
        Self { path: path.into(), line, message: message.into() }
    }
}

impl std::fmt::Display for Finding {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.line {
            Some(line) => write!(formatter, "{}:{line}: {}", self.path, self.message),
            None => write!(formatter, "{}: {}", self.path, self.message),
        }
    }
}

/// Files of the working tree, committed or not, except ignored ones; relative to the root.
pub fn list_files(root: &Path) -> Result<BTreeSet<String>, TaskError> {
    let mut git = Command::new("git");
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(root);
    let listed = output(&mut git)?;
    let exists = |file: &&str| !file.is_empty() && root.join(file).is_file();
    Ok(listed.split('\0').filter(exists).map(String::from).collect())
}

pub fn read_text(root: &Path, file: &str) -> Result<String, TaskError> {
    Ok(String::from_utf8_lossy(&read(&root.join(file))?).into_owned())
}
