//! Tests of rates on one link that others use, too, as fluids: a queue that everybody waits in.

use crate::params::Nanos;
use crate::peer::rate::Rate;
use crate::peer::sample::{AROUND_BYTES, Sample};

const LINK: f64 = 300e6 / 8.0;
const QUEUE_MAX: f64 = 25e6;
const STEP: f64 = 1e6;
const PACKET: f64 = 1500.0;

/// Somebody who sends, in bytes per second.
trait Flow {
    fn rate(&self, queue: f64) -> f64;
    /// What a step brought, the queue, the share that it dropped, and the time.
    fn step(&mut self, bytes: f64, queue: f64, dropped: f64, now: f64);
}

/// This sender, with always more to send.
struct Ours {
    rate: Rate,
    way: f64,
    since: f64,
    bytes: f64,
    sent: f64,
    least: f64,
}

impl Ours {
    fn new(way: f64) -> Self {
        Self { rate: Rate::new(), way, since: 0.0, bytes: 0.0, sent: 0.0, least: f64::MAX }
    }
}

impl Flow for Ours {
    fn rate(&self, _queue: f64) -> f64 {
        self.rate.bytes_per_second()
    }

    fn step(&mut self, bytes: f64, queue: f64, dropped: f64, now: f64) {
        self.bytes += bytes;
        self.sent += bytes / (1.0 - dropped);
        self.least = self.least.min(queue);
        let (nanos, round_trip) = (now - self.since, self.way + queue);
        if nanos < round_trip.clamp(10e6, 50e6) {
            return;
        }
        let packets = (self.bytes / PACKET) as u32;
        let sample = Sample {
            bytes: (f64::from(packets) * (PACKET - AROUND_BYTES as f64)) as u32,
            packets,
            sent: (self.sent / PACKET) as u32,
            nanos: nanos as Nanos,
            took: nanos as Nanos,
            queue: self.least as Nanos,
            backlog: 0,
            is_limited: true,
        };
        self.rate.queue(queue as Nanos, round_trip as Nanos);
        self.rate.sample(&sample, round_trip as Nanos, now as Nanos);
        (self.since, self.bytes, self.sent, self.least) = (now, 0.0, 0.0, f64::MAX);
    }
}

/// TCP with CUBIC, by RFC 9438, in segments.
struct Cubic {
    way: f64,
    window: f64,
    origin: f64,
    since: f64,
    /// Segments that were dropped since then.
    dropped: f64,
    is_starting: bool,
}

impl Cubic {
    fn new(way: f64) -> Self {
        Self { way, window: 10.0, origin: 0.0, since: 0.0, dropped: 0.0, is_starting: true }
    }
}

impl Flow for Cubic {
    fn rate(&self, queue: f64) -> f64 {
        self.window * PACKET * 1e9 / (self.way + queue)
    }

    fn step(&mut self, bytes: f64, queue: f64, dropped: f64, now: f64) {
        self.dropped += bytes * dropped / PACKET;
        let seconds = (now - self.since) * 1e-9;
        if self.dropped >= 1.0 && now > self.since + self.way + queue {
            self.origin = self.window;
            self.window *= 0.7;
            (self.since, self.dropped, self.is_starting) = (now, 0.0, false);
            return;
        }
        if self.is_starting {
            self.window *= (STEP / (self.way + queue)).exp2();
            return;
        }
        let inflection = (self.origin * 0.3 / 0.4).cbrt();
        let cubic = 0.4 * (seconds - inflection).powi(3) + self.origin;
        let round_trips = seconds * 1e9 / (self.way + queue);
        self.window = self.window.max(cubic).max(0.7 * self.origin + 0.53 * round_trips);
    }
}

/// What each flow gets of the link, on average from `from` to `until`; the second begins after two
/// seconds. And the mean queue, in nanoseconds.
fn shares(flows: &mut [Box<dyn Flow>; 2], (from, until): (f64, f64)) -> ([f64; 2], f64) {
    let (mut queue, mut now) = (0.0_f64, 0.0);
    let (mut got, mut queues, mut steps) = ([0.0; 2], 0.0, 0.0);
    while now < until * 1e9 {
        now += STEP;
        let mut rates = [flows[0].rate(queue), flows[1].rate(queue)];
        if now < 2e9 {
            rates[1] = 0.0;
        }
        let sum = rates[0] + rates[1];
        let wanted = queue + (sum - LINK) / LINK * STEP;
        let dropped = (wanted - QUEUE_MAX).max(0.0) / (sum / LINK * STEP);
        queue = wanted.clamp(0.0, QUEUE_MAX);
        let part = (LINK / sum).min(1.0);
        for (index, flow) in flows.iter_mut().enumerate() {
            let bytes = rates[index] * part * STEP * 1e-9;
            if index == 0 || now >= 2e9 {
                flow.step(bytes, queue, dropped, now);
            }
            if now >= from * 1e9 {
                got[index] += bytes;
            }
        }
        if now >= from * 1e9 {
            (queues, steps) = (queues + queue, steps + 1.0);
        }
    }
    let all = LINK * (until - from);
    (got.map(|bytes| bytes / all), queues / steps)
}

#[test]
fn beside_cubic_it_gets_between_half_and_twice_its_share() {
    for way in [10e6, 20e6, 40e6] {
        let mut flows: [Box<dyn Flow>; 2] = [Box::new(Ours::new(way)), Box::new(Cubic::new(way))];
        let ([ours, theirs], _) = shares(&mut flows, (10.0, 60.0));
        println!("round trip {} ms: ours {ours:.2}, theirs {theirs:.2}", way / 1e6);
        assert!((0.25..=0.75).contains(&ours), "{ours} beside {theirs} at {way}");
    }
}

/// Jain's index of two is at least 0.95.
#[test]
fn two_of_it_share_alike_and_keep_the_queue_short() {
    for way in [5e6, 20e6, 100e6] {
        let mut flows: [Box<dyn Flow>; 2] = [Box::new(Ours::new(way)), Box::new(Ours::new(way))];
        let ([first, second], queue) = shares(&mut flows, (30.0, 60.0));
        let jain = (first + second).powi(2) / (2.0 * (first * first + second * second));
        println!(
            "round trip {} ms: {first:.2}, {second:.2}; queue {:.1} ms",
            way / 1e6,
            queue / 1e6
        );
        assert!(jain >= 0.95, "{first} and {second} at {way}");
        assert!(first + second > 0.9, "{first} and {second} at {way}");
        assert!(queue < 15e6, "{queue} at {way}");
    }
}
