//! One direction of a timed link, without I/O and without a clock: packets and the time in, packets
//! out. Times are nanoseconds since any start.
//!
//! ```text
//!  enter -> [queue] -> airtime at the rate -> loss -> duplication -> [delay line] -> leave
//!              |                               |                      in order, but for
//!              +-> dropped if it is too long   +-> lost               those that are late
//! ```
//! Memory is allocated in the beginning: a packet that finds no free frame is refused and counted.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use super::random::Random;
use crate::config::{Chain, DirectionConfig};
use crate::counters::DirectionCounters;

/// Room for one packet: a full one with its Ethernet header, and a tag.
pub const FRAME_BYTES: usize = 1536;

/// Memory of one packet.
pub type Frame = Box<[u8; FRAME_BYTES]>;

/// Fewest and most frames of one direction; 65,536 are 100 MB.
const FRAMES_MIN: usize = 2048;
const FRAMES_MAX: usize = 65_536;

/// Mean packet size assumed by the number of frames: most packets are full, acknowledgements are
/// not.
const PACKET_BYTES_MEAN: f64 = 512.0;

/// Offset of IP, and the EtherTypes of IP.
const ETHERNET_BYTES: usize = 14;
const ETHER_TYPE_IPV4: [u8; 2] = [0x08, 0x00];
const ETHER_TYPE_IPV6: [u8; 2] = [0x86, 0xdd];
const EXTENSION_HOP_BY_HOP: u8 = 0;
const PROTOCOL_ICMPV6: u8 = 58;
const IPV6_BYTES: usize = 40;
/// Router solicitation to redirect, RFC 4861 section 4.
const NEIGHBOUR_DISCOVERY: std::ops::RangeInclusive<u8> = 133..=137;

/// A packet inside the link.
#[derive(Debug)]
pub struct Packet {
    frame: Frame,
    length: usize,
    /// The line of hosts it belongs to, among those that share the link.
    lane: usize,
    /// Whether it can be lost and is counted; packets for neighbour resolution are exempt.
    is_subject: bool,
}

impl Packet {
    /// The packet, from its Ethernet header on.
    pub fn bytes(&self) -> &[u8] {
        &self.frame[..self.length]
    }

    /// The line of hosts it belongs to, among those that share the link.
    pub fn lane(&self) -> usize {
        self.lane
    }
}

/// A packet in flight: due at a time, numbered in order of entry.
#[derive(Debug)]
struct Due {
    at: u64,
    number: u64,
    packet: Packet,
}

impl Due {
    fn key(&self) -> (u64, u64) {
        (self.at, self.number)
    }
}

impl PartialEq for Due {
    fn eq(&self, other: &Due) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Due) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Due) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

/// One direction.
#[derive(Debug)]
pub struct Direction {
    config: DirectionConfig,
    chain: Chain,
    is_bad: bool,
    lost_last: bool,
    random: Random,
    /// Packets that wait for the line, with the time of their arrival.
    queue: VecDeque<(u64, Packet)>,
    queued_bytes: u64,
    /// When the line becomes free.
    free_at: u64,
    /// Packets in flight, in order.
    line: VecDeque<Due>,
    /// Packets in flight that others may overtake.
    late: BinaryHeap<Reverse<Due>>,
    /// When the last packet of `line` is due, or was.
    last_due: u64,
    number: u64,
    frames: Vec<Frame>,
    counters: DirectionCounters,
}

impl Direction {
    /// A direction with the memory that its settings need.
    pub fn new(config: DirectionConfig, random: Random) -> Direction {
        let time = config.queue + config.delay + config.jitter + config.reorder_by;
        let wanted = config.rate_mbit * 1e6 / 8.0 * time.as_secs_f64() / PACKET_BYTES_MEAN;
        let count = (wanted as usize).clamp(FRAMES_MIN, FRAMES_MAX);
        Direction {
            chain: config.loss.chain(),
            config,
            is_bad: false,
            lost_last: false,
            random,
            queue: VecDeque::with_capacity(count),
            queued_bytes: 0,
            free_at: 0,
            line: VecDeque::with_capacity(count),
            late: BinaryHeap::with_capacity(count),
            last_due: 0,
            number: 0,
            frames: (0..count).map(|_| new_frame()).collect(),
            counters: DirectionCounters::default(),
        }
    }

    /// Counters so far, and the current queueing delay.
    pub fn counters(&mut self, now: u64) -> DirectionCounters {
        self.serve(now);
        let queue = Duration::from_nanos(self.wait(now));
        DirectionCounters { queue, ..self.counters }
    }

