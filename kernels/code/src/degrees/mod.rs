//! Ready degree distributions for the outer code of BATS, by batch size.
//!
//! Optimal for the ranks after ten hops that lose 10 % each. They also serve better lines: more
//! rank per batch never hurts a distribution, it only leaves some of it unused. The crate
//! `recoded-degrees` computes them and its test regenerates `family.rs`; it also serves lines that
//! need their own.

#[rustfmt::skip]
mod family;

/// A distribution: pairs of a degree and the cumulative probability up to it, both ascending. The
/// random number `u` maps to the first degree whose second element is at least `u`, and the last
/// one is `u32::MAX`: an entry's probability is its difference to the previous entry, over 2^32.
pub type Distribution = [(u16, u32)];

/// The distribution for batches of `batch_size` that lets belief propagation recover 99 % of many
/// symbols. Degrees reach 16 times the batch size, within 128..=512; cap them at the number of
/// symbols of a short block.
///
/// Other batch sizes get the nearest power of two by ratio.
#[must_use]
pub fn family(batch_size: usize) -> &'static Distribution {
    family::FAMILY[nearest(batch_size)]
}

/// The degree for a uniformly random number.
///
/// # Panics
/// When `distribution` is empty.
#[must_use]
pub fn degree(distribution: &Distribution, uniform: u32) -> u16 {
    let index = distribution.partition_point(|&(_, cumulative)| cumulative < uniform);
    distribution[index.min(distribution.len() - 1)].0
}

/// The mean degree of a distribution.
#[must_use]
pub fn mean(distribution: &Distribution) -> f64 {
    let mut before = -1.0;
    let mut sum = 0.0;
    for &(degree, cumulative) in distribution {
        let cumulative = f64::from(cumulative);
        sum += f64::from(degree) * (cumulative - before);
        before = cumulative;
    }
    sum / 2_f64.powi(32)
}

/// Index of the family's size nearest to `batch_size`, by ratio: log2 rounded.
fn nearest(batch_size: usize) -> usize {
    let size = batch_size.clamp(1, 1 << (SIZES - 1));
    let below = size.ilog2();
    // size / 2^below > sqrt(2), in integers.
    let up = size * size > 2 << (2 * below);
    (below + u32::from(up)) as usize
}

/// Sizes in the family: 1, 2, 4, .. 128.
const SIZES: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distributions_are_cumulative_and_within_their_degrees() {
        for exponent in 0..SIZES {
            let size = 1_usize << exponent;
            let distribution = family(size);
            assert!(distribution.is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1), "size {size}");
            let (first, last) = (distribution[0], distribution[distribution.len() - 1]);
            assert!(first.0 >= 1 && first.1 > 0, "size {size}: {first:?}");
            let cap = (16 * size).clamp(128, 512);
            assert!(usize::from(last.0) <= cap && last.1 == u32::MAX, "size {size}: {last:?}");
        }
    }

    #[test]
    fn sizes_between_get_the_nearest_by_ratio() {
        let chosen = [0, 1, 2, 3, 5, 6, 11, 12, 22, 23, 90, 91, 128, 1000].map(nearest);
        assert_eq!(chosen, [0, 0, 1, 2, 2, 3, 3, 4, 4, 5, 6, 7, 7, 7]);
    }

    #[test]
    fn degree_of_every_random_number_is_drawn_with_its_probability() {
        let distribution = [(2, 0x3fff_ffff), (3, 0x7fff_ffff), (9, u32::MAX)];
        let drawn = [0, 0x3fff_ffff, 0x4000_0000, 0x7fff_ffff, 0x8000_0000, u32::MAX];
        assert_eq!(drawn.map(|uniform| degree(&distribution, uniform)), [2, 2, 3, 3, 9, 9]);
        assert!((mean(&distribution) - (2.0 / 4.0 + 3.0 / 4.0 + 9.0 / 2.0)).abs() < 1e-9);
    }
}
