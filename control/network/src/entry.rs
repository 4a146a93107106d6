//! Lines of `[boxes]`: written by a box for itself, and added to the files of others. Comments and
//! formatting of a file stay.

use ipnet::{IpNet, Ipv4Net};
use recoded_secure::PublicKey;
use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use toml_edit::{DocumentMut, InlineTable, Item, Table, Value};

/// The network of tunnels if no box has one: an arbitrary private one (RFC 1918).
pub(crate) const TUNNELS: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 0);
const TUNNELS_PREFIX: u8 = 24;

/// Why a line cannot be added. Messages omit its text, which may have a key.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EntryError {
    /// The file is not TOML.
    #[error("the file is not valid TOML ({0}): correct it first")]
    Syntax(String),
    /// The text is no line of a box.
    #[error(
        "this is no line of a box: write it as `recodectl init` prints it on the other box, in \
         quotes: 'NAME = {{ key = \"...\", ... }}'"
    )]
    Line,
    /// A box of this name is in the file.
    #[error(
        "box {0} is in the file with other settings: correct its line there, or choose another name"
    )]
    Known(String),
    /// No address of the tunnels' network is free.
    #[error("no tunnel address is free in {0}: write one with --tunnel")]
    Full(IpNet),
}

/// A box in its own words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BoxEntry {
    /// Its name.
    pub name: String,
    /// Its address or host name; without one it roams.
    pub at: Option<String>,
    /// Its public key.
    pub key: PublicKey,
    /// Its address in tunnels, unless its paths have one.
    pub tunnel: Option<IpNet>,
    /// The file of its private key, if that is not the default one.
    pub private_key: Option<String>,
}

impl fmt::Display for BoxEntry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = InlineTable::new();
        if let Some(at) = &self.at {
            table.insert("at", at.as_str().into());
        }
        table.insert("key", self.key.to_string().into());
        if let Some(tunnel) = &self.tunnel {
            table.insert("tunnel", tunnel.to_string().into());
        }
        if let Some(path) = &self.private_key {
            table.insert("private_key", path.as_str().into());
        }
        let key = toml_edit::Key::new(&self.name);
        write!(formatter, "{key} = {table}")
    }
}

/// Returns `text` with these lines of boxes; those that it has already are left out.
///
/// # Errors
/// [`EntryError`]: the text, or a line.
pub fn with_boxes(text: &str, lines: &[String]) -> Result<String, EntryError> {
    let mut document = document(text)?;
    if !document.contains_key("boxes") {
        let mut table = Table::new();
        // Before the tables of paths.
        table.set_position(Some(0));
        document.insert("boxes", Item::Table(table));
    }
    let boxes = document.get_mut("boxes").and_then(Item::as_table_like_mut);
    let boxes = boxes.ok_or_else(|| EntryError::Syntax("boxes is not a table".into()))?;
    for line in lines {
        let (name, value) = entry(line)?;
        let plain = |value: &Value| {
            let table = value.as_inline_table();
            let pairs = table.into_iter().flat_map(|table| table.iter());
            pairs.map(|(key, value)| format!("{key}={}", value.to_string().trim())).collect()
        };
        let known: Option<BTreeSet<String>> = boxes.get(&name).and_then(Item::as_value).map(plain);
        match known {
            Some(known) if known == plain(&value) => {}
            None if !boxes.contains_key(&name) => {
                boxes.insert(&name, Item::Value(value));
            }
            _ => return Err(EntryError::Known(name)),
        }
    }
    Ok(document.to_string())
}

/// The name and line of the box with a key.
///
/// # Errors
/// [`EntryError::Syntax`].
pub fn box_with_key(text: &str, key: &PublicKey) -> Result<Option<(String, String)>, EntryError> {
    let (document, key) = (document(text)?, key.to_string());
    let boxes = document.get("boxes").and_then(Item::as_table_like);
    let mut boxes = boxes.into_iter().flat_map(|boxes| boxes.iter());
    let found = boxes.find(|(_, item)| {
        let known = item.as_table_like().and_then(|table| table.get("key"));
        known.and_then(Item::as_str) == Some(key.as_str())
    });
    Ok(found.map(|(name, item)| (name.to_owned(), format!("{name} = {}", item.to_string().trim()))))
}

