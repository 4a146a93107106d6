//! The coded packets of the load: systematic packets of consecutive generations, as a source sends
//! them in every shard, without those that the link before the relay has lost.

use std::net::IpAddr;

use recoded_gf::FieldOrder;
use recoded_pipeline::params::FlowCode;
use recoded_runtime::encap::Encap;
use recoded_runtime::symbol_bytes_max;
use recoded_wire::DEFAULT_PORT;
use recoded_wire::coded::{CODED_BYTES, CodedHeader, INDEX_BYTES, log2_ceil, write_index};
use recoded_wire::header::{Flags, Header, PacketType};
use recoded_wire::shard::source_port;

use crate::relay::bed::{IN, LOAD};

/// Flow id of all packets.
pub const FLOW: u32 = 7;
/// Symbols per generation, and packets planned per generation on every hop.
pub const GENERATION_SIZE: usize = 16;
/// Field of the coding coefficients.
pub const FIELD: FieldOrder = FieldOrder::Sixteen;
/// Share of packets lost in front of the relay.
pub const LOSS: f64 = 0.1;

/// Bytes of all headers of a systematic packet, from Ethernet to the symbol index.
pub const HEADERS_BYTES: usize = 14 + 20 + 8 + CODED_BYTES + INDEX_BYTES;

/// The first packet of a shard, symbol 0 of generation 0. The load derives all others from it.
pub struct Packet(Vec<u8>);

impl Packet {
    /// A packet of `shard` to `destination` whose recoded form is an IP packet of `packet_bytes`.
    /// The packet itself is 4 bytes shorter: its symbol index takes 4 bytes, the coding vector of a
    /// recoded packet 8.
    ///
    /// `None` if not even one byte of symbol fits.
    pub fn new(packet_bytes: usize, destination: IpAddr, shard: u8) -> Option<Packet> {
        let encap = Encap::new(LOAD.mac, IN.mac, LOAD.address, destination, DEFAULT_PORT)?;
        // Bytes without a pattern that arithmetic could profit from.
        let symbol = (0..symbol_bytes(packet_bytes)? as u32)
            .map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8);
        let mut packet: Vec<u8> = [0; HEADERS_BYTES].into_iter().chain(symbol).collect();
        let common = Header {
            packet_type: PacketType::Generation,
            flags: Flags(Flags::SYSTEMATIC | FIELD.code()),
            epoch: 0,
            shard,
            flow: FLOW,
            link_sequence: 0,
            hop_index: 0,
        };
        let header = CodedHeader {
            common,
            size: GENERATION_SIZE as u16,
            full_log2: log2_ceil(GENERATION_SIZE),
            planned: GENERATION_SIZE as u16,
            generation: 0,
        };
        let payload = &mut packet[encap.header_bytes()..];
        header.write(payload);
        write_index(payload, false, 0);
        encap.write(&mut packet, source_port(FLOW, shard), 0);
        Some(Packet(packet))
    }

    /// All of it.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Its headers.
    pub fn headers(&self) -> [u8; HEADERS_BYTES] {
        std::array::from_fn(|index| self.0[index])
    }
}

/// Bytes of symbol in an IP packet of `packet_bytes` when it carries a coding vector.
pub fn symbol_bytes(packet_bytes: usize) -> Option<usize> {
    let header_bytes = FlowCode::Rlnc.header_bytes(GENERATION_SIZE, FIELD);
    symbol_bytes_max(packet_bytes, IN.address, header_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use recoded_wire::coded::{PackedCoding, parse_coded};
    use recoded_wire::packet::locate;

    #[test]
    fn packet_of_each_size_is_the_coded_packet_it_should_be() {
        for packet_bytes in [256, 1500] {
            let packet = Packet::new(packet_bytes, IN.address, 5).unwrap();
            let found = locate(packet.bytes()).unwrap();
            let payload = &packet.bytes()[found.payload_offset..][..found.payload_len];
            let coded = parse_coded(payload).unwrap();
            assert_eq!(coded.coding, PackedCoding::Systematic(0));
            assert_eq!((coded.header.generation, coded.header.planned), (0, 16));
            assert_eq!(coded.header.common.shard, 5);
            assert_eq!(Some(coded.symbol_bytes), symbol_bytes(packet_bytes));
            assert_eq!(found.payload_offset + coded.symbol_offset, HEADERS_BYTES);
            let recoded_bytes = packet.bytes().len() - INDEX_BYTES + 8;
            assert_eq!(recoded_bytes, 14 + packet_bytes, "with a vector of 16 elements of 4 bits");
        }
    }

    #[test]
    fn packet_without_room_for_a_symbol_is_none() {
        assert!(Packet::new(HEADERS_BYTES, IN.address, 0).is_some());
        assert!(Packet::new(56, IN.address, 0).is_none());
    }
}
