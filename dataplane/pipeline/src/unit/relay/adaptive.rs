//! Number of packets that a relay sends for a batch, depending on the rank it holds. Only for
//! batches without hop recovery: without flag MENDED, or while the next node sends no reports. With
//! hop recovery the reports decide (see `hop_repair`), and with `adaptive = false` the plan of the
//! source.
//!
//! ```text
//!  hop reports that go upstream ──────► loss of the outgoing link ─┐
//!  ranks of the batches that closed ───────────────────────────────┴─► RecodingTable
//! ```
//!
//! On average over its batches a relay sends as many packets as a batch has symbols, regardless of
//! the table: equal airtime. Until link and ranks are known every batch gets that many. The table
//! is made when a report changes its inputs, not per batch.

use crate::config::params::ShardId;
use crate::config::report::HopLoss;
use crate::env::egress::Egress;
use crate::env::io::Io;
use crate::env::plan_schedule::PlanSchedule;
use crate::plan;
use crate::plan::recode::{BATCH_SIZE_MAX, Basis, RecodingPlan as Plan};
use recoded_code::theory::Recoding;
use recoded_gf::FieldOrder;
use recoded_wire::frames::Frames;

/// Batches that must have closed before their ranks are meaningful.
const BATCHES_MIN: u64 = 64;

/// The table in use on one flow.
#[derive(Debug)]
pub(crate) struct AdaptivePlan {
    schedule: PlanSchedule,
    plan: Option<Plan>,
}

/// Batches as they arrive now.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Batches<'a> {
    pub size: usize,
    pub field: FieldOrder,
    pub interleave: usize,
    pub recoding: Recoding,
    /// How often each rank was seen, from 0.
    pub ranks: &'a [u64],
}

impl AdaptivePlan {
    pub(crate) fn new(shard: ShardId) -> Self {
        Self { schedule: PlanSchedule::new(shard), plan: None }
    }

    /// Processes the next node's report on the link between. Requests a new table when that link,
    /// or the arrivals here, have changed.
    pub(crate) fn hear(
        &mut self,
        io: &mut Io<'_, impl Frames, impl Egress>,
        link: HopLoss,
        now: &Batches<'_>,
    ) {
        if now.size > BATCH_SIZE_MAX {
            return;
        }
        let mut ranks = [0; BATCH_SIZE_MAX + 1];
        if now.ranks.len() == now.size + 1 {
            ranks[..=now.size].copy_from_slice(now.ranks);
        }
        let basis = Basis {
            size: now.size,
            field: now.field,
            interleave: now.interleave,
            recoding: now.recoding,
            link,
            ranks,
            batches: ranks.iter().sum(),
        };
        // A table made before any ranks were seen gives too few packets to usual ranks.
        let is_known = basis.batches >= BATCHES_MIN;
        if is_known && self.plan.as_ref().is_none_or(|plan| basis.differs(&plan.basis)) {
            self.schedule.want();
            if let Some(plan) = self.schedule.request(io, || plan::Basis::Recoding(basis)) {
                self.adopt(plan);
            }
        }
    }

    /// Adopts a requested plan.
    pub(crate) fn adopt(&mut self, plan: plan::Plan) {
        self.schedule.answered();
        if let plan::Plan::Recoding(plan) = plan {
            self.plan = Some(plan);
        }
    }

    /// Packets for a batch of `size` symbols that closes with `rank`.
    pub(crate) fn packets(&self, size: usize, rank: usize, uniform: u32) -> usize {
        match &self.plan {
            Some(Plan { table, .. }) if table.size() == size => table.packets(rank, uniform),
            _ => size,
        }
    }
}
