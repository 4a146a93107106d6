//! One generation, or one batch of a BATS flow, as a relay or a sink holds it: the innovative
//! packets, the places of their symbols, and the elimination of their coding vectors. Symbols stay
//! in the frames they arrived in.

use crate::base::tally::{Tallied, Tally};
use crate::config::params::{Nanos, UPSTREAMS_MAX};
use recoded_code::{Elimination, Outcome, vector};
use recoded_gf::FieldOrder;
use recoded_wire::coded::{Block, Coded, PackedCoding, SIZE_MAX};
use recoded_wire::frames::{Frames, Span};

use crate::env::combine::Sources;

/// Effect of a packet on its generation.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Accepted {
    /// Raised the rank; a reference to the frame is now held.
    Innovative,
    /// Did not raise the rank.
    Redundant,
    /// Contradicts earlier packets.
    Mismatch,
}

/// Fields that all packets of a generation share; packets of a batch share their block word too.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Shape {
    pub epoch: u8,
    pub field: FieldOrder,
    pub symbol_bytes: u16,
    pub full_log2: u8,
    pub block: Option<Block>,
}

/// The innovative packets of a generation, or of a batch of a BATS block.
pub(crate) struct Collected {
    /// Generation number.
    pub generation: u32,
    /// No further packets are planned, after END, full rank, a newer generation or a timeout.
    pub closed: bool,
    /// When the last packet arrived, or the entry was opened.
    pub touched: Nanos,
    /// Packets this hop may send.
    pub planned: u16,
    /// Packets announced by each upstream, and a bit for each upstream that has sent its last.
    pub announced: [u16; UPSTREAMS_MAX],
    pub ended: u8,
    /// Whether `planned` was decided by the rank at its end.
    pub is_planned: bool,
    /// Whether hops recover their own losses of it.
    pub is_mended: bool,
    /// Packets of it on this hop, and how many of them are sent proactively when it ends.
    pub tally: Tally,
    pub share: u16,
    /// Packets still to be sent since it closed.
    pub pending: u16,
    /// Packets and bytes received of it, innovative or not, and bytes sent.
    pub packets_received: u32,
    pub bytes_received: u64,
    pub bytes_sent: u64,
    /// When the first packet arrived.
    pub first: Nanos,
    /// Repair rounds this hop has answered.
    pub repaired: u8,
    /// Traffic class of its first packet.
    pub class: u8,
    /// Parameters, once a packet announced them.
    shape: Option<Shape>,
    /// Innovative symbols in order of arrival.
    symbols: Vec<Span>,
    /// Their coding vectors, unpacked, `size_max` bytes apart. Empty when not kept.
    vectors: Vec<u8>,
    size_max: usize,
    elimination: Elimination,
}

impl Tallied for Collected {
    fn tally_of(&mut self, unit: u32) -> Option<&mut Tally> {
        (self.generation == unit).then_some(&mut self.tally)
    }
}

impl Collected {
    /// An unused entry for generations of up to `size_max` symbols. Relays keep the vectors to
    /// recode them; sinks need only the elimination.
    pub(crate) fn new(size_max: usize, sink: bool) -> Collected {
        Collected {
            generation: 0,
            closed: false,
            touched: 0,
            planned: 0,
            announced: [0; UPSTREAMS_MAX],
            ended: 0,
            is_planned: false,
            is_mended: false,
            tally: Tally::default(),
            share: 0,
            pending: 0,
            packets_received: 0,
            bytes_received: 0,
            bytes_sent: 0,
            first: 0,
            repaired: 0,
            class: 0,
            shape: None,
            symbols: Vec::with_capacity(size_max),
            vectors: vec![0; if sink { 0 } else { size_max * size_max }],
            size_max,
            elimination: Elimination::new(size_max),
        }
    }

    /// Begins a generation in this entry, which must be unused. One that was evicted early and
    /// returns has sent part of its plan, or all of it: that count remains.
    pub(crate) fn open(&mut self, generation: u32, now: Nanos) {
        debug_assert!(self.symbols.is_empty());
        let sent = if self.generation == generation { self.tally.outstanding() } else { 0 };
        if self.generation != generation {
            (self.packets_received, self.bytes_received, self.bytes_sent) = (0, 0, 0);
        }
        self.generation = generation;
        self.closed = false;
        self.touched = now;
        (self.planned, self.share, self.pending, self.repaired) = (0, 0, 0, 0);
        (self.announced, self.ended) = ([0; UPSTREAMS_MAX], 0);
        self.tally = Tally { sent, ..Tally::default() };
        (self.is_planned, self.is_mended) = (false, false);
        self.shape = None;
    }

    /// Frees the entry and releases its frames.
    pub(crate) fn clear(&mut self, frames: &mut impl Frames) {
        for symbol in self.symbols.drain(..) {
            frames.release(symbol.frame);
        }
    }

