//! Announcements between neighbours: identity, the flows they send to each other and expect, and
//! refusals, so that a misconfiguration is reported at both of them.
//!
//! ```text
//!  | header, type 8, all else zero | Announcement | Entry, Entry, ... |
//! ```
//!
//! Announcements travel one hop and belong to no flow. On a hop with keys they have its tag, like
//! all packets. They do not affect packets of flows: they are for operators.

use crate::header::{Flags, HEADER_BYTES, Header, HeaderError, PacketType};

/// Bytes of an announcement without entries, after the header.
const FIXED_BYTES: usize = 16 + MARKS_BYTES;

/// Bytes of [`Announcement::marks`].
pub const MARKS_BYTES: usize = 32;

/// Bytes of an entry.
const ENTRY_BYTES: usize = 8;

/// Most entries of an announcement.
pub const ENTRIES_MAX: usize = 32;

/// Longest announcement, without a trailer.
pub const ANNOUNCEMENT_BYTES_MAX: usize = HEADER_BYTES + FIXED_BYTES + ENTRIES_MAX * ENTRY_BYTES;

/// Largest generation.
const GENERATION_SIZE_MAX: u16 = 256;

/// Logarithm of the most symbols that an entry can announce for a block or window.
const SYMBOLS_LOG2_MAX: u8 = 16;

/// Bits of the length of headers, next to that logarithm.
const HEADER_BITS: u32 = 11;

/// The longest that these bits hold: the longest coding vector has 256 bytes.
const HEADER_BYTES_MAX: u16 = (1 << HEADER_BITS) - 1;

/// Entries from this kind on are refusals.
const REFUSALS: u8 = 128;

/// A node's announcement of itself.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Announcement {
    /// Version of its software: major, minor, patch.
    pub software: [u8; 3],
    /// The bit of each code that it supports: [`code_bit`].
    pub codes: u8,
    /// Largest UDP payload of the link to the neighbour, by the MTU of the sender's interface.
    pub packet_bytes: u16,
    /// Random number drawn at its start: another value means that it restarted.
    pub instance: u16,
    /// Its clock: seconds since 1970.
    pub clock: u64,
    /// Marks of its session with the neighbour; zeros without keys.
    pub marks: [u8; MARKS_BYTES],
}

impl Announcement {
    /// Whether it supports the code of these packets.
    pub fn has_code(&self, code: PacketType) -> bool {
        self.codes & code_bit(code) != 0
    }
}

/// The bit of a code in [`Announcement::codes`]. Bits 0, 3, 4, 6 and 7 are free for codes whose
/// packets have a type above 7: the types of these numbers carry no symbols.
pub const fn code_bit(code: PacketType) -> u8 {
    match code {
        PacketType::Bats => 1 << 1,
        PacketType::Generation => 1 << 2,
        PacketType::Stream => 1 << 5,
        _ => 0,
    }
}

/// Name of the code of these packets, in configurations and reports; empty for packets that carry
/// no symbols.
pub const fn code_name(code: PacketType) -> &'static str {
    match code {
        PacketType::Bats => "bats",
        PacketType::Generation => "rlnc",
        PacketType::Stream => "stream",
        _ => "",
    }
}

/// A node's statement about a flow.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Entry {
    /// It sends this flow to the neighbour.
    Sends {
        /// The flow.
        flow: u32,
        /// Its code; `None` if unknown, as at a relay that has seen no packet.
        code: Option<PacketType>,
        /// Bytes of UDP payload of its largest packets, without the tag of a hop; 0: unknown.
        packet_bytes: u16,
    },
    /// The sizes of a flow that it sends, which determine the receiver's memory.
    Sizes {
        /// The flow.
        flow: u32,
        /// Symbols of a generation, or packets of a batch: 1 to 256.
        generation_size: u16,
        /// Logarithm of the symbols of a block or window, rounded up; 0 for generations.
        symbols_log2: u8,
        /// Most bytes of a packet in front of its symbol.
        header_bytes: u16,
    },
    /// It expects this flow from the neighbour.
    Expects {
        /// The flow.
        flow: u32,
    },
    /// It refuses the neighbour's entry for this flow.
    Refuses {
        /// The flow.
        flow: u32,
        /// The reason.
        refusal: Refusal,
    },
}

