//! Oracles: the tables computed independently of this code, and simulation.

use super::*;
use FieldOrder::{Four, Sixteen, Two, TwoFiftySix};
use Recoding::{Random, Systematic};

/// Hops of the table rows below: 1..=10, 20 and 50.
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
    row(4, TwoFiftySix, Systematic, [900, 830, 780, 744, 716, 695, 677, 663, 650, 639, 566, 472]);
    row(4, TwoFiftySix, Random, [899, 829, 780, 743, 716, 694, 677, 662, 650, 639, 565, 471]);
    row(8, TwoFiftySix, Systematic, [900, 845, 811, 788, 771, 757, 745, 735, 726, 718, 671, 611]);
    row(16, Two, Random, [875, 819, 783, 757, 737, 720, 706, 694, 683, 674, 611, 528]);
    row(16, Two, Systematic, [900, 847, 812, 787, 767, 751, 738, 726, 716, 706, 646, 568]);
    row(16, Four, Random, [894, 850, 824, 806, 792, 781, 772, 764, 757, 751, 712, 664]);
    row(16, Sixteen, Systematic, [900, 858, 835, 819, 807, 797, 789, 782, 776, 771, 739, 699]);
    row(16, Sixteen, Random, [899, 858, 835, 819, 807, 797, 789, 782, 776, 771, 739, 699]);
    row(16, TwoFiftySix, Systematic, [900, 859, 836, 821, 809, 799, 792, 785, 779, 774, 743, 704]);
    row(32, TwoFiftySix, Systematic, [900, 871, 855, 844, 836, 830, 824, 820, 816, 813, 792, 766]);
    row(64, TwoFiftySix, Systematic, [900, 879, 868, 861, 855, 851, 847, 844, 842, 839, 825, 808]);
}

#[test]
fn expected_rank_at_twenty_percent_loss_matches_tables() {
    let row = |size, field, recoding, row| assert_row(size, field, 0.2, recoding, row);
    row(4, TwoFiftySix, Systematic, [800, 695, 633, 591, 560, 536, 515, 497, 482, 469, 390, 292]);
    row(8, TwoFiftySix, Systematic, [800, 723, 680, 652, 630, 613, 600, 588, 578, 569, 513, 447]);
    row(16, Two, Random, [789, 717, 675, 645, 623, 605, 589, 576, 565, 555, 489, 404]);
    row(16, Two, Systematic, [800, 728, 686, 657, 635, 617, 603, 590, 579, 569, 506, 426]);
    row(16, Sixteen, Systematic, [800, 744, 714, 694, 679, 667, 657, 649, 642, 636, 597, 552]);
    row(16, TwoFiftySix, Systematic, [800, 744, 715, 695, 680, 669, 659, 651, 644, 638, 600, 556]);
    row(32, TwoFiftySix, Systematic, [800, 760, 740, 726, 716, 708, 701, 696, 691, 687, 661, 630]);
    row(64, TwoFiftySix, Systematic, [800, 772, 757, 748, 741, 735, 731, 727, 724, 721, 703, 682]);
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
            assert!(difference.abs() <= 0.000_051, "{size}, GF({field}), {loss}: {}", ranks[9]);
        }
    }
}

#[test]
fn expected_rank_of_bursts_matches_simulation() {
    // Simulated with 6,000 generations: loss 10 %, mean burst 8, hops 1, 3, 6, 10.
    let hop = LossModel { loss: 0.1, burst_mean: 8.0 };
    let distributions = rank_distributions(16, TwoFiftySix, &[16; 10], &[hop; 10], Systematic);
    for (hop, simulated) in [(1, 0.905), (3, 0.755), (6, 0.597), (10, 0.464)] {
        let ranks = distributions[hop - 1].iter().zip(0_u32..);
        let mean = ranks.map(|(p, rank)| p * f64::from(rank)).sum::<f64>() / 16.0;
        assert!((mean - simulated).abs() < 0.015, "hop {hop}: {mean} != {simulated}");
    }
}

