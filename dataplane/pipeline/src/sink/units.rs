//! Sink edge of a flow whose relays recode: coded packets in, IP packets out, in order per flow.
//!
//! Elimination runs on the coding vectors as packets arrive; payloads stay where they are. Source
//! symbols are delivered as soon as they are known and it is their turn. A unit, generation or
//! block, that ended short asks the source for its missing degrees of freedom, round by round, and
//! is given up after the hold timeout.
//!
//! ```text
//!              next      newest
//!   delivered | u | u | u | u |  not heard of       u: Unit, found by number modulo their count
//!               └ cursor: symbols of it delivered
//! ```

use crate::collected::PacketView;
use crate::edge::framing::Unpacker;
use crate::edge::outlet::Outlet;
use crate::egress::{Egress, Ticket};
use crate::incoming::Incoming;
use crate::io::{AHEAD_MAX, Arrival, Context, Data, Fate, Io, earlier};
use crate::params::{FlowParams, Nanos, Role, TunnelId};
use crate::peer::loss::hop_report;
use crate::report::{DropReason, FlowReport};
use crate::role::Lifecycle;
use crate::sink::SinkCode;
use crate::sink::requests::Requests;
use crate::sink::trial::Trial;
use crate::sink::unit::{Progress, Unit};
use recoded_wire::feedback::{FlowReport as SinkReport, Item, Nack};
use recoded_wire::frames::{Frames, Span};

/// Most requests in one report.
const ASKS_MAX: usize = 32;

/// Parameters of a source change seldom: what comes late is less than so many epochs away. A source
/// that restarts draws another, so that it is followed also where it numbers a little behind its
/// former life, as one in 64 does that counts in blocks.
const EPOCHS: u8 = 4;

/// Nor does anything come as late as this.
const STRAGGLE_NANOS: Nanos = 2_000_000_000;

/// Where a packet belongs.
enum Place {
    /// To a unit that is held.
    Held,
    /// To one that was delivered or given up.
    Finished,
    /// To one out of range: a jump within the table, or farther.
    Elsewhere { is_jump: bool },
}

/// Sink state of one flow. Units `next..=newest` are held, found by number modulo the count.
pub(crate) struct UnitSink<U> {
    units: Vec<U>,
    /// The unit being delivered, and the newest seen; `None` before the first packet. `next` is the
    /// one after `newest` when nothing is held.
    range: Option<(u32, u32)>,
    /// Epoch of the newest packet of a unit held, and when it came.
    epoch: u8,
    admitted_at: Nanos,
    /// Symbols of `next` already delivered.
    cursor: usize,
    /// A unit closed short: the next tick must see it.
    urgent: bool,
    requests: Requests,
    /// A unit out of range.
    trial: Trial<U>,
    /// When the last packet in range arrived.
    in_range_at: Nanos,
    unpacker: Unpacker,
    incoming: Incoming,
}

impl<U: Unit> UnitSink<U> {
    /// A sink that holds as many units as there are in `units`, all unused, and tries one more.
    pub(crate) fn new((units, trial): (Vec<U>, U)) -> Self {
        Self {
            units,
            trial: Trial::new(trial),
            in_range_at: 0,
            range: None,
            epoch: 0,
            admitted_at: 0,
            cursor: 0,
            urgent: false,
            requests: Requests::new(),
            unpacker: Unpacker::new(),
            incoming: Incoming::default(),
        }
    }

    fn index(&self, number: u32) -> usize {
        (number / U::STEP) as usize % self.units.len()
    }

    /// Says where unit `number` belongs, and makes room for one that is in range.
    fn place(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        number: u32,
        epoch: u8,
    ) -> Place {
        let Some((next, newest)) = self.range else {
            self.restart(cx, number);
            self.in_range_at = cx.io.now;
            return Place::Held;
        };
        if number.wrapping_sub(next) < self.held_span() {
            self.in_range_at = cx.io.now;
            return Place::Held;
        }
        // What is neither a little ahead nor a little behind is far away, on whichever side: serial
        // comparison has no answer for numbers half the space apart.
        if self.is_finished(next, (number, epoch), cx.io.now) {
            return Place::Finished;
        }
        let ahead = number.wrapping_sub(newest);
        if (1..=AHEAD_MAX * U::STEP).contains(&ahead) {
            self.in_range_at = cx.io.now;
            self.advance(cx, number);
            return Place::Held;
        }
        let is_jump = (1..=self.units.len() as u32 * U::STEP).contains(&ahead);
        Place::Elsewhere { is_jump }
    }

