//! A block at its source: its symbols, and how far its batches have progressed.

use crate::base::layout::symbol_offset;
use crate::config::params::{FlowCode, FlowParams};
use recoded_code::bats::{Batch, Code, Operand, Params, Payloads};
use recoded_gf::{FieldOrder, Kernel};
use recoded_wire::coded::{Block as BlockWord, INDEX_BYTES, coding_offset, log2_ceil};
use recoded_wire::frames::{FrameId, Frames, GATHER_MAX, Span};
use std::convert::Infallible;

/// Products of symbols per call while a precode is computed: about the work of forming some
/// packets.
const STEP_PRODUCTS: usize = 512;

/// One block of source symbols.
#[derive(Debug)]
pub(crate) struct Block {
    pub number: u16,
    pub live: bool,
    pub epoch: u8,
    pub field: FieldOrder,
    /// Logarithms of the sizes of full blocks and of their batches.
    full_log2: u8,
    pub batch_log2: u8,
    /// Traffic class of its first packet, used for all packets that carry the block.
    pub class: u8,
    /// Code parameters, once it is closed.
    pub params: Params,
    /// Batches of it that are interleaved, also fixed when it closes.
    pub interleave: u8,
    /// Source symbols, then those of the precode.
    pub symbols: Vec<Span>,
    /// Batches sent or being formed; also the id of the next one.
    pub batches: u16,
    /// Batches still to be formed.
    pub due: u16,
    /// Repair rounds answered.
    pub repaired: u8,
    /// Steps of its precode that have been computed.
    precoded: u16,
    /// Number of steps; 0 without a precode.
    precode_steps: u16,
}

impl Block {
    /// An unused entry with room for `symbols_max`.
    pub(crate) fn new(symbols_max: usize) -> Block {
        Block {
            number: 0,
            live: false,
            epoch: 0,
            field: FieldOrder::Two,
            full_log2: 0,
            batch_log2: 0,
            class: 0,
            params: Params::default(),
            interleave: 1,
            symbols: Vec::with_capacity(symbols_max),
            batches: 0,
            due: 0,
            repaired: 0,
            precoded: 0,
            precode_steps: 0,
        }
    }

    /// Begins block `number` in this entry, which must hold nothing.
    pub(crate) fn open(&mut self, number: u16, epoch: u8, params: &FlowParams, class: u8) {
        debug_assert!(self.symbols.is_empty());
        (self.number, self.epoch, self.field, self.live) = (number, epoch, params.field, true);
        self.class = class;
        self.batch_log2 = log2_ceil(params.generation_size);
        if let FlowCode::Bats(bats) = &params.code {
            self.full_log2 = log2_ceil(bats.source_symbols);
        }
        (self.batches, self.due, self.repaired) = (0, 0, 0);
        (self.precoded, self.precode_steps) = (0, 0);
    }

    /// Frees the entry and releases its frames.
    pub(crate) fn clear(&mut self, frames: &mut impl Frames) {
        for symbol in self.symbols.drain(..) {
            frames.release(symbol.frame);
        }
        (self.live, self.due) = (false, 0);
    }

    /// Makes room for the symbols of the precode, if `code` has one; [`Former::precode`] computes
    /// them. Returns false, with nothing added, when frames ran out.
    pub(crate) fn begin_precode(&mut self, code: &Code, frames: &mut impl Frames) -> bool {
        let had = self.symbols.len();
        let Some(first) = self.symbols.first().copied() else { return false };
        while self.symbols.len() < code.intermediate_symbols() {
            let Some(frame) = frames.take() else {
                for symbol in self.symbols.drain(had..) {
                    frames.release(symbol.frame);
                }
                return false;
            };
            self.symbols.push(Span { frame, ..first });
        }
        self.precode_steps = code.precode_steps() as u16;
        true
    }

    /// Whether all symbols of its precode are computed: batches can be formed.
    pub(crate) fn is_precoded(&self) -> bool {
        self.precoded == self.precode_steps
    }

    /// The block word of batch `batch`.
    pub(crate) fn word(&self, batch: u16) -> BlockWord {
        BlockWord {
            number: self.number,
            batch,
            source_symbols: self.params.source_symbols as u16,
            full_log2: self.full_log2,
            profile: self.params.profile.code(),
            generator_bits: self.params.generator_bits,
            interleave: self.interleave,
        }
    }
}

/// Symbols in their frames, for the precode.
struct Symbols<'a, F> {
    kernel: &'a Kernel,
    frames: &'a mut F,
    symbols: &'a [Span],
}

