//! `[nodes]` and `[boxes]`: the nodes, and how to reach them for changes.

use crate::model::{Auth, Network, Node, NodeAddress, Path, Uplink, Uplinks, daemon_keys};
use crate::reader::{Entry, Reader, Text, is_name};
use crate::{Fault, NetworkError, links, paths, subnets};
use ipnet::IpNet;
use recoded_secure::PublicKey;
use toml::de::{DeTable, DeValue};

/// Rule of `[nodes]`.
pub(crate) const RULE: &str = "write [boxes] and a line for each box, such as a = { at = \
                               \"192.0.2.1\", key = \"...\", tunnel = \"10.99.0.1/24\" }";
const NODE_RULE: &str = "write a line for each box, such as a = \"root@192.0.2.1\"";

const HOST_RULE: &str =
    "it is what ssh takes: a host or user@host, without blanks, not beginning with -";
const PATH_RULE: &str = "it is the absolute path of a file";
const KEY_RULE: &str = "it is the box's public key, 44 characters, as `recodectl pubkey` prints \
                        it there";
const AT_RULE: &str = "it is the address or host name where neighbours find it, or a list of \
                       addresses, each with its interface if you like: \"192.0.2.1 dev eth0\"; a \
                       box without at is found when it sends";
const UPLINKS_RULE: &str = "it lists the interfaces that carry coded packets, each a path of its \
                            own: [\"eth0\", \"wwan0\"]";
const TUNNEL_RULE: &str = "it is the address of the box in tunnels, such as \"10.99.0.1/24\", or \
                           a list of addresses, IPv4 and IPv6";

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

/// The two ways to write nodes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// `[nodes]`: their links are written.
    Nodes,
    /// `[boxes]`: their links are derived.
    Boxes,
}

/// All nodes, in the order of the file.
pub(crate) fn nodes(
    text: &Text<'_>,
    table: &DeTable<'_>,
    form: Form,
    common: &Common,
    errors: &mut Vec<NetworkError>,
) -> Vec<Node> {
    let entries = text.entries(table);
    entries.iter().map(|entry| node(text, entry, form, common, errors)).collect()
}

fn node(
    text: &Text<'_>,
    entry: &Entry<'_>,
    form: Form,
    common: &Common,
    errors: &mut Vec<NetworkError>,
) -> Node {
    let place = format!("box {}", crate::reader::one_line(entry.key));
    let mut node = Node {
        name: entry.key.to_owned(),
        host: entry.key.to_owned(),
        key: None,
        config: common.config.clone(),
        private_key: common.private_key.clone(),
        sudo: common.sudo,
        roams: false,
        daemon: Vec::new(),
        uplinks: Uplinks::At(Vec::new()),
        tunnel: Vec::new(),
        routes: Vec::new(),
        line: entry.line,
    };
    let keys = entry.value.as_table().map(|table| text.entries(table)).unwrap_or_default();
    let mut reader = Reader::new(place, entry.line, keys, errors);
    if !is_name(entry.key) || entry.key == "rate_mbit" {
        let rule = "a box has a name of 1 to 32 letters, digits, - and _, not beginning with -, \
                    and not rate_mbit";
        let (key, value) = ("name".to_owned(), crate::reader::one_line(entry.key));
        reader.refuse(entry.line, Fault::Value { key, value, rule: rule.to_owned() });
    }
    match entry.value {
        DeValue::String(text) if form == Form::Nodes => match host(text) {
            Some(host) => node.host = host,
            None => reader.wrong(entry, HOST_RULE),
        },
        DeValue::Table(_) => {
            let daemon = reader.take("daemon");
            let ssh = reader.text("ssh", HOST_RULE, host);
            node.key = key(&mut reader);
            node.config = reader.text("config", PATH_RULE, path).unwrap_or(node.config);
            node.private_key =
                reader.text("private_key", PATH_RULE, path).unwrap_or(node.private_key);
            node.sudo = reader.truth("sudo").unwrap_or(node.sudo);
            node.routes = subnets::of_node(&mut reader);
            match form {
                Form::Nodes => {
                    node.roams = reader.truth("roams").unwrap_or(false);
                    reader.no_more("ssh, key, config, private_key, sudo, roams, routes and daemon");
                }
                Form::Boxes => {
                    read_box(&mut reader, &mut node);
                    reader.no_more(
                        "at, uplinks, key, tunnel, routes, ssh, config, private_key, sudo and daemon",
                    );
                }
            }
            let at = node.uplinks.places().next().map(ToString::to_string);
            node.host = ssh.or(at).unwrap_or(node.host);
            match daemon.as_ref().map(|entry| (entry, entry.value)) {
                Some((entry, DeValue::Table(table))) => {
                    let place = format!("box {}: daemon", node.name);
                    let mut reader = Reader::new(place, entry.line, text.entries(table), errors);
                    node.daemon = daemon_keys(&mut reader);
                }
                Some((entry, _)) => reader.wrong(entry, "write daemon = { workers = 2 }"),
                None => {}
            }
        }
        _ => reader.wrong(entry, form.rule()),
    }
    node
}

