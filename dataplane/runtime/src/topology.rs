//! The parts of a node: links, hops, tunnels, workers. Built by the control side from the
//! configuration, checked here, fixed while the daemon runs.
//!
//! Flows are not here: they change while the node runs, in [`recoded_pipeline::params::Snapshot`],
//! and name hops and tunnels by their index in these lists.

use recoded_secure::{PresharedKey, PrivateKey, PublicKey, Strength};
use recoded_wire::steer::{NEIGHBOURS_MAX, XSKS_MAX};
use recoded_xsk::{FrameSize, ModePreference};
use std::net::IpAddr;

/// Least MTU of an IPv6 tunnel (RFC 8200, section 5): below it Linux takes no IPv6 address.
pub const TUNNEL_MTU_MIN_V6: u16 = 1280;

/// Least MTU of an IPv4 tunnel: every host accepts packets of this size (RFC 791). Linux would take
/// less, but headers would outweigh the data.
pub const TUNNEL_MTU_MIN_V4: u16 = 576;

/// Most addresses of a tunnel.
pub const TUNNEL_ADDRESSES_MAX: usize = 8;

/// An address and the length of its prefix.
pub type Address = (IpAddr, u8);

/// Least MTU of a tunnel with these addresses: for the configuration, the default and narrow paths.
pub fn tunnel_mtu_min(addresses: &[Address]) -> u16 {
    let is_ipv4 = addresses.iter().all(|(address, _)| address.is_ipv4());
    if is_ipv4 { TUNNEL_MTU_MIN_V4 } else { TUNNEL_MTU_MIN_V6 }
}

/// How a worker waits when idle.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Idle {
    /// Never sleeps: lowest latency, one whole core.
    Busy,
    /// Spins for some microseconds after the last packet, then sleeps until the next event.
    #[default]
    Adaptive,
    /// Sleeps as soon as there is nothing to do: least power, a wakeup per burst.
    Interrupt,
}

impl Idle {
    /// Name in configuration and reports.
    pub fn name(self) -> &'static str {
        match self {
            Idle::Busy => "busy",
            Idle::Adaptive => "adaptive",
            Idle::Interrupt => "interrupt",
        }
    }
}

/// The backend that carries the packets of a link.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Backend {
    /// AF_XDP sockets if available and not slower, otherwise UDP sockets.
    #[default]
    Auto,
    /// AF_XDP sockets behind an XDP program.
    Xdp,
    /// UDP sockets, which need no privilege: Linux resolves the neighbour and the route to it.
    Udp,
}

impl Backend {
    /// Name in configuration and reports.
    pub fn name(self) -> &'static str {
        match self {
            Backend::Auto => "auto",
            Backend::Xdp => "xdp",
            Backend::Udp => "udp",
        }
    }
}

/// A network interface that coded packets use.
#[derive(Clone, PartialEq, Debug)]
pub struct LinkConfig {
    /// Name in configuration and reports.
    pub name: String,
    /// Linux's name of the interface.
    pub interface: String,
    /// This node's address on it: source of sent packets, destination of accepted ones.
    /// Unspecified: the one of the interface, which may change (`own`).
    pub local: IpAddr,
    /// Its backend.
    pub backend: Backend,
    /// Pace of sent packets, in Mbit/s of bytes on the wire, Ethernet header included.
    pub rate_mbit: Option<f64>,
}

/// A next hop: a neighbour reached over a link. Its index in [`Topology::hops`] is its `PeerId`.
#[derive(Clone, PartialEq, Debug)]
pub struct HopConfig {
    /// Index of the link in [`Topology::links`].
    pub link: usize,
    /// Address of the neighbour.
    pub address: IpAddr,
    /// Its key: every packet from it and to it then has a tag. `None`: no tags.
    pub key: Option<PeerKey>,
    /// Whether its place is the source of its newest packet: with a key, and UDP sockets
    /// ([`Backend`]).
    pub roams: bool,
    /// Number of this path to it, the same at both ends. If the neighbour roams, several paths to
    /// one key over one link have different numbers.
    pub path: u8,
}

/// The keys of another node.
#[derive(Clone, PartialEq, Debug)]
pub struct PeerKey {
    /// Its public key.
    pub public: PublicKey,
    /// The additional shared key, or [`PresharedKey::none`].
    pub psk: PresharedKey,
    /// Whether keys come from `psk` only, since handshakes have no return path.
    pub one_way: bool,
}

