//! How much may leave: the most packets in flight, and when the next one leaves.

use super::Sender;
use crate::params::Nanos;

/// Most bytes in flight before anything is known of what arrives. The first rate may be fifty times
/// that of the link: a queue would drop all that is sent in a round trip. These are 112 packets of
/// full size, 0.7 s at 2 Mbit/s and 13 ms at 100 Mbit/s, and TCP inside begins with fewer. Twice as
/// many fill any queue of a slow link; with half as many, a start over 10 ms would pause for its
/// first report.
const FIRST_BYTES: usize = 112 * FULL_BYTES;

/// A packet of full size. Longer ones count as one, and one of unknown size, too.
const FULL_BYTES: usize = 1500;

/// No packet counts for less: a queue may count packets.
const LEAST_BYTES: usize = 128;

/// Packets beyond those that the rate sends while a round trip and a queue last.
const SPARE_PACKETS: f64 = 32.0;

/// Delay of reports in addition to the round trip.
const REPORT_NANOS: Nanos = 2_000_000;

/// A round trip that is not known yet may take as long.
const UNKNOWN_NANOS: Nanos = 600_000_000;

impl Sender {
    /// Most packets on the way.
    pub(super) fn window(&self) -> usize {
        let round_trip = self.round_trip.unwrap_or(UNKNOWN_NANOS);
        let nanos = 2 * self.rate.target(round_trip) + round_trip + round_trip / 4 + REPORT_NANOS;
        let bytes = self.rate.bytes_per_second() * nanos as f64 * 1e-9;
        let packet_bytes = self.mean_bytes.max(FULL_BYTES) as f64;
        let first = FIRST_BYTES / self.first_packet_bytes();
        let most = if self.rate.has_sample() { usize::MAX } else { first };
        ((bytes / packet_bytes + SPARE_PACKETS) as usize).min(most).min(self.sent.capacity() - 1)
    }

    /// Bytes of a packet of a start.
    fn first_packet_bytes(&self) -> usize {
        let mean = if self.mean_bytes == 0 { FULL_BYTES } else { self.mean_bytes };
        mean.clamp(LEAST_BYTES, FULL_BYTES)
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
