//! Sink edge: coded packets in, IP packets out, in order per flow.
//!
//! Elimination runs on the coding vectors as packets arrive; payloads stay where they are. Source
//! symbols that arrive as such are delivered at once when it is their turn; the missing ones are
//! computed by one fused multiply when the rank is full. A generation that closed short asks the
//! source once for its missing degrees of freedom, and is given up after the hold timeout.

use crate::batch::{Accepted, Batch, PacketCoding, PacketView, Shape};
use crate::combine::Combiner;
use crate::egress::Egress;
use crate::framing::{Unpacker, is_ip_packet};
use crate::incoming::Incoming;
use crate::io::{Fate, Io, RESTART_DISTANCE, earlier};
use crate::layout::symbol_offset;
use crate::loss::hop_report;
use crate::params::{FlowParams, Nanos, Role, TunnelId};
use crate::redundancy::ROUNDS;
use crate::report::{DropReason, FlowCounters, FlowReport};
use crate::reporter::Reporter;
use recoded_wire::feedback::{FlowReport as SinkReport, Item, RepairRequest};
use recoded_wire::frames::{FrameId, Frames, Span};
use recoded_wire::header::{Flags, Header, SIZE_MAX, serial_before};

/// A request is said this often per round, since the way back is lossy too; the source answers once.
const SAYINGS: u8 = 3;

/// Symbols decoded by one product: what a product takes to begin shows in a group of 16.
const GROUP: usize = 64;

/// Shortest time between two sayings, and the first guess at it.
const SAYING_INTERVAL_NANOS: Nanos = 4_000_000;

/// A generation at the sink.
struct Entry {
    batch: Batch,
    /// Source symbols, where known: arrived as such, or decoded.
    symbols: Vec<Option<Span>>,
    decoded: bool,
    closed_at: Nanos,
    asks: u8,
    first_asked_at: Nanos,
    asked_at: Nanos,
}

/// Sink state of one flow. Generations `next..=newest` are held, found by number modulo the count.
pub(crate) struct Sink {
    entries: Vec<Entry>,
    /// The generation being delivered, and the newest seen; `None` before the first packet.
    /// `next` is one past `newest` when nothing is held.
    range: Option<(u32, u32)>,
    /// Symbols of `next` already delivered.
    cursor: usize,
    /// A generation closed short: the next tick must see it.
    urgent: bool,
    /// Time between two sayings: a third of a round trip to the source, so that a round ends when its
    /// answer should be here.
    saying_interval: Nanos,
    unpacker: Unpacker,
    solutions: Vec<u8>,
    incoming: Incoming,
    reporter: Reporter,
}

impl Sink {
    pub(crate) fn new(params: &FlowParams, combiner: &mut Combiner) -> Sink {
        let entry = |_| Entry {
            batch: Batch::new(params.generation_size, true),
            symbols: vec![None; params.generation_size],
            decoded: false,
            closed_at: 0,
            asks: 0,
            first_asked_at: 0,
            asked_at: 0,
        };
        Sink {
            entries: (0..params.batches.max(2)).map(entry).collect(),
            range: None,
            cursor: 0,
            urgent: false,
            saying_interval: SAYING_INTERVAL_NANOS,
            unpacker: Unpacker::new(),
            solutions: vec![0; GROUP * SIZE_MAX],
            incoming: Incoming::default(),
            reporter: Reporter::new(combiner),
        }
    }

    pub(crate) fn receive(
        &mut self,
        params: &FlowParams,
        counters: &mut FlowCounters,
        io: &mut Io<'_, impl Frames, impl Egress>,
        payload: Span,
        header: Header,
        view: &PacketView,
    ) -> Fate {
        self.incoming.arrived(&header, view);
        self.reporter.note(io.now);
        if !self.admit(params, counters, io, header.generation) {
            counters.redundant += 1;
            return Fate::Consumed;
        }
        let index = self.index(header.generation);
        let entry = &mut self.entries[index];
        entry.batch.touched = io.now;
        if header.planned == 0 && entry.asks > 0 && !entry.batch.is_complete() {
            let trip = io.now - entry.first_asked_at;
            let smoothed = (7 * self.saying_interval + trip / u64::from(SAYINGS)) / 8;
            let most = params.hold_timeout_nanos / u64::from(SAYINGS * ROUNDS);
            self.saying_interval = smoothed.min(most).max(SAYING_INTERVAL_NANOS);
        }
        match entry.batch.accept(io.frames, payload, view) {
            Accepted::Mismatch => return Fate::Dropped(DropReason::Mismatch),
            Accepted::Innovative => {
                counters.innovative += 1;
                entry.note_systematic(io.frames, view);
            }
            Accepted::Redundant => counters.redundant += 1,
        }
        if entry.batch.is_complete() && !entry.decoded {
            entry.decoded = decode(entry, &mut self.solutions, counters, io);
        }
        // A repair packet comes from a generation that its source has closed.
        let ends = header.planned == 0 || header.flags.has(Flags::END);
        if !entry.batch.closed && (ends || entry.batch.is_complete()) {
            self.close(index, counters, io.now);
        }
        self.pump(params, counters, io);
        Fate::Consumed
    }

