//! Sink edge of a flow whose relays recode: coded packets in, IP packets out, in order per flow.
//!
//! Elimination runs on the coding vectors as packets arrive; payloads stay where they are. Source
//! symbols are delivered as soon as they are known and it is their turn. A generation or block that
//! ended short requests its missing degrees of freedom from the source, round by round, and is
//! abandoned after the hold timeout.
//!
//! ```text
//!              next      newest
//!   delivered | u | u | u | u |  not heard of       u: Unit, found by number modulo their count
//!               └ cursor: symbols of it delivered
//! ```

mod convergence;

mod deferred_decode;

mod verified_order;

use crate::base::time::earlier;
use crate::config::params::{FlowParams, Nanos};
use crate::config::report::{DropReason, FlowReport};
use crate::edge::framing::Unpacker;
use crate::env::egress::{Egress, Ticket};
use crate::hop::receive::loss::hop_report;
use crate::packet::arrival::{AHEAD_MAX, Arrival, Data, Fate};
use crate::packet::incoming::Incoming;
use crate::unit::context::Context;
use crate::unit::convergence::Branches;
use crate::unit::role::Lifecycle;
use crate::unit::sink::pace::Pace;
use crate::unit::sink::requests::Requests;
use crate::unit::sink::trial::Trial;
use crate::unit::sink::unit::{Progress, RequestTiming, Unit};
use convergence::upstreams;
use recoded_wire::feedback::{FlowReport as SinkReport, Item, Nack};
use recoded_wire::frames::Frames;
use verified_order::Verified;

/// Most requests in one report.
const ASKS_MAX: usize = 32;

/// Sources seldom change parameters, so late packets are fewer than this many epochs away. A
/// restarted source draws another epoch, so that it is followed even if it starts slightly behind
/// its earlier numbers, which happens to one in 64 that counts in blocks.
const EPOCHS: u8 = 4;

/// No packet arrives later than this.
const STRAGGLE_NANOS: Nanos = 2_000_000_000;

/// Place of a packet.
enum UnitPlace {
    /// In a unit that is held.
    Held,
    /// In one that was delivered or abandoned.
    Finished,
    /// In one out of range.
    Elsewhere,
}

/// Sink state of one flow. Units `next..=newest` are held, found by number modulo the count.
pub(crate) struct UnitSink<U> {
    pub(super) units: Vec<U>,
    /// The unit being delivered, and the newest seen; `None` before the first packet. When nothing
    /// is held, `next` follows `newest`.
    pub(super) range: Option<(u32, u32)>,
    /// Epoch of the newest packet of a unit held, and when it arrived.
    epoch: u8,
    admitted_at: Nanos,
    /// Symbols of `next` already delivered.
    pub(super) cursor: usize,
    /// A unit closed short: the next tick must handle it.
    urgent: bool,
    pub(super) requests: Requests,
    branches: Branches,
    /// Whether anything was delivered; until then, its content may be forged.
    pub(super) has_delivered: bool,
    /// A unit out of range.
    trial: Trial<U>,
    pub(super) pace: Pace,
    pub(super) unpacker: Unpacker,
    incoming: Incoming,
}

impl<U: Unit> UnitSink<U> {
    /// A sink that holds as many units as there are in `units`, all unused, and tries one more.
    pub(crate) fn new(units: Vec<U>, trial: U) -> Self {
        Self {
            units,
            trial: Trial::new(trial),
            range: None,
            epoch: 0,
            admitted_at: 0,
            cursor: 0,
            urgent: false,
            requests: Requests::new(),
            branches: Branches::default(),
            has_delivered: false,
            pace: Pace::new(),
            unpacker: Unpacker::new(),
            incoming: Incoming::default(),
        }
    }

    pub(super) fn index(&self, number: u32) -> usize {
        (number / U::STEP) as usize % self.units.len()
    }

    /// Returns where unit `number` belongs, and makes room for one that is in range.
    fn place(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        number: u32,
        epoch: u8,
        verified: Option<Verified>,
    ) -> UnitPlace {
        let Some((next, newest)) = self.range else {
            self.restart(cx, number);
            return UnitPlace::Held;
        };
        let is_held = number.wrapping_sub(next) < self.held_span();
        if is_held && !verified.is_some_and(|verified| self.is_of_next_session(verified)) {
            return UnitPlace::Held;
        }
        if let Some(verified) = verified {
            return self.place_verified(cx, number, verified);
        }
        // Numbers neither a little ahead nor a little behind are far away, on either side: serial
        // comparison is undefined for numbers half the space apart.
        if self.is_finished(next, number, epoch, cx.io.now) {
            return UnitPlace::Finished;
        }
        let ahead = number.wrapping_sub(newest);
        if (1..=AHEAD_MAX * U::STEP).contains(&ahead) {
            self.advance(cx, number);
            return UnitPlace::Held;
        }
        UnitPlace::Elsewhere
    }

