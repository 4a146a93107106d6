//! Sink edge of a BATS flow: coded packets in, IP packets out, in order per flow.
//!
//! Each open block has a decoder of its own; symbols lie in the frames they came in. Symbols are
//! delivered in order as the decoder finds them: most of them when the rank suffices, all at once.
//! A block that ended short asks the source for what it lacks, and the source answers with further
//! batches, round by round, until the sink has enough or its patience ends.

use crate::batch::PacketView;
use crate::bats::entry::{Entry, SAYINGS, limits, told_by};
use crate::bats::rows::Workbench;
use crate::combine::Combiner;
use crate::egress::Egress;
use crate::framing::{Unpacker, is_ip_packet};
use crate::incoming::Incoming;
use crate::io::{Fate, Io, earlier};
use crate::loss::hop_report;
use crate::params::{BatsParams, FlowParams, Nanos, Role, TunnelId};
use crate::redundancy::ROUNDS;
use crate::report::{DropReason, FlowCounters, FlowReport};
use crate::reporter::Reporter;
use recoded_wire::feedback::{FlowReport as SinkReport, Item, RepairRequest};
use recoded_wire::frames::Frames;
use recoded_wire::header::Header;

/// Blocks this far from the ones held belong to a source that restarted.
const RESTART_BLOCKS: u16 = 1 << 10;

/// Most requests in one report.
const ASKS_MAX: usize = 32;

/// Shortest time between two sayings, and the first guess at it.
const SAYING_INTERVAL_NANOS: Nanos = 4_000_000;

/// Sink state of a BATS flow. Blocks `next..=newest` are held, found by number modulo the count.
pub(crate) struct BatsSink {
    entries: Vec<Entry>,
    /// The block being delivered, and the newest seen; `None` before the first packet. `next` is one
    /// past `newest` when nothing is held.
    range: Option<(u16, u16)>,
    /// Symbols of `next` already delivered.
    cursor: usize,
    /// A block ended short: the next tick must see it.
    urgent: bool,
    /// Time between two sayings: a third of a round trip to the source.
    saying_interval: Nanos,
    unpacker: Unpacker,
    incoming: Incoming,
    reporter: Reporter,
}

impl BatsSink {
    pub(crate) fn new(params: &FlowParams, code: &BatsParams, combiner: &mut Combiner) -> Self {
        let limits = limits(params, code);
        Self {
            entries: (0..params.blocks(code)).map(|_| Entry::new(limits)).collect(),
            range: None,
            cursor: 0,
            urgent: false,
            saying_interval: SAYING_INTERVAL_NANOS,
            unpacker: Unpacker::new(),
            incoming: Incoming::default(),
            reporter: Reporter::new(combiner),
        }
    }

    /// Handles a packet of a batch.
    pub(crate) fn receive(
        &mut self,
        params: &FlowParams,
        counters: &mut FlowCounters,
        io: &mut Io<'_, impl Frames, impl Egress>,
        header: Header,
        view: &PacketView,
    ) -> Fate {
        let (block, told) = match told_by(params, view) {
            Ok(told) => told,
            Err(reason) => return Fate::Dropped(reason),
        };
        self.incoming.arrived(&header, view);
        self.reporter.note(io.now);
        if !self.admit(params, counters, io, block.number) {
            counters.redundant += 1;
            return Fate::Consumed;
        }
        let index = self.index(block.number);
        let entry = &mut self.entries[index];
        entry.touched = io.now;
        if !entry.begin(told, io.now) {
            return Fate::Dropped(DropReason::Mismatch);
        }
        if entry.is_answer(block.batch) {
            let trip = io.now - entry.first_asked_at;
            let smoothed = (7 * self.saying_interval + trip / u64::from(SAYINGS)) / 8;
            let most = params.hold_timeout_nanos / u64::from(SAYINGS * ROUNDS);
            self.saying_interval = smoothed.min(most).max(SAYING_INTERVAL_NANOS);
        }
        match entry.insert(io, block.batch, view) {
            Ok(true) => counters.innovative += 1,
            Ok(false) => counters.redundant += 1,
            Err(reason) => return Fate::Dropped(reason),
        }
        self.decode(index, counters, io);
        self.pump(params, counters, io);
        Fate::Consumed
    }

