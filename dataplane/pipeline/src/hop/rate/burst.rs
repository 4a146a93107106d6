//! Largest burst after a pause: a queue of another node may treat it as one packet, and drop it as
//! one.

use super::Rate;
use crate::config::params::Nanos;

/// Wakeup delay tolerated for a worker that shares its core. Half of it costs rate where cores are
/// shared; twice of it overflows the queues of shallow routers.
const BURST_NANOS: Nanos = 1_500_000;

/// The smallest burst: two packets, as in Linux TCP. If they took longer than [`BURST_NANOS`] at
/// the current rate, a worker woken that late would lose the time of each packet and appear to have
/// run out of data, and the rate would never rise. Without this minimum, a hop of 2 Mbit/s stays at
/// 0.3 to 0.6 of that rate where workers are woken up to 15 ms late.
const BURST_BYTES: usize = 2 * 1514;

impl Rate {
    /// The largest burst, as its duration at this rate.
    pub(crate) fn burst(&self) -> Nanos {
        self.nanos(BURST_BYTES).max(BURST_NANOS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// netem and fq treat a burst sent in one call as one packet, and drop all of it.
    #[test]
    fn burst_is_two_packets_on_slow_links_and_as_long_as_a_worker_is_late_on_fast_ones() {
        for (mbit, bytes) in [(2.0, 3028.0), (10.0, 3028.0), (50.0, 9375.0), (500.0, 93_750.0)] {
            let mut rate = Rate::new();
            rate.set(mbit * 1.25e5);
            let burst = rate.burst() as f64 * 1e-9 * rate.bytes_per_second();
            assert!((burst / bytes - 1.0).abs() < 0.001, "{burst} bytes at {mbit} Mbit/s");
        }
    }
}
