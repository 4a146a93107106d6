//! Transmission limits: the most packets in flight, and when the next one may leave.

use super::Sender;
use crate::config::params::Nanos;
use crate::hop::rate::sample::AROUND_BYTES;
use crate::hop::send::round_trip::UNKNOWN_NANOS;

/// Packets allowed beyond those that the rate sends during a round trip and a queue.
const SPARE_PACKETS: f64 = 32.0;

/// Smallest size assumed of packets in flight: a few large ones may follow many small ones. With
/// that of full packets, 600 of 3000 acknowledgements of TCP a second left over 33 ms.
const PACKET_BYTES_LEAST: usize = 96;

/// Delay of reports in addition to the round trip.
const REPORT_NANOS: Nanos = 2_000_000;

/// Without reports, packets leave at the rate for this much longer. Reports are lost in bursts,
/// too, and each such burst stopped the sender. Without it, links that lose in bursts of 20 carry
/// 0.9 of their limit. With 50 ms, links that are interrupted for 100 ms carry 2 % more; but a
/// radio link with jitter of 60 ms carries 0.88 instead of 0.94, as it queues what leaves early.
const UNREPORTED_NANOS: Nanos = 25_000_000;

impl Sender {
    /// Most packets in flight.
    pub(super) fn window(&self, now: Nanos) -> usize {
        let round_trip = self.link.round_trip.known().unwrap_or(UNKNOWN_NANOS);
        let unreported = now.saturating_sub(self.reported_at).min(UNREPORTED_NANOS);
        let queue = 2 * self.link.rate.target(round_trip);
        let nanos = queue + round_trip + round_trip / 4 + REPORT_NANOS + unreported;
        let bytes = self.link.rate.bytes_per_second() * nanos as f64 * 1e-9;
        let packet_bytes = (self.mean_bytes + AROUND_BYTES).max(PACKET_BYTES_LEAST) as f64;
        ((bytes / packet_bytes + SPARE_PACKETS) as usize).min(self.link.in_flight.capacity() - 1)
    }

    /// Whether the next packet has to wait for a report.
    pub(super) fn is_full(&self, now: Nanos) -> bool {
        self.link.in_flight.on_their_way() >= self.window(now)
    }

    /// Whether a packet may leave now; otherwise when, if that is known.
    pub(crate) fn opens_at(&self, now: Nanos) -> Result<(), Option<Nanos>> {
        if self.is_open_loop() {
            return Ok(());
        }
        if self.is_full(now) {
            return Err(None);
        }
        let at = self.link.opens_at();
        if at > now { Err(Some(at)) } else { Ok(()) }
    }
}
