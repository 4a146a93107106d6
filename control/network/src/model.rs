//! A network as written in its file: nodes, links and paths that refer to each other.

use crate::Fault;
use crate::reader::{Entry, Reader};
use ipnet::IpNet;
use recoded_api::SOCKET_DEFAULT;
use recoded_api::keys::DAEMON;
use recoded_api::spelling::{did_you_mean, nearest};
use recoded_secure::PublicKey;
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use toml_edit::Value;

/// Largest file that is read; it has room for thousands of nodes.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

/// Which packets are authenticated, on all nodes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Auth {
    /// Every packet of a hop, and IP packets from source to sink.
    Full,
    /// Every packet of a hop.
    Hop,
    /// Nothing.
    None,
}

/// A key that is passed to the daemon unchanged.
#[derive(Clone, Debug)]
pub struct Extra {
    /// The key.
    pub key: String,
    /// Its value.
    pub value: Value,
    /// Its line in the file.
    pub line: usize,
}

/// Location of a node on a link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NodeAddress {
    /// An address.
    Address(IpAddr),
    /// A host name, which its neighbours resolve.
    Name(String),
    /// Not known before it sends. The address, which no host has, distinguishes it from others.
    Awaited(IpAddr),
}

impl NodeAddress {
    /// Its address, if one is written.
    pub fn address(&self) -> Option<IpAddr> {
        match self {
            NodeAddress::Address(address) => Some(*address),
            NodeAddress::Name(_) | NodeAddress::Awaited(_) => None,
        }
    }
}

impl fmt::Display for NodeAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NodeAddress::Address(address) | NodeAddress::Awaited(address) => address.fmt(formatter),
            NodeAddress::Name(name) => name.fmt(formatter),
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
    /// Location where the other end reaches it.
    pub place: NodeAddress,
    /// Whether the box finds the interface.
    pub is_found: bool,
    /// Whether the interface lacks the address, so that Linux chooses one to send from.
    pub is_translated: bool,
    /// Line in the file.
    pub line: usize,
}

impl End {
    /// An end with an interface that is written.
    pub(crate) fn written(node: usize, interface: String, place: NodeAddress, line: usize) -> End {
        End { node, interface, place, is_found: false, is_translated: false, line }
    }
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
    /// Whether it has no return path.
    pub fn is_one_way(&self) -> bool {
        self.shared.iter().any(|it| it.key == "one_way" && it.value.as_bool() == Some(true))
    }

    /// The end at `node` and the other one, if `node` is one of the two.
    pub fn seen_from(&self, node: usize) -> Option<(&End, &End)> {
        let [one, other] = &self.ends;
        match node {
            node if node == one.node => Some((one, other)),
            node if node == other.node => Some((other, one)),
            _ => None,
        }
    }

    /// The source address of `node`: unspecified, if the written one may not be its own.
    pub fn local(&self, end: &End, node: &Node) -> IpAddr {
        let written = self.ends.iter().find_map(|end| end.place.address());
        let any = match written {
            Some(IpAddr::V6(_)) => IpAddr::from(Ipv6Addr::UNSPECIFIED),
            _ => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        };
        let own = end.place.address().filter(|_| !node.roams && !end.is_translated);
        own.unwrap_or(any)
    }
}

/// A box that runs a daemon.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Host for ssh.
    pub host: String,
    /// Its public key.
    pub key: Option<PublicKey>,
    /// Path of its configuration there.
    pub config: String,
    /// Path of its private key there.
    pub private_key: String,
    /// Whether commands there need sudo.
    pub sudo: bool,
    /// Whether neighbours take the source of its packets as its address.
    pub roams: bool,
    /// Keys of `[daemon]` for this node, instead of those for all.
    pub daemon: Vec<Extra>,
    /// In `[boxes]`: ways into the network.
    pub uplinks: Uplinks,
    /// In `[boxes]`: its addresses in tunnels.
    pub tunnel: Vec<IpNet>,
    /// Subnets behind it, which other ends of its paths route into their tunnels.
    pub routes: Vec<IpNet>,
    /// Line in the file.
    pub line: usize,
}

/// How a box of `[boxes]` reaches others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Uplinks {
    /// By one of these addresses: the one that is nearest to the neighbour.
    At(Vec<Uplink>),
    /// By each of these interfaces: parallel paths.
    Each(Vec<String>),
}

/// An address of a box.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Uplink {
    /// Its interface, if it is written.
    pub interface: Option<String>,
    /// Location where neighbours reach it; without one it roams.
    pub place: Option<NodeAddress>,
}

impl Uplinks {
    /// Addresses and host names where neighbours find the box.
    pub fn places(&self) -> impl Iterator<Item = &NodeAddress> {
        let at = match self {
            Uplinks::At(at) => &at[..],
            Uplinks::Each(_) => &[],
        };
        at.iter().filter_map(|uplink| uplink.place.as_ref())
    }
}

impl Node {
    /// Control socket of its daemon.
    pub fn socket(&self, network: &Network) -> String {
        let mut extras = self.daemon.iter().chain(&network.daemon);
        let written = extras.find(|extra| extra.key == "socket");
        written.and_then(|extra| extra.value.as_str()).unwrap_or(SOCKET_DEFAULT).to_owned()
    }
}

