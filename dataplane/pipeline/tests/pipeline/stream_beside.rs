//! Streams that share one link with other TCP flows, and with each other, packet by packet: none of
//! them starves.

use crate::timed::beside::run_beside;
use crate::timed::{Line, Link, Load, MILLI, SECOND};
use recoded_pipeline::params::Nanos;

const GREEDY: Load = Load { bytes: 1400, rate: None, ordered: true };

/// Bytes on the link of a packet of TCP, and of a symbol.
const TCP_BYTES: f64 = 1514.0;
const SYMBOL_BYTES: f64 = 1464.0;

/// Shares of a link that a stream and other TCP flows get, while `nanos` pass.
fn parts(line: &mut Line, link: &Link, rivals: &[usize], nanos: Nanos) -> (f64, f64) {
    let came = |line: &Line| rivals.iter().map(|rival| line.came_beside(*rival)).sum::<u64>();
    let (start, before) = (line.now, came(line));
    line.run(nanos);
    let all = link.rate / 8.0 * nanos as f64 / 1e9;
    let ours = line.delivered.iter().filter(|packet| packet.at > start).count() as f64;
    (ours * SYMBOL_BYTES / all, (came(line) - before) as f64 * TCP_BYTES / all)
}

/// Over 10 ms of 300 Mbit/s, CUBIC itself gets 0.15 when it competes with BBR.
#[test]
fn none_starves_beside_tcp_of_others() {
    for (control, delay) in [("cubic", 10), ("bbr", 10), ("bbr", 5)] {
        for is_first in [true, false] {
            let link = Link::new(0.0, delay);
            let mut line = Line::new(&[link], GREEDY, 1);
            line.run(MILLI);
            if !is_first {
                line.pause();
            }
            let rivals = [line.beside(0, control)];
            if !is_first {
                line.run(3 * SECOND);
                line.go_on();
            }
            line.run(6 * SECOND);
            let (own, theirs) = parts(&mut line, &link, &rivals, 9 * SECOND);
            println!("{control}, {delay} ms, first: {is_first}: stream {own:.2}, TCP {theirs:.2}");
            assert!(own.min(theirs) > 0.25, "stream {own}, TCP {theirs}");
        }
    }
}

/// The competing flow stops: a stream takes the whole link again.
#[test]
fn what_others_leave_is_taken() {
    for control in ["cubic", "bbr"] {
        let link = Link::new(0.0, 10);
        let mut line = Line::new(&[link], GREEDY, 1);
        let rivals = [line.beside(0, control)];
        line.run(6 * SECOND);
        line.end_beside();
        line.run(2 * SECOND);
        line.longest_wait(0);
        let (own, _) = parts(&mut line, &link, &rivals, 3 * SECOND);
        let waits = line.longest_wait(0) / MILLI;
        println!("after {control}: {own:.2}, a queue of {waits} ms at most");
        assert!(own > 0.9 && waits < 20, "{own}, {waits} ms");
    }
}

/// Sources, and sinks, of the streams that share links.
const SIDE: usize = 4;

/// Shares of the streams from each of four sources to each of four sinks, over queues of this many
/// milliseconds, and the part of packets that found a full queue. All share the link of their
/// source with three others, and that of their sink with three more.
fn shares(seed: u64, queue: u64) -> (Vec<f64>, f64) {
    let link = Link { rate: 40e6, queue: queue * MILLI, ..Link::new(0.02, 0) };
    let load = Load { bytes: 1300, rate: Some(16e6 / 8.0 / 1300.0), ordered: false };
    let mut lines: Vec<Line> = Vec::new();
    for number in 0..SIDE * SIDE {
        let (source, sink) = (number / SIDE, number % SIDE);
        let mut line = Line::new(&[link; 3], load, seed * 100 + number as u64);
        line.wait_for_source();
        if sink > 0 {
            line.share(0, &lines[source * SIDE], 0);
        }
        if source > 0 {
            line.share(2, &lines[sink], 2);
        }
        lines.push(line);
    }
    let found_full = |lines: &[Line]| lines.iter().map(|line| line.sent(0).2).sum::<u64>();
    run_beside(&mut lines, 4 * SECOND);
    let (start, full) = (lines[0].now, found_full(&lines));
    run_beside(&mut lines, 8 * SECOND);
    let part = |line: &Line| {
        let came = line.delivered.iter().filter(|packet| packet.at > start).count() as f64;
        came * 1300.0 / 8.0 / link.limit(1300) * SIDE as f64
    };
    let sent: u64 = lines.iter().map(|line| line.sent(0).0).sum();
    let full = (found_full(&lines) - full) as f64 / sent as f64;
    (lines.iter().map(part).collect(), full)
}

/// Streams once took each other for TCP, and a tenth of their packets found a full queue. A stream
/// pushed out of a deep queue recovers slowly. The smallest share of one run is chance of its seed
/// (0.3 to 0.8), so the mean of several counts.
#[test]
fn streams_that_share_links_with_each_other_share_alike() {
    const SEEDS: u64 = 4;
    for (queue, least_share, least_mean) in [(25, 0.55, 0.95), (100, 0.35, 0.9)] {
        let mut sum = 0.0;
        for seed in 1..=SEEDS {
            let (parts, full) = shares(seed, queue);
            let least = parts.iter().copied().fold(f64::INFINITY, f64::min);
            let mean = parts.iter().sum::<f64>() / parts.len() as f64;
            println!(
                "seed {seed}, {queue} ms: {least:.2}, mean {mean:.3}, {full:.4} found it full"
            );
            assert!(least > 0.1 && mean > least_mean && full < 0.15, "{parts:.2?}, {full}");
            sum += least;
        }
        let least = sum / SEEDS as f64;
        assert!(least > least_share, "{least}, the mean of the smallest shares");
    }
}
