//! Source edge of a BATS flow: IP packets in, batches out.
//!
//! ```text
//!  IP packets ──► block of K symbols ──close──► precode ──► batches ──group──► packets in turns
//!                 (full, or flushed)                          ▲
//!                              sink: missing rank ────────────┘  until it acknowledges the block
//! ```
//!
//! A block is sent when it is closed: as many batches as bring the sink its rank (`plan`), each
//! formed by one fused multiply, straight into the frames it is sent in. One call computes part of
//! the precode, or forms only a few batches; a large block is sent over several calls. Batches of a
//! group are interleaved packet by packet. Blocks are kept until the sink needs no more of them, to
//! form further batches: the code is rateless.

mod answers;

mod lifecycle;

mod open_pace;

mod pace;

use crate::base::layout::LENGTH_BYTES;
use crate::base::layout::symbol_offset;
use crate::bats::block::{Block, Former};
use crate::bats::plan::BatchPlanner;
use crate::bats::sent_batches::SentBatches;
use crate::config::params::{BatsParams, FlowCode, FlowParams, Nanos, PeerId, ShardId};
use crate::edge::class;
use crate::edge::framing::{LENGTH_MAX, entry_bytes_min, length_of};
use crate::edge::packing::{Layout, Packer};
use crate::env::combine::Combiner;
use crate::env::egress::Egress;
use crate::hop::send::mender::Mender;
use crate::hop::send::repair::RepairBudget;
use crate::unit::context::Context;
use crate::unit::relay::hop_repair::mended_packets;
use crate::unit::role::Lifecycle;
use crate::unit::source::remote::Remote;
use crate::unit::source::{Inbound, SourceCode};
use crate::unit::tags;
use open_pace::OpenPace;
use recoded_code::bats::{Params, Profile, SYMBOLS_MAX};
use recoded_wire::coded::{Block as BlockWord, CodedHeader};
use recoded_wire::feedback::{FeedbackHeader, Item, items};
use recoded_wire::frames::{Frames, Span};
use recoded_wire::header::{Flags, PacketType};

/// Packets formed per call, at least one batch: some tens of microseconds.
const STEP_PACKETS: usize = 32;

/// Most packets of a group of interleaved batches: they all occupy frames until the group is
/// complete.
const GROUP_PACKETS_MAX: usize = 1024;

/// Retry delay of a source that found no free frame.
const RETRY_NANOS: Nanos = 100_000;

/// After this time, longer than any transmit ring takes to drain, frames will not become free by
/// themselves: a block must be evicted.
const PATIENCE_NANOS: Nanos = 10_000_000;

/// The sink reports every 20 ms which blocks it has seen. A block that it has not reported within
/// this time gets one more batch, then another after twice the time, ...
const PROBE_NANOS: Nanos = 30_000_000;

/// ... up to this many times.
const PROBES: u8 = 3;

/// A batch that waits for the batches it is interleaved with.
#[derive(Copy, Clone, Debug)]
struct Formed {
    header: CodedHeader,
    word: BlockWord,
    /// Index of its first packet in the group's list.
    first: usize,
    /// Their traffic class.
    class: u8,
}

/// Source state of a BATS flow. Blocks are found by number modulo their count.
#[derive(Debug)]
pub(crate) struct BatsSource {
    blocks: Vec<Block>,
    /// Number of the open block, or of the next one.
    number: u16,
    open: bool,
    opened: Nanos,
    /// When the last packet arrived.
    touched: Nanos,
    /// Symbols of a full block.
    full: usize,
    packer: Packer,
    epoch: u8,
    /// Number of the next batch, counted across all blocks.
    serial: u32,
    former: Option<Former>,
    group: Vec<Formed>,
    packets: Vec<Span>,
    /// Packets of each batch of the group that have been sent, once the group is complete.
    left: Option<u16>,
    /// No frame was free: when to retry, and since when frames have been missing.
    retry: Option<(Nanos, Nanos)>,
    /// Number of probes sent for the newest block, and when the next one is due.
    probe: Option<(u8, Nanos)>,
    planner: BatchPlanner,
    repair_budget: RepairBudget,
    mender: Mender,
    open_pace: OpenPace,
    kept: SentBatches,
    remote: Remote,
}