    fn index(&self, block: u16) -> usize {
        usize::from(block) % self.entries.len()
    }

    /// Makes room for `block`. False when it was already delivered or given up.
    fn admit(
        &mut self,
        params: &FlowParams,
        counters: &mut FlowCounters,
        io: &mut Io<'_, impl Frames, impl Egress>,
        block: u16,
    ) -> bool {
        let Some((next, newest)) = self.range else {
            self.restart(counters, io, block);
            return true;
        };
        let held = newest.wrapping_sub(next).wrapping_add(1);
        if block.wrapping_sub(next) < held {
            self.incoming.familiar();
            return true;
        }
        let (ahead, behind) = (block.wrapping_sub(newest), next.wrapping_sub(block));
        if (1..RESTART_BLOCKS).contains(&behind) {
            self.incoming.familiar();
            return false;
        }
        if (1..=self.entries.len() as u16).contains(&ahead) {
            self.incoming.familiar();
        } else {
            // One packet of a block far away may be a stray: as for generations.
            // In the upper half of a word, so that distances wrap as block numbers do.
            let upper = |number: u16| u32::from(number) << 16;
            let first = self.incoming.stranger(upper(block), upper(RESTART_BLOCKS));
            let Some(first) = first else { return false };
            if ahead >= RESTART_BLOCKS {
                self.restart(counters, io, (first >> 16) as u16);
            }
        }
        self.advance(params, counters, io, block);
        true
    }

    /// A first packet, or a source that restarted: whatever was held is given up.
    fn restart(
        &mut self,
        counters: &mut FlowCounters,
        io: &mut Io<'_, impl Frames, impl Egress>,
        block: u16,
    ) {
        while self.holds() {
            self.give_up(counters, io);
        }
        self.begin_delivery();
        self.range = Some((block, block));
        let index = self.index(block);
        self.entries[index].open(block, io.now);
    }

    /// Opens all blocks up to `block`, which closes those before it. The oldest are given up when
    /// the table is too small.
    fn advance(
        &mut self,
        params: &FlowParams,
        counters: &mut FlowCounters,
        io: &mut Io<'_, impl Frames, impl Egress>,
        block: u16,
    ) {
        let count = self.entries.len() as u16;
        while let Some((next, newest)) = self.range.filter(|(_, newest)| *newest != block) {
            if newest.wrapping_sub(next).wrapping_add(1) == count {
                counters.generations_evicted += 1;
                self.give_up(counters, io);
                continue;
            }
            if self.holds() {
                let index = self.index(newest);
                self.close(index, counters, io.now);
            }
            let opened = newest.wrapping_add(1);
            self.range = Some((next, opened));
            let index = self.index(opened);
            self.entries[index].open(opened, io.now);
        }
        self.pump(params, counters, io);
    }

    /// Notes that nothing more is planned for a block.
    fn close(&mut self, index: usize, counters: &mut FlowCounters, now: Nanos) {
        let entry = &mut self.entries[index];
        if entry.closed {
            return;
        }
        entry.closed = true;
        entry.closed_at = now;
        entry.record_ranks(&mut self.incoming, counters, 0);
        self.urgent |= !entry.decoder.is_complete() || entry.told.is_none();
    }

