//! Cellular links in virtual time: their rate and delay follow a trace, and video of frames.

use super::link::Channel;
use super::{FLOW, Line, MILLI, Nanos, SECOND, ShardId};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::rc::Rc;

/// Duration of a step of a trace: the rate of a cell changes with fading, not faster.
const STEP: Nanos = 10 * MILLI;

/// Rate and added delay of a link over time. It repeats.
#[derive(Debug)]
pub struct Trace {
    /// Bits per second, 0 in an outage, and the delay added by scheduling, for each step.
    steps: Vec<(f64, Nanos)>,
}

/// Parameters of a cell, as a moving receiver sees it.
#[derive(Copy, Clone, Debug)]
pub struct Cell {
    /// Mean bits per second.
    pub rate: f64,
    /// Standard deviation of the logarithm of the rate, which changes over half a second.
    pub fading: f64,
    /// Most delay added by scheduling, uniform per step.
    pub scheduling: Nanos,
    /// Mean time between outages.
    pub between: Nanos,
    /// Least and most duration of an outage, uniform: a handover.
    pub outage: (Nanos, Nanos),
    /// Share of outages that are radio link failures: four times as long.
    pub failures: f64,
}

/// Uniform in 0..1.
fn uniform(random: &mut ChaCha8Rng) -> f64 {
    f64::from(random.next_u32()) / 4_294_967_296.0
}

/// Standard normal, by Irwin and Hall.
fn normal(random: &mut ChaCha8Rng) -> f64 {
    (0..12).map(|_| uniform(random)).sum::<f64>() - 6.0
}

impl Trace {
    /// A trace of this length.
    pub fn of(cell: &Cell, nanos: Nanos, seed: u64) -> Rc<Trace> {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let count = (nanos / STEP) as usize;
        let correlation = (-(STEP as f64) / (SECOND as f64 / 2.0)).exp();
        let innovation = cell.fading * (1.0 - correlation * correlation).sqrt();
        let mut level = cell.fading * normal(&mut random);
        let mut steps = Vec::with_capacity(count);
        let wait = |random: &mut ChaCha8Rng| {
            let nanos = -(1.0 - uniform(random)).ln() * cell.between as f64;
            (nanos / STEP as f64) as usize
        };
        let mut next = wait(&mut random);
        let mut out = 0;
        while steps.len() < count {
            level = correlation * level + innovation * normal(&mut random);
            let scheduling = (uniform(&mut random) * cell.scheduling as f64) as Nanos;
            if out == 0 && steps.len() >= next {
                let (least, most) = cell.outage;
                let takes = least as f64 + uniform(&mut random) * (most - least) as f64;
                let times = if uniform(&mut random) < cell.failures { 4.0 } else { 1.0 };
                out = (takes * times / STEP as f64) as usize;
                next = steps.len() + out + wait(&mut random);
            }
            let is_out = out > 0;
            out = out.saturating_sub(1);
            let rate = cell.rate * (level - cell.fading * cell.fading / 2.0).exp();
            steps.push((if is_out { 0.0 } else { rate.min(3.0 * cell.rate) }, scheduling));
        }
        Rc::new(Trace { steps })
    }

    fn at(&self, now: Nanos) -> (f64, Nanos) {
        self.steps[(now.saturating_sub(SECOND) / STEP) as usize % self.steps.len()]
    }

    /// When this many bits that start now have left.
    pub fn leaves(&self, mut now: Nanos, mut bits: f64) -> Nanos {
        loop {
            let until = (now / STEP + 1) * STEP;
            let rate = self.at(now).0;
            let room = rate * (until - now) as f64 * 1e-9;
            if room >= bits {
                return now + (bits / rate * 1e9) as Nanos;
            }
            bits -= room;
            now = until;
        }
    }

    /// Delay added to a packet that leaves now.
    pub fn scheduling(&self, now: Nanos) -> Nanos {
        self.at(now).1
    }
}

/// Delays of frames, at a receiver.
#[derive(Copy, Clone, Debug)]
pub struct Video {
    /// Share of packets that arrived within the deadline, and the 99th percentile of their delay.
    pub in_time: f64,
    pub p99: Nanos,
    pub p50: Nanos,
    /// Frames after their deadline, of all.
    pub late: usize,
    pub frames: usize,
    /// Packets that did not arrive within a second.
    pub lost: usize,
    /// Time during which the newest frame was late.
    pub stalled: Nanos,
    /// Bytes sent beyond one transmission of each packet.
    pub redundancy: f64,
    /// The most of it over one second.
    pub most: f64,
}

