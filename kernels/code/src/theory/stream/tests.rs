//! Results known by hand. `dataplane/pipeline/tests/pipeline/stream_theory.rs` compares the
//! pipeline with theory.

use super::StreamProfile::Balanced;
use super::{Delay, Plan, StreamHop, Traffic, delays};
use crate::theory::LossModel;

const LOSSES: [f64; 4] = [0.01, 0.05, 0.1, 0.2];

#[test]
fn sending_again_takes_what_the_losses_take_whatever_the_bursts() {
    for loss in LOSSES {
        for burst_mean in [1.0, 8.0] {
            let hop = StreamHop::new(LossModel { loss, burst_mean }, 0.02, 9600.0, 0.0);
            let packets = hop.packets();
            assert!((packets - 1.0 / (1.0 - loss)).abs() < 1e-9, "{packets} at {loss}");
        }
    }
}

#[test]
fn combinations_above_the_losses_are_all_that_is_added() {
    for loss in LOSSES {
        let model = LossModel::independent(loss);
        let rho = Plan::new(model, Traffic::steady(9600.0), 0.1, Balanced).rho;
        assert!(rho > loss / (1.0 - loss));
        let packets = StreamHop::planned(model, 0.1, 9600.0, Balanced).packets();
        assert!((packets - 1.0 - rho).abs() < 1e-6, "{packets} at {loss}");
    }
}

/// Four hops of 10 %: a negative binomial number of turns, 0 with probability 0.9^4.
#[test]
fn turns_of_all_hops_are_a_negative_binomial_number() {
    let hop = StreamHop::new(LossModel::independent(0.1), 0.1, 9600.0, 0.0);
    let path = delays(&[hop; 4]).pop().expect("four hops");
    for (turns, sum) in [(0.0, 0.6561), (1.0, 0.918_54), (2.0, 0.984_15), (3.0, 0.997_272)] {
        let within = path.within(0.05 + 0.1015 * turns);
        assert!((within - sum).abs() < 1e-3, "{within} within {turns} turns");
    }
    let (mean, turn) = (path.mean(), hop.turn().mean());
    assert!((mean - 4.0 / 9.0 * turn).abs() < 1e-4, "{mean}, {turn}");
    assert!((0.3..0.31).contains(&path.quantile(0.99)), "{}", path.quantile(0.99));
}

/// Over a long round trip bursts are over when a symbol is retransmitted; over a short one they may
/// not be, and then fewer are lost at first.
#[test]
fn bursts_outlast_short_round_trips_only() {
    let model = LossModel { loss: 0.1, burst_mean: 8.0 };
    let at_once = |round_trip| StreamHop::new(model, round_trip, 9600.0, 0.0).delay().within(0.0);
    assert!((at_once(0.1) - 0.9).abs() < 1e-6);
    assert!((0.901..0.94).contains(&at_once(0.000_5)), "{}", at_once(0.000_5));
}

/// A symbol that waits for an earlier one always has one before it: the wait in order is longer,
/// and no longer than the longest.
#[test]
fn order_takes_longer() {
    let hop = StreamHop::new(LossModel::independent(0.1), 0.02, 9600.0, 0.0);
    let alone = hop.delay();
    let ordered = alone.in_order(9600.0);
    assert!((ordered.within(10.0) - 1.0).abs() < 1e-6);
    assert!(ordered.mean() > 4.0 * alone.mean());
    // Of 200 symbols in a turn some take two turns, and few three.
    assert!((0.03..0.07).contains(&ordered.quantile(0.9)), "{}", ordered.quantile(0.9));
    assert_eq!(Delay::none().in_order(9600.0).mean(), 0.0);
}

#[test]
fn distributions_are_whole() {
    for loss in LOSSES {
        for burst_mean in [1.0, 8.0] {
            for round_trip in [0.001, 0.02, 0.1] {
                let model = LossModel { loss, burst_mean };
                let hop = StreamHop::planned(model, round_trip, 9600.0, Balanced);
                let sum = hop.delay().within(1e3);
                assert!((sum - 1.0).abs() < 1e-4, "{sum} of {hop:?}");
            }
        }
    }
}

#[test]
fn nonsense_has_an_answer() {
    for odd in [f64::NAN, f64::INFINITY, -1.0, 0.0, 1.0] {
        let model = LossModel { loss: odd, burst_mean: odd };
        let hop = StreamHop::new(model, odd.min(0.1), odd, odd);
        assert!(hop.packets().is_finite(), "{hop:?}");
        assert!(Plan::new(model, Traffic::steady(odd), odd, Balanced).rho.is_finite());
    }
}