    /// Whether a unit of `epoch` that is not held was delivered or abandoned: it lies before
    /// `next`.
    fn is_finished(&self, next: u32, number: u32, epoch: u8, now: Nanos) -> bool {
        let behind = next.wrapping_sub(number);
        let is_of_this_life = self.epoch.wrapping_sub(epoch).cast_signed().unsigned_abs() < EPOCHS
            && now < self.admitted_at + STRAGGLE_NANOS;
        // Units recently in the table are not delivered again, however late a copy comes.
        let is_recent = behind <= self.units.len() as u32 * U::STEP && epoch == self.epoch;
        (1..U::RESTART).contains(&behind) && (is_of_this_life || is_recent)
    }

    /// A first packet, or a source that restarted: all held units are abandoned.
    fn restart(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>, number: u32) {
        self.hurry(cx);
        while self.holds() {
            self.give_up(cx);
        }
        self.begin_delivery();
        self.range = Some((number, number));
        self.open(number, cx.io.now);
    }

    fn open(&mut self, number: u32, now: Nanos) {
        let index = self.index(number);
        let unit = &mut self.units[index];
        *unit.progress_mut() = Progress::opened(now);
        unit.open(number);
    }

    /// Opens all units up to `number`, which closes earlier ones. The oldest are abandoned when the
    /// table is too small.
    fn advance(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>, number: u32) {
        while let Some((next, newest)) = self.range.filter(|(_, newest)| *newest != number) {
            if self.held_span() == self.units.len() as u32 * U::STEP {
                if self.hurry(cx) {
                    continue;
                }
                cx.counters.generations_evicted += 1;
                self.give_up(cx);
                continue;
            }
            if self.holds() && upstreams(cx.params) == 1 {
                self.close(self.index(newest), cx.io.now);
            }
            let opened = newest.wrapping_add(U::STEP);
            self.range = Some((next, opened));
            self.open(opened, cx.io.now);
        }
        self.pump(cx);
    }

    /// Notes that no more packets are planned for a unit.
    fn close(&mut self, index: usize, now: Nanos) {
        let unit = &mut self.units[index];
        if unit.progress().closed.is_some() {
            return;
        }
        unit.progress_mut().closed = Some(now);
        let is_complete = unit.is_complete();
        if is_complete || !self.requests.is_mended() {
            self.record_ranks(index);
        }
        self.urgent |= !is_complete;
    }

    /// Counts the ranks of a unit, once: packets that hops still recover are missing at its end.
    fn record_ranks(&mut self, index: usize) {
        let unit = &mut self.units[index];
        if !std::mem::replace(&mut unit.progress_mut().is_recorded, true) {
            unit.record_ranks(&mut self.incoming);
        }
    }

    /// Decodes a unit as far as possible.
    fn decode(&mut self, index: usize, cx: &mut Context<'_, '_, impl Frames, impl Egress>) {
        let unit = &mut self.units[index];
        if !unit.progress().decoded && unit.decode(cx.io, cx.shard) {
            unit.progress_mut().decode(cx.counters, cx.io.now);
        }
    }

    /// Distance from the first unit held to the end of the last.
    pub(super) fn held_span(&self) -> u32 {
        self.range.map_or(0, |(next, newest)| newest.wrapping_sub(next).wrapping_add(U::STEP))
    }

    /// Whether any unit is held.
    pub(super) fn holds(&self) -> bool {
        self.held_span() > 0
    }

    /// Abandons the next unit in order.
    pub(super) fn give_up(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>) {
        if let Some((next, _)) = self.range {
            self.close(self.index(next), cx.io.now);
        }
        cx.counters.generations += 1;
        cx.counters.generations_failed += 1;
        self.finish(cx.io.frames);
    }

    /// Releases the next unit in order and moves on.
    pub(super) fn finish(&mut self, frames: &mut impl Frames) {
        if let Some((next, newest)) = self.range {
            let index = self.index(next);
            self.record_ranks(index);
            self.clear(index, frames);
            self.range = Some((next.wrapping_add(U::STEP), newest));
        }
        self.begin_delivery();
    }

    fn clear(&mut self, index: usize, frames: &mut impl Frames) {
        let unit = &mut self.units[index];
        unit.progress_mut().live = false;
        unit.clear(frames);
    }

    fn begin_delivery(&mut self) {
        self.cursor = 0;
        self.unpacker.reset();
    }

