//! TOML with line numbers: one table at a time, with mistakes collected.

use crate::error::{Fault, NetworkError};
use recoded_api::spelling::{did_you_mean, nearest};
use std::collections::BTreeSet;
use toml::de::{DeTable, DeValue};
use toml_edit::Value;

/// A value with its line.
pub(crate) struct Entry<'a> {
    /// The key.
    pub key: &'a str,
    /// The value.
    pub value: &'a DeValue<'a>,
    /// The value as written.
    pub written: &'a str,
    /// Its line.
    pub line: usize,
}

impl Entry<'_> {
    /// The value in a form that can be rendered. Numbers of more than 64 bits become text, which
    /// the daemon refuses.
    pub fn copied(&self) -> Value {
        let parsed = self.written.parse::<Value>();
        let mut value = parsed.unwrap_or_else(|_| Value::from(self.written));
        value.decor_mut().clear();
        value
    }
}

/// Text with the offsets of line ends.
pub(crate) struct Text<'a> {
    text: &'a str,
    ends: Vec<usize>,
}

impl<'a> Text<'a> {
    /// The text itself.
    pub fn text(&self) -> &'a str {
        self.text
    }

    /// Finds the lines of `text`.
    pub fn new(text: &'a str) -> Text<'a> {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at);
        Text { text, ends: ends.collect() }
    }

    /// Line of the byte at `offset`, counted from 1.
    pub fn line(&self, offset: usize) -> usize {
        self.ends.partition_point(|end| *end < offset) + 1
    }

    /// Keys of a table, in the order of the file.
    pub fn entries<'t>(&'t self, table: &'t DeTable<'t>) -> Vec<Entry<'t>> {
        let mut pairs: Vec<_> = table.iter().collect();
        pairs.sort_by_key(|(key, _)| key.span().start);
        let entry = |(key, value): (&'t toml::Spanned<_>, &'t toml::Spanned<DeValue<'t>>)| Entry {
            key: AsRef::<std::borrow::Cow<'_, str>>::as_ref(key).as_ref(),
            value: value.get_ref(),
            written: self.text.get(value.span()).unwrap_or_default(),
            line: self.line(key.span().start),
        };
        pairs.into_iter().map(entry).collect()
    }
}

/// Reads one part of the file.
pub(crate) struct Reader<'e, 'a> {
    /// Name in messages.
    pub place: String,
    /// Its first line.
    pub line: usize,
    entries: Vec<Entry<'a>>,
    errors: &'e mut Vec<NetworkError>,
}

impl<'e, 'a> Reader<'e, 'a> {
    /// A reader for these keys.
    pub fn new(
        place: String,
        line: usize,
        entries: Vec<Entry<'a>>,
        errors: &'e mut Vec<NetworkError>,
    ) -> Reader<'e, 'a> {
        Reader { place, line, entries, errors }
    }

    /// Records a mistake on a line.
    pub fn refuse(&mut self, line: usize, fault: Fault) {
        self.errors.push(NetworkError { line, place: self.place.clone(), fault });
    }

    /// Takes the entry of `key`.
    pub fn take(&mut self, key: &str) -> Option<Entry<'a>> {
        let at = self.entries.iter().position(|entry| entry.key == key)?;
        Some(self.entries.remove(at))
    }

    /// Takes the remaining entries.
    pub fn rest(&mut self) -> Vec<Entry<'a>> {
        std::mem::take(&mut self.entries)
    }

    /// Records that a value breaks a rule.
    pub fn wrong(&mut self, entry: &Entry<'_>, rule: &str) {
        let (key, value) = (entry.key.to_owned(), one_line(entry.written));
        self.refuse(entry.line, Fault::Value { key, value, rule: rule.to_owned() });
    }

    /// Takes a text that `parse` accepts.
    pub fn text<T>(
        &mut self,
        key: &str,
        rule: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Option<T> {
        let entry = self.take(key)?;
        let parsed = entry.value.as_str().and_then(parse);
        if parsed.is_none() {
            self.wrong(&entry, rule);
        }
        parsed
    }

    /// Takes true or false.
    pub fn truth(&mut self, key: &str) -> Option<bool> {
        let entry = self.take(key)?;
        let truth = entry.value.as_bool();
        if truth.is_none() {
            self.wrong(&entry, "it is true or false");
        }
        truth
    }

    /// Refuses the remaining keys, since only `known` exist.
    pub fn no_more(&mut self, known: &str) {
        for entry in self.rest() {
            let words = known.split([',', ' ']).filter(|word| !word.is_empty() && *word != "and");
            let hint = nearest(entry.key, words).map(did_you_mean);
            let hint = hint.unwrap_or_else(|| format!("there is {known}"));
            self.refuse(entry.line, Fault::Unknown { key: entry.key.to_owned(), hint });
        }
    }
}

/// A value on one line of a message, truncated if long.
pub(crate) fn one_line(written: &str) -> String {
    const MOST: usize = 60;
    let line = written.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MOST) {
        Some((at, _)) => format!("{}...", &line[..at]),
        None => line,
    }
}

/// Whether this is a valid name of a box, tunnel and so on, and thus a safe file name.
pub fn is_name(text: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    (1..=32).contains(&text.len()) && text.bytes().all(known) && !text.starts_with('-')
}

/// Lists names for a message.
pub(crate) fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: BTreeSet<&str> = names.collect();
    match names.is_empty() {
        true => "none is written".to_owned(),
        false => names.into_iter().collect::<Vec<_>>().join(", "),
    }
}
