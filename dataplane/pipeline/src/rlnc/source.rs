//! Source edge: IP packets in, coded packets out.
//!
//! Packets are packed into symbols, symbols into generations. A symbol is sent as a systematic
//! packet once the next one is begun, so that the last packet of a generation can carry the END
//! flag and the final length. Coded packets follow when it closes: full, or when the flush timer
//! ends it. Closed generations are kept to answer NACKs.

use crate::base::layout::LENGTH_BYTES;
use crate::base::layout::{payload_of, symbol_offset};
use crate::base::table::Table;
use crate::base::tally::{Tallied, Tally};
use crate::base::time::earlier;
use crate::config::params::{FlowParams, Nanos, PeerId, ShardId};
use crate::config::report::{DropReason, FlowReport};
use crate::edge::class;
use crate::edge::framing::{LENGTH_MAX, entry_bytes_min, length_of};
use crate::edge::packing::{Layout, Packer};
use crate::env::combine::{Combiner, Sources};
use crate::env::egress::Egress;
use crate::hop::send::mender::Mender;
use crate::hop::send::repair::{ROUNDS, RepairBudget, repair_packets};
use crate::plan::Plan;
use crate::rlnc::redundancy::Planner;
use crate::unit::context::Context;
use crate::unit::relay::hop_repair::mended_packets;
use crate::unit::role::Lifecycle;
use crate::unit::source::remote::Remote;
use crate::unit::source::{Inbound, SourceCode};
use crate::unit::tags;
use recoded_gf::FieldOrder;
use recoded_wire::coded::{
    CodedHeader, INDEX_BYTES, PLANNED_MAX, SIZE_MAX, coding_offset, log2_ceil, write_index,
};
use recoded_wire::feedback::{FeedbackHeader, Item, Nack, items};
use recoded_wire::frames::{Frames, Span};
use recoded_wire::header::{Flags, PacketType};
use recoded_wire::link::LinkReport;

/// When nothing follows a generation, its sink cannot see that it is missing: one more packet of it
/// is sent after this time, then another after twice the time, ...
const TAIL_PROBE_NANOS: Nanos = 5_000_000;

/// ... up to this many times. The last is sent 155 ms after the generation, past most bursts and
/// blackouts of a link.
const TAIL_PROBES: u8 = 5;

/// One generation with its source symbols.
#[derive(Debug)]
struct Generation {
    number: u32,
    /// Repair rounds answered.
    repaired: u8,
    /// Tally of its packets on the first hop.
    tally: Tally,
    epoch: u8,
    field: FieldOrder,
    /// Size of full generations.
    full: usize,
    /// Traffic class of its first packet, used for all packets that carry the generation.
    class: u8,
    /// Key that its symbols are tagged with, if any.
    tag_key: Option<u8>,
    symbols: Vec<Span>,
}

/// Source state of one flow. Generations are found by number modulo their count.
#[derive(Debug)]
pub(crate) struct RlncSource {
    generations: Table<Generation>,
    /// Number of the open generation, or of the next one.
    number: u32,
    open: bool,
    opened: Nanos,
    packer: Packer,
    /// Symbols of the open generation already sent.
    sent: usize,
    epoch: u8,
    /// Number of tail probes sent for the newest generation, and when the next one is due.
    tail: Option<(u8, Nanos)>,
    planner: Planner,
    /// Planned packets of the newest full generation.
    planned: usize,
    repair_budget: RepairBudget,
    mender: Mender,
    /// Whether the next node reported its missing packets when the newest generation ended.
    is_mended: bool,
    remote: Remote,
}

impl RlncSource {
    pub(crate) fn new(shard: ShardId, params: &FlowParams, combiner: &mut Combiner) -> RlncSource {
        let generation = |_| Generation {
            number: 0,
            repaired: 0,
            tally: Tally::default(),
            epoch: 0,
            field: params.field,
            full: params.generation_size,
            class: 0,
            tag_key: None,
            symbols: Vec::with_capacity(SIZE_MAX),
        };
        RlncSource {
            generations: Table::new((0..params.generations.max(2)).map(generation)),
            // A random start separates a restarted source from stragglers of its previous run.
            number: combiner.next_u32(),
            open: false,
            opened: 0,
            packer: Packer::default(),
            sent: 0,
            epoch: combiner.next_u32() as u8,
            tail: None,
            planner: Planner::new(shard),
            planned: 0,
            repair_budget: RepairBudget::new(),
            mender: Mender::new(mended_packets(params)),
            is_mended: false,
            remote: Remote::new(),
        }
    }

