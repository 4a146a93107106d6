//! One node's part of the network: its links, tunnels, neighbours and flows.
//!
//! ```text
//!  [[link]] ends of a node, one per interface -> link       name: that of the interface
//!  paths that begin or end there              -> tunnel     rec0, rec1 in the order of paths
//!  nodes before and after it on paths         -> neighbour  their addresses and keys
//!  paths over it, in both directions          -> flow       source, relay or sink
//! ```

use crate::model::{Auth, End, Extra, Link, Network, NodeAddress, Path};
use crate::paths;
use ipnet::IpNet;
use recoded_api::keys::{FLOW, Role};
use recoded_secure::PublicKey;
use std::net::IpAddr;

/// An interface of a node that carries coded packets.
#[derive(Clone, Debug)]
pub(crate) struct BoxLink<'a> {
    pub name: String,
    pub end: &'a End,
    pub link: &'a Link,
}

/// An adjacent node, as this one knows it.
#[derive(Clone, Debug)]
pub(crate) struct BoxHop<'a> {
    pub link: String,
    pub place: &'a NodeAddress,
    pub node: usize,
    /// The link of the network.
    pub over: &'a Link,
}

/// The part of a node in a flow.
#[derive(Clone, Debug)]
pub(crate) struct BoxFlow<'a> {
    pub id: u32,
    pub role: Role,
    pub tunnel: Option<String>,
    pub upstreams: Vec<BoxHop<'a>>,
    pub next_hops: Vec<BoxHop<'a>>,
    /// `spread` of next hops that are paths to one receiver, where it is not written.
    pub spread: Option<&'static str>,
    /// Whether a copy is sent over each path to one receiver, for the least delay, and no other
    /// profile or code is written.
    pub is_copied: bool,
    pub edge: Option<PublicKey>,
    /// Source and sink of a path with one receiver: name of the box at the other end.
    pub edge_name: Option<&'a str>,
    /// Source: its sinks, if there are several.
    pub sinks: Vec<PublicKey>,
    /// Sink: whether it is one of several.
    pub is_in_group: bool,
    /// Whether its sink cannot send to its source.
    pub is_one_way: bool,
    /// Source: relays that verify its symbols.
    pub relays: Vec<PublicKey>,
    /// Relay: the source.
    pub source: Option<PublicKey>,
    pub extras: Vec<&'a Extra>,
    pub path: &'a Path,
}

/// An interface that IP packets enter and leave by.
#[derive(Clone, Debug)]
pub(crate) struct BoxTunnel<'a> {
    pub name: String,
    pub addresses: &'a [IpNet],
    pub routes: Vec<BoxRoute>,
    /// Families whose packets for any destination come from the other ends.
    pub exit: Option<&'static str>,
    /// Address of the other end, if TCP connections end at both.
    pub tcp_split: Option<IpAddr>,
    pub path: &'a Path,
}

/// A subnet behind another node.
#[derive(Copy, Clone, Debug)]
pub(crate) struct BoxRoute {
    pub net: IpNet,
    pub node: usize,
}

/// The configuration that a node needs.
#[derive(Clone, Debug)]
pub(crate) struct Needs<'a> {
    pub daemon: Vec<&'a Extra>,
    pub links: Vec<BoxLink<'a>>,
    pub tunnels: Vec<BoxTunnel<'a>>,
    pub neighbours: Vec<BoxHop<'a>>,
    pub flows: Vec<BoxFlow<'a>>,
}

/// Derives the configuration of node `node`.
pub(crate) fn of(network: &Network, node: usize) -> Needs<'_> {
    let links = box_links(network, node);
    let tunnels = tunnels(network, node);
    let mut flows = Vec::new();
    for path in &network.paths {
        flows.extend(flow(network, node, &links, &tunnels, path, path.id, &path.ways));
        if path.receivers().len() == 1 && !path.is_one_way(network) {
            let turned = |way: &Vec<usize>| way.iter().rev().copied().collect();
            let back: Vec<Vec<usize>> = path.ways.iter().map(turned).collect();
            flows.extend(flow(network, node, &links, &tunnels, path, path.id + 1, &back));
        }
    }
    let mut neighbours: Vec<BoxHop<'_>> = Vec::new();
    for hop in flows.iter().flat_map(|flow| flow.upstreams.iter().chain(&flow.next_hops)) {
        if !neighbours.iter().any(|known| known.place == hop.place && known.link == hop.link) {
            neighbours.push(hop.clone());
        }
    }
    if network.auth == Auth::None {
        neighbours.clear();
    }
    let own = &network.nodes[node].daemon;
    let common = network.daemon.iter();
    let daemon = common.filter(|extra| own.iter().all(|own| own.key != extra.key)).chain(own);
    Needs { daemon: daemon.collect(), links, tunnels, neighbours, flows }
}

