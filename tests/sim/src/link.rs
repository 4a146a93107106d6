//! One direction of a link: a bounded queue at a rate, then loss, delay, duplication, corruption.

use std::collections::VecDeque;

use recoded_code::theory::LossModel;
use recoded_pipeline::params::Nanos;
use recoded_wire::coded::{CodedHeader, PLANNED_MAX};
use recoded_wire::header::{Header, write_link_sequence};
use recoded_wire::shard::SHARDS_MAX;

use crate::delay::Delays;
use crate::hop_tags::HopTags;
use crate::random::{Random, Stream};

/// Overhead of a payload: Ethernet, IPv4 and UDP headers, preamble, checksum and gap.
const OVERHEAD_BYTES: u64 = 66;

/// How one direction of a link treats packets.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Link {
    /// Independent or Gilbert-Elliott losses, exactly the channel that `recoded_code::theory`
    /// computes with.
    pub loss: LossModel,
    /// Fixed delay of every packet.
    pub delay_nanos: Nanos,
    /// Additional delay, uniform from 0 to this.
    pub jitter_nanos: Nanos,
    /// Whether packets stay in order under jitter: each waits for those before it.
    pub keeps_order: bool,
    /// Share of packets that arrive twice; the copy has its own delay.
    pub duplication: f64,
    /// Share of packets that arrive altered in bytes or length.
    pub corruption: f64,
    /// Share of packets with a flipped bit in the last half, which is payload. This models a
    /// malicious relay whose packets its neighbour accepts.
    pub pollution: f64,
    /// Limit of the rate, with its queue.
    pub rate: Option<Rate>,
}

/// A limited rate.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Rate {
    /// Bits per second, including headers of lower layers.
    pub bits_per_second: u64,
    /// Capacity of the queue; a packet that finds it full is lost.
    pub queue_packets: usize,
}

impl Link {
    /// A link without loss and delay.
    pub const CLEAN: Link = Link {
        loss: LossModel::independent(0.0),
        delay_nanos: 0,
        jitter_nanos: 0,
        keeps_order: true,
        duplication: 0.0,
        corruption: 0.0,
        pollution: 0.0,
        rate: None,
    };

    /// A link with independent losses of probability `loss` and no other impairment.
    #[must_use]
    pub const fn lossy(loss: f64) -> Link {
        Link { loss: LossModel::independent(loss), ..Link::CLEAN }
    }

    /// A link that loses packets in runs of `burst_mean` on average.
    #[must_use]
    pub const fn bursty(loss: f64, burst_mean: f64) -> Link {
        Link { loss: LossModel { loss, burst_mean }, ..Link::CLEAN }
    }
}

/// Counters of one direction of a link.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct LinkCounters {
    /// Packets sent to it, and their bytes.
    pub offered: u64,
    /// Bytes of their payloads.
    pub offered_bytes: u64,
    /// Packets that found the queue full.
    pub overflowed: u64,
    /// Packets lost.
    pub lost: u64,
    /// Packets duplicated.
    pub duplicated: u64,
    /// Packets altered.
    pub corrupted: u64,
    /// Packets with altered payload and intact headers.
    pub polluted: u64,
    /// Time from hand-over to arrival.
    pub delays: Delays,
}

/// Arrival of a packet: its time, and its bytes if altered.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub at: Nanos,
    pub payload: Vec<u8>,
}

/// A link at work.
pub(crate) struct Channel {
    pub link: Link,
    /// Tags, if hops have keys.
    pub tags: Option<HopTags>,
    pub counters: LinkCounters,
    random: Random,
    /// Whether the channel is in its lossy state.
    is_bad: Option<bool>,
    /// When each waiting packet will have left.
    waiting: VecDeque<Nanos>,
    newest_arrival: Nanos,
    /// The newest data packet that it carried, if an attacker listens.
    seen: Option<Vec<u8>>,
}

impl Channel {
    pub(crate) fn new(link: Link, seed: u64, hop: usize, is_up: bool) -> Channel {
        Channel {
            link,
            tags: None,
            counters: LinkCounters::default(),
            random: Random::new(seed, Stream::Link { hop, is_up }),
            is_bad: None,
            waiting: VecDeque::new(),
            newest_arrival: 0,
            seen: None,
        }
    }

    /// From now on the newest data packet is kept, for an attacker.
    pub(crate) fn listen(&mut self) {
        self.seen.get_or_insert_default();
    }

    /// The newest data packet, if an attacker listens and there was one.
    pub(crate) fn seen(&self) -> Option<&[u8]> {
        self.seen.as_deref().filter(|packet| !packet.is_empty())
    }

    /// Changes the link under traffic; packets in flight arrive as planned.
    pub(crate) fn change(&mut self, link: Link) {
        self.link = link;
        self.is_bad = None;
    }

