//! `wire.json`: packets, field by field and byte by byte.

use recoded_wire::header::{Block, Flags, Header, PacketType, write_index};
use serde::{Deserialize, Serialize};

use crate::{Hex, symbols};

const SYMBOL_BYTES: usize = 16;

/// The document.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Document {
    /// UDP payloads.
    pub packets: Vec<Packet>,
}

/// A packet and what its header says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Packet {
    /// Type: 1 BATS, 2 RLNC generation.
    pub packet_type: u8,
    /// Flags with the field code.
    pub flags: u8,
    /// Parameter epoch.
    pub epoch: u8,
    /// Generation or batch size.
    pub size: u16,
    /// Flow id.
    pub flow: u32,
    /// Generation number, or serial number of the batch.
    pub generation: u32,
    /// Hops travelled.
    pub hop_index: u8,
    /// Authentication key.
    pub key_id: u8,
    /// Packets planned by this hop.
    pub planned: u16,
    /// Link sequence number.
    pub link_sequence: u32,
    /// The block word, of a BATS packet.
    pub block: Option<BlockWord>,
    /// Index of the source symbol (of a batch: of the coded symbol), of a systematic packet.
    pub symbol_index: Option<u8>,
    /// Packed coding vector, of other packets.
    pub vector: Option<Hex>,
    /// The symbol.
    pub symbol: Hex,
    /// All bytes of the UDP payload.
    pub bytes: Hex,
}

/// Which batch of which block, and how the block is coded.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BlockWord {
    /// Block number.
    pub number: u16,
    /// Batch id.
    pub batch: u16,
    /// Source symbols of the block, K.
    pub source_symbols: u32,
    /// 0 baseline, 1 precoded, 2 cyclic-shift.
    pub profile: u8,
    /// Bits of the outer code's coefficients.
    pub generator_bits: u8,
    /// Batches that take turns.
    pub interleave: u8,
}

impl From<Block> for BlockWord {
    fn from(block: Block) -> Self {
        let Block { number, batch, source_symbols, profile, generator_bits, interleave } = block;
        Self { number, batch, source_symbols, profile, generator_bits, interleave }
    }
}

/// Makes the document.
#[must_use]
pub fn document() -> Document {
    let end = Flags::END | Flags::RECODED;
    let cases = [
        (Flags::SYSTEMATIC, 1, 0),
        (Flags::SYSTEMATIC | 2, 16, 15),
        (end, 33, 0),
        (Flags::RECODED | 1, 17, 0),
        (2, 16, 0),
        (end | 3, 256, 0),
    ];
    let of_type =
        |packet_type| (0..).zip(cases).map(move |(number, case)| packet(packet_type, number, case));
    let types = [PacketType::Generation, PacketType::Bats];
    Document { packets: types.into_iter().flat_map(of_type).collect() }
}

fn packet(packet_type: PacketType, number: u8, (flags, size, index): (u8, u16, u8)) -> Packet {
    let header = Header {
        packet_type,
        flags: Flags(flags),
        epoch: 200 + number,
        size,
        flow: 0x0102_0304,
        generation: u32::MAX - 2 + u32::from(number % 3),
        hop_index: number,
        key_id: 0,
        planned: 18 * u16::from(number % 4),
        link_sequence: 0xFFFF_FFF0 + u32::from(number),
    };
    let block = Block {
        number: 0xFFFE + u16::from(number % 2),
        batch: u16::from(number) * 0x0101,
        source_symbols: 256 << (number % 5),
        profile: number % 3,
        generator_bits: [1, 2, 3, 4, 8, 8][usize::from(number)],
        interleave: 16 - number,
    };
    written(&header, (packet_type == PacketType::Bats).then_some(block), index)
}

fn written(header: &Header, block: Option<Block>, index: u8) -> Packet {
    let coding_offset = header.packet_type.coding_offset();
    let vector_bytes = header.vector_bytes().expect("defined flags");
    let symbol = symbols(header.link_sequence, 1, SYMBOL_BYTES).remove(0);
    let mut bytes = vec![0; coding_offset];
    header.write(&mut bytes);
    if let Some(block) = &block {
        block.write(&mut bytes);
    }
    let (mut symbol_index, mut vector) = (None, None);
    if header.flags.has(Flags::SYSTEMATIC) {
        bytes.resize(coding_offset + vector_bytes, 0);
        write_index(&mut bytes, header.packet_type, index);
        symbol_index = Some(index);
    } else {
        let bits = usize::from(header.size) << header.flags.field_code();
        let mut packed = symbols(7, 1, vector_bytes).remove(0);
        // Padding is zero.
        for bit in bits..vector_bytes * 8 {
            packed.0[bit / 8] &= !(0x80 >> (bit % 8));
        }
        bytes.extend_from_slice(&packed.0);
        vector = Some(packed);
    }
    bytes.extend_from_slice(&symbol.0);
    Packet {
        packet_type: header.packet_type as u8,
        flags: header.flags.0,
        epoch: header.epoch,
        size: header.size,
        flow: header.flow,
        generation: header.generation,
        hop_index: header.hop_index,
        key_id: header.key_id,
        planned: header.planned,
        link_sequence: header.link_sequence,
        block: block.map(BlockWord::from),
        symbol_index,
        vector,
        symbol,
        bytes: Hex(bytes),
    }
}
