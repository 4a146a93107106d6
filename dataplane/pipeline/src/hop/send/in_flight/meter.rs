//! Delivery rate of a link, from the reports of a neighbour.

use crate::config::params::Nanos;
use crate::hop::rate::sample::{
    SAMPLE_MAX_NANOS, SAMPLE_NANOS, SAMPLE_PACKETS, SAMPLE_RUN_NANOS, SPARSE_NANOS, Sample,
};
use recoded_wire::link::LinkReport;

/// A link is interrupted while nothing arrives for this long and at most this part of the packets
/// does: what arrived says nothing of its rate. After an outage of 100 ms without a queue, the rate
/// once fell to a quarter, and took 150 ms to return. Slow links with overflowing queues and links
/// that carry in turns have such gaps, too. So a gap counts only if packets arrived for
/// `OUTAGE_APART` times as long since the last one.
const OUTAGE_NANOS: Nanos = 20_000_000;
const OUTAGE_PARTS: u32 = 4;
const OUTAGE_APART: u64 = 2;

/// A report, with the pauses before its newest packet and the send time of that packet.
#[derive(Copy, Clone, Debug)]
pub(super) struct Reported {
    pub report: LinkReport,
    pub pauses: u32,
    pub sent_at: Nanos,
    /// Queueing delay of that packet, and backlog of the neighbour.
    pub queue: Nanos,
}

/// The interval from one report to later ones.
#[derive(Copy, Clone, Debug)]
struct Span {
    from: Reported,
    /// The minimum queue since then, and the minimum backlog of the neighbour.
    least: (Nanos, Nanos),
}

impl Span {
    /// Starts at a report, with no queue seen yet.
    fn new(from: Reported) -> Self {
        Self { from, least: (Nanos::MAX, Nanos::MAX) }
    }

    fn see(&mut self, at: &Reported) {
        let (queue, backlog) = self.least;
        self.least = (queue.min(at.queue), backlog.min(at.report.backlog_nanos()));
    }

    /// The arrivals up to a report, if they span at least `least`.
    fn sample(&self, until: &Reported, least: Nanos) -> Option<Sample> {
        let (from, to) = (&self.from.report, &until.report);
        let nanos = arrived_between(from, to);
        let sent = to.latest.wrapping_sub(from.latest);
        let enough = if sent < SAMPLE_PACKETS { SPARSE_NANOS } else { least };
        if nanos < enough || sent == 0 {
            return None;
        }
        let (queue, backlog) = self.least;
        Some(Sample {
            bytes: to.bytes.wrapping_sub(from.bytes),
            packets: to.packets.wrapping_sub(from.packets),
            sent,
            nanos,
            took: until.sent_at.saturating_sub(self.from.sent_at),
            queue,
            backlog,
            is_limited: self.from.pauses == until.pauses,
            is_spread: false,
        })
    }
}

/// Delivery rate estimator.
#[derive(Debug, Default)]
pub(super) struct Meter {
    /// Since the last sample.
    whole: Option<Span>,
    /// Since then, or since the last pause.
    run: Option<Span>,
    newest: Option<Reported>,
    /// Send time of the first packet that arrived after the last outage.
    outage_until: Option<Nanos>,
}

impl Meter {
    /// Processes a report.
    pub(super) fn note(&mut self, at: Reported, round_trip: Nanos) -> Option<Sample> {
        let before = self.newest.replace(at);
        let (Some(whole), Some(run), Some(before)) = (&mut self.whole, &mut self.run, before)
        else {
            self.begin(at);
            return None;
        };
        if is_strange(&before.report, &at.report) || is_strange(&whole.from.report, &at.report) {
            self.begin(at);
            return None;
        }
        let gap = arrived_between(&before.report, &at.report);
        let carried = self.outage_until.map(|until| before.sent_at.saturating_sub(until));
        let is_apart = carried.is_none_or(|carried| carried >= OUTAGE_APART * gap);
        if is_apart && is_outage(&before.report, &at.report) {
            self.begin(at);
            self.outage_until = Some(at.sent_at);
            return None;
        }
        if at.pauses != before.pauses {
            // The arrivals between two pauses show the link rate, if they lasted long enough.
            let sample = run.sample(&before, SAMPLE_NANOS);
            *run = Span::new(at);
            if sample.is_some() {
                self.begin(at);
                return sample;
            }
        }
        whole.see(&at);
        run.see(&at);
        let sample = run
            .sample(&at, SAMPLE_NANOS.max(round_trip.min(SAMPLE_RUN_NANOS)))
            .or_else(|| whole.sample(&at, SAMPLE_NANOS.max(round_trip.min(SAMPLE_MAX_NANOS))));
        if sample.is_some() {
            self.begin(at);
        }
        sample
    }

    fn begin(&mut self, at: Reported) {
        (self.whole, self.run) = (Some(Span::new(at)), Some(Span::new(at)));
    }
}

/// Time between the newest arrivals of two reports.
fn arrived_between(from: &LinkReport, to: &LinkReport) -> Nanos {
    u64::from(to.arrived.wrapping_sub(from.arrived)) * 1000
}

