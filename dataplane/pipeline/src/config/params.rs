//! Parameters: an immutable snapshot of all flow settings, published by the control side.
//!
//! Workers pick a snapshot up between bursts. Every value here was validated before; nothing in a
//! packet can exceed it.

use crate::base::layout::{SEALING_BYTES, STRICT_TAG_BYTES, TAG_BYTES, symbol_offset};
pub use crate::base::time::Nanos;
#[cfg(feature = "bats")]
pub use crate::config::code::{BatsParams, Interleave, Profile};
pub use crate::config::code::{FlowCode, Sizes, StreamParams, StreamProfile};
use recoded_gf::FieldOrder;
use recoded_wire::coded::{INDEX_BYTES, coding_offset, vector_bytes};

/// A shard of a flow; see `recoded_wire::shard`.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ShardId {
    /// Flow id on the wire.
    pub flow: u32,
    /// Shard of the flow, from 0.
    pub shard: u8,
}

/// A worker's share of a node.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Share {
    /// The worker, from 0.
    pub worker: usize,
    /// Number of workers.
    pub workers: usize,
}

impl Share {
    /// The share of a single worker.
    pub const ALL: Share = Share { worker: 0, workers: 1 };

    /// The shards of a source of `shards` that this worker sends.
    pub fn sends(self, shards: u8) -> impl Iterator<Item = u8> {
        (0..shards).filter(move |shard| self.owner(*shard) == self.worker)
    }

    /// The worker that sends a shard of a source.
    pub fn owner(self, shard: u8) -> usize {
        usize::from(shard) % self.workers.max(1)
    }
}

/// Index of a neighbour in the runtime's table (a link and an address on it).
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PeerId(pub u16);

/// Index of a tunnel (a TUN interface) in the runtime's table.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct TunnelId(pub u16);

/// Largest number of next hops of one flow.
pub const NEXT_HOPS_MAX: usize = 8;

/// Largest number of neighbours that a flow is received from.
pub const UPSTREAMS_MAX: usize = 8;

/// Longest path, in hops, that a source plans for.
pub const HOPS_MAX: usize = 64;

/// Role of a node in a flow.
#[derive(Clone, PartialEq, Debug)]
pub enum Role {
    /// IP packets in from a tunnel, coded packets out.
    Source {
        /// Tunnel that packets come from.
        tunnel: TunnelId,
    },
    /// Coded packets in, recoded packets out.
    Relay {
        /// Neighbour that feedback is sent to.
        upstream: PeerId,
    },
    /// Coded packets in, IP packets out to a tunnel.
    Sink {
        /// Tunnel that packets are delivered to.
        tunnel: TunnelId,
        /// Neighbour that feedback is sent to.
        upstream: PeerId,
    },
}

/// Which of several next hops get a symbol of a stream.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Spread {
    /// Every one: several receivers, or several paths to one receiver that takes the first copy.
    Every,
    /// The one through which it arrives first, among those that can take it now: paths to one
    /// receiver, whose rates add up. Packets of generations go to each in turn.
    Sum,
    /// The first one that answers, in configured order.
    Backup,
}

impl Spread {
    /// Next hops that must each get a symbol, out of `next_hops`.
    pub(crate) fn receivers(self, next_hops: usize) -> usize {
        if self == Spread::Every { next_hops } else { next_hops.min(1) }
    }
}

/// Packets that a source plans per generation.
#[derive(Copy, Clone, PartialEq, Debug)]
pub enum Redundancy {
    /// Enough that the share of incomplete generations meets the flow's target loss, given the
    /// losses that the hops report.
    Auto,
    /// `ceil(factor * size)` packets, factor at least 1.
    Fixed(f64),
}

/// How a relay forms its packets (RFC 9426 calls this recoding).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Recoding {
    /// Innovative packets are sent at once as they came; only the shortfall of the plan is
    /// combined.
    Systematic,
    /// Every packet sent is a fresh random combination, formed when the generation closes.
    Random,
}

