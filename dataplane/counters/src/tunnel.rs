//! Counters of a tunnel.

use crate::Table;

/// Counters of a tunnel.
pub const TABLE: Table = Table { owner: "a tunnel", parts: &[TunnelCounters::TABLE] };

counters! {
    /// Packets of one tunnel, counted by the workers.
    #[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
    TunnelCounters {
        /// IP packets read from the tunnel.
        read_packets: Packets,
        /// Their bytes.
        read_bytes: Bytes,
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
        /// Times the interface was made again after somebody deleted it.
        recreated: Events => "Find out who deletes the interface.",
    }
}
