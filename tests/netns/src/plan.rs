//! Configuration files for the daemons of a line, by the role of each host in each flow.
//!
//! ```text
//!   flow 1 eastward:   h0 source --> h1 relay --> ... --> hN sink     FEEDBACK travels back west
//!   flow 2 westward:   hN source --> ...               --> h0 sink
//! ```

use std::fmt::Write as _;
use std::net::IpAddr;

use recoded_secure::{Entropy, PrivateKey};
use serde::Serialize;

use crate::Bed;

/// Settings common to all daemons of a line.
#[derive(Clone, Debug)]
pub struct LinePlan {
    /// Number of links.
    pub hops: usize,
    /// Pace of everything a daemon sends on a link, in Mbit/s with Ethernet headers.
    pub pace_mbit: Option<f64>,
    /// Tunnels at the two ends.
    pub tunnels: Vec<TunnelPlan>,
    /// The flows.
    pub flows: Vec<FlowPlan>,
    /// Frames per worker.
    pub frames: u32,
    /// Generations that each flow holds at once.
    pub generations: u32,
    /// Memory limit, such as `64 MiB`; `None` leaves the daemon's default.
    pub memory: Option<&'static str>,
    /// Workers of every daemon, and hence shards of every flow: at most the queues of the bed.
    pub workers: u32,
    /// Worker idle behaviour.
    pub idle: &'static str,
    /// Engine for bulk work.
    pub engine: &'static str,
    /// The FPGA card.
    pub fpga: Option<&'static str>,
    /// Address at which each daemon serves metrics, in the namespace of its host; `None`: no
    /// metrics.
    pub metrics: Option<&'static str>,
    /// Authentication of hosts; `None`: no host authenticates.
    pub auth: Option<AuthPlan>,
    /// Environment variables of the daemons, beyond those of this process.
    pub environment: Vec<(&'static str, String)>,
    /// Hosts whose links have UDP sockets instead of AF_XDP.
    pub udp: Vec<usize>,
    /// Hosts that choose between both, as they do by default: mostly UDP sockets, because this bed
    /// has veth.
    pub chooses: Vec<usize>,
    /// The source's own address on its link, if it differs: behind address translation, or a
    /// wildcard.
    pub inside: Option<IpAddr>,
    /// Hosts whose daemon runs as an unprivileged user.
    pub unprivileged: Vec<usize>,
    /// Hosts whose neighbours learn their address from received packets.
    pub roams: Vec<usize>,
}

/// Keys of all hosts of a line.
#[derive(Clone, Debug)]
pub struct AuthPlan {
    /// Level of authentication: `full` or `hop`.
    pub level: &'static str,
    /// Whether relays verify symbols that have tags.
    pub relays_verify: bool,
    /// Ends whose symbols have tags of sixteen bytes.
    pub strict: Vec<usize>,
    keys: Vec<PrivateKey>,
}

impl AuthPlan {
    /// Fresh keys for a line of `hops` links.
    ///
    /// # Panics
    /// When Linux gives no random bytes.
    pub fn new(level: &'static str, hops: usize) -> AuthPlan {
        let key = |_| PrivateKey::generate(&Entropy::fresh().expect("random bytes"));
        let keys = (0..=hops).map(key).collect();
        AuthPlan { level, relays_verify: true, strict: Vec::new(), keys }
    }

    /// The private key of host `index`, as its file has it.
    pub fn private(&self, index: usize) -> String {
        self.keys[index].to_text().to_string()
    }

    /// The public key of host `index`.
    pub fn public(&self, index: usize) -> String {
        self.keys[index].public().to_string()
    }

    /// The file of the key of the host with this control socket.
    pub fn key_file(socket: &str) -> String {
        format!("{socket}.key")
    }
}

/// A tunnel between source and sink.
#[derive(Clone, Debug)]
pub struct TunnelPlan {
    /// Interface name, the same at both ends.
    pub name: &'static str,
    /// Third byte block of its network: 10.`network`.0.1 at the source, .2 at the sink.
    pub network: u8,
    /// Its MTU; `None` follows the symbols of its flow.
    pub mtu: Option<usize>,
}

impl TunnelPlan {
    /// Its address at the source.
    pub fn source_address(&self) -> IpAddr {
        [10, self.network, 0, 1].into()
    }