    fn index(&self, generation: u32) -> usize {
        generation as usize % self.entries.len()
    }

    /// Makes room for `generation`. False when it was already delivered or given up.
    fn admit(
        &mut self,
        params: &FlowParams,
        counters: &mut FlowCounters,
        io: &mut Io<'_, impl Frames, impl Egress>,
        generation: u32,
    ) -> bool {
        let Some((next, newest)) = self.range else {
            return self.restart(counters, io, generation);
        };
        let held = newest.wrapping_sub(next).wrapping_add(1);
        if generation.wrapping_sub(next) < held {
            self.incoming.familiar();
            return true;
        }
        // What is neither a little ahead nor a little behind is far away, on whichever side: serial
        // comparison has no answer for numbers half the space apart.
        let (ahead, behind) = (generation.wrapping_sub(newest), next.wrapping_sub(generation));
        if (1..RESTART_DISTANCE).contains(&behind) {
            self.incoming.familiar();
            return false;
        }
        if (1..=self.entries.len() as u32).contains(&ahead) {
            self.incoming.familiar();
        } else {
            let Some(first) = self.incoming.stranger(generation, RESTART_DISTANCE) else {
                return false;
            };
            if ahead >= RESTART_DISTANCE {
                self.restart(counters, io, first);
            }
        }
        self.advance(params, counters, io, generation);
        true
    }

    /// A first packet, or a source that restarted: whatever was held is given up.
    fn restart(
        &mut self,
        counters: &mut FlowCounters,
        io: &mut Io<'_, impl Frames, impl Egress>,
        generation: u32,
    ) -> bool {
        while self.holds() {
            self.give_up(counters, io);
        }
        self.begin_delivery();
        self.range = Some((generation, generation));
        let index = self.index(generation);
        self.entries[index].open(generation, io.now);
        true
    }

    /// Opens all generations up to `generation`, which closes those before it. The oldest are given
    /// up when the table is too small.
    fn advance(
        &mut self,
        params: &FlowParams,
        counters: &mut FlowCounters,
        io: &mut Io<'_, impl Frames, impl Egress>,
        generation: u32,
    ) {
        let count = self.entries.len() as u32;
        while let Some((next, newest)) = self.range.filter(|(_, newest)| *newest != generation) {
            if newest.wrapping_sub(next).wrapping_add(1) == count {
                counters.generations_evicted += 1;
                self.give_up(counters, io);
                continue;
            }
            if !serial_before(newest, next) {
                let index = self.index(newest);
                if !self.entries[index].batch.closed {
                    self.close(index, counters, io.now);
                }
            }
            let opened = newest.wrapping_add(1);
            self.range = Some((next, opened));
            let index = self.index(opened);
            self.entries[index].open(opened, io.now);
        }
        self.pump(params, counters, io);
    }

    fn close(&mut self, index: usize, counters: &mut FlowCounters, now: Nanos) {
        let entry = &mut self.entries[index];
        entry.batch.closed = true;
        entry.closed_at = now;
        match entry.batch.shape() {
            Some(Shape { epoch, .. }) => {
                self.incoming.ranks.record(counters, epoch, entry.batch.size(), entry.batch.rank());
            }
            None => self.incoming.ranks.record_absent(counters, 1),
        }
        self.urgent |= !entry.batch.is_complete();
    }

    /// Whether any generation is held.
    fn holds(&self) -> bool {
        self.range.is_some_and(|(next, newest)| !serial_before(newest, next))
    }

    /// When to call [`Sink::tick`] again, after a packet arrived.
    pub(crate) fn wake(&self, params: &FlowParams, now: Nanos) -> Option<Nanos> {
        if self.urgent {
            return Some(now);
        }
        let open = self.holds().then_some(now + params.batch_timeout_nanos);
        earlier(open, self.reporter.due())
    }

    /// Delivers what is next in order, as far as it is known.
    fn pump(
        &mut self,
        params: &FlowParams,
        counters: &mut FlowCounters,
        io: &mut Io<'_, impl Frames, impl Egress>,
    ) {
        let Role::Sink { tunnel, .. } = params.role else {
            return;
        };
        while let Some((next, _)) = self.range.filter(|_| self.holds()) {
            let index = self.index(next);
            self.deliver(index, tunnel, counters, io);
            let entry = &self.entries[index];
            if entry.batch.is_complete() && self.cursor == entry.batch.size() {
                counters.source_symbols += entry.batch.size() as u64;
                counters.generations += 1;
                counters.generations_complete += 1;
                self.finish(io.frames);
            } else if entry.batch.closed && !params.repair && !entry.batch.is_complete() {
                self.give_up(counters, io);
            } else {
                return;
            }
        }
    }

