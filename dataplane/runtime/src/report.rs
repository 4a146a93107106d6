//! Reports of a running node. Plain values; workers publish their part in housekeeping.

use recoded_pipeline::report::Report;
use recoded_wire::packet::NotUdp;
use recoded_xsk::{FrameGauge, SocketStatistics};
use std::net::IpAddr;
use std::ops::AddAssign;

/// Packets of one link, counted by the workers.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct LinkCounters {
    /// Packets taken from the sockets.
    pub rx_packets: u64,
    /// Their bytes, Ethernet header included.
    pub rx_bytes: u64,
    /// Of these, without a UDP payload that we can read, by [`UNPARSED_NAMES`].
    pub rx_unparsed: [u64; UNPARSED_NAMES.len()],
    /// Of these, addressed to another IP address or port.
    pub rx_not_ours: u64,
    /// Packets given to the sockets.
    pub tx_packets: u64,
    /// Their bytes, Ethernet header included.
    pub tx_bytes: u64,
    /// Packets dropped because the transmit ring was full.
    pub tx_full: u64,
    /// Packets dropped because their next hop was not resolved.
    pub tx_no_neighbour: u64,
    /// Packets dropped because they exceed the interface's MTU.
    pub tx_oversize: u64,
    /// Packets dropped because the interface was gone.
    pub tx_link_gone: u64,
    /// Packets dropped because the link's backlog was longer than its pace allows: repairs, or
    /// packets of a relay that arrived faster than the link's rate.
    pub tx_over_rate: u64,
}

/// Names of the reasons in [`LinkCounters::rx_unparsed`]. The XDP program lets none of these
/// through, so a counter that moves points at a program that is not ours.
pub const UNPARSED_NAMES: [&str; 8] = [
    "not_ip",
    "too_many_tags",
    "other_protocol",
    "extension_header",
    "fragment",
    "truncated",
    "malformed",
    "udp_length",
];

/// Index into [`LinkCounters::rx_unparsed`].
pub(crate) fn unparsed_index(reason: NotUdp) -> usize {
    match reason {
        NotUdp::NotIp => 0,
        NotUdp::TooManyTags => 1,
        NotUdp::OtherProtocol => 2,
        NotUdp::ExtensionHeader => 3,
        NotUdp::Fragment => 4,
        NotUdp::Truncated => 5,
        NotUdp::Malformed => 6,
        NotUdp::UdpLength => 7,
    }
}

impl AddAssign for LinkCounters {
    fn add_assign(&mut self, other: LinkCounters) {
        self.rx_packets += other.rx_packets;
        self.rx_bytes += other.rx_bytes;
        for (sum, count) in self.rx_unparsed.iter_mut().zip(other.rx_unparsed) {
            *sum += count;
        }
        self.rx_not_ours += other.rx_not_ours;
        self.tx_packets += other.tx_packets;
        self.tx_bytes += other.tx_bytes;
        self.tx_full += other.tx_full;
        self.tx_no_neighbour += other.tx_no_neighbour;
        self.tx_oversize += other.tx_oversize;
        self.tx_link_gone += other.tx_link_gone;
        self.tx_over_rate += other.tx_over_rate;
    }
}

/// Packets of one tunnel, counted by the workers.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct TunnelCounters {
    /// IP packets read from the tunnel.
    pub read_packets: u64,
    /// Their bytes.
    pub read_bytes: u64,
    /// Reads that Linux refused, or whose virtio header contradicts the packet.
    pub read_failed: u64,
    /// IP packets written to the tunnel.
    pub written_packets: u64,
    /// Their bytes.
    pub written_bytes: u64,
    /// IP packets that Linux did not take: its queue was full, they were not IP, or the tunnel was
    /// gone.
    pub write_failed: u64,
    /// Writes that carried the packets written: fewer where packets were merged.
    pub writes: u64,
}

