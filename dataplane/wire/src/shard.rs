//! Shards of a flow, each with a UDP source port of its own, as RFC 7510 does for MPLS in UDP.
//!
//! A shard is a stream of coded packets with unit numbers, link sequence numbers and feedback of
//! its own. Receive-side scaling hashes the source port, so all packets of a shard meet on one
//! queue and one core, while the shards of a flow spread over all of them; no node mistakes packets
//! received on another queue for losses. The source sends every inner flow over one shard, so that
//! its packets arrive in order.

pub use crate::header::SHARDS_MAX;
use crate::header::{FLOW_OFFSET, HEADER_BYTES, SHARD_OFFSET, word};

/// First port of the range used (the IANA dynamic range).
const PORT_FIRST: u16 = 49152;

/// Source port of a flow's shard.
pub fn source_port(flow: u32, shard: u8) -> u16 {
    // Fibonacci hashing: neighbouring flow ids land far apart. 10 bits of flow, 4 of shard.
    let group = flow.wrapping_mul(0x9E37_79B1) >> 22;
    PORT_FIRST + ((group as u16) << 4) + u16::from(shard) % SHARDS_MAX as u16
}

/// Source port of the shard named in a packet, wherever it came from; for packets that are too
/// short to name one, that of shard 0 of flow 0.
#[inline]
pub fn source_port_of(packet: &[u8]) -> u16 {
    match packet.first_chunk::<HEADER_BYTES>() {
        Some(header) => source_port(word(header, FLOW_OFFSET), header[SHARD_OFFSET]),
        None => source_port(0, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::{Header, PacketType, tests::headers};

    proptest::proptest! {
        #[test]
        fn source_port_stays_in_the_dynamic_range(flow: u32, shard: u8) {
            proptest::prop_assert!(source_port(flow, shard) >= PORT_FIRST);
        }

        #[test]
        fn source_port_of_a_packet_is_that_of_its_header(
            header in headers(PacketType::Stream, 0), more: [u8; 3],
        ) {
            let mut packet = [0; HEADER_BYTES + 3];
            packet[HEADER_BYTES..].copy_from_slice(&more);
            header.write(&mut packet);
            let Header { flow, shard, .. } = header;
            proptest::prop_assert_eq!(source_port_of(&packet), source_port(flow, shard));
            let short = &packet[..HEADER_BYTES - 1];
            proptest::prop_assert_eq!(source_port_of(short), source_port(0, 0));
        }
    }

    #[test]
    fn source_port_differs_between_shards_of_a_flow() {
        let ports: std::collections::BTreeSet<u16> =
            (0..SHARDS_MAX as u8).map(|shard| source_port(7, shard)).collect();
        assert_eq!(ports.len(), SHARDS_MAX);
    }
}