/// Links, one for each interface.
fn box_links(network: &Network, node: usize) -> Vec<BoxLink<'_>> {
    let mut links: Vec<BoxLink<'_>> = Vec::new();
    for link in &network.links {
        let Some((end, _)) = link.seen_from(node) else { continue };
        if links.iter().any(|known| known.end.interface == end.interface) {
            continue;
        }
        let letter = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '-' };
        let base: String = end.interface.chars().map(letter).collect();
        let mut name = base.clone();
        let mut number = 1;
        while links.iter().any(|known| known.name == name) {
            number += 1;
            name = format!("{base}-{number}");
        }
        links.push(BoxLink { name, end, link });
    }
    links
}

fn tunnels(network: &Network, node: usize) -> Vec<BoxTunnel<'_>> {
    let here: Vec<_> = network
        .paths
        .iter()
        .flat_map(|path| paths::ends(path).into_iter().map(move |(at, nets)| (path, at, nets)))
        .filter(|(_, at, _)| *at == node)
        .collect();
    let named: Vec<&str> = here.iter().filter_map(|(path, ..)| path.name.as_deref()).collect();
    let mut free = (0..).map(|number| format!("rec{number}"));
    let mut routed = Vec::new();
    let tunnels = here.into_iter().map(|(path, _, nets)| {
        let unnamed = || free.find(|name| !named.contains(&name.as_str())).unwrap_or_default();
        let name = path.name.clone().unwrap_or_else(unnamed);
        let mut routes = routes(network, node, path);
        // Of several paths to a node, the first one has its subnets.
        routes.retain(|route| !routed.contains(&route.net));
        routed.extend(routes.iter().map(|route| route.net));
        let other = paths::ends(path).into_iter().find(|(at, _)| *at != node);
        let other = other.filter(|_| path.splits_tcp).and_then(|(_, nets)| nets.first());
        let tcp_split = other.map(IpNet::addr);
        let exit = exit(network, node, path);
        BoxTunnel { name, addresses: nets, routes, exit, tcp_split, path }
    });
    tunnels.collect()
}

/// Address families that the other ends of `path` send to `node` as a whole.
fn exit(network: &Network, node: usize, path: &Path) -> Option<&'static str> {
    let others = paths::ends(path).into_iter().map(|(at, _)| at).filter(|at| *at != node);
    let to_here = others.flat_map(|other| routes(network, other, path));
    let defaults = to_here.filter(|route| route.node == node && route.net.prefix_len() == 0);
    let [mut v4, mut v6] = [false; 2];
    defaults.for_each(|route| match route.net {
        IpNet::V4(_) => v4 = true,
        IpNet::V6(_) => v6 = true,
    });
    match (v4, v6) {
        (true, true) => Some("both"),
        (true, false) => Some("ipv4"),
        (false, true) => Some("ipv6"),
        (false, false) => None,
    }
}

/// Subnets behind the nodes that `node` sends to over `path`, and those of the path itself.
fn routes(network: &Network, node: usize, path: &Path) -> Vec<BoxRoute> {
    let receivers = path.receivers();
    let is_source = path.source() == Some(node);
    let far: Vec<usize> = match is_source {
        true => receivers,
        false if receivers.len() == 1 && !path.is_one_way(network) => {
            path.source().into_iter().collect()
        }
        false => Vec::new(),
    };
    let routes = far.into_iter().flat_map(|node| {
        let of_path = path.routes.iter().filter(|_| is_source);
        let nets = network.nodes[node].routes.iter().chain(of_path);
        nets.map(move |net| BoxRoute { net: *net, node })
    });
    routes.collect()
}

