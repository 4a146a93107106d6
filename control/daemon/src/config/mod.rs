//! From a TOML file to values that are always valid.
//!
//! ```text
//!  text -> document (keys, values, lines) -> reader (one typed rule per key) -> Config
//!                       ^                                                        |
//!                       +---- a live `set` replaces a value and walks again      +-> Snapshot
//! ```
//!
//! Parse, don't validate: a [`Config`] needs no further checks. One pass finds every mistake in a
//! file; each message names file, line, key, value and rule.

pub mod document;

pub mod error;

pub mod diff;

pub mod edit;

mod reader;

pub mod names;

mod local;

pub mod daemon;

pub mod budget;

pub mod small;

mod engine;

pub mod routes;

pub mod flow;

pub mod fit;

pub mod code;

pub mod auto;

pub mod auth;

#[cfg(feature = "bats")]
pub mod bats;

pub mod symbol;

mod writer;

pub mod render;

pub use engine::EngineChoice;
pub use recoded_runtime::{Address, Backend};

use auth::{Auth, Known, NeighbourKey};
use budget::Interfaces;
use document::{Document, Named, Section};
use error::{ConfigError, ConfigErrors};
use ipnet::IpNet;
use names::Names;
use reader::Reader;
use recoded_fpga::Card;
use recoded_pipeline::params::{FlowCode, FlowParams, PeerId, Role, Snapshot, TunnelId};
use recoded_runtime::secure::PublicKey;
use recoded_runtime::{FrameSize, Left, RoutePlan};
use small::Defaults;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use symbol::{Mtus, Paths};

/// The checked content of a file.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// Size of frames, from the MTUs of the links when workers started.
    pub frame_size: FrameSize,
    /// `[daemon]`.
    pub daemon: Daemon,
    /// `[[link]]`, in order.
    pub links: Vec<Link>,
    /// Every next hop and upstream of a flow, and every neighbour with a key, each once. The index
    /// is the [`recoded_pipeline::params::PeerId`].
    pub hops: Vec<Neighbour>,
    /// `[[tunnel]]`, in order; the index is the [`recoded_pipeline::params::TunnelId`].
    pub tunnels: Vec<Tunnel>,
    /// `[[neighbour]]`, in order.
    pub neighbours: Vec<NeighbourKey>,
    /// `[[flow]]`, in order.
    pub flows: Vec<Flow>,
    /// Host names that the file gives as addresses of neighbours.
    pub named: Vec<Named>,
}

/// `[daemon]`.
#[derive(Clone, PartialEq, Debug)]
pub struct Daemon {
    /// Control socket.
    pub socket: PathBuf,
    /// Workers; each polls the receive queues that it owns.
    pub workers: usize,
    /// Core of each worker, when pinned.
    pub cores: Option<Vec<usize>>,
    /// Behaviour of a worker without packets.
    pub idle: Idle,
    /// UMEM frames per worker.
    pub frames: u32,
    /// UDP port of coded packets.
    pub port: u16,
    /// Which XDP and socket modes may be used.
    pub xdp_mode: XdpMode,
    /// Generations a flow holds at once.
    pub generations: usize,
    /// Memory budget for packets and flows, in bytes.
    pub memory: u64,
    /// Engine for bulk work.
    pub engine: EngineChoice,
    /// The FPGA card, if there is one.
    pub fpga: Option<Card>,
    /// Listening address for metrics.
    pub metrics: Option<SocketAddr>,
    /// File of this host's private key.
    pub private_key: Option<PathBuf>,
    /// Which packets are authenticated.
    pub auth: Auth,
    /// Whether a standby process with its own frames waits to take over from the active one.
    pub standby: bool,
    /// Whether the dataplane process drops its privileges.
    pub sandbox: Sandbox,
    /// User of the sandboxed dataplane process; by default `recoded`, if it exists.
    pub user: Option<String>,
}

/// Whether the dataplane process drops its privileges before it reads packets.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Sandbox {
    /// Drops all privileges that Linux lets it drop.
    On,
    /// Drops none.
    Off,
}

/// Behaviour of a worker without packets.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Idle {
    /// Polls continuously.
    Busy,
    /// Polls for a while, then sleeps until a packet arrives.
    Adaptive,
    /// Sleeps immediately.
    Interrupt,
}

/// Which XDP and socket modes may be used.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum XdpMode {
    /// The best that works.
    Auto,
    /// Zero-copy or nothing.
    ZeroCopy,
    /// Native XDP with copying sockets.
    Native,
    /// XDP in the network stack: slow, works everywhere.
    Generic,
}

