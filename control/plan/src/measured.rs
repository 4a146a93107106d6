//! Results of a measurement: the JSON of `recodectl plan`, which also reads it back to join several
//! hops. Input may be edited by hand or forged, and is checked.

use serde::{Deserialize, Serialize};

/// One hop, in both directions.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// Address of the near end.
    pub from: String,
    /// Interface of the near end.
    #[serde(default)]
    pub interface: Option<String>,
    /// Address of the far end.
    pub to: String,
    /// From the near end to the far end.
    pub there: OneWayMeasurement,
    /// From the far end to the near end.
    pub back: OneWayMeasurement,
    /// Unloaded round trip.
    pub round_trip: RoundTrip,
    /// Limitations of the figures.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// One direction.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct OneWayMeasurement {
    /// Share of packets lost.
    pub loss: f64,
    /// Its standard deviation.
    pub loss_deviation: f64,
    /// Number of packets in the sample.
    pub packets: u64,
    /// Packets lost.
    pub lost: u64,
    /// Send rate of the sample, Mbit/s.
    pub measured_at_mbit: f64,
    /// Mean number of consecutive losses.
    pub burst_mean: f64,
    /// Gilbert-Elliott: probability of a loss after a packet that arrived.
    pub good_to_bad: f64,
    /// The same: probability of an arrival after a loss.
    pub bad_to_good: f64,
    /// Runs of losses of length 1, 2, to 4, 8, 16, 32, 64, and longer.
    pub runs: [u64; 8],
    /// Highest rate at which no queue grows, Mbit/s with Ethernet, IP and UDP headers.
    pub rate_mbit: f64,
    /// The path may carry more: a limit was reached.
    pub rate_is_least: bool,
    /// Longest queueing delay of the path, milliseconds.
    pub queue_ms: f64,
    /// The queue may be longer: it was not filled.
    pub queue_is_least: bool,
    /// Share of packets that arrived after one that was sent later.
    pub reordered: f64,
    /// Share of packets that arrived twice.
    pub duplicated: f64,
    /// Largest IP packet that arrives.
    pub mtu: u16,
}

/// Round trips of small packets, milliseconds.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RoundTrip {
    /// Least.
    pub min_ms: f64,
    /// Median.
    pub median_ms: f64,
    /// 99 % quantile.
    pub p99_ms: f64,
    /// Number of answers in the sample.
    pub answers: u64,
}

/// An impossible value.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[error("{key} = {value} is out of range: {rule}")]
pub struct RangeError {
    /// Its key.
    pub key: &'static str,
    /// The value.
    pub value: f64,
    /// The rule.
    pub rule: &'static str,
}

impl Measured {
    /// Refuses impossible values.
    ///
    /// # Errors
    /// The first impossible value.
    pub fn check(&self) -> Result<(), RangeError> {
        for way in [&self.there, &self.back] {
            for (key, value) in
                [("loss", way.loss), ("reordered", way.reordered), ("duplicated", way.duplicated)]
            {
                within(key, value, 0.0, 1.0, "a share is 0 to 1")?;
            }
            within("burst_mean", way.burst_mean, 1.0, 1e6, "a mean burst is 1 to 1e6 packets")?;
            within("rate_mbit", way.rate_mbit, 1e-3, 1e6, "a rate is 0.001 to 1e6 Mbit/s")?;
            within("queue_ms", way.queue_ms, 0.0, 1e5, "a queue is 0 to 1e5 ms")?;
            let mtu = f64::from(way.mtu);
            within("mtu", mtu, 68.0, 65_535.0, "an MTU is 68 to 65535 bytes")?;
        }
        let RoundTrip { min_ms, median_ms, p99_ms, .. } = self.round_trip;
        for (key, value) in [("min_ms", min_ms), ("median_ms", median_ms), ("p99_ms", p99_ms)] {
            within(key, value, 0.0, 1e5, "a round trip is 0 to 1e5 ms")?;
        }
        Ok(())
    }
}

fn within(
    key: &'static str,
    value: f64,
    least: f64,
    most: f64,
    rule: &'static str,
) -> Result<(), RangeError> {
    let is_in = (least..=most).contains(&value);
    if is_in { Ok(()) } else { Err(RangeError { key, value, rule }) }
}

/// Losses of valid trains, and the channel parameters that follow from them.
#[derive(Copy, Clone, Default, Debug)]
pub struct Sums {
    packets: u64,
    lost: u64,
    runs: u64,
    runs_by_length: [u64; 8],
    overtaken: u64,
    duplicates: u64,
}

impl Sums {
    /// Adds a train.
    pub fn add(&mut self, summary: &crate::summary::Summary) {
        self.packets += u64::from(summary.sent);
        self.lost += u64::from(summary.lost());
        self.runs += u64::from(summary.runs);
        self.overtaken += u64::from(summary.overtaken);
        self.duplicates += u64::from(summary.duplicates);
        for (sum, more) in self.runs_by_length.iter_mut().zip(summary.runs_by_length) {
            *sum += u64::from(more);
        }
    }

