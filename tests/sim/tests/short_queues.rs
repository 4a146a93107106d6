//! Blocks over links of 20 Mbit/s with queues of 64 packets, fewer than a block has, where no next
//! hop reports to the source: over several paths, and with a fixed redundancy.

#![cfg(feature = "bats")]

use recoded_pipeline::params::{Nanos, Redundancy};
use recoded_sim::{Code, Hop, Link, Rate, Scenario, Traffic, run};

const MILLI: Nanos = 1_000_000;
const SECONDS: u32 = 4;

const LINE: &[(usize, usize)] = &[(0, 1), (1, 2)];
const TWO_PATHS: &[(usize, usize)] = &[(0, 1), (1, 3), (0, 2), (2, 3)];

/// This many packets of 1000 bytes a second.
fn scenario(edges: &[(usize, usize)], redundancy: Redundancy, link: Link, rate: u32) -> Scenario {
    let seed = 7;
    let mut scenario = Scenario::graph(seed, edges, Link::CLEAN).coded(Code::Bats).with(|node| {
        (node.symbol_bytes, node.redundancy) = (1100, redundancy);
        node.flush_timeout_nanos = 10 * MILLI;
    });
    let queue = Some(Rate { bits_per_second: 20_000_000, queue_packets: 64 });
    scenario.hops.fill(Hop::both(Link { rate: queue, ..link }));
    scenario.frames = 32_768;
    scenario.traffic = Traffic {
        packets: rate * SECONDS,
        alone: (0, 0),
        bytes: 900..=1100,
        interval_nanos: 1000 * MILLI / Nanos::from(rate),
        alone_nanos: MILLI,
        burst: 1,
        pauses: None,
        flows: 4,
    };
    scenario.deliver_all()
}

#[test]
fn blocks_do_not_overflow_queues_that_are_shorter() {
    let links = [(0.02, 5), (0.1, 20), (0.02, 100)];
    let fixed = Redundancy::Fixed(1.25);
    let flows = [
        ("a line", LINE, fixed),
        ("two paths", TWO_PATHS, fixed),
        ("two paths", TWO_PATHS, Redundancy::Auto),
    ];
    for (name, edges, redundancy) in flows {
        for (loss, delay) in links {
            for rate in [375, 1500] {
                let link = Link { delay_nanos: delay * MILLI, ..Link::lossy(loss) };
                let outcome = run(&scenario(edges, redundancy, link, rate));
                let case = format!("{name}, {redundancy:?}, {loss}, {delay} ms, {rate}/s");
                let report = outcome.unwrap_or_else(|found| panic!("{case}: {found}"));
                let (first, _) = &report.links[0];
                let dropped = first.overflowed as f64 / first.offered as f64;
                println!("{case}: {dropped:.4} dropped by the first queue");
                assert!(dropped < 0.005, "{case}: {dropped}");
            }
        }
    }
}
