//! Streams over hops with delay that lose packets in bursts, or all of them for a moment, with more
//! to send than the links carry. Losses are in both directions, so that reports are lost in bursts,
//! too. Prints the table of `docs/measurements/line.md`.

use crate::timed::{Line, Link, Load, MILLI, SECOND};
use recoded_pipeline::params::Nanos;

/// Greedy TCP.
const GREEDY: Load = Load { bytes: 1400, rate: None, ordered: true };

const SEEDS: u64 = 3;

/// A link of 300 Mbit/s and 7 ms that loses 17 % in bursts of this mean length.
fn in_bursts(burst: f64) -> Link {
    Link { burst, ..Link::new(0.17, 7) }
}

/// Prints what arrived since a time, as part of what the links carry while they do, and its delay
/// in order beyond that of the path. Returns that part.
fn print(line: &Line, hops: usize, case: &str, since: Nanos, up: f64) -> f64 {
    let link = line.link();
    let part = line.goodput(since) / link.limit(GREEDY.bytes) / up;
    let [median, late] =
        [0.5, 0.99].map(|share| (line.delay(since, share) - hops as u64 * link.delay) / MILLI);
    println!("{hops} hops, {case}: {part:.3} of the limit, {median} and {late} ms later");
    part
}

/// Over three hops with bursts of 20, 0.4 to 0.7 of the limit arrived, and up to 5000 packets were
/// given up: a burst of lost reports stopped a sender, and keepalives 17 ms apart took long to
/// outlast it.
#[test]
fn bursts_cost_what_they_lose() {
    for burst in [5.0, 8.0, 20.0] {
        for hops in [1, 3] {
            for seed in 1..=SEEDS {
                let mut line = Line::new(&vec![in_bursts(burst); hops], GREEDY, seed);
                line.run(2 * SECOND);
                let since = line.now;
                line.run(4 * SECOND);
                let part = print(&line, hops, &format!("bursts of {burst}"), since, 1.0);
                assert!(part > 0.9, "{part}");
                let failed = line.flow(hops).counters.generations_failed;
                assert!(failed < 20, "{failed} packets given up");
            }
        }
    }
}

/// Outages of the middle link, once a second. The rate fell to a quarter after each, and keepalives
/// noticed late that the link was back: after 100 ms, 0.75 of the rest of the second was carried.
#[test]
fn outages_cost_little_more_than_they_last() {
    for outage in [50, 100, 300] {
        for hops in [1, 3] {
            for seed in 1..=SEEDS {
                let link = Link::new(0.03, 7);
                let mut line = Line::new(&vec![link; hops], GREEDY, seed);
                line.run(3 * SECOND);
                let since = line.now;
                for _ in 0..5 {
                    line.set(hops / 2, Link { loss: 1.0, ..link });
                    line.run(outage * MILLI);
                    line.set(hops / 2, link);
                    line.run(SECOND - outage * MILLI);
                }
                let up = 1.0 - outage as f64 * 1e-3;
                let part = print(&line, hops, &format!("outages of {outage} ms"), since, up);
                assert!(part > 0.88, "{part}");
            }
        }
    }
}
