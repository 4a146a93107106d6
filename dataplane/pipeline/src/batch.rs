//! One generation as a relay or a sink holds it: the innovative packets, where their symbols lie, and
//! the elimination of their coding vectors. Symbols stay in the frames they arrived in.

use crate::params::Nanos;
use recoded_code::{Elimination, Outcome, vector};
use recoded_gf::FieldOrder;
use recoded_wire::frames::{Frames, Span};
use recoded_wire::header::{Coded, Coding, SIZE_MAX};

use crate::combine::Sources;

/// What a packet did to its generation.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Accepted {
    /// Raised the rank; the batch now holds a reference to the frame.
    Innovative,
    /// Did not.
    Redundant,
    /// Contradicts what earlier packets said.
    Mismatch,
}

/// A generation being collected.
pub(crate) struct Batch {
    /// Generation number.
    pub generation: u32,
    /// Whether this table entry is in use.
    pub live: bool,
    /// No further packets are planned: END, full rank, a newer generation or a timeout.
    pub closed: bool,
    /// When the last packet arrived, or the entry was opened.
    pub touched: Nanos,
    /// Packets this hop may send.
    pub planned: u16,
    /// Packets this hop has sent.
    pub sent: u16,
    /// Repair rounds this hop has answered.
    pub repaired: u8,
    /// Parameters, once a packet told them: epoch, field, symbol bytes.
    shape: Option<(u8, FieldOrder, u16)>,
    /// Innovative symbols in order of arrival.
    symbols: Vec<Span>,
    /// Their coding vectors, unpacked, `size_max` bytes apart. Empty when not kept.
    vectors: Vec<u8>,
    size_max: usize,
    elimination: Elimination,
}

impl Batch {
    /// An unused entry for generations of up to `size_max` symbols. Relays keep the vectors to
    /// recode them; sinks need only the elimination.
    pub(crate) fn new(size_max: usize, sink: bool) -> Batch {
        Batch {
            generation: 0,
            live: false,
            closed: false,
            touched: 0,
            planned: 0,
            sent: 0,
            repaired: 0,
            shape: None,
            symbols: Vec::with_capacity(size_max),
            vectors: vec![0; if sink { 0 } else { size_max * size_max }],
            size_max,
            elimination: Elimination::new(size_max),
        }
    }

    /// Begins a generation in this entry, which must be unused.
    pub(crate) fn open(&mut self, generation: u32, now: Nanos) {
        debug_assert!(!self.live && self.symbols.is_empty());
        self.generation = generation;
        self.live = true;
        self.closed = false;
        self.touched = now;
        (self.planned, self.sent, self.repaired) = (0, 0, 0);
        self.shape = None;
    }

    /// Frees the entry and lets its frames go.
    pub(crate) fn clear(&mut self, frames: &mut impl Frames) {
        for symbol in self.symbols.drain(..) {
            frames.release(symbol.frame);
        }
        self.live = false;
    }

    /// Takes a packet in. `payload` is its span, whose reference stays with the caller.
    pub(crate) fn accept(
        &mut self,
        frames: &mut impl Frames,
        payload: Span,
        coded: &PacketView,
    ) -> Accepted {
        let shape = (coded.epoch, coded.field, coded.symbol_bytes);
        if self.shape.is_none() {
            self.shape = Some(shape);
            self.elimination.reset(coded.size);
        }
        let size = self.elimination.size();
        if self.shape != Some(shape)
            || (coded.size < size && self.elimination.shrink(coded.size).is_err())
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
            PacketCoding::Vector(ref elements) => {
                let (inside, beyond) = elements.split_at(self.elimination.size());
                if beyond.iter().any(|element| *element != 0) {
                    return Accepted::Mismatch;
                }
                self.elimination.insert(inside)
            }
        };
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

    /// Size in symbols, as far as known.
    pub(crate) fn size(&self) -> usize {
        if self.shape.is_some() { self.elimination.size() } else { 0 }
    }

    /// Rank.
    pub(crate) fn rank(&self) -> usize {
        self.symbols.len()
    }

    /// Whether the rank equals the size.
    pub(crate) fn is_complete(&self) -> bool {
        self.shape.is_some() && self.elimination.is_complete()
    }

    /// Epoch, field and symbol bytes, once known.
    pub(crate) fn shape(&self) -> Option<(u8, FieldOrder, u16)> {
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

    /// What a relay combines.
    pub(crate) fn sources(&self) -> Option<Sources<'_>> {
        let (_, field, _) = self.shape?;
        Some(Sources {
            size: self.elimination.size(),
            field,
            symbols: &self.symbols,
            vectors: Some((&self.vectors, self.size_max)),
        })
    }
}

/// A coded packet, checked and unpacked: owns its vector, borrows nothing.
#[derive(Debug)]
pub(crate) struct PacketView {
    pub epoch: u8,
    pub size: usize,
    pub field: FieldOrder,
    pub symbol: Span,
    pub symbol_bytes: u16,
    pub coding: PacketCoding,
}

/// How the symbol was formed.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "lives on the stack: a box would allocate per packet"
)]
pub(crate) enum PacketCoding {
    /// Source symbol of this index.
    Systematic(usize),
    /// Combination with these elements; zero beyond the packet's size.
    Vector([u8; SIZE_MAX]),
}

impl PacketCoding {
    fn write(&self, row: &mut [u8]) {
        match self {
            PacketCoding::Systematic(index) => {
                row.fill(0);
                row[*index] = 1;
            }
            PacketCoding::Vector(elements) => {
                let length = row.len();
                row.copy_from_slice(&elements[..length]);
            }
        }
    }
}

impl PacketView {
    /// Unpacks `coded`, which lies in `payload`. `None` when the field code is none, which two bits
    /// cannot say.
    pub(crate) fn new(payload: Span, coded: &Coded<'_>) -> Option<PacketView> {
        let field = FieldOrder::from_code(coded.header.flags.field_code())?;
        let size = usize::from(coded.header.size);
        let coding = match coded.coding {
            Coding::Systematic(index) => PacketCoding::Systematic(usize::from(index)),
            Coding::Vector(packed) => {
                let mut elements = [0; SIZE_MAX];
                vector::unpack(field, packed, &mut elements[..size]);
                PacketCoding::Vector(elements)
            }
        };
        Some(PacketView {
            epoch: coded.header.epoch,
            size,
            field,
            symbol: payload.slice(coded.symbol_offset, coded.symbol_bytes)?,
            symbol_bytes: coded.symbol_bytes as u16,
            coding,
        })
    }
}
