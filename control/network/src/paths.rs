//! `[[path]]`: the ways and the tunnel of traffic. A path is two flows, one in each direction; with
//! several receivers it is one flow.

use crate::model::{Extra, Network, Node, Path, distinct, extra, receivers};
use crate::reader::{Entry, Reader, Text, listed};
use crate::{Fault, NetworkError, subnets};
use ipnet::IpNet;
use recoded_api::keys::{FLOW, TUNNEL};
use recoded_api::spelling::{did_you_mean, nearest};
use std::net::IpAddr;
use toml::de::{DeTable, DeValue};
use toml_edit::Value;

/// Keys of a path itself, for suggestions.
const OWN: [&str; 13] = [
    "via",
    "ways",
    "from",
    "to",
    "tunnel",
    "mode",
    "latency",
    "tcp",
    "routes",
    "name",
    "id",
    "mtu",
    "kill_switch",
];

/// Keys of tunnels that are derived from the path.
const DERIVED_OF_TUNNEL: [&str; 5] = ["name", "address", "routes", "exit", "tcp_split"];

/// Keys of flows that are derived from the path.
const DERIVED: [&str; 12] = [
    "id",
    "role",
    "tunnel",
    "next_hops",
    "upstream",
    "edge_key",
    "edge_one_way",
    "edge_name",
    "edge_group",
    "sink_keys",
    "relay_keys",
    "source_key",
];

const TUNNEL_RULE: &str = "write the addresses of the tunnel at both ends, first that of from, \
                           such as [\"10.99.0.1/24\", \"10.99.0.2/24\"]; with several receivers \
                           one for each, in the order of the ways; an \
                           end may have a list of addresses, IPv4 and IPv6";
const WAYS_RULE: &str = "it lists ways, and each way lists its boxes from source to receiver: \
                         [[\"a\", \"b\", \"d\"], [\"a\", \"c\", \"d\"]]";
const VIA_RULE: &str = "it lists the boxes of the path, from one end to the other: [\"a\", \"b\"]";
const TCP_RULE: &str = "it is \"split\": TCP connections end at both edges of the path";
const ID_RULE: &str = "it is a whole number from 0 to 4294967294; the return path has the next one";

/// A word for a setting of flows.
struct Word {
    key: &'static str,
    /// Its key in `[[flow]]`.
    flow_key: &'static str,
    /// Words, each with the value of that key.
    values: &'static [(&'static str, &'static str)],
}

const WORDS: [Word; 2] = [
    Word {
        key: "mode",
        flow_key: "spread",
        values: &[("bond", "sum"), ("failover", "backup"), ("duplicate", "every")],
    },
    Word { key: "latency", flow_key: "stream_profile", values: &[("low", "interactive")] },
];

/// The nodes that follow a node on these ways.
pub(crate) fn after(ways: &[Vec<usize>], node: usize) -> Vec<usize> {
    let pairs = ways.iter().flat_map(|way| way.windows(2));
    distinct(pairs.filter(|pair| pair[0] == node).map(|pair| pair[1]))
}

/// Id of the next path.
pub(crate) fn next_id(paths: &[Path]) -> u32 {
    paths.last().map_or(1, |path| path.id.saturating_add(2))
}