fn flow<'a>(
    network: &'a Network,
    node: usize,
    links: &[BoxLink<'_>],
    tunnels: &[BoxTunnel<'_>],
    path: &'a Path,
    id: u32,
    ways: &[Vec<usize>],
) -> Option<BoxFlow<'a>> {
    if !path.passes(node) {
        return None;
    }
    let turned: Vec<Vec<usize>> =
        ways.iter().map(|way| way.iter().rev().copied().collect()).collect();
    let (before, after) = (paths::after(&turned, node), paths::after(ways, node));
    let role = match (before.is_empty(), after.is_empty()) {
        (true, _) => Role::Source,
        (false, false) => Role::Relay,
        (false, true) => Role::Sink,
    };
    let is_one = path.receivers().len() == 1;
    let hops = |nodes: &[usize]| hops(network, node, links, nodes);
    let (upstreams, next_hops) = (hops(&before), hops(&after));
    let other_end = match role {
        Role::Source => ways.first().and_then(|way| way.last()),
        Role::Sink => ways.first().and_then(|way| way.first()),
        Role::Relay => None,
    };
    let has_tags = network.auth == Auth::Full && is_one;
    let key = |node: usize| network.nodes[node].key;
    let source = ways.first().and_then(|way| way.first());
    // Relays copy to several receivers, regardless of the source; some keys apply only where
    // branches merge.
    let is_for = |key: &str| match (key, role) {
        ("spread", Role::Relay) => is_one,
        ("onward_share" | "recoding", Role::Relay) => path.ways.len() == 1 || before.len() > 1,
        _ => true,
    };
    let has = |extra: &&Extra| {
        is_for(&extra.key) && FLOW.find(&extra.key).is_some_and(|key| key.roles.contains(&role))
    };
    let written = |key: &str| path.flow_extras.iter().find(|extra| extra.key == key);
    let is_spread = written("spread").is_some();
    let is_every = written("spread").is_some_and(|extra| extra.value.as_str() == Some("every"));
    // Keys that select a code without profiles.
    let others = ["stream_profile", "code", "repair", "redundancy"];
    let is_plain = others.iter().all(|key| written(key).is_none()) && !path.is_one_way(network);
    let parts = is_one && next_hops.len() > 1;
    let tunnel = tunnels.iter().find(|tunnel| std::ptr::eq(tunnel.path, path));
    Some(BoxFlow {
        id,
        role,
        tunnel: tunnel.filter(|_| role != Role::Relay).map(|tunnel| tunnel.name.clone()),
        // Without reports no path can be preferred.
        spread: (parts && !is_spread).then(|| if is_open_loop(path) { "every" } else { "sum" }),
        is_copied: parts && is_every && is_plain && role == Role::Source,
        upstreams,
        next_hops,
        edge: match role {
            Role::Source if !is_one => None,
            _ => other_end.filter(|_| network.auth == Auth::Full).and_then(|other| key(*other)),
        },
        edge_name: other_end.filter(|_| is_one).map(|other| network.nodes[*other].name.as_str()),
        sinks: match role {
            Role::Source if network.auth == Auth::Full && !is_one => {
                path.receivers().into_iter().filter_map(key).collect()
            }
            _ => Vec::new(),
        },
        is_in_group: role == Role::Sink && network.auth == Auth::Full && !is_one,
        relays: match role {
            Role::Source if has_tags => relays(ways).into_iter().filter_map(key).collect(),
            _ => Vec::new(),
        },
        source: source.filter(|_| role == Role::Relay && has_tags).and_then(|node| key(*node)),
        is_one_way: path.is_one_way(network),
        extras: path.flow_extras.iter().filter(has).collect(),
        path,
    })
}

/// Whether the flows of a path are open loops: streams with a fixed redundancy, which use no
/// reports.
fn is_open_loop(path: &Path) -> bool {
    let value = |key: &str| {
        let extra = path.flow_extras.iter().find(|extra| extra.key == key);
        extra.map(|extra| extra.value.as_str())
    };
    value("code") == Some(Some("stream")) && value("redundancy") == Some(None)
}

/// The neighbours among `nodes`, over each link from `node` to them.
fn hops<'a>(
    network: &'a Network,
    node: usize,
    links: &[BoxLink<'_>],
    nodes: &[usize],
) -> Vec<BoxHop<'a>> {
    let over = |to: usize| network.links_between(node, to).map(move |link| (to, link));
    let hop = |(to, over): (usize, &'a Link)| {
        let (end, far) = over.seen_from(node)?;
        let link = links.iter().find(|link| link.end.interface == end.interface)?;
        Some(BoxHop { link: link.name.clone(), place: &far.place, node: to, over })
    };
    nodes.iter().flat_map(|to| over(*to)).filter_map(hop).collect()
}

/// The relays of ways, each once, in packet order.
fn relays(ways: &[Vec<usize>]) -> Vec<usize> {
    let mut relays = Vec::new();
    for way in ways {
        let between = way.iter().skip(1).take(way.len().saturating_sub(2));
        for node in between.copied() {
            if !relays.contains(&node) {
                relays.push(node);
            }
        }
    }
    relays
}