/// The other end of a sealed flow that begins or ends here.
#[derive(Clone, PartialEq, Debug)]
pub struct EdgeConfig {
    /// The flow.
    pub flow: u32,
    /// The key of the other end.
    pub key: PeerKey,
    /// Columns of the tags of its symbols, as configured at the other end.
    pub strength: Strength,
    /// For a source: keys of relays that verify its symbols, in path order.
    pub relays: Vec<PublicKey>,
}

/// A sealed flow to several sinks that begins or ends here.
#[derive(Clone, PartialEq, Debug)]
pub struct GroupConfig {
    /// The flow.
    pub flow: u32,
    /// The part of this node in it.
    pub part: GroupPart,
    /// As in [`EdgeConfig`].
    pub strength: Strength,
    /// As in [`EdgeConfig`].
    pub relays: Vec<PublicKey>,
}

/// The part of a node in a flow to several sinks.
#[derive(Clone, PartialEq, Debug)]
pub enum GroupPart {
    /// It begins here; the keys of the sinks, which may change later.
    Source(Vec<PublicKey>),
    /// It ends here and at other sinks; the key of the source.
    Sink(PublicKey),
}

/// A flow relayed here, whose symbols are verified on the path.
#[derive(Clone, PartialEq, Debug)]
pub struct RelayedConfig {
    /// The flow.
    pub flow: u32,
    /// The key of its source.
    pub source: PublicKey,
}

/// A TUN interface to create. Its index in [`Topology::tunnels`] is its `TunnelId`.
#[derive(Clone, PartialEq, Debug)]
pub struct TunnelConfig {
    /// Name of the interface.
    pub name: String,
    /// This node's addresses in the tunnel, IPv4 and IPv6.
    pub addresses: Vec<Address>,
    /// Largest IP packet, in bytes.
    pub mtu: u16,
}

/// Everything that is fixed while a node runs.
#[derive(Clone, Debug)]
pub struct Topology {
    /// Workers; worker `i` serves receive queue `i` of every link.
    pub workers: usize,
    /// Cores to pin the workers to, one each.
    pub cores: Option<Vec<usize>>,
    /// How workers wait when idle.
    pub idle: Idle,
    /// Queues of every tunnel: at least as many as workers, and as shards of any source.
    pub tunnel_queues: usize,
    /// Bytes that flows may take together: sources, and relays and sinks for announced packets.
    pub flow_memory_bytes: usize,
    /// UMEM frames per worker.
    pub frames_per_worker: u32,
    /// Their size, which bounds packets of links with a larger MTU.
    pub frame_size: FrameSize,
    /// UDP destination port of coded packets.
    pub port: u16,
    /// Where to start on the ladder zero copy, native copy, generic.
    pub xdp_mode: ModePreference,
    /// The links.
    pub links: Vec<LinkConfig>,
    /// The hops.
    pub hops: Vec<HopConfig>,
    /// The tunnels.
    pub tunnels: Vec<TunnelConfig>,
    /// The private key of this node; without it there are no keys of hops and edges.
    pub private_key: Option<PrivateKey>,
    /// Other ends of sealed flows.
    pub edges: Vec<EdgeConfig>,
    /// Sealed flows to several sinks.
    pub groups: Vec<GroupConfig>,
    /// Flows whose symbols are verified before they are relayed.
    pub relayed: Vec<RelayedConfig>,
}