/// `[[link]]`.
#[derive(Clone, PartialEq, Debug)]
pub struct Link {
    /// Name that flows refer to.
    pub name: String,
    /// Network interface.
    pub interface: String,
    /// The own address on it; unspecified if it is the interface's, which may change.
    pub local: IpAddr,
    /// Whether `local` is in the file.
    pub is_local_written: bool,
    /// Socket type that carries its packets.
    pub backend: Backend,
    /// Pacing rate of sent packets, on the wire.
    pub rate_mbit: Option<f64>,
}

/// A neighbour on a link.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Neighbour {
    /// Index of the link.
    pub link: usize,
    /// Address of the neighbour.
    pub address: IpAddr,
}

/// `[[tunnel]]`.
#[derive(Clone, PartialEq, Debug)]
pub struct Tunnel {
    /// TUN interface to create.
    pub name: String,
    /// Its addresses, in order, at least one.
    pub addresses: Vec<Address>,
    /// Destinations of routes into it.
    pub routes: Vec<Address>,
    /// Whether the other end sends to any destination by this host: IPv4, IPv6.
    pub exit: [bool; 2],
    /// Its MTU.
    pub mtu: u16,
    /// Whether destinations routed into it become unreachable without it.
    pub kill_switch: bool,
    /// Address of the other edge, if TCP connections end at both edges.
    pub tcp_split: Option<IpAddr>,
}

impl Tunnel {
    /// The own address that the other edge of split connections knows: in the network of its
    /// address, else the first one of the same family.
    pub fn split_address(&self) -> Option<IpAddr> {
        let peer = self.tcp_split?;
        let of_family = self.addresses.iter().filter(|(own, _)| own.is_ipv4() == peer.is_ipv4());
        let is_near = |(own, prefix): &&Address| {
            IpNet::new(*own, *prefix).is_ok_and(|net| net.contains(&peer))
        };
        let near = of_family.clone().find(is_near);
        near.or(of_family.clone().next()).map(|(own, _)| *own)
    }
}

/// `[[flow]]`.
#[derive(Clone, PartialEq, Debug)]
pub struct Flow {
    /// Parameters for the pipeline.
    pub params: FlowParams,
    /// Which keys were written; the others have derived values.
    pub written: Written,
    /// Source and sink: the other end.
    pub edge: Option<Known>,
    /// Source and sink: name of the box at the other end; empty if it is not written.
    pub edge_name: String,
    /// Source: the sinks, if there are several.
    pub sink_keys: Vec<PublicKey>,
    /// Sink: whether it is one of several.
    pub edge_group: bool,
    /// Source: relays that verify its symbols.
    pub relay_keys: Vec<PublicKey>,
    /// Relay: the source, which grants it the means to verify symbols.
    pub source_key: Option<PublicKey>,
}

/// Which keys of a flow are written in the file.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Written {
    /// False: [`auto`] chose the code of this source.
    pub code: bool,
    /// False: the size of symbols follows the MTU.
    pub symbol_bytes: bool,
    /// False: the window of a stream follows `memory`, see [`budget::fit_windows`].
    pub stream_symbols: bool,
}

impl Written {
    /// Reads which keys a section has, besides the code and the size of symbols.
    fn read(reader: &Reader<'_>, code: bool, symbol_bytes: bool) -> Written {
        let stream_symbols = reader.value("stream_symbols").is_some();
        Written { code, symbol_bytes, stream_symbols }
    }
}

impl Flow {
    /// Packets that every node of a stream keeps; none for other codes.
    pub fn window(&self) -> Option<usize> {
        let FlowCode::Stream(stream) = self.params.code else { return None };
        Some(stream.window_symbols)
    }

    /// Whether it is encrypted to several sinks, possibly including this host.
    pub fn is_group(&self) -> bool {
        self.edge_group || !self.sink_keys.is_empty()
    }

    /// Whether it takes its packets from the tunnel of this index.
    fn feeds(&self, tunnel: usize) -> bool {
        let Role::Source { tunnel: TunnelId(id) } = self.params.role else { return false };
        usize::from(id) == tunnel
    }

    /// Whether `other` is the same flow between the same neighbours, with any parameters.
    pub fn moves_not(&self, other: &Flow) -> bool {
        let (one, other) = (&self.params, &other.params);
        one.id == other.id
            && one.role == other.role
            && one.next_hops == other.next_hops
            && one.further_upstreams == other.further_upstreams
            && one.shards == other.shards
    }

    /// Its next hops and its upstreams, each with the key that names it.
    fn neighbours(&self) -> impl Iterator<Item = (&'static str, PeerId)> {
        let next_hops = self.params.next_hops.iter().map(|hop| ("next_hops", *hop));
        next_hops.chain(self.params.upstreams().map(|hop| ("upstream", hop)))
    }
}

