//! Packets of window flows: the fixed header, then exactly the bytes of RFC 8681.
//!
//! The README of this folder draws them. Every value comes from the network: nothing here panics or
//! allocates, and whether a flow may use these sizes is the pipeline's decision.

use crate::header::{Flags, HEADER_BYTES, Header, HeaderError, PacketType, WINDOW_BYTES};

/// Bytes of the Explicit Source FEC Payload ID at the end of a source packet (RFC 8681 section
/// 4.1.2).
pub const SOURCE_ID_BYTES: usize = 4;

/// Bytes of a symbol before its ADU: flow ID and length (RFC 8681 section 3.2).
pub const ADU_HEADER_BYTES: usize = 3;

/// Field codes of FEC Encoding IDs 9 and 10: orders 2 and 256.
const FIELD_CODES: [u8; 2] = [0, 3];

/// A packet of a window flow, its shape checked. What follows the fixed header is for a decoder of
/// RFC 8681 as it is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct WindowPacket {
    /// The fixed header.
    pub header: Header,
    /// E, bytes of a symbol.
    pub symbol_bytes: u16,
    /// Source symbols (ESIs) that it carries or combines: the first, and how many.
    pub first: u32,
    /// One in a source packet, up to 4095 in a repair packet.
    pub symbols: u16,
}

impl WindowPacket {
    /// Whether it carries a source symbol; otherwise it is a repair packet.
    pub fn is_source(&self) -> bool {
        self.header.flags.has(Flags::SYSTEMATIC)
    }

    /// The newest ESI that it covers.
    pub fn last(&self) -> u32 {
        self.first.wrapping_add(u32::from(self.symbols) - 1)
    }
}

/// Parses a packet of a window flow.
///
/// # Errors
/// [`HeaderError`] when it is of another type; when bytes are missing; or when header and payload
/// disagree about ESI or lengths, a reserved flag is set, or the field is not that of a scheme.
pub fn parse_window(payload: &[u8]) -> Result<WindowPacket, HeaderError> {
    let header = Header::parse(payload)?;
    if header.packet_type != PacketType::Window {
        return Err(HeaderError::Type(header.packet_type as u8));
    }
    let flags = header.flags;
    let malformed = HeaderError::Flags(flags.0);
    if flags.0 & (Flags::SEED | Flags::TIMESTAMP | Flags::TAGGED) != 0
        || !FIELD_CODES.contains(&flags.field_code())
    {
        return Err(malformed);
    }
    let (body, symbol_bytes) = (&payload[HEADER_BYTES..], usize::from(header.planned));
    let (first, symbols) = if flags.has(Flags::SYSTEMATIC) {
        let (adu, id) = body.split_last_chunk().ok_or(HeaderError::Truncated)?;
        if ADU_HEADER_BYTES + adu.len() > symbol_bytes {
            return Err(malformed);
        }
        (u32::from_be_bytes(*id), 1)
    } else {
        let (id, symbol) =
            body.split_first_chunk::<WINDOW_BYTES>().ok_or(HeaderError::Truncated)?;
        let [_, _, high, low, first @ ..] = *id;
        if symbol.len() < symbol_bytes {
            return Err(HeaderError::Truncated);
        }
        if symbol.len() > symbol_bytes || symbol_bytes < ADU_HEADER_BYTES {
            return Err(malformed);
        }
        (u32::from_be_bytes(first), u16::from_be_bytes([high & 15, low]))
    };
    if symbols == 0 || first != header.generation {
        return Err(malformed);
    }
    Ok(WindowPacket { header, symbol_bytes: header.planned, first, symbols })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec;
    use std::vec::Vec;

    fn header(flags: u8, esi: u32, symbol_bytes: u16) -> Header {
        Header {
            packet_type: PacketType::Window,
            flags: Flags(flags),
            epoch: 0,
            size: 1,
            flow: 7,
            generation: esi,
            hop_index: 0,
            key_id: 0,
            planned: symbol_bytes,
            link_sequence: 0,
        }
    }

    fn packet(header: Header, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_BYTES];
        header.write(&mut bytes);
        bytes.extend_from_slice(body);
        bytes
    }

    const SOURCE: u8 = Flags::SYSTEMATIC | 3;

    #[test]
    fn layout_is_the_documented_one() {
        let source = packet(header(SOURCE, 0x0102_0304, 5), &[0x45, 0x46, 1, 2, 3, 4]);
        let parsed = parse_window(&source).unwrap();
        assert!(parsed.is_source());
        assert_eq!(
            (parsed.first, parsed.last(), parsed.symbol_bytes),
            (0x0102_0304, 0x0102_0304, 5)
        );
        // Repair key 9, DT 15, NSS 0x102, first ESI, one symbol.
        let repair = packet(header(3, u32::MAX, 3), &[0, 9, 0xF1, 2, 255, 255, 255, 255, 1, 2, 3]);
        let parsed = parse_window(&repair).unwrap();
        assert!(!parsed.is_source());
        assert_eq!((parsed.first, parsed.symbols, parsed.last()), (u32::MAX, 0x102, 0x100));
    }

    #[test]
    fn packets_that_contradict_themselves_are_refused() {
        let adu = [0x45, 0x46, 0, 0, 0, 9];
        let refused = [
            packet(header(SOURCE, 8, 5), &adu),
            packet(header(SOURCE, 9, 4), &adu),
            packet(header(SOURCE | Flags::SEED, 9, 5), &adu),
            packet(header(Flags::SYSTEMATIC | 1, 9, 5), &adu),
            packet(header(3, 9, 2), &[0, 0, 0xF0, 1, 0, 0, 0, 9, 1, 2]),
            packet(header(3, 9, 3), &[0, 0, 0xF0, 0, 0, 0, 0, 9, 1, 2, 3]),
            packet(header(3, 9, 3), &[0, 0, 0xF0, 1, 0, 0, 0, 9, 1, 2, 3, 4]),
        ];
        for bytes in refused {
            assert!(matches!(parse_window(&bytes), Err(HeaderError::Flags(_))), "{bytes:?}");
        }
        let other = Header { packet_type: PacketType::Generation, ..header(SOURCE, 9, 5) };
        assert_eq!(parse_window(&packet(other, &adu)), Err(HeaderError::Type(2)));
    }

    proptest! {
        #[test]
        fn truncated_packets_are_refused(cut in 0usize..28, is_source: bool) {
            let whole = if is_source {
                packet(header(SOURCE, 9, 11), &[1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 9])
            } else {
                packet(header(3, 9, 3), &[0, 0, 0xF0, 1, 0, 0, 0, 9, 1, 2, 3])
            };
            prop_assert!(parse_window(&whole).is_ok());
            prop_assert!(parse_window(&whole[..cut]).is_err());
        }

        #[test]
        fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(packet) = parse_window(&bytes) {
                prop_assert!(packet.symbols > 0);
            }
        }
    }
}
