//! Streams over links of 2 to 10 Mbit/s behind external queues, which drop and delay a burst as one
//! packet, with workers that are woken late.

use crate::timed::{Line, Link, Load, MILLI, SECOND};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use recoded_pipeline::params::Nanos;

/// Greedy TCP.
const GREEDY: Load = Load { bytes: 1300, rate: None, ordered: true };

/// Bytes on the link of a packet of plain TCP.
const TCP_BYTES: f64 = 1514.0;

/// Longest wake-up delay of a worker on an emulated or busy processor.
const LATE: Nanos = 15 * MILLI;

fn slow(mbit: f64, queue_millis: u64) -> Link {
    Link { rate: mbit * 1e6, queue: queue_millis * MILLI, whole: true, ..Link::new(0.0, 20) }
}

/// Lets time pass while a worker is occasionally stalled for up to `late`.
fn run(line: &mut Line, random: &mut ChaCha8Rng, late: Nanos, nanos: Nanos) {
    let mut draw = |most: Nanos| u64::from(random.next_u32()) % most;
    let end = line.now + nanos;
    while line.now < end {
        if late > 0 {
            let node = draw(2) as usize;
            line.stall(node, draw(late / MILLI + 1) * MILLI);
        }
        line.run(((5 + draw(20)) * MILLI).min(end - line.now));
    }
}

/// Share of a link's capacity that is delivered in seconds 2 to 6.
fn share(line: &mut Line, late: Nanos) -> f64 {
    let mut random = ChaCha8Rng::seed_from_u64(5);
    run(line, &mut random, late, 2 * SECOND);
    let since = line.now;
    run(line, &mut random, late, 4 * SECOND);
    line.goodput(since) / line.link().limit(GREEDY.bytes)
}

fn rate_mbit(line: &Line) -> f64 {
    line.flow(0).next_hops[0].bytes_per_second * 8e-6
}

/// A worker that was woken late was once mistaken for one with nothing to send, whose rate never
/// rises: a hop of 2 Mbit/s stayed at 0.35 of that without a queue.
#[test]
fn hop_whose_workers_are_woken_late_fills_a_slow_link() {
    for control in [None, Some("cubic")] {
        let mut line = Line::new(&[slow(2.0, 240)], GREEDY, 1);
        control.into_iter().for_each(|control| line.inside(control));
        let share = share(&mut line, LATE);
        println!("{control:?}: {share:.2}, rate {:.1}", rate_mbit(&line));
        assert!(share > 0.75, "{share} of the link");
    }
}

/// A burst sent in one call is one packet to a queue of Linux, which drops all of it.
#[test]
fn bursts_are_as_long_as_the_pace_allows() {
    for mbit in [2.0, 10.0, 50.0, 500.0] {
        let mut line = Line::new(&[slow(mbit, 240)], GREEDY, 1);
        line.run(3 * SECOND);
        line.most_at_once(0);
        line.run(2 * SECOND);
        let (most, rate) = (line.most_at_once(0) as f64, rate_mbit(&line).max(mbit));
        // 1.5 ms, or two packets, and the packet that reaches that limit.
        let allowed = (rate * 1.25e5 * 1.5e-3).max(2.0 * TCP_BYTES) + 2.0 * TCP_BYTES;
        println!("{mbit} Mbit/s: {most} bytes at once, {allowed:.0} allowed");
        assert!(most < 1.3 * allowed, "{most} bytes at once at {mbit} Mbit/s");
    }
}
