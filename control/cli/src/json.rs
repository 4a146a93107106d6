//! JSON output: the types of the control API, under stable keys.

use recoded_api::v1::Version;
use serde::Serialize;
use std::collections::BTreeMap;

/// A value as indented JSON.
pub fn pretty(value: &impl Serialize) -> serde_json::Result<String> {
    Ok(serde_json::to_string_pretty(value)? + "\n")
}

/// An object with one text.
pub fn object(key: &str, text: &str) -> serde_json::Result<String> {
    pretty(&BTreeMap::from([(key, text)]))
}

/// An error.
pub fn error(exit_code: u8, kind: &str, message: &str) -> String {
    #[derive(Serialize)]
    struct Outer<'a> {
        error: Inner<'a>,
    }
    #[derive(Serialize)]
    struct Inner<'a> {
        exit_code: u8,
        kind: &'a str,
        message: &'a str,
    }
    pretty(&Outer { error: Inner { exit_code, kind, message } }).unwrap_or_default()
}

/// Versions of both sides.
pub fn version(client: &str, daemon: &Version) -> serde_json::Result<String> {
    #[derive(Serialize)]
    struct Versions<'a> {
        client: &'a str,
        daemon: &'a Version,
    }
    pretty(&Versions { client, daemon })
}
