//! A received packet, and the burst size of a worker.

use recoded_wire::frames::Span;
use std::net::SocketAddr;

/// Packets per burst, of a socket or of a tunnel: enough to spread the cost of a ring poll, few
/// enough that no link waits long for another.
pub(crate) const BURST_PACKETS: usize = 64;

/// A packet addressed to this node; its owner holds one reference to its frame.
pub(crate) struct Arrived {
    /// The UDP payload.
    pub(crate) payload: Span,
    /// Its sender.
    pub(crate) source: SocketAddr,
    /// DSCP and ECN bits of its IP header.
    pub(crate) traffic_class: u8,
}
