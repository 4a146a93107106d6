//! The 20-byte header of a coded packet, and what follows it.
//!
//! Source: the wire format drawn in this folder's `README.md`. The parse checks shape only
//! (version, type, lengths); whether a flow may use these sizes is the pipeline's decision. Every
//! value comes from the network: nothing here panics or allocates.

/// Bytes of the fixed header.
pub const HEADER_BYTES: usize = 20;

/// Bytes of the symbol index that a systematic packet carries in place of a coding vector.
pub const INDEX_BYTES: usize = 4;

/// Bytes of the block word that a BATS packet carries behind the fixed header.
pub const BLOCK_BYTES: usize = 8;

/// Bytes that a packet of a window flow carries besides its symbol at most: the Repair FEC Payload
/// ID of RFC 8681, section 4.1.3.
pub const WINDOW_BYTES: usize = 8;

/// Wire format version this crate speaks.
pub const VERSION: u8 = 1;

/// Byte offset of the flow id, which the XDP program reads.
pub const FLOW_OFFSET: usize = 4;

/// Largest generation a header can name.
pub const SIZE_MAX: usize = 256;

/// What a packet carries.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum PacketType {
    /// A packet of a BATS batch.
    Bats = 1,
    /// A packet of an RLNC generation.
    Generation = 2,
    /// A packet of a sliding or elastic window.
    Window = 3,
    /// Reports and repair requests, travelling from sink to source.
    Feedback = 4,
    /// Parameters of an epoch.
    Control = 5,
    /// A probe.
    Probe = 6,
    /// Experiments.
    Experimental = 15,
}

impl PacketType {
    /// Every type the XDP program lets through.
    pub const ALL: [PacketType; 7] = [
        PacketType::Bats,
        PacketType::Generation,
        PacketType::Window,
        PacketType::Feedback,
        PacketType::Control,
        PacketType::Probe,
        PacketType::Experimental,
    ];

    /// The type a nibble names.
    #[inline(always)]
    pub fn from_nibble(nibble: u8) -> Option<PacketType> {
        Some(match nibble {
            1 => PacketType::Bats,
            2 => PacketType::Generation,
            3 => PacketType::Window,
            4 => PacketType::Feedback,
            5 => PacketType::Control,
            6 => PacketType::Probe,
            15 => PacketType::Experimental,
            _ => return None,
        })
    }
}

/// Flag bits of a coded packet. The low two bits hold the field code.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Flags(pub u8);

impl Flags {
    /// The symbol is a source symbol; a 4-byte index stands where the coding vector would.
    pub const SYSTEMATIC: u8 = 0x80;
    /// The coding vector is given by a 4-byte seed.
    pub const SEED: u8 = 0x40;
    /// Last planned packet of its generation on this hop.
    pub const END: u8 = 0x20;
    /// Combined by a relay.
    pub const RECODED: u8 = 0x10;
    /// A transmit timestamp follows the fixed header.
    pub const TIMESTAMP: u8 = 0x08;
    /// Homomorphic tag columns end the symbol.
    pub const TAGGED: u8 = 0x04;
    /// Mask of the field code: 0, 1, 2, 3 for orders 2, 4, 16, 256.
    pub const FIELD: u8 = 0x03;

    /// Whether all bits of `mask` are set.
    pub fn has(self, mask: u8) -> bool {
        self.0 & mask == mask
    }

    /// Field code, 0 to 3.
    pub fn field_code(self) -> u8 {
        self.0 & Flags::FIELD
    }

    /// These flags with `mask` set or cleared.
    pub fn with(self, mask: u8, on: bool) -> Flags {
        Flags(if on { self.0 | mask } else { self.0 & !mask })
    }
}

/// The fixed header, fields in wire order.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// What the packet carries.
    pub packet_type: PacketType,
    /// Flag bits and field code.
    pub flags: Flags,
    /// Parameter epoch of the source, modulo 256.
    pub epoch: u8,
    /// Generation size, 1 to 256, as the source knew it when it sent this packet. It can only
    /// shrink within a generation (a flush closes a short one).
    pub size: u16,
    /// Flow id.
    pub flow: u32,
    /// Generation number, a serial number (RFC 1982).
    pub generation: u32,
    /// Hops travelled: 0 when the source sends it. Hop-mutable.
    pub hop_index: u8,
    /// Authentication key, 0 for none. Hop-mutable.
    pub key_id: u8,
    /// Packets this hop plans to send for the generation; 0 marks a repair packet, sent outside the
    /// plan. Hop-mutable.
    pub planned: u16,
    /// Per hop, flow and entropy bucket. Hop-mutable.
    pub link_sequence: u32,
}

