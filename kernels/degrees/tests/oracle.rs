//! The optimiser against values computed independently of it (another language, the HiGHS solver).

#![forbid(unsafe_code)]

use recoded_code::theory::{LossModel, Recoding, rank_distributions};
use recoded_degrees::{OptimiseError, Optimum, Problem, optimise, theta};
use recoded_gf::FieldOrder;

/// Ranks after `hops` hops that lose `loss`, every node sending a batch's size.
fn ranks(size: usize, loss: f64, hops: usize) -> Vec<f64> {
    let line = vec![LossModel::independent(loss); hops];
    let sent = vec![size; hops];
    rank_distributions(size, FieldOrder::TwoFiftySix, &sent, &line, Recoding::Random)
        .pop()
        .expect("at least one hop")
}

fn problem(ranks: &[f64]) -> Problem<'_> {
    let generator_field = FieldOrder::TwoFiftySix;
    Problem { ranks, generator_field, undecoded: 0.01, degree_max: None }
}

fn solved(size: usize, loss: f64, hops: usize) -> Optimum {
    optimise(&problem(&ranks(size, loss, hops))).expect("a well-formed problem is solved")
}

#[test]
fn efficiency_and_degree_match_the_table() {
    // Loss, batch size, hop; mean rank, efficiency, mean degree. The table assumes an infinite
    // generator field, which costs 0.0003 to 0.0007 of the efficiency.
    for (loss, size, hops, rank, efficiency, degree) in [
        (0.1, 8, 10, 5.75, 0.9973, 27.9),
        (0.1, 16, 1, 14.40, 0.9988, 68.2),
        (0.1, 16, 10, 12.39, 0.9986, 58.7),
        (0.1, 32, 10, 26.01, 0.9992, 121.9),
        (0.2, 16, 10, 10.21, 0.9981, 48.7),
    ] {
        let found = solved(size, loss, hops);
        let case = format!("loss {loss}, batch size {size}, hop {hops}");
        println!(
            "{case}: rank {:.3}, theta {:.4}, efficiency {:.5}, mean degree {:.2}, {} degrees",
            found.expected_rank,
            found.theta,
            found.efficiency,
            found.mean_degree,
            found.distribution.len()
        );
        assert!((found.expected_rank - rank).abs() < 0.006, "{case}: {}", found.expected_rank);
        assert!((found.efficiency - efficiency).abs() < 0.001, "{case}: {}", found.efficiency);
        assert!((found.mean_degree - degree).abs() < 1.0, "{case}: {}", found.mean_degree);
        assert!(found.efficiency < 1.0, "{case}: more than arrives cannot be decoded");
        let total: f64 = found.distribution.iter().map(|(_, weight)| weight).sum();
        assert!((total - 1.0).abs() < 1e-12, "{case}: {total}");
        assert!(found.distribution.is_sorted_by(|a, b| a.0 < b.0), "{case}");
    }
}

#[test]
fn batches_that_never_arrive_scale_theta_and_change_nothing_else() {
    let mut ranks = ranks(8, 0.1, 4);
    let all = optimise(&problem(&ranks)).expect("it is solved");
    let arrived: f64 = ranks.iter().sum::<f64>() - ranks[0];
    ranks[0] += 1e9 * arrived;
    let few = optimise(&problem(&ranks)).expect("it is solved");
    assert_eq!(few.distribution, all.distribution);
    assert!((few.theta * 1e9 / all.theta - 1.0).abs() < 1e-6, "{}", few.theta);
    assert!((few.efficiency - all.efficiency).abs() < 1e-6, "{}", few.efficiency);
}

#[test]
fn no_other_distribution_is_better() {
    let ranks = ranks(8, 0.1, 10);
    let capped = Problem { degree_max: Some(64), undecoded: 0.05, ..problem(&ranks) };
    let best = optimise(&capped).expect("it is solved");
    // Moving weight from any degree to any other gains nothing beyond the grid's precision.
    for &(from, weight) in &best.distribution {
        for to in 1..=64 {
            let mut moved = best.distribution.clone();
            let less = 0.05 * weight;
            moved.iter_mut().filter(|entry| entry.0 == from).for_each(|entry| entry.1 -= less);
            moved.push((to, less));
            moved.sort_by_key(|entry| entry.0);
            let other = theta(&capped, &moved).expect("well-formed");
            assert!(other <= best.theta * 1.0001, "{from} -> {to}: {other} > {}", best.theta);
        }
    }
}

#[test]
fn every_batch_size_field_and_extreme_histogram_is_solved() {
    for size in [1, 2, 3, 8, 128] {
        for generator_field in [FieldOrder::Two, FieldOrder::TwoFiftySix] {
            let only = |rank: usize| {
                let mut ranks = vec![0.0; size + 1];
                ranks[rank] = 3.0;
                ranks
            };
            for ranks in [only(1), only(size), vec![1.0; size + 1]] {
                for (undecoded, degree_max) in [(0.01, Some(300)), (0.5, None), (0.1, Some(1))] {
                    let problem = Problem { ranks: &ranks, generator_field, undecoded, degree_max };
                    let found = optimise(&problem);
                    let found = found.unwrap_or_else(|error| panic!("{problem:?}: {error}"));
                    assert!(found.theta > 0.0 && found.efficiency < 1.0, "{problem:?}: {found:?}");
                    assert!(
                        found
                            .distribution
                            .last()
                            .is_some_and(|last| last.0 <= problem.degree_max())
                    );
                }
            }
        }
    }
}

#[test]
fn malformed_problems_are_refused_with_their_values() {
    let ranks = [1.0, 2.0, 3.0];
    let good = problem(&ranks);
    let refused = |problem: Problem<'_>| optimise(&problem).expect_err("it is malformed");
    assert_eq!(refused(Problem { ranks: &[1.0], ..good }), OptimiseError::BatchSize { ranks: 1 });
    let long = [1.0; 130];
    assert_eq!(refused(Problem { ranks: &long, ..good }), OptimiseError::BatchSize { ranks: 130 });
    let negative = OptimiseError::Count { rank: 1, count: -0.5 };
    assert_eq!(refused(Problem { ranks: &[1.0, -0.5], ..good }), negative);
    assert_eq!(refused(Problem { ranks: &[9.0, 0.0], ..good }), OptimiseError::NoRank);
    let undecoded = OptimiseError::Undecoded { undecoded: 0.6 };
    assert_eq!(refused(Problem { undecoded: 0.6, ..good }), undecoded);
    let degree_max = OptimiseError::DegreeMax { degree_max: 0 };
    assert_eq!(refused(Problem { degree_max: Some(0), ..good }), degree_max);
    assert!(matches!(
        refused(Problem { undecoded: f64::NAN, ..good }),
        OptimiseError::Undecoded { .. }
    ));
}
