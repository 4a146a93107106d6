//! Configuration files: accepted whole or refused by line, and written as applied.

use std::collections::{BTreeMap, BTreeSet};

use recoded::config::Config;
use recoded::config::edit::edit;

/// Name of the file in messages.
const FILE: &str = "recoded.toml";

const MTU: u32 = 1500;

/// The configuration of `text`, on a host whose interfaces have the usual MTU; otherwise the
/// message and the lines it refers to.
pub(crate) fn parse(text: &str) -> Result<Config, (String, Vec<usize>)> {
    match Config::parse(FILE, text, &|_| Some(MTU)) {
        Ok((.., config)) => Ok(config),
        Err(errors) => {
            let lines = errors.errors.iter().filter_map(|error| error.line).collect();
            Err((errors.to_string(), lines))
        }
    }
}

/// A file, then after a zero byte changes of its first flow: keys and values, each up to the next
/// zero.
pub(crate) fn target(bytes: &[u8]) {
    let mut parts = bytes.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    let text = parts.next().unwrap_or_default();
    let config = match parse(&text) {
        Ok(config) => config,
        Err((message, lines)) => {
            assert!(message.lines().all(|line| line.starts_with(FILE)), "{message}");
            let last = text.lines().count().max(1);
            assert!(lines.iter().all(|line| (1..=last + 1).contains(line)), "{last}: {message}");
            return;
        }
    };
    assert_written(&config);
    let Some(flow) = config.flows.first() else { return };
    let mut changes = BTreeMap::new();
    while let (Some(key), Some(value)) = (parts.next(), parts.next()) {
        changes.insert(key.into_owned(), value.into_owned());
    }
    // Whatever the values are, the text stays one that can be read.
    let edited = edit(&text, flow.params.id, &changes, &BTreeSet::new());
    let edited = edited.expect("the flow is in the file");
    if let Ok(config) = parse(&edited) {
        assert_written(&config);
    }
}

/// The active configuration, written out, parses to the same configuration.
pub(crate) fn assert_written(config: &Config) {
    let text = config.to_toml();
    let again = parse(&text).unwrap_or_else(|(message, _)| panic!("{message}\n{text}"));
    assert_eq!(again, *config, "{text}");
}
