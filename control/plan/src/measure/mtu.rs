//! Exact size of the largest packets that arrive, measured with packets that no router may
//! fragment.
//!
//! Each round probes sizes spread over the remaining range, in both directions. Sizes above the
//! largest arrival are probed several times, far enough apart that a loss burst does not take all
//! of them and a slow link is not filled.

use std::time::{Duration, Instant};

use rustix::net::sockopt::{ip_mtu, ipv6_mtu};

use super::{Client, LATE, left};
use crate::error::MeasureError;
use crate::packet::Body;
use crate::socket::header_bytes;
use crate::train::PAYLOAD_BYTES_MAX;

/// Minimum MTU of IPv4 hosts, and of IPv6.
const LEAST_V4: u16 = 576;
const LEAST_V6: u16 = 1280;

/// Sizes per round, attempts per size, and the interval between attempts.
const SIZES: u16 = 8;
const COPIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(25);

/// Remaining range of a direction.
#[derive(Copy, Clone, Debug)]
struct Range {
    /// Largest that arrived.
    arrives: u16,
    /// Smallest that did not, or one more than the largest that can be sent.
    vanishes: u16,
}

impl Range {
    fn sizes(self) -> impl Iterator<Item = u16> {
        let between = self.vanishes.saturating_sub(self.arrives).saturating_sub(1);
        let count = between.min(SIZES);
        (1..=count).map(move |index| {
            let offset = u32::from(between) * u32::from(index) / u32::from(count.max(1));
            self.arrives + offset as u16
        })
    }

    fn arrived(&mut self, bytes: u16) {
        if bytes < self.vanishes {
            self.arrives = self.arrives.max(bytes);
        }
    }

    /// Sizes above the largest arrival did not arrive.
    fn end(&mut self, tried: &[u16]) {
        let gone = tried.iter().filter(|bytes| **bytes > self.arrives).min();
        self.vanishes = gone.map_or(self.vanishes, |gone| self.vanishes.min(*gone));
    }

    fn is_known(self) -> bool {
        self.arrives + 1 >= self.vanishes
    }
}

impl Client {
    /// The largest IP packets that arrive in each direction.
    pub(super) fn largest(&mut self) -> Result<(u16, u16), MeasureError> {
        let headers = header_bytes(self.remote.ip());
        let is_v4 = self.remote.ip().to_canonical().is_ipv4();
        let least = if is_v4 { LEAST_V4 } else { LEAST_V6 };
        let most = PAYLOAD_BYTES_MAX as u16 + headers;
        // Limit of this host's interface. The far end's may be higher or lower.
        let socket = self.endpoint.socket();
        let own = if is_v4 { ip_mtu(socket) } else { ipv6_mtu(socket) };
        let own = own
            .ok()
            .map(|own| u16::try_from(own).unwrap_or(u16::MAX))
            .unwrap_or(1500)
            .clamp(least, most);
        let begin = Range { arrives: least, vanishes: own + 1 };
        let (mut there, mut back) = (begin, begin);
        while !(there.is_known() && back.is_known()) {
            let sizes: Vec<u16> = there.sizes().collect();
            let back_sizes: Vec<u16> = back.sizes().collect();
            for _ in 0..COPIES {
                let until = Instant::now() + PAUSE;
                // Sizes below one that arrived need no further probe.
                for bytes in sizes.iter().filter(|bytes| **bytes > there.arrives) {
                    let payload_bytes = bytes - headers;
                    // Larger than the interface allows now: it does not arrive either.
                    self.say(Body::Probe { payload_bytes }, payload_bytes.into()).ok();
                }
                for bytes in back_sizes.iter().filter(|bytes| **bytes > back.arrives) {
                    self.say(Body::ProbeBack { payload_bytes: bytes - headers }, 0)?;
                }
                self.echoes(until, headers, &mut there, &mut back)?;
                if there.is_known() && back.is_known() {
                    return Ok((there.arrives, back.arrives));
                }
            }
            let until = Instant::now() + self.round_trip * 3 / 2 + LATE / 2;
            self.echoes(until, headers, &mut there, &mut back)?;
            there.end(&sizes);
            back.end(&back_sizes);
        }
        Ok((there.arrives, back.arrives))
    }

    fn echoes(
        &mut self,
        until: Instant,
        headers: u16,
        there: &mut Range,
        back: &mut Range,
    ) -> Result<(), MeasureError> {
        while left(until).is_some() {
            let Some(received) = self.hear(until)? else { break };
            match self.said(&received) {
                Some(Body::Probed { payload_bytes }) => {
                    there.arrived(payload_bytes.saturating_add(headers));
                }
                Some(Body::Echo { payload_bytes })
                    if usize::from(payload_bytes) == received.bytes =>
                {
                    back.arrived(payload_bytes.saturating_add(headers));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(least: u16, most: u16, mtu: u16) -> (u16, u32) {
        let (mut range, mut rounds) = (Range { arrives: least, vanishes: most + 1 }, 0);
        while !range.is_known() {
            let sizes: Vec<u16> = range.sizes().collect();
            assert!(!sizes.is_empty() && sizes.len() <= 8);
            sizes.iter().filter(|bytes| **bytes <= mtu).for_each(|bytes| range.arrived(*bytes));
            range.end(&sizes);
            rounds += 1;
        }
        (range.arrives, rounds)
    }

    #[test]
    fn every_size_is_found_in_few_rounds() {
        for mtu in 576..=1500 {
            let (found, rounds) = search(576, 1500, mtu);
            assert!(found == mtu && rounds <= 4, "{found} after {rounds}, of {mtu}");
        }
        assert_eq!(search(576, 9244, 8999).0, 8999);
        assert_eq!(search(576, 576, 576), (576, 0));
    }

    /// A listener that lies about sizes that were never probed.
    #[test]
    fn sizes_beyond_the_range_are_not_believed() {
        let mut range = Range { arrives: 576, vanishes: 1501 };
        range.arrived(u16::MAX);
        range.arrived(1501);
        assert_eq!(range.arrives, 576);
    }
}