/// Reads one path. Unknown nodes are mistakes; the path is then dropped.
pub(crate) fn path(
    text: &Text<'_>,
    table: &DeTable<'_>,
    line: usize,
    id: u32,
    nodes: &[Node],
    errors: &mut Vec<NetworkError>,
) -> Option<Path> {
    let mut reader = Reader::new("path".to_owned(), line, text.entries(table), errors);
    let reader = &mut reader;
    let ways = ways(reader, nodes);
    let tunnel = tunnel(reader, ways.as_deref(), nodes);
    let receiver_count = ways.as_deref().map_or(1, |ways| receivers(ways).len());
    let rule = "it is the name of an interface: 1 to 15 bytes without blank or slash";
    let name = reader.text("name", rule, |name| {
        let fits = (1..=15).contains(&name.len()) && !name.contains(['/', '"', '\\']);
        (fits && !name.chars().any(|letter| letter.is_whitespace() || letter.is_control()))
            .then(|| name.to_owned())
    });
    let id = match reader.take("id") {
        None => Some(id),
        Some(entry) => {
            let number = entry.written.parse::<u32>().ok().filter(|id| *id < u32::MAX);
            if number.is_none() {
                reader.wrong(&entry, ID_RULE);
            }
            number
        }
    };
    let splits_tcp = reader.text("tcp", TCP_RULE, |word| (word == "split").then_some(()));
    let routes = subnets::of_path(reader, receiver_count);
    let words = words(reader);
    let (tunnel_extras, mut flow_extras) = extras(reader);
    flow_extras.extend(words);
    Some(Path {
        ways: ways?,
        tunnel: tunnel?,
        name,
        id: id?,
        splits_tcp: splits_tcp.is_some(),
        routes,
        tunnel_extras,
        flow_extras,
        line,
    })
}

/// The path of a file that writes none: between its two boxes.
pub(crate) fn only(nodes: &[Node], errors: &mut Vec<NetworkError>) -> Option<Path> {
    let [first, other] = nodes else {
        let rule = "only between two boxes it may be left out: write [[path]] and via = \
                    [\"a\", \"b\"], the boxes from one end to the other";
        let fault = Fault::Missing { key: "path", rule: rule.to_owned() };
        errors.push(NetworkError { line: 1, place: String::new(), fault });
        return None;
    };
    let line = other.line;
    let mut reader = Reader::new("path".to_owned(), line, Vec::new(), errors);
    // Not by the order of lines: that may differ between files that were written one by one.
    let ways = vec![if first.name <= other.name { vec![0, 1] } else { vec![1, 0] }];
    let tunnel = tunnel(&mut reader, Some(&ways), nodes)?;
    let (tunnel_extras, flow_extras) = (Vec::new(), Vec::new());
    let splits_tcp = false;
    Some(Path {
        ways,
        tunnel,
        name: None,
        id: 1,
        splits_tcp,
        routes: Vec::new(),
        tunnel_extras,
        flow_extras,
        line,
    })
}

/// Reads `from`, `via` and `to`, or `via` alone, or `ways`.
fn ways(reader: &mut Reader<'_, '_>, nodes: &[Node]) -> Option<Vec<Vec<usize>>> {
    let (from, via, to) = (reader.take("from"), reader.take("via"), reader.take("to"));
    let word = |entry: &Option<Entry<'_>>| {
        entry.as_ref().and_then(|entry| entry.value.as_str()).unwrap_or("?").to_owned()
    };
    if from.is_some() || to.is_some() {
        reader.place = format!("path {} -> {}", word(&from), word(&to));
    }
    match (reader.take("ways"), from, via, to) {
        (Some(entry), None, None, None) => all_ways(reader, &entry, nodes),
        (Some(entry), ..) => {
            reader.wrong(&entry, "a path has via, or from, via and to, or ways");
            None
        }
        (None, None, Some(via), None) => {
            let way = several(reader, &via, nodes)?;
            if way.len() < 2 {
                reader.wrong(&via, VIA_RULE);
            }
            Some(vec![way]).filter(|ways| ways[0].len() > 1)
        }
        (None, None, None, None) => {
            reader.refuse(reader.line, Fault::Missing { key: "via", rule: VIA_RULE.to_owned() });
            None
        }
        (None, from, via, to) => {
            let first = named(reader, from, "from", nodes);
            let between = via.map_or(Some(Vec::new()), |entry| several(reader, &entry, nodes));
            let last = named(reader, to, "to", nodes);
            let whole = |first, between: Vec<usize>, last| {
                vec![std::iter::once(first).chain(between).chain([last]).collect()]
            };
            first.zip(between).zip(last).map(|((first, between), last)| whole(first, between, last))
        }
    }
}

