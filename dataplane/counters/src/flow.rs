//! Counters of a flow.

use crate::Table;

/// Counters of a flow on one node.
pub const TABLE: Table = Table { owner: "a flow", parts: &[FlowCounters::TABLE] };

counters! {
    /// Counters of one flow on one node. Symbols of a stream are counted as generations.
    #[derive(Clone, PartialEq, Default, Debug)]
    FlowCounters {
        /// Source: IP packets taken from the tunnel.
        ingress_packets: Packets,
        /// Bytes of those packets.
        ingress_bytes: Bytes,
        /// Source: IP packets refused: longer than a generation holds, or no frame was free.
        ingress_dropped: Packets => "Lower the MTU of the tunnel, or raise frames.",
        /// Sink: IP packets delivered to the tunnel.
        delivered_packets: Packets,
        /// Bytes of those packets.
        delivered_bytes: Bytes,
        /// Of these, marked by ECN as having met congestion.
        delivered_marked: Packets,
        /// Coded packets received for this flow.
        received: Packets,
        /// Received packets that raised the rank of their generation by one.
        innovative: Packets,
        /// Received packets that did not.
        redundant: Packets,
        /// Source and relay: packets sent to next hops, whatever is in them, each copy counted.
        sent_packets: Packets,
        /// Bytes of those behind their UDP headers, without tags between neighbours.
        sent_bytes: Bytes,
        /// Source and relay: feedback that came from next hops.
        feedback: Packets,
        /// Packets sent: source symbols.
        sent_systematic: Packets,
        /// Packets sent: coded by this source.
        sent_coded: Packets,
        /// Packets sent: received packets passed on as they came.
        sent_forwarded: Packets,
        /// Packets sent: recoded by this relay.
        sent_recoded: Packets,
        /// Packets sent outside the plan, to repair a generation.
        sent_repair: Packets,
        /// Packets sent to a next hop that is to report, with nothing in them.
        sent_keepalive: Packets,
        /// Packets sent to a next hop to see whether as large ones arrive, with nothing in them.
        sent_probe: Packets,
        /// Source and relay of a stream: IP packets given up, too large for the next hop to get.
        too_large: Packets => "Nothing, if few: senders learn of a smaller MTU by the tunnel's. Else \
            raise the MTU of the path.",
        /// Source and relay of a stream: IP packets not sent to a next hop in time, because it is
        /// gone or too slow; with several receivers, within lag_timeout_us.
        lagged: Packets => "Find out why that link is slow, or take its receiver out of next_hops; \
            raise lag_timeout_us where it is slow only for moments.",
        /// Packets that could not be formed or copied because no frame was free.
        send_failed: Packets => "Raise frames.",
        /// Source symbols: closed (source), decoded (sink). Packets sent or received per source
        /// symbol are the overhead.
        source_symbols: Symbols,
        /// Source: generations, or blocks of a BATS flow, closed. Relay: generations or batches
        /// closed. Sink: generations or blocks ended.
        generations: Generations,
        /// Of these, ended with full rank (relay and sink).
        generations_complete: Generations,
        /// Sink: generations given up, with symbols missing.
        generations_failed: Generations => "Raise redundancy or redundancy_max at the source, or \
            hold_timeout_us here.",
        /// Closed or given up early because the table was full or no frame was free.
        generations_evicted: Generations => "Raise frames; at a sink also lower hold_timeout_us.",
        /// Sink: generations whose missing symbols an accelerator computed.
        generations_offloaded: Generations,
        /// Sink: repair requests sent. Source and relay: repair requests answered.
        repairs: Requests,
        /// Source and relay: packets asked for as repairs and not sent, since the repair budget was
        /// used up.
        repairs_refused: Packets => "Raise redundancy at the source; if little is lost, look for \
            forged requests.",
        /// Sink: framing found broken in decoded symbols.
        framing_errors: Events => "Look for forged packets, or a source of another version.",
        /// Source of a sealed flow: IP packets dropped, because there were no keys to encrypt them
        /// with.
        seal_failed: Packets => "Nothing, if few: keys come with the first handshake. Else look \
            for what keeps the other end from answering.",
        /// Source of a tagged flow: symbols that got no tag, because keys were gone. They are
        /// refused by who verifies them.
        tag_failed: Symbols => "Nothing, if few: keys have changed. Else look for what keeps the \
            other end from answering.",
        /// Source of a tagged stream: IP packets encoded again under new keys, because the sink
        /// restarted and lost the previous keys.
        encoded_again: Packets,
        /// Relay and sink of a tagged flow: packets whose symbols were verified.
        tag_verified: Packets,
        /// Relay and sink of a tagged flow: packets from the neighbour before this node that were
        /// dropped, because the tags of their symbols were wrong.
        tag_refused: Packets => "Look for a relay that changes packets: this neighbour, or one \
            before it.",
        /// Relay and sink of a tagged flow: times that a neighbour sent too many symbols with wrong
        /// tags (`wrong_tags_max`). It is rekeyed and, if other neighbours bring the flow, ignored
        /// for a while.
        quarantines: Events => "Look for the relay that changes packets: this neighbour, or one \
            before it.",
        /// Sink of a sealed flow: packets dropped, because there were no keys to decrypt them with.
        unseal_no_keys: Packets => "Nothing, if few: keys come with the first handshake. Else look \
            for keys that differ at the ends.",
        /// Sink of a sealed flow: packets dropped, because they were changed in transit or
        /// replayed.
        unseal_refused: Packets => "Look for a relay that changes packets, or for one that replays \
            them.",
        /// Sink of a sealed flow: IP packets dropped, because they were in the clear.
        clear_refused: Packets => "Seal the flow at its source; if it is, look for forged packets.",
        /// Sink of a flow in the clear: packets dropped, because they were sealed.
        sealed_refused: Packets => "Seal the flow here, too.",
        /// Sink: time from the first packet of a generation or block to its last symbol, summed
        /// over those that were complete. Streams: from the first sign of a lost symbol until its
        /// recovery, summed over those.
        decode_delay_nanos: Nanos,
        /// Longest such time.
        decode_delay_nanos_max: NanosMax,
    }
    beside {
        /// Rank histogram of full-size generations or batches when they closed, index = rank (relay
        /// and sink).
        rank_histogram: Vec<u64>,
    }
}

impl FlowCounters {
    /// Notes that a generation or block was complete this many nanoseconds after its first packet.
    pub fn decoded_after(&mut self, nanos: u64) {
        self.decode_delay_nanos += nanos;
        self.decode_delay_nanos_max = self.decode_delay_nanos_max.max(nanos);
    }
}
