//! Packets of streams: a sliding window that every hop keeps whole on its own.
//!
//! The README of this folder draws them. Every value comes from the network: nothing here panics or
//! allocates, and whether a flow may use these sizes is the pipeline's decision.

use crate::header::{Flags, HEADER_BYTES, Header, HeaderError, PacketType, word};

/// Bytes in front of the IP packet in a packet of a stream.
pub const STREAM_BYTES: usize = HEADER_BYTES + 6;

/// Most bytes in front of or beside the IP packets that a packet of a stream carries or combines.
pub const STREAM_OVERHEAD_BYTES: usize = STREAM_BYTES + 18;

/// Bytes of a keepalive.
pub const KEEPALIVE_BYTES: usize = HEADER_BYTES;

/// Binary logarithms of the number of symbols that nodes keep.
pub const STREAM_LOG2_MIN: u8 = 6;
/// See [`STREAM_LOG2_MIN`].
pub const STREAM_LOG2_MAX: u8 = 15;

/// Nanoseconds in a unit of [`StreamHeader::round_trips`].
const ROUND_TRIPS_UNIT_NANOS: u64 = 250_000;

/// What every packet of a stream says.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct StreamHeader {
    /// What every packet says.
    pub common: Header,
    /// Binary logarithm of the symbols that nodes keep in this epoch.
    pub window_log2: u8,
    /// Sum of the round trips of the hops travelled, in units of 1/4 ms; saturates. Hop-mutable.
    pub round_trips: u16,
}

impl StreamHeader {
    /// Symbols that nodes keep.
    pub fn window_symbols(&self) -> usize {
        1 << self.window_log2
    }

    /// Sum of the round trips of the hops travelled, in nanoseconds.
    pub fn round_trips_nanos(&self) -> u64 {
        u64::from(self.round_trips) * ROUND_TRIPS_UNIT_NANOS
    }

    /// This header with one round trip more.
    #[must_use]
    pub fn with_round_trip(self, nanos: u64) -> StreamHeader {
        let units = u16::try_from(nanos.div_ceil(ROUND_TRIPS_UNIT_NANOS)).unwrap_or(u16::MAX);
        StreamHeader { round_trips: self.round_trips.saturating_add(units), ..self }
    }

    /// Writes the header to the start of `out`.
    ///
    /// # Panics
    /// When `out` is shorter than [`HEADER_BYTES`] or the window out of range.
    pub fn write(&self, out: &mut [u8]) {
        let range = STREAM_LOG2_MIN..=STREAM_LOG2_MAX;
        assert!(range.contains(&self.window_log2), "window of 2^{}", self.window_log2);
        self.common.write(out);
        out[13] = self.window_log2;
        out[14..16].copy_from_slice(&self.round_trips.to_be_bytes());
    }
}

/// A symbol of a stream: one IP packet.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct StreamSymbol {
    /// Its number, the same on every hop.
    pub number: u32,
    /// How many numbers before it the packet is that must be delivered first; 0 for none.
    pub after: u16,
    /// Bytes of the IP packet.
    pub bytes: u16,
}

/// A packet of a stream, its shape checked.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct StreamPacket {
    /// What every packet of a stream says.
    pub header: StreamHeader,
    /// What it carries; `None` for a keepalive.
    pub symbol: Option<StreamSymbol>,
}

/// Parses a packet of a stream.
///
/// # Errors
/// [`HeaderError`] when it is of another type, bytes are missing, or flags or sizes are none that a
/// source sends.
#[inline]
pub fn parse_stream(payload: &[u8]) -> Result<StreamPacket, HeaderError> {
    let common = Header::parse(payload)?;
    if common.packet_type != PacketType::Stream {
        return Err(HeaderError::Type(common.packet_type as u8));
    }
    let carries = common.flags.has(Flags::SYSTEMATIC);
    let allowed = if carries { Flags::SYSTEMATIC | Flags::REPAIR } else { Flags::END };
    let flags = common.flags.0;
    if flags & !allowed != 0 || (!carries && flags != Flags::END) {
        return Err(HeaderError::Flags(flags));
    }
    let window_log2 = payload[13];
    if !(STREAM_LOG2_MIN..=STREAM_LOG2_MAX).contains(&window_log2) {
        return Err(HeaderError::Value);
    }
    let round_trips = u16::from_be_bytes([payload[14], payload[15]]);
    let header = StreamHeader { common, window_log2, round_trips };
    if !carries {
        return Ok(StreamPacket { header, symbol: None });
    }
    let (head, packet) =
        payload.split_first_chunk::<STREAM_BYTES>().ok_or(HeaderError::Truncated)?;
    let bytes = u16::try_from(packet.len()).map_err(|_| HeaderError::Value)?;
    let (number, after) = (word(head, HEADER_BYTES), u16::from_be_bytes([head[20], head[21]]));
    if bytes == 0 || usize::from(after) >= header.window_symbols() {
        return Err(HeaderError::Value);
    }
    Ok(StreamPacket { header, symbol: Some(StreamSymbol { number, after, bytes }) })
}