    /// Queueing delay of a packet that enters now.
    fn wait(&self, now: u64) -> u64 {
        self.free_at.saturating_sub(now) + self.airtime(self.queued_bytes)
    }

    /// Forgets the longest sojourn.
    pub fn reset_sojourn(&mut self) {
        self.counters.sojourn_max = Duration::ZERO;
    }

    /// Changes the settings from `now` on. Queued packets leave at the new rate; packets in flight
    /// arrive as planned.
    pub fn configure(&mut self, now: u64, config: DirectionConfig) {
        self.serve(now);
        self.chain = config.loss.chain();
        self.is_bad &= self.chain.bad_to_good > 0.0;
        self.config = config;
        // With a shorter delay, packets must not wait for those that left under a longer one.
        self.last_due = self.last_due.min(now + nanos(config.delay + config.jitter));
    }

    /// Accepts the first `length` bytes of `frame`, which arrived on `lane` at time `at`, no
    /// earlier than those before it. Swaps in another frame.
    pub fn enter(&mut self, at: u64, frame: &mut Frame, length: usize, lane: usize) {
        let is_subject = is_subject(&frame[..length.min(FRAME_BYTES)]);
        self.counters.seen += u64::from(is_subject);
        self.serve(at);
        if length > FRAME_BYTES {
            self.counters.merged += u64::from(is_subject);
            self.counters.refused += u64::from(is_subject);
            return;
        }
        if self.wait(at) > nanos(self.config.queue) {
            self.counters.queue_drops += u64::from(is_subject);
            return;
        }
        let Some(mut other) = self.frames.pop() else {
            self.counters.refused += u64::from(is_subject);
            return;
        };
        std::mem::swap(&mut other, frame);
        self.queued_bytes += length as u64;
        self.queue.push_back((at, Packet { frame: other, length, lane, is_subject }));
    }

    /// Sends all packets whose transmission can start until `now`.
    pub fn serve(&mut self, now: u64) {
        while let Some((arrived, _)) = self.queue.front() {
            let start = self.free_at.max(*arrived);
            if start > now {
                return;
            }
            let Some((arrived, packet)) = self.queue.pop_front() else { return };
            let bytes = packet.length as u64;
            self.queued_bytes -= bytes;
            self.free_at = start + self.airtime(bytes);
            if packet.is_subject {
                let sojourn = Duration::from_nanos(start - arrived);
                self.counters.sojourn_total += sojourn;
                self.counters.sojourn_max = self.counters.sojourn_max.max(sojourn);
                self.counters.bytes += bytes;
            }
            self.sent(packet);
        }
    }

    /// Decides the fate of a packet that has been transmitted.
    fn sent(&mut self, packet: Packet) {
        if packet.is_subject && self.lose() {
            self.frames.push(packet.frame);
            return;
        }
        let copy = (packet.is_subject && self.random.chance(self.config.duplicate))
            .then(|| self.copy(&packet))
            .flatten();
        let late = packet.is_subject && self.random.chance(self.config.reorder);
        let jitter = nanos(self.config.jitter) as f64 * self.random.unit();
        let at = self.free_at + nanos(self.config.delay) + jitter as u64;
        if late {
            self.counters.reordered += 1;
            let at = at + nanos(self.config.reorder_by);
            let due = self.due(at, packet);
            self.late.push(Reverse(due));
        } else {
            // Keeps the order regardless of jitter.
            self.last_due = self.last_due.max(at);
            let due = self.due(self.last_due, packet);
            self.line.push_back(due);
        }
        if let Some(copy) = copy {
            self.last_due = self.last_due.max(at);
            let due = self.due(self.last_due, copy);
            self.line.push_back(due);
            self.counters.duplicated += 1;
        }
    }

    fn due(&mut self, at: u64, packet: Packet) -> Due {
        self.number += 1;
        Due { at, number: self.number, packet }
    }

    /// Steps the chain and draws the fate of one packet, as the eBPF program does.
    fn lose(&mut self) -> bool {
        let leave = if self.is_bad { self.chain.bad_to_good } else { self.chain.good_to_bad };
        self.is_bad ^= self.random.chance(leave);
        let loss = if self.is_bad { self.chain.loss_bad } else { self.chain.loss_good };
        let lost = self.random.chance(loss);
        self.counters.dropped += u64::from(lost);
        self.counters.dropped_after_drop += u64::from(lost && self.lost_last);
        self.lost_last = lost;
        lost
    }

