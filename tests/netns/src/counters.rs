//! Counters of links.

use std::time::Duration;

/// IP packets in one direction of a link. Untimed links count the first four only.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct DirectionCounters {
    /// Packets that entered.
    pub seen: u64,
    /// Of these, lost by configuration.
    pub dropped: u64,
    /// Of these, lost right after another loss.
    pub dropped_after_drop: u64,
    /// Merged packets that entered: loss was then not per packet.
    pub merged: u64,
    /// Packets that found the queue full. Untimed links report this only through
    /// [`crate::Bed::queue_drops`], and there these packets have passed the loss before.
    pub queue_drops: u64,
    /// Packets dropped because the emulator had no memory, or Linux refused them.
    pub refused: u64,
    /// Packets that left twice.
    pub duplicated: u64,
    /// Packets delayed by configuration, so that others overtook them.
    pub reordered: u64,
    /// Bytes that spent airtime, with Ethernet headers.
    pub bytes: u64,
    /// Sum of the queueing delays.
    pub sojourn_total: Duration,
    /// The longest queueing delay since [`crate::Bed::reset_sojourns`].
    pub sojourn_max: Duration,
    /// Queueing delay of a packet that enters now.
    pub queue: Duration,
}

impl DirectionCounters {
    /// Share lost of the packets that met the loss.
    pub fn loss(&self) -> f64 {
        let met = self.seen - self.queue_drops - self.refused.min(self.seen - self.queue_drops);
        if met == 0 { 0.0 } else { self.dropped as f64 / met as f64 }
    }

    /// Mean run of consecutive losses.
    pub fn burst_mean(&self) -> f64 {
        let runs = self.dropped - self.dropped_after_drop;
        if runs == 0 { 0.0 } else { self.dropped as f64 / runs as f64 }
    }

    /// Difference to an earlier reading; longest sojourn and queue are the later reading's.
    pub fn since(&self, earlier: &DirectionCounters) -> DirectionCounters {
        DirectionCounters {
            seen: self.seen - earlier.seen,
            dropped: self.dropped - earlier.dropped,
            dropped_after_drop: self.dropped_after_drop - earlier.dropped_after_drop,
            merged: self.merged - earlier.merged,
            queue_drops: self.queue_drops - earlier.queue_drops,
            refused: self.refused - earlier.refused,
            duplicated: self.duplicated - earlier.duplicated,
            reordered: self.reordered - earlier.reordered,
            bytes: self.bytes - earlier.bytes,
            sojourn_total: self.sojourn_total.saturating_sub(earlier.sojourn_total),
            sojourn_max: self.sojourn_max,
            queue: self.queue,
        }
    }
}

/// Counters of both directions of a link.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct LinkCounters {
    /// From source towards sink.
    pub eastward: DirectionCounters,
    /// From sink towards source.
    pub westward: DirectionCounters,
}

impl LinkCounters {
    /// Difference to an earlier reading.
    pub fn since(&self, earlier: &LinkCounters) -> LinkCounters {
        LinkCounters {
            eastward: self.eastward.since(&earlier.eastward),
            westward: self.westward.since(&earlier.westward),
        }
    }
}
