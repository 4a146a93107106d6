//! Packets of RLNC generations and of BATS batches: header, block word, coding vector or index,
//! symbol. `docs/protocol/packets.md` draws them.

use crate::header::{Flags, HEADER_BYTES, Header, HeaderError, PacketType, word};

/// Bytes of the header of a coded packet.
pub const CODED_BYTES: usize = HEADER_BYTES + 4;

/// Bytes of the symbol index that a systematic packet carries instead of a coding vector.
pub const INDEX_BYTES: usize = 4;

/// Bytes of the block word that a BATS packet carries after its header.
pub const BLOCK_BYTES: usize = 8;

/// Most source symbols of a block that a block word can express.
pub const BLOCK_SYMBOLS_MAX: u16 = 1 << 12;

/// Most planned packets that a header can express.
pub const PLANNED_MAX: u16 = (1 << 12) - 1;

/// Largest generation that a header can express.
pub const SIZE_MAX: usize = 256;

/// The flags of a packet of a batch.
const BATCH_FLAGS: u8 = Flags::SYSTEMATIC | Flags::END | Flags::RECODED | Flags::MENDED;

/// The flags of a packet of a generation. A packet of a batch is never outside a plan, so it lacks
/// `REPAIR`.
const GENERATION_FLAGS: u8 = BATCH_FLAGS | Flags::REPAIR;

/// The header of a packet of a generation or of a batch.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct CodedHeader {
    /// Header common to all packets.
    pub common: Header,
    /// Generation size, 1 to 256, as known to the source when it sent this packet. It can only
    /// shrink within a generation (a flush closes a short one). For a batch: its batch size.
    pub size: u16,
    /// Binary logarithm, rounded up, of the largest size in this epoch. Below 16.
    pub full_log2: u8,
    /// Packets this hop plans to send for the generation or batch, at most [`PLANNED_MAX`]; 0 in a
    /// repair packet, which is outside the plan. Hop-mutable.
    pub planned: u16,
    /// Generation number, or number of the batch in its flow: a serial number (RFC 1982).
    pub generation: u32,
}

impl CodedHeader {
    /// Reads the header of a coded packet.
    ///
    /// # Errors
    /// [`HeaderError`] when there are too few bytes, or it is not the header of a coded packet.
    #[inline]
    pub fn parse(payload: &[u8]) -> Result<CodedHeader, HeaderError> {
        let bytes: &[u8; CODED_BYTES] = payload.first_chunk().ok_or(HeaderError::Truncated)?;
        let common = Header::parse(bytes)?;
        let flags = match common.packet_type {
            PacketType::Bats => BATCH_FLAGS,
            PacketType::Generation => GENERATION_FLAGS,
            other => return Err(HeaderError::Type(other as u8)),
        };
        Ok(CodedHeader {
            common: common.with_flags_of(flags)?,
            size: u16::from(bytes[13]) + 1,
            full_log2: bytes[14] >> 4,
            planned: u16::from_be_bytes([bytes[14], bytes[15]]) & PLANNED_MAX,
            generation: word(bytes, HEADER_BYTES),
        })
    }

    /// Writes the header to the start of `out`.
    ///
    /// # Panics
    /// When `out` is shorter than [`CODED_BYTES`] or a value is out of range.
    #[inline]
    pub fn write(&self, out: &mut [u8]) {
        assert!((1..=SIZE_MAX as u16).contains(&self.size), "generation size {}", self.size);
        assert!(self.full_log2 < 16 && self.planned <= PLANNED_MAX, "bits of a header");
        self.common.write(out);
        out[13] = (self.size - 1) as u8;
        let planned = u16::from(self.full_log2) << 12 | self.planned;
        out[14..16].copy_from_slice(&planned.to_be_bytes());
        out[16..20].copy_from_slice(&self.generation.to_be_bytes());
    }

    /// This header with `mask` of its flags set or cleared.
    #[must_use]
    pub fn with(mut self, mask: u8, on: bool) -> CodedHeader {
        self.common.flags = self.common.flags.with(mask, on);
        self
    }

