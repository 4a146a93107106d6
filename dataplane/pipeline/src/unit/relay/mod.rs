//! Relay: coded packets in, recoded packets out.
//!
//! Systematic cut-through: an innovative packet is sent at once as it came. Fresh combinations
//! follow only for a shortfall:
//!
//! - With flag MENDED and reports from the next node, the relay sends that node's shortfall against
//!   its own rank (see `hop_repair`). This is usual: one next hop, `repair`, automatic redundancy.
//! - Otherwise it sends the shortfall of the plan when the generation closes: without a return
//!   path, with a fixed `redundancy`, with several next hops, and while the next node is silent.
//!   The expected rank equals that of random recoding for fields of order 16 and up, and is better
//!   below. It takes a fraction of the multiplications and adds no batch delay (`theory` in
//!   `recoded-code` has the exact figures).
//!
//! A generation closes at full rank, at the END flag, when a newer one begins, or after a silence.
//!
//! A relay handles a batch of a BATS flow as a generation, with two differences. Where a generation
//! follows the plan of the source, the number of packets for a batch follows its rank (see
//! `adaptive`), unless `adaptive = false`. And batches may be interleaved: the block word gives the
//! number that are open at once, and a batch closes when one that much newer begins. Pending
//! packets of closed batches are interleaved, one per batch, because a burst of losses would
//! otherwise hit packets of one batch only.

pub(crate) mod adaptive;

mod amplification;

mod feedback;

mod convergence;

pub(crate) mod hop_repair;

mod lifecycle;

use crate::base::table::Table;
use crate::config::params::{FlowParams, Nanos, Recoding, ShardId};
use crate::config::report::DropReason;
use crate::edge::class;
use crate::env::combine::Combiner;
use crate::env::egress::{Egress, KeySerial};
use crate::hop::send::mender::Mender;
use crate::hop::send::repair::RepairBudget;
use crate::packet::arrival::{AHEAD_MAX, Arrival, Fate, RESTART_DISTANCE};
use crate::packet::collected::{Accepted, Collected, PacketView};
use crate::packet::freshness::Order;
use crate::packet::incoming::Incoming;
use crate::unit::context::Context;
use crate::unit::convergence::Branches;
use crate::unit::relay::adaptive::AdaptivePlan;
use crate::unit::relay::hop_repair::mended_packets;
use crate::unit::role::Lifecycle;
use recoded_wire::coded::{Block, CodedHeader, PLANNED_MAX};
use recoded_wire::frames::Frames;
use recoded_wire::header::{Flags, serial_before};

/// Relay state of one flow. Generations are found by number modulo their count.
pub(crate) struct Relay {
    generations: Table<Collected>,
    newest: Option<u32>,
    /// Block of the newest batch.
    newest_block: Option<u16>,
    pub(crate) incoming: Incoming,
    adaptive: AdaptivePlan,
    repair_budget: RepairBudget,
    /// Repairs to forward, accumulated in fractions.
    onward: f64,
    branches: Branches,
    mender: Mender,
    /// Closed batches with pending packets, by place in the table, and when to flush them.
    deferred: Vec<usize>,
    flush_at: Option<Nanos>,
}

/// How long a closed batch waits for those it is interleaved with. Their ends are one packet apart,
/// so this is enough from 50 Mbit/s up, and short compared with the delay of interleaving itself.
const FLUSH_DELAY_NANOS: Nanos = 500_000;

/// Generations of several upstreams that are open at once: one upstream is ahead of another by the
/// difference of their delays. A larger value would delay generations that a dead upstream does not
/// end. Generations further ahead only lose the combining of their remainder.
const JOINED_DEPTH: u32 = 8;

/// Place of a generation in the table.
enum GenerationPlace {
    Held(usize),
    New(usize),
    /// Older than anything held, or out of range: the source restarted, or the packet is a stray.
    Elsewhere,
}

