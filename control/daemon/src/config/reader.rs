//! Reads the keys of one section, each by a typed rule, and collects violations.
//!
//! A getter returns `None` both for an absent key and for a bad value. A bad value is recorded as
//! an error, so callers can continue with a default and find the next mistake.

use super::document::{Entry, Section};
use super::error::{ConfigError, Fault, one_line};
use recoded_api::keys::{TABLES, Table, Values};
use recoded_api::spelling::{did_you_mean, nearest};
use recoded_api::units::{self, DURATION_UNITS, RATE_UNITS, UnitError};
use std::net::IpAddr;
use std::ops::RangeInclusive;
use toml::Value;

/// Reads one section.
pub struct Reader<'a> {
    section: &'a Section,
    place: String,
    errors: &'a mut Vec<ConfigError>,
}

impl<'a> Reader<'a> {
    /// Reads `section`, the `index`-th of its kind.
    pub fn new(section: &'a Section, index: usize, errors: &'a mut Vec<ConfigError>) -> Self {
        Reader { section, place: place(section, index), errors }
    }

    /// Refuses keys that are not in the table.
    pub fn known(&mut self, table: &Table) {
        let known: Vec<&str> = table.keys.iter().map(|key| key.name).collect();
        for entry in &self.section.entries {
            if table.find(&entry.key).is_none() {
                let hint = match nearest(&entry.key, known.iter().copied()) {
                    Some(near) => did_you_mean(near),
                    None => format!("[[{}]] has {}", self.section.kind, known.join(", ")),
                };
                let hint = hint.replace("[[daemon]]", "[daemon]");
                let fault = Fault::Unknown { key: entry.key.clone(), hint };
                self.push(entry.line, fault);
            }
        }
    }