    /// Delivers the known symbols that follow the cursor.
    fn deliver(
        &mut self,
        index: usize,
        tunnel: TunnelId,
        counters: &mut FlowCounters,
        io: &mut Io<'_, impl Frames, impl Egress>,
    ) {
        let entry = &self.entries[index];
        let known = entry.symbols[..entry.batch.size()].iter().skip(self.cursor);
        for symbol in known.map_while(|symbol| *symbol) {
            self.cursor += 1;
            let egress = &mut *io.egress;
            self.unpacker.feed(io.frames.bytes(symbol), |packet| {
                if is_ip_packet(packet) {
                    counters.delivered_packets += 1;
                    counters.delivered_bytes += packet.len() as u64;
                    egress.deliver(tunnel, packet);
                } else {
                    counters.framing_errors += 1;
                }
            });
        }
    }

    /// Gives the generation next in order up.
    fn give_up(&mut self, counters: &mut FlowCounters, io: &mut Io<'_, impl Frames, impl Egress>) {
        counters.generations += 1;
        counters.generations_failed += 1;
        self.finish(io.frames);
    }

    /// Lets the generation next in order go and moves on.
    fn finish(&mut self, frames: &mut impl Frames) {
        if let Some((next, newest)) = self.range {
            let index = self.index(next);
            self.entries[index].clear(frames);
            self.range = Some((next.wrapping_add(1), newest));
        }
        self.begin_delivery();
    }

    fn begin_delivery(&mut self) {
        self.cursor = 0;
        self.unpacker.reset();
    }

    pub(crate) fn tick(
        &mut self,
        params: &FlowParams,
        counters: &mut FlowCounters,
        io: &mut Io<'_, impl Frames, impl Egress>,
    ) -> Option<Nanos> {
        let mut deadline = None;
        self.urgent = false;
        let mut asks = [RepairRequest { generation: 0, missing: 0, round: 0 }; 32];
        let mut count = 0;
        let (next, newest) = self.range?;
        let held = newest.wrapping_sub(next).wrapping_add(1);
        for generation in (0..held).map(|offset| next.wrapping_add(offset)) {
            let index = self.index(generation);
            if !self.entries[index].batch.closed {
                let end = self.entries[index].batch.touched + params.batch_timeout_nanos;
                if end > io.now {
                    deadline = earlier(deadline, Some(end));
                    continue;
                }
                self.close(index, counters, io.now);
            }
            let entry = &mut self.entries[index];
            if entry.batch.is_complete() && !entry.decoded {
                entry.decoded = decode(entry, &mut self.solutions, counters, io);
            }
            if params.repair && count < asks.len() && entry.may_ask(io.now, self.saying_interval) {
                asks[count] = entry.ask(io.now);
                count += 1;
            }
            deadline = earlier(deadline, entry.deadline(params, self.saying_interval));
        }
        counters.repairs += asks[..count].iter().filter(|ask| ask.missing > 0).count() as u64;
        self.expire(params, counters, io);
        self.pump(params, counters, io);
        if count > 0 || self.reporter.due().is_some_and(|due| due <= io.now) {
            self.report(params, counters, io, &asks[..count]);
        }
        earlier(deadline, self.reporter.due())
    }

    /// Gives up what has blocked delivery for longer than the hold timeout.
    fn expire(
        &mut self,
        params: &FlowParams,
        counters: &mut FlowCounters,
        io: &mut Io<'_, impl Frames, impl Egress>,
    ) {
        while let Some((next, _)) = self.range.filter(|_| self.holds()) {
            let entry = &self.entries[self.index(next)];
            let waited = io.now.saturating_sub(entry.closed_at);
            if !entry.batch.closed || entry.decoded || waited < params.hold_timeout_nanos {
                return;
            }
            self.give_up(counters, io);
        }
    }

    fn report(
        &mut self,
        params: &FlowParams,
        counters: &FlowCounters,
        io: &mut Io<'_, impl Frames, impl Egress>,
        asks: &[RepairRequest],
    ) {
        let (Role::Sink { upstream, .. }, Some((_, newest))) = (&params.role, self.range) else {
            return;
        };
        let hop = hop_report(&self.incoming.loss);
        let state = Item::Flow(SinkReport {
            newest,
            complete: counters.generations_complete as u32,
            failed: counters.generations_failed as u32,
        });
        let ranks = self.incoming.ranks.epoch().map(|epoch| (epoch, &counters.rank_histogram));
        let urgency = (!asks.is_empty(), self.incoming.loss.loss());
        self.reporter.send(io, (params.id, *upstream), urgency, |writer| {
            // The most urgent first: what does not fit is left out.
            asks.iter().for_each(|ask| {
                writer.push(Item::Repair(*ask));
            });
            if let Some(hop) = hop {
                writer.push(hop);
            }
            writer.push(state);
            if let Some((epoch, counts)) = ranks {
                writer.push_ranks(epoch, counts.iter().map(|count| *count as u32));
            }
        });
    }

