//! Transmission limits: the most packets in flight, and when the next one may leave.

use super::Sender;
use crate::params::Nanos;

/// Most bytes in flight before any arrival is reported: the initial rate may be fifty times that of
/// the link, and its queue would drop all that is sent in a round trip. These are 112 packets of
/// full size, 0.7 s at 2 Mbit/s and 13 ms at 100 Mbit/s; TCP inside starts with fewer. Twice as
/// many fill any queue of a slow link; half as many pause a start over 10 ms until its first report.
const FIRST_BYTES: usize = 112 * FULL_BYTES;

/// A packet of full size; the assumed size until it is known.
const FULL_BYTES: usize = 1500;

/// The minimum that a packet counts for in [`FIRST_BYTES`]: a queue may count packets.
const LEAST_BYTES: usize = 128;

/// Packets allowed beyond those that the rate sends during a round trip and a queue.
const SPARE_PACKETS: f64 = 32.0;

/// Delay of reports in addition to the round trip.
const REPORT_NANOS: Nanos = 2_000_000;

/// Assumed round trip until it is known.
const UNKNOWN_NANOS: Nanos = 600_000_000;

impl Sender {
    /// Most packets in flight.
    pub(super) fn window(&self) -> usize {
        let round_trip = self.round_trip.unwrap_or(UNKNOWN_NANOS);
        let nanos = 2 * self.rate.target(round_trip) + round_trip + round_trip / 4 + REPORT_NANOS;
        let bytes = self.rate.bytes_per_second() * nanos as f64 * 1e-9;
        let packet_bytes = self.mean_bytes.max(FULL_BYTES) as f64;
        let most = if self.rate.has_sample() { usize::MAX } else { self.first_window() };
        ((bytes / packet_bytes + SPARE_PACKETS) as usize).min(most).min(self.sent.capacity() - 1)
    }

    /// Most packets in flight before any arrival is reported.
    fn first_window(&self) -> usize {
        let mean = if self.mean_bytes == 0 { FULL_BYTES } else { self.mean_bytes };
        FIRST_BYTES / mean.clamp(LEAST_BYTES, FULL_BYTES)
    }

    /// Whether a packet may leave now; otherwise when, if that is known.
    pub(crate) fn opens_at(&self, now: Nanos) -> Result<(), Option<Nanos>> {
        if self.sent.on_their_way() >= self.window() {
            return Err(None);
        }
        let at = self.free_at.saturating_sub(self.rate.burst());
        if at > now { Err(Some(at)) } else { Ok(()) }
    }
}