    /// Its address at the sink.
    pub fn sink_address(&self) -> IpAddr {
        [10, self.network, 0, 2].into()
    }
}

/// Which way a flow runs.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Towards {
    /// From h0 to the last host.
    East,
    /// From the last host to h0.
    West,
}

/// Code that protects a flow.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum CodePlan {
    /// The daemon's default code; field and `generation_size` do not matter.
    Auto,
    /// Generations.
    Rlnc,
    /// Blocks of batches; the batch size is the flow's `generation_size`.
    Bats {
        /// Source symbols of a block.
        block_symbols: usize,
        /// Batches that take turns; `None` is automatic.
        interleave: Option<u8>,
        /// Whether relays send as many packets for a batch as its rank is worth.
        adaptive: bool,
    },
    /// A sliding window with per-hop retransmission; `generation_size` does not matter.
    Stream,
    /// The same, of profile interactive.
    Interactive,
    /// A stream whose hops send without reports, with a fixed redundancy.
    OpenLoop,
}

/// Packets per symbol in an open loop: enough for hops that lose a tenth.
const OPEN_LOOP_REDUNDANCY: f64 = 1.4;

impl CodePlan {
    /// Whether its field can be chosen.
    fn has_field(self) -> bool {
        matches!(self, CodePlan::Rlnc | CodePlan::Bats { .. })
    }

    /// Packets per symbol, unless the flow has a number of its own; `None` is automatic.
    fn redundancy(self) -> Option<f64> {
        matches!(self, CodePlan::OpenLoop).then_some(OPEN_LOOP_REDUNDANCY)
    }
}

/// One flow along the whole line. `None` leaves the daemon's default.
#[derive(Clone, Debug)]
pub struct FlowPlan {
    /// Flow id.
    pub id: u32,
    /// Direction.
    pub towards: Towards,
    /// Name of the tunnel it serves.
    pub tunnel: &'static str,
    /// Code that protects it.
    pub code: CodePlan,
    /// Order of the field.
    pub field: u16,
    /// Symbols per generation, or packets per batch.
    pub generation_size: usize,
    /// Shards; `None`: as many as workers.
    pub shards: Option<u8>,
    /// Bytes per symbol.
    pub symbol_bytes: Option<usize>,
    /// Packets per symbol; `None` is automatic, or that of the code.
    pub redundancy: Option<f64>,
    /// Share of packets that may stay lost.
    pub target_loss: Option<f64>,
    /// Whether incomplete generations are repaired.
    pub repair: bool,
    /// How long a source waits for a generation to fill, in microseconds.
    pub flush_timeout_us: Option<u64>,
    /// How long a sink holds back later generations, in microseconds.
    pub hold_timeout_us: Option<u64>,
}

impl FlowPlan {
    /// A flow of generations, otherwise with the daemon's defaults.
    pub fn new(id: u32, towards: Towards, tunnel: &'static str) -> FlowPlan {
        FlowPlan {
            id,
            towards,
            tunnel,
            code: CodePlan::Rlnc,
            field: 16,
            generation_size: 16,
            shards: None,
            symbol_bytes: None,
            redundancy: None,
            target_loss: None,
            repair: true,
            flush_timeout_us: None,
            hold_timeout_us: None,
        }
    }
}

impl LinePlan {
    /// Tunnel `rec0` with a flow each way: protected traffic of any kind.
    pub fn protected(hops: usize) -> LinePlan {
        LinePlan {
            hops,
            pace_mbit: None,
            tunnels: vec![TunnelPlan { name: "rec0", network: 99, mtu: None }],
            flows: vec![
                FlowPlan::new(1, Towards::East, "rec0"),
                FlowPlan::new(2, Towards::West, "rec0"),
            ],
            frames: 16384,
            generations: 256,
            memory: None,
            workers: 1,
            idle: "adaptive",
            engine: "auto",
            fpga: None,
            metrics: None,
            auth: None,
            environment: Vec::new(),
            udp: Vec::new(),
            chooses: Vec::new(),
            inside: None,
            unprivileged: Vec::new(),
            roams: Vec::new(),
        }
    }