    /// Decodes a block as far as it goes.
    fn decode(
        &mut self,
        index: usize,
        counters: &mut FlowCounters,
        io: &mut Io<'_, impl Frames, impl Egress>,
    ) {
        let entry = &mut self.entries[index];
        if entry.told.is_none() || entry.decoded_at.is_some() {
            return;
        }
        let kernel = io.combiner.kernel();
        let mut bench = Workbench { rows: &mut entry.rows, frames: io.frames, kernel };
        if entry.decoder.advance(&mut bench, |_| ()).is_err() || !entry.decoder.is_complete() {
            return;
        }
        entry.decoded_at = Some(io.now);
        counters.source_symbols += entry.decoder.params().source_symbols as u64;
        counters.decoded_after(io.now.saturating_sub(entry.opened));
        if !entry.closed {
            // Batches that are still arriving would count as shorter than they are.
            let depth = entry.told.map_or(1, |told| told.depth);
            entry.record_ranks(&mut self.incoming, counters, depth);
            entry.closed = true;
            entry.closed_at = io.now;
        }
        entry.rows.release_received(io.frames);
    }

    /// Whether any block is held.
    fn holds(&self) -> bool {
        self.range.is_some_and(|(next, newest)| newest.wrapping_sub(next) < RESTART_BLOCKS)
    }

    /// When to call [`BatsSink::tick`] again, after a packet arrived.
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
        let Role::Sink { tunnel, .. } = params.role else { return };
        while let Some((next, _)) = self.range.filter(|_| self.holds()) {
            let index = self.index(next);
            self.deliver(index, tunnel, counters, io);
            let entry = &self.entries[index];
            if entry.decoded_at.is_some() {
                counters.generations += 1;
                counters.generations_complete += 1;
                self.finish(io.frames);
            } else if entry.closed && !params.repair {
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
        let Some(told) = entry.told else { return };
        let is_known = |symbol: &usize| entry.decoder.is_decoded(*symbol);
        let known = (self.cursor..told.params.source_symbols).take_while(is_known);
        for symbol in known.map_while(|symbol| entry.rows.symbol(symbol)) {
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

    /// Gives the block next in order up.
    fn give_up(&mut self, counters: &mut FlowCounters, io: &mut Io<'_, impl Frames, impl Egress>) {
        if let Some((next, _)) = self.range {
            let index = self.index(next);
            self.close(index, counters, io.now);
        }
        counters.generations += 1;
        counters.generations_failed += 1;
        self.finish(io.frames);
    }

    /// Lets the block next in order go and moves on.
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
        self.urgent = false;
        let (next, newest) = self.range?;
        let held = if self.holds() { newest.wrapping_sub(next).wrapping_add(1) } else { 0 };
        let mut asks = [RepairRequest { generation: 0, missing: 0, round: 0 }; ASKS_MAX];
        let (mut count, mut deadline) = (0, None);
        for block in (0..held).map(|offset| next.wrapping_add(offset)) {
            let index = self.index(block);
            let end = self.entries[index].touched + params.batch_timeout_nanos;
            if !self.entries[index].closed && end > io.now {
                deadline = earlier(deadline, Some(end));
                continue;
            }
            self.close(index, counters, io.now);
            // Frames may have run out the last time.
            self.decode(index, counters, io);
            let entry = &mut self.entries[index];
            if params.repair && count < asks.len() && entry.may_ask(io.now, self.saying_interval) {
                asks[count] = entry.ask(io.now);
                count += 1;
            }
            deadline = earlier(deadline, entry.deadline(params, self.saying_interval));
        }
        self.urgent = false;
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
            if !entry.closed || entry.decoded_at.is_some() || waited < params.hold_timeout_nanos {
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
        let (Role::Sink { upstream, .. }, Some((next, newest))) = (&params.role, self.range) else {
            return;
        };
        let hop = hop_report(&self.incoming.loss);
        let state = Item::Flow(SinkReport {
            newest: u32::from(newest),
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
            writer.push(Item::Enough(next.wrapping_sub(1)));
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

    /// Frames held, in batches' worth, as other roles count generations.
    pub(crate) fn held(&self) -> usize {
        self.entries.iter().filter(|entry| entry.live).count()
    }

    pub(crate) fn fill(&self, report: &mut FlowReport) {
        self.incoming.fill(report);
    }
}
