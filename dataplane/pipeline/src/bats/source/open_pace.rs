//! Pace of batches whose next hops report nothing to this source: several next hops, a fixed
//! redundancy, or no return path.
//!
//! A block that left at once would overflow a short queue, and the sink would request batches that
//! overflow it again. So a block leaves within the time that data takes to fill one:
//!
//! ```text
//!  data     ├── block 1 ──┼── block 2 ──┼── block 3 ──
//!  batches                ├ block 1 ─┤  ├ block 2 ─┤
//! ```

use crate::config::params::Nanos;

/// Share of that time. The rest is for requested batches, and for data that becomes faster.
const SHARE: f64 = 0.8;

/// Weight of the newest block in the mean time of a packet: data arrives in bursts.
const WEIGHT: f64 = 0.25;

/// A longer pause between blocks is no part of that time.
const PAUSE_NANOS: Nanos = 100_000_000;

/// Blocks that wait make packets leave up to this many times faster. Blocks that the sink requests
/// more of wait, too: without a limit, packets that overflow a queue would leave ever faster.
const WAITING_MAX: usize = 2;

/// Packets that leave at once: half of a short queue. Small blocks wait for nothing.
const BURST_PACKETS: f64 = 32.0;

/// Longest time of a packet: blocks of a sparse flow on a link of 10 Mbit/s hardly wait.
const PACKET_NANOS_MAX: f64 = 1e6;

/// The pace of one source.
#[derive(Debug, Default)]
pub(super) struct OpenPace {
    /// Mean time that data takes for one packet to send, once known.
    data_nanos: Option<f64>,
    /// Time from one packet sent to the next.
    packet_nanos: f64,
    closed_at: Option<Nanos>,
    next: Nanos,
}

impl OpenPace {
    /// Records a block, opened at `opened` and closed now, of which this many packets are to be
    /// sent. `waiting` blocks are not sent yet, this one included.
    pub(super) fn close(&mut self, opened: Nanos, now: Nanos, packets: usize, waiting: usize) {
        let collected = now.saturating_sub(opened);
        let since = self.closed_at.map_or(0, |at| now.saturating_sub(at).min(PAUSE_NANOS));
        let nanos = collected.max(since) as f64 / packets.max(1) as f64;
        let mean = self.data_nanos.unwrap_or(nanos);
        let mean = (mean + WEIGHT * (nanos - mean)).min(PACKET_NANOS_MAX);
        self.data_nanos = Some(mean);
        self.packet_nanos = SHARE * mean / waiting.clamp(1, WAITING_MAX) as f64;
        self.closed_at = Some(now);
    }

    /// Records packets sent now.
    pub(super) fn spend(&mut self, packets: usize, now: Nanos) {
        let nanos = |packets| (self.packet_nanos * packets) as Nanos;
        let earliest = now.saturating_sub(nanos(BURST_PACKETS));
        self.next = self.next.max(earliest) + nanos(packets as f64);
    }

    /// When the next packet may leave.
    pub(super) fn leaves_at(&self) -> Nanos {
        self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Nanos = 1_000_000;

    /// Sends blocks of 100 packets, closed at this interval. Returns how long each took to leave.
    fn blocks(count: u64, every: Nanos) -> Vec<Nanos> {
        let mut pace = OpenPace::default();
        let closed = (1..=count).map(|block| block * every);
        closed
            .map(|at| {
                pace.close(at - every, at, 100, 1);
                let mut now = at;
                for _ in 0..100 {
                    now = now.max(pace.leaves_at());
                    pace.spend(1, now);
                }
                now - at
            })
            .collect()
    }

    #[test]
    fn block_leaves_within_the_time_that_data_takes_for_one() {
        // 68 packets of 100 wait, 0.8 of their time each.
        for (every, took) in [(20 * MILLI, 10 * MILLI..=11 * MILLI), (0, 0..=0)] {
            let taken = blocks(8, every);
            assert!(taken.iter().all(|nanos| took.contains(nanos)), "{taken:?} of {every}");
        }
    }

    #[test]
    fn small_blocks_leave_at_once() {
        let mut pace = OpenPace::default();
        for ping in 1..9 {
            pace.close(ping * 1000 * MILLI, ping * 1000 * MILLI + 10 * MILLI, 4, 1);
            pace.spend(4, ping * 1000 * MILLI + 10 * MILLI);
            assert!(pace.leaves_at() <= ping * 1000 * MILLI + 10 * MILLI);
        }
    }

    #[test]
    fn blocks_that_wait_leave_faster() {
        let mut pace = OpenPace::default();
        pace.close(0, 20 * MILLI, 100, 1);
        pace.close(20 * MILLI, 40 * MILLI, 100, 4);
        (0..100).for_each(|_| pace.spend(1, 40 * MILLI));
        assert!((45 * MILLI..=46 * MILLI).contains(&pace.leaves_at()), "{}", pace.leaves_at());
    }

    #[test]
    fn pause_between_bursts_is_used_to_spread_them() {
        let mut pace = OpenPace::default();
        // A block at once, each 50 ms, as TCP sends it in a round trip.
        (1..20).for_each(|burst| pace.close(burst * 50 * MILLI, burst * 50 * MILLI, 100, 1));
        (0..100).for_each(|_| pace.spend(1, 950 * MILLI));
        assert!((976 * MILLI..=978 * MILLI).contains(&pace.leaves_at()), "{}", pace.leaves_at());
    }
}
