//! Links whose delay varies without any queue, as radio links schedule.

use crate::timed::{Delivered, Line, Link, Load, MILLI, SECOND};

/// Greedy TCP.
const GREEDY: Load = Load { bytes: 1300, rate: None, ordered: true };

/// Bytes on the link of a packet of plain TCP.
const TCP_BYTES: f64 = 1514.0;

/// A radio link of 30 Mbit/s and 25 ms, with up to this many milliseconds more.
fn radio(jitter: u64) -> Link {
    let link = Link { rate: 30e6, queue: 100 * MILLI, ..Link::new(0.0, 25) };
    Link { jitter: (jitter * MILLI, 40 * MILLI), ..link }
}

/// Mbit/s of plain TCP on the link.
fn plain(link: Link, control: &str) -> f64 {
    let mut line = Line::new(&[link], GREEDY, 1);
    line.pause();
    let rival = line.beside(0, control);
    line.run(2 * SECOND);
    let before = line.came_beside(rival);
    line.run(10 * SECOND);
    (line.came_beside(rival) - before) as f64 * TCP_BYTES * 8e-7
}

/// Goodput in Mbit/s, of TCP inside if a control is named, and the 99th percentile of the delay of
/// sparse packets, in milliseconds.
fn carried(link: Link, control: Option<&str>, seed: u64) -> (f64, u64) {
    let mut line = Line::new(&[link], GREEDY, seed);
    control.into_iter().for_each(|control| line.inside(control));
    line.sparse = 50;
    line.run(2 * SECOND);
    let since = line.now;
    line.run(10 * SECOND);
    let is_probe = |it: &&Delivered| it.at >= since && line.is_sparse(it.number);
    let mut delays: Vec<u64> = line.delivered.iter().filter(is_probe).map(|it| it.took).collect();
    delays.sort_unstable();
    (line.goodput(since) * 8e-6, delays[delays.len() * 99 / 100] / MILLI)
}

/// Jitter in milliseconds, the least part of the limit, and the longest delay of probes.
const LINKS: [(u64, f64, u64); 4] =
    [(0, 0.97, 60), (10, 0.95, 150), (30, 0.95, 200), (60, 0.9, 1000)];

/// Packets that a link held back once seemed to show a faster link when they arrived at once: its
/// queue grew to 0.3 s at jitter of 10 ms, 1.4 s at 60 ms and 2.7 s at 170 ms; a fifth of the rate
/// was lost.
#[test]
fn jitter_is_neither_a_queue_nor_a_faster_link() {
    for (jitter, least, longest) in LINKS {
        for seed in 1..4 {
            let link = radio(jitter);
            let (rate, delay) = carried(link, None, seed);
            println!("jitter {jitter} ms: {rate:.1} Mbit/s, probes at most {delay} ms");
            assert!(rate * 1.25e5 > least * link.limit(GREEDY.bytes), "{rate} Mbit/s");
            assert!(delay < longest, "{delay} ms");
        }
    }
}

/// As [`radio`] with 170 ms: LTE, as field reports have it. One run is chance of its seed, 0.5 to
/// 0.95 of the limit.
#[test]
fn strong_jitter_costs_a_quarter_at_most() {
    const SEEDS: u64 = 6;
    let link = radio(170);
    let mut sum = 0.0;
    for seed in 1..=SEEDS {
        let (rate, delay) = carried(link, None, seed);
        println!("{rate:.1} Mbit/s, probes at most {delay} ms");
        sum += rate;
    }
    let mean = sum / SEEDS as f64;
    assert!(mean * 1.25e5 > 0.75 * link.limit(GREEDY.bytes), "{mean} Mbit/s");
}

#[test]
fn tcp_inside_carries_over_jitter_what_the_better_plain_one_does() {
    for jitter in [10, 30, 60] {
        let link = radio(jitter);
        let outside = plain(link, "cubic").max(plain(link, "bbr"));
        let (inside, _) = carried(link, Some("bbr"), 1);
        // Of the bytes on the link.
        let inside = inside * 1.25e5 / link.limit(GREEDY.bytes) * link.rate * 1e-6;
        println!("jitter {jitter} ms: {inside:.1} Mbit/s inside, {outside:.1} plain");
        assert!(inside > 0.85 * outside, "{inside} Mbit/s of {outside}");
    }
}