impl BatsSource {
    pub(crate) fn new(
        shard: ShardId,
        params: &FlowParams,
        bats: &BatsParams,
        combiner: &mut Combiner,
    ) -> BatsSource {
        BatsSource {
            blocks: blocks(params, bats),
            // A random start separates a restarted source from stragglers of its previous run.
            number: combiner.next_u32() as u16,
            open: false,
            opened: 0,
            touched: 0,
            full: 0,
            packer: Packer::default(),
            epoch: combiner.next_u32() as u8,
            serial: combiner.next_u32(),
            former: Former::new(code_of(params, bats, bats.source_symbols)),
            group: Vec::with_capacity(usize::from(u8::MAX)),
            packets: Vec::with_capacity(GROUP_PACKETS_MAX),
            left: None,
            retry: None,
            probe: None,
            planner: BatchPlanner::new(shard),
            repair_budget: RepairBudget::new(),
            mender: Mender::new(mended_packets(params)),
            open_pace: OpenPace::default(),
            kept: SentBatches::new(params.generations, params.generation_size),
            remote: Remote::new(),
        }
    }

    /// Packs one IP packet. Returns false when there is no room.
    fn pack(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        Inbound { packet, carried }: Inbound<'_>,
    ) -> bool {
        let params = cx.params;
        let FlowCode::Bats(bats) = &params.code else { return false };
        let needed = LENGTH_BYTES + carried.len();
        if self.open && self.packer.written + needed > self.full * params.payload_bytes() {
            self.close(cx);
        }
        if !self.open {
            if !self.begin(cx, class::of(packet)) {
                return false;
            }
            let full = self.planner.full(params, params.generation_size, bats.source_symbols);
            self.full = full.max(needed.div_ceil(params.payload_bytes()));
        }
        let capacity = self.full * params.payload_bytes();
        let index = self.index(self.number);
        let symbols = &mut self.blocks[index].symbols;
        let layout =
            Layout { offset: symbol_offset(0) as u16, symbol_bytes: params.payload_bytes() };
        if !self.packer.reserve(cx.io.frames, symbols, layout, self.packer.written + needed) {
            cx.counters.send_failed += 1;
            return false;
        }
        self.touched = cx.io.now;
        self.packer.write(cx.io.frames, symbols, &length_of(carried));
        self.packer.write(cx.io.frames, symbols, carried);
        if capacity - self.packer.written < entry_bytes_min(params.sealed) {
            self.close(cx);
        }
        true
    }

    fn index(&self, number: u16) -> usize {
        usize::from(number) % self.blocks.len()
    }

    /// Begins a block whose first IP packet has a traffic class. Returns false if its place holds a
    /// block that has not been sent yet.
    fn begin(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>, class: u8) -> bool {
        let params = cx.params;
        let index = self.index(self.number);
        let block = &mut self.blocks[index];
        if block.live && block.due > 0 {
            return false;
        }
        block.clear(cx.io.frames);
        block.open(self.number, self.epoch, params, class::outer(class));
        self.open = true;
        (self.opened, self.touched) = (cx.io.now, cx.io.now);
        self.packer.written = 0;
        self.probe = None;
        cx.counters.generations += 1;
        true
    }

    /// Ends the open block, if any, and makes it ready to send.
    pub(crate) fn close(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>) {
        let params = cx.params;
        let FlowCode::Bats(bats) = &params.code else { return };
        if !std::mem::take(&mut self.open) {
            return;
        }
        let index = self.index(self.number);
        self.number = self.number.wrapping_add(1);
        let block = &mut self.blocks[index];
        let symbols = block.symbols.len();
        if symbols == 0 {
            // It was begun only for a packet that found no frame.
            block.live = false;
            return;
        }
        if let [only] = &mut block.symbols[..] {
            only.len = self.packer.written as u16;
        }
        self.packer.pad(cx.io.frames, &block.symbols);
        block.params = code_of(params, bats, symbols);
        block.params.batch_size = self.planner.short(params, params.generation_size, symbols);
        let code = self.former.as_mut().and_then(|former| former.code(block));
        if !code.is_some_and(|code| block.begin_precode(code, cx.io.frames)) {
            // Without frames for a precode, use a profile that needs none.
            block.params.profile = Profile::CyclicShift;
        }
        let size = block.params.batch_size;
        let batches = self.planner.first(params, size, symbols);
        self.planner.begin_block();
        block.due = batches as u16;
        self.repair_budget.earn((batches * size) as u64);
        let turns = batches.min(GROUP_PACKETS_MAX / size);
        block.interleave = self.planner.interleave(bats, size, turns);
        cx.counters.source_symbols += symbols as u64;
        let waiting = self.blocks.iter().filter(|block| block.due > 0).count();
        self.open_pace.close(self.opened, cx.io.now, batches * size, waiting);
        self.probe = params.repair.then_some((0, cx.io.now + PROBE_NANOS));
    }

