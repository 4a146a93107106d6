//! Delivery rate samples from the reports of a neighbour, and the samples of a round trip merged
//! into one.

use crate::config::params::Nanos;

/// Bytes around a UDP payload on the wire: Ethernet, IPv4, UDP.
pub(crate) const AROUND_BYTES: usize = 42;

/// Shortest time that a sample covers: long enough to include the burst of a worker that slept. A
/// sample covers a round trip, up to a maximum that is lower if data never ran out, or the arrivals
/// between two pauses; a sample of few packets covers more.
pub(crate) const SAMPLE_NANOS: Nanos = 10_000_000;
pub(crate) const SAMPLE_MAX_NANOS: Nanos = 50_000_000;
pub(crate) const SAMPLE_RUN_NANOS: Nanos = 20_000_000;
pub(crate) const SAMPLE_PACKETS: u32 = 32;
pub(crate) const SPARSE_NANOS: Nanos = 200_000_000;

/// Standard deviation of the loss among this many packets.
pub(crate) fn deviation(loss: f64, packets: u32) -> f64 {
    (loss * (1.0 - loss) / f64::from(packets.max(1))).sqrt()
}

/// Packets received by a neighbour between two of its reports.
#[derive(Copy, Clone, PartialEq, Debug)]
pub(crate) struct Sample {
    /// Bytes and packets received.
    pub bytes: u32,
    pub packets: u32,
    /// Packets sent in the same interval.
    pub sent: u32,
    /// Durations of arrival and of transmission.
    pub nanos: Nanos,
    pub took: Nanos,
    /// The minimum queue, including the backlog of the neighbour, and the minimum of that backlog.
    pub queue: Nanos,
    pub backlog: Nanos,
    /// Whether the sender never ran out of data.
    pub is_limited: bool,
    /// Whether packets that arrive at once count as no faster than they were sent.
    pub is_spread: bool,
}

impl Sample {
    /// Received bytes per second, including the overhead on the wire.
    pub(crate) fn received(&self) -> f64 {
        let bytes = f64::from(self.bytes) + f64::from(self.packets) * AROUND_BYTES as f64;
        let took = if self.is_spread { self.took } else { 0 };
        bytes * 1e9 / self.nanos.max(took).max(1) as f64
    }

    /// The rate that the link carried, given its own loss.
    pub(crate) fn carried(&self, usual_loss: f64) -> f64 {
        self.received() / (1.0 - usual_loss).max(0.05)
    }

    /// The minimum queue of the link alone, in nanoseconds.
    pub(crate) fn link_queue(&self) -> f64 {
        self.queue.saturating_sub(self.backlog) as f64
    }

    pub(crate) fn loss(&self) -> f64 {
        1.0 - (f64::from(self.packets) / f64::from(self.sent.max(1))).min(1.0)
    }

    /// Whether packets arrived more slowly than they were sent: the sender exceeds the link rate.
    pub(crate) fn is_stretched(&self) -> bool {
        self.nanos > self.took + self.took / 5
    }

    /// Merges this sample with the next.
    fn then(&self, next: &Sample) -> Sample {
        Sample {
            bytes: self.bytes.saturating_add(next.bytes),
            packets: self.packets.saturating_add(next.packets),
            sent: self.sent.saturating_add(next.sent),
            nanos: self.nanos.saturating_add(next.nanos),
            took: self.took.saturating_add(next.took),
            queue: self.queue.min(next.queue),
            backlog: self.backlog.min(next.backlog),
            is_limited: self.is_limited && next.is_limited,
            is_spread: self.is_spread && next.is_spread,
        }
    }
}

/// The samples of a round trip.
#[derive(Clone, Debug, Default)]
pub(crate) struct Round {
    /// All samples merged.
    all: Option<Sample>,
    /// The best rate of the samples without a pause, in bytes per second.
    pub limited: Option<f64>,
}

impl Round {
    /// Adds a sample, and returns all of them merged.
    pub(crate) fn add(&mut self, sample: &Sample, carried: f64) -> Sample {
        if sample.is_limited {
            self.limited = Some(self.limited.map_or(carried, |best| best.max(carried)));
        }
        let all = self.all.map_or(*sample, |before| before.then(sample));
        self.all = Some(all);
        all
    }
}