/// A topology that cannot be run: the key, and the rule it breaks.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum TopologyError {
    /// Too few or too many workers.
    #[error("workers = {0}: must be 1 to {XSKS_MAX}")]
    Workers(usize),
    /// Fewer cores than workers.
    #[error("cores lists {cores} cores for {workers} workers: list one core per worker")]
    Cores {
        /// Cores listed.
        cores: usize,
        /// Workers requested.
        workers: usize,
    },
    /// Too few or too many frames.
    #[error("frames = {0}: must be {FRAMES_MIN} to {FRAMES_MAX} per worker")]
    Frames(u32),
    /// Port zero.
    #[error("port = 0: must be 1 to 65535")]
    Port,
    /// No link at all.
    #[error("no [[link]]: at least one is needed")]
    NoLink,
    /// A name that Linux does not accept for an interface.
    #[error("interface name {0:?}: must be 1 to 15 characters without '/', ':' or blanks")]
    InterfaceName(String),
    /// A name used twice.
    #[error("{kind} {name:?} appears twice: every {kind} needs its own")]
    Duplicate {
        /// The kind of object.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// A rate that is not a positive number.
    #[error("rate_mbit = {rate_mbit} of link {link:?}: must be a number above 0")]
    Rate {
        /// Name of the link.
        link: String,
        /// The rate.
        rate_mbit: f64,
    },
    /// An address that no packet can be sent from or to.
    #[error("address {0}: must be a unicast address")]
    NotUnicast(IpAddr),
    /// A roaming neighbour on a link with AF_XDP.
    #[error("{0} cannot roam: AF_XDP pins its address, backend = \"udp\" does not")]
    Roams(IpAddr),
    /// A hop on a link that does not exist.
    #[error("hop {address} uses link {link}, which does not exist")]
    HopLink {
        /// Index of the link.
        link: usize,
        /// Address of the hop.
        address: IpAddr,
    },
    /// A hop whose address family differs from its link's.
    #[error("hop {address} is not of the same IP version as {local}, the address of its link")]
    HopFamily {
        /// Address of the hop.
        address: IpAddr,
        /// Address of the link.
        local: IpAddr,
    },
    /// A hop that is this node itself.
    #[error("hop {0} is the local address of its link: name the neighbour's")]
    HopIsLocal(IpAddr),
    /// More neighbours than the table of the XDP program holds.
    #[error("link {link} has {hops} neighbours: must be at most {NEIGHBOURS_MAX}")]
    Neighbours {
        /// Name of the link.
        link: String,
        /// Its neighbours.
        hops: usize,
    },
    /// A prefix longer than the address.
    #[error("prefix length {prefix} of tunnel {tunnel:?} is longer than its address")]
    Prefix {
        /// Name of the tunnel.
        tunnel: String,
        /// The prefix length.
        prefix: u8,
    },
    /// A tunnel without an address, or with too many.
    #[error("tunnel {tunnel:?} has {count} addresses: must be 1 to {TUNNEL_ADDRESSES_MAX}")]
    Addresses {
        /// Name of the tunnel.
        tunnel: String,
        /// Number of its addresses.
        count: usize,
    },
    /// A tunnel MTU below the minimum of IP.
    #[error("mtu = {mtu} of tunnel {tunnel:?}: must be at least {min}")]
    TunnelMtu {
        /// Name of the tunnel.
        tunnel: String,
        /// The MTU.
        mtu: u16,
        /// The least allowed.
        min: u16,
    },
}

impl Topology {
    /// Whether any link needs XDP and its privileges.
    pub fn needs_xdp(&self) -> bool {
        self.links.iter().any(|link| link.backend == Backend::Xdp)
    }

    /// Checks everything that needs no query to Linux.
    ///
    /// # Errors
    /// The first broken rule, as [`TopologyError`].
    pub fn check(&self) -> Result<(), TopologyError> {
        if !(1..=XSKS_MAX as usize).contains(&self.workers) {
            return Err(TopologyError::Workers(self.workers));
        }
        if let Some(cores) = &self.cores
            && cores.len() < self.workers
        {
            return Err(TopologyError::Cores { cores: cores.len(), workers: self.workers });
        }
        if !(FRAMES_MIN..=FRAMES_MAX).contains(&self.frames_per_worker) {
            return Err(TopologyError::Frames(self.frames_per_worker));
        }
        if self.port == 0 {
            return Err(TopologyError::Port);
        }
        self.check_links()?;
        self.check_hops()?;
        self.check_tunnels()
    }

    fn check_links(&self) -> Result<(), TopologyError> {
        if self.links.is_empty() {
            return Err(TopologyError::NoLink);
        }
        unique("link", self.links.iter().map(|link| &link.name))?;
        // One socket per interface and queue: several neighbours on one interface are several hops
        // of one link, not several links.
        unique("link interface", self.links.iter().map(|link| &link.interface))?;
        for link in &self.links {
            check_interface_name(&link.interface)?;
            if !link.local.is_unspecified() {
                check_unicast(link.local)?;
            }
            if let Some(rate_mbit) = link.rate_mbit
                && !(rate_mbit.is_finite() && rate_mbit > 0.0)
            {
                return Err(TopologyError::Rate { link: link.name.clone(), rate_mbit });
            }
        }
        Ok(())
    }

