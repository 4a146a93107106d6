//! Summary of a received train, in a fixed size.

use serde::{Deserialize, Serialize};

/// Upper bounds of the bins of [`Summary::runs_by_length`]; longer runs have one more bin.
pub const RUN_BINS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];

/// Summary of a train. All of it may be forged if it comes from the other end.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Summary {
    /// Number of the train.
    pub train: u32,
    /// Packets sent.
    pub sent: u32,
    /// Distinct packets received.
    pub received: u32,
    /// Duplicate packets.
    pub duplicates: u32,
    /// Packets that arrived after one that was sent later.
    pub overtaken: u32,
    /// Packets dropped because the socket's buffer was full: not lost by the path.
    pub overrun: u32,
    /// Runs of consecutive losses.
    pub runs: u32,
    /// Runs by length, up to [`RUN_BINS`], and longer ones.
    pub runs_by_length: [u32; 8],
    /// Losses in the second half.
    pub lost_late: u32,
    /// Number of packets from the first arrival to the last, lost ones included.
    pub span_packets: u32,
    /// Time between these by arrival.
    pub span_came_nanos: u64,
    /// Time between these by sending.
    pub span_sent_nanos: u64,
    /// Minimum one-way delay, with an unknown clock offset.
    pub way_min_nanos: i64,
    /// Queueing delay, as one-way delay above the minimum: median.
    pub queue_median_nanos: u64,
    /// 99 % quantile.
    pub queue_p99_nanos: u64,
    /// Maximum.
    pub queue_max_nanos: u64,
    /// Median of the first quarter of arrivals.
    pub queue_early_nanos: u64,
    /// Median of the last quarter.
    pub queue_late_nanos: u64,
}

impl Summary {
    /// Packets that did not arrive.
    #[must_use]
    pub fn lost(&self) -> u32 {
        self.sent.saturating_sub(self.received)
    }

    /// Returns the summary if it is plausible for a train with this number of packets sent.
    #[must_use]
    pub fn plausible(self, train: u32, sent: u32) -> Option<Summary> {
        let runs: u64 = self.runs_by_length.iter().map(|runs| u64::from(*runs)).sum();
        let holds = self.train == train
            && self.sent == sent
            && self.received <= sent
            && self.runs <= self.lost()
            && runs == u64::from(self.runs)
            && (self.runs > 0 || self.lost() == 0)
            && self.lost_late <= self.lost()
            && self.overtaken <= self.received
            && self.span_packets < sent.max(1)
            && self.span_came_nanos < SPAN_MAX_NANOS
            && self.span_sent_nanos < SPAN_MAX_NANOS
            && self.queue_max_nanos < SPAN_MAX_NANOS
            && self.queue_median_nanos <= self.queue_max_nanos
            && self.queue_early_nanos <= self.queue_max_nanos
            && self.queue_late_nanos <= self.queue_max_nanos
            && self.queue_p99_nanos <= self.queue_max_nanos;
        holds.then_some(self)
    }

    /// Packets a second that arrived or were lost in between; `None` if too few arrived.
    #[must_use]
    pub fn packets_per_second(&self) -> Option<f64> {
        let is_enough = self.span_packets >= SPAN_PACKETS_MIN && self.span_came_nanos > 0;
        is_enough.then(|| f64::from(self.span_packets) * 1e9 / self.span_came_nanos as f64)
    }
}

/// Upper bound on a train's duration and all delays.
pub const SPAN_MAX_NANOS: u64 = 60_000_000_000;

/// Fewer packets do not determine a rate.
const SPAN_PACKETS_MIN: u32 = 6;