/// Reads `tunnel`, or takes the addresses that the boxes at the ends have.
fn tunnel(
    reader: &mut Reader<'_, '_>,
    ways: Option<&[Vec<usize>]>,
    nodes: &[Node],
) -> Option<Vec<Vec<IpNet>>> {
    // If the ways are wrong, the number of receivers is unknown, and their errors are already
    // reported.
    let right = ways.filter(|ways| together(ways).is_none() && circle(ways).is_none());
    if let Some(entry) = reader.take("tunnel") {
        let receivers = right.map(|ways| receivers(ways).len().max(1));
        return tunnel_ends(reader, &entry, receivers);
    }
    let Some(ways) = right else {
        // Checked later, together with the links.
        return ways.map(|_| Vec::new());
    };
    let ends: Vec<usize> =
        ways.first()?.first().copied().into_iter().chain(receivers(ways)).collect();
    if ends.iter().all(|node| nodes[*node].tunnel.is_empty()) {
        let rule = TUNNEL_RULE.to_owned();
        reader.refuse(reader.line, Fault::Missing { key: "tunnel", rule });
        return None;
    }
    for node in ends.iter().map(|node| &nodes[*node]).filter(|node| node.tunnel.is_empty()) {
        let rule = format!(
            "{} is an end of a path: write tunnel = \"10.99.0.1/24\" in its line, another address \
             for each box",
            node.name
        );
        reader.refuse(node.line, Fault::Missing { key: "tunnel", rule });
    }
    let addresses: Vec<Vec<IpNet>> = ends.iter().map(|node| nodes[*node].tunnel.clone()).collect();
    if addresses.iter().any(Vec::is_empty) {
        return None;
    }
    let line = ends.last().map_or(reader.line, |node| nodes[*node].line);
    match disagreement(&addresses) {
        None => Some(addresses),
        Some(fault) => {
            reader.refuse(line, fault);
            None
        }
    }
}

/// Reads the words for common settings of flows.
fn words(reader: &mut Reader<'_, '_>) -> Vec<Extra> {
    let mut extras = Vec::new();
    for Word { key, flow_key, values } in WORDS {
        let Some(entry) = reader.take(key) else { continue };
        let found = values.iter().find(|(word, _)| entry.value.as_str() == Some(word));
        match found {
            Some((_, value)) => {
                let (key, value) = (flow_key.to_owned(), Value::from(*value));
                extras.push(Extra { key, value, line: entry.line });
            }
            None => {
                let known: Vec<String> =
                    values.iter().map(|(word, _)| format!("\"{word}\"")).collect();
                reader.wrong(&entry, &format!("it is {}", known.join(" or ")));
            }
        }
        if let Some(twin) = reader.take(flow_key) {
            reader.wrong(&twin, &format!("{key} sets it: take one of them away"));
        }
    }
    extras
}

/// Reads `ways`.
fn all_ways(
    reader: &mut Reader<'_, '_>,
    entry: &Entry<'_>,
    nodes: &[Node],
) -> Option<Vec<Vec<usize>>> {
    let items = entry.value.as_array().filter(|ways| !ways.is_empty());
    let names = |item: &DeValue<'_>| -> Option<Vec<String>> {
        let names = item.as_array()?.iter().map(|item| item.get_ref().as_str().map(str::to_owned));
        names.collect::<Option<Vec<String>>>().filter(|names| names.len() > 1)
    };
    let ways: Option<Vec<Vec<String>>> =
        items.and_then(|items| items.iter().map(|item| names(item.get_ref())).collect());
    let Some(ways) = ways else {
        reader.wrong(entry, WAYS_RULE);
        return None;
    };
    let mut found = Vec::new();
    for way in ways {
        let way: Vec<_> = way.iter().map(|name| find(reader, entry.line, name, nodes)).collect();
        found.push(way.into_iter().collect::<Option<Vec<usize>>>());
    }
    found.into_iter().collect()
}