/// Why two neighbours do not agree on a flow.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// It is sent, and the receiver does not have it.
    UnknownFlow,
    /// It is sent, and the receiver expects it from another neighbour, or is its source.
    NotExpected,
    /// It is expected, and the neighbour has it and sends it elsewhere, or is its sink.
    NotSent,
    /// It is expected, and the neighbour does not have it.
    NotThere,
    /// The receiver was built without the code of the flow.
    Code(PacketType),
    /// The largest packets of the flow do not fit a link over which the receiver forwards them;
    /// this many bytes of UDP payload do.
    TooLarge(u16),
    /// The receiver accepts symbols of this many bytes at most, and those of the flow are longer.
    SymbolBytes(u16),
    /// The receiver needs this many MiB for the sizes of the flow, and has less.
    Memory(u16),
}

impl Refusal {
    const fn kind(self) -> u8 {
        REFUSALS
            + match self {
                Refusal::UnknownFlow => 0,
                Refusal::NotExpected => 1,
                Refusal::NotSent => 2,
                Refusal::NotThere => 3,
                Refusal::Code(_) => 4,
                Refusal::TooLarge(_) => 5,
                Refusal::SymbolBytes(_) => 6,
                Refusal::Memory(_) => 7,
            }
    }
}

impl Entry {
    fn write(&self, out: &mut [u8; ENTRY_BYTES]) {
        let (flow, kind, code, value) = match *self {
            Entry::Sends { flow, code, packet_bytes } => {
                (flow, 1, code.map_or(0, |code| code as u8), packet_bytes)
            }
            Entry::Expects { flow } => (flow, 2, 0, 0),
            Entry::Sizes { flow, generation_size, symbols_log2, header_bytes } => {
                let size = generation_size.clamp(1, GENERATION_SIZE_MAX) - 1;
                let log2 = u16::from(symbols_log2.min(SYMBOLS_LOG2_MAX));
                (flow, 3, size as u8, log2 << HEADER_BITS | header_bytes.min(HEADER_BYTES_MAX))
            }
            Entry::Refuses { flow, refusal } => match refusal {
                Refusal::Code(code) => (flow, refusal.kind(), code as u8, 0),
                Refusal::TooLarge(value) | Refusal::SymbolBytes(value) | Refusal::Memory(value) => {
                    (flow, refusal.kind(), 0, value)
                }
                _ => (flow, refusal.kind(), 0, 0),
            },
        };
        let [f0, f1, f2, f3] = flow.to_be_bytes();
        let [v0, v1] = value.to_be_bytes();
        *out = [f0, f1, f2, f3, kind, code, v0, v1];
    }

    /// `None` for an unknown kind.
    fn parse(bytes: &[u8; ENTRY_BYTES]) -> Option<Entry> {
        let [f0, f1, f2, f3, kind, code, v0, v1] = *bytes;
        let (flow, value) = (u32::from_be_bytes([f0, f1, f2, f3]), u16::from_be_bytes([v0, v1]));
        let generation_size = u16::from(code) + 1;
        let code = PacketType::from_nibble(code).filter(|code| code_bit(*code) != 0);
        let refusal = match kind {
            1 => return Some(Entry::Sends { flow, code, packet_bytes: value }),
            2 => return Some(Entry::Expects { flow }),
            3 if value >> HEADER_BITS <= u16::from(SYMBOLS_LOG2_MAX) => {
                let symbols_log2 = (value >> HEADER_BITS) as u8;
                let header_bytes = value & HEADER_BYTES_MAX;
                return Some(Entry::Sizes { flow, generation_size, symbols_log2, header_bytes });
            }
            128 => Refusal::UnknownFlow,
            129 => Refusal::NotExpected,
            130 => Refusal::NotSent,
            131 => Refusal::NotThere,
            132 => Refusal::Code(code?),
            133 => Refusal::TooLarge(value),
            134 => Refusal::SymbolBytes(value),
            135 => Refusal::Memory(value),
            _ => return None,
        };
        Some(Entry::Refuses { flow, refusal })
    }
}

