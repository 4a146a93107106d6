//! Packets that a relay sends for a batch, by its rank.

use crate::report::HopLoss;
use recoded_code::theory::LossModel;
use recoded_code::theory::Recoding;
use recoded_code::theory::adaptive::{Adaptive, Outgoing, RecodingTable};
use recoded_gf::FieldOrder;

/// Largest batch for which there are recoding tables; the wire gives the size no more.
pub(crate) const BATCH_SIZE_MAX: usize = 128;

/// Packets of a batch that a table considers: enough for losses of two thirds at the largest size.
pub(crate) const PACKETS_MAX: usize = 3 * BATCH_SIZE_MAX;

/// What a table is made for.
#[derive(Copy, Clone, PartialEq, Debug)]
pub(crate) struct Basis {
    pub size: usize,
    pub field: FieldOrder,
    pub interleave: usize,
    pub recoding: Recoding,
    pub link: HopLoss,
    /// Batches that had closed by then, by rank from 0.
    pub ranks: [u64; BATCH_SIZE_MAX + 1],
    /// Their number.
    pub batches: u64,
}

/// A table, and what it was made for.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub basis: Basis,
    pub table: RecodingTable,
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
