//! Memory of a system.

use crate::bats::batch::DEGREE_MAX;
use crate::bats::decoder::system::{Edge, Group, IntermediateState, Step};
use crate::bats::params::Limits;
use crate::bats::precode::Precode;

/// The most memory that blocks within some limits can need, by kind.
pub(super) struct Room {
    pub symbols: usize,
    pub degree: usize,
    pub groups: usize,
    pub edges: usize,
    pub columns: usize,
    pub matrices: usize,
}

impl Room {
    pub(super) fn of(limits: Limits) -> Self {
        let Limits { source_symbols_max, batch_size_max, batches_max, inactive_max } = limits;
        let precode = Precode::of(source_symbols_max);
        let (ldpc, members) = (precode.ldpc(), precode.members());
        let symbols = source_symbols_max + precode.parity_symbols();
        let degree = DEGREE_MAX.min(symbols);
        let edges = batches_max * degree + members;
        Self {
            symbols,
            degree,
            groups: batches_max + ldpc,
            edges,
            columns: edges + inactive_max * degree,
            matrices: batches_max * batch_size_max * (degree + batch_size_max)
                + members
                + ldpc
                + inactive_max * (degree + 1),
        }
    }

    pub(super) fn bytes(&self, limits: Limits) -> usize {
        let per_symbol = size_of::<IntermediateState>() + size_of::<u32>() + size_of::<u16>();
        self.symbols * (per_symbol + limits.inactive_max)
            + self.groups * size_of::<Group>()
            + self.edges * size_of::<Edge>()
            + (self.groups + limits.inactive_max) * size_of::<Step>()
            + self.columns * size_of::<u16>()
            + self.matrices
            + limits.inactive_max * (limits.inactive_max + self.degree)
    }
}
