//! How much is sent beyond what a link is known to carry, where round trips are long.
//!
//! To learn whether a link carries more, more is sent than it is known to carry. What it does not
//! carry waits in front of it, or is lost, until that is heard of a round trip later. So what is on
//! its way and not heard of yet may make a short queue, and no more:
//!
//! ```text
//!  sent beyond and not heard of  +  queue that was heard of  <=  12 ms
//! ```
//!
//! Where round trips in a row were filled and made no queue, it may be more each time.

use crate::params::Nanos;

/// The queue that may be made.
const QUEUE_NANOS: f64 = 12e6;

/// So many times as long at most.
const RISES_MAX: u32 = 16;

/// In shorter round trips, no more than that is sent before it is heard of.
const LONG_NANOS: Nanos = 50_000_000;

/// In longer round trips, the best of many samples is more than the link carries by chance alone,
/// and a queue that is emptied within two of them stays: over 540 ms it was full for ten seconds,
/// and overflowed. In shorter ones it is that of others, perhaps.
const FAR_NANOS: Nanos = 200_000_000;

/// A longer queue is that of others: who holds back beside those who do not gets nothing.
const OTHERS_NANOS: f64 = 14e6;

/// A queue so short is none.
const EMPTY_NANOS: f64 = 2e6;

/// What may still be sent beyond what is known.
#[derive(Clone, Debug)]
pub(crate) struct Headroom {
    /// What the link carried in the last round trip in which there was always more to send, in
    /// bytes per second.
    proven: Option<f64>,
    /// Such round trips in a row that made no queue, and the longest queue of the present one.
    rises: u32,
    longest: f64,
    /// Bytes that may exceed what is known in this round trip, and that did.
    left: f64,
    spent: f64,
    /// Whether anything is bounded: round trips are long, and what waits may be ours.
    is_bound: bool,
    is_far: bool,
}

impl Headroom {
    /// For a link that is taken to carry so much, in bytes per second.
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

    /// What the link is known to carry, given the most that it carried lately. `None` where more
    /// may be sent.
    pub(crate) fn known(&self, most: f64) -> Option<f64> {
        self.is_bound.then(|| self.proven.map_or(most, |proven| proven.min(most)))
    }

    /// What the link carried in the last round trip that was filled, where that is a better guess
    /// than the best of many samples.
    pub(crate) fn mean(&self) -> Option<f64> {
        self.proven.filter(|_| self.is_bound || self.is_far)
    }

    /// The rate to send so many bytes at, which is `rate` while there is room beyond `known`.
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

    /// Notes how long packets wait at least, by a sample; in nanoseconds.
    pub(crate) fn queue(&mut self, queue: f64) {
        self.longest = self.longest.max(queue);
    }

    /// Notes a round trip: what the link carried, if there was always more to send, the queue at
    /// its end, and what is known of the link.
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

    /// Sends for a round trip at `rate`; the bytes beyond `known`.
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
            assert!(more + queue < 12.1, "{more} ms beside {queue} ms");
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
