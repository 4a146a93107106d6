//! Keys and values of a configuration as TOML.

use std::fmt::Write;
use toml::Value;

/// A number that counts something.
pub fn whole(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Writes a key.
pub fn key(text: &mut String, name: &str, value: impl Into<Value>) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{name} = {}", value.into());
}
