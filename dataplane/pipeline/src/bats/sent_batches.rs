//! Recently sent batches of the source, kept in their frames to recover losses of the first hop.

use crate::base::table::Table;
use crate::base::tally::{Tallied, Tally};
use crate::env::combine::Sources;
use crate::env::egress::Egress;
use crate::hop::send::mender::Mender;
use crate::unit::context::Context;
use recoded_gf::FieldOrder;
use recoded_wire::coded::{Block as BlockWord, CodedHeader};
use recoded_wire::frames::{Frames, Span};
use recoded_wire::header::Flags;
use recoded_wire::link::LinkReport;

/// A batch.
#[derive(Debug)]
struct Batch {
    header: CodedHeader,
    word: BlockWord,
    field: FieldOrder,
    /// Traffic class of its packets.
    class: u8,
    /// Its symbols as formed.
    symbols: Vec<Span>,
    tally: Tally,
}

/// The newest batches, found by number modulo their count.
#[derive(Debug)]
pub(crate) struct SentBatches {
    batches: Table<Option<Batch>>,
    /// Unused lists of symbols.
    lists: Vec<Vec<Span>>,
}

impl SentBatches {
    /// Room for `count` batches of up to `size`.
    pub(crate) fn new(count: usize, size: usize) -> Self {
        let count = count.max(1);
        Self {
            batches: Table::new((0..count).map(|_| None)),
            lists: (0..count).map(|_| Vec::with_capacity(size)).collect(),
        }
    }

    /// Bytes that it allocates.
    pub(crate) fn memory_bytes(count: usize, size: usize) -> usize {
        let lists = size * size_of::<Span>() + size_of::<Vec<Span>>();
        count.max(1) * (size_of::<Option<Batch>>() + lists)
    }

    /// Keeps a batch that is about to be sent, and releases the one that occupied its place.
    pub(crate) fn keep(
        &mut self,
        frames: &mut impl Frames,
        header: CodedHeader,
        word: BlockWord,
        class: u8,
        symbols: &[Span],
    ) {
        let Some(field) = FieldOrder::from_code(header.common.flags.field_code()) else { return };
        let index = self.batches.index(header.generation);
        self.clear(index, frames);
        let Some(mut list) = self.lists.pop() else { return };
        if list.capacity() < symbols.len() {
            // Its parameters changed: the next stage rebuilds the table.
            self.lists.push(list);
            return;
        }
        for symbol in symbols {
            frames.retain(symbol.frame);
            list.push(*symbol);
        }
        let tally = Tally::default();
        self.batches[index] = Some(Batch { header, word, field, class, symbols: list, tally });
        self.batches.hold(index);
    }

    /// Notes packets of a batch that were sent.
    pub(crate) fn left(&mut self, number: u32, sent: u64) {
        let index = self.batches.index(number);
        if let Some(tally) = self.batches[index].tally_of(number) {
            tally.add(sent);
        }
    }

    /// Reads the next node's report on the link to it.
    pub(crate) fn hear(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        mender: &mut Mender,
        report: &LinkReport,
        payload: Span,
    ) {
        let bytes = cx.io.frames.bytes(payload);
        mender.hear(report, bytes, cx.io.now, &mut self.batches);
        self.mend(cx, mender);
    }

    /// Sends the packets that the next node lacks, as far as pacing allows.
    pub(crate) fn mend(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        mender: &mut Mender,
    ) {
        let mut from = 0;
        while let Some(index) = self.batches.next_held(from) {
            from = index + 1;
            if let Some(batch) = &mut self.batches[index] {
                batch.mend(cx, mender);
            }
        }
    }

    /// Releases the batches of block `last` and of earlier blocks.
    pub(crate) fn forget(&mut self, last: u16, frames: &mut impl Frames) {
        let is_done = |batch: &Batch| last.wrapping_sub(batch.word.number) < 1 << 15;
        let mut from = 0;
        while let Some(index) = self.batches.next_held(from) {
            from = index + 1;
            if self.batches[index].as_ref().is_some_and(is_done) {
                self.clear(index, frames);
            }
        }
    }

    /// Releases all batches. Returns whether there were any.
    pub(crate) fn release(&mut self, frames: &mut impl Frames) -> bool {
        let held = self.batches.held() > 0;
        while let Some(index) = self.batches.next_held(0) {
            self.clear(index, frames);
        }
        held
    }

    fn clear(&mut self, index: usize, frames: &mut impl Frames) {
        if let Some(mut batch) = self.batches[index].take() {
            for symbol in batch.symbols.drain(..) {
                frames.release(symbol.frame);
            }
            self.lists.push(batch.symbols);
        }
        self.batches.free(index);
    }
}

impl Tallied for Option<Batch> {
    fn tally_of(&mut self, unit: u32) -> Option<&mut Tally> {
        let batch = self.as_mut().filter(|batch| batch.header.generation == unit);
        batch.map(|batch| &mut batch.tally)
    }
}

impl Batch {
    /// Sends combinations to replace the packets that the next node lacks.
    fn mend(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>, mender: &mut Mender) {
        let lacks = self.tally.lacks(self.symbols.len());
        let is_leaving = usize::from(self.tally.sent) < self.symbols.len();
        if lacks == 0 || is_leaving || !mender.is_on(cx.io.now) {
            return;
        }
        let granted = mender.spend(lacks, cx.counters, cx.io.now);
        cx.counters.sent_repair += self.send(cx, mender, granted);
    }

    /// Sends fresh combinations. Returns how many.
    fn send(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        mender: &mut Mender,
        count: usize,
    ) -> u64 {
        let sources = Sources {
            size: self.symbols.len(),
            field: self.field,
            block: Some(self.word),
            symbols: &self.symbols,
            vectors: None,
        };
        let header = self.header.with(Flags::SYSTEMATIC, false).with(Flags::END, true);
        let (first, bytes) = (cx.hops.next_number(), sources.packet_bytes());
        let (sent, failed) = cx.hops.send_combinations(cx.io, &sources, header, count, self.class);
        cx.counters.send_failed += failed;
        self.tally.add(sent);
        if let Some(first) = first {
            mender.left(self.header.generation, bytes, first, sent, cx.io.now);
        }
        sent
    }
}