    /// Packets so far.
    #[must_use]
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Loss-related results for a direction. The two-state chain that loses everything in one state
    /// and nothing in the other has two parameters; their maximum likelihood estimates follow from
    /// the share lost and the mean burst.
    #[must_use]
    pub fn way(&self) -> OneWayMeasurement {
        let (packets, lost) = (self.packets.max(1) as f64, self.lost as f64);
        let loss = lost / packets;
        let burst_mean = if self.runs > 0 { lost / self.runs as f64 } else { 1.0 };
        let came = packets - lost;
        let good_to_bad = if came > 0.0 { (self.runs as f64 / came).min(1.0) } else { 1.0 };
        // Correlated losses are fewer independent observations.
        let correlation = (1.0 - good_to_bad - burst_mean.recip()).clamp(0.0, 0.999);
        let spread = (1.0 + correlation) / (1.0 - correlation);
        OneWayMeasurement {
            loss,
            loss_deviation: (loss * (1.0 - loss) * spread / packets).sqrt(),
            packets: self.packets,
            lost: self.lost,
            measured_at_mbit: 0.0,
            burst_mean,
            good_to_bad,
            bad_to_good: burst_mean.recip(),
            runs: self.runs_by_length,
            rate_mbit: 0.0,
            rate_is_least: true,
            queue_ms: 0.0,
            queue_is_least: true,
            reordered: (self.overtaken as f64 / packets).min(1.0),
            duplicated: (self.duplicates as f64 / packets).min(1.0),
            mtu: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::Arrivals;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    /// Trains over a channel of two states.
    fn sums(loss: f64, burst: f64, trains: u32, seed: u64) -> Sums {
        let mut random = SmallRng::seed_from_u64(seed);
        let (leave, enter) = (1.0 / burst, loss / burst / (1.0 - loss));
        let (mut sums, mut bad) = (Sums::default(), random.random_bool(loss));
        let mut arrivals = Arrivals::default();
        for train in 0..trains {
            arrivals.begin(train);
            for number in 0..3000_u32 {
                bad = if bad { !random.random_bool(leave) } else { random.random_bool(enter) };
                if !bad {
                    arrivals.note(number, 0, 20, 0);
                }
            }
            sums.add(&arrivals.summary(3000));
        }
        sums
    }

    #[test]
    fn losses_and_bursts_of_known_sequences_are_found() {
        for (loss, burst) in
            [(0.001, 1.001), (0.1, 1.0 / 0.9), (0.02, 3.0), (0.1, 8.0), (0.3, 20.0)]
        {
            for seed in 0..4 {
                let way = sums(loss, burst, 20, seed).way();
                let off = (way.loss - loss).abs();
                // The deviation itself is an estimate.
                assert!(off < 4.5 * way.loss_deviation, "{way:?} of {loss}, {burst}");
                let runs = way.lost as f64 / burst;
                let tolerance = 4.5 * burst / runs.sqrt();
                assert!((way.burst_mean - burst).abs() < tolerance, "{way:?} of {loss}, {burst}");
                let stays = way.good_to_bad / (way.good_to_bad + way.bad_to_good);
                assert!((stays - way.loss).abs() < 0.02 * loss + 1e-4, "{way:?}");
            }
        }
    }

    #[test]
    fn nothing_lost_has_no_bursts() {
        let way = sums(0.0, 1.0, 1, 0).way();
        assert_eq!((way.loss, way.burst_mean, way.lost), (0.0, 1.0, 0));
        assert_eq!(Sums::default().way().loss, 0.0);
    }

    #[test]
    fn figures_that_cannot_be_are_refused() {
        let way = OneWayMeasurement { rate_mbit: 100.0, mtu: 1500, ..Sums::default().way() };
        let round_trip = RoundTrip { min_ms: 1.0, median_ms: 1.0, p99_ms: 2.0, answers: 9 };
        let good = Measured {
            from: "a".into(),
            interface: None,
            to: "b".into(),
            there: way.clone(),
            back: way,
            round_trip,
            notes: Vec::new(),
        };
        assert_eq!(good.check(), Ok(()));
        for spoil in [
            (|it: &mut Measured| it.there.loss = f64::NAN) as fn(&mut Measured),
            |it| it.back.loss = 1.5,
            |it| it.there.burst_mean = 0.0,
            |it| it.there.rate_mbit = f64::INFINITY,
            |it| it.there.mtu = 0,
            |it| it.round_trip.min_ms = -1.0,
        ] {
            let mut bad = good.clone();
            spoil(&mut bad);
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }
}
