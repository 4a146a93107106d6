//! Keys that `recodectl set` can change: help and completion words, from the tables of keys. The
//! daemon decides which changes are permitted.

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use recoded_api::keys::{DAEMON, FLOW};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write;

/// Text added to `--help`.
pub fn help() -> String {
    let mut text = "Keys, by the flows that have them:\n".to_owned();
    for key in FLOW.live() {
        let words = key.values_in_words().replace('"', "");
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {:<22} {:<30} {words}", key.name, key.owners());
    }
    text.push('\n');
    text.push_str(RULES);
    text
}

const RULES: &str = "\
Examples:
  recodectl set 1 code=rlnc generation_size=64     both at once, or neither
  recodectl set 1 redundancy=1.5                   a fixed number of packets per symbol
  recodectl set 1 code=rlnc --confirm 60s          rolls back unless recodectl confirm follows
  recodectl set 1 code=bats block_symbols=1024     at the source: the others see it by the packets
  recodectl set engine cpu                         auto, cpu, cuda or fpga: solves large generations

Nothing that is under way is lost. Keys of another code are forgotten when the code changes.

Exit code 4 means that a rule forbids it; the message names key, value and rule.";

/// Accepts any word; completion offers the known ones. The daemon validates keys.
#[derive(Clone)]
pub struct ChangeParser;

impl TypedValueParser for ChangeParser {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<Self::Value, clap::Error> {
        StringValueParser::new().parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let changes = FLOW.live().flat_map(|key| {
            let begins =
                key.values.choices().into_iter().chain(key.values.is_open().then(String::new));
            begins
                .map(|value| PossibleValue::new(format!("{}={value}", key.name)).help(key.meaning))
        });
        let engines = DAEMON.find("engine").into_iter().flat_map(|engine| {
            let words = engine.values.choices().into_iter();
            words.map(|word| PossibleValue::new(word).help("who does bulk work"))
        });
        Some(Box::new(changes.chain(engines)))
    }
}

/// Parses the changes of a flow, each key once.
pub fn changes(words: &[String]) -> Result<BTreeMap<String, String>, String> {
    let mut changes = BTreeMap::new();
    for word in words {
        let (key, value) = key_value(word)?;
        if changes.contains_key(&key) {
            return Err(format!("{key} is given twice: write one value for it"));
        }
        changes.insert(key, value);
    }
    Ok(changes)
}

/// Parses a change of a flow.
pub fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() && !value.is_empty() => {
            Ok((key.trim().to_owned(), value.trim().to_owned()))
        }
        _ => Err("write KEY=VALUE, such as generation_size=32".to_owned()),
    }
}
