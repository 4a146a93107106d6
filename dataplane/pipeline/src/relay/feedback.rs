//! A relay's part in feedback: what it hands up and answers itself, what it learns of the link to
//! the next node, what it says of the link to itself.

use crate::batch::Shape;
use crate::egress::Egress;
use crate::io::{Context, Fate};
use crate::params::{Recoding, Role};
use crate::peer::loss::hop_report;
use crate::peer::repair::{ROUNDS, repair_packets};
use crate::relay::adaptive::Batches;
use crate::relay::{Relay, plan_within};
use crate::report::{DropReason, HopLoss};
use recoded_code::theory;
use recoded_wire::feedback::{Item, REPAIRS_MAX, RepairRequest, items, withdraw_repairs};
use recoded_wire::frames::{Frames, Span};
use recoded_wire::header::Header;

impl Relay {
    /// Hands a report of a node further down upstream, having answered the repair requests it can.
    pub(crate) fn hand_up(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        payload: Span,
        mut header: Header,
    ) -> Fate {
        let params = cx.params;
        let Role::Relay { upstream } = params.role else {
            return Fate::Dropped(DropReason::WrongRole);
        };
        header.hop_index = header.hop_index.saturating_add(1);
        if self.reporter.is_repeated(&header) {
            return Fate::Consumed;
        }
        self.hear_link(cx, payload);
        let mut answers = [None; REPAIRS_MAX];
        let mut answered = answers.iter_mut();
        withdraw_repairs(cx.io.frames.bytes_mut(payload), |request| {
            let can = self.can_answer(request);
            let place = if can { answered.next() } else { None };
            place.map(|answer| *answer = Some(request)).is_some()
        });
        for request in answers.into_iter().flatten() {
            self.answer(cx, request, header.hop_index);
        }
        self.reporter.relay(cx.io, upstream, payload, header, self.incoming.peer.loss.loss())
    }

    /// Learns from a report what the link to the next node loses.
    fn hear_link(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>, payload: Span) {
        let params = cx.params;
        let Some((size, field, block)) = self.incoming.batch().filter(|_| params.adaptive) else {
            return;
        };
        let outgoing = self.incoming.hop_index().saturating_add(1);
        let link = items(cx.io.frames.bytes(payload)).find_map(|item| match item {
            Item::Hop(report) if report.hop == outgoing => Some(HopLoss {
                hop: report.hop,
                loss: f64::from(report.loss),
                burst_mean: f64::from(report.burst_mean),
            }),
            _ => None,
        });
        let Some(link) = link else { return };
        let batches = Batches {
            size,
            field,
            interleave: self.depth(Some(&block)) as usize,
            recoding: match params.recoding {
                Recoding::Systematic => theory::Recoding::Systematic,
                Recoding::Random => theory::Recoding::Random,
            },
            ranks: &cx.counters.rank_histogram,
        };
        self.adaptive.hear(cx.io, link, &batches);
    }

    /// Whether all of a generation is here, so that the source need not be asked for it. Requests
    /// of a BATS flow are for blocks, which no relay holds.
    fn can_answer(&self, request: RepairRequest) -> bool {
        let index = self.batches.index(request.generation);
        let batch = &self.batches[index];
        let is_generation = batch.shape().is_some_and(|shape| shape.block.is_none());
        let is_held =
            is_generation && self.batches.is_held(index) && batch.generation == request.generation;
        is_held && batch.is_complete()
    }

    /// Answers a repair request from `hops` links further down, once per round. What is missing
    /// there was mostly lost on the last few links, so this saves the way to the source and back.
    fn answer(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        request: RepairRequest,
        hops: u8,
    ) {
        let params = cx.params;
        let index = self.batches.index(request.generation);
        let batch = &self.batches[index];
        let Some(Shape { field, .. }) = batch.shape() else { return };
        if !(batch.repaired..ROUNDS).contains(&request.round) || request.missing == 0 {
            return;
        }
        let missing = usize::from(request.missing).min(batch.size());
        let most = usize::from(plan_within(params, batch.size(), u16::MAX));
        let through = (1.0 - self.incoming.peer.loss.loss()).powi(i32::from(hops));
        let wanted = repair_packets(through, field, missing, most.max(missing));
        let count = self.repair_budget.spend(wanted);
        cx.counters.repairs_refused += (wanted - count) as u64;
        if count == 0 {
            // A copy of the request may find some budget again.
            return;
        }
        self.batches[index].repaired = request.round.saturating_add(1);
        let count = count as u16;
        cx.counters.repairs += 1;
        cx.counters.sent_repair += self.send_recoded(index, cx, count, 0);
    }

    pub(super) fn report_loss(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>) {
        let params = cx.params;
        let Role::Relay { upstream } = params.role else {
            return;
        };
        let item = hop_report(&self.incoming.peer.loss);
        self.reporter.send(cx.io, (params.id, upstream), (false, 0.0), |writer| {
            if let Some(item) = item {
                writer.push(item);
            }
        });
    }
}
