//! Whether a later sample refutes the loss measured at a start.
//!
//! A start at the initial rate overflows the queue of a slower link. If those drops counted as loss
//! of the link, the link would appear faster, and redundancy would take half of it.

use super::deviation;

/// Standard deviations above the loss of a sample within which the loss of the link lies. With
/// three, one in 29 samples of 32 packets still refutes a correct value of 10 %.
const DEVIATIONS: f64 = 3.0;

/// The highest loss of the link that is consistent with this loss among `sent` packets.
pub(super) fn most(loss: f64, sent: u32) -> f64 {
    // Few packets may all arrive by chance; the deviation is largest at one half.
    let one = (1.0 / f64::from(sent.max(1))).min(0.5);
    (loss + DEVIATIONS * deviation(loss.clamp(one, 0.5), sent)).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_samples_far_from_a_loss_refute_it() {
        assert!(most(0.0, 32) < 0.1, "a queue that dropped four in five");
        assert!(most(0.0, 32) > 0.05 && most(0.0, 100) > 0.02, "all arrived by chance");
        assert_eq!(most(1.0, 0), 1.0);
    }
}
