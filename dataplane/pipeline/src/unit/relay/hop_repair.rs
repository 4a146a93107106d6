//! A relay's recovery of losses on the link to the next node: how many packets a generation gets
//! there, and replacements for lost ones.

use crate::config::params::{FlowParams, Nanos, Recoding};
use crate::env::egress::Egress;
use crate::unit::context::Context;
use crate::unit::relay::{Relay, plan_within};
use recoded_wire::frames::Frames;

/// Packets of all generations that a relay holds.
pub(crate) fn mended_packets(params: &FlowParams) -> usize {
    params.generations.max(1) * params.generation_size
}

impl Relay {
    /// Whether the next node reports the packets that it lacks of a generation.
    pub(super) fn is_mended(&self, index: usize, now: Nanos) -> bool {
        self.generations[index].is_mended && self.mender.is_on(now)
    }

    /// Sets how many packets a generation gets when it ends.
    pub(super) fn settle(
        &mut self,
        index: usize,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
    ) {
        if !self.is_mended(index, cx.io.now) {
            return self.plan_by_rank(index, cx.params, cx.io.combiner);
        }
        let collected = &mut self.generations[index];
        if !std::mem::replace(&mut collected.is_planned, true) {
            let rank = collected.rank();
            let most = plan_within(cx.params, rank, u16::MAX).saturating_sub(rank as u16);
            let is_batch = collected.shape().is_some_and(|shape| shape.block.is_some());
            collected.share = self.mender.share(rank, is_batch).min(most);
        }
    }

    /// Sends the packets that the next node lacks, as far as pacing allows.
    pub(super) fn mend_all(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>) {
        let mut from = 0;
        while let Some(index) = self.generations.next_held(from) {
            from = index + 1;
            self.mend(index, cx);
        }
    }

    /// Sends combinations to replace the packets of a generation that the next node lacks.
    fn mend(&mut self, index: usize, cx: &mut Context<'_, '_, impl Frames, impl Egress>) {
        let collected = &self.generations[index];
        let lacks = collected.lacks();
        let has_begun = collected.closed || cx.params.recoding == Recoding::Systematic;
        let is_batch = collected.shape().is_some_and(|shape| shape.block.is_some());
        // On a path with a long round trip, the block is decoded or abandoned before the report
        // comes.
        let is_late = is_batch && self.mender.is_far();
        if lacks == 0 || is_late || !has_begun || !self.is_mended(index, cx.io.now) {
            return;
        }
        // The budget is in packets of the received length.
        let inflation = self.inflation(index).round() as u16;
        let wanted = lacks.saturating_mul(inflation);
        let granted = self.mender.spend(wanted, cx.counters, cx.io.now) as u16;
        let count = granted / inflation;
        cx.counters.sent_repair += self.send_recoded(index, cx, count, false);
    }
}
