//! Violations that a run can detect.

use recoded_pipeline::params::Nanos;
use thiserror::Error;

/// An invariant that did not hold.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Violation {
    /// A delivered packet is none of those sent.
    #[error("at {at} ns the sink delivered a packet that was never sent")]
    Altered {
        /// When.
        at: Nanos,
    },
    /// A packet without the tag of its hop was taken, or one twice.
    #[error("at {at} ns a node took a packet that its neighbour never sent, or took before")]
    Forged {
        /// When.
        at: Nanos,
    },
    /// A packet was delivered twice, or after a later one.
    #[error("packet {packet} was delivered after packet {after}")]
    OutOfOrder {
        /// The packet.
        packet: u32,
        /// The previous one.
        after: u32,
    },
    /// A sealed packet was delivered again.
    #[error("packet {packet} was delivered twice, though it is sealed")]
    Repeated {
        /// The packet.
        packet: u32,
    },
    /// Packets whose delivery was promised are missing.
    #[error("{missing} packets never arrived, packet {first} first")]
    Undelivered {
        /// How many.
        missing: u64,
        /// The first of them.
        first: u32,
    },
    /// A received packet has no fate, or two.
    #[error(
        "node {node} was handed {handed} packets, counts {received} received and {fates} fates"
    )]
    Unaccounted {
        /// Node, 0 for the source.
        node: usize,
        /// Packets handed to it.
        handed: u64,
        /// Packets it counts as received.
        received: u64,
        /// Packets it counts as forwarded, consumed or dropped.
        fates: u64,
    },
    /// A counter contradicts the observation, or another counter.
    #[error("node {node}: {counted} {what}, which should be {least} to {most}")]
    Miscounted {
        /// Node, 0 for the source.
        node: usize,
        /// The counter.
        what: &'static str,
        /// Its value.
        counted: u64,
        /// How many there may be at least.
        least: u64,
        /// And at most.
        most: u64,
    },
    /// Frames are still held after everything was released.
    #[error("node {node} leaks {frames} frames")]
    Leaked {
        /// Node, 0 for the source.
        node: usize,
        /// How many.
        frames: usize,
    },
    /// A packet was written to after it had been handed to a transmit ring.
    #[error("node {node} wrote to a packet that it had already handed over")]
    Overwritten {
        /// Node, 0 for the source.
        node: usize,
    },
    /// More packets left than the parameters allow.
    #[error("node {node} sent {sent} packets, its parameters allow {allowed}")]
    Flood {
        /// Node, 0 for the source.
        node: usize,
        /// Packets sent.
        sent: u64,
        /// The most it may send.
        allowed: u64,
    },
    /// More generations are held than the table has room for.
    #[error("node {node} holds {held} generations, its table has room for {room}")]
    Overfull {
        /// Node, 0 for the source.
        node: usize,
        /// Generations held.
        held: usize,
        /// Generations allowed.
        room: usize,
    },
    /// Timers fire repeatedly without time passing.
    #[error("node {node} requests immediate calls without end, at {at} ns")]
    Spin {
        /// Node, 0 for the source.
        node: usize,
        /// When.
        at: Nanos,
    },
    /// More happens than traffic explains.
    #[error("{events} events by {at} ns: a storm")]
    Storm {
        /// Events so far.
        events: u64,
        /// When.
        at: Nanos,
    },
    /// Something still happens long after the last packet entered.
    #[error("still busy at {at} ns")]
    Restless {
        /// When.
        at: Nanos,
    },
}