/// The first address for tunnels that no box has, in the network of those that have one.
///
/// # Errors
/// [`EntryError`]: the text, or there is none.
pub fn free_tunnel(text: &str) -> Result<IpNet, EntryError> {
    let document = document(text)?;
    let boxes = document.get("boxes").and_then(Item::as_table_like);
    let boxes = boxes.into_iter().flat_map(|boxes| boxes.iter());
    let taken: Vec<IpNet> = boxes
        .filter_map(|(_, item)| item.as_table_like()?.get("tunnel")?.as_str()?.parse().ok())
        .collect();
    let network = match Ipv4Net::new(TUNNELS, TUNNELS_PREFIX) {
        Ok(network) => IpNet::V4(network),
        Err(_) => IpNet::default(),
    };
    let network = taken.first().map_or(network, IpNet::trunc);
    let is_taken = |address: &IpAddr| taken.iter().any(|net| net.addr() == *address);
    let free = network.hosts().find(|address| !is_taken(address));
    let free = free.and_then(|address| IpNet::new(address, network.prefix_len()).ok());
    free.ok_or(EntryError::Full(network))
}

pub(crate) fn document(text: &str) -> Result<DocumentMut, EntryError> {
    text.parse::<DocumentMut>()
        .map_err(|error| EntryError::Syntax(error.message().lines().collect::<Vec<_>>().join(", ")))
}

/// The name and the table of one line.
fn entry(line: &str) -> Result<(String, Value), EntryError> {
    let parsed = line.trim().parse::<DocumentMut>().map_err(|_| EntryError::Line)?;
    let mut entries = parsed.iter();
    match (entries.next(), entries.next()) {
        (Some((name, Item::Value(value @ Value::InlineTable(_)))), None) => {
            let mut value = value.clone();
            value.decor_mut().clear();
            Ok((name.to_owned(), value))
        }
        _ => Err(EntryError::Line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=";

    fn server() -> BoxEntry {
        let (at, key) = (Some("192.0.2.1".into()), KEY.parse().unwrap());
        let tunnel = free_tunnel("").ok();
        BoxEntry { name: "server".into(), at, key, tunnel, private_key: None }
    }

    #[test]
    fn lines_are_added_once_and_comments_stay() {
        let line = server().to_string();
        let expected = format!(
            "server = {{ at = \"192.0.2.1\", key = \"{KEY}\", tunnel = \"10.99.0.1/24\" }}"
        );
        assert_eq!(line, expected);
        let text = with_boxes("# ours\n", std::slice::from_ref(&line)).unwrap();
        assert!(text.contains(&format!("[boxes]\n{line}\n")) && text.contains("# ours"), "{text}");
        assert_eq!(with_boxes(&text, std::slice::from_ref(&line)).unwrap(), text);
        assert_eq!(free_tunnel(&text).unwrap().to_string(), "10.99.0.2/24");
        let found = box_with_key(&text, &KEY.parse().unwrap()).unwrap();
        assert_eq!(found, Some(("server".to_owned(), line.clone())));
        let other = line.replace("192.0.2.1", "192.0.2.2");
        assert_eq!(with_boxes(&text, &[other]), Err(EntryError::Known("server".into())));
    }

    #[test]
    fn text_that_is_no_line_of_a_box_is_refused() {
        for line in ["", "a", "a = 1", "a = {}\nb = {}", "[boxes]\na = {}", "a = { key = "] {
            assert_eq!(with_boxes("", &[line.to_owned()]), Err(EntryError::Line), "{line}");
        }
        assert!(matches!(with_boxes("[", &[]), Err(EntryError::Syntax(_))));
        let full = "[boxes]\na = { tunnel = \"10.0.0.1/32\" }\n";
        assert!(matches!(free_tunnel(full), Err(EntryError::Full(_))));
    }
}
