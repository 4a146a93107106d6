//! Reports: what happened to packets, by flow and by reason. Counters are plain integers that a
//! worker owns and publishes between bursts; `dataplane/counters` declares them.
//!
//! The conservation law, held by a property test: every received packet is counted in exactly one
//! of `forwarded`, `consumed`, `handed_over` and one [`DropReason`], or is among those `waiting`.

use crate::params::{FlowCode, Role};
use recoded_gf::FieldOrder;

pub use recoded_counters::flow::FlowCounters;
pub use recoded_counters::worker::{DROP_REASONS, DropReason, PacketCounters};

/// Loss of one hop, as a source has heard or a receiver has measured it.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct HopLoss {
    /// Hop index, 0 for the link that leaves the source.
    pub hop: u8,
    /// Share of packets lost.
    pub loss: f64,
    /// Mean run of consecutive losses, at least 1.
    pub burst_mean: f64,
}

/// What the sink of a flow told its source, as last heard. Counters are modulo 2^32.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RemoteReport {
    /// Newest generation seen.
    pub newest: u32,
    /// Generations decoded completely.
    pub complete: u32,
    /// Generations given up.
    pub failed: u32,
    /// Full-size generations of the present epoch by rank when they closed.
    pub rank_histogram: Vec<u32>,
}

/// One shard of a flow as a worker sees it.
#[derive(Clone, PartialEq, Debug)]
pub struct FlowReport {
    /// Flow id.
    pub id: u32,
    /// Shard of the flow.
    pub shard: u8,
    /// Role.
    pub role: Role,
    /// Code. A relay's is that of its configuration, which it ignores.
    pub code: FlowCode,
    /// Source: epoch of the parameters in use.
    pub epoch: u8,
    /// Field in use (relay and sink: of the newest generation).
    pub field: FieldOrder,
    /// Generation or batch size in use (relay and sink: of the newest generation).
    pub generation_size: usize,
    /// Bytes per symbol in use.
    pub symbol_bytes: usize,
    /// Source: packets planned for a full generation. Relay: of the newest packet.
    pub planned: usize,
    /// Source: what the hops report. Relay and sink: the one incoming link.
    pub hops: Vec<HopLoss>,
    /// Source: what the sink reports of itself.
    pub remote: Option<RemoteReport>,
    /// Generations held now.
    pub held: usize,
    /// Counters.
    pub counters: FlowCounters,
}

/// What shards of a flow counted that are gone: a total of the flow is the sum of this and its
/// shards. It has no rank histogram, which is that of the present parameters.
#[derive(Clone, PartialEq, Debug)]
pub struct Remainder {
    /// Flow id.
    pub flow: u32,
    /// Counters.
    pub counters: FlowCounters,
}

/// Everything a pipeline reports.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    /// Edition of the snapshot in use.
    pub edition: u64,
    /// Fate of received packets.
    pub packets: PacketCounters,
    /// Received packets that wait for their stages, and have no fate yet.
    pub waiting: usize,
    /// The shards, by flow id and shard. One that nothing was received of is missing.
    pub flows: Vec<FlowReport>,
    /// Of flows of which shards are gone.
    pub remainders: Vec<Remainder>,
}
