//! Payload rows of a block in frames: the operands of its decoder.

use crate::base::layout::symbol_offset;
use recoded_code::bats::{Operand, Payloads};
use recoded_gf::Kernel;
use recoded_wire::frames::{FrameId, Frames, Span};

/// Most sources and destinations of one product.
const OPERANDS_MAX: usize = 128;

/// No frame was free.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct FramesExhausted;

/// The rows of one block: received symbols by slot, intermediate symbols, and room for temporary
/// results. Each row holds one reference to its frame.
#[derive(Debug)]
pub(crate) struct Rows {
    received: Vec<Span>,
    symbols: Vec<Option<Span>>,
    spares: Vec<Option<Span>>,
    symbol_bytes: u16,
}

impl Rows {
    /// Room for this many rows of each kind.
    pub(crate) fn new(received_max: usize, symbols_max: usize, spares_max: usize) -> Rows {
        Rows {
            received: Vec::with_capacity(received_max),
            symbols: vec![None; symbols_max],
            spares: vec![None; spares_max],
            symbol_bytes: 0,
        }
    }

    /// Sets the length of rows, before the first one arrives.
    pub(crate) fn begin(&mut self, symbol_bytes: u16) {
        self.symbol_bytes = symbol_bytes;
    }

    /// Adds the next received symbol and a reference to its frame.
    pub(crate) fn push(&mut self, frames: &mut impl Frames, symbol: Span) {
        frames.retain(symbol.frame);
        self.received.push(symbol);
    }

    /// An intermediate symbol, if it has been computed.
    pub(crate) fn symbol(&self, symbol: usize) -> Option<Span> {
        self.symbols.get(symbol).copied().flatten()
    }

    /// Releases rows needed only for decoding: received symbols and temporary results.
    pub(crate) fn release_received(&mut self, frames: &mut impl Frames) {
        for span in self.received.drain(..) {
            frames.release(span.frame);
        }
        for span in self.spares.iter_mut().filter_map(Option::take) {
            frames.release(span.frame);
        }
    }

    /// Releases all rows.
    pub(crate) fn clear(&mut self, frames: &mut impl Frames) {
        self.release_received(frames);
        for span in self.symbols.iter_mut().filter_map(Option::take) {
            frames.release(span.frame);
        }
    }

    fn place(&mut self, operand: Operand) -> Option<&mut Option<Span>> {
        match operand {
            Operand::Received(_) => None,
            Operand::Symbol(symbol) => self.symbols.get_mut(usize::from(symbol)),
            Operand::Spare(spare) => self.spares.get_mut(usize::from(spare)),
        }
    }

    fn span(&self, operand: Operand) -> Option<Span> {
        match operand {
            Operand::Received(slot) => self.received.get(slot as usize).copied(),
            Operand::Symbol(symbol) => self.symbol(usize::from(symbol)),
            Operand::Spare(spare) => self.spares.get(usize::from(spare)).copied().flatten(),
        }
    }

    /// The row of a result, in a frame of its own.
    fn written(&mut self, frames: &mut impl Frames, operand: Operand) -> Option<Span> {
        let len = self.symbol_bytes;
        let place = self.place(operand)?;
        if place.is_none() {
            let frame: FrameId = frames.take()?;
            *place = Some(Span { frame, offset: symbol_offset(0) as u16, len });
        }
        *place
    }
}

/// Rows with their frames and the kernel that multiplies them.
pub(crate) struct Workbench<'a, F> {
    pub rows: &'a mut Rows,
    pub frames: &'a mut F,
    pub kernel: &'static Kernel,
}

impl<F: Frames> Payloads for Workbench<'_, F> {
    type Error = FramesExhausted;

    fn combine(
        &mut self,
        coefficients: &[u8],
        sources: &[Operand],
        destinations: &[Operand],
        accumulate: bool,
    ) -> Result<(), FramesExhausted> {
        let nowhere = Span { frame: FrameId(0), offset: 0, len: 0 };
        let (mut inputs, mut outputs) = ([nowhere; OPERANDS_MAX], [nowhere; OPERANDS_MAX]);
        for (input, &source) in inputs.iter_mut().zip(sources) {
            *input = self.rows.span(source).ok_or(FramesExhausted)?;
        }
        for (output, &destination) in outputs.iter_mut().zip(destinations) {
            *output = self.rows.written(self.frames, destination).ok_or(FramesExhausted)?;
        }
        let (inputs, outputs) = (&inputs[..sources.len()], &outputs[..destinations.len()]);
        self.frames.with_disjoint(inputs, outputs, |from, to| {
            if accumulate {
                self.kernel.matmul_accumulate(coefficients, from, to);
            } else {
                self.kernel.matmul(coefficients, from, to);
            }
        });
        Ok(())
    }
}