impl<F: Frames> Payloads for Symbols<'_, F> {
    type Error = Infallible;

    fn combine(
        &mut self,
        coefficients: &[u8],
        sources: &[Operand],
        destinations: &[Operand],
        accumulate: bool,
    ) -> Result<(), Infallible> {
        let mut spans = [[NOWHERE; GATHER_MAX]; 2];
        for (spans, operands) in spans.iter_mut().zip([sources, destinations]) {
            for (span, operand) in spans.iter_mut().zip(operands) {
                // A precode has no other operands.
                if let Operand::Symbol(symbol) = operand {
                    *span = self.symbols[usize::from(*symbol)];
                }
            }
        }
        let (from, to) = (&spans[0][..sources.len()], &spans[1][..destinations.len()]);
        let kernel = self.kernel;
        self.frames.with_disjoint(from, to, |from, to| match accumulate {
            true => kernel.matmul_accumulate(coefficients, from, to),
            false => kernel.matmul(coefficients, from, to),
        });
        Ok(())
    }
}

const NOWHERE: Span = Span { frame: FrameId(0), offset: 0, len: 0 };

/// Forms batches, straight into the frames they are sent in.
#[derive(Debug)]
pub(crate) struct Former {
    code: Code,
    batch: Batch,
    /// The generator's columns for one pass, for batches with more symbols than one pass takes.
    columns: Vec<u8>,
}

impl Former {
    /// A former for blocks of the size in `params`.
    pub(crate) fn new(params: Params) -> Option<Former> {
        let code = Code::new(params).ok()?;
        Some(Former { code, batch: Batch::new(), columns: vec![0; GATHER_MAX * GATHER_MAX] })
    }

    /// The code of `block`.
    pub(crate) fn code(&mut self, block: &Block) -> Option<&Code> {
        self.code.reset(block.params).ok()?;
        Some(&self.code)
    }

    /// Computes a part of the symbols of the precode of a block.
    pub(crate) fn precode(&mut self, block: &mut Block, kernel: &Kernel, frames: &mut impl Frames) {
        if self.code.reset(block.params).is_err() {
            return;
        }
        let mut products = 0;
        while !block.is_precoded() && products < STEP_PRODUCTS {
            let mut rows = Symbols { kernel, frames, symbols: &block.symbols };
            let Ok(taken) = self.code.precode_step(usize::from(block.precoded), &mut rows);
            products += taken;
            block.precoded += 1;
        }
    }

    /// Forms batch `id` of `block` and appends its symbols to `formed`. Each has a frame of its own
    /// with room in front for a tag of `tag_bytes`. Returns false, with nothing
    /// appended, when frames ran out.
    pub(crate) fn form(
        &mut self,
        block: &Block,
        id: u16,
        kernel: &Kernel,
        frames: &mut impl Frames,
        formed: &mut Vec<Span>,
        tag_bytes: usize,
    ) -> bool {
        if self.code.reset(block.params).is_err() {
            return false;
        }
        self.code.batch(id, &mut self.batch);
        let (had, size) = (formed.len(), block.params.batch_size);
        let tag_bytes = tag_bytes as u16;
        let offset = symbol_offset(coding_offset(true) + INDEX_BYTES) as u16 + tag_bytes;
        let len = block.symbols.first().map_or(0, |symbol| symbol.len);
        while formed.len() < had + size {
            let Some(frame) = frames.take() else {
                for symbol in formed.drain(had..) {
                    frames.release(symbol.frame);
                }
                return false;
            };
            formed.push(Span { frame, offset, len });
        }
        self.multiply(block, kernel, frames, &formed[had..]);
        for symbol in &mut formed[had..] {
            (symbol.offset, symbol.len) = (symbol.offset - tag_bytes, symbol.len + tag_bytes);
        }
        true
    }

    fn multiply(
        &mut self,
        block: &Block,
        kernel: &Kernel,
        frames: &mut impl Frames,
        formed: &[Span],
    ) {
        let degree = self.batch.degree();
        let mut sources = [NOWHERE; GATHER_MAX];
        for first in (0..degree).step_by(GATHER_MAX) {
            let count = (degree - first).min(GATHER_MAX);
            let indices = &self.batch.indices()[first..first + count];
            for (source, index) in sources.iter_mut().zip(indices) {
                *source = block.symbols[usize::from(*index)];
            }
            let coefficients = if count == degree {
                self.batch.generator()
            } else {
                let rows = self.batch.generator().chunks_exact(degree);
                for (columns, row) in self.columns.chunks_exact_mut(count).zip(rows) {
                    columns.copy_from_slice(&row[first..first + count]);
                }
                &self.columns[..count * formed.len()]
            };
            frames.with_disjoint(&sources[..count], formed, |from, to| match first {
                0 => kernel.matmul(coefficients, from, to),
                _ => kernel.matmul_accumulate(coefficients, from, to),
            });
        }
    }
}
