//! Shards of a flow, each with a UDP source port of its own, as RFC 7510 does for MPLS in UDP.
//!
//! A shard is a stream of coded packets with unit numbers, link sequence numbers and feedback of
//! its own. Receive-side scaling hashes the source port, so all packets of a shard meet on one
//! queue and one core, while the shards of a flow spread over all of them; no node takes for lost
//! what another queue received. The source sends every inner flow by one shard, so that its packets
//! arrive in order.

/// Most shards of a flow.
pub const SHARDS_MAX: usize = 16;

/// First port of the range used (the IANA dynamic range).
const PORT_FIRST: u16 = 49152;

/// Source port of a flow's shard.
pub fn source_port(flow: u32, shard: u8) -> u16 {
    // Fibonacci hashing: neighbouring flow ids land far apart. 10 bits of flow, 4 of shard.
    let group = flow.wrapping_mul(0x9E37_79B1) >> 22;
    PORT_FIRST + ((group as u16) << 4) + u16::from(shard) % SHARDS_MAX as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn source_port_stays_in_the_dynamic_range(flow: u32, shard: u8) {
            proptest::prop_assert!(source_port(flow, shard) >= PORT_FIRST);
        }
    }

    #[test]
    fn source_port_differs_between_shards_of_a_flow() {
        let ports: std::collections::BTreeSet<u16> =
            (0..SHARDS_MAX as u8).map(|shard| source_port(7, shard)).collect();
        assert_eq!(ports.len(), SHARDS_MAX);
    }
}
