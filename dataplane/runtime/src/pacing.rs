//! A link's byte budget: a token bucket shared by all workers that send on the link.
//!
//! The state is one number, the time until which the link is busy ("virtual scheduling" of the
//! generic cell rate algorithm, ITU-T I.371). Sending moves it forward by the packet's time on the
//! wire; it never lags more than the burst allowance behind the clock. The backlog is the part of
//! that time that lies in the future.
//!
//! No call blocks. Relays only spend, since delaying a coded packet costs a frame and has no use. A
//! worker that reads from a tunnel first waits until [`Pacer::opens_at`].
//!
//! The backlog is bounded, since requests for repair could otherwise keep a tunnel shut
//! indefinitely. The bound is [`BACKLOG_NANOS`], or the time that one unit of every source takes if
//! that is longer. A packet beyond it is refused, and the caller drops it.
//!
//! The rate may change while packets are sent.
//!
//! # Memory ordering
//! Relaxed throughout: the numbers guard no other memory. A packet that is sent while the rate
//! changes may be accounted by either rate.
//!
//! # Limitations
//! Spends of two workers in the same instant may each see the other's late, which moves the budget
//! by a packet; over time every byte is counted exactly once.

use recoded_pipeline::params::Nanos;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Budget of one link.
#[derive(Debug)]
pub struct Pacer {
    /// Bits of an `f64`, like the next field; zero is a link without a limit.
    rate_mbit: AtomicU64,
    nanos_per_byte: AtomicU64,
    burst_nanos: AtomicU64,
    backlog_nanos: AtomicU64,
    busy_until: AtomicU64,
}

impl Pacer {
    /// A bucket of `rate_mbit`, full; `None` is a link without a limit.
    pub fn new(rate_mbit: Option<f64>) -> Pacer {
        let pacer = Pacer {
            rate_mbit: AtomicU64::new(0),
            nanos_per_byte: AtomicU64::new(0),
            burst_nanos: AtomicU64::new(BURST_NANOS),
            backlog_nanos: AtomicU64::new(BACKLOG_NANOS),
            busy_until: AtomicU64::new(0),
        };
        pacer.set_rate(rate_mbit);
        pacer
    }

    /// Changes the rate. The backlog stays the same in time and still has to drain. Call
    /// [`Pacer::allow_unit`] after it.
    pub fn set_rate(&self, rate_mbit: Option<f64>) {
        let nanos_per_byte = rate_mbit.map_or(0.0, |rate| 8_000.0 / rate);
        let packets_nanos = (BURST_PACKETS_MIN * PACKET_BYTES * nanos_per_byte) as Nanos;
        self.burst_nanos.store(packets_nanos.max(BURST_NANOS), Relaxed);
        self.backlog_nanos.store(packets_nanos.max(BACKLOG_NANOS), Relaxed);
        self.nanos_per_byte.store(nanos_per_byte.to_bits(), Relaxed);
        self.rate_mbit.store(rate_mbit.unwrap_or(0.0).to_bits(), Relaxed);
    }

    /// The active rate; `None` is a link without a limit.
    pub fn rate_mbit(&self) -> Option<f64> {
        Some(f64::from_bits(self.rate_mbit.load(Relaxed))).filter(|rate| *rate > 0.0)
    }

    #[inline]
    fn nanos_per_byte(&self) -> f64 {
        f64::from_bits(self.nanos_per_byte.load(Relaxed))
    }

    /// Raises the backlog bound for a source that sends `unit_bytes` at once.
    pub fn allow_unit(&self, unit_bytes: usize) {
        let unit_nanos = (unit_bytes as f64 * self.nanos_per_byte()) as Nanos;
        let burst_nanos = self.burst_nanos.load(Relaxed);
        self.backlog_nanos.store(unit_nanos.max(burst_nanos).max(BACKLOG_NANOS), Relaxed);
    }

    /// Accounts `wire_bytes` to be sent at `now`, Ethernet header included. When the backlog is at
    /// its bound, returns false and accounts nothing: the caller drops the packet.
    #[inline]
    #[must_use]
    pub fn spend(&self, wire_bytes: usize, now: Nanos) -> bool {
        let nanos_per_byte = self.nanos_per_byte();
        if nanos_per_byte == 0.0 {
            return true;
        }
        let cost = (wire_bytes as f64 * nanos_per_byte).round() as Nanos;
        let limit = now.saturating_add(self.backlog_nanos.load(Relaxed));
        let spent = self.busy_until.fetch_update(Relaxed, Relaxed, |busy| {
            (busy <= limit).then(|| busy.max(now).saturating_add(cost))
        });
        spent.is_ok()
    }

    /// Whether the budget is positive at `now`.
    #[inline]
    pub fn is_open(&self, now: Nanos) -> bool {
        self.opens_at() <= now
    }

    /// When the budget becomes positive (again).
    #[inline]
    pub fn opens_at(&self) -> Nanos {
        self.busy_until.load(Relaxed).saturating_sub(self.burst_nanos.load(Relaxed))
    }
}