    /// Whether the packet was sent outside the plan.
    pub fn is_repair(&self) -> bool {
        self.common.flags.has(Flags::REPAIR)
    }

    /// Whether each hop recovers its own losses.
    pub fn is_mended(&self) -> bool {
        self.common.flags.has(Flags::MENDED)
    }

    /// Bytes of coding vector (or symbol index) that follow the header, or the block word.
    #[inline]
    pub fn vector_bytes(&self) -> usize {
        if self.common.flags.has(Flags::SYSTEMATIC) {
            return INDEX_BYTES;
        }
        vector_bytes(usize::from(self.size), self.common.flags.field_code())
    }
}

/// Offset of the coding vector (or symbol index) of a coded packet: after the header and, in a BATS
/// packet, the block word.
pub const fn coding_offset(is_bats: bool) -> usize {
    if is_bats { CODED_BYTES + BLOCK_BYTES } else { CODED_BYTES }
}

/// The binary logarithm of a size of at least 1, rounded up.
pub const fn log2_ceil(size: usize) -> u8 {
    size.next_power_of_two().trailing_zeros() as u8
}

/// Bytes of a coding vector over `size` symbols, padded to a multiple of four.
#[inline]
pub fn vector_bytes(size: usize, field_code: u8) -> usize {
    let bits = size << (field_code & 3);
    bits.div_ceil(32) * 4
}

/// The block word: the batch and block that a BATS packet belongs to, and how that block is coded.
/// Relays copy it unchanged.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Block {
    /// Block number, a serial number of 16 bits.
    pub number: u16,
    /// Batch of the block, from 0.
    pub batch: u16,
    /// Source symbols of the block (K), 1 to [`BLOCK_SYMBOLS_MAX`].
    pub source_symbols: u16,
    /// Binary logarithm, rounded up, of the most source symbols in a block of this epoch. Below 16.
    pub full_log2: u8,
    /// How batches are drawn: 0 baseline, 1 precoded, 2 cyclic-shift. Below 16.
    pub profile: u8,
    /// Bits of an element of the outer code's generators. Below 16.
    pub generator_bits: u8,
    /// Batches that are interleaved; 0 counts as 1, which is no interleaving.
    pub interleave: u8,
}

impl Block {
    /// Reads the block word that follows the header of `payload`; `None` when it is cut off.
    #[inline]
    pub fn read(payload: &[u8]) -> Option<Block> {
        let bytes: &[u8; BLOCK_BYTES] = payload.get(CODED_BYTES..)?.first_chunk()?;
        let half = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        Some(Block {
            number: half(0),
            batch: half(2),
            source_symbols: (half(4) & 0x0FFF) + 1,
            full_log2: bytes[4] >> 4,
            profile: bytes[6] >> 4,
            generator_bits: bytes[6] & 15,
            interleave: bytes[7],
        })
    }

    /// Writes the block word after the header of `out`.
    ///
    /// # Panics
    /// When `out`, which starts at the header, is too short, or a field is out of its range.
    pub fn write(&self, out: &mut [u8]) {
        let symbols = 1..=BLOCK_SYMBOLS_MAX;
        assert!(symbols.contains(&self.source_symbols), "{} symbols", self.source_symbols);
        assert!(self.full_log2 < 16 && self.profile < 16 && self.generator_bits < 16, "nibbles");
        let out = &mut out[CODED_BYTES..CODED_BYTES + BLOCK_BYTES];
        out[..2].copy_from_slice(&self.number.to_be_bytes());
        out[2..4].copy_from_slice(&self.batch.to_be_bytes());
        let symbols = u16::from(self.full_log2) << 12 | (self.source_symbols - 1);
        out[4..6].copy_from_slice(&symbols.to_be_bytes());
        out[6] = self.profile << 4 | self.generator_bits;
        out[7] = self.interleave;
    }
}

/// A parsed packet of a generation or batch: header, block word, vector (or index) and symbol.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Coded<'a> {
    /// The header.
    pub header: CodedHeader,
    /// The block word of a BATS packet; `None` in packets of generations.
    pub block: Option<Block>,
    /// How the symbol was formed.
    pub coding: PackedCoding<'a>,
    /// Offset of the symbol within the UDP payload.
    pub symbol_offset: usize,
    /// Bytes of symbol.
    pub symbol_bytes: usize,
}