    fn open_index(&self) -> usize {
        self.generations.index(self.number)
    }

    /// Begins a generation whose first IP packet has a traffic class. Returns false without keys
    /// for the tags of its symbols.
    fn begin(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>, class: u8) -> bool {
        let params = cx.params;
        let tag_key = if params.tagged { cx.io.tag_key(cx.shard) } else { None };
        if params.tagged && tag_key.is_none() {
            cx.counters.seal_failed += 1;
            return false;
        }
        let (number, epoch) = (self.number, self.epoch);
        let index = self.open_index();
        self.generations.hold(index);
        let generation = &mut self.generations[index];
        generation.clear(cx.io.frames);
        generation.number = number;
        generation.epoch = epoch;
        generation.field = params.field;
        generation.full = params.generation_size;
        (generation.repaired, generation.tally) = (0, Tally::default());
        generation.class = class::outer(class);
        generation.tag_key = tag_key;
        self.open = true;
        self.opened = cx.io.now;
        self.tail = None;
        self.packer = Packer { written: 0, skipped: params.tag_bytes() };
        self.sent = 0;
        cx.counters.generations += 1;
        true
    }

    /// Ends the open generation, if any: sends its last symbol and its coded packets.
    pub(crate) fn close(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>) {
        let params = cx.params;
        if !self.open {
            return;
        }
        let index = self.open_index();
        let symbols = &mut self.generations[index].symbols;
        let size = symbols.len();
        if let [only] = &mut symbols[..] {
            only.len = (self.packer.skipped + self.packer.written) as u16;
        }
        self.packer.pad(cx.io.frames, symbols);
        self.open = false;
        if size == 0 {
            // It was begun only for a packet that found no frame.
            self.generations.free(index);
            self.number = self.number.wrapping_add(1);
            return;
        }
        let planned = usize::from(self.planner.packets(params, size));
        if size == params.generation_size {
            self.planned = planned;
        }
        self.is_mended = self.is_on(cx);
        let coded = if self.is_mended {
            let most = (params.redundancy_max * size as f64) as u16;
            let share = self.mender.share(size, false).min(most.saturating_sub(size as u16));
            usize::from(self.generations[index].tally.lost + share)
        } else {
            planned - size
        };
        while self.sent < size {
            let ends = coded + size - self.sent <= cx.hops.ends();
            self.send_systematic(cx, size, ends);
        }
        cx.counters.source_symbols += size as u64;
        cx.counters.sent_coded += self.send_coded(index, cx, coded, Some(planned as u16));
        self.repair_budget.earn(planned as u64);
        self.mender.unit(size, cx.io.now);
        // If the first hop recovers its losses, later hops do too.
        let is_probed = params.repair && !self.is_mended;
        self.tail = is_probed.then_some((0, cx.io.now + TAIL_PROBE_NANOS));
        self.number = self.number.wrapping_add(1);
    }

    /// Sends the next symbol of the open (or just closed) generation as it is.
    fn send_systematic(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        size: usize,
        ends: bool,
    ) {
        let params = cx.params;
        let planned = self.planner.packets(params, size);
        let index = self.sent;
        self.sent += 1;
        let generation = &self.generations[self.open_index()];
        let class = generation.class;
        let flags = Flags(Flags::SYSTEMATIC).with(Flags::END, ends);
        let header = generation.header(cx, flags, size, planned);
        let number = generation.number;
        let symbol = generation.symbols[index];
        if let Some(key) = generation.tag_key {
            tags::tag(cx, key, &header, None, index, symbol);
        }
        let payload = payload_of(symbol, coding_offset(false) + INDEX_BYTES);
        cx.io.frames.retain(payload.frame);
        let bytes = cx.io.frames.bytes_mut(payload);
        header.write(bytes);
        write_index(bytes, false, index as u8);
        cx.counters.sent_systematic += 1;
        let first = cx.hops.next_number();
        cx.send(payload, class);
        self.left(cx, number, usize::from(payload.len), first, 1);
    }

