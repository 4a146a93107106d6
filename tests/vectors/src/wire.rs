//! `wire.json`: packets of every type, field by field and byte by byte.

use recoded_code::TinyMt32;
use recoded_wire::coded::{Block, CodedHeader, coding_offset, log2_ceil, write_index};
use recoded_wire::feedback::{
    FeedbackHeader, FlowReport, HopReport, Item, Nack, SizeReport, Writer,
};
use recoded_wire::header::{Flags, PacketType};
use serde::{Deserialize, Serialize};

pub use crate::common_header::Header;
use crate::common_header::common;
use crate::hops::{self, Announced, Handshake, Link, Stream, links, streams};
use crate::{Hex, symbols};

const SYMBOL_BYTES: usize = 16;
const BATCH_SIZE_MAX: u16 = 128;

/// The document.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Document {
    /// Packets of generations and batches.
    pub coded: Vec<Coded>,
    /// Packets of streams.
    pub stream: Vec<Stream>,
    /// Feedback packets.
    pub feedback: Vec<Feedback>,
    /// Link reports.
    pub link: Vec<Link>,
    /// Messages of handshakes, without tags of hops.
    pub handshake: Vec<Handshake>,
    /// Announcements of neighbours, without tags of hops.
    pub announcement: Vec<Announced>,
}

/// A packet of a generation or batch.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Coded {
    /// The common header.
    pub header: Header,
    /// Generation or batch size.
    pub size: u16,
    /// Binary logarithm, rounded up, of the largest size in the epoch.
    pub full_log2: u8,
    /// Packets planned by this hop.
    pub planned: u16,
    /// Generation number, or serial number of the batch.
    pub generation: u32,
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

/// Batch and block numbers, and the code of the block.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BlockWord {
    /// Block number.
    pub number: u16,
    /// Batch id.
    pub batch: u16,
    /// Source symbols of the block, K.
    pub source_symbols: u16,
    /// Binary logarithm, rounded up, of the largest K in the epoch.
    pub full_log2: u8,
    /// 0 baseline, 1 precoded, 2 cyclic-shift.
    pub profile: u8,
    /// Bits of the outer code's coefficients.
    pub generator_bits: u8,
    /// Batches that are interleaved.
    pub interleave: u8,
}

/// A feedback packet.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Feedback {
    /// The common header.
    pub header: Header,
    /// The node that reports.
    pub node: u32,
    /// Number of the report.
    pub number: u32,
    /// Reported items.
    pub items: Vec<FeedbackItem>,
    /// All bytes of the UDP payload.
    pub bytes: Hex,
}

/// An item of a feedback packet.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FeedbackItem {
    /// Kind 1.
    Hop {
        /// Hop index.
        hop: u8,
        /// Share of packets lost, in 1/65535.
        loss: u16,
        /// Mean run of losses, in 1/256 packets.
        burst_mean: u16,
    },
    /// Kind 2.
    Flow {
        /// Newest unit.
        newest: u32,
        /// Units decoded completely.
        complete: u32,
        /// Units abandoned.
        failed: u32,
    },
    /// Kind 3.
    Nack {
        /// Unit.
        unit: u32,
        /// Missing degrees of freedom.
        missing: u16,
        /// Round.
        round: u8,
    },
    /// Kind 4.
    Ranks {
        /// Epoch of the generations.
        epoch: u8,
        /// Generations by rank, from 0 to the size.
        counts: Vec<u32>,
    },
    /// Kind 5.
    BlockAck {
        /// Block number.
        block: u16,
    },
    /// Kind 6.
    Size {
        /// Hop index.
        hop: u8,
        /// Bytes of UDP payload.
        bytes: u16,
    },
    /// Kind 7.
    Arrivals {
        /// The first number.
        first: u32,
        /// Whether the sink has it, and those that follow.
        came: Vec<bool>,
    },
}

impl From<Block> for BlockWord {
    fn from(block: Block) -> Self {
        let Block { number, batch, source_symbols, full_log2, profile, generator_bits, interleave } =
            block;
        Self { number, batch, source_symbols, full_log2, profile, generator_bits, interleave }
    }
}

