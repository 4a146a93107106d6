//! Configuration of a BATS flow, beyond that of every flow.

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
    /// Blocks of `source_symbols`, with the daemon's defaults for the rest.
    pub fn new(source_symbols: usize) -> BatsParams {
        let (profile, interleave) = (Profile::default(), Interleave::Auto);
        BatsParams { source_symbols, profile, generator_bits: 8, interleave }
    }

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
