//! A relay's part in feedback: NACKs that it answers itself, losses of the link to the next node,
//! and its own reports on the link to it.

use crate::config::params::Recoding;
use crate::config::report::HopLoss;
use crate::env::egress::Egress;
use crate::hop::receive::loss::hop_report;
use crate::hop::send::repair::{ROUNDS, repair_packets};
use crate::packet::collected::Shape;
use crate::unit::context::Context;
use crate::unit::relay::adaptive::Batches;
use crate::unit::relay::{Relay, plan_within};
use recoded_code::theory;
use recoded_wire::feedback::{Item, Nack, SizeReport, items};
use recoded_wire::frames::{Frames, Span};

impl Relay {
    /// Learns the loss of the link to the next node from a report.
    pub(super) fn learn_of_link(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        payload: Span,
    ) {
        let params = cx.params;
        let outgoing = cx.upstream.hop_index().saturating_add(1);
        let link = items(cx.io.frames.bytes(payload)).find_map(|item| match item {
            Item::Hop(report) if report.hop == outgoing => Some(report),
            _ => None,
        });
        let Some(link) = link else { return };
        self.mender.hear_loss(link);
        let Some((size, field, block)) = self.incoming.batch().filter(|_| params.adaptive) else {
            return;
        };
        let link = HopLoss {
            hop: link.hop,
            loss: f64::from(link.loss),
            burst_mean: f64::from(link.burst_mean),
        };
        let batches = Batches {
            size,
            field,
            interleave: self.depth(Some(&block), params) as usize,
            recoding: match params.recoding {
                Recoding::Systematic => theory::Recoding::Systematic,
                Recoding::Random => theory::Recoding::Random,
            },
            ranks: self.incoming.ranks.counts(),
        };
        self.adaptive.hear(cx.io, link, &batches);
    }

    /// Whether a generation is complete here, so that the source need not answer. NACKs of a BATS
    /// flow concern blocks, which no relay holds.
    pub(super) fn can_answer(&self, nack: Nack) -> bool {
        let index = self.generations.index(nack.unit);
        let collected = &self.generations[index];
        let is_generation = collected.shape().is_some_and(|shape| shape.block.is_none());
        let is_held =
            is_generation && self.generations.is_held(index) && collected.generation == nack.unit;
        is_held && collected.is_complete()
    }

    /// Answers a NACK from `hops` links further downstream, once per round. Most of the missing
    /// packets were lost on the last few links, so this saves the round trip to the source.
    pub(super) fn answer(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        nack: Nack,
        hops: u8,
    ) {
        let params = cx.params;
        let index = self.generations.index(nack.unit);
        let collected = &self.generations[index];
        let Some(Shape { field, .. }) = collected.shape() else { return };
        //= docs/protocol §2.8(c)
        if !(collected.repaired..ROUNDS).contains(&nack.round) || nack.missing == 0 {
            return;
        }
        let missing = usize::from(nack.missing).min(collected.size());
        let most = usize::from(plan_within(params, collected.size(), u16::MAX));
        let through = (1.0 - cx.upstream.loss.loss()).powi(i32::from(hops));
        let wanted = || repair_packets(through, field, missing, most.max(missing));
        let (wanted, count) = self.repair_budget.grant(missing, wanted);
        cx.counters.repairs_refused += (wanted - count) as u64;
        if count == 0 {
            // A later copy of the NACK may find budget.
            return;
        }
        self.generations[index].repaired = nack.round.saturating_add(1);
        let count = count as u16;
        cx.counters.repairs += 1;
        cx.counters.sent_repair += self.send_recoded(index, cx, count, true);
    }

    pub(super) fn report_loss(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>) {
        let hop = cx.upstream.hop_index();
        let size =
            self.mender.link.sizes().limit().map(|bytes| Item::Size(SizeReport { hop, bytes }));
        let item = hop_report(&cx.upstream.loss);
        let epoch = cx.upstream.epoch();
        cx.upstream.reporter.send(cx.io, epoch, |writer| {
            item.into_iter().chain(size).for_each(|item| {
                writer.push(item);
            });
        });
    }
}
