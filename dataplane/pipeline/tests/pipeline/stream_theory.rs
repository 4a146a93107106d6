//! Streams in virtual time, compared with theory.

use crate::timed::{Line, Link, Load, MILLI, SECOND};
use recoded_code::theory::LossModel;
use recoded_code::theory::stream::{Delay, StreamHop, StreamProfile, delays};
use recoded_pipeline::params::{FlowCode, StreamParams};

/// 100 Mbit/s of datagrams of 1300 bytes, a third of a link's capacity.
const RATE: f64 = 9600.0;

/// Time that such a packet takes on a link.
const ON_LINK_NANOS: u64 = 37_000;

/// One percentage point: of packets per symbol, and of symbols that arrived.
const POINT: f64 = 0.01;

/// A line, and its measurements.
struct Measured {
    /// Packets per symbol on each link.
    packets: Vec<f64>,
    /// Delay of symbols beyond propagation, in seconds.
    late: Vec<f64>,
}

#[derive(Copy, Clone, Debug)]
struct Case {
    hops: usize,
    loss: f64,
    burst: f64,
    round_trip_millis: u64,
    ordered: bool,
}

impl Case {
    fn new(hops: usize, loss: f64, round_trip_millis: u64) -> Case {
        Case { hops, loss, burst: 1.0, round_trip_millis, ordered: false }
    }

    fn link(&self) -> Link {
        let delay = self.round_trip_millis * MILLI / 2;
        Link { burst: self.burst, delay, ..Link::new(self.loss, 0) }
    }

    /// One of its hops, in theory.
    fn hop(&self) -> StreamHop {
        let model = LossModel { loss: self.loss, burst_mean: self.burst };
        let link = self.link();
        // A report takes the time of a packet on the link, plus the wake-up of the worker.
        let round_trip = (2 * link.delay + 100_000) as f64 / 1e9;
        StreamHop::planned(model, round_trip, RATE, StreamProfile::Balanced)
    }

    fn measure(&self, seconds: u64) -> Measured {
        let load = Load { bytes: 1300, rate: Some(RATE), ordered: self.ordered };
        let link = self.link();
        let mut line = Line::new(&vec![link; self.hops], load, 1);
        line.run(4 * SECOND);
        let (since, before) = (line.now, line.flow(0).counters.source_symbols);
        let sent =
            |line: &Line| -> Vec<u64> { (0..self.hops).map(|hop| line.sent(hop).0).collect() };
        let sent_before = sent(&line);
        line.run(seconds * SECOND);
        let symbols = (line.flow(0).counters.source_symbols - before) as f64;
        let sent_after = sent(&line).into_iter().zip(sent_before);
        let way = self.hops as u64 * (link.delay + ON_LINK_NANOS);
        let recent = line.delivered.iter().filter(|packet| packet.at >= since);
        Measured {
            packets: sent_after.map(|(after, before)| (after - before) as f64 / symbols).collect(),
            late: recent.map(|packet| (packet.took as f64 - way as f64) / 1e9).collect(),
        }
    }

    /// Distance between a measured delay distribution and theory: the share of symbols that arrived
    /// by some time, compared with theory's value 0.3 ms and a twentieth of a round trip before or
    /// after.
    fn distance(&self, late: &[f64], theory: &Delay) -> f64 {
        let slack = 0.3e-3 + 0.05e-3 * self.round_trip_millis as f64;
        let off = |at: f64| {
            let came = late.iter().filter(|late| **late <= at).count() as f64 / late.len() as f64;
            f64::max(came - theory.within(at + slack), theory.within(at - slack) - came)
        };
        let step = f64::max(self.round_trip_millis as f64, 2.0) / 40.0 * 1e-3;
        (1..400).map(|steps| off(f64::from(steps) * step)).fold(0.0, f64::max)
    }

