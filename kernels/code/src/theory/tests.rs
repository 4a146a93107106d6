//! Oracles: the tables computed independently of this code, and simulation.

use super::*;
use FieldOrder::{Four, Sixteen, Two, TwoFiftySix};
use Recoding::{Random, Systematic};

/// Hops 1..=10, 20 and 50 are what the table rows below list.
const LISTED_HOPS: [usize; 12] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 50];

fn assert_row(size: usize, field: FieldOrder, loss: f64, recoding: Recoding, row: [u32; 12]) {
    let ranks = expected_rank(size, field, &[size; 50], &[loss; 50], recoding);
    for (hop, thousandths) in LISTED_HOPS.into_iter().zip(row) {
        let (computed, listed) = (ranks[hop - 1], f64::from(thousandths) / 1000.0);
        assert!(
            (computed - listed).abs() <= 0.000_51,
            "size {size}, GF({field}), loss {loss}, {recoding:?}, hop {hop}: {computed} != {listed}"
        );
    }
}

#[test]
fn expected_rank_at_ten_percent_loss_matches_tables() {
    let row = |size, field, recoding, row| assert_row(size, field, 0.1, recoding, row);
    row(
        4,
        TwoFiftySix,
        Systematic,
        [900, 830, 780, 744, 716, 695, 677, 663, 650, 639, 566, 472],
    );
    row(
        4,
        TwoFiftySix,
        Random,
        [899, 829, 780, 743, 716, 694, 677, 662, 650, 639, 565, 471],
    );
    row(
        8,
        TwoFiftySix,
        Systematic,
        [900, 845, 811, 788, 771, 757, 745, 735, 726, 718, 671, 611],
    );
    row(
        16,
        Two,
        Random,
        [875, 819, 783, 757, 737, 720, 706, 694, 683, 674, 611, 528],
    );
    row(
        16,
        Two,
        Systematic,
        [900, 847, 812, 787, 767, 751, 738, 726, 716, 706, 646, 568],
    );
    row(
        16,
        Four,
        Random,
        [894, 850, 824, 806, 792, 781, 772, 764, 757, 751, 712, 664],
    );
    row(
        16,
        Sixteen,
        Systematic,
        [900, 858, 835, 819, 807, 797, 789, 782, 776, 771, 739, 699],
    );
    row(
        16,
        Sixteen,
        Random,
        [899, 858, 835, 819, 807, 797, 789, 782, 776, 771, 739, 699],
    );
    row(
        16,
        TwoFiftySix,
        Systematic,
        [900, 859, 836, 821, 809, 799, 792, 785, 779, 774, 743, 704],
    );
    row(
        32,
        TwoFiftySix,
        Systematic,
        [900, 871, 855, 844, 836, 830, 824, 820, 816, 813, 792, 766],
    );
    row(
        64,
        TwoFiftySix,
        Systematic,
        [900, 879, 868, 861, 855, 851, 847, 844, 842, 839, 825, 808],
    );
}

#[test]
fn expected_rank_at_twenty_percent_loss_matches_tables() {
    let row = |size, field, recoding, row| assert_row(size, field, 0.2, recoding, row);
    row(
        4,
        TwoFiftySix,
        Systematic,
        [800, 695, 633, 591, 560, 536, 515, 497, 482, 469, 390, 292],
    );
    row(
        8,
        TwoFiftySix,
        Systematic,
        [800, 723, 680, 652, 630, 613, 600, 588, 578, 569, 513, 447],
    );
    row(
        16,
        Two,
        Random,
        [789, 717, 675, 645, 623, 605, 589, 576, 565, 555, 489, 404],
    );
    row(
        16,
        Two,
        Systematic,
        [800, 728, 686, 657, 635, 617, 603, 590, 579, 569, 506, 426],
    );
    row(
        16,
        Sixteen,
        Systematic,
        [800, 744, 714, 694, 679, 667, 657, 649, 642, 636, 597, 552],
    );
    row(
        16,
        TwoFiftySix,
        Systematic,
        [800, 744, 715, 695, 680, 669, 659, 651, 644, 638, 600, 556],
    );
    row(
        32,
        TwoFiftySix,
        Systematic,
        [800, 760, 740, 726, 716, 708, 701, 696, 691, 687, 661, 630],
    );
    row(
        64,
        TwoFiftySix,
        Systematic,
        [800, 772, 757, 748, 741, 735, 731, 727, 724, 721, 703, 682],
    );
}

#[test]
fn expected_rank_at_hop_ten_matches_field_and_size_table() {
    // Ten-thousandths at hop 10, systematic, for order 2, 4, 16, 256.
    for (loss, size, row) in [
        (0.1, 8, [6133, 6783, 7109, 7184]),
        (0.1, 16, [7065, 7540, 7712, 7743]),
        (0.1, 32, [7780, 8046, 8117, 8128]),
        (0.1, 64, [8248, 8364, 8389, 8393]),
        (0.2, 8, [4475, 5284, 5621, 5687]),
        (0.2, 16, [5692, 6209, 6359, 6383]),
        (0.2, 32, [6563, 6806, 6861, 6869]),
        (0.2, 64, [7093, 7186, 7205, 7208]),
    ] {
        for (field, listed) in FieldOrder::ALL.into_iter().zip(row) {
            let ranks = expected_rank(size, field, &[size; 10], &[loss; 10], Systematic);
            let difference = ranks[9] - f64::from(listed) / 10_000.0;
            assert!(
                difference.abs() <= 0.000_051,
                "{size}, GF({field}), {loss}: {}",
                ranks[9]
            );
        }
    }
}

#[test]
fn expected_rank_of_bursts_matches_simulation() {
    // Simulated with 6,000 generations: loss 10 %, mean burst 8, hops 1, 3, 6, 10.
    let hop = Hop {
        loss: 0.1,
        burst_mean: 8.0,
    };
    let distributions = rank_distributions(16, TwoFiftySix, &[16; 10], &[hop; 10], Systematic);
    for (hop, simulated) in [(1, 0.905), (3, 0.755), (6, 0.597), (10, 0.464)] {
        let ranks = distributions[hop - 1].iter().zip(0_u32..);
        let mean = ranks.map(|(p, rank)| p * f64::from(rank)).sum::<f64>() / 16.0;
        assert!(
            (mean - simulated).abs() < 0.015,
            "hop {hop}: {mean} != {simulated}"
        );
    }
}

#[test]
fn rank_distributions_of_unequal_hops_sum_to_one() {
    let hops = [
        Hop::independent(0.0),
        Hop {
            loss: 0.3,
            burst_mean: 5.0,
        },
        Hop::independent(0.05),
        Hop::independent(1.0),
    ];
    for recoding in [Systematic, Random] {
        let distributions = rank_distributions(20, Four, &[20, 40, 10, 25], &hops, recoding);
        for distribution in &distributions {
            assert!((distribution.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        }
        assert!(
            distributions[2][11..].iter().all(|&p| p == 0.0),
            "ten packets, rank ten"
        );
        assert!(
            (distributions[3][0] - 1.0).abs() < 1e-12,
            "nothing passes the last hop"
        );
    }
}
