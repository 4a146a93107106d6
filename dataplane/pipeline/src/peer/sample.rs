//! What a neighbour reports of how fast packets arrive, and the samples of a round trip as one.

use crate::params::Nanos;

/// Bytes around a UDP payload on the wire: Ethernet, IPv4, UDP.
pub(crate) const AROUND_BYTES: usize = 42;

/// Shortest time that a sample covers: a burst of a worker that slept is part of it. It covers a
/// round trip, up to the longest, which is shorter where there was always more to send, or what
/// came between two pauses; one of few packets covers more.
pub(crate) const SAMPLE_NANOS: Nanos = 10_000_000;
pub(crate) const SAMPLE_MAX_NANOS: Nanos = 50_000_000;
pub(crate) const SAMPLE_RUN_NANOS: Nanos = 20_000_000;
pub(crate) const SAMPLE_PACKETS: u32 = 32;
pub(crate) const SPARSE_NANOS: Nanos = 200_000_000;

/// What a neighbour said it received, since it said so before.
#[derive(Copy, Clone, PartialEq, Debug)]
pub(crate) struct Sample {
    /// What arrived.
    pub bytes: u32,
    pub packets: u32,
    /// What was sent to make that arrive.
    pub sent: u32,
    /// How long it took to arrive, and to send.
    pub nanos: Nanos,
    pub took: Nanos,
    /// The least queue seen, that of the neighbour included, and the least of the neighbour alone.
    pub queue: Nanos,
    pub backlog: Nanos,
    /// Whether there was always more to send.
    pub is_limited: bool,
}

impl Sample {
    /// Bytes a second, with what is around them on the wire.
    pub(crate) fn received(&self) -> f64 {
        let bytes = f64::from(self.bytes) + f64::from(self.packets) * AROUND_BYTES as f64;
        bytes * 1e9 / self.nanos.max(1) as f64
    }

    pub(crate) fn loss(&self) -> f64 {
        1.0 - (f64::from(self.packets) / f64::from(self.sent.max(1))).min(1.0)
    }

    /// Whether it was sent faster than it arrived: faster than the link is.
    pub(crate) fn is_stretched(&self) -> bool {
        self.nanos > self.took + self.took / 5
    }

    /// This one and the next as one.
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
        }
    }
}

/// The samples of a round trip.
#[derive(Clone, Debug, Default)]
pub(crate) struct Round {
    /// As one.
    all: Option<Sample>,
    /// What the link carried in the best of those without a pause, in bytes per second.
    pub limited: Option<f64>,
}

impl Round {
    /// Takes in a sample, and returns what there is as one.
    pub(crate) fn add(&mut self, sample: &Sample, carried: f64) -> Sample {
        if sample.is_limited {
            self.limited = Some(self.limited.map_or(carried, |best| best.max(carried)));
        }
        let all = self.all.map_or(*sample, |before| before.then(sample));
        self.all = Some(all);
        all
    }
}