/// Writes what stands between header and IP packet.
///
/// # Panics
/// When `out` is shorter than [`STREAM_BYTES`].
pub fn write_symbol(symbol: &StreamSymbol, out: &mut [u8]) {
    out[HEADER_BYTES..][..4].copy_from_slice(&symbol.number.to_be_bytes());
    out[HEADER_BYTES + 4..][..2].copy_from_slice(&symbol.after.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::tests::headers;
    use proptest::prelude::*;
    use std::vec;

    proptest! {
        #[test]
        fn a_packet_written_then_parsed_is_itself(
            common in headers(PacketType::Stream, Flags::REPAIR),
            (window_log2, round_trips) in (STREAM_LOG2_MIN..=STREAM_LOG2_MAX, any::<u16>()),
            (number, after, bytes) in (any::<u32>(), 0u16..64, 1u16..300),
        ) {
            let common = Header { flags: common.flags.with(Flags::SYSTEMATIC, true), ..common };
            let header = StreamHeader { common, window_log2, round_trips };
            let symbol = StreamSymbol { number, after, bytes };
            let mut payload = vec![0x45; STREAM_BYTES + usize::from(bytes)];
            header.write(&mut payload);
            write_symbol(&symbol, &mut payload);
            prop_assert_eq!(parse_stream(&payload), Ok(StreamPacket { header, symbol: Some(symbol) }));
            let cut = &payload[..STREAM_BYTES];
            prop_assert_eq!(parse_stream(cut), Err(HeaderError::Value), "no IP packet");
            prop_assert_eq!(parse_stream(&cut[..STREAM_BYTES - 1]), Err(HeaderError::Truncated));
        }

        #[test]
        fn random_bytes_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 16..60)) {
            bytes[0] = crate::header::VERSION << 4 | PacketType::Stream as u8;
            let _ = parse_stream(&bytes);
        }
    }

    #[test]
    fn packets_that_contradict_themselves_are_refused() {
        let common = Header {
            packet_type: PacketType::Stream,
            flags: Flags(Flags::END),
            epoch: 1,
            shard: 2,
            flow: 3,
            link_sequence: 4,
            hop_index: 5,
        };
        let mut bytes = [0; 40];
        let header = StreamHeader { common, window_log2: 6, round_trips: 7 };
        header.write(&mut bytes);
        assert_eq!(parse_stream(&bytes), Ok(StreamPacket { header, symbol: None }));
        for flags in [0, Flags::SYSTEMATIC | Flags::END, Flags::REPAIR, Flags::RECODED] {
            bytes[1] = flags;
            assert_eq!(parse_stream(&bytes), Err(HeaderError::Flags(flags)));
        }
        bytes[1] = Flags::SYSTEMATIC;
        bytes[21] = 64;
        assert_eq!(parse_stream(&bytes), Err(HeaderError::Value), "before the window");
        bytes[21] = 63;
        assert!(parse_stream(&bytes).is_ok());
        for log2 in [STREAM_LOG2_MIN - 1, STREAM_LOG2_MAX + 1] {
            bytes[13] = log2;
            assert_eq!(parse_stream(&bytes), Err(HeaderError::Value));
        }
    }

    #[test]
    fn round_trips_add_up_and_saturate() {
        let common = Header {
            packet_type: PacketType::Stream,
            flags: Flags(Flags::END),
            epoch: 0,
            shard: 0,
            flow: 0,
            link_sequence: 0,
            hop_index: 0,
        };
        let header = StreamHeader { common, window_log2: 6, round_trips: 0 };
        let header = header.with_round_trip(1_000_001).with_round_trip(250_000);
        assert_eq!((header.round_trips, header.round_trips_nanos()), (6, 1_500_000));
        assert_eq!(header.with_round_trip(u64::MAX).round_trips, u16::MAX);
    }
}