    /// The entry of `key`, which must be in the section's table; no other key can be read.
    fn entry(&self, key: &str) -> Option<&'a Entry> {
        let mut tables = TABLES.iter().filter(|table| table.section == self.section.kind);
        debug_assert!(
            tables.any(|table| table.find(key).is_some()),
            "{key} is not in the table of keys"
        );
        self.section.get(key)
    }

    /// Refuses `key` where it would have no effect.
    pub fn unsuitable(&mut self, key: &'static str, rule: &str) {
        if self.entry(key).is_some() {
            self.refuse(key, "does not apply", rule);
        }
    }

    /// Whether `key` is written.
    pub fn has(&self, key: &str) -> bool {
        self.entry(key).is_some()
    }

    /// Demands a key, unless an unknown one is a misspelling of it.
    pub fn require<T>(&mut self, key: &'static str, value: Option<T>, rule: &str) -> Option<T> {
        if value.is_none() && !self.has(key) && !self.is_misspelt(key) {
            let fault = Fault::Missing { key, rule: rule.to_owned() };
            let line = self.section.line;
            self.push(Some(line), fault);
        }
        value
    }

    /// Whether an unknown key of the section probably means `key`.
    fn is_misspelt(&self, key: &str) -> bool {
        let Some(table) = TABLES.iter().find(|table| table.section == self.section.kind) else {
            return false;
        };
        let unknown = self.section.entries.iter().filter(|entry| table.find(&entry.key).is_none());
        let known = || table.keys.iter().map(|known| known.name);
        unknown.map(|entry| nearest(&entry.key, known())).any(|near| near == Some(key))
    }

    /// A whole number that counts something.
    pub fn whole(
        &mut self,
        key: &'static str,
        range: RangeInclusive<u64>,
        rule: &str,
        default: usize,
    ) -> usize {
        let number = self.integer(key, range, rule);
        number.and_then(|number| usize::try_from(number).ok()).unwrap_or(default)
    }

    /// A whole number in `range`.
    pub fn integer(
        &mut self,
        key: &'static str,
        range: RangeInclusive<u64>,
        rule: &str,
    ) -> Option<u64> {
        let entry = self.entry(key)?;
        let Value::Integer(value) = entry.value else {
            self.refuse(key, "is not a whole number", rule);
            return None;
        };
        let value = u64::try_from(value).ok().filter(|value| range.contains(value));
        if value.is_none() {
            self.refuse(key, "is out of range", rule);
        }
        value
    }

    /// A number in `range`; a whole number counts.
    pub fn number(
        &mut self,
        key: &'static str,
        range: RangeInclusive<f64>,
        rule: &str,
    ) -> Option<f64> {
        let entry = self.entry(key)?;
        let Some(value) = float(&entry.value) else {
            self.refuse(key, "is not a number", rule);
            return None;
        };
        if !range.contains(&value) {
            self.refuse(key, "is out of range", rule);
            return None;
        }
        Some(value)
    }

    /// A duration in microseconds: a whole number, or a text with a unit.
    pub fn microseconds(&mut self, key: &'static str, range: RangeInclusive<u64>) -> Option<u64> {
        let rule = Values::Micros(*range.start(), *range.end()).in_words();
        let Value::String(text) = &self.entry(key)?.value else {
            return self.integer(key, range, &rule);
        };
        let nanoseconds = units::nanoseconds(text);
        let micros = nanoseconds.and_then(|nanos| match nanos % 1_000 {
            0 if range.contains(&(nanos / 1_000)) => Ok(nanos / 1_000),
            0 => Err(UnitError::Range),
            _ => Err(UnitError::Fine),
        });
        self.quantity(key, micros, &rule, DURATION_UNITS)
    }

    /// A rate in Mbit/s: a number, or a text with a unit.
    pub fn mbit(&mut self, key: &'static str, range: RangeInclusive<f64>) -> Option<f64> {
        let rule = Values::Mbit(*range.start(), *range.end()).in_words();
        let Value::String(text) = &self.entry(key)?.value else {
            return self.number(key, range, &rule);
        };
        // Exact in the permitted range: 10^12 bit/s is below 2^53.
        let mbit = units::bits_per_second(text).map(|bits| bits as f64 / 1e6);
        let mbit = mbit
            .and_then(|mbit| Some(mbit).filter(|it| range.contains(it)).ok_or(UnitError::Range));
        self.quantity(key, mbit, &rule, RATE_UNITS)
    }

    fn quantity<T>(
        &mut self,
        key: &'static str,
        read: Result<T, UnitError>,
        rule: &str,
        units: &str,
    ) -> Option<T> {
        let error = match read {
            Ok(value) => return Some(value),
            Err(error) => error,
        };
        let units = match error {
            UnitError::Unit | UnitError::NoUnit => format!("; the units are {units}"),
            _ => String::new(),
        };
        self.refuse(key, error.verdict(), &format!("{rule}{units}"));
        None
    }

    /// `true` or `false`.
    pub fn truth(&mut self, key: &'static str) -> Option<bool> {
        let value = self.entry(key)?.value.as_bool();
        if value.is_none() {
            self.refuse(key, "is neither", "it is true or false");
        }
        value
    }

    /// One of a few words.
    pub fn choice<T: Copy>(
        &mut self,
        key: &'static str,
        choices: &[(&str, T)],
        rule: &str,
    ) -> Option<T> {
        let entry = self.entry(key)?;
        let word = entry.value.as_str();
        let chosen = choices.iter().find(|(name, _)| Some(*name) == word);
        if chosen.is_none() {
            self.refuse(key, "is not a choice", rule);
        }
        chosen.map(|(_, value)| *value)
    }

    /// Text that `accept` turns into a value.
    pub fn text<T>(
        &mut self,
        key: &'static str,
        rule: &str,
        accept: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let entry = self.entry(key)?;
        let Some(text) = entry.value.as_str() else {
            self.refuse(key, "is not a text in quotes", rule);
            return None;
        };
        let value = accept(text);
        if value.is_none() {
            self.refuse(key, "is not allowed", rule);
        }
        value
    }

    /// Returns any value, for the caller to check.
    pub fn value(&self, key: &str) -> Option<&'a Value> {
        self.entry(key).map(|entry| &entry.value)
    }

    /// Records that the value of `key` breaks `rule`.
    pub fn refuse(&mut self, key: &str, verdict: &'static str, rule: &str) {
        let Some(Entry { value, line, .. }) = self.section.get(key) else {
            return;
        };
        let fault = Fault::Value {
            key: key.to_owned(),
            value: shown(value),
            verdict,
            rule: rule.to_owned(),
        };
        self.push(*line, fault);
    }

    /// Records that a part of the value of `key` breaks `rule`.
    pub fn refuse_part(
        &mut self,
        key: &str,
        part: String,
        value: String,
        verdict: &'static str,
        rule: &str,
    ) {
        let line = self.section.get(key).map_or(Some(self.section.line), |entry| entry.line);
        self.push(line, Fault::Value { key: part, value, verdict, rule: rule.to_owned() });
    }

    fn push(&mut self, line: Option<usize>, fault: Fault) {
        self.errors.push(ConfigError { line, place: self.place.clone(), fault });
    }
}

/// A value as a message shows it: bounded, on one line.
pub fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => one_line(&format!("\"{}\"", text.escape_default())),
        other => one_line(&other.to_string()),
    }
}

/// A finite number.
pub fn float(value: &Value) -> Option<f64> {
    match value {
        Value::Float(value) => Some(*value).filter(|value| value.is_finite()),
        // Exact: integers above 2^53 are out of every range here.
        Value::Integer(value) => Some(*value as f64),
        _ => None,
    }
}

/// An address that one host can have.
pub fn unicast(text: &str) -> Option<IpAddr> {
    text.parse().ok().filter(|address| is_unicast(*address))
}

/// Whether one host can have this address.
pub fn is_unicast(address: IpAddr) -> bool {
    let broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    !address.is_unspecified() && !address.is_multicast() && !broadcast
}

/// Name of a section in messages: its id or name, otherwise its number.
fn place(section: &Section, index: usize) -> String {
    let naming = if section.kind == "flow" { "id" } else { "name" };
    match section.get(naming).map(|entry| &entry.value) {
        _ if section.kind == "daemon" => "daemon".to_owned(),
        Some(Value::String(name)) if name.len() <= 32 => {
            format!("{} {}", section.kind, name.escape_default())
        }
        Some(Value::Integer(id)) => format!("{} {id}", section.kind),
        _ => format!("{} number {}", section.kind, index + 1),
    }
}
