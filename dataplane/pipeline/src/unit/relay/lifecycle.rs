//! A relay as a role: packets, reports and timers in; see [`Lifecycle`].

use crate::base::time::earlier;
use crate::config::params::{FlowParams, Nanos, PeerId};
use crate::config::report::{DropReason, FlowReport};
use crate::env::egress::Egress;
use crate::hop::receive::link_report::Onward;
use crate::hop::send::mender::Mender;
use crate::packet::arrival::{Arrival, Data, Fate};
use crate::plan::Plan;
use crate::unit::context::Context;
use crate::unit::relay::Relay;
use crate::unit::role::Lifecycle;
use recoded_wire::feedback::{FeedbackHeader, NACKS_MAX, withdraw_nacks};
use recoded_wire::frames::{Frames, Span};
use recoded_wire::link::LinkReport;

impl Lifecycle for Relay {
    fn receive(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        arrival: &Arrival<'_>,
    ) -> Fate {
        match &arrival.data {
            Data::Coded { header, view } => self.collect(cx, arrival, *header, view),
            Data::Stream(_) => Fate::Dropped(DropReason::WrongCode),
        }
    }

    fn hand_up(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        _peer: PeerId,
        payload: Span,
        mut header: FeedbackHeader,
    ) -> Fate {
        if !cx.upstream.reporter.climbs(&mut header, cx.io.frames.bytes(payload)) {
            return Fate::Consumed;
        }
        self.learn_of_link(cx, payload);
        let mut answers = [None; NACKS_MAX];
        let mut answered = answers.iter_mut();
        withdraw_nacks(cx.io.frames.bytes_mut(payload), |nack| {
            // NACKs beyond its budget are left to nodes further upstream.
            let can = self.can_answer(nack) && self.repair_budget.is_left();
            if can && !self.mender.has_room(cx.io.now) {
                // Either the next round is answered, or this hop's own retransmissions arrive
                // first.
                return true;
            }
            let place = if can { answered.next() } else { None };
            place.map(|answer| *answer = Some(nack)).is_some()
        });
        for nack in answers.into_iter().flatten() {
            self.answer(cx, nack, header.common.hop_index);
        }
        let loss = cx.upstream.loss.loss();
        cx.upstream.reporter.relay(cx.io, payload, &header, loss)
    }

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
        self.adaptive.adopt(plan);
    }

    fn mender(&self) -> Option<&Mender> {
        Some(&self.mender)
    }

    fn mender_mut(&mut self) -> Option<&mut Mender> {
        Some(&mut self.mender)
    }

    fn onward(&mut self, now: Nanos, _symbol_bytes: usize, _upstream: usize) -> Onward {
        Onward {
            backlog: self.mender.waits(now),
            beyond: self.mender.link.path_round_trip(),
            ..Onward::default()
        }
    }

    fn tick(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>) -> Option<Nanos> {
        let params = cx.params;
        let mut deadline = None;
        let mut from = 0;
        while let Some(index) = self.generations.next_held(from) {
            from = index + 1;
            let collected = &self.generations[index];
            if collected.closed {
                continue;
            }
            let end = self.ends_at(collected, params);
            if end <= cx.io.now {
                self.close(index, cx);
            } else {
                deadline = earlier(deadline, Some(end));
            }
        }
        if self.flush_at.is_some_and(|due| due <= cx.io.now) {
            self.flush_deferred(cx);
        }
        if cx.upstream.reporter.due().is_some_and(|due| due <= cx.io.now) {
            self.report_loss(cx);
        }
        let hop_index = cx.upstream.hop_index().saturating_add(1);
        self.mender.tick(&mut cx.hop(cx.upstream.epoch(), hop_index));
        earlier(earlier(deadline, self.flush_at), self.mender.due())
    }

    fn wake(&self, params: &FlowParams, now: Nanos) -> Option<Nanos> {
        let closes_at = Some(now + params.generation_timeout_nanos);
        earlier(earlier(closes_at, self.flush_at), self.mender.due())
    }

    fn held(&self) -> usize {
        self.generations.held()
    }

    fn drain(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>) {
        if let Some(newest) = self.newest {
            self.close_older(newest, cx);
        }
    }

    fn evict_oldest(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>) -> bool {
        let oldest = self.newest.and_then(|newest| self.generations.oldest(newest));
        if let Some(index) = oldest {
            self.evict(index, cx);
        }
        oldest.is_some()
    }

    fn release(&mut self, frames: &mut impl Frames) {
        while let Some(index) = self.generations.next_held(0) {
            self.generations[index].clear(frames);
            self.generations.free(index);
        }
        self.deferred.clear();
        self.flush_at = None;
    }

    fn fill(&self, report: &mut FlowReport) {
        self.incoming.fill(report);
    }
}