impl Config {
    /// A neighbour as link:address, or as link:name while its address is a placeholder.
    pub fn hop_name(&self, id: PeerId) -> String {
        let hop = &self.hops[usize::from(id.0)];
        format!("{}:{}", self.links[hop.link].name, self.shown(hop))
    }

    /// Number of interfaces.
    pub fn interfaces(&self) -> Interfaces {
        Interfaces { links: self.links.len(), tunnels: self.tunnels.len() }
    }

    /// Tunnels and their addresses.
    pub fn tunnel_addresses(&self) -> Left {
        self.tunnels.iter().map(|it| (it.name.clone(), it.addresses.clone())).collect()
    }

    /// Tunnels and the destinations of routes into them. Default routes are left out until all host
    /// names have addresses: the resolver may be beyond a tunnel that does not work without them.
    pub fn tunnel_routes(&self) -> RoutePlan {
        let is_known = self.named.iter().all(|named| named.trouble.is_empty());
        let is_due = |(_, bits): &&Address| *bits > 0 || is_known;
        let routes = |tunnel: &Tunnel| tunnel.routes.iter().filter(is_due).copied().collect();
        RoutePlan {
            destinations: self.tunnels.iter().map(|it| (it.name.clone(), routes(it))).collect(),
            underlay: self.links.iter().map(|link| link.interface.clone()).collect(),
        }
    }

    /// Tunnels whose destinations are unreachable without them.
    pub fn kill_switch_tunnels(&self) -> Vec<String> {
        let tunnels = self.tunnels.iter().filter(|tunnel| tunnel.kill_switch);
        tunnels.map(|tunnel| tunnel.name.clone()).collect()
    }

