//! The table measured independently of this code, and a simulation of the interleaver itself.

use super::super::{Recoding, expected_rank, rank_distributions};
use super::*;
use recoded_gf::FieldOrder;

/// Expected rank as a fraction of 16 after each of 10 hops.
fn ranks(hop: LossModel) -> Vec<f64> {
    let (field, recoding) = (FieldOrder::TwoFiftySix, Recoding::Random);
    let mean = |distribution: &Vec<f64>| {
        let ranks = distribution.iter().enumerate();
        ranks.map(|(rank, probability)| rank as f64 * probability).sum::<f64>() / 16.0
    };
    rank_distributions(16, field, &[16; 10], &[hop; 10], recoding).iter().map(mean).collect()
}

/// A generator for tests, not for secrets: SplitMix64.
struct Random(u64);

impl Random {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Rank after `hops` hops as a fraction of 16, the mean over 59520 batches of 16 packets and its
/// standard error, for a field so large that the rank behind a hop is the rank before it or the
/// number that arrived. The error comes from independent stretches of 192 batches, a multiple of
/// each depth.
fn simulate(random: &mut Random, hop: LossModel, depth: usize, hops: usize) -> (f64, f64) {
    let bad_to_good = 1.0 / hop.burst_mean;
    let good_to_bad = hop.loss * bad_to_good / (1.0 - hop.loss);
    let (mut sum, mut squares) = (0.0, 0.0);
    for _ in 0..STRETCHES {
        let mut ranks = [16; STRETCH];
        for _ in 0..hops {
            let mut bad = random.uniform() < hop.loss;
            for group in ranks.chunks_mut(depth) {
                let mut received = [0; STRETCH];
                for packet in 0..16 * depth {
                    received[packet % depth] += usize::from(!bad);
                    bad ^= random.uniform() < if bad { bad_to_good } else { good_to_bad };
                }
                group.iter_mut().zip(received).for_each(|(rank, count)| *rank = count.min(*rank));
            }
        }
        let mean = ranks.iter().sum::<usize>() as f64 / (16 * STRETCH) as f64;
        (sum, squares) = (sum + mean, squares + mean * mean);
    }
    let mean = sum / STRETCHES as f64;
    (mean, ((squares / STRETCHES as f64 - mean * mean) / STRETCHES as f64).sqrt())
}

const STRETCH: usize = 192;

const STRETCHES: usize = 310;

#[test]
fn expected_rank_by_burst_and_depth_matches_table_and_simulation() {
    let seed = std::env::var("RECODED_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    println!("RECODED_SEED={seed}");
    let mut random = Random(seed);
    // Thousandths after 10 hops, for depths 1, 2, 4, 8, 16, 32. The table was itself simulated,
    // with 6000 batches; rows share their channels, so their errors agree.
    for (loss, burst_mean, row) in [
        (0.1, 2.0, [682, 740, 769, 773, 773, 774]),
        (0.1, 4.0, [565, 660, 727, 764, 773, 774]),
        (0.1, 8.0, [464, 559, 656, 725, 765, 776]),
        (0.1, 16.0, [389, 449, 543, 642, 719, 760]),
        (0.2, 2.0, [550, 609, 635, 637, 638, 637]),
        (0.2, 4.0, [409, 521, 592, 628, 637, 639]),
        (0.2, 8.0, [267, 390, 504, 587, 628, 637]),
        (0.2, 16.0, [173, 266, 387, 504, 588, 629]),
    ] {
        for (depth, listed) in [1, 2, 4, 8, 16, 32].into_iter().zip(row) {
            let hop = LossModel { loss, burst_mean };
            let computed = ranks(hop.interleaved(depth))[9];
            let (simulated, error) = simulate(&mut random, hop, depth, 10);
            let case = format!(
                "loss {loss}, burst {burst_mean}, depth {depth}: {computed:.4}, table .{listed}, \
                 simulated {simulated:.4} +- {error:.4}"
            );
            println!("{case}");
            let table_error = error * ((STRETCH * STRETCHES) as f64 / 6000.0).sqrt();
            // 3.5 standard errors, as there are 48 values; those of burst 8 come from one channel
            // with 90.5 % arrivals instead of 90 %, and are off by 3 errors together.
            let tolerance = f64::max(0.01, 3.5 * table_error);
            assert!((computed - f64::from(listed) / 1000.0).abs() <= tolerance, "{case}");
            // 0.001 for redundant combinations over GF(256), which the simulation lacks.
            assert!((computed - simulated).abs() <= 4.5 * error + 0.001, "{case}");
        }
    }
}

#[test]
fn deep_interleaving_makes_losses_independent() {
    let independent =
        expected_rank(16, FieldOrder::TwoFiftySix, &[16; 10], &[0.1; 10], Recoding::Random);
    let deep = ranks(LossModel { loss: 0.1, burst_mean: 8.0 }.interleaved(100_000));
    assert!(independent.iter().zip(&deep).all(|(a, b)| (a - b).abs() < 1e-9));
    let shallow = LossModel { loss: 0.1, burst_mean: 8.0 }.interleaved(1);
    assert!((shallow.burst_mean - 8.0).abs() < 1e-9);
    // Independent losses stay independent.
    let hop = LossModel::independent(0.2).interleaved(7);
    assert!((hop.loss, hop.burst_mean) == (0.2, 1.25), "{hop:?}");
}

#[test]
fn interleaving_nonsense_keeps_its_loss() {
    for loss in [f64::NAN, -1.0, 0.0, 0.3, 1.0, 5.0] {
        for burst_mean in [f64::NAN, -1.0, 0.0, 1e300, f64::INFINITY] {
            for depth in [0, 1, 7, usize::MAX] {
                let hop = LossModel { loss, burst_mean }.interleaved(depth);
                let expected = if loss.is_nan() { 0.0 } else { loss.clamp(0.0, 1.0) };
                assert_eq!(hop.loss, expected);
            }
        }
    }
}

#[test]
fn depth_is_twice_the_burst_within_delay_and_limit() {
    // 1500 bytes at 1 Gbit/s take 12 us; 16 batches of 16 packets take 3.072 ms.
    let depth =
        |burst, budget_micros: u64| interleave_depth(burst, 16, 12_000, budget_micros * 1000, 64);
    assert_eq!(depth(8.0, 10_000), 16);
    assert_eq!(depth(8.1, 10_000), 17);
    assert_eq!(depth(8.0, 3_072), 16);
    assert_eq!(depth(8.0, 3_071), 15);
    assert_eq!(depth(8.0, 0), 1);
    assert_eq!(depth(500.0, 1_000_000), 64);
    assert_eq!(depth(f64::INFINITY, u64::MAX / 1000), 64);
    for burst in [f64::NAN, -1.0, 0.0, 1.0, 1.49] {
        assert_eq!(depth(burst, 10_000), 1);
    }
    assert_eq!(interleave_depth(4.0, 16, 0, 0, 0), 1);
    assert_eq!(interleave_depth(4.0, 128, u64::MAX, u64::MAX, 9), 1);
}

#[test]
fn depth_of_the_rule_keeps_nearly_all_rank() {
    for loss in [0.1, 0.2] {
        for burst_mean in [1.4, 2.0, 4.0, 8.0, 16.0] {
            let depth = interleave_depth(burst_mean, 16, 1, u64::MAX, 255);
            let kept = ranks(LossModel { loss, burst_mean }.interleaved(depth))[9];
            let best = ranks(LossModel::independent(loss))[9];
            println!("loss {loss}, burst {burst_mean}: depth {depth}, {kept:.4} of {best:.4}");
            assert!(kept > 0.94 * best, "burst {burst_mean}: {kept} of {best}");
        }
    }
}
