//! `[nodes]`: the nodes, and how to reach them for changes.

use crate::model::{Auth, Network, Node, daemon_keys};
use crate::reader::{Entry, Reader, Text, is_name};
use crate::{Fault, NetworkError};
use toml::de::{DeTable, DeValue};

/// Rule of `[nodes]`.
pub(crate) const RULE: &str =
    "write [nodes] and a line for each box, such as a = \"root@192.0.2.1\"";

const HOST_RULE: &str =
    "it is what ssh takes: a host or user@host, without blanks, not beginning with -";
const PATH_RULE: &str = "it is the absolute path of a file";
const KEY_RULE: &str = "it is the node's public key, 44 characters, as `recodectl pubkey` prints \
                        it there";

/// Defaults for all nodes.
pub(crate) struct Common {
    config: String,
    private_key: String,
    sudo: bool,
}

impl Common {
    /// Reads the keys above `[nodes]`.
    pub fn read(reader: &mut Reader<'_, '_>) -> Common {
        Common {
            config: reader
                .text("config", PATH_RULE, path)
                .unwrap_or_else(|| "/etc/recoded/recoded.toml".to_owned()),
            private_key: reader
                .text("private_key", PATH_RULE, path)
                .unwrap_or_else(|| "/etc/recoded/private.key".to_owned()),
            sudo: reader.truth("sudo").unwrap_or(false),
        }
    }
}

/// All nodes, in the order of the file.
pub(crate) fn nodes(
    text: &Text<'_>,
    table: &DeTable<'_>,
    common: &Common,
    errors: &mut Vec<NetworkError>,
) -> Vec<Node> {
    let entries = text.entries(table);
    entries.iter().map(|entry| node(text, entry, common, errors)).collect()
}

fn node(
    text: &Text<'_>,
    entry: &Entry<'_>,
    common: &Common,
    errors: &mut Vec<NetworkError>,
) -> Node {
    let place = format!("node {}", crate::reader::one_line(entry.key));
    let mut node = Node {
        name: entry.key.to_owned(),
        host: entry.key.to_owned(),
        key: None,
        config: common.config.clone(),
        private_key: common.private_key.clone(),
        sudo: common.sudo,
        roams: false,
        daemon: Vec::new(),
        line: entry.line,
    };
    let keys = entry.value.as_table().map(|table| text.entries(table)).unwrap_or_default();
    let mut reader = Reader::new(place, entry.line, keys, errors);
    if !is_name(entry.key) || entry.key == "rate_mbit" {
        let rule = "a node has a name of 1 to 32 letters, digits, - and _, not beginning with -, \
                    and not rate_mbit";
        let (key, value) = ("name".to_owned(), crate::reader::one_line(entry.key));
        reader.refuse(entry.line, Fault::Value { key, value, rule: rule.to_owned() });
    }
    match entry.value {
        DeValue::String(text) => match host(text) {
            Some(host) => node.host = host,
            None => reader.wrong(entry, HOST_RULE),
        },
        DeValue::Table(_) => {
            let daemon = reader.take("daemon");
            node.host = reader.text("ssh", HOST_RULE, host).unwrap_or(node.host);
            node.key = reader.text("key", KEY_RULE, |key| key.parse().ok());
            node.config = reader.text("config", PATH_RULE, path).unwrap_or(node.config);
            node.private_key =
                reader.text("private_key", PATH_RULE, path).unwrap_or(node.private_key);
            node.sudo = reader.truth("sudo").unwrap_or(node.sudo);
            node.roams = reader.truth("roams").unwrap_or(false);
            reader.no_more("ssh, key, config, private_key, sudo, roams and daemon");
            match daemon.as_ref().map(|entry| (entry, entry.value)) {
                Some((entry, DeValue::Table(table))) => {
                    let place = format!("node {}: daemon", node.name);
                    let mut reader = Reader::new(place, entry.line, text.entries(table), errors);
                    node.daemon = daemon_keys(&mut reader);
                }
                Some((entry, _)) => reader.wrong(entry, "write daemon = { workers = 2 }"),
                None => {}
            }
        }
        _ => reader.wrong(entry, RULE),
    }
    node
}

/// Checks that the nodes suit the rest of the file.
pub(crate) fn check(network: &Network, errors: &mut Vec<NetworkError>) {
    for (index, node) in network.nodes.iter().enumerate() {
        let place = format!("node {}", node.name);
        let mut refuse = |fault| {
            errors.push(NetworkError { line: node.line, place: place.clone(), fault });
        };
        if !network.links.iter().any(|link| link.seen_from(index).is_some()) {
            refuse(Fault::Lonely);
        }
        if node.roams && network.auth == Auth::None {
            let (key, value) = ("roams".to_owned(), "true".to_owned());
            let rule = "neighbours follow packets with a right tag, and with auth = \"none\" there \
                        are none: write auth = \"full\" or \"hop\"";
            refuse(Fault::Value { key, value, rule: rule.to_owned() });
        }
        let on_path = network.paths.iter().any(|path| path.passes(index));
        if on_path && network.auth != Auth::None && node.key.is_none() {
            refuse(Fault::NoKey { node: node.name.clone(), file: network.file.clone() });
        }
    }
    for (index, node) in network.nodes.iter().enumerate() {
        let Some(key) = &node.key else { continue };
        let mut before = network.nodes[..index].iter();
        if let Some(other) = before.find(|other| other.key.as_ref() == Some(key)) {
            let fault = Fault::Taken {
                what: "key".into(),
                owner: format!("node {}", other.name),
                line: other.line,
                rule: "each node has a key of its own",
            };
            errors.push(NetworkError {
                line: node.line,
                place: format!("node {}", node.name),
                fault,
            });
        }
    }
}

/// Accepts a host that ssh cannot mistake for an option.
fn host(text: &str) -> Option<String> {
    let printable = text.chars().all(|letter| !letter.is_whitespace() && !letter.is_control());
    let fits = (1..=255).contains(&text.len()) && !text.starts_with('-') && printable;
    fits.then(|| text.to_owned())
}

/// Accepts an absolute path on one line.
fn path(text: &str) -> Option<String> {
    let fits = text.starts_with('/') && text.len() > 1 && text.len() <= 1024;
    (fits && !text.chars().any(char::is_control) && !text.ends_with('/')).then(|| text.to_owned())
}