    /// Whether the next node reports the packets that it lacks.
    fn is_on<F, E>(&self, cx: &Context<'_, '_, F, E>) -> bool {
        cx.asks_to_mend() && self.mender.is_on(cx.io.now)
    }

    /// Notes `count` packets of a generation that were sent, of `bytes` each. `first` is the link
    /// sequence number of the first, if there is one next hop.
    fn left<F, E>(
        &mut self,
        cx: &Context<'_, '_, F, E>,
        number: u32,
        bytes: usize,
        first: Option<u32>,
        count: u64,
    ) {
        let index = self.generations.index(number);
        self.generations[index].tally.add(count);
        if let Some(first) = first.filter(|_| cx.asks_to_mend()) {
            self.mender.left(number, bytes, first, count, cx.io.now);
        }
    }

    /// Sends the packets that the next node lacks, as far as pacing allows.
    fn mend_all(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>) {
        let mut from = 0;
        while let Some(index) = self.generations.next_held(from) {
            from = index + 1;
            self.mend(index, cx);
        }
    }

    /// Sends combinations to replace the packets of a closed generation that the next node lacks.
    /// Those of an open one are replaced when it closes.
    fn mend(&mut self, index: usize, cx: &mut Context<'_, '_, impl Frames, impl Egress>) {
        let generation = &self.generations[index];
        let is_open = self.open && generation.number == self.number;
        let size = generation.symbols.len();
        let lacks = generation.tally.lacks(size);
        if is_open || lacks == 0 || !self.is_on(cx) {
            return;
        }
        let granted = self.mender.spend(lacks, cx.counters, cx.io.now);
        let planned = self.planner.packets(cx.params, size);
        let sent = self.send_coded(index, cx, granted, Some(planned));
        cx.counters.sent_repair += sent;
    }

    /// Sends `count` coded packets of a closed generation: as part of its planned packets, or as
    /// repairs.
    fn send_coded(
        &mut self,
        index: usize,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        count: usize,
        plan: Option<u16>,
    ) -> u64 {
        let generation = &self.generations[index];
        let size = generation.symbols.len();
        let sources = Sources {
            size,
            field: generation.field,
            block: None,
            symbols: &generation.symbols,
            vectors: None,
        };
        let kind = if plan.is_some() { Flags::END } else { Flags::REPAIR };
        let header = generation.header(cx, Flags(kind), size, plan.unwrap_or(0));
        let (number, first) = (generation.number, cx.hops.next_number());
        let bytes = sources.packet_bytes();
        let (sent, failed) =
            cx.hops.send_combinations(cx.io, &sources, header, count, generation.class);
        cx.counters.send_failed += failed;
        self.left(cx, number, bytes, first, sent);
        sent
    }

    /// Answers a NACK with fresh combinations, once per round.
    fn answer(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>, nack: Nack) {
        let params = cx.params;
        let index = self.generations.index(nack.unit);
        let is_open = self.open && nack.unit == self.number;
        let is_held = self.generations.is_held(index);
        let generation = &self.generations[index];
        if is_open
            || !is_held
            || !(generation.repaired..ROUNDS).contains(&nack.round)
            || generation.number != nack.unit
            || nack.missing == 0
            || !self.mender.has_room(cx.io.now)
        {
            return;
        }
        let size = generation.symbols.len();
        let missing = usize::from(nack.missing).min(size);
        let most = (params.redundancy_max * size as f64) as usize;
        let field = generation.field;
        let through = self.planner.through();
        let wanted = || repair_packets(through, field, missing, most.max(missing));
        let (wanted, packets) = self.repair_budget.grant(missing, wanted);
        cx.counters.repairs_refused += (wanted - packets) as u64;
        if packets == 0 {
            // A later copy of the NACK may find budget.
            return;
        }
        self.generations[index].repaired = nack.round.saturating_add(1);
        cx.counters.repairs += 1;
        cx.counters.sent_repair += self.send_coded(index, cx, packets, None);
    }
}

