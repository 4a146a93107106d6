//! Packets of streams: a sliding window with per-hop retransmission.
//!
//! `docs/protocol/packets.md` draws them. Every value comes from the network: nothing panics or
//! allocates here, and whether a flow may use these sizes is the pipeline's decision.

use crate::header::{Flags, HEADER_BYTES, Header, HeaderError, PacketType, word};

/// Bytes in front of the IP packet in a packet of a stream.
pub const STREAM_BYTES: usize = HEADER_BYTES + 8;

/// Most bytes in a packet of a stream other than those of the IP packets that it carries or
/// combines.
pub const STREAM_OVERHEAD_BYTES: usize = COMBINATION_BYTES + SYMBOL_HEADER_BYTES;

/// Bytes in front of the sum in a packet that combines symbols.
pub const COMBINATION_BYTES: usize = HEADER_BYTES + 8;

/// Bytes in front of the IP packet in a combined symbol: number, predecessor, length.
pub const SYMBOL_HEADER_BYTES: usize = 8;

/// Most symbols of one combination.
pub const COMBINED_MAX: u16 = 512;

/// Bytes of a keepalive.
pub const KEEPALIVE_BYTES: usize = HEADER_BYTES;

/// Binary logarithms of the number of symbols that nodes keep.
pub const STREAM_LOG2_MIN: u8 = 6;
/// See [`STREAM_LOG2_MIN`].
pub const STREAM_LOG2_MAX: u8 = 15;

/// Value in a keepalive of a flow that is not a stream.
pub const STREAM_LOG2_NONE: u8 = 0;

/// Nanoseconds in a unit of [`StreamHeader::round_trips`] and of link reports.
pub const ROUND_TRIPS_UNIT_NANOS: u64 = 250_000;

/// Fields common to all packets of a stream.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct StreamHeader {
    /// Header common to all packets.
    pub common: Header,
    /// Binary logarithm of the symbols that nodes keep in this epoch; [`STREAM_LOG2_NONE`] in a
    /// keepalive of a flow that is not a stream.
    pub window_log2: u8,
    /// Sum of the round trips of the hops travelled, in units of 1/4 ms; saturates. Hop-mutable. In
    /// an open loop, which measures none: combinations per symbol, in units of
    /// 1/[`OPEN_LOOP_UNITS`].
    pub round_trips: u16,
}

/// One combination per symbol, in the units of packets of an open loop.
pub const OPEN_LOOP_UNITS: u16 = 256;

/// Round trips in units of [`ROUND_TRIPS_UNIT_NANOS`], rounded up; saturates.
pub fn round_trip_units(nanos: u64) -> u16 {
    u16::try_from(nanos.div_ceil(ROUND_TRIPS_UNIT_NANOS)).unwrap_or(u16::MAX)
}

impl StreamHeader {
    /// Symbols that nodes keep.
    pub fn window_symbols(&self) -> usize {
        1 << self.window_log2
    }

    /// Whether it belongs to a flow that is not a stream: then it is a keepalive.
    pub fn is_of_other_code(&self) -> bool {
        self.window_log2 == STREAM_LOG2_NONE
    }

    /// Sum of the round trips of the hops travelled, in nanoseconds.
    pub fn round_trips_nanos(&self) -> u64 {
        match self.open_loop() {
            Some(_) => 0,
            None => u64::from(self.round_trips) * ROUND_TRIPS_UNIT_NANOS,
        }
    }

    /// Combinations per symbol of an open loop, in units of 1/[`OPEN_LOOP_UNITS`]; `None` if hops
    /// expect reports.
    pub fn open_loop(&self) -> Option<u16> {
        self.common.flags.has(Flags::OPEN_LOOP).then_some(self.round_trips)
    }

    /// This header in an open loop with this many combinations per symbol, in units of
    /// 1/[`OPEN_LOOP_UNITS`].
    #[must_use]
    pub fn with_open_loop(self, combinations: u16) -> StreamHeader {
        let flags = self.common.flags.with(Flags::OPEN_LOOP, true);
        let common = Header { flags, ..self.common };
        StreamHeader { common, round_trips: combinations, ..self }
    }

    /// This header with one more round trip.
    #[must_use]
    pub fn with_round_trip(self, nanos: u64) -> StreamHeader {
        let round_trips = self.round_trips.saturating_add(round_trip_units(nanos));
        StreamHeader { round_trips, ..self }
    }

