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

/// Share of a link's capacity that is delivered in seconds 2 to 10.
fn share(line: &mut Line, late: Nanos) -> f64 {
    let mut random = ChaCha8Rng::seed_from_u64(5);
    run(line, &mut random, late, 2 * SECOND);
    let since = line.now;
    run(line, &mut random, late, 8 * SECOND);
    line.goodput(since) / line.link().limit(GREEDY.bytes)
}

fn rate_mbit(line: &Line) -> f64 {
    line.flow(0).next_hops[0].bytes_per_second * 8e-6
}

/// A start at the initial rate, 100 Mbit/s, overflows the queue of a slow link. Its drops were once
/// mistaken for loss of the link: the rate stayed at 17 to 150 Mbit/s, nine of ten packets were
/// dropped, and a combination with each symbol took half of the rest.
#[test]
fn start_over_a_slow_link_finds_its_rate() {
    let links =
        [(2.0, 20, 0.0), (2.0, 240, 0.0), (2.0, 240, 0.1), (10.0, 20, 0.0), (10.0, 240, 0.0)];
    for (mbit, queue, loss) in links {
        let link = Link { whole: false, loss, ..slow(mbit, queue) };
        let mut line = Line::new(&[link], GREEDY, 1);
        let share = share(&mut line, 0);
        let rate = rate_mbit(&line);
        let (sent, _, full) = line.sent(0);
        line.run(2 * SECOND);
        let (later, _, dropped) = line.sent(0);
        let dropped = (dropped - full) as f64 / (later - sent) as f64;
        println!("{mbit} Mbit/s, {queue} ms: {share:.2}, rate {rate:.1}, {dropped:.3} dropped");
        assert!(share > 0.9 && dropped < 0.1, "{share} of the link, {dropped} dropped");
        assert!((0.5..1.3).contains(&(rate / mbit)), "{rate} Mbit/s");
    }
}

/// TCP inside pauses: the initial rate once stayed forever, each of its bursts overflowed the
/// queue, and repair packets took the rest of the link.
#[test]
fn tcp_inside_carries_nearly_what_plain_tcp_does_over_a_slow_link() {
    for (mbit, queue) in [(2.0, 20), (2.0, 240), (10.0, 20), (10.0, 240)] {
        for control in ["cubic", "bbr"] {
            let link = slow(mbit, queue);
            let mut plain = Line::new(&[link], GREEDY, 1);
            plain.pause();
            let rival = plain.beside(0, control);
            plain.run(2 * SECOND);
            let before = plain.came_beside(rival);
            plain.run(4 * SECOND);
            let came = (plain.came_beside(rival) - before) as f64;
            let outside = came * TCP_BYTES / (link.rate / 8.0 * 4.0);
            let mut line = Line::new(&[link], GREEDY, 1);
            line.inside(control);
            let inside = share(&mut line, 0);
            let (sent, _, full) = line.sent(0);
            let dropped = full as f64 / sent as f64;
            println!(
                "{control}, {mbit} Mbit/s, {queue} ms: {inside:.2} inside, {outside:.2} outside, \
                 {dropped:.3} dropped"
            );
            let (least, most) = if control == "cubic" { (0.85, 0.4) } else { (0.6, 0.6) };
            assert!(inside > least * outside, "{inside} inside, {outside} outside");
            assert!(dropped < most, "{dropped} dropped");
        }
    }
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