impl SourceCode for RlncSource {
    fn apply(&mut self, new: &FlowParams, cx: &mut Context<'_, '_, impl Frames, impl Egress>) {
        let old = cx.params;
        let shape =
            |params: &FlowParams| (params.field, params.generation_size, params.symbol_bytes);
        if shape(old) != shape(new) {
            self.close(cx);
            self.epoch = self.epoch.wrapping_add(1);
        }
        self.planner.reset();
    }

    fn epoch(&self) -> u8 {
        self.epoch
    }

    fn begin_epoch(&mut self, epoch: u8) {
        self.epoch = epoch;
    }

    fn next_number(&self) -> u32 {
        self.number.wrapping_add(u32::from(self.open))
    }

    fn begin_at(&mut self, number: u32) {
        self.number = number;
    }

    fn takes(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        carried_bytes: usize,
    ) -> bool {
        let capacity = cx.params.generation_size * cx.params.payload_bytes();
        let fits = carried_bytes <= LENGTH_MAX && LENGTH_BYTES + carried_bytes <= capacity;
        cx.counters.ingress_dropped += u64::from(!fits);
        fits
    }

    fn ingress(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        Inbound { packet, carried }: Inbound<'_>,
    ) {
        let params = cx.params;
        self.planner.refresh(params, cx.io);
        let capacity = params.generation_size * params.payload_bytes();
        let needed = LENGTH_BYTES + carried.len();
        if self.open && self.packer.written + needed > capacity {
            self.close(cx);
        }
        if !self.open && !self.begin(cx, class::of(packet)) {
            return;
        }
        let index = self.open_index();
        let symbols = &mut self.generations[index].symbols;
        let layout = Layout {
            offset: symbol_offset(coding_offset(false) + INDEX_BYTES) as u16,
            symbol_bytes: params.symbol_bytes,
        };
        if !self.packer.reserve(cx.io.frames, symbols, layout, self.packer.written + needed) {
            cx.counters.ingress_dropped += 1;
            cx.counters.send_failed += 1;
            return;
        }
        self.packer.write(cx.io.frames, symbols, &length_of(carried));
        self.packer.write(cx.io.frames, symbols, carried);
        let filled = symbols.len();
        while self.sent + 1 < filled {
            self.send_systematic(cx, params.generation_size, false);
        }
        if capacity - self.packer.written < entry_bytes_min(params.sealed) {
            self.close(cx);
        }
    }

    fn receive_feedback(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        _peer: PeerId,
        payload: Span,
        header: FeedbackHeader,
    ) {
        let params = cx.params;
        let mut nacks = [Nack { unit: 0, missing: 0, round: 0 }; 64];
        let mut count = 0;
        for item in items(cx.io.frames.bytes(payload)) {
            match item {
                Item::Hop(report) => {
                    if report.hop == 0 && header.common.hop_index == 0 {
                        self.mender.hear_loss(report);
                    }
                    self.planner.hear(header.common.hop_index, report, cx.io.now);
                }
                Item::Nack(nack) if count < nacks.len() => {
                    nacks[count] = nack;
                    count += 1;
                }
                Item::Nack(_) => {}
                Item::Flow(report) => self.remote.hear(report),
                Item::Ranks(report) if report.epoch == self.epoch => {
                    self.remote.hear_ranks(&report);
                    self.planner.observe(&report);
                }
                Item::Size(size) => {
                    self.mender.hear_size(size, header.common.hop_index, cx.io.now);
                }
                Item::Ranks(_) | Item::BlockAck(_) | Item::Arrivals(_) => {}
            }
        }
        self.planner.refresh(params, cx.io);
        if params.repair {
            for nack in &nacks[..count] {
                self.answer(cx, *nack);
            }
        }
    }
}