impl Relay {
    pub(crate) fn new(shard: ShardId, params: &FlowParams) -> Relay {
        Relay {
            generations: Table::new(
                (0..params.generations.max(1))
                    .map(|_| Collected::new(params.generation_size, false)),
            ),
            newest: None,
            newest_block: None,
            incoming: Incoming::default(),
            adaptive: AdaptivePlan::new(shard),
            repair_budget: RepairBudget::new(),
            onward: 0.0,
            branches: Branches::default(),
            mender: Mender::new(mended_packets(params)),
            deferred: Vec::with_capacity(params.generations.max(1)),
            flush_at: None,
        }
    }

    /// Adds a packet of a generation or batch, and sends the resulting packets.
    fn collect(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        arrival: &Arrival<'_>,
        header: CodedHeader,
        view: &PacketView,
    ) -> Fate {
        let params = cx.params;
        self.incoming.arrived(&header, view);
        let is_repair = header.is_repair();
        let index = match self.place(header.generation, arrival.key, cx) {
            GenerationPlace::Held(index) => index,
            GenerationPlace::New(index) => {
                let block = view.block.as_ref();
                self.open(index, cx, header.generation, block)
            }
            GenerationPlace::Elsewhere => {
                cx.counters.sent_repair += u64::from(is_repair);
                self.forward(cx, arrival, header, false);
                return Fate::Forwarded;
            }
        };
        let number = header.generation;
        arrival.key.into_iter().for_each(|key| self.incoming.freshness.note(key, number));
        let collected = &mut self.generations[index];
        collected.touched = cx.io.now;
        let accepted = collected.accept(cx.io.frames, arrival.payload, view);
        if accepted == Accepted::Innovative && collected.rank() == 1 {
            collected.class = class::outer(arrival.traffic_class);
        }
        match accepted {
            //= docs/protocol §2.4(b)
            Accepted::Mismatch => return Fate::Dropped(DropReason::Mismatch),
            Accepted::Innovative => {
                cx.counters.innovative += 1;
                // With only a share of the packets, no hop could report what it lacks of the whole.
                collected.is_mended = header.is_mended() && params.onward_share >= 1.0;
            }
            Accepted::Redundant => {
                cx.counters.redundant += 1;
                if !collected.is_complete() {
                    cx.upstream.note_useless();
                }
            }
        }
        self.branches.hear(cx.upstream.place, cx.io.now);
        if is_repair {
            return self.repair(index, accepted, cx, arrival, header);
        }
        self.go_on(cx, header.generation);
        let collected = &mut self.generations[index];
        let ends = collected.hear_plan(params, &header, view, cx.upstream.place);
        let is_mended = self.is_mended(index, cx.io.now);
        let collected = &self.generations[index];
        let cut_through = accepted == Accepted::Innovative
            && params.recoding == Recoding::Systematic
            && !collected.closed
            && (is_mended || collected.tally.sent < collected.planned);
        if collected.closed && accepted == Accepted::Innovative {
            return self.straggle(index, cx, arrival, header);
        }
        if ends && !collected.closed {
            self.settle(index, cx);
        }
        if cut_through {
            let collected = &mut self.generations[index];
            collected.tally.add(1);
            let forwarded = CodedHeader { planned: cx.hops.part(collected.planned), ..header };
            let last = if is_mended {
                ends && collected.lacks() + collected.share == 0
            } else {
                // A batch's packet count is not known before it ends.
                collected.tally.sent == collected.planned && (ends || view.block.is_none())
            };
            self.forward(cx, arrival, forwarded, last);
        }
        if ends && !self.generations[index].closed {
            self.close(index, cx);
        }
        if cut_through { Fate::Forwarded } else { Fate::Consumed }
    }