    pub(crate) fn evict_oldest(
        &mut self,
        params: &FlowParams,
        counters: &mut FlowCounters,
        io: &mut Io<'_, impl Frames, impl Egress>,
    ) -> bool {
        let held = self.holds();
        if held {
            counters.generations_evicted += 1;
            self.give_up(counters, io);
            self.pump(params, counters, io);
        }
        held
    }

    pub(crate) fn release(&mut self, frames: &mut impl Frames) {
        for entry in &mut self.entries {
            entry.clear(frames);
        }
        self.range = None;
        self.begin_delivery();
    }

    pub(crate) fn held(&self) -> usize {
        self.entries.iter().filter(|entry| entry.batch.live).count()
    }

    pub(crate) fn fill(&self, report: &mut FlowReport) {
        self.incoming.fill(report);
    }
}

impl Entry {
    fn open(&mut self, generation: u32, now: Nanos) {
        self.batch.open(generation, now);
        self.decoded = false;
        (self.closed_at, self.asks, self.asked_at) = (0, 0, 0);
    }

    /// Frees the entry: its references and those of its batch.
    fn clear(&mut self, frames: &mut impl Frames) {
        for symbol in self.symbols.iter_mut().filter_map(Option::take) {
            frames.release(symbol.frame);
        }
        if self.batch.live {
            self.batch.clear(frames);
        }
    }

    /// Takes the entry's own reference to a source symbol that just arrived.
    fn note_systematic(&mut self, frames: &mut impl Frames, view: &PacketView) {
        if let PacketCoding::Systematic(index) = view.coding {
            frames.retain(view.symbol.frame);
            self.symbols[index] = Some(view.symbol);
        }
    }

    fn may_ask(&self, now: Nanos, interval: Nanos) -> bool {
        self.batch.closed
            && !self.batch.is_complete()
            && self.asks < SAYINGS * ROUNDS
            && (self.asks == 0 || now >= self.asked_at + interval)
    }

    fn ask(&mut self, now: Nanos) -> RepairRequest {
        let round = self.asks / SAYINGS;
        self.asks += 1;
        if self.asks == 1 {
            self.first_asked_at = now;
        }
        self.asked_at = now;
        let missing = match self.batch.size() {
            0 => RepairRequest::ALL,
            size => (size - self.batch.rank()) as u16,
        };
        RepairRequest { generation: self.batch.generation, missing, round }
    }

    /// When this closed generation wants to be looked at again.
    fn deadline(&self, params: &FlowParams, interval: Nanos) -> Option<Nanos> {
        if self.decoded {
            return None;
        }
        let hold = self.closed_at + params.hold_timeout_nanos;
        // One that is complete waits for frames, not for packets.
        let asks = params.repair && self.asks < SAYINGS * ROUNDS && !self.batch.is_complete();
        let ask = asks.then_some(self.asked_at + interval);
        earlier(Some(hold), ask)
    }
}

/// Computes the source symbols that did not arrive as such, by one fused multiply per group. False,
/// to be tried again, when frames ran out.
fn decode(
    entry: &mut Entry,
    solutions: &mut [u8],
    counters: &mut FlowCounters,
    io: &mut Io<'_, impl Frames, impl Egress>,
) -> bool {
    let batch = &entry.batch;
    let (size, rank) = (batch.size(), batch.rank());
    let symbol_bytes = batch.shape().map_or(0, |shape| shape.symbol_bytes);
    let offset = symbol_offset(0) as u16;
    let mut from = 0;
    while from < size {
        let mut group = [Span { frame: FrameId(0), offset: 0, len: 0 }; GROUP];
        let mut count = 0;
        while from < size && count < GROUP {
            if entry.symbols[from].is_none() {
                let Some(frame) = io.frames.take() else { break };
                let symbol = Span { frame, offset, len: symbol_bytes };
                if batch.solution(from, &mut solutions[count * rank..][..rank]).is_none() {
                    io.frames.release(frame);
                    break;
                }
                entry.symbols[from] = Some(symbol);
                group[count] = symbol;
                count += 1;
            }
            from += 1;
        }
        let kernel = io.combiner.kernel();
        io.frames.with_disjoint(batch.symbols(), &group[..count], |held, out| {
            kernel.matmul(&solutions[..count * rank], held, out);
        });
        if from < size && count < GROUP {
            return false;
        }
    }
    counters.decoded_after(io.now.saturating_sub(batch.first));
    true
}
