//! Configuration errors, as messages that state the place and the fix.

use std::fmt;

/// One mistake.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigError {
    /// Line in the file, counted from 1; `None` for a value that came from `set`.
    pub line: Option<usize>,
    /// The section: `daemon`, `link east`, `flow 1`. Empty for the file as a whole.
    pub place: String,
    /// The fault.
    pub fault: Fault,
}

/// Kinds of faults.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Invalid TOML.
    Syntax {
        /// The message, of `recoded_network::syntax_fault`.
        message: String,
    },
    /// A section or key that does not exist.
    Unknown {
        /// The key.
        key: String,
        /// A suggestion, or the valid keys.
        hint: String,
    },
    /// A required key is missing.
    Missing {
        /// The key.
        key: &'static str,
        /// The rule for its value.
        rule: String,
    },
    /// A value that breaks a rule.
    Value {
        /// The key.
        key: String,
        /// The value as written.
        value: String,
        /// How it breaks the rule: "is out of range".
        verdict: &'static str,
        /// The rule.
        rule: String,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.place.is_empty() {
            write!(formatter, "{}: ", self.place)?;
        }
        match &self.fault {
            Fault::Syntax { message } => formatter.write_str(message),
            Fault::Unknown { key, hint } => write!(formatter, "unknown key {key}: {hint}"),
            Fault::Missing { key, rule } => write!(formatter, "{key} is missing: {rule}"),
            Fault::Value { key, value, verdict, rule } => {
                write!(formatter, "{key} = {value} {verdict}: {rule}")
            }
        }
    }
}

/// Every mistake in a file, or in a change. Never empty.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigErrors {
    file: String,
    /// The mistakes, in order of lines.
    pub errors: Vec<ConfigError>,
}

impl ConfigErrors {
    /// Collects the mistakes found in `file`.
    pub fn new(file: &str, mut errors: Vec<ConfigError>) -> ConfigErrors {
        errors.sort_by_key(|error| error.line);
        ConfigErrors { file: file.to_owned(), errors }
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.errors.iter().enumerate() {
            if index > 0 {
                writeln!(formatter)?;
            }
            match error.line {
                Some(line) => write!(formatter, "{}:{line}: {error}", self.file)?,
                None => write!(formatter, "{error}")?,
            }
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

/// A value as a message shows it, on one line; in the file it may be a list over several lines.
pub fn one_line(written: &str) -> String {
    const CHARS_MAX: usize = 60;
    let text = written.replace(['\n', '\r'], " ");
    if text.chars().count() <= CHARS_MAX {
        return text;
    }
    let cut: String = text.chars().take(CHARS_MAX).collect();
    format!("{cut}...")
}