impl From<Item<'_>> for FeedbackItem {
    fn from(item: Item<'_>) -> Self {
        match item {
            Item::Hop(report) => FeedbackItem::Hop {
                hop: report.hop,
                loss: (report.loss * 65535.0).round() as u16,
                burst_mean: (report.burst_mean * 256.0).round() as u16,
            },
            Item::Flow(FlowReport { newest, complete, failed }) => {
                FeedbackItem::Flow { newest, complete, failed }
            }
            Item::Nack(Nack { unit, missing, round }) => {
                FeedbackItem::Nack { unit, missing, round }
            }
            Item::Ranks(report) => {
                FeedbackItem::Ranks { epoch: report.epoch, counts: report.counts().collect() }
            }
            Item::BlockAck(block) => FeedbackItem::BlockAck { block },
            Item::Size(SizeReport { hop, bytes }) => FeedbackItem::Size { hop, bytes },
            Item::Arrivals(report) => FeedbackItem::Arrivals {
                first: report.numbers().next().map_or(0, |(number, _)| number),
                came: report.numbers().map(|(_, came)| came).collect(),
            },
        }
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
    let repairs = [(Flags::REPAIR | 3, 64, 0), (Flags::REPAIR | Flags::RECODED | 2, 7, 0)];
    let mended = [(Flags::MENDED | Flags::SYSTEMATIC | 2, 16, 3), (Flags::MENDED | end | 2, 16, 0)];
    let generations = (0..).zip(cases.into_iter().chain(repairs).chain(mended));
    let batches = (0..).zip(cases.into_iter().chain(mended));
    Document {
        coded: generations
            .map(|(number, (flags, size, index))| {
                coded(PacketType::Generation, number, flags, size, index)
            })
            .chain(batches.map(|(number, (flags, size, index))| {
                coded(PacketType::Bats, number, flags, size, index)
            }))
            .collect(),
        stream: streams(),
        feedback: (0..).zip(reports()).map(|(number, items)| feedback(number, &items)).collect(),
        link: links(),
        handshake: hops::handshakes(),
        announcement: hops::announcements(),
    }
}

fn coded(packet_type: PacketType, number: u8, flags: u8, size: u16, index: u8) -> Coded {
    let is_bats = packet_type == PacketType::Bats;
    let size = if is_bats { size.min(BATCH_SIZE_MAX) } else { size };
    let is_repair = flags & Flags::REPAIR != 0;
    let header = CodedHeader {
        common: common(packet_type, flags, number),
        size,
        full_log2: (log2_ceil(usize::from(size)) + number % 2).min(8),
        planned: if is_repair {
            0
        } else {
            [4095, 18, 36, 54, 0x102, 300, 16, 17][usize::from(number % 8)]
        },
        generation: u32::MAX - 2 + u32::from(number % 3),
    };
    let block = is_bats.then(|| {
        let source_symbols = 256 << (number % 5);
        Block {
            number: 0xFFFE + u16::from(number % 2),
            batch: u16::from(number) * 0x0101,
            source_symbols,
            full_log2: (log2_ceil(usize::from(source_symbols)) + number % 2).min(12),
            profile: number % 3,
            generator_bits: [1, 2, 3, 4, 8, 8, 4, 8][usize::from(number % 8)],
            interleave: 16 - number,
        }
    });
    written(&header, block, index)
}

fn written(header: &CodedHeader, block: Option<Block>, index: u8) -> Coded {
    let is_bats = block.is_some();
    let coding_offset = coding_offset(is_bats);
    let vector_bytes = header.vector_bytes();
    let symbol = symbols(header.common.link_sequence, 1, SYMBOL_BYTES).remove(0);
    let mut bytes = vec![0; coding_offset];
    header.write(&mut bytes);
    if let Some(block) = &block {
        block.write(&mut bytes);
    }
    let (mut symbol_index, mut vector) = (None, None);
    if header.common.flags.has(Flags::SYSTEMATIC) {
        bytes.resize(coding_offset + vector_bytes, 0);
        write_index(&mut bytes, is_bats, index);
        symbol_index = Some(index);
    } else {
        let bits = usize::from(header.size) << header.common.flags.field_code();
        let mut packed = symbols(7, 1, vector_bytes).remove(0);
        // Padding is zero.
        for bit in bits..vector_bytes * 8 {
            packed.0[bit / 8] &= !(0x80 >> (bit % 8));
        }
        bytes.extend_from_slice(&packed.0);
        vector = Some(packed);
    }
    bytes.extend_from_slice(&symbol.0);
    Coded {
        header: Header::from(header.common),
        size: header.size,
        full_log2: header.full_log2,
        planned: header.planned,
        generation: header.generation,
        block: block.map(BlockWord::from),
        symbol_index,
        vector,
        symbol,
        bytes: Hex(bytes),
    }
}