    /// Accepts a packet; `deliver` gets its arrivals, zero to two packets.
    pub(crate) fn send(
        &mut self,
        now: Nanos,
        mut payload: Vec<u8>,
        mut deliver: impl FnMut(Arrival),
    ) {
        self.counters.offered += 1;
        self.counters.offered_bytes += payload.len() as u64;
        if let Some(seen) = &mut self.seen {
            seen.clone_from(&payload);
        }
        if let Some(mut tags) = self.tags.take() {
            // A malicious relay has keys.
            self.pollute(&mut payload);
            tags.seal(&mut payload);
            self.tags = Some(tags);
        }
        let Some(departure) = self.depart(now, payload.len()) else {
            self.counters.overflowed += 1;
            return;
        };
        if self.is_lost() {
            self.counters.lost += 1;
            return;
        }
        if self.random.chance(self.link.corruption) {
            self.counters.corrupted += 1;
            mangle(&mut self.random, &mut payload);
        }
        if self.tags.is_none() {
            self.pollute(&mut payload);
        }
        if self.random.chance(self.link.duplication) {
            self.counters.duplicated += 1;
            let at = self.arrival(departure);
            deliver(Arrival { at, payload: payload.clone() });
        }
        let at = self.arrival(departure);
        self.counters.delays.record(at - now);
        deliver(Arrival { at, payload });
    }

    fn pollute(&mut self, payload: &mut [u8]) {
        if self.random.chance(self.link.pollution) {
            self.counters.polluted += 1;
            let length = payload.len();
            flip(&mut self.random, &mut payload[length / 2..], usize::MAX);
        }
    }

    /// When a packet has left the queue; `None` when the queue is full.
    fn depart(&mut self, now: Nanos, payload_bytes: usize) -> Option<Nanos> {
        while self.waiting.front().is_some_and(|departure| *departure <= now) {
            self.waiting.pop_front();
        }
        let Some(rate) = self.link.rate else { return Some(now) };
        if self.waiting.len() >= rate.queue_packets {
            return None;
        }
        let bits = (payload_bytes as u64 + OVERHEAD_BYTES) * 8;
        let begin = self.waiting.back().map_or(now, |last| now.max(*last));
        let departure = begin + bits * 1_000_000_000 / rate.bits_per_second.max(1);
        self.waiting.push_back(departure);
        Some(departure)
    }

    fn is_lost(&mut self) -> bool {
        let LossModel { loss, burst_mean } = self.link.loss;
        let memoryless = 1.0 / (1.0 - loss).max(f64::MIN_POSITIVE);
        if burst_mean <= memoryless {
            return self.random.chance(loss);
        }
        let leave = 1.0 / burst_mean;
        let enter = leave * loss / (1.0 - loss);
        let is_bad = match self.is_bad {
            None => self.random.chance(loss),
            Some(true) => !self.random.chance(leave),
            Some(false) => self.random.chance(enter),
        };
        self.is_bad = Some(is_bad);
        is_bad
    }

    fn arrival(&mut self, departure: Nanos) -> Nanos {
        let jitter = match self.link.jitter_nanos {
            0 => 0,
            most => self.random.among(0..=most),
        };
        let mut at = departure + self.link.delay_nanos + jitter;
        if self.link.keeps_order {
            at = at.max(self.newest_arrival);
            self.newest_arrival = at;
        }
        at
    }
}

/// Alters a packet as a hostile or broken path might.
fn mangle(random: &mut Random, payload: &mut Vec<u8>) {
    let length = payload.len().max(1);
    match random.among(0..=5) {
        0 => payload.truncate(random.size(0..=length - 1)),
        1 => payload.extend((0..random.size(1..=200)).map(|at| at as u8 ^ 0x5A)),
        2 => payload.iter_mut().for_each(|byte| *byte = random.number() as u8),
        3 => flip(random, payload, length),
        4 => flip(random, payload, 36),
        _ => forge(random, payload),
    }
}

/// Flips up to eight bits among the first `within` bytes.
fn flip(random: &mut Random, payload: &mut [u8], within: usize) {
    let within = within.min(payload.len());
    for _ in 0..random.among(1..=8) {
        if within > 0 {
            payload[random.size(0..=within - 1)] ^= 1 << random.among(0..=7);
        }
    }
}

/// Writes another plausible value into one header field.
fn forge(random: &mut Random, payload: &mut [u8]) {
    let Ok(mut coded) = CodedHeader::parse(payload) else { return forge_common(random, payload) };
    match random.among(0..=3) {
        0 => {
            let near = random.pick(&[0, 1, 3, 5, 7, 8]);
            coded.generation = coded.generation.wrapping_sub(4).wrapping_add(near);
        }
        1 => coded.generation = random.number() as u32,
        2 => coded.size = random.among(1..=256) as u16,
        _ => coded.planned = random.number() as u16 & PLANNED_MAX,
    }
    if random.chance(0.5) { coded.write(payload) } else { forge_common(random, payload) }
}