    fn place(
        &mut self,
        generation: u32,
        key: Option<KeySerial>,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
    ) -> GenerationPlace {
        let params = cx.params;
        let count = self.generations.len() as u32;
        let index = self.generations.index(generation);
        let order = key.map(|key| self.incoming.freshness.order(key, generation));
        if self.generations.is_held(index) && self.generations[index].generation == generation {
            self.incoming.note_in_range(cx.io.now);
            return GenerationPlace::Held(index);
        }
        let Some(newest) = self.newest else { return GenerationPlace::New(index) };
        let (ahead, behind) = (generation.wrapping_sub(newest), newest.wrapping_sub(generation));
        if behind < count || ahead <= AHEAD_MAX {
            self.incoming.note_in_range(cx.io.now);
            return GenerationPlace::New(index);
        }
        if order == Some(Order::Behind) {
            return GenerationPlace::Elsewhere;
        }
        if let Some(key) = key {
            // The source has come that far, or restarted.
            self.incoming.freshness.restart(key, generation);
            if order == Some(Order::NewerKey) || ahead >= RESTART_DISTANCE {
                self.release(cx.io.frames);
                self.newest = None;
            }
            return GenerationPlace::New(index);
        }
        if behind < RESTART_DISTANCE {
            return GenerationPlace::Elsewhere;
        }
        // A jump within the table ends nothing in it; a longer jump requires that it is idle.
        let silence = if ahead <= count { 0 } else { params.generation_timeout_nanos };
        let now = cx.io.now;
        if self.incoming.note_out_of_range(generation, RESTART_DISTANCE, now, silence).is_none() {
            return GenerationPlace::Elsewhere;
        }
        if ahead >= RESTART_DISTANCE {
            self.release(cx.io.frames);
            self.newest = None;
        }
        GenerationPlace::New(index)
    }

    /// Batches, or generations of several upstreams, that are open at once.
    fn depth(&self, block: Option<&Block>, params: &FlowParams) -> u32 {
        let wanted = block.map_or(1, |block| u32::from(block.interleave));
        let joined = if params.further_upstreams.is_empty() { 1 } else { JOINED_DEPTH };
        let wanted = wanted.max(joined);
        wanted.clamp(1, self.generations.len() as u32)
    }

    /// Begins a generation, evicting the generation that held its table entry. Older ones close:
    /// all of them, or those it is not interleaved with. Batches of different blocks are not
    /// interleaved.
    fn open(
        &mut self,
        index: usize,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        generation: u32,
        block: Option<&Block>,
    ) -> usize {
        let is_newest = self.newest.is_none_or(|newest| serial_before(newest, generation));
        let number = block.map(|block| block.number);
        let takes_turns = number == self.newest_block;
        let depth = if takes_turns { self.depth(block, cx.params) } else { 1 };
        if is_newest {
            self.newest_block = number;
            if let Some(newest) = self.newest {
                let absent = generation.wrapping_sub(newest) - 1;
                if absent < RESTART_DISTANCE {
                    self.incoming.ranks.record_absent(absent);
                }
            }
            self.newest = Some(generation);
            self.close_older(generation.wrapping_sub(depth), cx);
        } else if self.depth(block, cx.params) > 1 {
            self.incoming.ranks.retract_absent();
        }
        if self.generations.is_held(index) {
            self.evict(index, cx);
        }
        self.generations.hold(index);
        self.generations[index].open(generation, cx.io.now);
        index
    }

    /// Closes all generations up to `last`, and sends their pending packets: if packets of newer
    /// generations overtook them, the next node would close the older ones short.
    fn close_older(&mut self, last: u32, cx: &mut Context<'_, '_, impl Frames, impl Egress>) {
        let mut from = 0;
        while let Some(index) = self.generations.next_held(from) {
            from = index + 1;
            let collected = &self.generations[index];
            let is_older = !serial_before(last, collected.generation);
            if !collected.closed && is_older {
                self.close(index, cx);
            }
        }
        let is_older = |index: &usize| !serial_before(last, self.generations[*index].generation);
        if self.deferred.iter().any(is_older) {
            self.flush_deferred(cx);
        }
    }

    /// Sets how many packets a batch gets, by the rank it has now.
    fn plan_by_rank(&mut self, index: usize, params: &FlowParams, combiner: &mut Combiner) {
        let collected = &mut self.generations[index];
        let is_batch = collected.shape().is_some_and(|shape| shape.block.is_some());
        if !is_batch || collected.is_planned || !params.adaptive {
            return;
        }
        collected.is_planned = true;
        let (size, rank) = (collected.size(), collected.rank());
        let packets = self.adaptive.packets(size, rank, combiner.next_u32());
        collected.planned = plan_within(params, size, packets.min(usize::from(u16::MAX)) as u16);
    }