    /// Compares packets on every link and the distribution of delays with theory.
    fn check(&self, seconds: u64, points_of_delay: f64) {
        let (hop, measured) = (self.hop(), self.measure(seconds));
        let mut theory = delays(&vec![hop; self.hops]).pop().expect("a hop");
        if self.ordered {
            theory = theory.in_order(RATE);
        }
        let mean = measured.late.iter().sum::<f64>() / measured.late.len() as f64;
        let distance = self.distance(&measured.late, &theory);
        let expected = hop.packets();
        println!(
            "{self:?}: packets {:.4?}, theory {expected:.4}; mean {:.2} ms, theory {:.2}; p99 in \
             theory {:.1}; {distance:.4} apart",
            measured.packets,
            mean * 1e3,
            theory.mean() * 1e3,
            theory.quantile(0.99) * 1e3,
        );
        for packets in measured.packets {
            assert!((packets - expected).abs() < POINT, "{packets}, theory {expected}");
        }
        assert!(distance < points_of_delay * POINT, "{distance}");
        let is_near = (mean - theory.mean()).abs() < 0.2 * theory.mean() + 0.1e-3;
        assert!(is_near || points_of_delay > 1.0, "{mean} s, theory {}", theory.mean());
    }
}

#[test]
fn short_round_trips_are_as_theory_has_them() {
    for (hops, loss) in [(1, 0.01), (1, 0.2), (4, 0.1), (6, 0.05)] {
        Case::new(hops, loss, 1).check(4, 1.0);
    }
    Case { ordered: true, ..Case::new(4, 0.1, 1) }.check(4, 1.0);
}

#[test]
fn combinations_over_long_round_trips_are_as_theory_has_them() {
    for (hops, loss, round_trip_millis) in
        [(3, 0.03, 20), (4, 0.1, 20), (6, 0.2, 20), (4, 0.1, 100)]
    {
        Case::new(hops, loss, round_trip_millis).check(8, 1.0);
    }
}

/// The source reports its plan: with it, theory gives the packets per symbol that were sent, also
/// for sparse traffic, interactive flows, and changing traffic.
#[test]
fn packets_are_what_the_plan_of_the_source_takes() {
    let bulk = Load { bytes: 1300, rate: Some(RATE), ordered: false };
    let load = |rate| Load { bytes: 200, rate: Some(rate), ..bulk };
    for (profile, loads) in [
        (StreamProfile::Balanced, &[bulk][..]),
        (StreamProfile::Balanced, &[load(250.0)]),
        (StreamProfile::Balanced, &[load(50.0)]),
        (StreamProfile::Interactive, &[load(1000.0)]),
        (StreamProfile::Interactive, &[load(250.0)]),
        (StreamProfile::Balanced, &[load(1000.0), Load { rate: None, ..bulk }]),
    ] {
        let mut line = Line::new(&[Link::new(0.1, 10); 2], loads[0], 1);
        line.change_source(|params| {
            params.code = FlowCode::Stream(StreamParams { profile, ..StreamParams::new(32_768) });
        });
        for load in loads {
            line.load = *load;
            // Sparse traffic needs longer for enough packets.
            line.run(if load.rate.is_some_and(|rate| rate < 500.0) { 20 } else { 4 } * SECOND);
        }
        let flow = line.flow(0);
        let hop = flow.next_hops[0];
        let heard = hop.heard.expect("a report");
        let round_trip = heard.round_trip_nanos as f64 / 1e9;
        let (share, rate) = (hop.planned.share(), hop.planned.symbols_per_second);
        let model = LossModel { loss: 0.1, burst_mean: 1.0 };
        let expected = StreamHop::new(model, round_trip, rate, share).packets();
        let counters = &flow.counters;
        let sent = counters.sent_systematic + counters.sent_coded + counters.sent_repair;
        let packets = sent as f64 / counters.source_symbols as f64;
        println!("{profile:?}, {loads:?}: {packets:.3}, theory {expected:.3}");
        assert!((packets - expected).abs() < 0.03 * expected, "{packets}, theory {expected}");
    }
}

#[test]
fn bursts_are_as_theory_has_them() {
    for (hops, round_trip_millis) in [(2, 20), (3, 100)] {
        // Combinations that barely span the bursts: symbols beyond them are modelled roughly.
        Case { burst: 8.0, ..Case::new(hops, 0.1, round_trip_millis) }.check(12, 4.0);
    }
    // Consecutive lost reports are not modelled.
    Case { burst: 8.0, ..Case::new(1, 0.1, 1) }.check(12, 5.0);
}
