//! How much may leave at once after a pause: what a queue of others takes as one packet, and drops
//! as one.

use super::Rate;
use crate::params::Nanos;

/// A worker that shares its core may be woken this late. Half of it costs rate where cores are
/// shared; twice of it overflows the queues of shallow routers.
const BURST_NANOS: Nanos = 1_500_000;

/// The least burst: two packets, as for Linux's TCP. At a rate at which they take longer than
/// [`BURST_NANOS`], a worker that is woken that late would lose the time of each packet, and seem
/// to have had nothing to send, and then no rate rises: without it, a hop of 2 Mbit/s stays at 0.3
/// to 0.6 of that where workers are woken up to 15 ms late.
const BURST_BYTES: usize = 2 * 1514;

impl Rate {
    /// How much may leave at once, as the time that it takes at this rate.
    pub(crate) fn burst(&self) -> Nanos {
        self.nanos(BURST_BYTES).max(BURST_NANOS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A burst that leaves in one call is one packet to netem and fq, which drop all of it.
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
