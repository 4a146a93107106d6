//! Handshake messages after a header. Those between neighbours belong to no flow: the field is
//! zero, and is ignored on receipt. Those between edges follow the path of their flow's packets.
//!
//! ```text
//!  hop:   | header, type 7 | message |                  from neighbour to neighbour, without a tag
//!         | header, type 7 | trailer of the hop |       hello: no message
//!  edge:  | header, type 7, EDGE | message | trailer |  from edge to edge, passed on by relays; or
//!                                                       from the source to one of them: a grant
//!         | header, type 7, EDGE | envelope | trailer | hello: an envelope of an empty packet
//! ```
//!
//! Trailers are those of `dataplane/secure`, on links that have keys. The contents of a message are
//! read there, too.

use crate::header::{Flags, HEADER_BYTES, Header, HeaderError, PacketType};

/// Largest number of hops that a message between edges travels.
pub const EDGE_HOPS_MAX: u8 = 64;

/// Longest message: a grant of columns of three epochs.
pub const MESSAGE_BYTES_MAX: usize = 460;

/// Parses the header of a handshake packet, with or without a trailer.
///
/// # Errors
/// [`HeaderError`] when it is of another type, has unknown flags, or is too long.
pub fn parse_handshake(payload: &[u8]) -> Result<Header, HeaderError> {
    let header = Header::parse(payload)?;
    if header.packet_type != PacketType::Handshake {
        return Err(HeaderError::Type(header.packet_type as u8));
    }
    if header.flags.0 & !Flags::EDGE != 0 {
        return Err(HeaderError::Flags(header.flags.0));
    }
    let is_long = payload.len() > HEADER_BYTES + MESSAGE_BYTES_MAX;
    if is_long || header.hop_index > EDGE_HOPS_MAX { Err(HeaderError::Value) } else { Ok(header) }
}

/// Writes the packet of a message between neighbours to the start of `out`; without a message, that
/// of a hello. Returns its length.
///
/// # Panics
/// When the message is longer than [`MESSAGE_BYTES_MAX`] or `out` too short.
pub fn write_hop_handshake(message: &[u8], out: &mut [u8]) -> usize {
    write_handshake(0, false, message, out)
}

/// Writes the packet of a message between the edges of `flow` to the start of `out`. Returns its
/// length.
///
/// # Panics
/// Like [`write_hop_handshake`].
pub fn write_edge_handshake(flow: u32, message: &[u8], out: &mut [u8]) -> usize {
    write_handshake(flow, true, message, out)
}

fn write_handshake(flow: u32, is_edge: bool, message: &[u8], out: &mut [u8]) -> usize {
    assert!(message.len() <= MESSAGE_BYTES_MAX, "{} bytes", message.len());
    let header = Header {
        packet_type: PacketType::Handshake,
        flags: Flags::default().with(Flags::EDGE, is_edge),
        epoch: 0,
        shard: 0,
        flow,
        link_sequence: 0,
        hop_index: 0,
    };
    header.write(out);
    out[HEADER_BYTES..][..message.len()].copy_from_slice(message);
    HEADER_BYTES + message.len()
}

/// Counts a hop that a message between edges has travelled. Returns false after too many.
///
/// # Panics
/// When `packet` is shorter than a header.
//= docs/protocol §2.9(c)
pub fn travel(packet: &mut [u8]) -> bool {
    const HOP_INDEX_OFFSET: usize = 12;
    packet[HOP_INDEX_OFFSET] = packet[HOP_INDEX_OFFSET].saturating_add(1);
    packet[HOP_INDEX_OFFSET] <= EDGE_HOPS_MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        //= docs/protocol §2.9(c)
        #[test]
        fn written_messages_are_read_again_and_travel_a_bounded_way(
            flow: u32, is_edge: bool,
            message in prop::collection::vec(any::<u8>(), 0..=MESSAGE_BYTES_MAX),
        ) {
            let mut packet = [0; HEADER_BYTES + MESSAGE_BYTES_MAX];
            let len = match is_edge {
                true => write_edge_handshake(flow, &message, &mut packet),
                false => write_hop_handshake(&message, &mut packet),
            };
            let flow = if is_edge { flow } else { 0 };
            let packet = &mut packet[..len];
            let header = parse_handshake(packet).unwrap();
            prop_assert_eq!((header.flow, header.flags.has(Flags::EDGE)), (flow, is_edge));
            prop_assert_eq!(&packet[HEADER_BYTES..], &message[..]);
            let hops = (0..=u16::from(u8::MAX)).filter(|_| travel(packet)).count();
            prop_assert_eq!(hops, usize::from(EDGE_HOPS_MAX));
            prop_assert!(parse_handshake(packet).is_err());
        }

        #[test]
        fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse_handshake(&bytes);
        }
    }
}