/// Why bytes are not a coded packet.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum HeaderError {
    /// Shorter than what its own header announces.
    Truncated,
    /// A version this build does not speak.
    Version(u8),
    /// An unassigned packet type.
    Type(u8),
    /// A flag combination that this version does not define.
    Flags(u8),
}

impl Header {
    /// Reads the fixed header from the start of a UDP payload.
    ///
    /// # Errors
    /// [`HeaderError`] when there are too few bytes, or version, type or flags are not ours.
    pub fn parse(payload: &[u8]) -> Result<Header, HeaderError> {
        let bytes: &[u8; HEADER_BYTES] = payload
            .get(..HEADER_BYTES)
            .and_then(|bytes| bytes.try_into().ok())
            .ok_or(HeaderError::Truncated)?;
        let version = bytes[0] >> 4;
        if version != VERSION {
            return Err(HeaderError::Version(version));
        }
        let nibble = bytes[0] & 15;
        let packet_type = PacketType::from_nibble(nibble).ok_or(HeaderError::Type(nibble))?;
        Ok(Header {
            packet_type,
            flags: Flags(bytes[1]),
            epoch: bytes[2],
            size: u16::from(bytes[3]) + 1,
            flow: word(bytes, 4),
            generation: word(bytes, 8),
            hop_index: bytes[12],
            key_id: bytes[13],
            planned: u16::from_be_bytes([bytes[14], bytes[15]]),
            link_sequence: word(bytes, 16),
        })
    }

    /// Writes the fixed header to the start of `out`.
    ///
    /// # Panics
    /// When `out` is shorter than [`HEADER_BYTES`] or the size is not 1..=256.
    pub fn write(&self, out: &mut [u8]) {
        assert!((1..=SIZE_MAX as u16).contains(&self.size), "generation size {}", self.size);
        out[0] = VERSION << 4 | self.packet_type as u8;
        out[1] = self.flags.0;
        out[2] = self.epoch;
        out[3] = (self.size - 1) as u8;
        out[4..8].copy_from_slice(&self.flow.to_be_bytes());
        out[8..12].copy_from_slice(&self.generation.to_be_bytes());
        out[12] = self.hop_index;
        out[13] = self.key_id;
        out[14..16].copy_from_slice(&self.planned.to_be_bytes());
        out[16..20].copy_from_slice(&self.link_sequence.to_be_bytes());
    }

    /// Bytes of coding vector (or symbol index) that follow the fixed header of a generation
    /// packet, or the block word of a BATS packet.
    ///
    /// # Errors
    /// [`HeaderError::Flags`] for flags that version 1 reserves: SEED, TIMESTAMP and TAGGED.
    pub fn vector_bytes(&self) -> Result<usize, HeaderError> {
        if self.flags.0 & (Flags::SEED | Flags::TIMESTAMP | Flags::TAGGED) != 0 {
            return Err(HeaderError::Flags(self.flags.0));
        }
        if self.flags.has(Flags::SYSTEMATIC) {
            return Ok(INDEX_BYTES);
        }
        Ok(vector_bytes(usize::from(self.size), self.flags.field_code()))
    }
}

impl PacketType {
    /// Where the coding vector (or symbol index) of a coded packet begins: behind the fixed header
    /// and, in a BATS packet, the block word.
    pub const fn coding_offset(self) -> usize {
        match self {
            PacketType::Bats => HEADER_BYTES + BLOCK_BYTES,
            _ => HEADER_BYTES,
        }
    }
}

/// The block word: which batch of which block a BATS packet belongs to, and how that block is
/// coded. Relays copy it as it is.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Block {
    /// Block number, a serial number of 16 bits.
    pub number: u16,
    /// Batch of the block, from 0.
    pub batch: u16,
    /// Source symbols of the block (K), 1 to 65536.
    pub source_symbols: u32,
    /// How batches are drawn: 0 baseline, 1 precoded, 2 cyclic-shift. Below 16.
    pub profile: u8,
    /// Bits of an element of the outer code's generators. Below 16.
    pub generator_bits: u8,
    /// Batches that are interleaved; 0 counts as 1, which is no interleaving.
    pub interleave: u8,
}

impl Block {
    /// Reads the block word that follows the fixed header of `payload`; `None` when it is cut off.
    pub fn read(payload: &[u8]) -> Option<Block> {
        let bytes: &[u8; BLOCK_BYTES] =
            payload.get(HEADER_BYTES..HEADER_BYTES + BLOCK_BYTES)?.try_into().ok()?;
        let half = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        Some(Block {
            number: half(0),
            batch: half(2),
            source_symbols: u32::from(half(4)) + 1,
            profile: bytes[6] >> 4,
            generator_bits: bytes[6] & 15,
            interleave: bytes[7],
        })
    }