/// Whether the link was interrupted between two reports.
fn is_outage(from: &LinkReport, to: &LinkReport) -> bool {
    let sent = to.latest.wrapping_sub(from.latest);
    let packets = to.packets.wrapping_sub(from.packets);
    arrived_between(from, to) > OUTAGE_NANOS
        && sent >= SAMPLE_PACKETS
        && packets.saturating_mul(OUTAGE_PARTS) < sent
}

/// Whether one report cannot follow another.
fn is_strange(from: &LinkReport, to: &LinkReport) -> bool {
    let sent = to.latest.wrapping_sub(from.latest);
    let packets = to.packets.wrapping_sub(from.packets);
    arrived_between(from, to) > 1 << 41 || sent > 1 << 20 || packets > sent.saturating_add(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use recoded_wire::header::{Flags, Header, PacketType};
    use recoded_wire::link::Missing;

    const HEADER: Header = Header {
        packet_type: PacketType::Link,
        flags: Flags(0),
        epoch: 0,
        shard: 0,
        flow: 0,
        link_sequence: 0,
        hop_index: 0,
    };

    /// A report that all packets up to `latest` arrived, the newest at `arrived_micros`.
    fn report(latest: u32, arrived_micros: u32) -> LinkReport {
        LinkReport {
            header: HEADER,
            from: 0,
            horizon: latest + 1,
            latest,
            arrived: arrived_micros,
            held: 0,
            backlog: 0,
            beyond: 0,
            bytes: 100,
            packets: latest + 1,
            missing: Missing::default(),
        }
    }

    /// Regression: bursts with pauses between them showed only the sent rate, not the link rate.
    #[test]
    fn what_comes_between_two_pauses_is_a_sample_by_itself() {
        let at = |packets: u32, arrived_ms: u32, sent_ms: u64, pauses: u32| Reported {
            report: LinkReport {
                horizon: packets,
                bytes: 1000 * packets,
                packets,
                ..report(packets, 1000 * arrived_ms)
            },
            pauses,
            sent_at: sent_ms * 1_000_000,
            queue: 0,
        };
        let mut meter = Meter::default();
        let mut note = |reported| meter.note(reported, 100_000_000);
        assert_eq!(note(at(0, 80, 75, 0)), None);
        // A burst of 200 packets sent within 5 ms and received within 15 ms.
        assert_eq!(note(at(10, 100, 95, 1)), None);
        assert_eq!(note(at(110, 107, 97, 1)), None);
        assert_eq!(note(at(210, 115, 100, 1)), None);
        let sample = note(at(220, 145, 140, 2)).expect("the burst is over");
        assert!(sample.is_limited && sample.is_stretched());
        let expected = (200, 200, 200_000, 15_000_000, 5_000_000);
        let Sample { packets, sent, bytes, nanos, took, .. } = sample;
        assert_eq!((packets, sent, bytes, nanos, took), expected);
    }

    /// A link of 1000 packets a second that is interrupted for `outage_ms`; the lowest delivery
    /// rate, in packets per second.
    fn lowest(outages_ms: &[u32], outage_ms: u32) -> f64 {
        let mut meter = Meter::default();
        let (mut packets, mut lowest) = (0, f64::MAX);
        let mut is_away = false;
        for ms in 0..2000 {
            is_away = outages_ms.iter().any(|from| (*from..from + outage_ms).contains(&ms));
            if is_away {
                continue;
            }
            packets += 1;
            let report = LinkReport { bytes: 0, packets, ..report(ms, 1000 * ms) };
            let at = Reported { report, pauses: 0, sent_at: u64::from(ms) * 1_000_000, queue: 0 };
            let sample = meter.note(at, 10_000_000);
            let rate = |sample: Sample| f64::from(sample.packets) * 1e9 / sample.nanos as f64;
            lowest = sample.map(rate).map_or(lowest, |rate| rate.min(lowest));
        }
        assert!(!is_away);
        lowest
    }

    /// Regression: after an outage of 100 ms, the rate was a quarter of the one before.
    #[test]
    fn arrivals_around_an_outage_are_no_rate_of_the_link() {
        for outage_ms in [50, 100, 300] {
            let lowest = lowest(&[500, 1500], outage_ms);
            assert!(lowest > 990.0, "{lowest} a second, {outage_ms} ms");
        }
    }

    /// Such gaps one after the other are a slow link that drops the excess, or one that carries in
    /// turns with others.
    #[test]
    fn link_with_gaps_alone_has_a_rate() {
        for (carries_ms, gap_ms) in [(1, 49), (12, 48), (25, 75), (30, 30)] {
            let period = carries_ms + gap_ms;
            let gaps: Vec<u32> = (0..1900 / period).map(|gap| carries_ms + period * gap).collect();
            let lowest = lowest(&gaps, gap_ms);
            let mean = 1000.0 * f64::from(carries_ms) / f64::from(period);
            assert!(lowest < 1.5 * mean, "{lowest} a second, {carries_ms} of {period} ms");
        }
    }
}
