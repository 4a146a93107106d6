//! How many packets a relay sends for a batch, by the rank it holds.
//!
//! ```text
//!  hop reports on their way upstream ─► loss of the outgoing link ─┐
//!  ranks of the batches that closed ───────────────────────────────┴─► RecodingTable
//! ```
//!
//! On average over its batches a relay sends as many packets as a batch has symbols, whatever the
//! table says: equal airtime. Until the link is known every batch gets that many. The table is made
//! when a report brings news, not per batch.

use crate::combine::{BATCH_SIZE_MAX, Combiner};
use crate::path::moved;
use crate::report::HopLoss;
use recoded_code::theory::Hop;
use recoded_code::theory::Recoding;
use recoded_code::theory::adaptive::{Outgoing, RecodingTable};
use recoded_gf::FieldOrder;

/// Batches that must have closed before their ranks say something.
const BATCHES_MIN: u64 = 64;

/// What a table was made for.
#[derive(Copy, Clone, PartialEq, Debug)]
struct Basis {
    size: usize,
    field: FieldOrder,
    interleave: usize,
    recoding: Recoding,
    link: HopLoss,
    /// Batches that had closed by then.
    batches: u64,
}

/// The table in use on one flow.
#[derive(Debug, Default)]
pub(crate) struct AdaptivePlan {
    table: Option<(Basis, RecodingTable)>,
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
    /// Takes in what the next node says of the link between. Makes a new table when that, or what
    /// arrives here, has changed.
    pub(crate) fn hear(&mut self, combiner: &mut Combiner, link: HopLoss, now: &Batches<'_>) {
        let fits = now.ranks.len() == now.size + 1;
        let batches = if fits { now.ranks.iter().sum() } else { 0 };
        let basis = Basis {
            size: now.size,
            field: now.field,
            interleave: now.interleave,
            recoding: now.recoding,
            link,
            batches,
        };
        if now.size > BATCH_SIZE_MAX
            || self.table.as_ref().is_some_and(|(old, _)| !basis.differs(old))
        {
            return;
        }
        let hop = Hop { loss: link.loss, burst_mean: link.burst_mean };
        let hop = hop.interleaved(now.interleave);
        let outgoing = Outgoing::equal_airtime(now.size, now.field, hop, now.recoding);
        let mut ranks = [0.0; BATCH_SIZE_MAX + 1];
        if batches >= BATCHES_MIN {
            for (rank, count) in ranks.iter_mut().zip(now.ranks) {
                *rank = *count as f64;
            }
        }
        let table = combiner.adaptive().table(&outgoing, &ranks[..=now.size]);
        self.table = Some((basis, table));
    }

    /// Packets for a batch of `size` symbols that closes with `rank`.
    pub(crate) fn packets(&self, size: usize, rank: usize, uniform: u32) -> usize {
        match &self.table {
            Some((_, table)) if table.size() == size => table.packets(rank, uniform),
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
            || self.batches > 2 * old.batches.max(BATCHES_MIN / 2)
    }
}