    /// Whether a unit of `epoch` that is not held was delivered or given up: it lies before `next`.
    fn is_finished(&self, next: u32, (number, epoch): (u32, u8), now: Nanos) -> bool {
        let behind = next.wrapping_sub(number);
        let is_of_this_life = self.epoch.wrapping_sub(epoch).cast_signed().unsigned_abs() < EPOCHS
            && now < self.admitted_at + STRAGGLE_NANOS;
        // What the table held lately is not delivered again, however late a copy comes.
        let is_recent = behind <= self.units.len() as u32 * U::STEP && epoch == self.epoch;
        (1..U::RESTART).contains(&behind) && (is_of_this_life || is_recent)
    }

    /// Takes in a packet of a unit out of range; see [`trial`].
    fn try_unit(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        (number, told): (u32, U::Told),
        (payload, view): (Span, &PacketView),
        is_jump: bool,
    ) -> Fate {
        let params = cx.params;
        if !self.trial.begin(number, cx.io.frames, cx.io.now) {
            return Fate::Dropped(DropReason::Stray);
        }
        let unit = &mut self.trial.unit;
        unit.progress_mut().touched = cx.io.now;
        match unit.accept(cx.io, told, payload, view) {
            Ok(true) => cx.counters.innovative += 1,
            Ok(false) => cx.counters.redundant += 1,
            Err(reason) => return Fate::Dropped(reason),
        }
        unit.progress_mut().first.get_or_insert(cx.io.now);
        if !unit.progress().decoded && unit.decode(cx.io, cx.shard) {
            unit.progress_mut().decoded = true;
        }
        let is_proven = self.trial.is_proven(cx.io.frames, params.sealed);
        if is_proven && (is_jump || self.is_idle(params, cx.io.now)) {
            self.adopt(cx);
        }
        Fate::Consumed
    }

    /// Whether nothing in range has come for a while.
    fn is_idle(&self, params: &FlowParams, now: Nanos) -> bool {
        now >= self.in_range_at.saturating_add(params.generation_timeout_nanos)
    }

    /// When a trial that has succeeded may take over, if it waits for that.
    fn takes_over_at(&self, params: &FlowParams, frames: &impl Frames) -> Option<Nanos> {
        let at = self.in_range_at.saturating_add(params.generation_timeout_nanos);
        self.trial.is_proven(frames, params.sealed).then_some(at)
    }

    /// Resynchronises to the unit on trial.
    fn adopt(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>) {
        let (Some(number), Some((next, newest))) = (self.trial.number(), self.range) else {
            return;
        };
        let epoch = self.trial.unit.epoch().unwrap_or(self.epoch);
        let is_finished = self.is_finished(next, (number, epoch), cx.io.now);
        if is_finished || number.wrapping_sub(next) < self.held_span() {
            // The units before it have come after all.
            self.trial.clear(cx.io.frames);
            return;
        }
        let ahead = number.wrapping_sub(newest);
        if (1..=self.units.len() as u32 * U::STEP).contains(&ahead) {
            self.advance(cx, number);
        } else {
            self.restart(cx, number);
        }
        (self.in_range_at, self.admitted_at) = (cx.io.now, cx.io.now);
        let index = self.index(number);
        std::mem::swap(&mut self.units[index], &mut self.trial.unit);
        self.trial.clear(cx.io.frames);
        let unit = &mut self.units[index];
        self.epoch = unit.epoch().unwrap_or(self.epoch);
        let first = unit.progress().first.unwrap_or(cx.io.now);
        cx.counters.decoded_after(cx.io.now.saturating_sub(first));
        self.close(index, cx.io.now);
        self.pump(cx);
    }

