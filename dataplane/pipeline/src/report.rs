//! Counters: what happened to packets, by flow and by reason. Plain integers that a worker owns and
//! publishes between bursts.
//!
//! The conservation law, held by a property test: every received packet is counted in exactly one of
//! `forwarded`, `consumed` and one [`DropReason`].

use crate::params::{FlowCode, Nanos, Role};
use recoded_gf::FieldOrder;

/// Why a received packet was dropped. One counter each.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
#[repr(usize)]
pub enum DropReason {
    /// Shorter than its own header announces.
    Truncated,
    /// A version or type this build does not speak.
    Version,
    /// Reserved flags, or an index out of range.
    Malformed,
    /// No flow of this id here.
    UnknownFlow,
    /// A packet type this node does not handle for the flow (data at a source, say).
    WrongRole,
    /// A packet of another code than the sink has: source and sink must agree.
    WrongCode,
    /// Generation, batch, block or symbol size above what the flow accepts.
    Oversize,
    /// Contradicts earlier packets of its generation, batch or block (size, field, symbol bytes, block
    /// word).
    Mismatch,
    /// Its generation was already delivered, given up or replaced.
    Late,
    /// Came before, by its link sequence number.
    Replayed,
    /// Of a generation or block far from those in progress, which nothing has confirmed.
    Stray,
    /// Its block holds as many batches as there is room for.
    BatchesExhausted,
    /// No free frame to hold it or a combination of it.
    FrameExhausted,
}

impl DropReason {
    /// Every reason, in counter order.
    pub const ALL: [DropReason; 13] = [
        DropReason::Truncated,
        DropReason::Version,
        DropReason::Malformed,
        DropReason::UnknownFlow,
        DropReason::WrongRole,
        DropReason::WrongCode,
        DropReason::Oversize,
        DropReason::Mismatch,
        DropReason::Late,
        DropReason::Replayed,
        DropReason::Stray,
        DropReason::BatchesExhausted,
        DropReason::FrameExhausted,
    ];

    /// Name in metrics and JSON.
    pub fn name(self) -> &'static str {
        match self {
            DropReason::Truncated => "truncated",
            DropReason::Version => "version",
            DropReason::Malformed => "malformed",
            DropReason::UnknownFlow => "unknown_flow",
            DropReason::WrongRole => "wrong_role",
            DropReason::WrongCode => "wrong_code",
            DropReason::Oversize => "oversize",
            DropReason::Mismatch => "mismatch",
            DropReason::Late => "late",
            DropReason::Replayed => "replayed",
            DropReason::Stray => "stray",
            DropReason::BatchesExhausted => "batches_exhausted",
            DropReason::FrameExhausted => "frame_exhausted",
        }
    }
}

/// Number of drop reasons.
pub const DROP_REASONS: usize = DropReason::ALL.len();

/// Fate of received packets, summed over all flows of a worker.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct PacketCounters {
    /// Packets handed to [`crate::Pipeline::receive`].
    pub received: u64,
    /// Of these, sent on as they came (cut-through, or feedback).
    pub forwarded: u64,
    /// Of these, used up here: stored, redundant, or feedback addressed to this node.
    pub consumed: u64,
    /// Of these, dropped, by [`DropReason`].
    pub dropped: [u64; DROP_REASONS],
}

/// Counters of one flow on one node. Source symbols of a window flow are counted as generations. A change
/// of code begins them anew.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct FlowCounters {
    /// Source: IP packets taken from the tunnel, and their bytes.
    pub ingress_packets: u64,
    /// Bytes of those packets.
    pub ingress_bytes: u64,
    /// Source: IP packets refused: longer than a generation holds, or no frame was free.
    pub ingress_dropped: u64,
    /// Sink: IP packets delivered to the tunnel.
    pub delivered_packets: u64,
    /// Bytes of those packets.
    pub delivered_bytes: u64,
    /// Coded packets received for this flow.
    pub received: u64,
    /// Received packets that raised the rank of their generation by one.
    pub innovative: u64,
    /// Received packets that did not.
    pub redundant: u64,
    /// Packets sent: source symbols.
    pub sent_systematic: u64,
    /// Packets sent: coded by this source.
    pub sent_coded: u64,
    /// Packets sent: received packets passed on as they came.
    pub sent_forwarded: u64,
    /// Packets sent: recoded by this relay.
    pub sent_recoded: u64,
    /// Packets sent outside the plan, to repair a generation.
    pub sent_repair: u64,
    /// Packets that could not be formed or copied because no frame was free.
    pub send_failed: u64,
    /// Source symbols: closed (source), decoded (sink). Packets sent or received per source symbol are
    /// the overhead.
    pub source_symbols: u64,
    /// Source: generations, or blocks of a BATS flow, closed. Relay: generations or batches closed.
    /// Sink: generations or blocks ended.
    pub generations: u64,
    /// Of these, ended with full rank (relay and sink).
    pub generations_complete: u64,
    /// Sink: generations given up, with symbols missing.
    pub generations_failed: u64,
    /// Closed early because the table was full.
    pub generations_evicted: u64,
    /// Sink: generations whose missing symbols an accelerator computed.
    pub generations_offloaded: u64,
    /// Sink: repair requests sent. Source and relay: answered.
    pub repairs: u64,
    /// Source and relay: packets asked for as repairs and not sent, since the repair budget was used up.
    pub repairs_refused: u64,
    /// Sink: framing found broken in decoded symbols.
    pub framing_errors: u64,
    /// Sink: time from the first packet of a generation or block to its last symbol, summed over
    /// those that were complete. Window flows: from when a lost symbol was first told of until it was
    /// recovered, summed over those.
    pub decode_delay_nanos: u64,
    /// Longest such time.
    pub decode_delay_nanos_max: u64,
    /// Rank histogram of full-size generations or batches when they closed, index = rank (relay and
    /// sink).
    pub rank_histogram: Vec<u64>,
}

impl FlowCounters {
    /// Notes that a generation or block was complete this long after its first packet.
    pub(crate) fn decoded_after(&mut self, delay: Nanos) {
        self.decode_delay_nanos += delay;
        self.decode_delay_nanos_max = self.decode_delay_nanos_max.max(delay);
    }
}

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

/// One flow as a worker sees it.
#[derive(Clone, PartialEq, Debug)]
pub struct FlowReport {
    /// Flow id.
    pub id: u32,
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

/// Everything a pipeline reports.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    /// Edition of the snapshot in use.
    pub edition: u64,
    /// Fate of received packets.
    pub packets: PacketCounters,
    /// The flows, in snapshot order.
    pub flows: Vec<FlowReport>,
}