impl AddAssign for TunnelCounters {
    fn add_assign(&mut self, other: TunnelCounters) {
        self.read_packets += other.read_packets;
        self.read_bytes += other.read_bytes;
        self.read_failed += other.read_failed;
        self.written_packets += other.written_packets;
        self.written_bytes += other.written_bytes;
        self.write_failed += other.write_failed;
        self.writes += other.writes;
    }
}

/// A next hop and whether Linux knows its Ethernet address.
#[derive(Clone, PartialEq, Debug)]
pub struct HopReport {
    /// Its address.
    pub address: IpAddr,
    /// Whether packets can be sent to it.
    pub is_resolved: bool,
}

/// What became of a link's interface.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum LinkStatus {
    /// It is there and set up.
    Up,
    /// It is there and set down.
    Down,
    /// No interface has its name, or our sockets are not on the one that has.
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
    /// What became of its interface.
    pub status: LinkStatus,
    /// MTU of the interface, in bytes.
    pub mtu: usize,
    /// Pace, if configured.
    pub rate_mbit: Option<f64>,
    /// `native` or `generic`.
    pub xdp_mode: String,
    /// `zero-copy` or `copy`.
    pub socket_mode: String,
    /// Why the modes are not better; empty if they are the best.
    pub reason: String,
    /// Receive queues served.
    pub queues: usize,
    /// Next hops on this link.
    pub hops: Vec<HopReport>,
    /// Packets.
    pub counters: LinkCounters,
    /// What Linux counted on the sockets.
    pub statistics: SocketStatistics,
}

/// One worker.
#[derive(Clone, PartialEq, Debug)]
pub struct WorkerReport {
    /// Index, and receive queue it serves.
    pub index: usize,
    /// Core it is pinned to.
    pub core: Option<usize>,
    /// What it does when idle.
    pub idle: &'static str,
    /// Where its frames are.
    pub frames: FrameGauge,
    /// Its pipeline.
    pub pipeline: Report,
}

/// One tunnel, summed over the workers.
#[derive(Clone, PartialEq, Debug)]
pub struct TunnelReport {
    /// Name of the interface.
    pub name: String,
    /// What crosses it many packets at a time: `tcp+udp`, `tcp` or `none`.
    pub offload: &'static str,
    /// Why that is not better; empty if it is the best.
    pub reason: String,
    /// Whether the interface exists. It is created again when deleted.
    pub is_present: bool,
    /// How often it was made again.
    pub recreated: u64,
    /// Packets.
    pub counters: TunnelCounters,
}

/// Everything a node reports, at most one housekeeping interval (50 ms) old.
#[derive(Clone, PartialEq, Debug)]
pub struct RuntimeReport {
    /// The links, in topology order.
    pub links: Vec<LinkReport>,
    /// The workers.
    pub workers: Vec<WorkerReport>,
    /// Verdicts of the XDP program by name, over all links and CPUs.
    pub verdicts: Vec<(&'static str, u64)>,
    /// The tunnels, in topology order.
    pub tunnels: Vec<TunnelReport>,
}

/// What one worker publishes.
#[derive(Clone, Debug)]
pub(crate) struct WorkerPart {
    pub(crate) worker: WorkerReport,
    pub(crate) links: Vec<(LinkCounters, SocketStatistics)>,
    pub(crate) tunnels: Vec<TunnelCounters>,
}

/// Adds up what Linux counted on two sockets.
pub(crate) fn add_statistics(sum: &mut SocketStatistics, other: SocketStatistics) {
    sum.rx_dropped += other.rx_dropped;
    sum.rx_ring_full += other.rx_ring_full;
    sum.rx_fill_ring_empty += other.rx_fill_ring_empty;
    sum.rx_invalid_descriptors += other.rx_invalid_descriptors;
    sum.tx_invalid_descriptors += other.tx_invalid_descriptors;
    sum.tx_ring_empty += other.tx_ring_empty;
}