/// A tunnel is read in bursts and the worker may sleep this long between them without losing rate.
/// More would fill the queues of the link behind it, less would not survive a timer's slack.
const BURST_NANOS: Nanos = 2_000_000;
/// Relays send packets as they arrive, in bursts of a few milliseconds, and links have queues of
/// some tens: less would drop packets that the link could still take, more would keep a tunnel shut
/// that long.
const BACKLOG_NANOS: Nanos = 50_000_000;
/// On slow links 2 ms is less than a generation; a generation leaves as a whole.
const BURST_PACKETS_MIN: f64 = 32.0;
/// Bytes of a full-size packet on a usual link, header included.
const PACKET_BYTES: f64 = 1514.0;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Nanos = 1_000_000_000;

    /// Bytes that a greedy sender gets through in `seconds` with packets of `packet` bytes, polling
    /// every `step` nanoseconds.
    fn greedy(pacer: &Pacer, packet: usize, step: Nanos, seconds: u64) -> u64 {
        let (mut sent, mut now) = (0, 5 * SECOND);
        let end = now + seconds * SECOND;
        while now < end {
            while pacer.is_open(now) {
                assert!(pacer.spend(packet, now), "a sender that asks first is never refused");
                sent += packet as u64;
            }
            now += step;
        }
        sent
    }

    proptest! {
        #[test]
        fn greedy_sender_gets_the_rate(
            rate_mbit in 1.0f64..2_000.0, packet in 64usize..1515, step in 1_000u64..200_000,
        ) {
            let sent = greedy(&Pacer::new(Some(rate_mbit)), packet, step, 2) as f64;
            let fair = rate_mbit * 1e6 / 8.0 * 2.0;
            let burst = (rate_mbit * 1e6 / 8.0 * 0.002).max(32.0 * 1514.0) + 2.0 * packet as f64;
            prop_assert!(sent <= fair * 1.01 + burst, "{sent} of {fair}");
            prop_assert!(sent >= fair * 0.99 - packet as f64, "{sent} of {fair}");
        }
    }

    #[test]
    fn no_rate_is_always_open() {
        let pacer = Pacer::new(None);
        assert!(pacer.spend(1 << 30, 7));
        assert!(pacer.is_open(0));
    }

    /// Number of packets of `bytes` accepted back to back.
    fn accepted(pacer: &Pacer, bytes: usize, now: Nanos) -> usize {
        (0..1_000_000).take_while(|_| pacer.spend(bytes, now)).count()
    }

    #[test]
    fn backlog_drains_before_the_link_opens() {
        let pacer = Pacer::new(Some(8.0)); // one byte per microsecond
        let now = 10 * SECOND;
        assert!(pacer.spend(60_000, now));
        assert!(!pacer.is_open(now));
        assert_eq!(pacer.opens_at() - now, 60_000_000 - 32 * 1_514_000);
    }

    /// Forty requests for repair, each of 256 packets, shut a tunnel for ten seconds.
    #[test]
    fn backlog_is_bounded_for_any_request() {
        for (rate_mbit, longest) in [(8.0, 52_000_000), (1000.0, 51_000_000), (1.0, 400_000_000)] {
            let pacer = Pacer::new(Some(rate_mbit));
            let now = 10 * SECOND;
            assert!(accepted(&pacer, 1500, now) < 40 * 256);
            assert!(pacer.opens_at() < now + longest, "{} at {rate_mbit}", pacer.opens_at() - now);
            assert!(!pacer.spend(1500, now), "nothing accumulates");
            assert!(pacer.spend(1500, pacer.opens_at()), "and the link continues");
        }
    }

    /// A block of 256 symbols leaves at once; its source must not refuse itself.
    #[test]
    fn backlog_holds_the_unit_of_a_source() {
        let (pacer, now) = (Pacer::new(Some(8.0)), SECOND);
        let usual = accepted(&pacer, 1500, now);
        assert!((33..50).contains(&usual), "{usual}");
        pacer.allow_unit(512 * 1500);
        assert!(accepted(&pacer, 1500, now) + usual >= 512);
        pacer.allow_unit(0);
        assert!(!pacer.spend(1500, now), "a flow that is gone leaves no allowance");
    }

    #[test]
    fn another_rate_holds_from_the_next_packet_on_and_none_lifts_the_limit() {
        let (pacer, now) = (Pacer::new(Some(8.0)), SECOND);
        assert_eq!(pacer.rate_mbit(), Some(8.0));
        let fair = |rate: f64| rate * 1e6 / 8.0 * 2.0;
        for rate in [8.0, 80.0, 4.0] {
            pacer.set_rate(Some(rate));
            pacer.busy_until.store(0, Relaxed);
            let sent = greedy(&pacer, 1000, 100_000, 2) as f64;
            assert!((0.97..1.1).contains(&(sent / fair(rate))), "{sent} at {rate}");
        }
        pacer.set_rate(None);
        assert_eq!(pacer.rate_mbit(), None);
        assert!(pacer.spend(1 << 30, now));
    }

    #[test]
    fn idle_time_is_not_saved_beyond_the_burst() {
        let pacer = Pacer::new(Some(1000.0));
        assert!(pacer.spend(1, SECOND));
        let mut sent = 0;
        while pacer.is_open(100 * SECOND) {
            assert!(pacer.spend(1500, 100 * SECOND));
            sent += 1500;
        }
        // 2 ms at 1 Gbit/s are 250 kB.
        assert!((250_000..255_000).contains(&sent), "{sent}");
    }
}