    /// The configuration of host `index`, with `socket` as its control socket.
    pub fn config(&self, index: usize, socket: &str) -> String {
        let is_end = index == 0 || index == self.hops;
        let tunnels = self.tunnels.iter().map(|tunnel| {
            let address = if index == 0 { tunnel.source_address() } else { tunnel.sink_address() };
            TunnelFile { name: tunnel.name, address: format!("{address}/24"), mtu: tunnel.mtu }
        });
        let file = File {
            daemon: DaemonFile {
                socket,
                workers: self.workers,
                idle: self.idle,
                engine: self.engine,
                fpga: self.fpga,
                metrics: self.metrics,
                frames: self.frames,
                generations: self.generations,
                memory: self.memory,
                private_key: self.auth.as_ref().map(|_| AuthPlan::key_file(socket)),
                auth: self.auth.as_ref().map(|auth| auth.level),
            },
            link: self.links(index),
            neighbour: self.neighbours(index),
            tunnel: if is_end { tunnels.collect() } else { Vec::new() },
            flow: self.flows.iter().map(|flow| self.flow(flow, index)).collect(),
        };
        let mut text = format!("# Host h{index} of a line of {} links.\n", self.hops);
        match toml::to_string(&file) {
            Ok(body) => text.push_str(&body),
            // Cannot happen with these types; the daemon would refuse the file and show this.
            Err(error) => drop(writeln!(text, "# not written: {error}")),
        }
        text
    }

    fn backend(&self, index: usize) -> Option<&'static str> {
        match (self.udp.contains(&index), self.chooses.contains(&index)) {
            (true, _) => Some("udp"),
            (false, true) => None,
            (false, false) => Some("xdp"),
        }
    }

    fn links(&self, index: usize) -> Vec<LinkFile> {
        let backend = self.backend(index);
        let rate_mbit = self.pace_mbit;
        let link = |name, local| LinkFile { name, interface: name, local, backend, rate_mbit };
        let mut links = Vec::new();
        if index > 0 {
            links.push(link("west", Bed::east_address(index)));
        }
        if index < self.hops {
            let inside = self.inside.filter(|_| index == 0);
            links.push(link("east", inside.unwrap_or_else(|| Bed::west_address(index + 1))));
        }
        links
    }

    fn neighbours(&self, index: usize) -> Vec<NeighbourFile> {
        let Some(auth) = &self.auth else { return Vec::new() };
        let neighbour = |link, address, host: usize| NeighbourFile {
            link,
            address,
            public_key: auth.keys[host].public().to_string(),
            roams: self.roams.contains(&host).then_some(true),
        };
        let west = (index > 0).then(|| neighbour("west", Bed::west_address(index), index - 1));
        let east =
            (index < self.hops).then(|| neighbour("east", Bed::east_address(index + 1), index + 1));
        west.into_iter().chain(east).collect()
    }

    /// The public key of the host at the other end, for an end of encrypted flows.
    fn edge_key(&self, index: usize) -> Option<String> {
        let auth = self.auth.as_ref().filter(|auth| auth.level == "full")?;
        let other = match index {
            0 => self.hops,
            index if index == self.hops => 0,
            _ => return None,
        };
        Some(auth.keys[other].public().to_string())
    }

    /// How strong tags of symbols are at an end.
    fn edge_profile(&self, index: usize) -> Option<&'static str> {
        let auth = self.auth.as_ref()?;
        auth.strict.contains(&index).then_some("strict")
    }

    /// The authentication plan, if relays verify symbol tags.
    fn verified(&self) -> Option<&AuthPlan> {
        self.auth.as_ref().filter(|auth| auth.level == "full" && auth.relays_verify)
    }

    /// The public keys of the relays, in the order that packets of host `index` pass them.
    fn relay_keys(&self, index: usize) -> Vec<String> {
        let Some(auth) = self.verified() else { return Vec::new() };
        let mut keys: Vec<String> = (1..self.hops).map(|host| auth.public(host)).collect();
        if index > 0 {
            keys.reverse();
        }
        keys
    }

    /// For a relay, the public key of the source.
    fn source_key(&self, role: &str, towards: Towards) -> Option<String> {
        let auth = self.verified().filter(|_| role == "relay")?;
        Some(auth.public(if towards == Towards::East { 0 } else { self.hops }))
    }

    fn flow(&self, flow: &FlowPlan, index: usize) -> FlowFile {
        let east = (index < self.hops)
            .then(|| HopFile { link: "east", address: Bed::east_address(index + 1) });
        let west = (index > 0).then(|| HopFile { link: "west", address: Bed::west_address(index) });
        let (next, upstream) = match flow.towards {
            Towards::East => (east, west),
            Towards::West => (west, east),
        };
        let role = match (&upstream, &next) {
            (None, _) => "source",
            (_, None) => "sink",
            _ => "relay",
        };
        let is_source = role == "source";
        FlowFile {
            id: flow.id,
            role,
            tunnel: (role != "relay").then_some(flow.tunnel),
            field: is_source.then_some(flow.field).filter(|_| flow.code.has_field()),
            shards: flow.shards.filter(|_| is_source),
            code: flow.code(role),
            symbol_bytes: flow.symbol_bytes,
            redundancy: match flow.redundancy.or(flow.code.redundancy()) {
                Some(factor) if is_source => Some(RedundancyFile::Factor(factor)),
                None if is_source => Some(RedundancyFile::Auto("auto")),
                _ => None,
            },
            target_loss: flow.target_loss.filter(|_| is_source),
            flush_timeout_us: flow.flush_timeout_us.filter(|_| is_source),
            hold_timeout_us: flow.hold_timeout_us.filter(|_| role == "sink"),
            repair: (role != "relay").then_some(flow.repair),
            edge_key: self.edge_key(index),
            edge_profile: self.edge_profile(index),
            relay_keys: if is_source { self.relay_keys(index) } else { Vec::new() },
            source_key: self.source_key(role, flow.towards),
            next_hops: next.into_iter().collect(),
            upstream,
        }
    }
}