    /// Writes the block word behind the fixed header of `out`.
    ///
    /// # Panics
    /// When `out`, which starts at the fixed header, is too short, or a field is out of its range.
    pub fn write(&self, out: &mut [u8]) {
        assert!((1..=1 << 16).contains(&self.source_symbols), "{} symbols", self.source_symbols);
        assert!(self.profile < 16 && self.generator_bits < 16, "nibbles");
        let out = &mut out[HEADER_BYTES..HEADER_BYTES + BLOCK_BYTES];
        out[..2].copy_from_slice(&self.number.to_be_bytes());
        out[2..4].copy_from_slice(&self.batch.to_be_bytes());
        out[4..6].copy_from_slice(&((self.source_symbols - 1) as u16).to_be_bytes());
        out[6] = self.profile << 4 | self.generator_bits;
        out[7] = self.interleave;
    }
}

/// Bytes of a coding vector over `size` symbols, padded to a multiple of four.
pub fn vector_bytes(size: usize, field_code: u8) -> usize {
    let bits = size << (field_code & 3);
    bits.div_ceil(32) * 4
}

/// A parsed packet of a generation or batch: header, block word, vector (or index) and symbol.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Coded<'a> {
    /// The fixed header.
    pub header: Header,
    /// The block word of a BATS packet; `None` in packets of generations.
    pub block: Option<Block>,
    /// How the symbol was formed.
    pub coding: Coding<'a>,
    /// Offset of the symbol within the UDP payload.
    pub symbol_offset: usize,
    /// Bytes of symbol.
    pub symbol_bytes: usize,
}

/// How a symbol was formed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Coding<'a> {
    /// It is the source symbol of the generation, or the coded symbol of the batch, with this
    /// index, less than the header's size.
    Systematic(u8),
    /// It is the combination given by this packed coding vector.
    Vector(&'a [u8]),
}

/// Parses a packet of a generation or of a batch.
///
/// # Errors
/// [`HeaderError`] when anything is missing: the fixed header, the block word of a BATS packet, the
/// whole vector, or at least one byte of symbol; when a systematic index is not below the size; or
/// when the packet is of another type.
pub fn parse_coded(payload: &[u8]) -> Result<Coded<'_>, HeaderError> {
    let header = Header::parse(payload)?;
    let block = match header.packet_type {
        PacketType::Generation => None,
        PacketType::Bats => Some(Block::read(payload).ok_or(HeaderError::Truncated)?),
        other => return Err(HeaderError::Type(other as u8)),
    };
    let coding_offset = header.packet_type.coding_offset();
    let symbol_offset = coding_offset + header.vector_bytes()?;
    let vector = payload.get(coding_offset..symbol_offset).ok_or(HeaderError::Truncated)?;
    let symbol_bytes = payload.len() - symbol_offset;
    if symbol_bytes == 0 {
        return Err(HeaderError::Truncated);
    }
    let coding = if header.flags.has(Flags::SYSTEMATIC) {
        let index = word(vector, 0);
        if index >= u32::from(header.size) {
            return Err(HeaderError::Flags(header.flags.0));
        }
        Coding::Systematic(index as u8)
    } else {
        Coding::Vector(vector)
    };
    Ok(Coded { header, block, coding, symbol_offset, symbol_bytes })
}

/// Writes the index of a systematic packet where its coding vector would be.
///
/// # Panics
/// When `out`, which starts at the fixed header, is too short.
pub fn write_index(out: &mut [u8], packet_type: PacketType, index: u8) {
    let at = packet_type.coding_offset();
    out[at..at + INDEX_BYTES].copy_from_slice(&u32::from(index).to_be_bytes());
}

