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

impl Sender {
    /// Most packets in flight.
    pub(super) fn window(&self) -> usize {
        let round_trip = self.link.round_trip.known().unwrap_or(UNKNOWN_NANOS);
        let nanos =
            2 * self.link.rate.target(round_trip) + round_trip + round_trip / 4 + REPORT_NANOS;
        let bytes = self.link.rate.bytes_per_second() * nanos as f64 * 1e-9;
        let packet_bytes = (self.mean_bytes + AROUND_BYTES).max(PACKET_BYTES_LEAST) as f64;
        ((bytes / packet_bytes + SPARE_PACKETS) as usize).min(self.link.in_flight.capacity() - 1)
    }

    /// Whether a packet may leave now; otherwise when, if that is known.
    pub(crate) fn opens_at(&self, now: Nanos) -> Result<(), Option<Nanos>> {
        if self.is_open_loop() {
            return Ok(());
        }
        if self.link.in_flight.on_their_way() >= self.window() {
            return Err(None);
        }
        let at = self.link.opens_at();
        if at > now { Err(Some(at)) } else { Ok(()) }
    }
}
