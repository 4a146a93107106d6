//! Batch entropy in the UDP source port, as RFC 7510 does for MPLS in UDP.
//!
//! Receive-side scaling hashes the source port, so all packets of one generation meet on one queue
//! and one core, while the generations of one flow spread over all of them. A flow uses
//! [`BUCKETS`] ports rather than a free one per generation: a link sequence number is kept per
//! bucket, so that each receiving queue sees gapless numbers and can measure loss without locks.

use crate::header::{Block, Header, PacketType};

/// Source ports per flow.
pub const BUCKETS: usize = 16;

/// First port of the range used (the IANA dynamic range).
const PORT_FIRST: u16 = 49152;

/// Bucket of a generation: consecutive generations take turns.
pub fn bucket(generation: u32) -> usize {
    generation as usize % BUCKETS
}

/// Bucket of a coded packet: that of its generation, or, for a batch, that of its block, whose
/// batches must meet at the sink. A window flow is one stream that one decoder follows: it has one
/// bucket, which keeps its order and lets bursts of losses be seen as such.
pub fn bucket_of(header: &Header, block: Option<&Block>) -> usize {
    if header.packet_type == PacketType::Window {
        return 0;
    }
    bucket(block.map_or(header.generation, |block| u32::from(block.number)))
}

/// Source port of a flow's bucket.
pub fn source_port(flow: u32, bucket: usize) -> u16 {
    // Fibonacci hashing: neighbouring flow ids land far apart. 10 bits of flow, 4 of bucket.
    let group = flow.wrapping_mul(0x9E37_79B1) >> 22;
    PORT_FIRST + ((group as u16) << 4) + (bucket % BUCKETS) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn source_port_stays_in_the_dynamic_range(flow: u32, bucket in 0usize..64) {
            proptest::prop_assert!(source_port(flow, bucket) >= PORT_FIRST);
        }
    }

    #[test]
    fn source_port_differs_between_buckets_of_a_flow() {
        let ports: std::collections::BTreeSet<u16> =
            (0..BUCKETS).map(|bucket| source_port(7, bucket)).collect();
        assert_eq!(ports.len(), BUCKETS);
    }
}
