//! Reports of a running node. Plain values; workers publish their part in housekeeping.

use crate::keyring::Sessions;
use crate::other_versions::OtherVersions;
use crate::talk::Talked;
use recoded_pipeline::params::Nanos;
use recoded_pipeline::report::Report;
use recoded_wire::other_version::OtherVersion;
use recoded_wire::packet::NotUdp;
use recoded_wire::steer::Verdict;
use recoded_xsk::{FrameGauge, SocketStatistics};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

/// Counters of [`Verdict`], in their order.
pub(crate) type Verdicts = [u64; Verdict::COUNT as usize];

pub use recoded_counters::link::{IcmpErrors, LinkCounters, Unparsed};
pub use recoded_counters::tunnel::TunnelCounters;

/// The counter of packets that are unreadable for this reason.
pub(crate) fn unparsed(reason: NotUdp) -> Unparsed {
    match reason {
        NotUdp::NotIp => Unparsed::NotIp,
        NotUdp::Tagged => Unparsed::TooManyTags,
        NotUdp::OtherProtocol => Unparsed::OtherProtocol,
        NotUdp::ExtensionHeader => Unparsed::ExtensionHeader,
        NotUdp::Fragment => Unparsed::Fragment,
        NotUdp::Truncated => Unparsed::Truncated,
        NotUdp::Malformed => Unparsed::Malformed,
        NotUdp::UdpLength => Unparsed::UdpLength,
    }
}

/// A next hop and whether Linux knows its Ethernet address.
#[derive(Clone, PartialEq, Debug)]
pub struct HopReport {
    /// Its address, as configured.
    pub address: IpAddr,
    /// Its present place, if it moved.
    pub endpoint: Option<SocketAddr>,
    /// Number of moves.
    pub moves: u64,
    /// Whether packets can be sent to it.
    pub is_resolved: bool,
    /// Its packets of another version of the protocol, which are dropped.
    pub other_version: OtherVersion,
    /// Its announcements.
    pub talked: Talked,
}

/// Status of a link's interface.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum LinkStatus {
    /// Present and set up.
    Up,
    /// Present and set down.
    Down,
    /// No interface has its name, or the one that has is without this link's sockets.
    Gone,
}

impl LinkStatus {
    /// Name in reports.
    pub fn name(self) -> &'static str {
        match self {
            LinkStatus::Up => "up",
            LinkStatus::Down => "down",
            LinkStatus::Gone => "gone",
        }
    }
}

/// One link, summed over the workers.
#[derive(Clone, PartialEq, Debug)]
pub struct LinkReport {
    /// Name in the configuration.
    pub name: String,
    /// Linux's name.
    pub interface: String,
    /// Status of its interface.
    pub status: LinkStatus,
    /// The reason why no packets are sent and received on it; empty while they are.
    pub waits: String,
    /// This node's address on it; `None` while it has none.
    pub local: Option<IpAddr>,
    /// MTU of the interface, in bytes.
    pub mtu: usize,
    /// Pace, if configured.
    pub rate_mbit: Option<f64>,
    /// `native` or `generic`; `none` with UDP sockets.
    pub xdp_mode: String,
    /// `zero-copy` or `copy`; `udp` with UDP sockets.
    pub socket_mode: String,
    /// The reason why the modes are not better; empty if they are the best.
    pub reason: String,
    /// Receive queues served.
    pub queues: usize,
    /// Next hops on this link.
    pub hops: Vec<HopReport>,
    /// Addresses whose packets were dropped last because they are no neighbour's, at most
    /// `NOT_NEIGHBOURS_MAX`.
    pub not_neighbours: BTreeSet<IpAddr>,
    /// Packets.
    pub counters: LinkCounters,
    /// Linux's counters for the sockets.
    pub statistics: SocketStatistics,
    /// The same for each receive queue; with UDP sockets, for each worker.
    pub by_queue: Vec<SocketStatistics>,
    /// ICMP errors from hosts and routers.
    pub icmp: IcmpErrors,
}

/// One worker.
#[derive(Clone, PartialEq, Debug)]
pub struct WorkerReport {
    /// Index.
    pub index: usize,
    /// Core it is pinned to.
    pub core: Option<usize>,
    /// Its idle mode.
    pub idle: &'static str,
    /// State of its frames.
    pub frames: FrameGauge,
    /// Restarts after a panic.
    pub panics: u64,
    /// Its pipeline.
    pub pipeline: Report,
}

/// Status of a tunnel's interface.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum TunnelStatus {
    /// Present.
    Present,
    /// No next hop of the stream that reads from it responds, so it has no carrier.
    NoCarrier,
    /// It was deleted and is being recreated.
    Gone,
}

impl TunnelStatus {
    /// Name in reports.
    pub fn name(self) -> &'static str {
        match self {
            TunnelStatus::Present => "present",
            TunnelStatus::NoCarrier => "no-carrier",
            TunnelStatus::Gone => "gone",
        }
    }
}

/// One tunnel, summed over the workers.
#[derive(Clone, PartialEq, Debug)]
pub struct TunnelReport {
    /// Name of the interface.
    pub name: String,
    /// Protocols that cross it many packets at a time: `tcp+udp`, `tcp` or `none`.
    pub offload: &'static str,
    /// The reason why that is not better; empty if it is the best.
    pub reason: String,
    /// Status of its interface.
    pub status: TunnelStatus,
    /// Its MTU: the configured one, or that of the path if smaller.
    pub mtu: u16,
    /// Packets.
    pub counters: TunnelCounters,
}

/// Everything a node reports, at most one housekeeping interval (50 ms) old.
#[derive(Clone, PartialEq, Debug)]
pub struct RuntimeReport {
    /// When it was made, by the clock of the workers.
    pub at: Nanos,
    /// The links, in topology order.
    pub links: Vec<LinkReport>,
    /// The workers.
    pub workers: Vec<WorkerReport>,
    /// Verdicts of the XDP program by name, over all links and CPUs.
    pub verdicts: Vec<(&'static str, u64)>,
    /// The tunnels, in topology order.
    pub tunnels: Vec<TunnelReport>,
    /// Sessions with neighbours and with other ends of flows.
    pub sessions: Sessions,
}

/// Linux's counters of sockets by receive queue; of UDP sockets by worker.
pub(crate) type ByQueue = BTreeMap<u32, SocketStatistics>;

/// The part of a link's report that one worker publishes.
#[derive(Clone, Debug)]
pub(crate) struct LinkPart {
    pub(crate) counters: LinkCounters,
    pub(crate) sockets: ByQueue,
    /// The last address that its UDP socket refused.
    pub(crate) not_neighbour: Option<IpAddr>,
    /// Neighbours whose packets its UDP socket refused as of another version.
    pub(crate) other_versions: OtherVersions,
}

/// The part of the report that one worker publishes.
#[derive(Clone, Debug)]
pub(crate) struct WorkerPart {
    pub(crate) worker: WorkerReport,
    pub(crate) links: Vec<LinkPart>,
    pub(crate) tunnels: Vec<TunnelCounters>,
    /// On packets that no XDP program saw.
    pub(crate) verdicts: Verdicts,
}
