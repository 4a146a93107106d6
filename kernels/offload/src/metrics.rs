//! What is counted: everything offered, and what became of it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Why a job was not taken. The worker does it.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum Declined {
    /// Everything is to be done by the CPU.
    #[error("offloading is off")]
    Off,
    /// There is no device that works at present.
    #[error("no device works")]
    Down,
    /// No slot holds it.
    #[error("larger than a slot, or no job at all")]
    Size,
    /// Too few source rows for a device to be worth the way there.
    #[error("too few source rows")]
    Rows,
    /// The CPU is faster by what has been measured.
    #[error("the CPU is faster")]
    Cost,
    /// It would be back too late.
    #[error("too late by estimate")]
    Late,
    /// All slots are filled or on their way.
    #[error("the queue is full")]
    Full,
}

impl Declined {
    /// Every reason, in the order of [`Metrics::declined`].
    pub const ALL: [Self; 7] =
        [Self::Off, Self::Down, Self::Size, Self::Rows, Self::Cost, Self::Late, Self::Full];

    /// Name in metrics and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Down => "down",
            Self::Size => "size",
            Self::Rows => "rows",
            Self::Cost => "cost",
            Self::Late => "late",
            Self::Full => "full",
        }
    }
}

/// Why the CPU did what the device should have done.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Fault {
    /// There was no device any more when it was due.
    Down,
    /// The device did not take it.
    Refused,
    /// The device failed at it.
    Failed,
    /// The device was lost while it was there.
    Lost,
    /// The device did not give it back in time.
    Hung,
    /// The device gave it back wrong.
    Wrong,
}

impl Fault {
    /// Every fault, in the order of [`Metrics::redone`].
    pub const ALL: [Self; 6] =
        [Self::Down, Self::Refused, Self::Failed, Self::Lost, Self::Hung, Self::Wrong];

    /// Name in metrics and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Down => "down",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::Lost => "lost",
            Self::Hung => "hung",
            Self::Wrong => "wrong",
        }
    }
}

/// Why a slot was handed over.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Close {
    /// It was full.
    Bytes,
    /// Its oldest job had waited long enough.
    Age,
    /// The device had nothing to do and the slot was worth its while.
    Idle,
    /// The worker said so.
    Flush,
}

impl Close {
    /// Every reason, in the order of [`Metrics::closed`].
    pub const ALL: [Self; 4] = [Self::Bytes, Self::Age, Self::Idle, Self::Flush];

    /// Name in metrics and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Age => "age",
            Self::Idle => "idle",
            Self::Flush => "flush",
        }
    }
}

/// A reading of all counters. `offered_jobs` is the sum of `declined` and `taken_jobs`; what was
/// taken is done by the device or redone, or still on its way.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Metrics {
    /// Jobs that workers offered.
    pub offered_jobs: u64,
    /// Their bytes, inputs and outputs.
    pub offered_bytes: u64,
    /// Jobs that were not taken, by [`Declined::ALL`].
    pub declined: [u64; Declined::ALL.len()],
    /// Jobs that were taken.
    pub taken_jobs: u64,
    /// Their bytes.
    pub taken_bytes: u64,
    /// Jobs that the device did.
    pub device_jobs: u64,
    /// Their bytes.
    pub device_bytes: u64,
    /// Jobs that the dispatcher did on the CPU, by [`Fault::ALL`].
    pub redone: [u64; Fault::ALL.len()],
    /// Bundles handed over, by [`Close::ALL`].
    pub closed: [u64; Close::ALL.len()],
    /// Bundles by bytes, under the name that the control API has: up to 4 KiB, 8 KiB, 16 KiB and
    /// on, twice as much each.
    pub batch_bytes: [u64; BUCKETS],
    /// Bundles by the time from their first job to their results: up to 1 us, 2 us and on.
    pub latency: [u64; BUCKETS],
    /// Bundles that came back from a device that had been given up; they were ignored.
    pub late: u64,
    /// Times that a device came into use.
    pub device_ups: u64,
    /// Times that one went out of use.
    pub device_downs: u64,
    /// Whether one is in use.
    pub is_up: bool,
}

/// The counters themselves. Relaxed: each stands for itself.
#[derive(Default)]
pub(crate) struct Counters {
    pub offered_jobs: AtomicU64,
    pub offered_bytes: AtomicU64,
    pub declined: [AtomicU64; Declined::ALL.len()],
    pub taken_jobs: AtomicU64,
    pub taken_bytes: AtomicU64,
    pub device_jobs: AtomicU64,
    pub device_bytes: AtomicU64,
    pub redone: [AtomicU64; Fault::ALL.len()],
    pub closed: [AtomicU64; Close::ALL.len()],
    pub batch_bytes: [AtomicU64; BUCKETS],
    pub latency: [AtomicU64; BUCKETS],
    pub late: AtomicU64,
    pub device_ups: AtomicU64,
    pub device_downs: AtomicU64,
}

impl Counters {
    pub fn read(&self, is_up: bool) -> Metrics {
        Metrics {
            offered_jobs: get(&self.offered_jobs),
            offered_bytes: get(&self.offered_bytes),
            declined: self.declined.each_ref().map(get),
            taken_jobs: get(&self.taken_jobs),
            taken_bytes: get(&self.taken_bytes),
            device_jobs: get(&self.device_jobs),
            device_bytes: get(&self.device_bytes),
            redone: self.redone.each_ref().map(get),
            closed: self.closed.each_ref().map(get),
            batch_bytes: self.batch_bytes.each_ref().map(get),
            latency: self.latency.each_ref().map(get),
            late: get(&self.late),
            device_ups: get(&self.device_ups),
            device_downs: get(&self.device_downs),
            is_up,
        }
    }

    pub fn bundle(&self, bytes: u64, close: Close) {
        add(&self.closed[close as usize], 1);
        add(&self.batch_bytes[bucket(bytes, FIRST_BUCKET_BYTES)], 1);
    }

    pub fn latency(&self, taken: Duration) {
        let nanos = u64::try_from(taken.as_nanos()).unwrap_or(u64::MAX);
        add(&self.latency[bucket(nanos, FIRST_BUCKET_NANOS)], 1);
    }
}

pub(crate) fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// The first bucket that `value` is not beyond, where each is twice as large as the one before.
fn bucket(value: u64, first: u64) -> usize {
    let doublings = value.div_ceil(first).max(1).next_power_of_two().ilog2() as usize;
    doublings.min(BUCKETS - 1)
}

/// 4 KiB to 32 MiB and above, 1 us to 8 ms and above.
const BUCKETS: usize = 15;
const FIRST_BUCKET_BYTES: u64 = 4 << 10;
const FIRST_BUCKET_NANOS: u64 = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_doubles_and_saturates() {
        assert_eq!([0, 4096, 4097, 8192, 8193].map(|b| bucket(b, 4096)), [0, 0, 1, 1, 2]);
        assert_eq!(bucket(u64::MAX, 1000), BUCKETS - 1);
    }
}
