//! Bytes that a packet may cause a relay to send.
//!
//! A combination carries the coefficients of all symbols of its generation, and a packet with one
//! source symbol carries an index. With symbols of one byte, the combination is ten times as long.
//! Packets also announce how many packets each hop plans. Output is therefore bounded in bytes of
//! the same generation, not only in packets of its rank. Honest symbols are much longer than their
//! coefficients, and stay below the bound at loss rates up to two thirds.

use crate::config::params::FlowParams;
use crate::packet::collected::Collected;
use crate::unit::relay::Relay;

/// Bytes sent of a generation per byte received of it, without keys. At half of it, a link with a
/// loss rate of 40 % would lack redundancy; at twice, a forger gains more than by sending himself.
const SENT_PER_RECEIVED: f64 = 3.0;

impl Relay {
    /// The table entry of a generation, if it is held.
    pub(super) fn held_mut(&mut self, generation: u32) -> Option<&mut Collected> {
        let index = self.generations.index(generation);
        let is_held = self.generations.is_held(index);
        let collected = &mut self.generations[index];
        (is_held && collected.generation == generation).then_some(collected)
    }

    /// How many of `count` planned combinations of a generation may leave.
    pub(super) fn bounded(&self, index: usize, params: &FlowParams, count: u16) -> u16 {
        let collected = &self.generations[index];
        let Some(sources) = collected.sources() else { return 0 };
        // Packets of tagged flows are those of the source; the configured bound suffices.
        let share = match params.tagged {
            true => params.redundancy_max.max(SENT_PER_RECEIVED),
            false => SENT_PER_RECEIVED,
        };
        let most = (share * collected.bytes_received as f64) as u64;
        let room = most.saturating_sub(collected.bytes_sent) / sources.packet_bytes().max(1) as u64;
        count.min(u16::try_from(room).unwrap_or(u16::MAX))
    }

    /// How many bytes a combination of a generation has per byte of a received packet, at least 1.
    pub(super) fn inflation(&self, index: usize) -> f64 {
        let collected = &self.generations[index];
        let Some(sources) = collected.sources().filter(|_| collected.packets_received > 0) else {
            return 1.0;
        };
        let mean = collected.bytes_received as f64 / f64::from(collected.packets_received);
        (sources.packet_bytes() as f64 / mean).max(1.0)
    }
}