fn extras(reader: &mut Reader<'_, '_>) -> (Vec<Extra>, Vec<Extra>) {
    let (mut of_tunnel, mut of_flow) = (Vec::new(), Vec::new());
    for entry in reader.rest() {
        let key = entry.key;
        if FLOW.find(key).is_some() && !DERIVED.contains(&key) {
            of_flow.push(extra(&entry));
        } else if TUNNEL.find(key).is_some() && !DERIVED_OF_TUNNEL.contains(&key) {
            of_tunnel.push(extra(&entry));
        } else {
            let names = FLOW.keys.iter().map(|key| key.name);
            let names: Vec<_> = names.filter(|name| !DERIVED.contains(name)).collect();
            let known = OWN.iter().chain(&names).copied();
            let hint = nearest(key, known).map(did_you_mean).unwrap_or_else(|| {
                format!(
                    "a path has via or ways, tunnel, mode, latency, tcp, routes, name, id, mtu, \
                     kill_switch and the keys of its flows: {}",
                    names.join(", ")
                )
            });
            reader.refuse(entry.line, Fault::Unknown { key: key.to_owned(), hint });
        }
    }
    (of_tunnel, of_flow)
}

/// The node that an entry names.
fn named(
    reader: &mut Reader<'_, '_>,
    entry: Option<Entry<'_>>,
    key: &'static str,
    nodes: &[Node],
) -> Option<usize> {
    let rule = "it is the name of a box";
    let Some(entry) = entry else {
        reader.refuse(reader.line, Fault::Missing { key, rule: rule.to_owned() });
        return None;
    };
    let Some(name) = entry.value.as_str() else {
        reader.wrong(&entry, rule);
        return None;
    };
    find(reader, entry.line, name, nodes)
}

fn several(reader: &mut Reader<'_, '_>, entry: &Entry<'_>, nodes: &[Node]) -> Option<Vec<usize>> {
    let items = entry.value.as_array();
    let names: Option<Vec<&str>> =
        items.and_then(|items| items.iter().map(|item| item.get_ref().as_str()).collect());
    let Some(names) = names else {
        reader.wrong(entry, "it lists the boxes between from and to, in order: [\"b\"]");
        return None;
    };
    let found: Vec<_> =
        names.into_iter().map(|name| find(reader, entry.line, name, nodes)).collect();
    found.into_iter().collect()
}

fn find(reader: &mut Reader<'_, '_>, line: usize, name: &str, nodes: &[Node]) -> Option<usize> {
    let found = nodes.iter().position(|node| node.name == name);
    if found.is_none() {
        let hint = format!("the boxes are {}", listed(nodes.iter().map(|node| node.name.as_str())));
        reader.refuse(line, Fault::NoNode { name: crate::reader::one_line(name), hint });
    }
    found
}

/// Parses one address, or a list.
pub(crate) fn addresses(item: &DeValue<'_>) -> Option<Vec<IpNet>> {
    let one = |item: &DeValue<'_>| item.as_str()?.parse().ok();
    match item.as_array() {
        None => one(item).map(|net| vec![net]),
        Some(items) => {
            let nets = items.iter().map(|item| one(item.get_ref())).collect::<Option<Vec<_>>>();
            nets.filter(|nets| !nets.is_empty())
        }
    }
}

/// The fault of the first address that has no length.
pub(crate) fn lacking_length(item: &DeValue<'_>) -> Option<Fault> {
    if let Some(items) = item.as_array() {
        return items.iter().find_map(|item| lacking_length(item.get_ref()));
    }
    let address: IpAddr = item.as_str()?.parse().ok()?;
    Some(Fault::NoLength { address, length: if address.is_ipv4() { 24 } else { 64 } })
}

