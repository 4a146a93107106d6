//! Decoding that continues in later calls, and the unit on trial: both finish later than the packet
//! that started them.

use crate::config::params::{FlowParams, Nanos};
use crate::config::report::DropReason;
use crate::env::egress::Egress;
use crate::packet::arrival::Fate;
use crate::packet::collected::PacketView;
use crate::unit::context::Context;
use crate::unit::sink::unit::Unit;
use crate::unit::sink::units::UnitSink;
use recoded_wire::frames::{Frames, Span};

impl<U: Unit> UnitSink<U> {
    /// Continues with the first unit whose decoding is unfinished. Returns when to continue, if one
    /// is left.
    pub(super) fn decode_busy(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
    ) -> Option<Nanos> {
        let index = self.busy()?;
        self.decode(index, cx);
        if self.units[index].progress().decoded {
            self.close(index, cx.io.now);
        }
        self.pump(cx);
        self.busy().map(|_| cx.io.now)
    }

    /// The first unit held whose decoding is unfinished.
    pub(super) fn busy(&self) -> Option<usize> {
        let (next, _) = self.range?;
        let numbers = (0..self.held_span() / U::STEP).map(|n| next.wrapping_add(n * U::STEP));
        numbers.map(|number| self.index(number)).find(|index| self.units[*index].is_busy())
    }

    /// Adds a packet of a unit out of range; see [`crate::unit::sink::trial`].
    pub(super) fn try_unit(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        number: u32,
        told: U::Told,
        payload: Span,
        view: &PacketView,
    ) -> Fate {
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
        self.trial.decode(cx);
        if !self.trial.is_busy() {
            self.judge(cx);
        }
        Fate::Consumed
    }

    /// Continues decoding the unit on trial, and resynchronises to it if it has proven itself.
    /// Returns when to check again.
    pub(super) fn judge(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
    ) -> Option<Nanos> {
        if self.trial.is_busy() {
            self.trial.decode(cx);
        }
        if self.trial.is_busy() {
            return Some(cx.io.now);
        }
        let takes_over_at = self.takes_over_at(cx.params, cx.io.frames)?;
        if takes_over_at > cx.io.now {
            return Some(takes_over_at);
        }
        self.adopt(cx);
        None
    }

    /// When a successful trial may take over: at once if it lies within the table, otherwise when
    /// nothing in range has arrived for a while.
    fn takes_over_at(&self, params: &FlowParams, frames: &impl Frames) -> Option<Nanos> {
        let (number, (_, newest)) = (self.trial.number()?, self.range?);
        let ahead = number.wrapping_sub(newest);
        let is_jump = (1..=self.units.len() as u32 * U::STEP).contains(&ahead);
        let idle = self.admitted_at.saturating_add(params.generation_timeout_nanos);
        let at = if is_jump { 0 } else { idle };
        self.trial.is_proven(frames, params.sealed).then_some(at)
    }

    /// Resynchronises to the unit on trial.
    fn adopt(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>) {
        let (Some(number), Some((next, newest))) = (self.trial.number(), self.range) else {
            return;
        };
        let epoch = self.trial.unit.epoch().unwrap_or(self.epoch);
        let is_finished = self.is_finished(next, number, epoch, cx.io.now);
        if is_finished || number.wrapping_sub(next) < self.held_span() {
            // The units before it have arrived after all.
            self.trial.clear(cx.io.frames);
            return;
        }
        let ahead = number.wrapping_sub(newest);
        if (1..=self.units.len() as u32 * U::STEP).contains(&ahead) {
            self.advance(cx, number);
        } else {
            self.restart(cx, number);
        }
        self.admitted_at = cx.io.now;
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
}
