//! How fast flows are now, and when packets of them came last: sampled once a second.
//!
//! Counters only go up, so a rate is what two samples differ by. A flow that was changed into
//! another begins anew.

use crate::dataplane::Observation;
use recoded_pipeline::params::Nanos;
use recoded_pipeline::report::FlowCounters;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

/// How often flows are sampled.
pub const INTERVAL: Duration = Duration::from_secs(1);

/// Samples of all flows. Used by one thread.
#[derive(Debug, Default)]
pub struct Rates(RefCell<BTreeMap<u32, Sample>>);

#[derive(Copy, Clone, Debug)]
struct Sample {
    at: Nanos,
    bytes: u64,
    received: u64,
    rate: Rate,
}

/// What is known of a flow by its samples.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub struct Rate {
    /// Mbit/s of IP packets that were taken from a tunnel or delivered to one.
    pub goodput_mbit: Option<f64>,
    /// When coded packets were seen to have come last.
    pub received_at: Option<Nanos>,
}

impl Rates {
    /// Takes a sample.
    pub fn sample(&self, seen: &Observation) {
        let mut sums: BTreeMap<u32, FlowCounters> = BTreeMap::new();
        for report in seen.flows.iter().flatten() {
            *sums.entry(report.id).or_default() += &report.counters;
        }
        for gone in &seen.remainders {
            *sums.entry(gone.flow).or_default() += &gone.counters;
        }
        let mut samples = self.0.borrow_mut();
        samples.retain(|flow, _| sums.contains_key(flow));
        for (flow, sum) in sums {
            let before = samples.get(&flow).copied();
            samples.insert(flow, Sample::next(before, seen.at, &sum));
        }
    }

    /// What is known of a flow.
    pub fn of(&self, flow: u32) -> Rate {
        self.0.borrow().get(&flow).map(|sample| sample.rate).unwrap_or_default()
    }
}

impl Sample {
    fn next(before: Option<Sample>, at: Nanos, sum: &FlowCounters) -> Sample {
        let (bytes, received) = (sum.ingress_bytes + sum.delivered_bytes, sum.received);
        let mut rate = Rate::default();
        let before = before.filter(|it| it.bytes <= bytes && it.received <= received);
        if received > before.map_or(0, |before| before.received) {
            rate.received_at = Some(at);
        } else {
            rate.received_at = before.and_then(|before| before.rate.received_at);
        }
        if let Some(before) = before.filter(|before| before.at < at) {
            let seconds = (at - before.at) as f64 / 1e9;
            rate.goodput_mbit = Some((bytes - before.bytes) as f64 * 8e-6 / seconds);
        }
        Sample { at, bytes, received, rate }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use recoded_pipeline::report::Remainder;

    const SECOND: Nanos = 1_000_000_000;

    fn seen(at: Nanos, flows: &[(u32, u64, u64)]) -> Observation {
        let gone = |(flow, delivered_bytes, received): &(u32, u64, u64)| Remainder {
            flow: *flow,
            counters: FlowCounters {
                delivered_bytes: *delivered_bytes,
                received: *received,
                ..FlowCounters::default()
            },
        };
        Observation { at, remainders: flows.iter().map(gone).collect(), ..Observation::default() }
    }

    #[test]
    fn rate_is_what_two_samples_differ_by_and_a_flow_that_is_gone_is_forgotten() {
        let rates = Rates::default();
        let rate = |goodput_mbit, received_at| Rate { goodput_mbit, received_at };
        assert_eq!(rates.of(1), Rate::default());
        rates.sample(&seen(SECOND, &[(1, 1_000_000, 5), (2, 0, 0)]));
        assert_eq!(rates.of(1), rate(None, Some(SECOND)));
        assert_eq!(rates.of(2), rate(None, None));
        rates.sample(&seen(3 * SECOND, &[(1, 2_000_000, 9), (2, 0, 0)]));
        assert_eq!(rates.of(1), rate(Some(4.0), Some(3 * SECOND)));
        rates.sample(&seen(4 * SECOND, &[(1, 2_000_000, 9)]));
        assert_eq!(rates.of(1), rate(Some(0.0), Some(3 * SECOND)));
        assert_eq!(rates.of(2), Rate::default());
        rates.sample(&seen(5 * SECOND, &[(1, 7, 1)]));
        assert_eq!(rates.of(1), rate(None, Some(5 * SECOND)), "it began anew");
    }
}