/// A frame: its time, and its packets.
#[derive(Copy, Clone, Debug)]
struct Frame {
    at: Nanos,
    first: usize,
    end: usize,
}

/// A sender of frames.
pub struct Camera {
    random: ChaCha8Rng,
    /// Frames per second, and mean packets of each.
    pub rate: f64,
    pub packets: f64,
    frames: Vec<Frame>,
    /// Bytes on all links and packets entered, by tenths of a second.
    spent: Vec<(u64, usize)>,
}

impl Camera {
    /// 30 Mbit/s: 60 frames a second of 48 packets of 1300 bytes on average; one a second is three
    /// times as large.
    pub fn new(seed: u64) -> Camera {
        let random = ChaCha8Rng::seed_from_u64(seed);
        Camera { random, rate: 60.0, packets: 48.0, frames: Vec::new(), spent: Vec::new() }
    }

    /// Sends frames while time passes.
    pub fn run(&mut self, line: &mut Line, nanos: Nanos) {
        let end = line.now + nanos;
        let every = (1e9 / self.rate) as Nanos;
        while line.now < end {
            let is_key = self.frames.len().is_multiple_of(self.rate as usize);
            let size = if is_key { 3.0 } else { 0.97 } * self.packets;
            let packets = (size * (0.7 + 0.6 * uniform(&mut self.random))) as usize;
            let first = line.entered.len();
            self.frames.push(Frame { at: line.now, first, end: first + packets });
            line.frame(packets);
            line.run(every);
            if self.frames.len().is_multiple_of(6) {
                self.spent.push((line.all_bytes(), line.entered.len()));
            }
        }
    }

    /// The outcome of the frames since a time.
    pub fn video(&self, line: &Line, since: Nanos, deadline: Nanos) -> Video {
        let mut came = vec![Nanos::MAX; line.entered.len()];
        line.delivered.iter().for_each(|it| {
            let at = &mut came[it.number as usize];
            *at = it.at.min(*at);
        });
        let frames: Vec<Frame> = self
            .frames
            .iter()
            .copied()
            .filter(|it| it.at >= since && it.end <= came.len())
            .collect();
        let whole = |it: &Frame| came[it.first..it.end].iter().copied().max().unwrap_or(it.at);
        let late = |it: &&Frame| whole(it) > it.at + deadline;
        let mut stalled = 0;
        let mut until = 0;
        for frame in frames.iter().filter(late) {
            let from = (frame.at + deadline).max(until);
            // The decoder continues with the next key frame.
            let end = whole(frame).min(frame.at + SECOND);
            stalled += end.saturating_sub(from);
            until = until.max(end);
        }
        let first = frames.first().map_or(0, |it| it.first);
        let mut took: Vec<Nanos> = (first..frames.last().map_or(0, |it| it.end))
            .map(|it| came[it].saturating_sub(line.entered[it]).min(SECOND))
            .collect();
        took.sort_unstable();
        let in_time = took.iter().filter(|it| **it <= deadline).count() as f64 / took.len() as f64;
        let whole_bytes = (line.load.bytes + 24 + 42) as f64;
        let beyond = |from: &(u64, usize), to: &(u64, usize)| {
            let symbols = (to.1 - from.1) as f64;
            (to.0 - from.0) as f64 / (symbols * whole_bytes) - 1.0
        };
        let skipped = ((since - SECOND) / (SECOND / 10)) as usize;
        let spent = &self.spent[skipped.min(self.spent.len() - 1)..];
        let most = spent.windows(11).map(|it| beyond(&it[0], &it[10])).fold(0.0, f64::max);
        Video {
            in_time,
            p99: took[took.len() * 99 / 100],
            p50: took[took.len() / 2],
            late: frames.iter().filter(late).count(),
            frames: frames.len(),
            lost: took.iter().filter(|it| **it == SECOND).count(),
            stalled,
            redundancy: beyond(&spent[0], &spent[spent.len() - 1]),
            most,
        }
    }
}

impl Line {
    /// From now on both directions of a link follow a trace.
    pub fn follow(&mut self, hop: usize, trace: &Rc<Trace>) {
        for channel in [&mut self.down[hop], &mut self.up[hop]] {
            channel.trace = Some(Rc::clone(trace));
        }
    }

    /// Lets this many packets enter at once.
    fn frame(&mut self, packets: usize) {
        for _ in 0..packets {
            self.one(ShardId { flow: FLOW, shard: 0 });
        }
        self.turn(0);
    }

    /// Bytes sent over all links towards the sink.
    fn all_bytes(&self) -> u64 {
        self.down.iter().map(|channel: &Channel| channel.bytes).sum()
    }
}
