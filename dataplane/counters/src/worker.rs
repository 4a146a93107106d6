//! Counters of a worker's pipeline: the fate of received packets.

use crate::Table;

/// Counters of a worker.
pub const TABLE: Table =
    Table { owner: "a worker", parts: &[PacketCounters::TABLE, DropReason::TABLE] };

/// What went wrong with the worker itself.
pub const FAULTS: Table = Table { owner: "a worker's thread", parts: &[WorkerCounters::TABLE] };

reasons! {
    /// Why a received packet was dropped. One counter each.
    DropReason: Packets {
        /// Shorter than its own header announces.
        Truncated = "truncated" => "Check the MTU of the path and what shortens packets on it.",
        /// A version or type this build does not speak.
        Version = "version" => "Run the same version on all nodes.",
        /// Reserved flags, or an index out of range.
        Malformed = "malformed" => "Run the same version on all nodes; else packets are forged or \
            damaged.",
        /// No flow of this id here.
        UnknownFlow = "unknown_flow" => "Configure the flow, or correct next_hops of the node before \
            this one.",
        /// Its sender is no neighbour that such packets are expected from.
        UnknownPeer = "unknown_peer" => "Correct upstream here or next_hops there: packets come from another \
            address. Else they are forged.",
        /// Nothing here handles its shard, code or sizes yet: memory for them is being allocated.
        Opening = "opening" => "Nothing: a flow begins or changes.",
        /// The memory that flows may take is used up.
        NoMemory = "no_memory" => "Raise memory under [daemon], or lower sizes at the source.",
        /// A message of a handshake, and this node has no keys.
        Handshake = "handshake" => "Give this node keys as well, or write auth = \"none\" at its \
            neighbours.",
        /// A packet type this node does not handle for the flow (data at a source, say).
        WrongRole = "wrong_role" => "Correct next_hops and upstream of the neighbours: a packet went \
            the wrong way.",
        /// It crossed 64 links: it goes round in a loop.
        HopLimit = "hop_limit" => "Correct next_hops: relays of the flow send in a circle.",
        /// A code that this build does not have, or another one than the flow uses at present.
        WrongCode = "wrong_code" => "Run the same build on all nodes. Else look for a second source \
            with the same flow id, or forged packets.",
        /// Generation, batch, block or symbol size above what fits a frame or what any source
        /// sends, or above what the flow uses at present.
        Oversize = "oversize" => "Raise symbol_bytes here, or lower the size at the source.",
        /// Contradicts earlier packets of its generation, batch or block (size, field, symbol
        /// bytes, block word).
        Mismatch = "mismatch" => "Look for a second source with the same flow id, or forged packets.",
        /// Came before, by its link sequence number.
        Replayed = "replayed" => "Nothing, if few. Else look for what duplicates packets on the link.",
        /// Of a generation or block far from those in progress, which nothing has confirmed.
        Stray = "stray" => "Nothing, if the source was restarted. Else look for a second source with \
            the same flow id, or forged packets.",
        /// Of a tagged flow, and no valid combination of the source's symbols: its payload, vector,
        /// number or tag was changed in transit.
        WrongSymbolTag = "wrong_symbol_tag" => "Look for the relay that changes packets: the \
            neighbours of this flow that count none lie before it. Run the same version at both ends.",
        /// Of a tagged flow, and there are no keys to verify it with.
        NoSymbolKeys = "no_symbol_keys" => "Nothing, if few: keys come with the first handshake. \
            Else look for what keeps the other end from answering.",
        /// A report of the sink, at a source with keys for it, that the sink did not write.
        WrongReport = "wrong_report" => "Nothing, if few: keys come with the first handshake. Run \
            the same version at both ends. Else look for the relay that forges reports.",
        /// From a neighbour in quarantine: too many symbols with wrong tags came from it, and
        /// others bring the flow.
        Quarantined = "quarantined" => "Look for the relay that changes packets: this neighbour, \
            or one before it.",
        /// Its block holds as many batches as there is room for.
        BatchesExhausted = "batches_exhausted" => "Lower redundancy at the source.",
    }
}

/// Number of drop reasons.
pub const DROP_REASONS: usize = DropReason::ALL.len();

counters! {
    /// Fate of received packets, summed over all flows of a worker.
    #[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
    PacketCounters {
        /// Packets handed to the pipeline. Always equals forwarded + consumed + handed over +
        /// dropped, but for a few that wait until memory for their shard is there.
        received: Packets,
        /// Of these, sent on as they came (cut-through, or feedback).
        forwarded: Packets,
        /// Of these, used up here: stored, redundant, or feedback addressed to this node.
        consumed: Packets,
        /// Of these, given to the worker that has their shard, which counts them again.
        handed_over: Packets,
    }
    by {
        /// Of these, dropped, by [`DropReason`].
        dropped: DropReason,
    }
}

counters! {
    /// What went wrong with a worker itself.
    #[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
    WorkerCounters {
        /// Times that it panicked and was restarted: open units are lost.
        panics: Events => "Report it, with the lines of the log before.",
    }
}
