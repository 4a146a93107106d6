//! TOML text parsed into sections, keys and values with their lines.
//!
//! The document outlives the start: a live `set` replaces one value in a copy and checks the copy
//! by the same rules as the file.

use super::error::{ConfigError, ConfigErrors, Fault, one_line};
use recoded_api::spelling::{did_you_mean, nearest};
use recoded_network::syntax_fault;
use std::net::IpAddr;
use toml::Value;
use toml::de::{DeTable, DeValue};

/// Largest file that is read; it has room for thousands of flows.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

/// Sections that a misspelt one may mean, those of networks included.
const SECTIONS: [&str; 7] =
    ["[daemon]", "[[link]]", "[[tunnel]]", "[[neighbour]]", "[[flow]]", "[boxes]", "[[path]]"];

/// A parsed file.
#[derive(Clone, Debug)]
pub struct Document {
    /// Its name, for messages.
    pub file: String,
    /// `[daemon]`, empty when absent.
    pub daemon: Section,
    /// `[[link]]`.
    pub links: Vec<Section>,
    /// `[[tunnel]]`.
    pub tunnels: Vec<Section>,
    /// `[[neighbour]]`.
    pub neighbours: Vec<Section>,
    /// `[[flow]]`.
    pub flows: Vec<Section>,
    /// Host names that were replaced by addresses.
    pub named: Vec<Named>,
}

/// A host name that a file gives as the address of a neighbour.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Named {
    /// Name of the link.
    pub link: String,
    /// The address used for it, in the family of the link.
    pub address: IpAddr,
    /// The host name.
    pub name: String,
    /// Why it has no address on the link; an address that no host has then replaces it. Empty if it
    /// has one, and in a check of the file alone.
    pub trouble: String,
}

/// One table of the file.
#[derive(Clone, Debug)]
pub struct Section {
    /// `daemon`, `link`, `tunnel`, `neighbour` or `flow`.
    pub kind: &'static str,
    /// Line of its header.
    pub line: usize,
    /// Its keys.
    pub entries: Vec<Entry>,
}

/// One key and its value.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// The value.
    pub value: Value,
    /// Line of the value; `None` if it came from `set`, or from this host's interfaces.
    pub line: Option<usize>,
}

impl Section {
    /// The entry of `key`.
    pub fn get(&self, key: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.key == key)
    }

    /// Replaces or adds a value that is not in the file.
    pub fn set(&mut self, key: &str, value: Value) {
        let entry = Entry { key: key.to_owned(), value, line: None };
        match self.entries.iter_mut().find(|entry| entry.key == key) {
            Some(old) => *old = entry,
            None => self.entries.push(entry),
        }
    }
}

impl Document {
    /// Parses `text`.
    ///
    /// # Errors
    ///
    /// Text that is not TOML, and unknown tables.
    pub fn parse(file: &str, text: &str) -> Result<Document, ConfigErrors> {
        let table = DeTable::parse(text).map_err(|error| {
            let line = error.span().map(|span| Lines::new(text).of(span.start));
            let fault =
                Fault::Syntax { message: syntax_fault(text, error.message(), error.span()) };
            ConfigErrors::new(file, vec![ConfigError { line, place: String::new(), fault }])
        })?;
        let mut walker = Walker { text, lines: Lines::new(text), errors: Vec::new() };
        let document = walker.document(file, table.get_ref());
        if walker.errors.is_empty() {
            Ok(document)
        } else {
            Err(ConfigErrors::new(file, walker.errors))
        }
    }
}

struct Walker<'a> {
    text: &'a str,
    lines: Lines,
    errors: Vec<ConfigError>,
}

