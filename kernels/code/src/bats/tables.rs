//! Built-in degrees: of the rows of base graphs, and of precoded batches.

use crate::bats::batch::DEGREE_MAX;
use crate::bats::cyclic::ROWS_MAX;
use crate::bats::params::Params;
use crate::bats::sampler::scaled;

/// Row degrees for batches of 16: 1.65 times those of the paper.
///
/// With the paper's, a block of 256 symbols needs 1.27 times its rank, since symbols that only one
/// batch holds must be solved from that batch. From about 1.65 times on every rank counts: blocks of
/// 256 and 1024 symbols decode from 1.000 times their rank, over one hop as over ten, at 1 % of loss
/// as at 20 %. Higher degrees only cost time.
const ROW_DEGREES_16: [u16; 7] = [18, 20, 23, 23, 31, 33, 45];

/// Degrees of precoded batches of 16, equally likely.
///
/// Distributions that are optimal for long blocks put much of their mean into a few huge batches. Of
/// the twenty that a block of 256 symbols needs there may be none, and the precode cannot make up for
/// what then stays uncovered: 1 of 100 blocks needs 1.14 times its rank. Degrees this close together
/// leave a sixteenth of the symbols uncovered, which the precode is made for.
const PRECODED_DEGREES_16: [u16; 4] = [28, 36, 48, 64];

/// Degree of a precoded batch, from a uniformly random number.
pub(super) fn precoded_degree(batch_size: usize, uniform: u32) -> usize {
    let drawn = PRECODED_DEGREES_16[scaled(uniform, PRECODED_DEGREES_16.len())];
    (usize::from(drawn) * batch_size / 16).clamp(1, DEGREE_MAX)
}

/// Row degrees of the base graph of a block, and how many there are.
pub(super) fn row_degrees(params: Params) -> ([u16; ROWS_MAX], usize) {
    let mut degrees = [0; ROWS_MAX];
    for (degree, model) in degrees.iter_mut().zip(ROW_DEGREES_16) {
        let scaled = usize::from(model) * params.batch_size / 16;
        *degree = scaled.clamp(1, DEGREE_MAX) as u16;
    }
    (degrees, ROW_DEGREES_16.len())
}