    /// When the next unit in order is abandoned. Later units wait for their turn, however long ago
    /// they closed. A timeout does not end a unit by itself: a node that was stalled first requests
    /// what it lacks.
    fn hold_ends_at(&self, params: &FlowParams) -> Option<Nanos> {
        let (next, _) = self.range.filter(|_| self.holds())?;
        let Progress { closed, decoded, asked_at, .. } = *self.units[self.index(next)].progress();
        let hold = params.hold_timeout_nanos + self.requests.hold();
        let answered = self.requests.answered_by(asked_at);
        closed.filter(|_| !decoded).map(|closed| answered.max(closed + hold))
    }

    /// Abandons a unit that has blocked delivery for longer than the hold timeout.
    fn expire(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>) {
        if self.hold_ends_at(cx.params).is_some_and(|end| end <= cx.io.now) {
            self.hurry(cx);
        }
        while self.hold_ends_at(cx.params).is_some_and(|end| end <= cx.io.now) {
            self.give_up(cx);
        }
    }

    fn report(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>, asks: &[Nack]) {
        let Some((next, newest)) = self.range else { return };
        let hop = hop_report(&cx.upstream.loss);
        let state = Item::Flow(SinkReport {
            newest: newest / U::STEP,
            complete: cx.counters.generations_complete as u32,
            failed: cx.counters.generations_failed as u32,
        });
        let ranks = &self.incoming.ranks;
        let ranks = ranks.epoch().map(|epoch| (epoch, ranks.counts()));
        let (epoch, loss) = (cx.upstream.epoch(), cx.upstream.loss.loss());
        let seals = cx.params.has_edge_keys();
        cx.upstream.reporter.send_to_source(cx.io, epoch, loss, seals, |writer| {
            // The most urgent first: the rest is left out if it does not fit.
            asks.iter().for_each(|ask| {
                writer.push(Item::Nack(*ask));
            });
            if let Some(hop) = hop {
                writer.push(hop);
            }
            writer.push(state);
            // The source releases acknowledged blocks.
            let block_ack = U::block_ack(next.wrapping_sub(U::STEP));
            if let Some(block_ack) = block_ack.filter(|_| self.has_delivered) {
                writer.push(block_ack);
            }
            if let Some((epoch, counts)) = ranks {
                writer.push_ranks(epoch, counts.iter().map(|count| *count as u32));
            }
        });
    }
}

impl<U: Unit> Lifecycle for UnitSink<U> {
    fn receive(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        arrival: &Arrival<'_>,
    ) -> Fate {
        let Arrival { payload, data: Data::Coded { header, view }, key, .. } = arrival else {
            return Fate::Dropped(DropReason::WrongCode);
        };
        let (payload, params) = (*payload, cx.params);
        let (number, told) = match U::told(params, header, view) {
            Ok(told) => told,
            Err(reason) => return Fate::Dropped(reason),
        };
        self.incoming.arrived(header, view);
        let verified = key.map(|key| Verified { key, serial: header.generation });
        match self.place(cx, number, header.common.epoch, verified) {
            UnitPlace::Held => {}
            UnitPlace::Finished => {
                cx.counters.redundant += 1;
                return Fate::Consumed;
            }
            UnitPlace::Elsewhere => return self.try_unit(cx, number, told, payload, view),
        }
        if let Some(Verified { key, serial }) = verified {
            self.incoming.freshness.note(key, serial);
        }
        (self.epoch, self.admitted_at) = (header.common.epoch, cx.io.now);
        self.requests.arrived(header.is_mended());
        self.pace.arrived();
        let index = self.index(number);
        let unit = &mut self.units[index];
        if unit.is_answer(header, view) {
            let trip = unit.progress().asked_for(cx.io.now);
            self.requests.answered(trip, params.hold_timeout_nanos);
        }
        unit.progress_mut().touched = cx.io.now;
        match unit.accept(cx.io, told, payload, view) {
            Ok(true) => {
                cx.counters.innovative += 1;
                let is_planned = unit.is_planned(header, view);
                if let Some(closed) = unit.progress().closed.filter(|_| is_planned) {
                    let late = cx.io.now.saturating_sub(closed).min(params.hold_timeout_nanos);
                    self.requests.late(late, cx.io.now);
                }
            }
            Ok(false) => {
                cx.counters.redundant += 1;
                if unit.lacks(view) {
                    cx.upstream.note_useless();
                }
            }
            Err(reason) => return Fate::Dropped(reason),
        }
        unit.progress_mut().first.get_or_insert(cx.io.now);
        self.decode(index, cx);
        self.branches.hear(cx.upstream.place, cx.io.now);
        if !header.is_repair() {
            self.go_on(number, cx);
        }
        if self.ends(index, header, cx.upstream.place, upstreams(params)) {
            self.close(index, cx.io.now);
        }
        self.pump(cx);
        if self.busy().is_some_and(|busy| busy != index) {
            // With continuous arrivals, timers alone would be too slow.
            self.decode_busy(cx);
        }
        Fate::Consumed
    }

