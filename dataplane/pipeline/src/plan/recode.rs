//! Packets that a relay sends for a batch, depending on its rank.

use crate::config::report::HopLoss;
use recoded_code::theory::LossModel;
use recoded_code::theory::Recoding;
use recoded_code::theory::adaptive::{Adaptive, Outgoing, RecodingTable};
use recoded_gf::FieldOrder;

/// Largest batch with a recoding table; the wire format allows no larger size.
pub(crate) const BATCH_SIZE_MAX: usize = 128;

/// Maximum packets of a batch in a table: enough for losses of two thirds at the largest size.
pub(crate) const PACKETS_MAX: usize = 3 * BATCH_SIZE_MAX;

/// Inputs of a table.
#[derive(Copy, Clone, PartialEq, Debug)]
pub(crate) struct Basis {
    pub size: usize,
    pub field: FieldOrder,
    pub interleave: usize,
    pub recoding: Recoding,
    pub link: HopLoss,
    /// Batches closed by the time of the request, by rank from 0.
    pub ranks: [u64; BATCH_SIZE_MAX + 1],
    /// Their number.
    pub batches: u64,
}

/// A table and its inputs.
#[derive(Clone, Debug)]
pub(crate) struct RecodingPlan {
    pub basis: Basis,
    pub table: RecodingTable,
}

/// Makes a table.
pub(crate) fn plan(adaptive: &mut Adaptive, basis: &Basis) -> RecodingPlan {
    let hop = LossModel { loss: basis.link.loss, burst_mean: basis.link.burst_mean };
    let hop = hop.interleaved(basis.interleave);
    let outgoing = Outgoing::equal_airtime(basis.size, basis.field, hop, basis.recoding);
    let ranks = basis.ranks.map(|count| count as f64);
    let table = adaptive.table(&outgoing, &ranks[..=basis.size]);
    RecodingPlan { basis: *basis, table }
}

impl Basis {
    /// Whether a table for `old` is out of date.
    pub(crate) fn differs(&self, old: &Basis) -> bool {
        let shape = |basis: &Basis| (basis.size, basis.field, basis.interleave, basis.recoding);
        shape(self) != shape(old)
            || self.link.differs(&old.link)
            || self.batches < old.batches
            || self.batches > 2 * old.batches
    }
}