    /// Ends a generation: sends the rest of its plan.
    fn close(&mut self, index: usize, cx: &mut Context<'_, '_, impl Frames, impl Egress>) {
        let params = cx.params;
        let collected = &mut self.generations[index];
        collected.closed = true;
        let Some(shape) = collected.shape() else { return };
        cx.counters.generations += 1;
        cx.counters.generations_complete += u64::from(collected.is_complete());
        self.incoming.ranks.record(shape.epoch, collected.size(), collected.rank());
        self.settle(index, cx);
        let depth = self.depth(shape.block.as_ref(), params);
        let is_mended = self.is_mended(index, cx.io.now);
        let collected = &mut self.generations[index];
        let shortfall = if is_mended {
            collected.lacks() + collected.share
        } else {
            // Output is bounded by packets received, not by announcements.
            collected.planned = plan_within(params, collected.rank(), collected.planned);
            collected.planned.saturating_sub(collected.tally.sent)
        };
        let shortfall = self.bounded(index, params, shortfall);
        let full = f64::from(self.generations[index].planned) / self.inflation(index);
        self.repair_budget.earn(full as u64);
        let collected = &mut self.generations[index];
        self.mender.unit(collected.rank(), cx.io.now);
        if depth > 1 {
            collected.pending = shortfall;
            if shortfall > 0 {
                self.deferred.push(index);
                self.flush_at.get_or_insert(cx.io.now + FLUSH_DELAY_NANOS);
            }
            return;
        }
        cx.counters.sent_recoded += self.send_recoded(index, cx, shortfall, false);
    }

    /// Sends the pending packets of closed batches, interleaved.
    fn flush_deferred(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>) {
        self.flush_at = None;
        while !self.deferred.is_empty() {
            for place in 0..self.deferred.len() {
                let index = self.deferred[place];
                let collected = &mut self.generations[index];
                collected.pending -= 1;
                cx.counters.sent_recoded += self.send_recoded(index, cx, 1, false);
            }
            let generations = &self.generations;
            self.deferred.retain(|index| generations[*index].pending > 0);
        }
    }

    /// Sends `count` fresh combinations of a generation; the last one ends it on this hop unless
    /// more are pending or they are repairs. Returns how many were sent.
    fn send_recoded(
        &mut self,
        index: usize,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        count: u16,
        is_repair: bool,
    ) -> u64 {
        let collected = &self.generations[index];
        let (Some(sources), Some(shape)) = (collected.sources(), collected.shape()) else {
            return 0;
        };
        let flags = Flags(Flags::RECODED)
            .with(Flags::END, !is_repair && collected.pending == 0)
            .with(Flags::MENDED, collected.is_mended)
            .with(Flags::REPAIR, is_repair);
        let mut common = cx.header(sources.packet_type(), flags, shape.epoch);
        common.hop_index = cx.upstream.hop_index().saturating_add(1);
        let header = CodedHeader {
            common,
            size: sources.size as u16,
            full_log2: shape.full_log2,
            planned: if is_repair { 0 } else { cx.hops.part(collected.planned) },
            generation: collected.generation,
        };
        let (first, bytes) = (cx.hops.next_number(), sources.packet_bytes());
        let (sent, failed) =
            cx.hops.send_combinations(cx.io, &sources, header, usize::from(count), collected.class);
        cx.counters.send_failed += failed;
        let collected = &mut self.generations[index];
        collected.bytes_sent += sent * bytes as u64;
        if !is_repair || collected.is_mended {
            collected.tally.add(sent);
        }
        if let Some(first) = first.filter(|_| collected.is_mended) {
            self.mender.left(collected.generation, bytes, first, sent, cx.io.now);
        }
        sent
    }