impl Form {
    /// The rule of a node that is no text or table.
    fn rule(self) -> &'static str {
        match self {
            Form::Nodes => NODE_RULE,
            Form::Boxes => RULE,
        }
    }
}

/// Takes the public key. A value that is none may be private, so the message omits it.
fn key(reader: &mut Reader<'_, '_>) -> Option<PublicKey> {
    let entry = reader.take("key")?;
    let key = entry.value.as_str().and_then(|key| key.parse().ok());
    if key.is_none() {
        let (key, value) = ("key".to_owned(), "(not shown)".to_owned());
        reader.refuse(entry.line, Fault::Value { key, value, rule: KEY_RULE.to_owned() });
    }
    key
}

/// Reads the keys of a box that a node of `[nodes]` does not have.
fn read_box(reader: &mut Reader<'_, '_>, node: &mut Node) {
    let (at, uplinks) = (reader.take("at"), reader.take("uplinks"));
    node.roams = at.is_none();
    node.uplinks = match (&at, &uplinks) {
        (Some(_), Some(uplinks)) => {
            reader.wrong(uplinks, "a box has at, or uplinks without addresses: take one away");
            Uplinks::At(Vec::new())
        }
        (None, Some(entry)) => {
            let names: Option<Vec<String>> =
                texts(entry).and_then(|names| names.into_iter().map(links::interface).collect());
            let is_list = |names: &Vec<String>| {
                !names.is_empty() && (1..names.len()).all(|at| !names[..at].contains(&names[at]))
            };
            let names = names.filter(is_list);
            if names.is_none() {
                reader.wrong(entry, UPLINKS_RULE);
            }
            Uplinks::Each(names.unwrap_or_default())
        }
        (Some(entry), None) => {
            let at: Option<Vec<Uplink>> =
                texts(entry).and_then(|texts| texts.into_iter().map(uplink).collect());
            let at = at.filter(|at| !at.is_empty());
            if at.is_none() {
                reader.wrong(entry, AT_RULE);
            }
            Uplinks::At(at.unwrap_or_default())
        }
        (None, None) => Uplinks::At(vec![Uplink { interface: None, place: None }]),
    };
    if let Some(entry) = reader.take("tunnel") {
        let tunnel: Option<Vec<IpNet>> = paths::addresses(entry.value);
        match (&tunnel, paths::lacking_length(entry.value)) {
            (Some(_), _) => {}
            (None, Some(fault)) => reader.refuse(entry.line, fault),
            (None, None) => reader.wrong(&entry, TUNNEL_RULE),
        }
        node.tunnel = tunnel.unwrap_or_default();
    }
}

