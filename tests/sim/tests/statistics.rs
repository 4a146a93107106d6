//! Longer runs: measured rank compared with exact theory, hop by hop, and bounded memory.

use recoded_code::theory::LossModel;
use recoded_gf::FieldOrder;
use recoded_pipeline::params::{Recoding, Redundancy};
use recoded_sim::{Code, Link, Scenario, run};

/// Full generations, one packet per symbol, no repair: the model of theory.
fn bare(seed: u64, hops: usize, link: Link, generations: u32) -> Scenario {
    let size = 16;
    let mut scenario = Scenario::line(seed, hops, link).with(|node| {
        node.generation_size = size;
        node.symbol_bytes = 40;
        node.redundancy = Redundancy::Fixed(1.0);
        node.repair = false;
    });
    scenario.frames = 2048;
    scenario.traffic.bytes = 38..=38; // with its length, one symbol each
    scenario.traffic.packets = generations * size as u32;
    scenario.traffic.burst = size as u32;
    scenario
}

/// Checks that every hop's mean rank is within four standard errors, which are `error_scale` times
/// those of independent generations.
fn holds_theory(scenario: &Scenario, generations: u64, error_scale: f64) {
    println!("seed {}", scenario.seed);
    let outcome = run(scenario).expect("an invariant failed");
    for (hop, rank) in outcome.ranks(scenario).into_iter().enumerate() {
        let rank = rank.expect("no full generation was counted");
        assert!(rank.generations + 5 >= generations, "hop {}: {rank:?}", hop + 1);
        let errors = (rank.mean - rank.expected).abs() / (error_scale * rank.standard_error);
        assert!(errors < 4.0, "hop {}: {errors:.1} standard errors off: {rank:?}", hop + 1);
    }
}

#[test]
fn rank_matches_theory_over_independent_losses_in_every_field() {
    for (seed, field) in (100..).zip(FieldOrder::ALL) {
        let scenario = bare(seed, 10, Link::lossy(0.1), 1500).with(|node| node.field = field);
        holds_theory(&scenario, 1500, 1.0);
    }
}

#[test]
fn rank_matches_theory_over_twenty_hops_of_a_fifth_lost() {
    holds_theory(&bare(110, 20, Link::lossy(0.2), 800), 800, 1.0);
}

#[test]
fn rank_matches_theory_under_random_recoding_over_a_large_field() {
    let scenario = bare(111, 6, Link::lossy(0.1), 1500).with(|node| {
        // The source sends uncoded symbols, which theory's random recoding does not cover: over
        // GF(256) the difference is far too small to measure.
        (node.field, node.recoding) = (FieldOrder::TwoFiftySix, Recoding::Random);
    });
    holds_theory(&scenario, 1500, 1.0);
}

#[test]
fn rank_matches_theory_over_bursty_losses() {
    for (seed, burst_mean) in [(120, 2.0), (121, 4.0), (122, 8.0)] {
        let scenario = bare(seed, 5, Link::bursty(0.1, burst_mean), 4000);
        let scale = burst_scale(scenario.hops[0].down.loss, 16.0);
        holds_theory(&scenario, 4000, scale);
    }
}

/// Ratio of the standard error over generations to that of independent ones, because a burst can
/// span two generations: exact for the first hop, and an upper bound for later ones.
///
/// Losses `d` packets apart correlate by `memory^d`: `stream` sums that over all pairs, `within`
/// over those inside one generation.
fn burst_scale(loss: LossModel, size: f64) -> f64 {
    let leave = 1.0 / loss.burst_mean;
    let memory: f64 = 1.0 - leave - leave * loss.loss / (1.0 - loss.loss);
    let stream = (1.0 + memory) / (1.0 - memory);
    let within =
        stream - 2.0 * memory * (1.0 - memory.powf(size)) / (size * (1.0 - memory).powi(2));
    (stream / within).sqrt()
}

#[cfg(feature = "bats")]
#[test]
fn rank_of_batches_that_take_turns_matches_theory() {
    use recoded_pipeline::params::{BatsParams, FlowCode, Interleave, Profile};

    for (seed, depth) in [(125, 1), (126, 3)] {
        let scenario = bare(seed, 8, Link::lossy(0.1), 1500).with(|node| {
            node.adaptive = false;
            node.code = FlowCode::Bats(BatsParams {
                source_symbols: 96,
                profile: Profile::CyclicShift,
                generator_bits: 8,
                interleave: Interleave::Fixed(depth),
            });
        });
        holds_theory(&scenario, 1400, 1.0);
    }
}

/// Nothing but its combinations recovers losses: no packet returns to the source.
#[test]
fn open_loop_loses_no_more_than_a_tenth_of_a_percent_without_a_return_path() {
    for (seed, hops, burst_mean) in [(127, 1, 1.0), (128, 5, 1.0), (129, 3, 3.0)] {
        println!("seed {seed}");
        let mut scenario = Scenario::line(seed, hops, Link::bursty(0.03, burst_mean))
            .coded(Code::Stream)
            .with(|node| node.redundancy = Redundancy::Fixed(1.25));
        scenario.hops.iter_mut().for_each(|hop| hop.up = Link::lossy(1.0));
        scenario.traffic.bytes = 24..=57;
        scenario.traffic.packets = 20_000;
        let first = scenario.traffic.due(1000);
        scenario.promise.delivered = Some(first..recoded_pipeline::params::Nanos::MAX);
        // It does not wait for packets that no combination covers.
        scenario.promise.late_nanos = 0;
        // Missing packets come in groups: four times a tenth of a percent.
        scenario.promise.missing_max = 4 * 19;
        let outcome = run(&scenario).expect("an invariant failed");
        let overhead = outcome.overhead();
        assert!((overhead - 1.25).abs() < 0.01, "{overhead} packets per symbol");
    }
}

#[test]
fn rank_is_unmoved_by_delay_jitter_and_duplication() {
    let link = Link {
        delay_nanos: 2_000_000,
        jitter_nanos: 300_000,
        duplication: 0.05,
        ..Link::lossy(0.1)
    };
    holds_theory(&bare(130, 8, link, 1500), 1500, 1.0);
}

#[test]
fn memory_does_not_grow_with_traffic() {
    for code in Code::ALL {
        let peak = |packets: u32| {
            let mut scenario = Scenario::line(140, 3, Link::lossy(0.1)).coded(*code);
            scenario.frames = 1024;
            scenario.traffic.packets = packets;
            scenario.traffic.bytes = 24..=150;
            let measured = allocation_counter::measure(|| {
                run(&scenario).expect("an invariant failed");
            });
            measured.bytes_max
        };
        let (short, long) = (peak(2000), peak(10_000));
        assert!(long < short + short / 100, "{code:?}: {short} bytes at most, then {long}");
    }
}