    /// Forwards a received packet as it came.
    fn forward(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        arrival: &Arrival<'_>,
        header: CodedHeader,
        last: bool,
    ) {
        let mut header = header.with(Flags::END, last);
        header.common.hop_index = header.common.hop_index.saturating_add(1);
        header.write(cx.io.frames.bytes_mut(arrival.payload));
        let number = cx.hops.next_number();
        send_on(cx, arrival);
        let collected = self.held_mut(header.generation);
        collected.into_iter().for_each(|sent| sent.bytes_sent += u64::from(arrival.payload.len));
        if let Some(number) = number.filter(|_| header.is_mended()) {
            let bytes = usize::from(arrival.payload.len);
            self.mender.left(header.generation, bytes, number, 1, cx.io.now);
        }
    }

    /// Forwards an innovative packet of a generation that has closed, because packets were
    /// reordered or the source paused. It is sent as it came, since it is certainly innovative at
    /// the next node. It replaces a pending packet, but not the last one, which ends the
    /// generation.
    fn straggle(
        &mut self,
        index: usize,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        arrival: &Arrival<'_>,
        header: CodedHeader,
    ) -> Fate {
        let is_mended = self.is_mended(index, cx.io.now);
        let collected = &mut self.generations[index];
        if is_mended {
            collected.tally.add(1);
        } else if collected.pending > 1 {
            collected.pending -= 1;
            collected.tally.add(1);
        }
        // A generation closed by a timeout has not sent its end yet.
        let last = header.common.flags.has(Flags::END) && collected.pending == 0;
        let is_batch = collected.shape().is_some_and(|shape| shape.block.is_some());
        let header = CodedHeader { planned: cx.hops.part(collected.planned), ..header };
        self.forward(cx, arrival, header, last);
        if is_mended && !is_batch {
            let share = self.bounded(index, cx.params, self.mender.late_share());
            cx.counters.sent_recoded += self.send_recoded(index, cx, share, false);
        }
        Fate::Forwarded
    }

    /// A repair packet is outside every plan: one in, one out, or the forwarded share if branches
    /// meet. A packet that is innovative here is innovative at the sink; otherwise a fresh
    /// combination has the better chance.
    fn repair(
        &mut self,
        index: usize,
        accepted: Accepted,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        arrival: &Arrival<'_>,
        header: CodedHeader,
    ) -> Fate {
        if !self.goes_on(cx.params.onward_share) {
            return Fate::Consumed;
        }
        if accepted == Accepted::Innovative {
            cx.counters.sent_repair += 1;
            let collected = &mut self.generations[index];
            collected.tally.add(u64::from(collected.is_mended));
            self.forward(cx, arrival, header, false);
            return Fate::Forwarded;
        }
        let count = self.bounded(index, cx.params, 1);
        let sent = self.send_recoded(index, cx, count, true);
        cx.counters.sent_repair += sent;
        cx.counters.sent_recoded += sent;
        Fate::Consumed
    }

    /// Removes a generation; an open one is closed first, and counted as closed early.
    fn evict(&mut self, index: usize, cx: &mut Context<'_, '_, impl Frames, impl Egress>) {
        if !self.generations[index].closed {
            cx.counters.generations_evicted += 1;
            self.close(index, cx);
        }
        if self.deferred.contains(&index) {
            self.flush_deferred(cx);
        }
        self.generations[index].clear(cx.io.frames);
        self.generations.free(index);
    }
}

/// Sends a received packet, whose header is final, to the next hops.
fn send_on(cx: &mut Context<'_, '_, impl Frames, impl Egress>, arrival: &Arrival<'_>) {
    cx.io.frames.retain(arrival.payload.frame);
    cx.counters.sent_forwarded += 1;
    cx.send(arrival.payload, class::outer(arrival.traffic_class));
}

/// The announced plan, within the configured limit: output per input stays bounded whatever a
/// packet claims.
fn plan_within(params: &FlowParams, size: usize, announced: u16) -> u16 {
    let most = (params.redundancy_max * size as f64).max(1.0).min(f64::from(PLANNED_MAX)) as u16;
    announced.clamp(1, most)
}
