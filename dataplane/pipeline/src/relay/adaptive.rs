//! How many packets a relay sends for a batch, by the rank it holds.
//!
//! ```text
//!  hop reports on their way upstream ─► loss of the outgoing link ─┐
//!  ranks of the batches that closed ───────────────────────────────┴─► RecodingTable
//! ```
//!
//! On average over its batches a relay sends as many packets as a batch has symbols, whatever the
//! table says: equal airtime. Until link and ranks are known every batch gets that many. The table
//! is made when a report brings news, not per batch.

use crate::combine::BATCH_SIZE_MAX;
use crate::egress::Egress;
use crate::io::Io;
use crate::params::ShardId;
use crate::plan::{self, Asker};
use crate::report::HopLoss;
use crate::source::path::moved;
use recoded_code::theory::LossModel;
use recoded_code::theory::Recoding;
use recoded_code::theory::adaptive::{Adaptive, Outgoing, RecodingTable};
use recoded_gf::FieldOrder;
use recoded_wire::frames::Frames;

/// Batches that must have closed before their ranks say something.
const BATCHES_MIN: u64 = 64;

/// What a table is made for.
#[derive(Copy, Clone, PartialEq, Debug)]
pub(crate) struct Basis {
    size: usize,
    field: FieldOrder,
    interleave: usize,
    recoding: Recoding,
    link: HopLoss,
    /// Batches that had closed by then, by rank from 0.
    ranks: [u64; BATCH_SIZE_MAX + 1],
    /// Their number.
    batches: u64,
}

/// A table, and what it was made for.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    basis: Basis,
    table: RecodingTable,
}

/// Makes a table.
pub(crate) fn plan(adaptive: &mut Adaptive, basis: &Basis) -> Plan {
    let hop = LossModel { loss: basis.link.loss, burst_mean: basis.link.burst_mean };
    let hop = hop.interleaved(basis.interleave);
    let outgoing = Outgoing::equal_airtime(basis.size, basis.field, hop, basis.recoding);
    let ranks = basis.ranks.map(|count| count as f64);
    let table = adaptive.table(&outgoing, &ranks[..=basis.size]);
    Plan { basis: *basis, table }
}

/// The table in use on one flow.
#[derive(Debug)]
pub(crate) struct AdaptivePlan {
    asker: Asker,
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
        Self { asker: Asker::new(shard), plan: None }
    }

    /// Takes in what the next node says of the link between. Asks for a new table when that, or
    /// what arrives here, has changed.
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
        // A table for ranks that were never seen here gives too little to those that are usual.
        let is_known = basis.batches >= BATCHES_MIN;
        if is_known && self.plan.as_ref().is_none_or(|plan| basis.differs(&plan.basis)) {
            self.asker.want();
            if let Some(plan) = self.asker.ask(io, || plan::Basis::Recoding(basis)) {
                self.adopt(plan);
            }
        }
    }

    /// Takes over a plan that was asked for.
    pub(crate) fn adopt(&mut self, plan: plan::Plan) {
        self.asker.answered();
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

impl Basis {
    /// Whether a table for `old` is out of date.
    fn differs(&self, old: &Basis) -> bool {
        let shape = |basis: &Basis| (basis.size, basis.field, basis.interleave, basis.recoding);
        shape(self) != shape(old)
            || moved(&self.link, &old.link)
            || self.batches < old.batches
            || self.batches > 2 * old.batches
    }
}
