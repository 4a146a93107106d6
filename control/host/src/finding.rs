//! A finding: its cause, its cure, and the command that applies the cure.

/// Severity.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// It works with restrictions, or its state is unknown.
    Warning,
    /// Packets do not flow, or the daemon does not start.
    Error,
}

impl Level {
    /// The name as written.
    pub const fn name(self) -> &'static str {
        match self {
            Level::Warning => "warning",
            Level::Error => "error",
        }
    }
}

/// One fault.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// Severity.
    pub level: Level,
    /// The subject, such as `link west`.
    pub subject: String,
    /// The cause.
    pub cause: String,
    /// The fix.
    pub cure: String,
    /// The command that applies it, as words; empty if a program should not decide it.
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

/// Adds the command that fixes it.
pub fn by(finding: Finding, command: &str) -> Finding {
    Finding { mend: command.split(' ').map(str::to_owned).collect(), ..finding }
}