/// How a symbol was formed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum PackedCoding<'a> {
    /// The source symbol of the generation, or the coded symbol of the batch, with this index, less
    /// than the header's size.
    Systematic(u8),
    /// The combination given by this packed coding vector.
    Vector(&'a [u8]),
}

/// Parses a packet of a generation or of a batch.
///
/// # Errors
/// [`HeaderError`] when anything is missing: the header, the block word of a BATS packet, the whole
/// vector, or at least one byte of symbol; when a systematic index is not below the size; or when
/// the packet is of another type.
//= docs/protocol §2.4(a)
#[inline]
pub fn parse_coded(payload: &[u8]) -> Result<Coded<'_>, HeaderError> {
    let header = CodedHeader::parse(payload)?;
    let is_bats = header.common.packet_type == PacketType::Bats;
    let block =
        if is_bats { Some(Block::read(payload).ok_or(HeaderError::Truncated)?) } else { None };
    let coding_offset = coding_offset(is_bats);
    let symbol_offset = coding_offset + header.vector_bytes();
    let vector = payload.get(coding_offset..symbol_offset).ok_or(HeaderError::Truncated)?;
    let symbol_bytes = payload.len() - symbol_offset;
    if symbol_bytes == 0 {
        return Err(HeaderError::Truncated);
    }
    let coding = if header.common.flags.has(Flags::SYSTEMATIC) {
        let index = word(vector, 0);
        if index >= u32::from(header.size) {
            return Err(HeaderError::Value);
        }
        PackedCoding::Systematic(index as u8)
    } else {
        PackedCoding::Vector(vector)
    };
    Ok(Coded { header, block, coding, symbol_offset, symbol_bytes })
}