impl Lifecycle for RlncSource {
    fn hear_link(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        _peer: PeerId,
        report: &LinkReport,
        payload: Span,
    ) -> Result<(), DropReason> {
        let Self { mender, generations, .. } = self;
        mender.hear(report, cx.io.frames.bytes(payload), cx.io.now, generations);
        self.mend_all(cx);
        Ok(())
    }

    fn planned(&mut self, plan: Plan) {
        self.planner.adopt(plan);
    }

    fn mender(&self) -> Option<&Mender> {
        Some(&self.mender)
    }

    fn mender_mut(&mut self) -> Option<&mut Mender> {
        Some(&mut self.mender)
    }

    fn tick(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>) -> Option<Nanos> {
        let params = cx.params;
        if self.open && self.opened + params.flush_timeout_nanos <= cx.io.now {
            self.close(cx);
        }
        if let Some((probes, _)) = self.tail.filter(|(_, due)| *due <= cx.io.now) {
            let newest = self.generations.index(self.number.wrapping_sub(1));
            if self.generations.is_held(newest) {
                cx.counters.sent_repair += self.send_coded(newest, cx, 1, None);
            }
            let pause = TAIL_PROBE_NANOS << (probes + 1);
            self.tail = (probes + 1 < TAIL_PROBES).then_some((probes + 1, cx.io.now + pause));
        }
        self.planner.refresh(params, cx.io);
        self.mender.tick(&mut cx.hop(self.epoch, 0));
        self.wake(params, cx.io.now)
    }

    fn wake(&self, params: &FlowParams, _now: Nanos) -> Option<Nanos> {
        let flush = self.open.then_some(self.opened + params.flush_timeout_nanos);
        let tail = earlier(self.tail.map(|(_, due)| due), self.mender.due());
        earlier(earlier(flush, self.planner.due(params)), tail)
    }

    fn held(&self) -> usize {
        self.generations.held()
    }

    fn evict_oldest(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>) -> bool {
        let newest = self.number.wrapping_sub(u32::from(!self.open));
        let is_open = |index: &usize| self.open && *index == self.open_index();
        let oldest = self.generations.oldest(newest).filter(|index| !is_open(index));
        if let Some(index) = oldest {
            self.generations[index].clear(cx.io.frames);
            self.generations.free(index);
            cx.counters.generations_evicted += 1;
        }
        oldest.is_some()
    }

    fn drain(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>) {
        self.close(cx);
    }

    fn release(&mut self, frames: &mut impl Frames) {
        // Some of its symbols have been sent: its number is not used again.
        self.number = self.number.wrapping_add(u32::from(self.open));
        self.open = false;
        while let Some(index) = self.generations.next_held(0) {
            self.generations[index].clear(frames);
            self.generations.free(index);
        }
    }

    fn fill(&self, report: &mut FlowReport) {
        report.epoch = self.epoch;
        report.is_mended = self.is_mended && !self.mender.is_slow();
        report.planned = if report.is_mended { report.generation_size } else { self.planned };
        report.hops = self.planner.hops().to_vec();
        self.remote.fill(report);
    }
}

impl Tallied for Generation {
    fn tally_of(&mut self, unit: u32) -> Option<&mut Tally> {
        (self.number == unit).then_some(&mut self.tally)
    }
}

impl Generation {
    fn clear(&mut self, frames: &mut impl Frames) {
        for symbol in self.symbols.drain(..) {
            frames.release(symbol.frame);
        }
    }

    /// The header of one of its packets, with the given flags in addition to its field.
    fn header<F, E>(
        &self,
        cx: &Context<'_, '_, F, E>,
        flags: Flags,
        size: usize,
        planned: u16,
    ) -> CodedHeader {
        let is_mended = cx.asks_to_mend();
        let flags = flags.with(self.field.code(), true).with(Flags::MENDED, is_mended);
        let common = cx.header(PacketType::Generation, flags, self.epoch);
        let full_log2 = log2_ceil(self.full);
        let planned = cx.hops.part(planned).min(PLANNED_MAX);
        CodedHeader { common, size: size as u16, full_log2, planned, generation: self.number }
    }
}