    /// A first packet, or a source that restarted: whatever was held is given up.
    fn restart(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>, number: u32) {
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

    /// Opens all units up to `number`, which closes those before it. The oldest are given up when
    /// the table is too small.
    fn advance(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>, number: u32) {
        while let Some((next, newest)) = self.range.filter(|(_, newest)| *newest != number) {
            if self.held_span() == self.units.len() as u32 * U::STEP {
                cx.counters.generations_evicted += 1;
                self.give_up(cx);
                continue;
            }
            if self.holds() {
                self.close(self.index(newest), cx.io.now);
            }
            let opened = newest.wrapping_add(U::STEP);
            self.range = Some((next, opened));
            self.open(opened, cx.io.now);
        }
        self.pump(cx);
    }

    /// Notes that nothing more is planned for a unit.
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

    /// Counts the ranks of a unit, once: what hops will make up for is not there at its end.
    fn record_ranks(&mut self, index: usize) {
        let unit = &mut self.units[index];
        if !std::mem::replace(&mut unit.progress_mut().is_recorded, true) {
            unit.record_ranks(&mut self.incoming);
        }
    }

    /// Decodes a unit as far as it goes.
    fn decode(&mut self, index: usize, cx: &mut Context<'_, '_, impl Frames, impl Egress>) {
        let unit = &mut self.units[index];
        if !unit.progress().decoded && unit.decode(cx.io, cx.shard) {
            unit.progress_mut().decode(cx.counters, cx.io.now);
        }
    }

    /// From the first unit held to the end of the last, in numbers.
    fn held_span(&self) -> u32 {
        self.range.map_or(0, |(next, newest)| newest.wrapping_sub(next).wrapping_add(U::STEP))
    }

    /// Whether any unit is held.
    fn holds(&self) -> bool {
        self.held_span() > 0
    }

    /// Delivers what is next in order, as far as it is known.
    fn pump(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>) {
        let params = cx.params;
        let Role::Sink { tunnel, .. } = params.role else { return };
        while let Some((next, _)) = self.range.filter(|_| self.holds()) {
            let index = self.index(next);
            self.deliver(index, tunnel, cx);
            let unit = &self.units[index];
            let Progress { decoded, closed, .. } = *unit.progress();
            if decoded && self.cursor == unit.size() {
                cx.counters.source_symbols += unit.size() as u64;
                cx.counters.generations += 1;
                cx.counters.generations_complete += 1;
                self.finish(cx.io.frames);
            } else if closed.is_some()
                && !(params.repair || self.requests.is_mended())
                && !unit.is_complete()
            {
                self.give_up(cx);
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
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
    ) {
        let unit = &self.units[index];
        for symbol in (self.cursor..unit.size()).map_while(|symbol| unit.symbol(symbol)) {
            self.cursor += 1;
            let Io { frames, egress, combiner, .. } = &mut *cx.io;
            let (shard, sealed) = (cx.shard, cx.params.sealed);
            let mut outlet = Outlet { egress: &mut **egress, combiner, tunnel, shard, sealed };
            self.unpacker.feed(frames.bytes(symbol), |packet| {
                outlet.deliver(packet, cx.counters, cx.marks);
            });
        }
    }

    /// Gives the unit next in order up.
    fn give_up(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>) {
        if let Some((next, _)) = self.range {
            self.close(self.index(next), cx.io.now);
        }
        cx.counters.generations += 1;
        cx.counters.generations_failed += 1;
        self.finish(cx.io.frames);
    }

    /// Lets the unit next in order go and moves on.
    fn finish(&mut self, frames: &mut impl Frames) {
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

    /// When the unit next in order is given up. Those behind it wait for their turn, however long
    /// ago they closed.
    fn hold_ends_at(&self, params: &FlowParams) -> Option<Nanos> {
        let (next, _) = self.range.filter(|_| self.holds())?;
        let Progress { closed, decoded, .. } = *self.units[self.index(next)].progress();
        let hold = params.hold_timeout_nanos + self.requests.hold();
        closed.filter(|_| !decoded).map(|closed| closed + hold)
    }

    /// Gives up what has blocked delivery for longer than the hold timeout.
    fn expire(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>) {
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
        let about = (cx.upstream.epoch(), cx.upstream.loss.loss());
        cx.upstream.reporter.send(cx.io, about, |writer| {
            // The most urgent first: what does not fit is left out.
            asks.iter().for_each(|ask| {
                writer.push(Item::Nack(*ask));
            });
            if let Some(hop) = hop {
                writer.push(hop);
            }
            writer.push(state);
            if let Some(block_ack) = U::block_ack(next.wrapping_sub(U::STEP)) {
                writer.push(block_ack);
            }
            if let Some((epoch, counts)) = ranks {
                writer.push_ranks(epoch, counts.iter().map(|count| *count as u32));
            }
        });
    }
}

impl<U: Unit> SinkCode for UnitSink<U> {
    fn receive(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        arrival: &Arrival<'_>,
    ) -> Fate {
        let Arrival { payload, data: Data::Coded { header, view }, .. } = arrival else {
            return Fate::Dropped(DropReason::WrongCode);
        };
        let (payload, params) = (*payload, cx.params);
        let (number, told) = match U::told(params, header, view) {
            Ok(told) => told,
            Err(reason) => return Fate::Dropped(reason),
        };
        self.incoming.arrived(header, view);
        match self.place(cx, number, header.common.epoch) {
            Place::Held => {}
            Place::Finished => {
                cx.counters.redundant += 1;
                return Fate::Consumed;
            }
            Place::Elsewhere { is_jump } => {
                let arrival = (payload, view);
                return self.try_unit(cx, (number, told), arrival, is_jump);
            }
        }
        (self.epoch, self.admitted_at) = (header.common.epoch, cx.io.now);
        self.requests.arrived(header.is_mended());
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
        let unit = &self.units[index];
        if unit.progress().decoded || unit.ends_with(header) {
            self.close(index, cx.io.now);
        }
        self.pump(cx);
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
}

impl<U: Unit> Lifecycle for UnitSink<U> {
    fn tick(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>) -> Option<Nanos> {
        let params = cx.params;
        let takes_over_at = self.takes_over_at(params, cx.io.frames);
        if takes_over_at.is_some_and(|at| at <= cx.io.now) {
            self.adopt(cx);
        }
        let mut deadline = takes_over_at.filter(|at| *at > cx.io.now);
        let mut asks = [Nack { unit: 0, missing: 0, round: 0 }; ASKS_MAX];
        let mut count = 0;
        let (next, _) = self.range?;
        let (timing, has_budget) = (self.requests.timing(cx.io.now), self.requests.has_budget());
        // The oldest unit does not wait for hops where those behind it are about to push it out.
        let is_crowded = (self.held_span() / U::STEP) as usize + 1 >= self.units.len();
        for number in (0..self.held_span() / U::STEP).map(|n| next.wrapping_add(n * U::STEP)) {
            let index = self.index(number);
            let progress = self.units[index].progress();
            let end = progress.touched + params.generation_timeout_nanos;
            if progress.closed.is_none() && end > cx.io.now {
                deadline = earlier(deadline, Some(end));
                continue;
            }
            self.close(index, cx.io.now);
            // Frames may have run out the last time.
            self.decode(index, cx);
            let timing = if is_crowded && number == next { (timing.0, 0) } else { timing };
            let unit = &mut self.units[index];
            let may_ask = params.repair && !unit.is_complete();
            let has_place = has_budget && count < asks.len();
            if may_ask && has_place && unit.progress().may_ask(cx.io.now, timing) {
                asks[count] = ask(unit, number, cx.io.now);
                count += 1;
            }
            let asks_at = unit.progress().asks_at(timing).filter(|_| may_ask);
            let least = if has_budget { 0 } else { cx.io.now + timing.0 };
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
        earlier(deadline, self.hold_ends_at(params))
    }

    fn wake(&self, params: &FlowParams, now: Nanos) -> Option<Nanos> {
        if self.urgent {
            return Some(now);
        }
        let closes_at = self.holds().then_some(now + params.generation_timeout_nanos);
        earlier(closes_at, self.hold_ends_at(params))
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
        if held {
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

/// Says what unit `number` lacks.
fn ask<U: Unit>(unit: &mut U, number: u32, now: Nanos) -> Nack {
    let (round, begins) = unit.progress_mut().ask(now);
    if begins {
        unit.begin_round();
    }
    Nack { unit: number / U::STEP, missing: unit.missing(), round }
}