/// Parses an announcement, without a trailer. Entries of unknown kinds are skipped.
///
/// # Errors
/// [`HeaderError`] when it is of another type, has flags, is too short or too long, or ends in the
/// middle of an entry.
//= docs/protocol §2.10(a)
pub fn parse_announcement(
    payload: &[u8],
) -> Result<(Header, Announcement, impl Iterator<Item = Entry> + '_), HeaderError> {
    let header = Header::parse(payload)?;
    if header.packet_type != PacketType::Announcement {
        return Err(HeaderError::Type(header.packet_type as u8));
    }
    if header.flags != Flags::default() {
        return Err(HeaderError::Flags(header.flags.0));
    }
    let fixed = payload[HEADER_BYTES..].first_chunk::<FIXED_BYTES>();
    let fixed = fixed.ok_or(HeaderError::Truncated)?;
    let (entries, rest) = payload[HEADER_BYTES + FIXED_BYTES..].as_chunks::<ENTRY_BYTES>();
    if !rest.is_empty() {
        return Err(HeaderError::Truncated);
    }
    if entries.len() > ENTRIES_MAX {
        return Err(HeaderError::Value);
    }
    let [major, minor, patch, codes, b0, b1, i0, i1, ..] = *fixed;
    let (start, marks) = fixed.split_at(FIXED_BYTES - MARKS_BYTES);
    let clock = start.last_chunk().ok_or(HeaderError::Truncated)?;
    let announcement = Announcement {
        software: [major, minor, patch],
        codes,
        packet_bytes: u16::from_be_bytes([b0, b1]),
        instance: u16::from_be_bytes([i0, i1]),
        clock: u64::from_be_bytes(*clock),
        marks: marks.try_into().map_err(|_| HeaderError::Truncated)?,
    };
    Ok((header, announcement, entries.iter().filter_map(Entry::parse)))
}

