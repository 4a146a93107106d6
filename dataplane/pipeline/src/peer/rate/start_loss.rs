//! Whether a later sample refutes what the first ones lost.
//!
//! A start at the first rate overflows the queue of a slower link. That loss is not the loss of the
//! link: it would seem faster, and redundancy would take half of it.

use super::deviation;

/// Standard deviations beyond the loss of a sample within which the loss of the link lies. With
/// two, one sample in forty would refute a loss that is right.
const DEVIATIONS: f64 = 3.0;

/// The most that the link loses by itself where this share of so many packets was lost.
pub(super) fn most(loss: f64, sent: u32) -> f64 {
    // Of few packets, none is lost by chance; half is the widest.
    let one = (1.0 / f64::from(sent.max(1))).min(0.5);
    (loss + DEVIATIONS * deviation(loss.clamp(one, 0.5), sent)).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_refute_a_loss_that_is_far_from_theirs_alone() {
        assert!(most(0.0, 32) < 0.1, "a queue that dropped four in five");
        assert!(most(0.0, 32) > 0.05 && most(0.0, 100) > 0.02, "none was lost by chance");
        assert_eq!(most(1.0, 0), 1.0);
    }
}