    /// Adds a packet. `payload` is its span, whose reference stays with the caller.
    pub(crate) fn accept(
        &mut self,
        frames: &mut impl Frames,
        payload: Span,
        coded: &PacketView,
    ) -> Accepted {
        let shape = coded.shape();
        if self.shape.is_none() {
            self.shape = Some(shape);
            self.first = self.touched;
            self.elimination.reset(coded.size);
        }
        let size = self.elimination.size();
        // A generation may turn out shorter; a batch may not.
        let has_shrunk = coded.size < size;
        if self.shape != Some(shape)
            || (shape.block.is_some() && coded.size != size)
            || (has_shrunk && self.elimination.shrink(coded.size).is_err())
        {
            return Accepted::Mismatch;
        }
        let outcome = match coded.coding {
            PacketCoding::Systematic(index) => {
                if index >= self.elimination.size() {
                    return Accepted::Mismatch;
                }
                self.elimination.insert_unit(index)
            }
            PacketCoding::Vector(elements) => {
                let (inside, beyond) = elements.split_at(self.elimination.size());
                if beyond.iter().any(|element| *element != 0) {
                    return Accepted::Mismatch;
                }
                self.elimination.insert(inside)
            }
        };
        self.packets_received = self.packets_received.saturating_add(1);
        self.bytes_received += u64::from(payload.len);
        let Outcome::Innovative { slot, .. } = outcome else {
            return Accepted::Redundant;
        };
        if !self.vectors.is_empty() {
            let row = &mut self.vectors[slot * self.size_max..][..self.size_max];
            coded.coding.write(row);
        }
        frames.retain(payload.frame);
        self.symbols.push(coded.symbol);
        Accepted::Innovative
    }

    /// Size in symbols, if known.
    pub(crate) fn size(&self) -> usize {
        if self.shape.is_some() { self.elimination.size() } else { 0 }
    }

    /// Rank.
    pub(crate) fn rank(&self) -> usize {
        self.symbols.len()
    }

    /// Packets to be sent, in addition to pending ones, until the next node holds everything held
    /// here.
    pub(crate) fn lacks(&self) -> u16 {
        self.tally.lacks(self.rank()).saturating_sub(self.pending)
    }

    /// Whether the rank equals the size.
    pub(crate) fn is_complete(&self) -> bool {
        self.shape.is_some() && self.elimination.is_complete()
    }

    /// Fields that its packets share, once known.
    pub(crate) fn shape(&self) -> Option<Shape> {
        self.shape
    }

    /// The innovative symbols, by slot.
    pub(crate) fn symbols(&self) -> &[Span] {
        &self.symbols
    }

    /// Coefficients over the slots that give source symbol `symbol`.
    pub(crate) fn solution(&self, symbol: usize, out: &mut [u8]) -> Option<()> {
        self.elimination.solution(symbol, out)
    }

    /// Operands that a relay combines.
    pub(crate) fn sources(&self) -> Option<Sources<'_>> {
        let Shape { field, block, .. } = self.shape?;
        Some(Sources {
            size: self.elimination.size(),
            field,
            block,
            symbols: &self.symbols,
            vectors: Some((&self.vectors, self.size_max)),
        })
    }
}

/// A coded packet, checked and unpacked: it does not borrow from its frame.
#[derive(Copy, Clone, Debug)]
pub(crate) struct PacketView<'a> {
    pub epoch: u8,
    pub size: usize,
    pub full_log2: u8,
    pub field: FieldOrder,
    pub block: Option<Block>,
    pub symbol: Span,
    pub symbol_bytes: u16,
    pub coding: PacketCoding<'a>,
}

/// How the symbol was formed.
#[derive(Copy, Clone, Debug)]
pub(crate) enum PacketCoding<'a> {
    /// The source symbol of this index.
    Systematic(usize),
    /// Combination with these elements, as many as the packet's size.
    Vector(&'a [u8]),
}

impl PacketCoding<'_> {
    fn write(&self, row: &mut [u8]) {
        match self {
            PacketCoding::Systematic(index) => {
                row.fill(0);
                row[*index] = 1;
            }
            PacketCoding::Vector(elements) => {
                let (inside, beyond) = row.split_at_mut(elements.len());
                inside.copy_from_slice(elements);
                beyond.fill(0);
            }
        }
    }
}

impl<'a> PacketView<'a> {
    /// Fields that it must share with other packets of its generation.
    pub(crate) fn shape(&self) -> Shape {
        Shape {
            epoch: self.epoch,
            field: self.field,
            symbol_bytes: self.symbol_bytes,
            full_log2: self.full_log2,
            block: self.block,
        }
    }

    /// Unpacks `coded`, which lies in `payload`, with its vector going to `vector`. `None` for an
    /// invalid field code or size, which their encodings, two bits and one byte, cannot express.
    #[inline]
    pub(crate) fn new(
        payload: Span,
        coded: &Coded<'_>,
        vector: &'a mut [u8; SIZE_MAX],
    ) -> Option<PacketView<'a>> {
        let field = FieldOrder::from_code(coded.header.common.flags.field_code())?;
        let size = usize::from(coded.header.size);
        let coding = match coded.coding {
            PackedCoding::Systematic(index) => PacketCoding::Systematic(usize::from(index)),
            PackedCoding::Vector(packed) => {
                let elements = vector.get_mut(..size)?;
                vector::unpack(field, packed, elements);
                PacketCoding::Vector(elements)
            }
        };
        Some(PacketView {
            epoch: coded.header.common.epoch,
            size,
            full_log2: coded.header.full_log2,
            field,
            block: coded.block,
            symbol: payload.slice(coded.symbol_offset, coded.symbol_bytes)?,
            symbol_bytes: coded.symbol_bytes as u16,
            coding,
        })
    }
}
