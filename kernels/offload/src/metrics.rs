//! Counts all offers and their outcomes, by the tables of `recoded_counters::engine`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use recoded_counters::engine::{BUCKETS, Close, Declined, EngineCounters, Fault};

/// The counters themselves. Relaxed: each is independent.
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
    pub bundle_bytes: [AtomicU64; BUCKETS],
    pub latency: [AtomicU64; BUCKETS],
    pub late: AtomicU64,
    pub device_ups: AtomicU64,
    pub device_downs: AtomicU64,
}

impl Counters {
    pub fn read(&self) -> EngineCounters {
        EngineCounters {
            offered_jobs: get(&self.offered_jobs),
            offered_bytes: get(&self.offered_bytes),
            declined: self.declined.each_ref().map(get),
            taken_jobs: get(&self.taken_jobs),
            taken_bytes: get(&self.taken_bytes),
            device_jobs: get(&self.device_jobs),
            device_bytes: get(&self.device_bytes),
            redone: self.redone.each_ref().map(get),
            closed: self.closed.each_ref().map(get),
            bundle_bytes: self.bundle_bytes.each_ref().map(get),
            latency: self.latency.each_ref().map(get),
            late: get(&self.late),
            device_ups: get(&self.device_ups),
            device_downs: get(&self.device_downs),
        }
    }

    pub fn bundle(&self, bytes: u64, close: Close) {
        add(&self.closed[close as usize], 1);
        add(&self.bundle_bytes[bucket(bytes, FIRST_BUCKET_BYTES)], 1);
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

/// The first bucket that is not below `value`; each is twice as large as the previous one.
fn bucket(value: u64, first: u64) -> usize {
    let doublings = value.div_ceil(first).max(1).next_power_of_two().ilog2() as usize;
    doublings.min(BUCKETS - 1)
}

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