    /// Allocations that do not depend on flows.
    pub fn base(&self) -> budget::Base<'_> {
        let Config { daemon, frame_size, .. } = self;
        budget::Base { daemon, interfaces: self.interfaces(), frame_size: *frame_size }
    }

    /// Parses `text`, the content of `file`, for interfaces with these MTUs. Host names and
    /// addresses of interfaces need not be known; addresses that no host has replace them.
    ///
    /// # Errors
    ///
    /// Every mistake, in order of lines.
    pub fn parse(
        file: &str,
        text: &str,
        mtu_of: &dyn Fn(&str) -> Option<u32>,
    ) -> Result<(Document, Mtus, Config), ConfigErrors> {
        Config::parse_on(file, text, mtu_of, None)
    }

    /// Parses a file with the names that this host has resolved; without `names`, as above.
    ///
    /// # Errors
    ///
    /// Every mistake, in order of lines.
    pub fn parse_on(
        file: &str,
        text: &str,
        mtu_of: &dyn Fn(&str) -> Option<u32>,
        names: Option<&Names>,
    ) -> Result<(Document, Mtus, Config), ConfigErrors> {
        let mut document = Document::parse(file, text)?;
        document.resolve(names);
        let mtus = Mtus::read(&document, mtu_of);
        let config = Config::from_document(&document, &mtus, None)?;
        Ok((document, mtus, config))
    }

    /// The host names in it.
    pub fn host_names(&self) -> BTreeSet<String> {
        self.named.iter().map(|named| named.name.clone()).collect()
    }

    /// Checks a document. Applied tunnels and neighbours keep their numbers; new neighbours follow.
    /// All but the MTUs of tunnels change.
    ///
    /// # Errors
    ///
    /// Every mistake, in order of lines.
    pub fn from_document(
        document: &Document,
        mtus: &Mtus,
        in_force: Option<&Config>,
    ) -> Result<Config, ConfigErrors> {
        let mut errors = Vec::new();
        let frame_size = in_force.map_or(mtus.frames(), |config| config.frame_size);
        let mut daemon = daemon::daemon(&document.daemon, frame_size, &mut errors);
        let links = daemon::links(&document.links, &mut errors);
        let mut tunnels = daemon::tunnels(&document.tunnels, &links, &mut errors);
        if let Some(in_force) = in_force {
            let kept = in_force.tunnels.iter().map(|tunnel| {
                let written = tunnels.iter().find(|(written, _)| written.name == tunnel.name);
                let written = written.map_or(tunnel, |(written, _)| written);
                (Tunnel { mtu: tunnel.mtu, ..written.clone() }, true)
            });
            tunnels = kept.collect();
        }
        let neighbours = auth::neighbours(&document.neighbours, &links, &mut errors);
        let mut hops = in_force.map_or_else(Vec::new, |in_force| in_force.hops.clone());
        let mut flows = Vec::new();
        let mut context =
            flow::Context { links: &links, tunnels: &tunnels, mtus, frame_size, hops: &mut hops };
        for (index, section) in document.flows.iter().enumerate() {
            let (generations, workers) = (daemon.generations, daemon.workers);
            let flow = flow::flow(section, index, generations, workers, &mut context, &mut errors);
            flows.extend(flow);
        }
        auth::add_neighbours(&neighbours, &mut hops);
        if document.links.is_empty() {
            errors.push(no_link());
        }
        flow::check_together(&document.flows, &flows, &tunnels, &mut errors);
        // Only for complete sections: missing parts are already reported.
        if errors.is_empty() {
            routes::check(&document.tunnels, &hops, &mut errors);
            auth::check(document, daemon.auth, &neighbours, &links, &hops, &flows, &mut errors);
        }
        let interfaces = Interfaces { links: links.len(), tunnels: tunnels.len() };
        if document.daemon.get("memory").is_none() {
            // A process keeps its budget.
            let base = budget::Base { daemon: &daemon, interfaces, frame_size };
            let most = Defaults::here().memory_max;
            let new = || budget::default_for(base, &flows, most);
            daemon.memory = in_force.map_or_else(new, |in_force| in_force.daemon.memory);
        }
        let memory = budget::Base { daemon: &daemon, interfaces, frame_size };
        budget::fit_windows(memory, &mut flows);
        budget::refuse_beyond(&document.daemon, memory, &flows, &mut errors);
        if !errors.is_empty() {
            return Err(ConfigErrors::new(&document.file, errors));
        }
        let paths = Paths { links: &links, hops: &hops, mtus, frame_size };
        fit::default_tunnel_mtus(&mut tunnels, &flows, paths);
        let tunnels: Vec<Tunnel> = tunnels.into_iter().map(|(tunnel, _)| tunnel).collect();
        fit::check(&document.flows, &flows, &tunnels, paths, &mut errors);
        if !errors.is_empty() {
            return Err(ConfigErrors::new(&document.file, errors));
        }
        let named = document.named.clone();
        Ok(Config { frame_size, daemon, links, hops, tunnels, neighbours, flows, named })
    }

    /// This configuration with `memory` of the active one, if it is not written and the default is
    /// less: what is needed then fits, and a process keeps its budget.
    ///
    /// # Errors
    ///
    /// None in practice: more memory refuses nothing.
    pub fn keeping_memory(
        self,
        document: &Document,
        mtus: &Mtus,
        active: u64,
    ) -> Result<Config, ConfigErrors> {
        if document.daemon.get("memory").is_some() || self.daemon.memory >= active {
            return Ok(self);
        }
        let mut kept = document.clone();
        kept.daemon.set("memory", toml::Value::from(budget::written(active)));
        Config::from_document(&kept, mtus, None)
    }

    /// The snapshot for the workers.
    pub fn snapshot(&self, edition: u64) -> Snapshot {
        let flows = self.flows.iter().map(|flow| flow.params.clone()).collect();
        Snapshot { edition, flows }
    }

    /// Renders the configuration as TOML with every key written out; parsing it gives this
    /// configuration.
    pub fn to_toml(&self) -> String {
        render::render(self)
    }
}

fn no_link() -> ConfigError {
    let rule = "write a [[link]] for each interface that carries coded packets".to_owned();
    let fault = error::Fault::Missing { key: "link", rule };
    ConfigError { line: Some(1), place: String::new(), fault }
}

/// The index of the link or tunnel that a section names, or the known names.
fn find(name: &str, known: &[&str]) -> Result<usize, String> {
    let found = known.iter().position(|candidate| *candidate == name);
    found.ok_or_else(|| names(known.iter().copied()))
}

/// Quotes names for error messages.
fn names<'a>(sections: impl Iterator<Item = &'a str>) -> String {
    let quoted: Vec<String> = sections.map(|name| format!("\"{name}\"")).collect();
    if quoted.is_empty() { "none is configured".into() } else { quoted.join(", ") }
}

/// Refuses the second of two sections that share a key.
fn refuse_duplicates(
    sections: &[Section],
    key: &'static str,
    rule: &str,
    errors: &mut Vec<ConfigError>,
) {
    let mut seen = BTreeMap::new();
    for (index, section) in sections.iter().enumerate() {
        let Some(entry) = section.get(key) else {
            continue;
        };
        if seen.insert(entry.value.to_string(), index).is_some() {
            let mut reader = Reader::new(section, index, errors);
            reader.refuse(key, "is taken", rule);
        }
    }
}

#[cfg(test)]
mod tests;