    /// Writes the header to the start of `out`.
    ///
    /// # Panics
    /// When `out` is shorter than [`HEADER_BYTES`] or the window is out of range.
    pub fn write(&self, out: &mut [u8]) {
        let is_keepalive = self.common.flags.has(Flags::END);
        assert!(is_window(self.window_log2, is_keepalive), "window of 2^{}", self.window_log2);
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
    /// Distance back to the number of the packet that must be delivered first; 0 for none.
    pub after: u16,
    /// Lower half of its place among the symbols of this hop, in the order of first transmission.
    /// Hop-mutable.
    pub place: u16,
    /// Bytes of the IP packet.
    pub bytes: u16,
}

/// A packet of a stream, its shape checked.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct StreamPacket {
    /// Fields common to all packets of a stream.
    pub header: StreamHeader,
    /// Its contents.
    pub body: StreamBody,
}

impl StreamPacket {
    /// The symbol, if it carries one uncombined.
    pub fn symbol(&self) -> Option<StreamSymbol> {
        match self.body {
            StreamBody::Symbol(symbol) => Some(symbol),
            _ => None,
        }
    }
}

/// Contents of a packet of a stream.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum StreamBody {
    /// One symbol.
    Symbol(StreamSymbol),
    /// The sum of coefficient times symbol over consecutive places of this hop.
    Combination(Combination),
    /// Nothing: its link sequence number is the information.
    Keepalive,
}

/// The symbols that a packet combines, and how: the coefficients are those of RFC 8681 section 3.6
/// for a repair key.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Combination {
    /// Place of the first symbol.
    pub first: u32,
    /// Number of symbols, 1 to [`COMBINED_MAX`].
    pub count: u16,
    /// The repair key.
    pub key: u16,
}

/// Whether a packet may announce such a window.
fn is_window(log2: u8, is_keepalive: bool) -> bool {
    (STREAM_LOG2_MIN..=STREAM_LOG2_MAX).contains(&log2) || is_keepalive && log2 == STREAM_LOG2_NONE
}

/// Parses a packet of a stream.
///
/// # Errors
/// [`HeaderError`] when it is of another type, bytes are missing, or flags or sizes are ones that
/// no source sends.
#[inline]
pub fn parse_stream(payload: &[u8]) -> Result<StreamPacket, HeaderError> {
    let common = Header::parse(payload)?;
    if common.packet_type != PacketType::Stream {
        return Err(HeaderError::Type(common.packet_type as u8));
    }
    let carries = common.flags.has(Flags::SYSTEMATIC);
    let flags = common.flags.0;
    let allowed = if carries { Flags::SYSTEMATIC | Flags::REPAIR } else { Flags::END };
    if flags & !(allowed | Flags::INTERACTIVE | Flags::PATHS | Flags::OPEN_LOOP) != 0 {
        return Err(HeaderError::Flags(flags));
    }
    let window_log2 = payload[13];
    if !is_window(window_log2, common.flags.has(Flags::END)) {
        return Err(HeaderError::Value);
    }
    let round_trips = u16::from_be_bytes([payload[14], payload[15]]);
    let header = StreamHeader { common, window_log2, round_trips };
    if common.flags.has(Flags::END) {
        return Ok(StreamPacket { header, body: StreamBody::Keepalive });
    }
    if !carries {
        let combination = parse_combination(payload, &header)?;
        return Ok(StreamPacket { header, body: StreamBody::Combination(combination) });
    }
    let (head, packet) =
        payload.split_first_chunk::<STREAM_BYTES>().ok_or(HeaderError::Truncated)?;
    let bytes = u16::try_from(packet.len()).map_err(|_| HeaderError::Value)?;
    let (number, after) = (word(head, HEADER_BYTES), u16::from_be_bytes([head[20], head[21]]));
    let place = u16::from_be_bytes([head[22], head[23]]);
    if bytes == 0 || usize::from(after) >= header.window_symbols() {
        return Err(HeaderError::Value);
    }
    let symbol = StreamSymbol { number, after, place, bytes };
    Ok(StreamPacket { header, body: StreamBody::Symbol(symbol) })
}

fn parse_combination(payload: &[u8], header: &StreamHeader) -> Result<Combination, HeaderError> {
    let (head, sum) =
        payload.split_first_chunk::<COMBINATION_BYTES>().ok_or(HeaderError::Truncated)?;
    let half = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    let combination =
        Combination { first: word(head, HEADER_BYTES), count: half(20), key: half(22) };
    let most = usize::from(COMBINED_MAX).min(header.window_symbols());
    let is_sent = (1..=most).contains(&usize::from(combination.count));
    if !is_sent || sum.len() <= SYMBOL_HEADER_BYTES {
        return Err(HeaderError::Value);
    }
    Ok(combination)
}

/// Writes the fields between header and sum.
///
/// # Panics
/// When `out` is shorter than [`COMBINATION_BYTES`].
pub fn write_combination(combination: &Combination, out: &mut [u8]) {
    out[HEADER_BYTES..][..4].copy_from_slice(&combination.first.to_be_bytes());
    out[HEADER_BYTES + 4..][..2].copy_from_slice(&combination.count.to_be_bytes());
    out[HEADER_BYTES + 6..][..2].copy_from_slice(&combination.key.to_be_bytes());
}