/// As [`forge`], of the fields of any packet.
fn forge_common(random: &mut Random, payload: &mut [u8]) {
    if Header::parse(payload).is_err() {
        return;
    }
    match random.among(0..=2) {
        0 => payload[2] = random.number() as u8,
        1 => payload[3] = random.among(0..=SHARDS_MAX as u64 - 1) as u8,
        _ => write_link_sequence(payload, random.number() as u32),
    }
}

#[cfg(test)]
mod tests {
    use recoded_wire::header::VERSION;

    use super::*;

    /// Sends `count` packets, one a microsecond; when each that arrived did.
    fn arrivals(channel: &mut Channel, count: u64) -> Vec<(u64, Nanos)> {
        let mut arrived = Vec::new();
        for number in 0..count {
            channel.send(number * 1000, vec![0; 59], |arrival| arrived.push((number, arrival.at)));
        }
        arrived
    }

    #[test]
    fn losses_have_the_share_and_the_mean_run_they_were_given() {
        for (loss, burst_mean) in [(0.1, 1.0), (0.1, 8.0), (0.3, 2.0), (0.02, 20.0)] {
            let mut channel = Channel::new(Link::bursty(loss, burst_mean), 3, 0, false);
            let count = 400_000;
            let mut came = vec![false; count as usize];
            arrivals(&mut channel, count)
                .iter()
                .for_each(|(number, _)| came[*number as usize] = true);
            let lost = came.iter().filter(|came| !**came).count() as f64;
            let runs = came.windows(2).filter(|pair| pair[0] && !pair[1]).count() as f64;
            let expected = f64::max(burst_mean, 1.0 / (1.0 - loss));
            // Runs are geometric: four standard errors of as many.
            let tolerance = 4.0 * (2.0 / runs).sqrt();
            assert!((lost / count as f64 / loss - 1.0).abs() < tolerance, "{lost} of {count}");
            assert!((lost / runs / expected - 1.0).abs() < tolerance, "runs of {}", lost / runs);
        }
    }

    #[test]
    fn a_link_that_loses_everything_delivers_nothing() {
        for burst_mean in [1.0, 8.0, f64::INFINITY] {
            let mut channel = Channel::new(Link::bursty(1.0, burst_mean), 3, 0, false);
            assert_eq!(arrivals(&mut channel, 1000), []);
        }
    }

    #[test]
    fn jitter_reorders_unless_order_is_kept() {
        let link = Link { delay_nanos: 5000, jitter_nanos: 9000, ..Link::CLEAN };
        for keeps_order in [true, false] {
            let mut channel = Channel::new(Link { keeps_order, ..link }, 4, 0, false);
            let arrived = arrivals(&mut channel, 1000);
            assert_eq!(arrived.len(), 1000);
            assert_eq!(arrived.is_sorted_by_key(|(_, at)| *at), keeps_order);
            assert!(arrived.iter().all(|(number, at)| *at >= number * 1000 + 5000));
        }
    }

    #[test]
    fn a_full_queue_overflows_and_the_rest_leaves_at_the_rate() {
        // 125 bytes in all: a microsecond each at a gigabit.
        let rate = Some(Rate { bits_per_second: 1_000_000_000, queue_packets: 10 });
        let mut channel = Channel::new(Link { rate, ..Link::CLEAN }, 5, 0, false);
        let mut arrived = Vec::new();
        for _ in 0..25 {
            channel.send(0, vec![0; 59], |arrival| arrived.push(arrival.at));
        }
        assert_eq!(arrived, (1..=10).map(|number| number * 1000).collect::<Vec<_>>());
        assert_eq!(channel.counters.overflowed, 15);
        let mut channel = Channel::new(channel.link, 5, 0, false);
        let arrived = arrivals(&mut channel, 100);
        assert!(arrived.iter().all(|(number, at)| *at == (number + 1) * 1000), "{arrived:?}");
    }

    #[test]
    fn corruption_alters_packets_of_every_length() {
        let link = Link { corruption: 1.0, duplication: 1.0, ..Link::CLEAN };
        let mut channel = Channel::new(link, 6, 0, false);
        let mut altered = 0;
        for length in 0..600 {
            let mut payload: Vec<u8> = (0..length).map(|at| at as u8 & 0xF).collect();
            payload.iter_mut().take(1).for_each(|byte| *byte = VERSION << 4 | 2);
            channel.send(0, payload.clone(), |arrival| {
                altered += usize::from(arrival.payload != payload);
            });
        }
        assert!(altered > 1000, "{altered} of 1200");
    }
}
