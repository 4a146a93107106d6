//! An RLNC generation at a sink. Source symbols received uncoded are known at once, the others when
//! the rank is full, by one fused multiply per group of them.

use crate::base::layout::symbol_offset;
use crate::config::params::{FlowParams, Nanos, ShardId};
use crate::config::report::DropReason;
use crate::env::combine::SOLVED_MAX;
use crate::env::egress::{Egress, Product, Ticket};
use crate::env::io::Io;
use crate::packet::arrival::RESTART_DISTANCE;
use crate::packet::collected::{Accepted, Collected, PacketCoding, PacketView, Shape};
use crate::packet::incoming::Incoming;
use crate::unit::sink::unit::{Progress, Unit};
use recoded_wire::coded::CodedHeader;
use recoded_wire::feedback::Nack;
use recoded_wire::frames::{FrameId, Frames, Span};
use recoded_wire::header::Flags;

/// Time limit of an accelerator; then the CPU computes the product. Engines time out far earlier.
const OFFER_NANOS: Nanos = 100_000_000;

/// A generation at the sink.
pub(crate) struct Generation {
    progress: Progress,
    collected: Collected,
    /// Known source symbols: received uncoded, or decoded.
    symbols: Vec<Option<Span>>,
    /// Since when an accelerator has been computing the missing symbols.
    offered: Option<Nanos>,
    /// Whether it was offered to an accelerator: it is offered once.
    was_offered: bool,
}

impl Generation {
    /// Unused entries, as many as the sink of a flow holds, and one for trials.
    pub(crate) fn table(params: &FlowParams) -> (Vec<Self>, Self) {
        let entry = || Self::new(params.generation_size);
        ((0..params.sink_generations()).map(|_| entry()).collect(), entry())
    }

    fn new(size_max: usize) -> Self {
        Self {
            progress: Progress::default(),
            collected: Collected::new(size_max, true),
            symbols: vec![None; size_max],
            offered: None,
            was_offered: false,
        }
    }

    fn missing_symbols(&self) -> impl Iterator<Item = usize> {
        (0..self.collected.size()).filter(|symbol| self.symbols[*symbol].is_none())
    }

    /// Offers the product that gives the missing symbols to an accelerator. Returns whether it
    /// accepted.
    fn offer(&mut self, io: &mut Io<'_, impl Frames, impl Egress>, shard: ShardId) -> bool {
        let (columns, rows) = (self.collected.rank(), self.missing_symbols().count());
        if self.was_offered || rows == 0 {
            return false;
        }
        self.was_offered = true;
        let row_bytes = self.collected.shape().map_or(0, |shape| usize::from(shape.symbol_bytes));
        let ticket = Ticket { shard, unit: self.collected.generation };
        let Io { egress, frames, .. } = io;
        let taken = egress.offload(ticket, Product { rows, columns, row_bytes }, |inputs| {
            for (row, symbol) in self.missing_symbols().enumerate() {
                let solution = self.collected.solution(symbol, inputs.coefficients(row));
                debug_assert!(solution.is_some(), "at full rank there are all solutions");
            }
            for (column, held) in self.collected.symbols().iter().enumerate() {
                inputs.source(column).copy_from_slice(frames.bytes(*held));
            }
        });
        self.offered = taken.then_some(io.now);
        taken
    }
}

impl Unit for Generation {
    type Told = ();

    const STEP: u32 = 1;

    const RESTART: u32 = RESTART_DISTANCE;

    fn told(
        _params: &FlowParams,
        header: &CodedHeader,
        view: &PacketView,
    ) -> Result<(u32, ()), DropReason> {
        match view.block {
            None => Ok((header.generation, ())),
            Some(_) => Err(DropReason::WrongCode),
        }
    }

    fn progress(&self) -> &Progress {
        &self.progress
    }

    fn progress_mut(&mut self) -> &mut Progress {
        &mut self.progress
    }

    fn open(&mut self, number: u32) {
        self.collected.open(number, self.progress.touched);
        (self.offered, self.was_offered) = (None, false);
    }

    fn clear(&mut self, frames: &mut impl Frames) {
        for symbol in self.symbols.iter_mut().filter_map(Option::take) {
            frames.release(symbol.frame);
        }
        self.collected.clear(frames);
    }

    fn is_answer(&self, header: &CodedHeader, _view: &PacketView) -> bool {
        header.is_repair() && self.progress.has_asked() && !self.is_complete()
    }

    fn is_planned(&self, header: &CodedHeader, _view: &PacketView) -> bool {
        !header.is_repair()
    }

