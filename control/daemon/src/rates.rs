//! Current rates of flows, and the time of their last packets, sampled once a second.
//!
//! Counters only increase, so a rate is the difference of two samples. A flow that changes into
//! another one starts over.

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
    /// Packets sent, and bytes of their UDP payloads.
    sent: (u64, u64),
    feedback: u64,
    /// Since when packets have been sent without feedback.
    unanswered_since: Option<Nanos>,
    rate: Rate,
}

/// Rates and times of a flow, from its samples.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub struct Rate {
    /// Mbit/s of IP packets read from a tunnel or delivered to one.
    pub goodput_mbit: Option<f64>,
    /// Packets a second sent to the next hops, and bytes of their UDP payloads.
    pub sent: Option<(f64, f64)>,
    /// When a sample last showed new coded packets.
    pub received_at: Option<Nanos>,
    /// When a sample last showed new feedback.
    pub heard_at: Option<Nanos>,
    /// How long packets have been sent without feedback; 0 if nothing is sent, or feedback arrives.
    pub unanswered: Nanos,
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

    /// Rates and times of a flow.
    pub fn of(&self, flow: u32) -> Rate {
        self.0.borrow().get(&flow).map(|sample| sample.rate).unwrap_or_default()
    }
}

impl Sample {
    fn next(before: Option<Sample>, at: Nanos, sum: &FlowCounters) -> Sample {
        let (bytes, received) = (sum.ingress_bytes + sum.delivered_bytes, sum.received);
        let mut rate = Rate::default();
        let sent = (sum.sent_packets, sum.sent_bytes);
        let went_on = |it: &Sample| {
            it.bytes <= bytes
                && it.received <= received
                && it.sent.0 <= sent.0
                && it.sent.1 <= sent.1
                && it.feedback <= sum.feedback
        };
        let before = before.filter(went_on);
        if received > before.map_or(0, |before| before.received) {
            rate.received_at = Some(at);
        } else {
            rate.received_at = before.and_then(|before| before.rate.received_at);
        }
        if let Some(before) = before.filter(|before| before.at < at) {
            let seconds = (at - before.at) as f64 / 1e9;
            let per_second = |now: u64, before: u64| (now - before) as f64 / seconds;
            rate.goodput_mbit = Some(per_second(bytes, before.bytes) * 8e-6);
            let (packets, payloads) = before.sent;
            rate.sent = Some((per_second(sent.0, packets), per_second(sent.1, payloads)));
        }
        let feedback = sum.feedback;
        let is_heard = feedback > before.map_or(0, |before| before.feedback);
        let is_sending = sent.0 > before.map_or(0, |before| before.sent.0);
        rate.heard_at = match before {
            _ if is_heard => Some(at),
            before => before.and_then(|before| before.rate.heard_at),
        };
        let since = before.and_then(|before| before.unanswered_since);
        let unanswered_since = (is_sending && !is_heard).then(|| since.unwrap_or(at));
        rate.unanswered = unanswered_since.map_or(0, |since| at.saturating_sub(since));
        Sample { at, bytes, received, sent, feedback, unanswered_since, rate }
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
                // Chosen so that packets a second equal Mbit/s.
                sent_packets: *delivered_bytes / 125_000,
                sent_bytes: *delivered_bytes / 500,
                ..FlowCounters::default()
            },
        };
        Observation { at, remainders: flows.iter().map(gone).collect(), ..Observation::default() }
    }

    #[test]
    fn rate_is_what_two_samples_differ_by_and_a_flow_that_is_gone_is_forgotten() {
        let rates = Rates::default();
        let rate = |goodput_mbit: Option<f64>, received_at| {
            let sent = goodput_mbit.map(|mbit| (mbit, 250.0 * mbit));
            Rate { goodput_mbit, sent, received_at, ..Rate::default() }
        };
        let of = |flow| Rate { unanswered: 0, ..rates.of(flow) };
        assert_eq!(of(1), Rate::default());
        rates.sample(&seen(SECOND, &[(1, 1_000_000, 5), (2, 0, 0)]));
        assert_eq!(of(1), rate(None, Some(SECOND)));
        assert_eq!(of(2), rate(None, None));
        rates.sample(&seen(3 * SECOND, &[(1, 2_000_000, 9), (2, 0, 0)]));
        assert_eq!(of(1), rate(Some(4.0), Some(3 * SECOND)));
        rates.sample(&seen(4 * SECOND, &[(1, 2_000_000, 9)]));
        assert_eq!(of(1), rate(Some(0.0), Some(3 * SECOND)));
        assert_eq!(of(2), Rate::default());
        rates.sample(&seen(5 * SECOND, &[(1, 7, 1)]));
        assert_eq!(of(1), rate(None, Some(5 * SECOND)), "its counters restarted");
    }

    #[test]
    fn what_is_sent_and_not_answered_is_known_by_its_time() {
        let rates = Rates::default();
        let look = |second, sent_packets, feedback| {
            let counters = FlowCounters { sent_packets, feedback, ..FlowCounters::default() };
            let remainders = vec![Remainder { flow: 1, counters }];
            let at = second * SECOND;
            rates.sample(&Observation { at, remainders, ..Observation::default() });
            let Rate { heard_at, unanswered, .. } = rates.of(1);
            (heard_at, unanswered / SECOND)
        };
        assert_eq!(look(1, 0, 0), (None, 0));
        assert_eq!(look(2, 10, 0), (None, 0));
        assert_eq!(look(3, 20, 0), (None, 1));
        assert_eq!(look(4, 30, 1), (Some(4 * SECOND), 0));
        assert_eq!(look(5, 30, 1), (Some(4 * SECOND), 0), "nothing is sent");
        assert_eq!(look(6, 40, 1), (Some(4 * SECOND), 0));
        assert_eq!(look(9, 50, 1), (Some(4 * SECOND), 3));
        assert_eq!(look(10, 50, 1), (Some(4 * SECOND), 0), "nothing is sent");
    }
}