/// One text, or a list of texts.
fn texts<'a>(entry: &Entry<'a>) -> Option<Vec<&'a str>> {
    match entry.value.as_array() {
        None => entry.value.as_str().map(|text| vec![text]),
        Some(items) => items.iter().map(|item| item.get_ref().as_str()).collect(),
    }
}

/// Parses an address or host name, with or without its interface.
fn uplink(text: &str) -> Option<Uplink> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (place, interface) = match words[..] {
        [place] => (place, None),
        [place, "dev", interface] => (place, Some(links::interface(interface)?)),
        _ => return None,
    };
    let place: Option<NodeAddress> = links::place(place);
    place.map(|place| Uplink { interface, place: Some(place) })
}

/// Checks that the nodes suit the rest of the file.
pub(crate) fn check(network: &Network, errors: &mut Vec<NetworkError>) {
    for (index, node) in network.nodes.iter().enumerate() {
        let form = if network.shared.is_some() { Form::Boxes } else { Form::Nodes };
        let place = format!("box {}", node.name);
        let mut refuse = |fault| {
            errors.push(NetworkError { line: node.line, place: place.clone(), fault });
        };
        if !network.links.iter().any(|link| link.seen_from(index).is_some()) {
            refuse(if form == Form::Boxes { Fault::NoPath } else { Fault::Lonely });
        }
        if node.roams && network.auth == Auth::None {
            let rule = "neighbours follow packets with a right tag, and with auth = \"none\" there \
                        are none";
            refuse(match form {
                Form::Nodes => Fault::Value {
                    key: "roams".to_owned(),
                    value: "true".to_owned(),
                    rule: format!("{rule}: write auth = \"full\" or \"hop\""),
                },
                Form::Boxes => Fault::Missing {
                    key: "at",
                    rule: format!("{rule}: write its address, or take auth = \"none\" away"),
                },
            });
        }
        let on_path = network.paths.iter().any(|path| path.passes(index));
        if on_path && network.auth != Auth::None && node.key.is_none() {
            refuse(Fault::NoKey { node: node.name.clone(), file: network.file.clone() });
        }
    }
    check_routes(network, errors);
    for (index, node) in network.nodes.iter().enumerate() {
        let Some(key) = &node.key else { continue };
        let mut before = network.nodes[..index].iter();
        if let Some(other) = before.find(|other| other.key.as_ref() == Some(key)) {
            let fault = Fault::Taken {
                what: "key".into(),
                owner: format!("box {}", other.name),
                line: other.line,
                rule: "each box has a key of its own",
            };
            errors.push(NetworkError {
                line: node.line,
                place: format!("box {}", node.name),
                fault,
            });
        }
    }
}

/// Checks that each subnet is behind one box, which is an end of a path.
fn check_routes(network: &Network, errors: &mut Vec<NetworkError>) {
    for (index, node) in network.nodes.iter().enumerate() {
        let place = format!("box {}", node.name);
        let is_end = |path: &Path| paths::ends(path).iter().any(|(end, _)| *end == index);
        if !node.routes.is_empty() && !network.paths.iter().any(is_end) {
            let nets: Vec<String> = node.routes.iter().map(ToString::to_string).collect();
            let fault = Fault::Value {
                key: "routes".to_owned(),
                value: format!("{nets:?}"),
                rule: "it is no end of a path, so no tunnel leads to its subnets: take routes away"
                    .to_owned(),
            };
            errors.push(NetworkError { line: node.line, place: place.clone(), fault });
        }
        for net in &node.routes {
            let mut others = network.nodes[..index].iter();
            let Some(other) = others.find(|other| other.routes.contains(net)) else { continue };
            let fault = Fault::Taken {
                what: net.to_string(),
                owner: format!("box {}", other.name),
                line: other.line,
                rule: "each subnet is behind one box",
            };
            errors.push(NetworkError { line: node.line, place: place.clone(), fault });
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