impl Walker<'_> {
    fn document(&mut self, file: &str, table: &DeTable<'_>) -> Document {
        let daemon = Section { kind: "daemon", line: 1, entries: Vec::new() };
        let mut document = Document {
            file: file.to_owned(),
            daemon,
            links: Vec::new(),
            tunnels: Vec::new(),
            neighbours: Vec::new(),
            flows: Vec::new(),
            named: Vec::new(),
        };
        for (key, value) in table {
            let line = self.lines.of(value.span().start);
            match key.get_ref().as_ref() {
                "daemon" => {
                    document.daemon.line = line;
                    match value.get_ref() {
                        DeValue::Table(table) => {
                            document.daemon.entries = self.entries("daemon", table)
                        }
                        other => self.shape(line, "daemon", other, "write [daemon] once"),
                    }
                }
                "link" => document.links = self.sections("link", line, value.get_ref()),
                "tunnel" => document.tunnels = self.sections("tunnel", line, value.get_ref()),
                "neighbour" => {
                    document.neighbours = self.sections("neighbour", line, value.get_ref());
                }
                "flow" => document.flows = self.sections("flow", line, value.get_ref()),
                other => {
                    let line = self.lines.of(key.span().start);
                    let hint = nearest(other, SECTIONS).map(did_you_mean);
                    let hint = hint.unwrap_or_else(|| {
                        "a file has [daemon], [[link]], [[tunnel]], [[neighbour]] and [[flow]]"
                            .to_owned()
                    });
                    let fault = Fault::Unknown { key: other.to_owned(), hint };
                    self.errors.push(ConfigError { line: Some(line), place: String::new(), fault });
                }
            }
        }
        document
    }

    fn sections(&mut self, kind: &'static str, line: usize, value: &DeValue<'_>) -> Vec<Section> {
        let rule = format!("write [[{kind}]] with two brackets, once for each {kind}");
        let DeValue::Array(array) = value else {
            self.shape(line, kind, value, &rule);
            return Vec::new();
        };
        let mut sections = Vec::new();
        for item in array {
            let line = self.lines.of(item.span().start);
            match item.get_ref() {
                DeValue::Table(table) => {
                    let entries = self.entries(kind, table);
                    sections.push(Section { kind, line, entries });
                }
                other => self.shape(line, kind, other, &rule),
            }
        }
        sections
    }

    fn entries(&mut self, kind: &str, table: &DeTable<'_>) -> Vec<Entry> {
        let mut entries = Vec::new();
        for (key, value) in table {
            let line = self.lines.of(value.span().start);
            let name = key.get_ref().to_string();
            let written = self.text.get(value.span()).unwrap_or_default();
            match plain(value.get_ref()) {
                Some(value) => entries.push(Entry { key: name, value, line: Some(line) }),
                None => self.number(kind, line, name, written),
            }
        }
        entries
    }

    fn shape(&mut self, line: usize, key: &str, value: &DeValue<'_>, rule: &str) {
        let fault = Fault::Value {
            key: key.to_owned(),
            value: format!("({})", value.type_str()),
            verdict: "is not a section",
            rule: rule.to_owned(),
        };
        self.errors.push(ConfigError { line: Some(line), place: String::new(), fault });
    }

    fn number(&mut self, kind: &str, line: usize, key: String, written: &str) {
        let fault = Fault::Value {
            key,
            value: one_line(written),
            verdict: "is out of range",
            rule: "numbers have 64 bits".to_owned(),
        };
        self.errors.push(ConfigError { line: Some(line), place: kind.to_owned(), fault });
    }
}

/// The value without line numbers. `None` for numbers that exceed 64 bits.
fn plain(value: &DeValue<'_>) -> Option<Value> {
    Some(match value {
        DeValue::String(text) => Value::String(text.to_string()),
        DeValue::Integer(number) => {
            Value::Integer(i64::from_str_radix(number.as_str(), number.radix()).ok()?)
        }
        DeValue::Float(number) => Value::Float(number.as_str().parse().ok()?),
        DeValue::Boolean(truth) => Value::Boolean(*truth),
        DeValue::Datetime(time) => Value::Datetime(*time),
        DeValue::Array(items) => {
            Value::Array(items.iter().map(|item| plain(item.get_ref())).collect::<Option<_>>()?)
        }
        DeValue::Table(table) => {
            let mut plain_table = toml::Table::new();
            for (key, value) in table {
                plain_table.insert(key.get_ref().to_string(), plain(value.get_ref())?);
            }
            Value::Table(plain_table)
        }
    })
}

/// Offsets of line ends in a text.
struct Lines(Vec<usize>);

impl Lines {
    fn new(text: &str) -> Lines {
        Lines(
            text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at).collect(),
        )
    }

    /// Line of the byte at `offset`, counted from 1.
    fn of(&self, offset: usize) -> usize {
        self.0.partition_point(|end| *end < offset) + 1
    }
}
