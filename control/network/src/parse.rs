//! Reads the file of a network and checks it completely.

use crate::check::{self, Parser};
use crate::model::{Auth, Network, daemon_keys};
use crate::nodes::{self, Form};
use crate::reader::{Entry, Reader, Text};
use crate::syntax::syntax_fault;
use crate::{Fault, NetworkError, NetworkErrors, adjacency, links, paths};
use recoded_secure::{Entropy, PrivateKey, PublicKey};
use std::collections::BTreeMap;
use toml::de::{DeTable, DeValue};

const PARTS: &str = "[boxes], [[path]], [[link]], [daemon], auth, config, private_key and sudo";

impl Network {
    /// Reads a network and checks it completely, including the generated files, with the daemon's
    /// parser.
    ///
    /// # Errors
    ///
    /// Every mistake, in order of lines.
    pub fn parse(file: &str, text: &str, parser: &dyn Parser) -> Result<Network, NetworkErrors> {
        Network::parse_with(file, text, parser, true)
    }

    /// The same for nodes without keys: none is required.
    ///
    /// # Errors
    ///
    /// As [`Network::parse`].
    pub fn parse_without_keys(
        file: &str,
        text: &str,
        parser: &dyn Parser,
    ) -> Result<Network, NetworkErrors> {
        Network::parse_with(file, text, parser, false)
    }

    fn parse_with(
        file: &str,
        text: &str,
        parser: &dyn Parser,
        keys: bool,
    ) -> Result<Network, NetworkErrors> {
        let lines = Text::new(text);
        let table = DeTable::parse(text).map_err(|error| {
            let line = error.span().map_or(1, |span| lines.line(span.start));
            let fault =
                Fault::Syntax { message: syntax_fault(text, error.message(), error.span()) };
            NetworkErrors::new(file, vec![NetworkError { line, place: String::new(), fault }])
        })?;
        let mut errors = Vec::new();
        let mut network = read(file, &lines, table.get_ref(), &mut errors);
        // Everything but the keys is checked as usual.
        let mut lacking = Vec::new();
        for (index, node) in network.nodes.iter_mut().enumerate() {
            if !keys && node.key.is_none() {
                node.key = Some(placeholder(index));
                lacking.push(index);
            }
        }
        // Only for complete sections: missing parts are already reported.
        if errors.is_empty() {
            paths::check(&network, &mut errors);
            nodes::check(&network, &mut errors);
        }
        if errors.is_empty() {
            network.windows = check::check(&network, parser, &mut errors);
        }
        lacking.iter().for_each(|index| network.nodes[*index].key = None);
        if errors.is_empty() { Ok(network) } else { Err(NetworkErrors::new(file, errors)) }
    }
}

/// A placeholder for the public key of a node without one, distinct for each.
fn placeholder(node: usize) -> PublicKey {
    let mut seed = [0; 64];
    // Outside the bits that are the same in every private key.
    seed[8..16].copy_from_slice(&(node as u64).to_le_bytes());
    PrivateKey::generate(&Entropy::new(seed)).public()
}

fn read(
    file: &str,
    text: &Text<'_>,
    table: &DeTable<'_>,
    errors: &mut Vec<NetworkError>,
) -> Network {
    let mut reader = Reader::new(String::new(), 1, text.entries(table), errors);
    let auth = reader.text("auth", "it is \"full\", \"hop\" or \"none\"", |word| match word {
        "full" => Some(Auth::Full),
        "hop" => Some(Auth::Hop),
        "none" => Some(Auth::None),
        _ => None,
    });
    let common = nodes::Common::read(&mut reader);
    let parts = ["daemon", "boxes", "nodes", "link", "path"].map(|key| reader.take(key));
    reader.no_more(PARTS);
    let [daemon, boxes, nodes, links, paths] = parts;
    let form = if boxes.is_some() { Form::Boxes } else { Form::Nodes };
    if let (Some(_), Some(entry)) = (&boxes, &nodes) {
        shape(entry, "a file has [boxes], or [nodes] and a [[link]] between any two", errors);
    }
    let mut network = Network {
        file: file.to_owned(),
        shared: boxes.as_ref().map(|_| text.text().to_owned()),
        auth: auth.unwrap_or(Auth::Full),
        daemon: Vec::new(),
        nodes: Vec::new(),
        links: Vec::new(),
        paths: Vec::new(),
        windows: BTreeMap::new(),
    };
    match daemon.as_ref().map(|entry| (entry, entry.value)) {
        Some((entry, DeValue::Table(table))) => {
            let mut reader = Reader::new("daemon".into(), entry.line, text.entries(table), errors);
            network.daemon = daemon_keys(&mut reader);
        }
        Some((entry, _)) => shape(entry, "write [daemon] once", errors),
        None => {}
    }
    match boxes.or(nodes).as_ref().map(|entry| (entry, entry.value)) {
        Some((_, DeValue::Table(table))) if !table.is_empty() => {
            network.nodes = nodes::nodes(text, table, form, &common, errors);
        }
        Some((entry, _)) => shape(entry, nodes::RULE, errors),
        None => {
            let fault = Fault::Missing { key: "boxes", rule: nodes::RULE.to_owned() };
            errors.push(NetworkError { line: 1, place: String::new(), fault });
        }
    }
    // Without boxes, every name in links and paths would be a mistake of its own.
    let has_boxes = !network.nodes.is_empty();
    for (table, line) in tables(text, links.as_ref().filter(|_| has_boxes), "link", errors) {
        let found = links::link(text, table, line, &network.nodes, &network.links, errors);
        network.links.extend(found);
    }
    for (table, line) in tables(text, paths.as_ref().filter(|_| has_boxes), "path", errors) {
        let id = paths::next_id(&network.paths);
        network.paths.extend(paths::path(text, table, line, id, &network.nodes, errors));
    }
    if form == Form::Boxes {
        if paths.is_none() {
            network.paths.extend(paths::only(&network.nodes, errors));
        }
        // Wrong places of boxes are already reported, and would have consequences here.
        if errors.is_empty() {
            adjacency::derive(&mut network, errors);
        }
    }
    network
}

/// The tables of `[[link]]` or `[[path]]`, with their lines.
fn tables<'a>(
    text: &Text<'_>,
    entry: Option<&Entry<'a>>,
    kind: &str,
    errors: &mut Vec<NetworkError>,
) -> Vec<(&'a DeTable<'a>, usize)> {
    let rule = format!("write [[{kind}]] with two brackets, once for each {kind}");
    let mut found = Vec::new();
    let Some(entry) = entry else { return found };
    let Some(items) = entry.value.as_array() else {
        shape(entry, &rule, errors);
        return found;
    };
    for item in items {
        match item.get_ref() {
            DeValue::Table(table) => found.push((table, text.line(item.span().start))),
            _ => shape(entry, &rule, errors),
        }
    }
    found
}

fn shape(entry: &Entry<'_>, rule: &str, errors: &mut Vec<NetworkError>) {
    let (key, rule) = (entry.key.to_owned(), rule.to_owned());
    let value = format!("({})", entry.value.type_str());
    let fault = Fault::Value { key, value, rule };
    errors.push(NetworkError { line: entry.line, place: String::new(), fault });
}
