//! The MTU of a link changes repeatedly while a stream with keys runs: soon after the last change
//! it carries as much as one over an unchanged link, on dedicated processors and on shared ones.

use crate::timed::{Line, Link, Load, MILLI, SECOND};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use recoded_pipeline::params::FlowParams;

/// Bytes of an IP packet, with room for an envelope and a tag in a symbol.
const BYTES: usize = 1380;

/// Bytes of an MTU outside the UDP payload.
const AROUND: usize = 28;
const WIDE: usize = 1500;

/// Time between two changes, each to the narrow MTU or back.
const FLAP: u64 = 500 * MILLI;

/// Time within which the flow recovers after the last change, and how long it is then observed.
const RECOVERY: u64 = 2 * SECOND;
const WATCHED: u64 = 3 * SECOND;

/// How often a worker is kept from its processor, and for how long at most.
const STALL_EVERY: u64 = 200 * MILLI;
const STALL: u64 = 30 * MILLI;

const STEP: u64 = 10 * MILLI;

#[derive(Copy, Clone, Debug)]
struct Case {
    narrow: usize,
    ends_narrow: bool,
    /// Packets per second; `None`: as many as the path carries.
    rate: Option<f64>,
    delay_millis: u64,
    loss: f64,
    is_busy: bool,
    seed: u64,
}

const QUIET: Case = Case {
    narrow: WIDE,
    ends_narrow: false,
    rate: Some(2000.0),
    delay_millis: 0,
    loss: 0.0,
    is_busy: false,
    seed: 3,
};

/// The line with its tunnel, whose MTU follows the source's limit, and workers that wait for a
/// processor.
struct Run {
    line: Line,
    is_busy: bool,
    random: ChaCha8Rng,
}

impl Run {
    /// Lets time pass, and returns the bytes that are delivered meanwhile.
    fn pass(&mut self, nanos: u64) -> usize {
        let mut bytes = 0;
        for _ in 0..nanos / STEP {
            let delivered = self.line.delivered.len();
            let longest = self.line.flow(0).packet_bytes_max.unwrap_or(BYTES);
            self.line.load.bytes = longest.clamp(576, BYTES);
            for node in 0..self.line.nodes() {
                let chance = u64::from(self.random.next_u32());
                if self.is_busy && chance * STALL_EVERY < STEP << 32 {
                    let length = (u64::from(self.random.next_u32()) * STALL) >> 32;
                    self.line.stall(node, length);
                }
            }
            self.line.run(STEP);
            bytes += (self.line.delivered.len() - delivered) * self.line.load.bytes;
        }
        bytes
    }
}

/// Arrivals after the last change.
#[derive(Copy, Clone, Debug)]
struct Arrived {
    /// Packets, at a fixed packet rate; bytes, if as many enter as the path carries: the tunnel may
    /// have a smaller MTU for a while.
    amount: usize,
    /// Share of the packets that entered.
    share: f64,
}

fn flap(case: Case) -> Arrived {
    let Case { narrow, ends_narrow, rate, delay_millis, loss, is_busy, seed } = case;
    let link = Link { rate: 40e6, ..Link::new(loss, delay_millis) };
    let load = Load { bytes: BYTES, rate, ordered: false };
    let keyed = |params: &mut FlowParams| (params.sealed, params.tagged) = (true, true);
    let mut line = Line::with(&[link; 3], load, seed, keyed);
    // Short packets arrive at any MTU.
    line.sparse = 10;
    let random = ChaCha8Rng::seed_from_u64(seed);
    let mut run = Run { line, is_busy, random };
    run.pass(2 * SECOND);
    let narrowed = Link { bytes_max: narrow - AROUND, ..link };
    for turn in 0..if ends_narrow { 7 } else { 8 } {
        run.line.set(1, if turn % 2 == 0 { narrowed } else { link });
        run.pass(FLAP);
    }
    run.pass(RECOVERY.saturating_sub(FLAP));
    let since = run.line.entered();
    let delivered = run.line.delivered.len();
    let bytes = run.pass(WATCHED);
    let packets = run.line.delivered.len() - delivered;
    let until = run.line.entered();
    run.line.stop(SECOND);
    let range = since as u32..until as u32;
    let arrived = run.line.delivered.iter().filter(|packet| range.contains(&packet.number));
    let share = arrived.count() as f64 / range.len().max(1) as f64;
    Arrived { amount: if rate.is_some() { packets } else { bytes }, share }
}

/// Narrow MTUs, and whether a link ends with them. At 576, no tunnel has an MTU small enough for
/// its packets to pass.
const NARROW: [(usize, bool); 5] =
    [(1280, false), (1280, true), (1000, false), (1000, true), (576, false)];

#[test]
fn flow_recovers_within_two_seconds_of_the_last_change_of_an_mtu() {
    let mut wrong = Vec::new();
    for (delay_millis, loss, seed) in [(0, 0.0, 3), (10, 0.02, 3), (10, 0.02, 4)] {
        for rate in [Some(2000.0), None] {
            let steady = Case { rate, delay_millis, loss, seed, ..QUIET };
            let twin = flap(steady);
            for (narrow, ends_narrow) in NARROW {
                let case = Case { narrow, ends_narrow, ..steady };
                let arrived = flap(case);
                println!("{case:?}: {arrived:?}, without changes {}", twin.amount);
                if arrived.amount < twin.amount * 8 / 10 || arrived.share < 0.99 {
                    wrong.push((case, arrived, twin));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A worker that waits for its processor is late at any MTU: MTU changes add nothing.
#[test]
fn workers_that_share_their_processors_recover_from_changes_of_an_mtu_as_well() {
    let busy = |narrow, rate| {
        let run = |seed| flap(Case { narrow, rate, is_busy: true, seed, ..QUIET }).amount;
        (0..5).map(run).sum::<usize>()
    };
    for rate in [Some(2000.0), None] {
        let twin = busy(WIDE, rate);
        for narrow in [1280, 1000, 576] {
            let came = busy(narrow, rate);
            println!("{narrow}, {rate:?}: {came} arrive, without changes {twin}");
            assert!(came >= twin * 8 / 10, "{narrow}, {rate:?}: {came} of {twin}");
        }
    }
}
