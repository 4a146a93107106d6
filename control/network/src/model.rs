//! A network as its file says it: nodes, links and paths that refer to each other.

use crate::nodes::{self, Node};
use crate::paths::{self, Path};
use crate::reader::{Entry, Reader, Text};
use crate::{Fault, NetworkError, NetworkErrors, boxes, links};
use recoded_api::keys::DAEMON;
use recoded_secure::{Entropy, PrivateKey, PublicKey};
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use toml::de::{DeTable, DeValue};
use toml_edit::Value;

/// Largest file that is read: thousands of nodes.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

/// What is authenticated, everywhere.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Auth {
    /// Every packet of a hop, and IP packets from source to sink.
    Full,
    /// Every packet of a hop.
    Hop,
    /// Nothing.
    None,
}

/// A key that is handed to the daemon as it is.
#[derive(Clone, Debug)]
pub struct Extra {
    /// The key.
    pub key: String,
    /// Its value.
    pub value: Value,
    /// Its line in the file.
    pub line: usize,
}

/// How a node is found on a link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// By an address.
    Address(IpAddr),
    /// By a host name, for which its neighbours ask their resolvers.
    Name(String),
}

impl Place {
    /// Its address, if that is written.
    pub fn address(&self) -> Option<IpAddr> {
        match self {
            Place::Address(address) => Some(*address),
            Place::Name(_) => None,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Address(address) => address.fmt(formatter),
            Place::Name(name) => name.fmt(formatter),
        }
    }
}

/// One end of a link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct End {
    /// Index of the node.
    pub node: usize,
    /// Its interface.
    pub interface: String,
    /// Where the other end finds it.
    pub place: Place,
    /// Line in the file.
    pub line: usize,
}

/// `[[link]]`.
#[derive(Clone, Debug)]
pub struct Link {
    /// Both ends.
    pub ends: [End; 2],
    /// Keys of `[[link]]` of the daemon, for both ends.
    pub extras: Vec<Extra>,
    /// Keys of `[[neighbour]]` of the daemon, at both ends.
    pub shared: Vec<Extra>,
    /// Line in the file.
    pub line: usize,
}

impl Link {
    /// Whether nothing comes back over it.
    pub fn is_one_way(&self) -> bool {
        self.shared.iter().any(|it| it.key == "one_way" && it.value.as_bool() == Some(true))
    }

    /// The end of `node` and the other one, if it is one of the two.
    pub fn seen_from(&self, node: usize) -> Option<(&End, &End)> {
        let [one, other] = &self.ends;
        match node {
            node if node == one.node => Some((one, other)),
            node if node == other.node => Some((other, one)),
            _ => None,
        }
    }

    /// The address that `node` sends from: any, where what is written may not be its own.
    pub fn local(&self, end: &End, node: &Node) -> IpAddr {
        let written = self.ends.iter().find_map(|end| end.place.address());
        let any = match written {
            Some(IpAddr::V6(_)) => IpAddr::from(Ipv6Addr::UNSPECIFIED),
            _ => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        };
        end.place.address().filter(|_| !node.roams).unwrap_or(any)
    }
}

/// The whole file. Nodes, links and paths fit together.
#[derive(Clone, Debug)]
pub struct Network {
    /// Name of the file, for messages.
    pub file: String,
    /// What is authenticated.
    pub auth: Auth,
    /// Keys of `[daemon]` for all nodes.
    pub daemon: Vec<Extra>,
    /// The nodes.
    pub nodes: Vec<Node>,
    /// The links.
    pub links: Vec<Link>,
    /// The paths.
    pub paths: Vec<Path>,
    /// `stream_symbols` of sources, by node and flow, where another node of the path has no memory
    /// for as many packets as theirs.
    pub(crate) windows: BTreeMap<(usize, u32), usize>,
}

const PARTS: &str = "[nodes], [[link]], [[path]], [daemon], auth, config, private_key and sudo";

impl Network {
    /// Reads a network and checks all of it, the files that follow from it by the parser of the
    /// daemon included.
    ///
    /// # Errors
    ///
    /// Every mistake there is, in order of lines.
    pub fn parse(file: &str, text: &str) -> Result<Network, NetworkErrors> {
        Network::parse_with(file, text, true)
    }

    /// The same for nodes that have no keys yet: none is asked for.
    ///
    /// # Errors
    ///
    /// As [`Network::parse`].
    pub fn parse_without_keys(file: &str, text: &str) -> Result<Network, NetworkErrors> {
        Network::parse_with(file, text, false)
    }

