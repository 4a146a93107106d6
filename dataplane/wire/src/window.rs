//! Packets of window flows: the header, then exactly the bytes of RFC 8681.
//!
//! The README of this folder draws them. Every value comes from the network: nothing here panics or
//! allocates, and whether a flow may use these sizes is the pipeline's decision.

use crate::header::{Flags, HEADER_BYTES, Header, HeaderError, PacketType};

/// Most bytes that a packet carries in addition to its symbol: the Repair FEC Payload ID of RFC
/// 8681, section 4.1.3.
pub const WINDOW_BYTES: usize = 8;

/// Bytes of the Explicit Source FEC Payload ID at the end of a source packet (RFC 8681 section
/// 4.1.2).
pub const SOURCE_ID_BYTES: usize = 4;

/// Bytes of a symbol before its ADU: flow ID and length (RFC 8681 section 3.2).
pub const ADU_HEADER_BYTES: usize = 3;

/// Unit of the size of encoding windows in a header.
const WINDOW_STEP: u16 = 16;

/// Field codes of FEC Encoding IDs 9 and 10: orders 2 and 256.
const FIELD_CODES: [u8; 2] = [0, 3];

/// A packet of a window flow, its shape checked. The bytes after the header go unchanged to a
/// decoder of RFC 8681.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct WindowPacket {
    /// Header common to all packets.
    pub header: Header,
    /// E, bytes of a symbol.
    pub symbol_bytes: u16,
    /// Most source symbols of an encoding window of this epoch: a multiple of 16, to 4096.
    pub window_symbols: u16,
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

    /// Whether each hop recovers its own losses.
    pub fn is_mended(&self) -> bool {
        self.header.flags.has(Flags::MENDED)
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
/// disagree about lengths, or flags or field do not belong to a scheme.
#[inline]
pub fn parse_window(payload: &[u8]) -> Result<WindowPacket, HeaderError> {
    let header = Header::parse(payload)?;
    if header.packet_type != PacketType::Window {
        return Err(HeaderError::Type(header.packet_type as u8));
    }
    let header = header.with_flags_of(Flags::SYSTEMATIC | Flags::MENDED)?;
    if !FIELD_CODES.contains(&header.flags.field_code()) {
        return Err(HeaderError::Flags(header.flags.0));
    }
    let window_symbols = (u16::from(payload[13]) + 1) * WINDOW_STEP;
    let symbol_bytes = u16::from_be_bytes([payload[14], payload[15]]);
    let (body, bytes) = (&payload[HEADER_BYTES..], usize::from(symbol_bytes));
    let (first, symbols) = if header.flags.has(Flags::SYSTEMATIC) {
        let (adu, id) = body.split_last_chunk().ok_or(HeaderError::Truncated)?;
        if ADU_HEADER_BYTES + adu.len() > bytes {
            return Err(HeaderError::Value);
        }
        (u32::from_be_bytes(*id), 1)
    } else {
        let (id, symbol) =
            body.split_first_chunk::<WINDOW_BYTES>().ok_or(HeaderError::Truncated)?;
        let [_, _, high, low, first @ ..] = *id;
        if symbol.len() < bytes {
            return Err(HeaderError::Truncated);
        }
        if symbol.len() > bytes || bytes < ADU_HEADER_BYTES {
            return Err(HeaderError::Value);
        }
        (u32::from_be_bytes(first), u16::from_be_bytes([high & 15, low]))
    };
    if symbols == 0 || symbols > window_symbols {
        return Err(HeaderError::Value);
    }
    Ok(WindowPacket { header, symbol_bytes, window_symbols, first, symbols })
}

/// Writes the header of a window packet to the start of `out`: its symbols have `symbol_bytes`, its
/// encoding windows `window_symbols`.
///
/// # Panics
/// When `out` is shorter than [`HEADER_BYTES`] or the window is not 1 to 4096 symbols.
pub fn write_header(header: &Header, symbol_bytes: u16, window_symbols: u16, out: &mut [u8]) {
    assert!((1..=WINDOW_STEP << 8).contains(&window_symbols), "window of {window_symbols}");
    header.write(out);
    out[13] = ((window_symbols - 1) / WINDOW_STEP) as u8;
    out[14..16].copy_from_slice(&symbol_bytes.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::VERSION;
    use proptest::prelude::*;
    use std::vec;
    use std::vec::Vec;

    fn packet(flags: u8, symbol_bytes: u16, body: &[u8]) -> Vec<u8> {
        let header = Header {
            packet_type: PacketType::Window,
            flags: Flags(flags),
            epoch: 0,
            shard: 0,
            flow: 7,
            link_sequence: 0,
            hop_index: 0,
        };
        let mut bytes = vec![0; HEADER_BYTES];
        write_header(&header, symbol_bytes, 300, &mut bytes);
        bytes.extend_from_slice(body);
        bytes
    }

    const SOURCE: u8 = Flags::SYSTEMATIC | 3;

    #[test]
    fn layout_is_the_documented_one() {
        let source = packet(SOURCE, 5, &[0x45, 0x46, 1, 2, 3, 4]);
        assert_eq!(source[12..16], [0, 18, 0, 5]);
        let parsed = parse_window(&source).unwrap();
        assert_eq!(parsed.window_symbols, 304);
        assert!(parsed.is_source());
        assert_eq!(
            (parsed.first, parsed.last(), parsed.symbol_bytes),
            (0x0102_0304, 0x0102_0304, 5)
        );
        assert!(!parsed.is_mended());
        assert!(
            parse_window(&packet(SOURCE | Flags::MENDED, 3, &[1, 2, 3, 4])).unwrap().is_mended()
        );
        // Repair key 9, DT 15, NSS 0x102, first ESI, one symbol.
        let repair = packet(3, 3, &[0, 9, 0xF1, 2, 255, 255, 255, 255, 1, 2, 3]);
        let parsed = parse_window(&repair).unwrap();
        assert!(!parsed.is_source());
        assert_eq!((parsed.first, parsed.symbols, parsed.last()), (u32::MAX, 0x102, 0x100));
    }

    #[test]
    fn packets_that_contradict_themselves_are_refused() {
        let adu = [0x45, 0x46, 0, 0, 0, 9];
        let value = HeaderError::Value;
        let refused = [
            (packet(SOURCE, 4, &adu), value),
            (packet(SOURCE | Flags::END, 5, &adu), HeaderError::Flags(SOURCE | Flags::END)),
            (packet(SOURCE | 0x10, 5, &adu), HeaderError::Flags(SOURCE | 0x10)),
            (packet(Flags::SYSTEMATIC | 1, 5, &adu), HeaderError::Flags(Flags::SYSTEMATIC | 1)),
            (packet(3, 2, &[0, 0, 0xF0, 1, 0, 0, 0, 9, 1, 2]), value),
            (packet(3, 3, &[0, 0, 0xF0, 0, 0, 0, 0, 9, 1, 2, 3]), value),
            (packet(3, 3, &[0, 0, 0xF0, 1, 0, 0, 0, 9, 1, 2, 3, 4]), value),
        ];
        for (bytes, error) in refused {
            assert_eq!(parse_window(&bytes), Err(error), "{bytes:?}");
        }
        let mut other = packet(SOURCE, 5, &adu);
        other[0] = VERSION << 4 | PacketType::Generation as u8;
        assert_eq!(parse_window(&other), Err(HeaderError::Type(2)));
    }

    proptest! {
        #[test]
        fn truncated_packets_are_refused(cut in 0usize..27) {
            let repair = packet(3, 3, &[0, 0, 0xF0, 1, 0, 0, 0, 9, 1, 2, 3]);
            prop_assert!(parse_window(&repair).is_ok());
            prop_assert!(parse_window(&repair[..cut]).is_err());
            // A source packet is as long as its UDP datagram.
            let source = packet(SOURCE, 11, &[1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 9]);
            prop_assert_eq!(parse_window(&source[..cut]).is_ok(), cut >= 20);
        }

        #[test]
        fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(packet) = parse_window(&bytes) {
                prop_assert!(packet.symbols > 0);
            }
        }
    }
}