#[test]
fn rank_distributions_of_unequal_hops_sum_to_one() {
    let hops = [
        LossModel::independent(0.0),
        LossModel { loss: 0.3, burst_mean: 5.0 },
        LossModel::independent(0.05),
        LossModel::independent(1.0),
    ];
    for recoding in [Systematic, Random] {
        let distributions = rank_distributions(20, Four, &[20, 40, 10, 25], &hops, recoding);
        for distribution in &distributions {
            assert!((distribution.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        }
        assert!(distributions[2][11..].iter().all(|&p| p == 0.0), "ten packets, rank ten");
        assert!((distributions[3][0] - 1.0).abs() < 1e-12, "nothing passes the last hop");
    }
}

fn independent(loss: f64, hops: usize) -> Vec<LossModel> {
    vec![LossModel::independent(loss); hops]
}

#[test]
fn plan_without_loss_is_the_generation_itself() {
    for field in FieldOrder::ALL {
        for size in [1, 16, 256] {
            assert_eq!(plan(size, field, &independent(0.0, 10), 1e-6, 1024), size);
            assert_eq!(plan(size, field, &[], 1e-6, 1024), size);
        }
    }
}

#[test]
fn plan_of_one_symbol_is_repetition() {
    // One symbol over one hop fails when every packet is lost; GF(256) combinations are zero once
    // in 256, which one more packet outweighs only below 1e-4.
    assert_eq!(plan(1, TwoFiftySix, &independent(0.1, 1), 1.1e-2, 100), 2);
    assert_eq!(plan(1, TwoFiftySix, &independent(0.1, 1), 1e-3, 100), 4);
    // Ten hops each get a tenth of the target.
    let ten = plan(1, TwoFiftySix, &independent(0.1, 10), 1e-2, 100);
    assert_eq!(ten, plan(1, TwoFiftySix, &independent(0.1, 1), 1e-3, 100));
}

#[test]
fn plan_that_cannot_meet_its_target_is_the_maximum() {
    assert_eq!(plan(16, Sixteen, &independent(1.0, 1), 1e-4, 64), 64);
    assert_eq!(plan(16, Sixteen, &independent(0.9, 1), 1e-4, 64), 64);
    assert_eq!(plan(16, Sixteen, &independent(0.1, 1), 1e-4, 10), 10);
    assert_eq!(plan(256, Two, &independent(0.5, 3), 0.0, 3000), 3000);
}

#[test]
fn plan_beyond_one_window_agrees_with_the_chain() {
    let hops = independent(0.8, 2);
    let packets = plan(256, Four, &hops, 1e-3, 100_000);
    assert!(packets > 256 + WINDOW, "{packets} packets need a second window");
    let failure = |packets| {
        let distributions = rank_distributions(256, Four, &[packets], &hops[..1], Systematic);
        2.0 * (1.0 - distributions[0][256])
    };
    assert!(failure(packets) <= 1e-3 && failure(packets - 1) > 1e-3);
}

#[test]
fn plan_of_measured_nonsense_stays_in_range() {
    for loss in [f64::NAN, -1.0, 2.0, f64::INFINITY] {
        for burst_mean in [f64::NAN, -3.0, 0.0, f64::INFINITY, 1e300] {
            let packets = plan(32, Sixteen, &[LossModel { loss, burst_mean }], 1e-4, 200);
            assert!((32..=200).contains(&packets), "{loss}, {burst_mean}: {packets}");
        }
    }
    for target in [f64::NAN, -1.0, 0.0] {
        assert_eq!(plan(32, Sixteen, &independent(0.1, 2), target, 200), 200);
    }
    assert_eq!(plan(32, Sixteen, &independent(0.1, 2), f64::INFINITY, 200), 32);
}

#[test]
fn plan_grows_with_loss_burst_hops_and_shrinks_with_target_and_field() {
    let base = |loss, burst_mean, hops, target, field| {
        plan(32, field, &vec![LossModel { loss, burst_mean }; hops], target, 4096)
    };
    let rising = |label: &str, plans: &[usize]| {
        assert!(plans.is_sorted(), "{label}: {plans:?}");
        assert!(plans[0] < plans[plans.len() - 1], "{label} has no effect: {plans:?}");
    };
    rising("loss", &[0.0, 0.01, 0.05, 0.1, 0.2, 0.4].map(|x| base(x, 1.0, 4, 1e-4, Sixteen)));
    rising("burst", &[1.0, 1.5, 2.0, 4.0, 8.0, 16.0].map(|x| base(0.1, x, 4, 1e-4, Sixteen)));
    rising("hops", &[1, 2, 5, 10, 20].map(|x| base(0.1, 1.0, x, 1e-4, Sixteen)));
    rising("target", &[0.1, 1e-2, 1e-3, 1e-4, 1e-6].map(|x| base(0.1, 1.0, 4, x, Sixteen)));
    rising("field", &[TwoFiftySix, Sixteen, Four, Two].map(|x| base(0.1, 1.0, 4, 1e-4, x)));
}

#[test]
fn plan_for_the_largest_generation_is_fast() {
    let hops: Vec<_> = (0..10)
        .map(|hop| LossModel {
            loss: 0.1 + 0.01 * f64::from(hop),
            burst_mean: 1.0 + f64::from(hop),
        })
        .collect();
    let once = || {
        let start = std::time::Instant::now();
        assert!(plan(256, Sixteen, &hops, 1e-4, 1024) > 256);
        start.elapsed()
    };
    // The best of several, because the tests share the machine. A live change plans once, so a
    // tenth of a second is soon enough, and unoptimised builds under emulation meet it too.
    let best = (0..20).map(|_| once()).min().expect("twenty runs");
    println!("plan for 256 symbols over 10 hops: {best:?}");
    assert!(best.as_millis() < 100, "{best:?}");
}

#[test]
fn plan_with_repair_is_the_cheapest_by_exhaustion() {
    let lines = [
        vec![LossModel::independent(0.1); 4],
        vec![LossModel { loss: 0.1, burst_mean: 8.0 }; 4],
        vec![LossModel::independent(0.0)],
        vec![LossModel::independent(0.3), LossModel { loss: 0.02, burst_mean: 3.0 }],
    ];
    for hops in lines {
        for size in [1, 16, 64] {
            let cost = 3.0 * size as f64;
            let most = 4 * size;
            let (packets, failure) = plan_with_repair(size, FieldOrder::Sixteen, &hops, cost, most);
            let failure_at = |sent: usize| -> f64 {
                let one_hop = |hop: &LossModel| {
                    let ranks = rank_distributions(
                        size,
                        FieldOrder::Sixteen,
                        &[sent],
                        &[*hop],
                        Recoding::Systematic,
                    );
                    1.0 - ranks[0][size]
                };
                hops.iter().map(one_hop).sum::<f64>().min(1.0)
            };
            assert!((failure - failure_at(packets)).abs() < 1e-4, "{failure}");
            let price = |sent: usize| sent as f64 + cost * failure_at(sent);
            let cheapest = (size..=most).map(price).fold(f64::INFINITY, f64::min);
            assert!(price(packets) < cheapest + 0.01, "{packets} of {size} over {hops:?}");
        }
    }
}