    /// Keeps blocks from before a change, because the sink may still request more of them: the
    /// newest first, as far as there is room.
    fn keep(&mut self, mut before: Vec<Block>, frames: &mut impl Frames) {
        let age = |block: &Block| self.number.wrapping_sub(block.number);
        before.sort_by_key(age);
        let count = self.blocks.len();
        for mut block in before {
            let is_old = usize::from(age(&block)) > count;
            let index = self.index(block.number);
            let place = &mut self.blocks[index];
            if !block.live || place.live || is_old {
                block.clear(frames);
                continue;
            }
            let room = place.symbols.capacity().saturating_sub(block.symbols.len());
            block.symbols.reserve_exact(room);
            *place = block;
        }
    }

    /// Block whose next batch is to be formed: that of the group, otherwise the oldest.
    fn sending(&self) -> Option<usize> {
        if let Some(begun) = self.group.first() {
            let index = self.index(begun.word.number);
            let block = &self.blocks[index];
            return (block.due > 0 && block.number == begun.word.number).then_some(index);
        }
        let count = self.blocks.len() as u16;
        let numbers = (0..=count).rev().map(|age| self.number.wrapping_sub(age));
        numbers.map(|number| self.index(number)).find(|index| self.blocks[*index].due > 0)
    }

    /// Forms some of the due batches, and sends each complete group, at the pace of the link.
    fn step(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>) {
        self.form_due(cx, false);
    }

    /// Forms due batches and sends complete groups; if hurried, regardless of the pace.
    fn form_due(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>, is_hurried: bool) {
        if self.retry.is_some_and(|(retry, _)| retry > cx.io.now) {
            return;
        }
        let mut formed = 0;
        // The sink may already have enough of the group's block.
        let is_whole = self.left.is_some() || self.sending().is_none();
        if is_whole && !self.send_group(cx, is_hurried) {
            return;
        }
        while let Some(index) = self.sending().filter(|_| formed < STEP_PACKETS) {
            if !is_hurried && self.leaves_at(cx.io.now).is_err() {
                break;
            }
            let (block, kernel) = (&mut self.blocks[index], cx.io.combiner.kernel());
            if let Some(former) = self.former.as_mut().filter(|_| !block.is_precoded()) {
                // The next call computes the rest, and then the batches.
                former.precode(block, kernel, cx.io.frames);
                break;
            }
            let size = self.blocks[index].params.batch_size;
            if !self.form(index, cx) {
                // Formed batches must not wait for unformed ones.
                self.send_group(cx, true);
                let since =
                    self.retry.filter(|_| formed == 0).map_or(cx.io.now, |(_, since)| since);
                self.retry = Some((cx.io.now + RETRY_NANOS, since));
                if cx.io.now >= since + PATIENCE_NANOS {
                    self.make_room(index, cx);
                }
                return;
            }
            formed += size;
            // A group covers one block: to relays, the end of a block ends its batches.
            let block = &self.blocks[index];
            let is_whole = self.group.len() >= usize::from(block.interleave) || block.due == 0;
            if is_whole && !self.send_group(cx, is_hurried) {
                break;
            }
        }
        self.retry = None;
    }

    /// Releases the oldest block already sent; failing that, the one at `index`, which cannot be
    /// sent.
    fn make_room(&mut self, index: usize, cx: &mut Context<'_, '_, impl Frames, impl Egress>) {
        if self.evict_oldest(cx) {
            return;
        }
        let block = &mut self.blocks[index];
        cx.counters.send_failed += u64::from(block.due) * block.params.batch_size as u64;
        cx.counters.generations_evicted += 1;
        block.clear(cx.io.frames);
    }

    /// Forms the next batch of a block. Returns false when frames ran out.
    fn form(&mut self, index: usize, cx: &mut Context<'_, '_, impl Frames, impl Egress>) -> bool {
        let block = &mut self.blocks[index];
        let Some(former) = &mut self.former else { return false };
        let first = self.packets.len();
        let kernel = cx.io.combiner.kernel();
        let tag_bytes = cx.params.tag_bytes();
        let formed = &mut self.packets;
        if !former.form(block, block.batches, kernel, cx.io.frames, formed, tag_bytes) {
            return false;
        }
        let size = block.params.batch_size as u16;
        let flags =
            Flags(Flags::SYSTEMATIC | block.field.code()).with(Flags::MENDED, cx.asks_to_mend());
        let common = cx.header(PacketType::Bats, flags, block.epoch);
        let full_log2 = block.batch_log2;
        let header =
            CodedHeader { common, size, full_log2, planned: size, generation: self.serial };
        let (word, class) = (block.word(block.batches), block.class);
        if tag_bytes > 0 {
            let key = cx.io.tag_key(cx.shard);
            for (index, symbol) in self.packets[first..].iter().enumerate() {
                match key {
                    Some(key) => tags::tag(cx, key, &header, Some(&word), index, *symbol),
                    None => tags::leave_out(cx, *symbol),
                }
            }
        }
        self.group.push(Formed { header, word, first, class });
        self.serial = self.serial.wrapping_add(1);
        block.batches += 1;
        block.due -= 1;
        true
    }
}