/// Writes the index of a systematic packet where other packets have their coding vector.
///
/// # Panics
/// When `out`, which starts at the header, is too short.
pub fn write_index(out: &mut [u8], is_bats: bool, index: u8) {
    let at = coding_offset(is_bats);
    out[at..at + INDEX_BYTES].copy_from_slice(&u32::from(index).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::VERSION;
    use crate::header::tests::headers;
    use proptest::prelude::*;
    use std::vec;
    use std::vec::Vec;

    fn coded_headers() -> impl Strategy<Value = CodedHeader> {
        let kind = prop::bool::ANY.prop_flat_map(|is_bats| {
            let (packet_type, flags) = if is_bats {
                (PacketType::Bats, BATCH_FLAGS)
            } else {
                (PacketType::Generation, GENERATION_FLAGS)
            };
            headers(packet_type, flags | Flags::FIELD)
        });
        (kind, 1u16..=256, 0u8..16, 0..=PLANNED_MAX, any::<u32>()).prop_map(
            |(common, size, full_log2, planned, generation)| CodedHeader {
                common,
                size,
                full_log2,
                planned,
                generation,
            },
        )
    }

    fn blocks() -> impl Strategy<Value = Block> {
        let symbols = (1u16..=BLOCK_SYMBOLS_MAX, 0u8..16);
        (any::<u16>(), any::<u16>(), symbols, 0u8..16, 0u8..16, any::<u8>()).prop_map(
            |(number, batch, (source_symbols, full_log2), profile, generator_bits, interleave)| {
                Block {
                    number,
                    batch,
                    source_symbols,
                    full_log2,
                    profile,
                    generator_bits,
                    interleave,
                }
            },
        )
    }

    fn is_bats(header: &CodedHeader) -> bool {
        header.common.packet_type == PacketType::Bats
    }

    fn packet(header: &CodedHeader, symbol_bytes: usize) -> Vec<u8> {
        let coding_offset = coding_offset(is_bats(header));
        let mut bytes = vec![0xA5; coding_offset + header.vector_bytes() + symbol_bytes];
        header.write(&mut bytes);
        if header.common.flags.has(Flags::SYSTEMATIC) {
            write_index(&mut bytes, is_bats(header), (header.size - 1) as u8);
        }
        bytes
    }

    proptest! {
        #[test]
        fn coded_packet_round_trips(
            header in coded_headers(),
            block in blocks(),
            symbol_bytes in 1usize..1500,
        ) {
            let mut bytes = packet(&header, symbol_bytes);
            let block = is_bats(&header).then_some(block);
            if let Some(block) = block {
                block.write(&mut bytes);
            }
            let coded = parse_coded(&bytes).unwrap();
            prop_assert_eq!(coded.header, header);
            prop_assert_eq!(coded.block, block);
            prop_assert_eq!(coded.symbol_bytes, symbol_bytes);
            prop_assert_eq!(coded.symbol_offset + symbol_bytes, bytes.len());
            match coded.coding {
                PackedCoding::Systematic(index) => prop_assert_eq!(u16::from(index), header.size - 1),
                PackedCoding::Vector(vector) => prop_assert_eq!(
                    vector.len(),
                    vector_bytes(usize::from(header.size), header.common.flags.field_code())
                ),
            }
        }

        #[test]
        fn coded_packet_truncated_anywhere_is_refused(header in coded_headers()) {
            let bytes = packet(&header, 1);
            for length in 0..bytes.len() {
                prop_assert_eq!(parse_coded(&bytes[..length]), Err(HeaderError::Truncated));
            }
        }

        #[test]
        fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
            if let Ok(coded) = parse_coded(&bytes) {
                prop_assert!(coded.symbol_offset + coded.symbol_bytes == bytes.len());
            }
        }
    }

    fn header(flags: u8) -> CodedHeader {
        CodedHeader {
            common: Header {
                packet_type: PacketType::Generation,
                flags: Flags(flags),
                epoch: 3,
                shard: 4,
                flow: 1,
                link_sequence: 0,
                hop_index: 9,
            },
            size: 16,
            full_log2: 5,
            planned: 0x0A0B,
            generation: 0x0506_0708,
        }
    }

    #[test]
    fn layout_is_the_documented_one() {
        let mut bytes = [0u8; CODED_BYTES];
        header(2).write(&mut bytes);
        assert_eq!(bytes[12..], [9, 15, 0x5A, 0x0B, 5, 6, 7, 8]);
        assert_eq!(header(2).vector_bytes(), 8);
    }

    #[test]
    fn block_word_layout_is_the_documented_one() {
        let block = Block {
            number: 0x0102,
            batch: 0x0304,
            source_symbols: 0x0506 + 1,
            full_log2: 11,
            profile: 2,
            generator_bits: 8,
            interleave: 9,
        };
        let mut bytes = [0u8; CODED_BYTES + BLOCK_BYTES];
        block.write(&mut bytes);
        assert_eq!(bytes[CODED_BYTES..], [1, 2, 3, 4, 0xB5, 6, 0x28, 9]);
        assert_eq!(Block::read(&bytes), Some(block));
    }

    #[test]
    fn packet_of_another_type_is_no_coded_packet() {
        for other in PacketType::ALL {
            let mut bytes = [0u8; 64];
            bytes[0] = VERSION << 4 | other as u8;
            let parsed = parse_coded(&bytes);
            if matches!(other, PacketType::Bats | PacketType::Generation) {
                assert!(parsed.is_ok(), "{other:?}: {parsed:?}");
            } else {
                assert_eq!(parsed, Err(HeaderError::Type(other as u8)));
            }
        }
    }

    //= docs/protocol §2.2(a)
    #[test]
    fn flags_without_a_meaning_are_refused() {
        for flags in [Flags::INTERACTIVE, Flags::INTERACTIVE | Flags::MENDED] {
            let bytes = packet(&header(flags), 8);
            assert_eq!(parse_coded(&bytes), Err(HeaderError::Flags(flags)));
        }
    }

    //= docs/protocol §2.4(a)
    #[test]
    fn index_at_or_above_the_size_is_refused() {
        let mut bytes = packet(&header(Flags::SYSTEMATIC), 8);
        write_index(&mut bytes, false, 16);
        assert_eq!(parse_coded(&bytes), Err(HeaderError::Value));
    }
}