    fn copy(&mut self, packet: &Packet) -> Option<Packet> {
        let mut frame = self.frames.pop()?;
        frame[..packet.length].copy_from_slice(packet.bytes());
        Some(Packet { frame, ..*packet })
    }

    /// The next packet that is due until `now`.
    pub fn leave(&mut self, now: u64) -> Option<Packet> {
        let line = self.line.front().map(Due::key);
        let late = self.late.peek().map(|late| late.0.key());
        let (at, is_late) = match (line, late) {
            (Some(line), Some(late)) => (line.min(late).0, late < line),
            (Some(line), None) => (line.0, false),
            (None, Some(late)) => (late.0, true),
            (None, None) => return None,
        };
        if at > now {
            return None;
        }
        let due = if is_late { self.late.pop().map(|late| late.0) } else { self.line.pop_front() };
        due.map(|due| due.packet)
    }

    /// Recycles the memory of a packet that has left; `refused` if Linux did not accept it.
    pub fn recycle(&mut self, packet: Packet, refused: bool) {
        self.counters.refused += u64::from(refused && packet.is_subject);
        self.frames.push(packet.frame);
    }

    /// Earliest time at which a packet can be due; `None` if there is none.
    pub fn next_due(&self) -> Option<u64> {
        let queued = self.queue.front().map(|(arrived, packet)| {
            let end = self.free_at.max(*arrived) + self.airtime(packet.length as u64);
            end + nanos(self.config.delay)
        });
        let line = self.line.front().map(|due| due.at);
        let late = self.late.peek().map(|late| late.0.at);
        [queued, line, late].into_iter().flatten().min()
    }

    /// Least time from arrival to departure.
    pub fn delay(&self) -> u64 {
        nanos(self.config.delay)
    }

    fn airtime(&self, bytes: u64) -> u64 {
        // Mbit/s are bits per microsecond.
        (bytes as f64 * 8e3 / self.config.rate_mbit) as u64
    }
}

/// An empty frame.
pub fn new_frame() -> Frame {
    Box::new([0; FRAME_BYTES])
}

fn nanos(time: Duration) -> u64 {
    // Settings are below seconds.
    time.as_nanos() as u64
}