fn tunnel_ends(
    reader: &mut Reader<'_, '_>,
    entry: &Entry<'_>,
    receivers: Option<usize>,
) -> Option<Vec<Vec<IpNet>>> {
    let items = entry.value.as_array();
    let ends: Option<Vec<Vec<IpNet>>> =
        items.and_then(|items| items.iter().map(|item| addresses(item.get_ref())).collect());
    let Some(ends) = ends.filter(|ends| {
        ends.len() > 1 && receivers.is_none_or(|receivers| ends.len() == receivers + 1)
    }) else {
        match lacking_length(entry.value) {
            Some(fault) => reader.refuse(entry.line, fault),
            None => reader.wrong(entry, TUNNEL_RULE),
        }
        return None;
    };
    match disagreement(&ends) {
        None => Some(ends),
        Some(Fault::Value { rule, .. }) => {
            reader.wrong(entry, &rule);
            None
        }
        Some(fault) => {
            reader.refuse(entry.line, fault);
            None
        }
    }
}

/// The rule that the addresses of the ends of a tunnel break.
fn disagreement(ends: &[Vec<IpNet>]) -> Option<Fault> {
    let (one, others) = ends.split_first()?;
    let wrong = |value: &IpNet, rule: &str| {
        let (key, value) = ("tunnel".to_owned(), value.to_string());
        Some(Fault::Value { key, value, rule: rule.to_owned() })
    };
    for other in others {
        if one.len() != other.len() {
            return wrong(&other[0], "every end has as many addresses as the others");
        }
        for (one, other) in one.iter().zip(other) {
            if one.addr().is_ipv4() != other.addr().is_ipv4() {
                let (one, other) = (one.to_string(), other.to_string());
                return Some(Fault::Families { one, other });
            }
            if one.addr() == other.addr() {
                return wrong(other, "the two ends have different addresses");
            }
            // The routes of a single-address prefix are configured elsewhere.
            let is_host = one.prefix_len() == one.max_prefix_len();
            if !is_host && !one.contains(&other.addr()) {
                let rule = "the ends lie in one network, such as 10.99.0.1/24 and .2/24";
                return wrong(other, rule);
            }
        }
    }
    None
}

/// Applies the rules over links and all paths.
pub(crate) fn check(network: &Network, errors: &mut Vec<NetworkError>) {
    for (index, path) in network.paths.iter().enumerate() {
        let place = path.place(&network.nodes);
        let mut refuse =
            |fault| errors.push(NetworkError { line: path.line, place: place.clone(), fault });
        let name = |node: usize| network.nodes[node].name.clone();
        for way in &path.ways {
            for (at, node) in way.iter().enumerate() {
                if way[..at].contains(node) {
                    refuse(Fault::Loop { node: name(*node) });
                }
            }
        }
        for hop in path.ways.iter().flat_map(|way| way.windows(2)) {
            let [from, to] = *hop else { continue };
            if from != to && network.links_between(from, to).next().is_none() {
                refuse(Fault::NoLink { from: name(from), to: name(to) });
            }
        }
        together(&path.ways).into_iter().for_each(|rule| refuse(Fault::Ways { rule }));
        if let Some(node) = circle(&path.ways) {
            refuse(Fault::Circle { node: name(node) });
        }
        if path.splits_tcp && (path.receivers().len() != 1 || path.is_one_way(network)) {
            let (key, value) = ("tcp".to_owned(), "\"split\"".to_owned());
            let rule = "a path whose TCP is split has one receiver, and a return path from it";
            refuse(Fault::Value { key, value, rule: rule.to_owned() });
        }
        for other in &network.paths[..index] {
            if path.id.abs_diff(other.id) < 2 {
                refuse(Fault::Taken {
                    what: format!("flow id {}", path.id.max(other.id)),
                    owner: other.place(&network.nodes),
                    line: other.line,
                    rule: "a path has two ids, its own and the next one",
                });
            }
            overlap(network, path, other).into_iter().for_each(&mut refuse);
        }
        of_links(network, path).into_iter().for_each(&mut refuse);
    }
}

