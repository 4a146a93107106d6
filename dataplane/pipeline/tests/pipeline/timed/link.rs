//! One direction of a link in virtual time: a rate, a queue, a delay, losses.

use super::cellular::Trace;
use super::{MILLI, Nanos};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::cell::Cell;
use std::rc::Rc;

/// Bytes around a UDP payload on a link.
const AROUND_BYTES: usize = 42;

/// Limits of one message: segments, and bytes.
const SEGMENTS_MAX: usize = 64;
const RUN_BYTES_MAX: usize = 65_000;

/// One direction of a link.
#[derive(Copy, Clone, Debug)]
pub struct Link {
    /// Bits per second, Ethernet headers included.
    pub rate: f64,
    /// Maximum queueing delay of a packet.
    pub queue: Nanos,
    pub delay: Nanos,
    /// Share of packets lost, and how many in a row on average.
    pub loss: f64,
    pub burst: f64,
    /// Share of packets that come late, and by how much; share that is duplicated.
    pub reordered: (f64, Nanos),
    pub duplicated: f64,
    /// Maximum additional delay, uniform, and how long a drawn value lasts; packets stay in order.
    pub jitter: (Nanos, Nanos),
    /// Longest UDP payload that it carries.
    pub bytes_max: usize,
    /// Whether packets of equal size sent at once are one packet to its queue, as segments of UDP
    /// are to netem and fq: they are dropped together, and arrive together.
    pub whole: bool,
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
            jitter: (0, 0),
            bytes_max: usize::MAX,
            whole: false,
        }
    }

    /// Most IP bytes per second that it carries in packets of `packet` bytes.
    pub fn limit(&self, packet: usize) -> f64 {
        self.rate / 8.0 * (1.0 - self.loss) * packet as f64 / (packet + 22 + AROUND_BYTES) as f64
    }
}

/// State and counters of the link.
pub struct Channel {
    pub link: Link,
    /// Instead of a constant rate.
    pub trace: Option<Rc<Trace>>,
    free_at: Rc<Cell<Nanos>>,
    is_bad: bool,
    /// Jitter: the period that it was last drawn in, that delay, and the newest arrival.
    drawn: (Nanos, Nanos),
    newest: Nanos,
    random: ChaCha8Rng,
    pub sent: u64,
    pub bytes: u64,
    pub overflowed: u64,
    pub longest: Nanos,
    /// Bytes sent at once: when, how many, and the most.
    at_once: (Nanos, u64),
    pub most_at_once: u64,
}

impl Channel {
    pub fn new(link: Link, seed: u64) -> Channel {
        Channel {
            link,
            trace: None,
            free_at: Rc::default(),
            is_bad: false,
            drawn: (0, 0),
            newest: 0,
            random: ChaCha8Rng::seed_from_u64(seed),
            sent: 0,
            bytes: 0,
            overflowed: 0,
            longest: 0,
            at_once: (0, 0),
            most_at_once: 0,
        }
    }

    /// From now on it shares its queue with another one.
    pub fn share(&mut self, other: &Channel) {
        self.free_at = Rc::clone(&other.free_at);
    }

    fn chance(&mut self, share: f64) -> bool {
        f64::from(self.random.next_u32()) < share * 4_294_967_296.0
    }

    /// When the copies of each packet arrive, if packets of these sizes are sent now, one after the
    /// other.
    pub fn send_all(&mut self, bytes: &[usize], now: Nanos) -> Vec<Vec<Nanos>> {
        if !self.link.whole {
            return bytes.iter().map(|bytes| self.send(*bytes, now)).collect();
        }
        let mut all = Vec::with_capacity(bytes.len());
        let mut left = bytes;
        while let Some(first) = left.first() {
            let most = SEGMENTS_MAX.min(RUN_BYTES_MAX / first.max(&1)).max(1);
            let count = left.iter().take(most).take_while(|bytes| *bytes == first).count();
            let (run, rest) = left.split_at(count);
            left = rest;
            // All of it has room, or none.
            let has_room = self.free_at.get().saturating_sub(now) <= self.link.queue;
            let room = if has_room { Nanos::MAX } else { 0 };
            let queue = std::mem::replace(&mut self.link.queue, room);
            let mut arrive: Vec<_> = run.iter().map(|bytes| self.send(*bytes, now)).collect();
            self.link.queue = queue;
            let last = arrive.iter().flatten().copied().max().unwrap_or(0);
            arrive.iter_mut().flatten().for_each(|at| *at = last);
            all.append(&mut arrive);
        }
        all
    }

    /// An arrival with jitter, behind those before it.
    fn in_order(&mut self, arrives: Nanos) -> Nanos {
        let (most, every) = self.link.jitter;
        if self.trace.is_some() {
            self.newest = self.newest.max(arrives);
            return self.newest;
        }
        if most == 0 {
            return arrives;
        }
        let period = arrives / every.max(1);
        if self.drawn.0 != period {
            self.drawn = (period, (u64::from(self.random.next_u32()) * most) >> 32);
        }
        self.newest = self.newest.max(arrives + self.drawn.1);
        self.newest
    }

    /// When the copies of a packet arrive that is sent now.
    pub fn send(&mut self, bytes: usize, now: Nanos) -> Vec<Nanos> {
        let wait = self.free_at.get().saturating_sub(now);
        self.sent += 1;
        let wire_bytes = (bytes + AROUND_BYTES) as u64;
        self.bytes += wire_bytes;
        let before = if self.at_once.0 == now { self.at_once.1 } else { 0 };
        self.at_once = (now, before + wire_bytes);
        self.most_at_once = self.most_at_once.max(self.at_once.1);
        if wait > self.link.queue {
            self.overflowed += 1;
            return Vec::new();
        }
        self.longest = self.longest.max(wait);
        let (start, bits) = (self.free_at.get().max(now), (bytes + AROUND_BYTES) as f64 * 8.0);
        let (left, held) = match &self.trace {
            None => (start + (bits * 1e9 / self.link.rate) as Nanos, 0),
            Some(trace) => {
                let left = trace.leaves(start, bits);
                (left, trace.scheduling(left))
            }
        };
        self.free_at.set(left);
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
        let late = if self.chance(late) { by } else { 0 };
        let arrives = self.in_order(left + held + delay) + late;
        if self.chance(duplicated) { vec![arrives, arrives + MILLI] } else { vec![arrives] }
    }
}