/// Whether loss applies to this packet: IP except neighbour resolution.
fn is_subject(packet: &[u8]) -> bool {
    match packet.get(12..ETHERNET_BYTES) {
        Some(kind) if kind == ETHER_TYPE_IPV4 => true,
        Some(kind) if kind == ETHER_TYPE_IPV6 => match packet.get(ETHERNET_BYTES + 6) {
            // Multicast listener discovery carries a router alert in a hop-by-hop header.
            Some(&EXTENSION_HOP_BY_HOP) => false,
            Some(&PROTOCOL_ICMPV6) => !packet
                .get(ETHERNET_BYTES + IPV6_BYTES)
                .is_some_and(|kind| NEIGHBOUR_DISCOVERY.contains(kind)),
            _ => true,
        },
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Loss;

    const MILLI: u64 = 1_000_000;

    /// When everything has left.
    const END: u64 = 100_000 * MILLI;

    fn direction(config: DirectionConfig) -> Direction {
        Direction::new(config, Random::new(7, 0))
    }

    /// 12 Mbit/s: a packet of 1500 bytes takes a millisecond.
    fn lossless() -> DirectionConfig {
        DirectionConfig::new(Loss::independent(0.0), 12.0)
    }

    fn enter(direction: &mut Direction, at: u64, mark: u8) {
        let mut frame = new_frame();
        frame[12..14].copy_from_slice(&ETHER_TYPE_IPV4);
        frame[14] = mark;
        direction.enter(at, &mut frame, 1500, 0);
    }

    /// Marks of the packets that leave until `now`.
    fn leave(direction: &mut Direction, now: u64) -> Vec<u8> {
        direction.serve(now);
        let mut marks = Vec::new();
        while let Some(packet) = direction.leave(now) {
            marks.push(packet.bytes()[14]);
            direction.recycle(packet, false);
        }
        marks
    }

    #[test]
    fn packets_leave_one_by_one_at_the_rate_and_after_the_delay() {
        let mut link = direction(DirectionConfig { delay: Duration::from_millis(5), ..lossless() });
        for mark in 0..3 {
            enter(&mut link, 0, mark);
        }
        assert_eq!(leave(&mut link, 6 * MILLI - 1), [0u8; 0]);
        assert_eq!(link.next_due(), Some(6 * MILLI));
        assert_eq!(leave(&mut link, 6 * MILLI), [0]);
        assert_eq!(leave(&mut link, 7 * MILLI - 1), [0u8; 0]);
        assert_eq!(leave(&mut link, 8 * MILLI), [1, 2]);
        assert_eq!(link.next_due(), None);
        assert_eq!(link.counters(END).sojourn_max, Duration::from_millis(2));
    }

    #[test]
    fn queue_drops_what_would_wait_longer_than_it_is() {
        let mut link = direction(DirectionConfig { queue: Duration::from_millis(4), ..lossless() });
        for mark in 0..10 {
            enter(&mut link, 0, mark);
        }
        // One is being sent, four wait.
        assert_eq!(link.counters(0).queue, Duration::from_millis(5));
        assert_eq!(link.counters(3 * MILLI).queue, Duration::from_millis(2));
        // The first leaves at once, four wait; the last of them for 4 ms.
        assert_eq!(leave(&mut link, 100 * MILLI), [0, 1, 2, 3, 4]);
        assert_eq!(link.counters(END).queue_drops, 5);
        assert_eq!(link.counters(END).sojourn_max, Duration::from_millis(4));
    }

    #[test]
    fn queue_is_served_at_a_new_rate_at_once() {
        let mut link = direction(lossless());
        for mark in 0..3 {
            enter(&mut link, 0, mark);
        }
        // The first is on the line already; the others take ten times as long.
        link.configure(0, DirectionConfig { rate_mbit: 1.2, ..lossless() });
        assert_eq!(leave(&mut link, 10 * MILLI), [0]);
        assert_eq!(leave(&mut link, 11 * MILLI), [1]);
        assert_eq!(leave(&mut link, 21 * MILLI), [2]);
    }

    #[test]
    fn late_packet_is_overtaken_and_others_keep_their_order_under_jitter() {
        let config = DirectionConfig {
            jitter: Duration::from_millis(20),
            reorder: 0.3,
            reorder_by: Duration::from_millis(100),
            ..lossless()
        };
        let mut link = direction(config);
        let mut marks = Vec::new();
        for mark in 0..100 {
            let at = u64::from(mark) * 2 * MILLI;
            marks.extend(leave(&mut link, at));
            enter(&mut link, at, mark);
        }
        marks.extend(leave(&mut link, 10_000 * MILLI));
        assert_eq!(marks.len(), 100);
        let mut highest = 0;
        let overtaken = marks.iter().filter(|mark| {
            highest = highest.max(**mark);
            **mark < highest
        });
        // The last ones have no packets behind them.
        let (overtaken, late) = (overtaken.count() as u64, link.counters(END).reordered);
        assert!(late > 15 && overtaken <= late && overtaken + 20 > late, "{overtaken} of {late}");
    }

    #[test]
    fn every_frame_comes_back_and_none_means_refusal() {
        let config = DirectionConfig {
            queue: Duration::from_secs(2),
            rate_mbit: 10_000.0,
            duplicate: 0.5,
            delay: Duration::from_millis(600),
            loss: Loss::independent(0.3),
            ..lossless()
        };
        let mut link = direction(config);
        let frames = link.frames.len();
        assert_eq!(frames, FRAMES_MAX);
        for number in 0..2 * FRAMES_MAX as u64 {
            enter(&mut link, number * 1200, 0);
        }
        assert!(link.counters(END).refused > 0);
        let left = leave(&mut link, 10_000 * MILLI).len() as u64;
        assert_eq!(link.frames.len(), frames);
        let counters = link.counters(END);
        let gone = counters.dropped + counters.refused + counters.queue_drops;
        assert_eq!(left, counters.seen - gone + counters.duplicated);
    }

    #[test]
    fn same_seed_loses_the_same_packets_and_arp_is_never_lost() {
        let config = DirectionConfig { loss: Loss::independent(0.5), ..lossless() };
        let run = |seed| {
            let mut link = Direction::new(config, Random::new(seed, 0));
            let mut marks = Vec::new();
            for mark in 0..100 {
                enter(&mut link, u64::from(mark) * 2 * MILLI, mark);
                marks.extend(leave(&mut link, u64::from(mark) * 2 * MILLI + MILLI));
            }
            marks
        };
        assert_eq!(run(3), run(3));
        assert_ne!(run(3), run(4));
        let mut link = direction(DirectionConfig { loss: Loss::independent(0.9), ..lossless() });
        for number in 0..20 {
            let mut frame = new_frame();
            frame[12..14].copy_from_slice(&[0x08, 0x06]);
            link.enter(number * MILLI, &mut frame, 60, 0);
        }
        assert_eq!(leave(&mut link, 100 * MILLI).len(), 20);
        assert_eq!(link.counters(END).seen, 0);
    }
}