/// Whether serial number `a` comes before `b` (RFC 1982).
pub fn serial_before(a: u32, b: u32) -> bool {
    a != b && b.wrapping_sub(a) < 1 << 31
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec;
    use std::vec::Vec;

    fn headers() -> impl Strategy<Value = Header> {
        (
            (0usize..7, 0u8..4, prop::bool::ANY, prop::bool::ANY, prop::bool::ANY),
            (any::<u8>(), 1u16..=256, any::<u32>(), any::<u32>()),
            (any::<u8>(), any::<u8>(), any::<u16>(), any::<u32>()),
        )
            .prop_map(|((kind, field, sys, end, recoded), b, c)| Header {
                packet_type: PacketType::ALL[kind],
                flags: Flags(field)
                    .with(Flags::SYSTEMATIC, sys)
                    .with(Flags::END, end)
                    .with(Flags::RECODED, recoded),
                epoch: b.0,
                size: b.1,
                flow: b.2,
                generation: b.3,
                hop_index: c.0,
                key_id: c.1,
                planned: c.2,
                link_sequence: c.3,
            })
    }

    /// Headers of packets that have a coding vector or an index.
    fn coded_headers() -> impl Strategy<Value = Header> {
        (headers(), prop::bool::ANY).prop_map(|(header, is_bats)| {
            let packet_type = if is_bats { PacketType::Bats } else { PacketType::Generation };
            Header { packet_type, ..header }
        })
    }

    fn blocks() -> impl Strategy<Value = Block> {
        (any::<u16>(), any::<u16>(), 1u32..=65536, 0u8..16, 0u8..16, any::<u8>()).prop_map(
            |(number, batch, source_symbols, profile, generator_bits, interleave)| Block {
                number,
                batch,
                source_symbols,
                profile,
                generator_bits,
                interleave,
            },
        )
    }

    fn packet(header: &Header, symbol_bytes: usize) -> Vec<u8> {
        let vector = header.vector_bytes().unwrap();
        let coding_offset = header.packet_type.coding_offset();
        let mut bytes = vec![0xA5; coding_offset + vector + symbol_bytes];
        header.write(&mut bytes);
        if header.flags.has(Flags::SYSTEMATIC) {
            write_index(&mut bytes, header.packet_type, (header.size - 1) as u8);
        }
        bytes
    }

    proptest! {
        #[test]
        fn header_written_then_parsed_is_itself(header in headers()) {
            let mut bytes = [0u8; HEADER_BYTES];
            header.write(&mut bytes);
            prop_assert_eq!(Header::parse(&bytes), Ok(header));
        }

        #[test]
        fn coded_packet_round_trips(
            header in coded_headers(),
            block in blocks(),
            symbol_bytes in 1usize..1500,
        ) {
            let mut bytes = packet(&header, symbol_bytes);
            let block = (header.packet_type == PacketType::Bats).then_some(block);
            if let Some(block) = block {
                block.write(&mut bytes);
            }
            let coded = parse_coded(&bytes).unwrap();
            prop_assert_eq!(coded.header, header);
            prop_assert_eq!(coded.block, block);
            prop_assert_eq!(coded.symbol_bytes, symbol_bytes);
            prop_assert_eq!(coded.symbol_offset + symbol_bytes, bytes.len());
            match coded.coding {
                Coding::Systematic(index) => prop_assert_eq!(u16::from(index), header.size - 1),
                Coding::Vector(vector) => prop_assert_eq!(
                    vector.len(),
                    vector_bytes(usize::from(header.size), header.flags.field_code())
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

    #[test]
    fn layout_is_the_documented_one() {
        let header = Header {
            packet_type: PacketType::Generation,
            flags: Flags(2).with(Flags::END, true),
            epoch: 3,
            size: 16,
            flow: 0x0102_0304,
            generation: 0x0506_0708,
            hop_index: 9,
            key_id: 0,
            planned: 0x0A0B,
            link_sequence: 0x0C0D_0E0F,
        };
        let mut bytes = [0u8; HEADER_BYTES];
        header.write(&mut bytes);
        let expected =
            [0x12, 0x22, 3, 15, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 0x0A, 0x0B, 0x0C, 0x0D, 0x0E, 0x0F];
        assert_eq!(bytes, expected);
        assert_eq!(header.vector_bytes(), Ok(8));
    }

    #[test]
    fn block_word_layout_is_the_documented_one() {
        let block = Block {
            number: 0x0102,
            batch: 0x0304,
            source_symbols: 0x0506 + 1,
            profile: 2,
            generator_bits: 8,
            interleave: 9,
        };
        let mut bytes = [0u8; HEADER_BYTES + BLOCK_BYTES];
        block.write(&mut bytes);
        assert_eq!(bytes[HEADER_BYTES..], [1, 2, 3, 4, 5, 6, 0x28, 9]);
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

    #[test]
    fn index_at_or_above_the_size_is_refused() {
        let header = Header {
            packet_type: PacketType::Generation,
            flags: Flags(Flags::SYSTEMATIC),
            epoch: 0,
            size: 4,
            flow: 1,
            generation: 1,
            hop_index: 0,
            key_id: 0,
            planned: 4,
            link_sequence: 0,
        };
        let mut bytes = packet(&header, 8);
        write_index(&mut bytes, PacketType::Generation, 4);
        assert_eq!(parse_coded(&bytes), Err(HeaderError::Flags(Flags::SYSTEMATIC)));
    }

    #[test]
    fn serial_numbers_wrap() {
        assert!(serial_before(u32::MAX, 0));
        assert!(!serial_before(0, u32::MAX));
        assert!(!serial_before(5, 5));
    }
}