    fn check_hops(&self) -> Result<(), TopologyError> {
        for hop in &self.hops {
            let address = hop.address;
            let link = self
                .links
                .get(hop.link)
                .ok_or(TopologyError::HopLink { link: hop.link, address })?;
            check_unicast(address)?;
            if address.is_ipv4() != link.local.is_ipv4() {
                return Err(TopologyError::HopFamily { address, local: link.local });
            }
            if address == link.local {
                return Err(TopologyError::HopIsLocal(address));
            }
            if hop.roams && link.backend == Backend::Xdp {
                return Err(TopologyError::Roams(address));
            }
        }
        for (index, link) in self.links.iter().enumerate() {
            let hops = self.hops.iter().filter(|hop| hop.link == index).count();
            if hops > NEIGHBOURS_MAX as usize {
                return Err(TopologyError::Neighbours { link: link.name.clone(), hops });
            }
        }
        Ok(())
    }

    fn check_tunnels(&self) -> Result<(), TopologyError> {
        let interfaces = self.links.iter().map(|link| &link.interface);
        unique("interface", interfaces.chain(self.tunnels.iter().map(|tunnel| &tunnel.name)))?;
        for tunnel in &self.tunnels {
            check_interface_name(&tunnel.name)?;
            if !(1..=TUNNEL_ADDRESSES_MAX).contains(&tunnel.addresses.len()) {
                let (tunnel, count) = (tunnel.name.clone(), tunnel.addresses.len());
                return Err(TopologyError::Addresses { tunnel, count });
            }
            for &(address, prefix) in &tunnel.addresses {
                check_unicast(address)?;
                let prefix_max = if address.is_ipv4() { 32 } else { 128 };
                if prefix > prefix_max {
                    return Err(TopologyError::Prefix { tunnel: tunnel.name.clone(), prefix });
                }
            }
            let mtu_min = match tunnel_mtu_min(&tunnel.addresses) {
                TUNNEL_MTU_MIN_V4 => MTU_MIN_V4,
                least => least,
            };
            if tunnel.mtu < mtu_min {
                return Err(TopologyError::TunnelMtu {
                    tunnel: tunnel.name.clone(),
                    mtu: tunnel.mtu,
                    min: mtu_min,
                });
            }
        }
        Ok(())
    }
}

fn unique<'a>(
    kind: &'static str,
    names: impl Iterator<Item = &'a String>,
) -> Result<(), TopologyError> {
    let mut seen = std::collections::HashSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(TopologyError::Duplicate { kind, name: name.clone() });
        }
    }
    Ok(())
}

/// Whether a host may have this address. Neighbours with an unresolved host name have one of the
/// others (RFC 1122, section 3.2.1.3; RFC 6666), and nothing is sent to them.
pub fn is_known(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.octets()[0] != 0,
        IpAddr::V6(v6) => v6.segments()[..4] != [0x100, 0, 0, 0],
    }
}

/// Linux's own rule (`dev_valid_name`).
fn check_interface_name(name: &str) -> Result<(), TopologyError> {
    let refused = |c: char| c == '/' || c == ':' || c == '\0' || c.is_whitespace();
    let is_valid =
        (1..=15).contains(&name.len()) && name != "." && name != ".." && !name.contains(refused);
    if is_valid { Ok(()) } else { Err(TopologyError::InterfaceName(name.to_owned())) }
}

fn check_unicast(address: IpAddr) -> Result<(), TopologyError> {
    let is_broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    if address.is_unspecified() || address.is_multicast() || is_broadcast {
        return Err(TopologyError::NotUnicast(address));
    }
    Ok(())
}

/// Below this the fill rings of a few links would leave no frames to transmit with.
const FRAMES_MIN: u32 = 1024;
/// 2 GiB of frames per worker: a larger number is more likely a typing error.
const FRAMES_MAX: u32 = 1 << 20;
/// RFC 791: every host forwards 68 bytes unfragmented.
const MTU_MIN_V4: u16 = 68;

#[cfg(test)]
pub(crate) mod tests;
