//! A source of batches as a role: reports, plans and timers in; see [`Lifecycle`].

use crate::base::time::earlier;
use crate::bats::source::{BatsSource, PROBE_NANOS, PROBES};
use crate::config::params::{FlowParams, Nanos, PeerId};
use crate::config::report::{DropReason, FlowReport};
use crate::env::egress::Egress;
use crate::hop::send::mender::Mender;
use crate::plan::Plan;
use crate::unit::context::Context;
use crate::unit::role::Lifecycle;
use recoded_wire::frames::{Frames, Span};
use recoded_wire::link::LinkReport;

impl Lifecycle for BatsSource {
    fn hear_link(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        _peer: PeerId,
        report: &LinkReport,
        payload: Span,
    ) -> Result<(), DropReason> {
        self.kept.hear(cx, &mut self.mender, report, payload);
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

    /// Not while batches wait for the link, since the packet would wait behind them.
    fn opens_at(&mut self, now: Nanos) -> Result<(), Option<Nanos>> {
        let leaves = if self.is_sending() { self.mender.leaves_at(now) } else { Ok(()) };
        let opens = leaves.and(self.mender.opens_at(now));
        if let Err(Some(at)) = opens {
            // Packets that wait in the tunnel until then do not count as a pause.
            (self.opened, self.touched) = (self.opened.max(at), self.touched.max(at));
        }
        opens
    }

    fn tick(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>) -> Option<Nanos> {
        let params = cx.params;
        if self.flush_due(params).is_some_and(|due| due <= cx.io.now) {
            self.close(cx);
        }
        if let Some((probes, _)) = self.probe.filter(|(_, due)| *due <= cx.io.now) {
            let newest = self.number.wrapping_sub(1);
            let index = self.index(newest);
            let has_heard = self.remote.report().is_some_and(|sink| sink.newest as u16 == newest);
            let block = &mut self.blocks[index];
            if block.live && !has_heard && block.number == newest {
                block.due = block.due.max(1);
            }
            let pause = PROBE_NANOS << (probes + 1);
            let again = !has_heard && probes + 1 < PROBES;
            self.probe = again.then_some((probes + 1, cx.io.now + pause));
        }
        self.planner.refresh(params.generation_size, cx.io);
        self.step(cx);
        // Within a block, a padded path MTU probe would be too far from the packet before it.
        if !self.is_sending() {
            self.mender.tick(&mut cx.hop(self.epoch, 0));
        }
        self.wake(params, cx.io.now)
    }

    fn wake(&self, params: &FlowParams, now: Nanos) -> Option<Nanos> {
        let flush = self.flush_due(params);
        let probe = self.probe.map(|(_, due)| due);
        let leaves_at = self.leaves_at(now).err().flatten().unwrap_or(now);
        let step = self.retry.map_or(leaves_at, |(retry, _)| retry);
        let next = if self.is_sending() { Some(step) } else { self.mender.due() };
        earlier(earlier(flush, probe), earlier(next, self.planner.due()))
    }

    fn held(&self) -> usize {
        self.blocks.iter().filter(|block| block.live).count()
    }

    fn drain(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>) {
        self.close(cx);
        self.retry = None;
        while self.is_sending() && self.retry.is_none() {
            self.form_due(cx, true);
        }
    }

    fn evict_oldest(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>) -> bool {
        if self.kept.release(cx.io.frames) {
            return true;
        }
        let count = self.blocks.len() as u16;
        for age in (1..=count).rev() {
            let index = self.index(self.number.wrapping_sub(age));
            let block = &mut self.blocks[index];
            let is_open = self.open && block.number == self.number;
            if block.live && block.due == 0 && !is_open {
                block.clear(cx.io.frames);
                cx.counters.generations_evicted += 1;
                return true;
            }
        }
        false
    }

    fn release(&mut self, frames: &mut impl Frames) {
        self.number = self.number.wrapping_add(u16::from(self.open));
        self.open = false;
        for block in &mut self.blocks {
            block.clear(frames);
        }
        self.kept.release(frames);
        self.release_group(frames);
    }

    fn fill(&self, report: &mut FlowReport) {
        report.epoch = self.epoch;
        report.planned = report.generation_size;
        report.is_mended = self.planner.is_mended();
        report.hops = self.planner.hops().to_vec();
        self.remote.fill(report);
    }
}
