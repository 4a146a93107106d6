//! One direction of a link in virtual time: a rate, a queue, a delay, losses.

use super::{MILLI, Nanos};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::cell::Cell;
use std::rc::Rc;

/// Bytes around a UDP payload on a link.
const AROUND_BYTES: usize = 42;

/// One direction of a link.
#[derive(Copy, Clone, Debug)]
pub struct Link {
    /// Bits per second, Ethernet headers included.
    pub rate: f64,
    /// Most that a packet waits.
    pub queue: Nanos,
    pub delay: Nanos,
    /// Share of packets lost, and how many in a row on average.
    pub loss: f64,
    pub burst: f64,
    /// Share of packets that come late, and by how much; share that comes twice.
    pub reordered: (f64, Nanos),
    pub duplicated: f64,
    /// Longest UDP payload that it carries.
    pub bytes_max: usize,
}

impl Link {
    /// A link of 300 Mbit/s with a queue of 25 ms.
    pub fn new(loss: f64, delay_millis: u64) -> Link {
        Link {
            rate: 300e6,
            queue: 25 * MILLI,
            delay: delay_millis * MILLI,
            loss,
            burst: 1.0,
            reordered: (0.0, 0),
            duplicated: 0.0,
            bytes_max: usize::MAX,
        }
    }

    /// Most IP bytes per second that it carries in packets of `packet` bytes.
    pub fn limit(&self, packet: usize) -> f64 {
        self.rate / 8.0 * (1.0 - self.loss) * packet as f64 / (packet + 22 + AROUND_BYTES) as f64
    }
}

/// What happens on it.
pub struct Channel {
    pub link: Link,
    free_at: Rc<Cell<Nanos>>,
    is_bad: bool,
    random: ChaCha8Rng,
    pub sent: u64,
    pub bytes: u64,
    pub overflowed: u64,
    pub longest: Nanos,
}

impl Channel {
    pub fn new(link: Link, seed: u64) -> Channel {
        Channel {
            link,
            free_at: Rc::default(),
            is_bad: false,
            random: ChaCha8Rng::seed_from_u64(seed),
            sent: 0,
            bytes: 0,
            overflowed: 0,
            longest: 0,
        }
    }

    /// From now on it has its queue in common with another one.
    pub fn share(&mut self, other: &Channel) {
        self.free_at = Rc::clone(&other.free_at);
    }

    fn chance(&mut self, share: f64) -> bool {
        f64::from(self.random.next_u32()) < share * 4_294_967_296.0
    }

    /// When the copies of a packet arrive that is sent now.
    pub fn send(&mut self, bytes: usize, now: Nanos) -> Vec<Nanos> {
        let wait = self.free_at.get().saturating_sub(now);
        self.sent += 1;
        self.bytes += (bytes + AROUND_BYTES) as u64;
        if wait > self.link.queue {
            self.overflowed += 1;
            return Vec::new();
        }
        self.longest = self.longest.max(wait);
        let takes = ((bytes + AROUND_BYTES) as f64 * 8e9 / self.link.rate) as Nanos;
        self.free_at.set(self.free_at.get().max(now) + takes);
        let Link { loss, burst, delay, reordered: (late, by), duplicated, .. } = self.link;
        let is_lost = if burst <= 1.0 {
            self.chance(loss)
        } else {
            let leaves = 1.0 / burst;
            let enters = loss * leaves / (1.0 - loss);
            let turns = if self.is_bad { leaves } else { enters };
            if self.chance(turns) {
                self.is_bad = !self.is_bad;
            }
            self.is_bad
        };
        if is_lost || bytes > self.link.bytes_max {
            return Vec::new();
        }
        let arrives = self.free_at.get() + delay + if self.chance(late) { by } else { 0 };
        if self.chance(duplicated) { vec![arrives, arrives + MILLI] } else { vec![arrives] }
    }
}