/// Writes an announcement to the start of `out`. Returns its length.
///
/// # Panics
/// When there are more than [`ENTRIES_MAX`] entries or `out` is too short.
pub fn write_announcement(
    announcement: &Announcement,
    entries: &[Entry],
    out: &mut [u8; ANNOUNCEMENT_BYTES_MAX],
) -> usize {
    assert!(entries.len() <= ENTRIES_MAX, "{} entries", entries.len());
    let header = Header {
        packet_type: PacketType::Announcement,
        flags: Flags::default(),
        epoch: 0,
        shard: 0,
        flow: 0,
        link_sequence: 0,
        hop_index: 0,
    };
    header.write(out);
    let Announcement { software, codes, packet_bytes, instance, clock, marks } = announcement;
    out[16..19].copy_from_slice(software);
    out[19] = *codes;
    out[20..22].copy_from_slice(&packet_bytes.to_be_bytes());
    out[22..24].copy_from_slice(&instance.to_be_bytes());
    out[24..32].copy_from_slice(&clock.to_be_bytes());
    out[32..64].copy_from_slice(marks);
    let (places, _) = out[HEADER_BYTES + FIXED_BYTES..].as_chunks_mut::<ENTRY_BYTES>();
    for (place, entry) in places.iter_mut().zip(entries) {
        entry.write(place);
    }
    HEADER_BYTES + FIXED_BYTES + entries.len() * ENTRY_BYTES
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn codes() -> impl Strategy<Value = PacketType> {
        prop::sample::select(PacketType::ALL.to_vec())
            .prop_filter("a code", |code| code_bit(*code) != 0)
    }

    fn refusals() -> impl Strategy<Value = Refusal> {
        prop_oneof![
            Just(Refusal::UnknownFlow),
            Just(Refusal::NotExpected),
            Just(Refusal::NotSent),
            Just(Refusal::NotThere),
            codes().prop_map(Refusal::Code),
            any::<u16>().prop_map(Refusal::TooLarge),
            any::<u16>().prop_map(Refusal::SymbolBytes),
            any::<u16>().prop_map(Refusal::Memory),
        ]
    }

    fn entries() -> impl Strategy<Value = Entry> {
        let sends = (any::<u32>(), prop::option::of(codes()), any::<u16>());
        let sizes = (any::<u32>(), 1u16..=256, 0u8..=16, 0u16..=2047);
        prop_oneof![
            sizes.prop_map(|(flow, generation_size, symbols_log2, header_bytes)| Entry::Sizes {
                flow,
                generation_size,
                symbols_log2,
                header_bytes
            }),
            sends.prop_map(|(flow, code, packet_bytes)| Entry::Sends { flow, code, packet_bytes }),
            any::<u32>().prop_map(|flow| Entry::Expects { flow }),
            (any::<u32>(), refusals()).prop_map(|(flow, refusal)| Entry::Refuses { flow, refusal }),
        ]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(
            software: [u8; 3], codes: u8, packet_bytes: u16, instance: u16, clock: u64,
            marks: [u8; MARKS_BYTES],
            entries in prop::collection::vec(entries(), 0..=ENTRIES_MAX),
        ) {
            let announcement =
                Announcement { software, codes, packet_bytes, instance, clock, marks };
            let mut out = [0xFF; ANNOUNCEMENT_BYTES_MAX];
            let len = write_announcement(&announcement, &entries, &mut out);
            let (header, read, read_entries) = parse_announcement(&out[..len]).unwrap();
            prop_assert_eq!(header.packet_type, PacketType::Announcement);
            prop_assert_eq!(read, announcement);
            prop_assert_eq!(read_entries.collect::<Vec<_>>(), entries);
            for short in 0..len {
                let is_whole = short >= HEADER_BYTES + FIXED_BYTES && (len - short).is_multiple_of(8);
                prop_assert_eq!(parse_announcement(&out[..short]).is_ok(), is_whole);
            }
        }

        #[test]
        fn random_bytes_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            if bytes.len() > 3 {
                bytes[..4].copy_from_slice(&[0x38, 0, 0, 0]);
            }
            if let Ok((_, _, entries)) = parse_announcement(&bytes) {
                prop_assert!(entries.count() <= ENTRIES_MAX);
            }
        }
    }

    //= docs/protocol §2.10(a)
    #[test]
    fn unknown_kinds_are_skipped_and_too_many_entries_refused() {
        let entries = [Entry::Expects { flow: 7 }; ENTRIES_MAX];
        let mut out = [0; ANNOUNCEMENT_BYTES_MAX];
        let len = write_announcement(&Announcement::default(), &entries, &mut out);
        out[HEADER_BYTES + FIXED_BYTES + 4] = 77;
        // Sizes with more symbols than possible.
        let entry = HEADER_BYTES + FIXED_BYTES + ENTRY_BYTES;
        out[entry + 4] = 3;
        out[entry + 6] = 17 << 3;
        assert_eq!(parse_announcement(&out[..len]).unwrap().2.count(), ENTRIES_MAX - 2);
        let long = [&out[..], &[0; ENTRY_BYTES]].concat();
        assert_eq!(parse_announcement(&long).err(), Some(HeaderError::Value));
        out[1] = Flags::EDGE;
        assert_eq!(parse_announcement(&out).err(), Some(HeaderError::Flags(Flags::EDGE)));
    }
}