    fn accept(
        &mut self,
        io: &mut Io<'_, impl Frames, impl Egress>,
        (): (),
        payload: Span,
        view: &PacketView,
    ) -> Result<bool, DropReason> {
        match self.collected.accept(io.frames, payload, view) {
            Accepted::Mismatch => Err(DropReason::Mismatch),
            Accepted::Redundant => Ok(false),
            Accepted::Innovative => {
                if let PacketCoding::Systematic(index) = view.coding {
                    io.frames.retain(view.symbol.frame);
                    self.symbols[index] = Some(view.symbol);
                }
                Ok(true)
            }
        }
    }

    fn lacks(&self, _view: &PacketView) -> bool {
        !self.is_complete()
    }

    fn decode(&mut self, io: &mut Io<'_, impl Frames, impl Egress>, shard: ShardId) -> bool {
        let is_patient = |since: Nanos| io.now.saturating_sub(since) < OFFER_NANOS;
        if !self.is_complete() || self.offered.is_some_and(is_patient) || self.offer(io, shard) {
            return false;
        }
        self.offered = None;
        solve(&self.collected, &mut self.symbols, io)
    }

    fn solved<'a>(
        &mut self,
        io: &mut Io<'_, impl Frames, impl Egress>,
        ticket: Ticket,
        mut rows: impl Iterator<Item = &'a [u8]>,
    ) -> bool {
        if self.collected.generation != ticket.unit || self.offered.take().is_none() {
            return false;
        }
        let offset = symbol_offset(0) as u16;
        let len = self.collected.shape().map_or(0, |shape| shape.symbol_bytes);
        for symbol in self.symbols[..self.collected.size()].iter_mut().filter(|span| span.is_none())
        {
            let Some(row) = rows.next().filter(|row| row.len() == usize::from(len)) else {
                return false;
            };
            let Some(frame) = io.frames.take() else { return false };
            let span = Span { frame, offset, len };
            io.frames.bytes_mut(span).copy_from_slice(row);
            *symbol = Some(span);
        }
        true
    }

    fn ends_with(&self, header: &CodedHeader) -> bool {
        // A repair packet implies that the source has closed its generation.
        header.is_repair() || header.common.flags.has(Flags::END) || self.is_complete()
    }

    fn is_complete(&self) -> bool {
        self.collected.is_complete()
    }

    fn epoch(&self) -> Option<u8> {
        self.collected.shape().map(|shape| shape.epoch)
    }

    fn size(&self) -> usize {
        self.collected.size()
    }

    fn symbol(&self, index: usize) -> Option<Span> {
        self.symbols[index]
    }

    fn missing(&self) -> u16 {
        match self.collected.size() {
            0 => Nack::ALL,
            size => (size - self.collected.rank()) as u16,
        }
    }

    fn record_ranks(&self, incoming: &mut Incoming) {
        match self.collected.shape() {
            Some(Shape { epoch, .. }) => {
                incoming.ranks.record(epoch, self.collected.size(), self.collected.rank());
            }
            None => incoming.ranks.record_absent(1),
        }
    }
}

/// Computes the source symbols that were not received uncoded, by one fused multiply per group.
/// Returns false when frames ran out; the caller then retries later.
fn solve(
    collected: &Collected,
    symbols: &mut [Option<Span>],
    io: &mut Io<'_, impl Frames, impl Egress>,
) -> bool {
    let (size, rank) = (collected.size(), collected.rank());
    let symbol_bytes = collected.shape().map_or(0, |shape| shape.symbol_bytes);
    let offset = symbol_offset(0) as u16;
    let (kernel, solutions) = io.combiner.solver();
    let mut from = 0;
    while from < size {
        let mut group = [Span { frame: FrameId(0), offset: 0, len: 0 }; SOLVED_MAX];
        let mut count = 0;
        while from < size && count < SOLVED_MAX {
            if symbols[from].is_none() {
                let Some(frame) = io.frames.take() else { break };
                let symbol = Span { frame, offset, len: symbol_bytes };
                if collected.solution(from, &mut solutions[count * rank..][..rank]).is_none() {
                    io.frames.release(frame);
                    break;
                }
                symbols[from] = Some(symbol);
                group[count] = symbol;
                count += 1;
            }
            from += 1;
        }
        io.frames.with_disjoint(collected.symbols(), &group[..count], |held, out| {
            kernel.matmul(&solutions[..count * rank], held, out);
        });
        if from < size && count < SOLVED_MAX {
            return false;
        }
    }
    true
}
