//! Configuration of a BATS flow, beyond that of every flow.

use crate::config::params::{FlowParams, Role};
use recoded_wire::coded::Block;

pub use recoded_code::bats::Profile;

/// Outer code of a BATS flow. The batch size is the flow's `generation_size`, at most 128, and its
/// `field` is that of the inner code.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct BatsParams {
    /// Source: source symbols of a full block, 1 to 4096. Sink: the most it accepts.
    pub source_symbols: usize,
    /// Source: how batches are drawn.
    pub profile: Profile,
    /// Source: bits of a generator element: 1, 2, 3, 4 or 8.
    pub generator_bits: u8,
    /// Source: batches that are interleaved.
    pub interleave: Interleave,
}

impl BatsParams {
    /// The code as packets announce it to a relay or sink: the size of its blocks.
    pub(crate) fn announced(block: &Block) -> BatsParams {
        BatsParams {
            source_symbols: (1 << block.full_log2).max(usize::from(block.source_symbols)),
            profile: Profile::from_code(block.profile).unwrap_or_default(),
            generator_bits: block.generator_bits,
            interleave: Interleave::Fixed(block.interleave.max(1)),
        }
    }
}

/// How many batches of a BATS flow are interleaved, packet by packet.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Interleave {
    /// Twice the mean burst of the worst hop.
    Auto,
    /// This many, 1 to 255; 1 is no interleaving.
    Fixed(u8),
}

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
