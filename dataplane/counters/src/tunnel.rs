//! Counters of a tunnel.

use crate::Table;

/// Counters of a tunnel.
pub const TABLE: Table =
    Table { owner: "a tunnel", parts: &[TunnelCounters::TABLE, QueueDrop::TABLE] };

reasons! {
    /// Why the queue behind a tunnel dropped a packet. One counter each.
    QueueDrop: Packets {
        /// Packets dropped because those of their flow had waited for longer than 10 ms (20 ms over
        /// long round trips) for 200 ms, so that its sender slows down (CoDel).
        Delay = "queue_delay",
        /// Packets dropped because the queue was full; they are of the flow that held most of it.
        Full = "queue_full" => "Nothing, if few: senders that begin. Else limit those that do \
            not slow down when packets are lost.",
        /// Packets dropped because they were longer than 2048 bytes and the configured MTU of the
        /// tunnel.
        Oversize = "queue_oversize" => "Set the MTU in the configuration, not by hand.",
        /// Packets dropped because the flow of the tunnel ended or moved to another worker while
        /// they waited.
        Closed = "queue_closed",
    }
}

counters! {
    /// Packets of one tunnel, counted by the workers.
    #[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
    TunnelCounters {
        /// IP packets read from the tunnel.
        read_packets: Packets,
        /// Their bytes.
        read_bytes: Bytes,
        /// Of the packets read, those that waited in the worker's queue because what comes of them
        /// could not leave at once.
        queued_packets: Packets,
        /// Of these, those marked as having met congestion (ECN) where others would have been
        /// dropped for their delay.
        queue_marked: Packets,
        /// Reads that Linux refused, or whose virtio header contradicts the packet.
        read_failed: Events => "Nothing, if the tunnel was deleted. Else report it, with the version \
            of Linux.",
        /// IP packets written to the tunnel.
        written_packets: Packets,
        /// Their bytes.
        written_bytes: Bytes,
        /// IP packets that Linux did not take: its queue was full, they were not IP, or the tunnel
        /// was gone.
        write_failed: Packets => "Set the tunnel up, and see that its receivers keep pace.",
        /// Writes that carried the packets written: fewer where packets were merged.
        writes: Events,
        /// Times the interface was recreated after it had been deleted.
        recreated: Events => "Find out who deletes the interface.",
    }
    by {
        /// Of the packets queued, those dropped, by [`QueueDrop`].
        queue_dropped: QueueDrop,
    }
}

impl TunnelCounters {
    /// Counts packets that the queue drops.
    pub fn drop_queued(&mut self, reason: QueueDrop, packets: u64) {
        self.queue_dropped[reason as usize] += packets;
    }
}