impl SourceCode for BatsSource {
    fn apply(&mut self, new: &FlowParams, cx: &mut Context<'_, '_, impl Frames, impl Egress>) {
        let old = cx.params;
        let shape =
            |params: &FlowParams| (params.field, params.generation_size, params.symbol_bytes);
        let code = |params: &FlowParams| match params.code {
            FlowCode::Bats(bats) => Some((bats, params.blocks(&bats))),
            _ => None,
        };
        if shape(old) == shape(new) && code(old) == code(new) {
            return;
        }
        self.drain(cx);
        self.epoch = self.epoch.wrapping_add(1);
        self.planner.reset();
        if let Some((bats, _)) = code(new).filter(|_| code(old) != code(new)) {
            let before = std::mem::replace(&mut self.blocks, blocks(new, &bats));
            self.keep(before, cx.io.frames);
        }
        if let FlowCode::Bats(bats) = &new.code {
            self.former = Former::new(code_of(new, bats, bats.source_symbols));
        }
    }

    fn epoch(&self) -> u8 {
        self.epoch
    }

    fn begin_epoch(&mut self, epoch: u8) {
        self.epoch = epoch;
    }

    fn next_number(&self) -> u32 {
        self.serial
    }

    fn begin_at(&mut self, number: u32) {
        self.serial = number;
    }

    fn takes(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        carried_bytes: usize,
    ) -> bool {
        let FlowCode::Bats(bats) = &cx.params.code else { return false };
        let capacity = bats.source_symbols * cx.params.payload_bytes();
        let fits = carried_bytes <= LENGTH_MAX && LENGTH_BYTES + carried_bytes <= capacity;
        cx.counters.ingress_dropped += u64::from(!fits);
        fits
    }

    fn ingress(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        inbound: Inbound<'_>,
    ) {
        let params = cx.params;
        self.tell_planner(cx);
        self.planner.refresh(params.generation_size, cx.io);
        if !self.pack(cx, inbound) {
            cx.counters.ingress_dropped += 1;
        }
        self.step(cx);
    }

    fn receive_feedback(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        _peer: PeerId,
        payload: Span,
        header: FeedbackHeader,
    ) {
        let params = cx.params;
        let mut acknowledged = None;
        for item in items(cx.io.frames.bytes(payload)) {
            match item {
                Item::Hop(report) => {
                    self.planner.hear(header.common.hop_index, report, cx.io.now);
                }
                Item::Nack(nack) if params.repair => {
                    self.answer(params, cx.counters, nack);
                }
                Item::Nack(_) => {}
                Item::Flow(report) => self.remote.hear(report),
                Item::Ranks(report) if report.epoch == self.epoch => {
                    self.remote.hear_ranks(&report);
                    self.planner.observe(&report);
                }
                Item::Ranks(_) | Item::Arrivals(_) => {}
                Item::BlockAck(block) => acknowledged = Some(block),
                Item::Size(size) => self.mender.hear_size(size, header.common.hop_index, cx.io.now),
            }
        }
        self.planner.refresh(params.generation_size, cx.io);
        if let Some(last) = acknowledged {
            self.forget(last, cx.io.frames);
        }
        self.step(cx);
    }
}

/// Empty blocks, as many as the parameters require.
fn blocks(params: &FlowParams, bats: &BatsParams) -> Vec<Block> {
    let room = match bats.profile {
        Profile::Precoded => SYMBOLS_MAX.min(bats.source_symbols + bats.source_symbols / 4 + 256),
        _ => bats.source_symbols,
    };
    (0..params.blocks(bats)).map(|_| Block::new(room)).collect()
}

/// Code parameters of a full block of `symbols`.
fn code_of(params: &FlowParams, bats: &BatsParams, symbols: usize) -> Params {
    Params {
        source_symbols: symbols,
        batch_size: params.generation_size,
        profile: bats.profile,
        generator_bits: bats.generator_bits,
    }
}