impl FlowPlan {
    /// Keys that depend on the code.
    fn code(&self, role: &str) -> CodeFile {
        let size = self.generation_size;
        let keys = CodeFile::default();
        match (role, self.code) {
            ("relay", CodePlan::Bats { adaptive, .. }) => {
                CodeFile { adaptive: Some(adaptive), ..keys }
            }
            ("source", CodePlan::Rlnc) => {
                CodeFile { code: Some("rlnc"), generation_size: Some(size), ..keys }
            }
            ("source", CodePlan::Bats { block_symbols, interleave, .. }) => CodeFile {
                code: Some("bats"),
                block_symbols: Some(block_symbols),
                batch_size: Some(size),
                interleave,
                ..keys
            },
            ("source", CodePlan::Stream | CodePlan::OpenLoop) => {
                CodeFile { code: Some("stream"), ..keys }
            }
            ("source", CodePlan::Interactive) => {
                CodeFile { code: Some("stream"), stream_profile: Some("interactive"), ..keys }
            }
            // Others see it by the packets.
            _ => keys,
        }
    }
}

#[derive(Serialize)]
struct File<'a> {
    daemon: DaemonFile<'a>,
    link: Vec<LinkFile>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    neighbour: Vec<NeighbourFile>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tunnel: Vec<TunnelFile>,
    flow: Vec<FlowFile>,
}

#[derive(Serialize)]
struct DaemonFile<'a> {
    socket: &'a str,
    workers: u32,
    idle: &'static str,
    engine: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    fpga: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metrics: Option<&'static str>,
    frames: u32,
    generations: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    private_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    auth: Option<&'static str>,
}

#[derive(Serialize)]
struct NeighbourFile {
    link: &'static str,
    address: IpAddr,
    public_key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    roams: Option<bool>,
}

#[derive(Serialize)]
struct LinkFile {
    name: &'static str,
    interface: &'static str,
    local: IpAddr,
    #[serde(skip_serializing_if = "Option::is_none")]
    backend: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_mbit: Option<f64>,
}

#[derive(Serialize)]
struct TunnelFile {
    name: &'static str,
    address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    mtu: Option<usize>,
}

#[derive(Serialize)]
struct HopFile {
    link: &'static str,
    address: IpAddr,
}

#[derive(Serialize)]
#[serde(untagged)]
enum RedundancyFile {
    Auto(&'static str),
    Factor(f64),
}

#[derive(Serialize)]
struct FlowFile {
    id: u32,
    role: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tunnel: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    shards: Option<u8>,
    #[serde(flatten)]
    code: CodeFile,
    #[serde(skip_serializing_if = "Option::is_none")]
    symbol_bytes: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    redundancy: Option<RedundancyFile>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_loss: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    flush_timeout_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hold_timeout_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    repair: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    edge_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    edge_profile: Option<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    relay_keys: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source_key: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    next_hops: Vec<HopFile>,
    #[serde(skip_serializing_if = "Option::is_none")]
    upstream: Option<HopFile>,
}

#[derive(Default, Serialize)]
struct CodeFile {
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    generation_size: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    block_symbols: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    batch_size: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    interleave: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    adaptive: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_profile: Option<&'static str>,
}

#[cfg(test)]
mod tests;