/// One node's settings of one flow.
#[derive(Clone, PartialEq, Debug)]
pub struct FlowParams {
    /// Flow id on the wire.
    pub id: u32,
    /// Role of this node in the flow.
    pub role: Role,
    /// Destinations of coded packets: source and relay; at most [`NEXT_HOPS_MAX`].
    pub next_hops: Vec<PeerId>,
    /// Source: shards, 1 to 16. Inner flows are spread over them, and they over workers.
    pub shards: u8,
    /// Source: its code. Relays and sinks learn it from packets.
    pub code: FlowCode,
    /// Source: field of the coding coefficients.
    pub field: FieldOrder,
    /// Source: symbols per generation, 1 to 256, or packets of a batch (its batch size, 1 to 128).
    /// Relays and sinks learn it from packets.
    pub generation_size: usize,
    /// Source: bytes per symbol, its tag included if it has one. Relay and sink: the most they
    /// accept.
    pub symbol_bytes: usize,
    /// Source: packets per generation.
    pub redundancy: Redundancy,
    /// Source: share of generations that may stay incomplete, after repair if that is on, when
    /// redundancy is automatic.
    pub target_loss: f64,
    /// Maximum packets sent per symbol of a generation, at least 1, by plan and relays alike.
    pub redundancy_max: f64,
    /// Source: a partial generation closes after this time; a block when packets pause for this
    /// long, and after 32 times as long at the latest.
    pub flush_timeout_nanos: Nanos,
    /// Relay: an open batch closes after this silence. Sink: wait before a repair request.
    pub generation_timeout_nanos: Nanos,
    /// Sink: how long in-order delivery waits for an incomplete generation.
    pub hold_timeout_nanos: Nanos,
    /// Source and relay of a stream: which of several next hops get a symbol.
    pub spread: Spread,
    /// Source and relay of a stream: how long a symbol is sent to one of several receivers after it
    /// arrived here, round trips aside. A receiver that is further behind misses it, and no other
    /// waits for that.
    pub lag_timeout_nanos: Nanos,
    /// Relay and sink: further neighbours that it is received from, in addition to the upstream of
    /// the role. Paths of one flow meet here; at most [`UPSTREAMS_MAX`] including that one.
    pub further_upstreams: Vec<PeerId>,
    /// Relay: how packets are formed.
    pub recoding: Recoding,
    /// Relay: the share that it sends of the packets planned for a generation by all upstreams
    /// together, above 0 and up to 1. Below 1 if branches meet in front of a link with less
    /// capacity than they have together, and sinks get the rest over other paths.
    pub onward_share: f64,
    /// Relay: packets for a batch of a BATS flow follow its rank, at equal airtime.
    pub adaptive: bool,
    /// Sink: ask once for missing degrees of freedom. Source: answer.
    pub repair: bool,
    /// Source and sink: packets are encrypted end to end, with the keys of the runtime. A sealed
    /// flow neither sends nor delivers plaintext packets; an unsealed one does not deliver sealed
    /// packets.
    pub sealed: bool,
    /// Symbols have tags that survive recoding, under the keys of the runtime. Source: writes them.
    /// Sink: rejects symbols with a wrong one. Relay: rejects them too if it has part of the keys.
    pub tagged: bool,
    /// Source and sink: these tags have [`STRICT_TAG_BYTES`]. A relay follows its keys.
    pub strict: bool,
    /// Relay and sink: wrong tags within a minute after which a neighbour is ignored for a while,
    /// if there are others, and rekeyed; 0 for no limit.
    pub wrong_tags_max: u32,
    /// Generations or batches held at once, allocated when the flow is created; at a sink, rounded
    /// by [`FlowParams::sink_generations`].
    pub generations: usize,
}

/// Default of [`FlowParams::wrong_tags_max`]. Honest neighbours send no wrong tags, so a low limit
/// finds an attacker soon; it is not 1 because memory may flip a bit.
pub const WRONG_TAGS_MAX: u32 = 64;

impl FlowParams {
    /// Code and sizes.
    pub(crate) fn sizes(&self) -> Sizes {
        let Self { code, field, generation_size, symbol_bytes, .. } = *self;
        Sizes { code, field, generation_size, symbol_bytes }
    }

    /// These parameters of a relay or sink, completed with code and sizes.
    #[must_use]
    pub fn with(&self, sizes: Sizes) -> FlowParams {
        let Sizes { code, field, generation_size, symbol_bytes } = sizes;
        FlowParams { code, field, generation_size, symbol_bytes, ..self.clone() }
    }

    /// Neighbours that the flow is received from; none at a source.
    pub fn upstreams(&self) -> impl Iterator<Item = PeerId> {
        let first = match self.role {
            Role::Source { .. } => None,
            Role::Relay { upstream } | Role::Sink { upstream, .. } => Some(upstream),
        };
        let further = if first.is_some() { &self.further_upstreams[..] } else { &[] };
        first.into_iter().chain(further.iter().copied())
    }

