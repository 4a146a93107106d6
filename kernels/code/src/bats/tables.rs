//! Built-in degrees of the rows of base graphs and of precoded batches.

use crate::bats::batch::DEGREE_MAX;
use crate::bats::cyclic::{BUILT_IN, PATTERN_MAX};
use crate::bats::params::Params;
use crate::bats::sampler::scaled;

/// Row degrees for batches of 16: 1.8 times those of the paper.
///
/// With the paper's, a block of 256 symbols needs 1.27 times its rank, since symbols in only one
/// batch must be solved from that batch. From about 1.8 times on every rank counts: blocks of 256
/// and 1024 symbols decode from 1.00 times their rank, over one hop and over ten, at 1 % loss and
/// at 20 %. Higher degrees only cost time.
const ROW_DEGREES_16: [u16; BUILT_IN] = [20, 22, 26, 28, 34, 38, 48];

/// Degrees of precoded batches of 16, equally likely.
///
/// Distributions that are optimal for long blocks put much of their mean into a few huge batches.
/// The twenty batches that a block of 256 symbols needs may include none of these, and the precode
/// cannot make up for the uncovered symbols: 1 of 100 blocks needs 1.14 times its rank. Degrees
/// this close together leave a sixteenth of the symbols uncovered, which the precode is designed
/// for.
const PRECODED_DEGREES_16: [u16; 4] = [28, 36, 48, 64];

/// Degree of a precoded batch, from a uniformly random number.
pub(super) fn precoded_degree(batch_size: usize, uniform: u32) -> usize {
    let drawn = PRECODED_DEGREES_16[scaled(uniform, PRECODED_DEGREES_16.len())];
    (usize::from(drawn) * batch_size / 16).clamp(1, DEGREE_MAX)
}

/// A base graph: the pattern of its row degrees, their number, and the number of rows.
pub(super) type Rows = ([u16; PATTERN_MAX], usize, usize);

/// The base graph of a block.
///
/// Small batches need more than proportional degrees, or parts of the graph stay disconnected.
/// Every batch combines a whole block that is hardly larger than the degrees.
pub(super) fn base_graph(params: Params) -> Rows {
    let Params { source_symbols, batch_size, .. } = params;
    let count = ROW_DEGREES_16.len();
    let mut degrees = [0; PATTERN_MAX];
    let mut total = 0;
    for (degree, model) in degrees.iter_mut().zip(ROW_DEGREES_16) {
        let scaled = usize::from(model) * batch_size / 16 + 16usize.saturating_sub(batch_size) / 2;
        *degree = scaled.clamp(1, DEGREE_MAX) as u16;
        total += usize::from(*degree);
    }
    if total * 4 > source_symbols * count * 3 {
        degrees[..count].fill(source_symbols.min(DEGREE_MAX) as u16);
        return (degrees, count, count);
    }
    // A layer covers three quarters of the block: layers interlock, and their coverage stays even.
    let rows = (source_symbols * count * 3 / 4).div_ceil(total);
    (degrees, count, rows.max(count))
}

/// The base graph of a block with given row degrees, for blocks of 256 symbols; larger ones repeat
/// them.
pub(super) fn base_graph_of(params: Params, given: &[u16]) -> Rows {
    let mut degrees = [0; PATTERN_MAX];
    degrees[..given.len()].copy_from_slice(given);
    (degrees, given.len(), given.len() * (params.source_symbols / 256).max(1))
}