    fn solved<'a>(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        ticket: Ticket,
        rows: impl Iterator<Item = &'a [u8]>,
    ) {
        let index = self.index(ticket.unit);
        let unit = &mut self.units[index];
        if unit.progress().decoded || !unit.progress().live {
            return;
        }
        if unit.solved(cx.io, ticket, rows) {
            cx.counters.generations_offloaded += 1;
            unit.progress_mut().decode(cx.counters, cx.io.now);
        } else {
            self.decode(index, cx);
        }
        self.pump(cx);
    }

    fn tick(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>) -> Option<Nanos> {
        let params = cx.params;
        let mut deadline = earlier(self.judge(cx), self.decode_busy(cx));
        let mut asks = [Nack { unit: 0, missing: 0, round: 0 }; ASKS_MAX];
        let mut count = 0;
        let (next, _) = self.range?;
        let (timing, has_budget) = (self.requests.timing(cx.io.now), self.requests.has_budget());
        // The oldest unit does not wait for hops if later units are about to evict it.
        let is_crowded = (self.held_span() / U::STEP) as usize + 1 >= self.units.len();
        for number in (0..self.held_span() / U::STEP).map(|n| next.wrapping_add(n * U::STEP)) {
            let index = self.index(number);
            let progress = self.units[index].progress();
            let end = self.ends_at(progress, params);
            if progress.closed.is_none() && end > cx.io.now {
                deadline = earlier(deadline, Some(end));
                continue;
            }
            self.close(index, cx.io.now);
            if !self.units[index].is_busy() {
                // Frames may have run out the last time.
                self.decode(index, cx);
            }
            let patience = if is_crowded && number == next { 0 } else { timing.patience };
            let timing = RequestTiming { patience, ..timing };
            let unit = &mut self.units[index];
            let may_ask = params.repair && !unit.is_complete() && !unit.is_busy();
            let has_place = has_budget && count < asks.len();
            if may_ask && has_place && unit.progress().may_ask(cx.io.now, timing) {
                asks[count] = ask(unit, number, cx.io.now);
                count += 1;
            }
            let asks_at = unit.progress().asks_at(timing).filter(|_| may_ask);
            let least = if has_budget { 0 } else { cx.io.now + timing.interval };
            deadline = earlier(deadline, asks_at.map(|at| at.max(least)));
        }
        self.urgent = false;
        cx.counters.repairs += asks[..count].iter().filter(|ask| ask.missing > 0).count() as u64;
        self.expire(cx);
        self.pump(cx);
        if count > 0 || cx.upstream.reporter.due().is_some_and(|due| due <= cx.io.now) {
            self.report(cx, &asks[..count]);
        }
        if count > 0 {
            self.requests.sent();
        }
        earlier(earlier(deadline, self.pace.due()), self.hold_ends_at(params))
    }

    fn wake(&self, params: &FlowParams, now: Nanos) -> Option<Nanos> {
        if self.urgent || self.trial.is_busy() || self.busy().is_some() {
            return Some(now);
        }
        let closes_at = self.holds().then_some(now + params.generation_timeout_nanos);
        earlier(earlier(closes_at, self.pace.due()), self.hold_ends_at(params))
    }

    fn held(&self) -> usize {
        (self.held_span() / U::STEP) as usize
    }

    fn evict_oldest(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>) -> bool {
        let held = self.holds();
        if self.trial.number().is_some() {
            self.trial.clear(cx.io.frames);
            return true;
        }
        if held && !self.hurry(cx) {
            cx.counters.generations_evicted += 1;
            self.give_up(cx);
            self.pump(cx);
        }
        held
    }

    fn release(&mut self, frames: &mut impl Frames) {
        for index in 0..self.units.len() {
            self.clear(index, frames);
        }
        self.trial.clear(frames);
        self.range = None;
        self.begin_delivery();
    }

    fn fill(&self, report: &mut FlowReport) {
        self.incoming.fill(report);
    }
}

/// Requests what unit `number` lacks.
fn ask<U: Unit>(unit: &mut U, number: u32, now: Nanos) -> Nack {
    let (round, begins) = unit.progress_mut().ask(now);
    if begins {
        unit.begin_round();
    }
    Nack { unit: number / U::STEP, missing: unit.missing(), round }
}
