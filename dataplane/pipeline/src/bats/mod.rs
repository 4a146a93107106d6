//! The edges of BATS flows. Relays need nothing from here: they treat a batch as a generation.
//!
//! ```text
//!  TUN -> source: block of symbols -> batches -> relays -> sink: decoder per block -> TUN
//! ```

pub(crate) mod source;

mod block;

pub(crate) mod sent_batches;

pub(crate) mod plan;

pub(crate) mod received;

mod rows;

use crate::config::params::{BatsParams, FlowParams, Role};

impl FlowParams {
    /// Blocks that a source or sink of a BATS flow holds at once: about as many as `generations`
    /// fill, at least [`BLOCKS_MIN`]. A sink holds a power of two, so that a block has its place to
    /// itself when numbers wrap around, and no fewer than any source.
    pub fn blocks(&self, bats: &BatsParams) -> usize {
        let symbols = self.generations * self.generation_size;
        let blocks =
            |source_symbols: usize| (symbols / source_symbols).clamp(BLOCKS_MIN, BLOCKS_MAX);
        match self.role {
            // Packets announce a size rounded up to a power of two, so the source may have more
            // blocks.
            Role::Sink { .. } => blocks(bats.source_symbols / 2 + 1).next_power_of_two(),
            _ => blocks(bats.source_symbols.max(1)),
        }
    }
}

/// Minimum number of blocks; with fewer, a flow stalls while one waits for requested packets: one
/// is collecting, one is being sent, two are in flight.
const BLOCKS_MIN: usize = 4;

/// Maximum number of blocks: no path benefits from more; a power of two.
const BLOCKS_MAX: usize = 64;
