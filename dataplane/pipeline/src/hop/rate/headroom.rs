//! Limit on sending beyond the known rate of a link, where round trips are long.
//!
//! To learn whether a link carries more, the sender exceeds its known rate. The excess waits in
//! front of the link or is lost, and the sender learns of it a round trip later. So the unreported
//! excess in flight may build a short queue, and no more:
//!
//! ```text
//!  unreported excess in flight  +  reported queue  <=  12 ms
//! ```
//!
//! After consecutive filled round trips without a queue, the limit rises each time.

use crate::config::params::Nanos;

/// The queue that the excess may build.
const QUEUE_NANOS: f64 = 12e6;

/// Largest multiple of that.
const RISES_MAX: u32 = 16;

/// At round trips up to this long, the excess sent before a report is small enough without a limit.
const LONG_NANOS: Nanos = 50_000_000;

/// At longer round trips, the best of many samples exceeds the capacity by chance alone, and a
/// queue drained within two round trips persists: at 540 ms it was full for ten seconds, and
/// overflowed. At shorter ones the queue may be due to others.
const FAR_NANOS: Nanos = 200_000_000;

/// A longer queue is due to others: a sender that holds back next to greedy ones starves.
const OTHERS_NANOS: f64 = 14e6;

/// A shorter queue counts as empty.
const EMPTY_NANOS: f64 = 2e6;

/// Bytes that may still be sent beyond the known rate.
#[derive(Clone, Debug)]
pub(crate) struct Headroom {
    /// Rate carried in the last round trip that never ran out of data, in bytes per second.
    proven: Option<f64>,
    /// Consecutive such round trips without a queue, and the longest queue of the current one.
    rises: u32,
    longest: f64,
    /// Bytes allowed beyond the known rate in this round trip, and those already sent.
    left: f64,
    spent: f64,
    /// Whether the limit applies: round trips are long, and the queue may be due to this sender.
    is_bound: bool,
    is_far: bool,
}

impl Headroom {
    /// Creates the limit for a link with this assumed rate, in bytes per second.
    pub(crate) fn new(bytes_per_second: f64) -> Self {
        let left = bytes_per_second * QUEUE_NANOS * 1e-9;
        Self {
            proven: None,
            rises: 0,
            longest: 0.0,
            left,
            spent: 0.0,
            is_far: false,
            is_bound: false,
        }
    }

    /// The known rate of the link, given the recent maximum `most`. `None` where there is no limit.
    pub(crate) fn known(&self, most: f64) -> Option<f64> {
        self.is_bound.then(|| self.proven.map_or(most, |proven| proven.min(most)))
    }

    /// Rate carried in the last filled round trip, where that is a better estimate than the best of
    /// many samples.
    pub(crate) fn mean(&self) -> Option<f64> {
        self.proven.filter(|_| self.is_bound || self.is_far)
    }

    /// The rate at which to send `bytes`: `rate` while there is headroom beyond `known`.
    pub(crate) fn spend(&mut self, bytes: f64, rate: f64, known: f64) -> f64 {
        let beyond = bytes * (1.0 - known / rate);
        if beyond <= 0.0 {
            return rate;
        }
        if beyond > self.left {
            return known;
        }
        self.left -= beyond;
        self.spent += beyond;
        rate
    }

    /// Records the minimum queueing delay of a sample, in nanoseconds.
    pub(crate) fn queue(&mut self, queue: f64) {
        self.longest = self.longest.max(queue);
    }

    /// Records a round trip: what the link carried if data never ran out, the queue at its end, and
    /// the known rate.
    pub(crate) fn round(&mut self, carried: Option<f64>, queue: f64, known: f64, trip: Nanos) {
        let longest = std::mem::take(&mut self.longest);
        if longest > EMPTY_NANOS {
            self.rises = 0;
        } else if carried.is_some() {
            self.rises = (self.rises + 1).min(RISES_MAX - 1);
        }
        self.proven = carried.or(self.proven);
        self.is_bound = trip > LONG_NANOS && longest < OTHERS_NANOS;
        self.is_far = trip > FAR_NANOS;
        let most = QUEUE_NANOS * f64::from(1 + self.rises) - queue;
        self.left = (most * known * 1e-9 - std::mem::take(&mut self.spent)).max(0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: f64 = 37.5e6;
    const TRIP: Nanos = 540_000_000;

    /// Sends for a round trip at `rate`; returns the bytes beyond `known`.
    fn sent_beyond(headroom: &mut Headroom, rate: f64, known: f64) -> f64 {
        let (mut seconds, mut bytes) = (0.0, 0.0);
        while seconds < TRIP as f64 * 1e-9 {
            seconds += 1500.0 / headroom.spend(1500.0, rate, known);
            bytes += 1500.0;
        }
        bytes - known * seconds
    }

    fn milliseconds(bytes: f64) -> f64 {
        bytes / KNOWN * 1e3
    }

    #[test]
    fn what_is_not_heard_of_makes_a_short_queue() {
        let mut headroom = Headroom::new(KNOWN);
        headroom.round(Some(KNOWN), 0.0, KNOWN, TRIP);
        let first = milliseconds(sent_beyond(&mut headroom, 2.0 * KNOWN, KNOWN));
        assert!((20.0..24.1).contains(&first), "{first} ms after a round trip without a queue");
        headroom.queue(first * 1e6);
        headroom.round(Some(KNOWN), first * 1e6, KNOWN, TRIP);
        let next = milliseconds(sent_beyond(&mut headroom, 2.0 * KNOWN, KNOWN));
        assert!(next < 0.1, "{next} ms while there is a queue");
        for queue in [3.0, 5.0, 9.0] {
            headroom.queue(queue * 1e6);
            headroom.round(Some(KNOWN), queue * 1e6, KNOWN, TRIP);
            let more = milliseconds(sent_beyond(&mut headroom, 2.0 * KNOWN, KNOWN));
            assert!(more + queue < 12.1, "{more} ms with a queue of {queue} ms");
        }
    }

    #[test]
    fn it_grows_while_there_is_no_queue() {
        let mut headroom = Headroom::new(KNOWN);
        let mut sent = 0.0;
        for round in 0..40 {
            headroom.queue(1e6);
            headroom.round(Some(KNOWN), 0.0, KNOWN, TRIP);
            let beyond = sent_beyond(&mut headroom, 2.0 * KNOWN, KNOWN);
            assert!(milliseconds(beyond) < 12.1 * f64::from(RISES_MAX), "{round}");
            sent = beyond.max(sent);
        }
        assert!(milliseconds(sent) > 80.0, "{}", milliseconds(sent));
    }

    #[test]
    fn short_round_trips_have_no_bound() {
        let mut headroom = Headroom::new(KNOWN);
        headroom.round(Some(KNOWN), 0.0, KNOWN, LONG_NANOS);
        assert_eq!(headroom.known(KNOWN), None);
        headroom.round(None, 0.0, KNOWN, TRIP);
        assert_eq!(headroom.known(2.0 * KNOWN), Some(KNOWN));
    }

    #[test]
    fn over_long_round_trips_a_queue_is_emptied_by_what_the_link_carried() {
        let mut headroom = Headroom::new(KNOWN);
        headroom.queue(20e6);
        headroom.round(Some(KNOWN), 20e6, KNOWN, TRIP);
        assert_eq!((headroom.known(1.01 * KNOWN), headroom.mean()), (None, Some(KNOWN)));
        headroom.queue(20e6);
        headroom.round(Some(KNOWN), 20e6, KNOWN, FAR_NANOS);
        assert_eq!(headroom.mean(), None, "it may be a queue of others");
    }
}
