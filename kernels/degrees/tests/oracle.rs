//! The optimiser against values computed independently of it (another language, the HiGHS solver).

#![forbid(unsafe_code)]

use recoded_code::theory::{Hop, Recoding, rank_distributions};
use recoded_degrees::{Optimum, Problem, optimise};
use recoded_gf::FieldOrder;

/// Ranks after `hops` hops that lose `loss`, every node sending a batch's size.
fn ranks(size: usize, loss: f64, hops: usize) -> Vec<f64> {
    let line = vec![Hop::independent(loss); hops];
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
    // Loss, batch size, hop; mean rank, efficiency, mean degree. The table takes the generators'
    // field as infinite, which costs 0.0003 to 0.0007 of the efficiency.
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