/// Writes the header of a combined symbol, which does not include its place.
///
/// # Panics
/// When `out` is shorter than [`SYMBOL_HEADER_BYTES`].
pub fn write_symbol_header(symbol: &StreamSymbol, out: &mut [u8]) {
    out[..4].copy_from_slice(&symbol.number.to_be_bytes());
    out[4..6].copy_from_slice(&symbol.after.to_be_bytes());
    out[6..8].copy_from_slice(&symbol.bytes.to_be_bytes());
}

/// Reads a symbol that was solved from combinations: its header, and the IP packet. `None` when its
/// length is invalid.
pub fn read_symbol(symbol: &[u8], window_symbols: usize) -> Option<(StreamSymbol, &[u8])> {
    let (head, packet) = symbol.split_first_chunk::<SYMBOL_HEADER_BYTES>()?;
    let half = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    let (number, after, bytes) = (word(head, 0), half(4), half(6));
    let packet = packet.get(..usize::from(bytes)).filter(|packet| !packet.is_empty())?;
    let symbol = StreamSymbol { number, after, place: 0, bytes };
    (usize::from(after) < window_symbols).then_some((symbol, packet))
}

/// Writes the fields between header and IP packet.
///
/// # Panics
/// When `out` is shorter than [`STREAM_BYTES`].
pub fn write_symbol(symbol: &StreamSymbol, out: &mut [u8]) {
    out[HEADER_BYTES..][..4].copy_from_slice(&symbol.number.to_be_bytes());
    out[HEADER_BYTES + 4..][..2].copy_from_slice(&symbol.after.to_be_bytes());
    out[HEADER_BYTES + 6..][..2].copy_from_slice(&symbol.place.to_be_bytes());
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
            common in headers(
                PacketType::Stream,
                Flags::REPAIR | Flags::INTERACTIVE | Flags::PATHS,
            ),
            (window_log2, round_trips) in (STREAM_LOG2_MIN..=STREAM_LOG2_MAX, any::<u16>()),
            (number, after, place, bytes) in (any::<u32>(), 0u16..64, any::<u16>(), 1u16..300),
        ) {
            let common = Header { flags: common.flags.with(Flags::SYSTEMATIC, true), ..common };
            let header = StreamHeader { common, window_log2, round_trips };
            let symbol = StreamSymbol { number, after, place, bytes };
            let mut payload = vec![0x45; STREAM_BYTES + usize::from(bytes)];
            header.write(&mut payload);
            write_symbol(&symbol, &mut payload);
            let body = StreamBody::Symbol(symbol);
            prop_assert_eq!(parse_stream(&payload), Ok(StreamPacket { header, body }));
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
        let body = StreamBody::Keepalive;
        assert_eq!(parse_stream(&bytes), Ok(StreamPacket { header, body }));
        let header = StreamHeader { window_log2: STREAM_LOG2_NONE, ..header };
        header.write(&mut bytes);
        assert_eq!(parse_stream(&bytes), Ok(StreamPacket { header, body }), "of another code");
        bytes[13] = 6;
        let open_loop =
            StreamHeader { window_log2: 6, ..header }.with_open_loop(OPEN_LOOP_UNITS / 4);
        open_loop.write(&mut bytes);
        let parsed = parse_stream(&bytes).map(|packet| packet.header);
        assert_eq!(parsed.map(|it| (it.open_loop(), it.round_trips_nanos())), Ok((Some(64), 0)));
        let both = Flags::SYSTEMATIC | Flags::END;
        for flags in [both, Flags::REPAIR, Flags::FIELD] {
            bytes[1] = flags;
            assert_eq!(parse_stream(&bytes), Err(HeaderError::Flags(flags)));
        }
        bytes[1] = 0;
        let combination = Combination { first: 9, count: 64, key: 8 };
        write_combination(&combination, &mut bytes);
        let body = StreamBody::Combination(combination);
        assert_eq!(parse_stream(&bytes).map(|packet| packet.body), Ok(body));
        assert_eq!(parse_stream(&bytes[..32]), Err(HeaderError::Value), "no symbol");
        for count in [0, 65, COMBINED_MAX + 1] {
            write_combination(&Combination { count, ..combination }, &mut bytes);
            assert_eq!(parse_stream(&bytes), Err(HeaderError::Value), "{count} symbols");
        }
        bytes[1] = Flags::SYSTEMATIC;
        bytes[20..22].copy_from_slice(&[0, 64]);
        assert_eq!(parse_stream(&bytes), Err(HeaderError::Value), "before the window");
        bytes[21] = 63;
        assert!(parse_stream(&bytes).is_ok());
        for log2 in [STREAM_LOG2_NONE, STREAM_LOG2_MIN - 1, STREAM_LOG2_MAX + 1] {
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
