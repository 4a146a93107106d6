//! Packets that a source of batches sends beyond its plan: replacements for losses of the first
//! hop, and further batches that the sink requests.

use crate::bats::plan::{FEW, most};
use crate::bats::source::BatsSource;
use crate::config::params::FlowParams;
use crate::config::report::FlowCounters;
use crate::hop::send::repair::ROUNDS;
use crate::unit::context::Context;
use recoded_code::bats::Params;
use recoded_wire::feedback::Nack;
use recoded_wire::frames::Frames;

impl BatsSource {
    /// Whether the first hop recovers its losses, soon enough for blocks to wait for it.
    pub(super) fn is_mended<F, E>(&self, cx: &Context<'_, '_, F, E>) -> bool {
        cx.asks_to_mend() && self.mender.is_on(cx.io.now) && !self.mender.is_far()
    }

    /// Informs the planner about reports of the first hop and about answers to the sink: whether it
    /// may wait for them.
    pub(super) fn tell_planner<F, E>(&mut self, cx: &Context<'_, '_, F, E>) {
        let hold = cx.params.hold_timeout_nanos;
        let is_late = self.mender.link.path_round_trip() > hold;
        self.planner.set_mended(self.is_mended(cx), is_late, cx.io.now);
    }

    /// Answers a NACK with further batches of the block, once per round.
    pub(super) fn answer(&mut self, params: &FlowParams, counters: &mut FlowCounters, nack: Nack) {
        let index = self.index(nack.unit as u16);
        self.planner.note_wanted(nack.unit as u16, self.number);
        let block = &mut self.blocks[index];
        if !block.live
            || u32::from(block.number) != nack.unit
            || block.batches == 0
            || block.due > 0
            || !(block.repaired..ROUNDS).contains(&nack.round)
            || nack.missing == 0
        {
            return;
        }
        let Params { source_symbols, batch_size, .. } = block.params;
        let missing = usize::from(nack.missing).min(source_symbols);
        let (sent, got) = (usize::from(block.batches), source_symbols - missing);
        let wanted = || {
            let wanted = self.planner.further(params, batch_size, sent, got, missing);
            let wanted = wanted.min(most(params, batch_size, source_symbols).max(FEW));
            wanted.min(usize::from(u16::MAX - block.batches)) * batch_size
        };
        let (wanted, packets) = self.repair_budget.grant(missing, wanted);
        let batches = packets / batch_size;
        counters.repairs_refused += (wanted - batches * batch_size) as u64;
        if batches == 0 {
            // A later copy of the NACK may find budget.
            return;
        }
        block.repaired = nack.round.saturating_add(1);
        block.due = batches as u16;
        counters.repairs += 1;
        counters.sent_repair += (batches * batch_size) as u64;
    }

    /// Releases block `last` and earlier blocks: the sink is done with them.
    pub(super) fn forget(&mut self, last: u16, frames: &mut impl Frames) {
        // Closed blocks are at most this far behind the next one; any other number is invalid.
        let behind = self.number.wrapping_sub(last);
        if behind == 0 || usize::from(behind) > self.blocks.len() {
            return;
        }
        self.kept.forget(last, frames);
        for block in &mut self.blocks {
            let is_closed = !(self.open && block.number == self.number);
            if block.live && is_closed && self.number.wrapping_sub(block.number) >= behind {
                block.clear(frames);
            }
        }
    }
}