    fn parse_with(file: &str, text: &str, keys: bool) -> Result<Network, NetworkErrors> {
        let lines = Text::new(text);
        let table = DeTable::parse(text).map_err(|error| {
            let line = error.span().map_or(1, |span| lines.line(span.start));
            let fault = Fault::Syntax { message: error.message().replace('\n', ", ") };
            NetworkErrors::new(file, vec![NetworkError { line, place: String::new(), fault }])
        })?;
        let mut errors = Vec::new();
        let mut network = read(file, &lines, table.get_ref(), &mut errors);
        // All else is checked as with keys.
        let mut lacking = Vec::new();
        for (index, node) in network.nodes.iter_mut().enumerate() {
            if !keys && node.key.is_none() {
                node.key = Some(placeholder(index));
                lacking.push(index);
            }
        }
        // Of what is whole: what is missing has been said.
        if errors.is_empty() {
            paths::check(&network, &mut errors);
            nodes::check(&network, &mut errors);
        }
        if errors.is_empty() {
            network.windows = boxes::check(&network, &mut errors);
        }
        lacking.iter().for_each(|index| network.nodes[*index].key = None);
        if errors.is_empty() { Ok(network) } else { Err(NetworkErrors::new(file, errors)) }
    }

    /// The links between two nodes, in the order of the file: paths that add up.
    pub fn links_between(&self, one: usize, other: usize) -> impl Iterator<Item = &Link> {
        self.links.iter().filter(move |link| {
            link.seen_from(one).is_some_and(|(_, far)| far.node == other && one != other)
        })
    }

    /// Number of the path that a link is, among those between its two nodes.
    pub fn path_number(&self, link: &Link) -> usize {
        let [one, other] = &link.ends;
        let mut links = self.links_between(one.node, other.node);
        links.position(|known| std::ptr::eq(known, link)).unwrap_or(0)
    }
}

/// Stands for the public key of a node that has none yet, another one for each.
fn placeholder(node: usize) -> PublicKey {
    let mut seed = [0; 64];
    // Apart from the bits that every private key has alike.
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
    let parts = ["daemon", "nodes", "link", "path"].map(|key| reader.take(key));
    reader.no_more(PARTS);
    let [daemon, nodes, links, paths] = parts;
    let mut network = Network {
        file: file.to_owned(),
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
    match nodes.as_ref().map(|entry| (entry, entry.value)) {
        Some((_, DeValue::Table(table))) if !table.is_empty() => {
            network.nodes = nodes::nodes(text, table, &common, errors);
        }
        Some((entry, _)) => shape(entry, nodes::RULE, errors),
        None => {
            let fault = Fault::Missing { key: "nodes", rule: nodes::RULE.to_owned() };
            errors.push(NetworkError { line: 1, place: String::new(), fault });
        }
    }
    for (table, line) in tables(text, links.as_ref(), "link", errors) {
        let found = links::link(text, table, line, &network.nodes, &network.links, errors);
        network.links.extend(found);
    }
    for (table, line) in tables(text, paths.as_ref(), "path", errors) {
        let id = paths::next_id(&network.paths);
        network.paths.extend(paths::path(text, table, line, id, &network.nodes, errors));
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

/// Keys of `[daemon]` that a network may write for its nodes.
pub(crate) fn daemon_keys(reader: &mut Reader<'_, '_>) -> Vec<Extra> {
    let mut extras = Vec::new();
    for entry in reader.rest() {
        match entry.key {
            "auth" | "private_key" => {
                let hint = "it is for all nodes: write it above [nodes]".to_owned();
                reader.refuse(entry.line, Fault::Unknown { key: entry.key.into(), hint });
            }
            key if DAEMON.find(key).is_none() => {
                let names = DAEMON.keys.iter().map(|key| key.name);
                let names: Vec<_> =
                    names.filter(|name| !["auth", "private_key"].contains(name)).collect();
                let hint = format!("the keys of [daemon] are {}", names.join(", "));
                reader.refuse(entry.line, Fault::Unknown { key: key.into(), hint });
            }
            _ => extras.push(extra(&entry)),
        }
    }
    extras
}

/// What is handed to the daemon.
pub(crate) fn extra(entry: &Entry<'_>) -> Extra {
    Extra { key: entry.key.to_owned(), value: entry.copied(), line: entry.line }
}
