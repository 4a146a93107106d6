//! What `recodectl set` can change: its help, and words for completion. The daemon decides what is
//! allowed.

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use std::ffi::OsStr;
use std::fmt::Write;

/// A key: its name, the roles or the code that have it, what it takes, and how completion begins.
type Key = (&'static str, &'static str, &'static str, &'static [&'static str]);

/// Keys by role.
const BY_ROLE: [Key; 11] = [
    (
        "code",
        "source sink",
        "rlnc, bats or window; the sink first",
        &["code=rlnc", "code=bats", "code=window"],
    ),
    (
        "field",
        "source",
        "2, 4, 16 or 256; of a window 2 or 256",
        &["field=2", "field=4", "field=16", "field=256"],
    ),
    ("redundancy", "source", "auto, or packets per symbol", &["redundancy=auto", "redundancy="]),
    ("target_loss", "source", "1e-9 to 0.5, the share that auto may lose", &["target_loss="]),
    ("redundancy_max", "source relay", "1 to 32 packets per symbol", &["redundancy_max="]),
    ("flush_timeout_us", "source", "microseconds", &["flush_timeout_us="]),
    ("batch_timeout_us", "relay sink", "microseconds", &["batch_timeout_us="]),
    ("hold_timeout_us", "sink", "microseconds", &["hold_timeout_us="]),
    ("recoding", "relay", "systematic or random", &["recoding=systematic", "recoding=random"]),
    (
        "adaptive",
        "relay",
        "true or false: packets for a BATS batch follow its rank",
        &["adaptive=true", "adaptive=false"],
    ),
    ("repair", "source sink", "true or false", &["repair=true", "repair=false"]),
];

/// Keys of sources, by code.
const BY_CODE: [Key; 8] = [
    ("generation_size", "rlnc", "1 to 256 symbols", &["generation_size="]),
    ("block_symbols", "bats", "1 to 4096 source symbols", &["block_symbols="]),
    ("batch_size", "bats", "1 to 128 packets", &["batch_size="]),
    (
        "profile",
        "bats",
        "cyclic-shift, precoded or baseline",
        &["profile=cyclic-shift", "profile=precoded", "profile=baseline"],
    ),
    (
        "generator_bits",
        "bats",
        "1, 2, 3, 4 or 8",
        &[
            "generator_bits=1",
            "generator_bits=2",
            "generator_bits=3",
            "generator_bits=4",
            "generator_bits=8",
        ],
    ),
    (
        "interleave",
        "bats",
        "auto, or 1 to 255 batches that take turns",
        &["interleave=auto", "interleave="],
    ),
    ("window_symbols", "window", "1 to 4095 symbols", &["window_symbols="]),
    ("density", "window", "0 to 15; over field 2 up to 14", &["density="]),
];

/// Ceilings of what sinks accept, by code.
const CEILINGS: [Key; 4] = [
    ("generation_size_max", "rlnc, relays", "1 to 256", &["generation_size_max="]),
    ("block_symbols_max", "bats", "1 to 4096", &["block_symbols_max="]),
    ("batch_size_max", "bats", "1 to 128", &["batch_size_max="]),
    ("window_symbols_max", "window", "1 to 4095", &["window_symbols_max="]),
];

/// What follows `set engine`.
const ENGINES: [&str; 3] = ["auto", "cpu", "cuda"];

/// What `--help` adds.
pub fn help() -> String {
    let mut text = String::new();
    let mut group = |title: &str, keys: &[Key]| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{title}");
        for (key, owner, what, _) in keys {
            let _ = writeln!(text, "  {key:<20} {owner:<13} {what}");
        }
        text.push('\n');
    };
    group("Keys, by the roles they apply to:", &BY_ROLE);
    group("By the code, at sources:", &BY_CODE);
    group("Largest that is accepted, by the code, at sinks:", &CEILINGS);
    text.push_str(RULES);
    text
}

const RULES: &str = "\
Examples:
  recodectl set 1 generation_size=64 field=4       both at once, or neither
  recodectl set 1 redundancy=1.5                   a fixed number of packets per symbol
  recodectl set 1 code=bats block_symbols=1024     at the sink code=bats first, and
                                                   block_symbols_max=1024
  recodectl set engine cpu                         auto, cpu or cuda: who solves large generations

A flow starts afresh when its code or a ceiling changes: what is under way is lost, and its counters
begin anew with the code. Everything else changes without losing a packet. Keys of another code are
forgotten when the code changes.

Exit code 4 means that a rule forbids it; the message names key, value and rule.";

/// Takes any word; those known here are offered by completion. Which keys there are is for the
/// daemon to say.
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
        let keys = BY_ROLE.iter().chain(&BY_CODE).chain(&CEILINGS);
        let changes = keys.flat_map(|(_, _, what, words)| {
            words.iter().map(|word| PossibleValue::new(*word).help(*what))
        });
        let engines = ENGINES.map(|word| PossibleValue::new(word).help("who does bulk work"));
        Some(Box::new(changes.chain(engines)))
    }
}

/// Takes a change of a flow apart.
pub fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() && !value.is_empty() => {
            Ok((key.trim().to_owned(), value.trim().to_owned()))
        }
        _ => Err("write KEY=VALUE, such as generation_size=32".to_owned()),
    }
}