    /// Whether it is an open loop: a stream that sends a fixed number of packets per symbol, and
    /// uses no reports.
    pub fn is_open_loop(&self) -> bool {
        self.code.is_stream() && matches!(self.redundancy, Redundancy::Fixed(_))
    }

    /// Generations that a sink holds at once: a power of two, so that a generation has its place to
    /// itself when numbers wrap around.
    pub fn sink_generations(&self) -> usize {
        self.generations.max(2).next_power_of_two()
    }

    /// An RLNC flow of generations of 16 symbols of 1404 bytes over GF(16), the daemon's defaults.
    pub fn new(id: u32, role: Role, next_hops: Vec<PeerId>) -> Self {
        Self {
            id,
            role,
            next_hops,
            shards: 1,
            code: FlowCode::Rlnc,
            field: FieldOrder::Sixteen,
            generation_size: 16,
            symbol_bytes: 1404,
            redundancy: Redundancy::Auto,
            target_loss: 1e-4,
            redundancy_max: 4.0,
            flush_timeout_nanos: 1_000_000,
            generation_timeout_nanos: 20_000_000,
            hold_timeout_nanos: 200_000_000,
            spread: Spread::Every,
            lag_timeout_nanos: 500_000_000,
            further_upstreams: Vec::new(),
            recoding: Recoding::Systematic,
            onward_share: 1.0,
            adaptive: true,
            repair: true,
            sealed: false,
            tagged: false,
            strict: false,
            wrong_tags_max: WRONG_TAGS_MAX,
            generations: 64,
        }
    }

    /// Framing bytes per IP packet in the symbols of a source.
    pub fn framing_bytes(&self) -> usize {
        self.code.framing_bytes() + self.sealing_bytes()
    }

    /// The part of these that sealing takes.
    pub fn sealing_bytes(&self) -> usize {
        sealing_bytes(self.sealed)
    }

    /// Whether source and sink share keys: reports of the sink are sealed.
    pub fn has_edge_keys(&self) -> bool {
        self.tagged || self.sealed
    }

    /// Bytes of a symbol that its tag takes.
    pub fn tag_bytes(&self) -> usize {
        match (self.tagged, self.strict) {
            (false, _) => 0,
            (true, false) => TAG_BYTES,
            (true, true) => STRICT_TAG_BYTES,
        }
    }

    /// Bytes of a symbol without its tag.
    pub fn payload_bytes(&self) -> usize {
        self.symbol_bytes.saturating_sub(self.tag_bytes())
    }

    /// Maximum packets that a source plans for one generation or block, and then sends at once.
    /// Zero for other roles.
    pub fn unit_packets_max(&self) -> usize {
        let symbols = match self.role {
            Role::Source { .. } => self.code.closing_symbols(self.generation_size),
            _ => 0,
        };
        (symbols as f64 * self.redundancy_max).ceil() as usize
    }

    /// Frame bytes that the largest packet formed here takes: headroom, header, the longest coding
    /// vector and the symbol. Frames must not be shorter.
    pub fn frame_bytes_min(&self) -> usize {
        self.frame_bytes_around(&self.sizes()) + self.symbol_bytes
    }

    /// The part of these bytes in front of a symbol, with other sizes.
    pub(crate) fn frame_bytes_around(&self, sizes: &Sizes) -> usize {
        let header_bytes = match self.role {
            Role::Source { .. } => sizes.code.header_bytes(sizes.generation_size, sizes.field),
            // Fields and codes are those that packets announce.
            Role::Relay { .. } => {
                let largest = FieldOrder::TwoFiftySix.code();
                coding_offset(true) + vector_bytes(sizes.generation_size, largest).max(INDEX_BYTES)
            }
            Role::Sink { .. } => 0,
        };
        symbol_offset(header_bytes)
    }
}

/// Bytes that sealing takes from the room for an IP packet in symbols, if packets are sealed.
pub const fn sealing_bytes(sealed: bool) -> usize {
    if sealed { SEALING_BYTES } else { 0 }
}

/// All flows of a node, and the edition of the configuration they come from.
#[derive(Clone, PartialEq, Debug)]
pub struct Snapshot {
    /// Edition of the configuration, incremented at every change.
    pub edition: u64,
    /// The flows.
    pub flows: Vec<FlowParams>,
}