/// A path between two nodes, or from one to several.
#[derive(Clone, Debug)]
pub struct Path {
    /// Indices of the nodes of each way, from the source to a receiver.
    pub ways: Vec<Vec<usize>>,
    /// Addresses of the tunnel at the source and at each receiver, of the same families in the same
    /// order, at least one.
    pub tunnel: Vec<Vec<IpNet>>,
    /// Name of the tunnel; by default derived from the order of paths.
    pub name: Option<String>,
    /// Id of the flow from the first to the last node; the return flow has the next id.
    pub id: u32,
    /// Whether TCP connections end at both edges.
    pub splits_tcp: bool,
    /// Subnets that the first box sends to the last one.
    pub routes: Vec<IpNet>,
    /// Keys of `[[tunnel]]`.
    pub tunnel_extras: Vec<Extra>,
    /// Keys of `[[flow]]`, for each role that has them.
    pub flow_extras: Vec<Extra>,
    /// Line in the file.
    pub line: usize,
}

impl Path {
    /// Name of the path in messages.
    pub fn place(&self, nodes: &[Node]) -> String {
        let name = |node: usize| nodes[node].name.as_str();
        let to: Vec<&str> = self.receivers().into_iter().map(name).collect();
        format!("path {} -> {}", self.source().map_or("", name), to.join(", "))
    }

    /// The node where it begins.
    pub fn source(&self) -> Option<usize> {
        self.ways.first().and_then(|way| way.first().copied())
    }

    /// The nodes where it ends.
    pub fn receivers(&self) -> Vec<usize> {
        receivers(&self.ways)
    }

    /// Whether one of its links has no return path; then it has no return flow either.
    pub fn is_one_way(&self, network: &Network) -> bool {
        let hops = self.ways.iter().flat_map(|way| way.windows(2));
        let mut links = hops.flat_map(|hop| network.links_between(hop[0], hop[1]));
        links.any(Link::is_one_way)
    }

    /// Whether any of its ways passes a node.
    pub fn passes(&self, node: usize) -> bool {
        self.ways.iter().any(|way| way.contains(&node))
    }
}

/// Distinct nodes, in order of first occurrence.
pub(crate) fn distinct(nodes: impl Iterator<Item = usize>) -> Vec<usize> {
    nodes.fold(Vec::new(), |mut seen, node| {
        if !seen.contains(&node) {
            seen.push(node);
        }
        seen
    })
}

/// The ends of ways, each node once.
pub(crate) fn receivers(ways: &[Vec<usize>]) -> Vec<usize> {
    distinct(ways.iter().filter_map(|way| way.last().copied()))
}

/// The whole file, with consistent nodes, links and paths.
#[derive(Clone, Debug)]
pub struct Network {
    /// Name of the file, for messages.
    pub file: String,
    /// With `[boxes]`: its text, which every box reads.
    pub(crate) shared: Option<String>,
    /// Which packets are authenticated.
    pub auth: Auth,
    /// Keys of `[daemon]` for all nodes.
    pub daemon: Vec<Extra>,
    /// The nodes.
    pub nodes: Vec<Node>,
    /// The links.
    pub links: Vec<Link>,
    /// The paths.
    pub paths: Vec<Path>,
    /// `stream_symbols` of sources, by node and flow, if another node of the path lacks memory for
    /// the default number of packets.
    pub(crate) windows: BTreeMap<(usize, u32), usize>,
}

impl Network {
    /// The links between two nodes, in the order of the file: parallel paths.
    pub fn links_between(&self, one: usize, other: usize) -> impl Iterator<Item = &Link> {
        self.links.iter().filter(move |link| {
            link.seen_from(one).is_some_and(|(_, far)| far.node == other && one != other)
        })
    }

    /// Number of a link among those between its two nodes.
    pub fn path_number(&self, link: &Link) -> usize {
        let [one, other] = &link.ends;
        let mut links = self.links_between(one.node, other.node);
        links.position(|known| std::ptr::eq(known, link)).unwrap_or(0)
    }
}

/// Keys of `[daemon]` that a network may set for its nodes.
pub(crate) fn daemon_keys(reader: &mut Reader<'_, '_>) -> Vec<Extra> {
    let mut extras = Vec::new();
    for entry in reader.rest() {
        match entry.key {
            "auth" | "private_key" => {
                let hint = "it is for all boxes: write it above [boxes] or [nodes]".to_owned();
                reader.refuse(entry.line, Fault::Unknown { key: entry.key.into(), hint });
            }
            key if DAEMON.find(key).is_none() => {
                let names = DAEMON.keys.iter().map(|key| key.name);
                let names: Vec<_> =
                    names.filter(|name| !["auth", "private_key"].contains(name)).collect();
                let hint = nearest(key, names.iter().copied()).map(did_you_mean);
                let hint = hint
                    .unwrap_or_else(|| format!("the keys of [daemon] are {}", names.join(", ")));
                reader.refuse(entry.line, Fault::Unknown { key: key.into(), hint });
            }
            _ => extras.push(extra(&entry)),
        }
    }
    extras
}

/// Copies an entry for the daemon.
pub(crate) fn extra(entry: &Entry<'_>) -> Extra {
    Extra { key: entry.key.to_owned(), value: entry.copied(), line: entry.line }
}