/// Reports of feedback packets: none, each kind alone, kinds 1 to 6 together, arrivals.
fn reports() -> Vec<Vec<FeedbackItem>> {
    let hop = FeedbackItem::Hop { hop: 3, loss: 65535, burst_mean: 0x280 };
    let flow = FeedbackItem::Flow { newest: 2, complete: u32::MAX, failed: 7 };
    let nacks = [
        FeedbackItem::Nack { unit: u32::MAX, missing: u16::MAX, round: 0 },
        FeedbackItem::Nack { unit: 0, missing: 3, round: 2 },
    ];
    let mut random = TinyMt32::new(11);
    let counts = (0..17).map(|_| random.next_u32()).collect();
    let ranks = FeedbackItem::Ranks { epoch: 9, counts };
    let block = FeedbackItem::BlockAck { block: 0xFFFE };
    let size = FeedbackItem::Size { hop: 3, bytes: 1372 };
    let mut all = vec![hop.clone(), flow.clone(), ranks.clone()];
    all.extend_from_slice(&nacks);
    all.extend([block.clone(), size.clone()]);
    let came = (0..40).map(|bit| bit % 3 > 0).collect();
    let arrivals = vec![flow.clone(), FeedbackItem::Arrivals { first: u32::MAX - 9, came }];
    let nacks = nacks.to_vec();
    let alone = [vec![hop], vec![flow], nacks, vec![ranks], vec![block], vec![size]];
    [vec![]].into_iter().chain(alone).chain([all, arrivals]).collect()
}

fn feedback(number: u8, items: &[FeedbackItem]) -> Feedback {
    let common = common(PacketType::Feedback, 0, number);
    let number = (u32::MAX - 3).wrapping_add(u32::from(number));
    let header = FeedbackHeader { common, node: 0x8000_0001, number };
    let mut bytes = vec![0; 1232];
    header.write(&mut bytes);
    let mut writer = Writer::new(&mut bytes);
    for item in items {
        assert!(push(&mut writer, item), "the items fit a packet");
    }
    let length = writer.finish();
    bytes.truncate(length);
    Feedback {
        header: Header::from(common),
        node: header.node,
        number: header.number,
        items: items.to_vec(),
        bytes: Hex(bytes),
    }
}

fn push(writer: &mut Writer<'_>, item: &FeedbackItem) -> bool {
    writer.push(match *item {
        FeedbackItem::Hop { hop, loss, burst_mean } => Item::Hop(HopReport {
            hop,
            loss: f32::from(loss) / 65535.0,
            burst_mean: f32::from(burst_mean) / 256.0,
        }),
        FeedbackItem::Flow { newest, complete, failed } => {
            Item::Flow(FlowReport { newest, complete, failed })
        }
        FeedbackItem::Nack { unit, missing, round } => Item::Nack(Nack { unit, missing, round }),
        FeedbackItem::BlockAck { block } => Item::BlockAck(block),
        FeedbackItem::Size { hop, bytes } => Item::Size(SizeReport { hop, bytes }),
        FeedbackItem::Ranks { epoch, ref counts } => {
            return writer.push_ranks(epoch, counts.iter().copied());
        }
        FeedbackItem::Arrivals { first, ref came } => {
            let has = |number: u32| came[number.wrapping_sub(first) as usize];
            return writer.push_arrivals(first, came.len(), has);
        }
    })
}