/// The rule that the ways of a path break.
fn together(ways: &[Vec<usize>]) -> Option<&'static str> {
    let source = |way: &Vec<usize>| way.first().copied();
    let inside = |way: &Vec<usize>, node: usize| way[..way.len() - 1].contains(&node);
    if ways.windows(2).any(|pair| source(&pair[0]) != source(&pair[1])) {
        Some("all begin at one box, the source")
    } else if receivers(ways).iter().any(|to| ways.iter().any(|way| inside(way, *to))) {
        Some("none continues where another one ends: a receiver forwards nothing")
    } else if (1..ways.len()).any(|at| ways[..at].contains(&ways[at])) {
        Some("each is written once")
    } else {
        None
    }
}

/// A node on a loop of several ways, found by topological sorting: nodes without predecessors are
/// removed repeatedly, and any that remain form a loop.
fn circle(ways: &[Vec<usize>]) -> Option<usize> {
    let is_simple = |way: &Vec<usize>| (1..way.len()).all(|at| !way[..at].contains(&way[at]));
    if !ways.iter().all(is_simple) {
        return None;
    }
    let mut left = distinct(ways.iter().flatten().copied());
    loop {
        let has_before = |node: &usize, left: &[usize]| {
            left.iter().any(|before| after(ways, *before).contains(node))
        };
        let first = left.iter().position(|node| !has_before(node, &left))?;
        left.remove(first);
        let is_stuck = !left.is_empty() && left.iter().all(|node| has_before(node, &left));
        if is_stuck {
            return left.first().copied();
        }
    }
}

/// Tunnels of one node with the same prefixes or names.
fn overlap(network: &Network, path: &Path, other: &Path) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (node, nets) in ends(path) {
        for (_, there) in ends(other).into_iter().filter(|(there, _)| *there == node) {
            let owner = other.place(&network.nodes);
            if path.name.is_some() && path.name == other.name {
                faults.push(Fault::Taken {
                    what: format!("tunnel name {}", path.name.as_deref().unwrap_or_default()),
                    owner: owner.clone(),
                    line: other.line,
                    rule: "each tunnel of a box has a name of its own",
                });
            }
            let pairs = nets.iter().flat_map(|net| there.iter().map(move |there| (net, there)));
            let overlap =
                pairs.into_iter().find(|(net, there)| net.contains(*there) || there.contains(*net));
            if let Some((net, _)) = overlap {
                faults.push(Fault::Taken {
                    what: format!("tunnel {net} at {}", network.nodes[node].name),
                    owner,
                    line: other.line,
                    rule: "prefixes of tunnels of a box do not overlap",
                });
            }
        }
    }
    faults
}

/// Addresses of links at the ends of a path that are inside the network of its tunnel.
fn of_links(network: &Network, path: &Path) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (node, nets) in ends(path) {
        for link in network.links.iter().filter(|link| link.seen_from(node).is_some()) {
            let addresses = link.ends.iter().filter_map(|end| end.place.address());
            let inside = addresses.flat_map(|it| nets.iter().map(move |net| (*net, it)));
            let mut inside = inside.into_iter();
            let inside = inside.find(|(net, address)| net.contains(address));
            faults.extend(inside.map(|(net, address)| Fault::Taken {
                what: format!("tunnel {net} at {}", network.nodes[node].name),
                owner: format!("the link with {address}"),
                line: link.line,
                rule: "the network of a tunnel has no addresses of links: what is for neighbours \
                       would be sent into the tunnel",
            }));
        }
    }
    faults
}

/// Source and receivers with their addresses in the tunnel.
pub(crate) fn ends(path: &Path) -> Vec<(usize, &[IpNet])> {
    let nodes = path.source().into_iter().chain(path.receivers());
    nodes.zip(path.tunnel.iter().map(Vec::as_slice)).collect()
}
