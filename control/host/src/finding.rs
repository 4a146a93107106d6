//! A finding: its cause, its cure, and the command that applies it.

/// How bad it is.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// It works, worse than it could, or cannot be known.
    Warning,
    /// Packets do not flow, or the daemon does not start.
    Error,
}

impl Level {
    /// How it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Level::Warning => "warning",
            Level::Error => "error",
        }
    }
}

/// One thing that is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// How bad it is.
    pub level: Level,
    /// What it is about, such as `link west`.
    pub subject: String,
    /// What is wrong.
    pub cause: String,
    /// What to do about it.
    pub cure: String,
    /// The command that does it, word by word; none where that is not for a program to decide.
    pub mend: Vec<String>,
}

/// An error without a command.
pub fn error(subject: String, cause: String, cure: String) -> Finding {
    Finding { level: Level::Error, subject, cause, cure, mend: Vec::new() }
}

/// A warning without a command.
pub fn warning(subject: String, cause: String, cure: String) -> Finding {
    Finding { level: Level::Warning, subject, cause, cure, mend: Vec::new() }
}

/// The same, with the command that mends it.
pub fn by(finding: Finding, command: &str) -> Finding {
    Finding { mend: command.split(' ').map(str::to_owned).collect(), ..finding }
}
