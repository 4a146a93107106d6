//! Streams over hops with delay that lose packets in bursts.

use crate::timed::{Line, Link, Load, MILLI, SECOND};

/// Three hops of 7 ms that lose 17 % in bursts.
const HOPS: usize = 3;

fn link(burst: f64) -> Link {
    Link { burst, ..Link::new(0.17, 7) }
}

/// Nearly every packet of a TCP flow waited for a retransmission of an earlier one: half of them 52
/// to 58 ms, and 99 of 100 up to 91 ms, which a congestion window of CUBIC does not cover.
#[test]
fn packets_in_order_wait_for_few_bursts_while_the_link_has_room() {
    for (burst, half, most) in [(5.0, 20, 80), (8.0, 45, 300)] {
        let link = link(burst);
        let rate = Some(0.7 * link.limit(1400) / 1400.0);
        let load = Load { bytes: 1400, rate, ordered: true };
        let mut line = Line::new(&[link; HOPS], load, 1);
        line.run(2 * SECOND);
        let since = line.now;
        line.run(3 * SECOND);
        let way = HOPS as u64 * link.delay;
        let [median, late] = [0.5, 0.99].map(|share| (line.delay(since, share) - way) / MILLI);
        println!("bursts of {burst}: {median} and {late} ms");
        assert!(median < half && late < most, "{median} and {late} ms");
        assert_eq!(line.flow(HOPS).counters.generations_failed, 0);
    }
}

/// A flow that fills the link has no room for combinations, and carries what retransmission does.
#[test]
fn a_full_link_has_none_of_them() {
    let link = link(5.0);
    let load = Load { bytes: 1400, rate: None, ordered: true };
    let mut line = Line::new(&[link; HOPS], load, 1);
    line.run(2 * SECOND);
    let since = line.now;
    line.run(3 * SECOND);
    let share = line.goodput(since) / link.limit(1400);
    println!("{share:.3} of the limit");
    assert!(share > 0.9, "{share}");
}

const SEEDS: u64 = 3;

/// Greedy TCP, with more to send than the links carry.
const GREEDY: Load = Load { bytes: 1400, rate: None, ordered: true };

/// The mean of what arrived over such links, as part of what they carry while they do.
fn mean(hops: usize, link: Link, mut run: impl FnMut(&mut Line) -> f64) -> f64 {
    let part = |seed| {
        let mut line = Line::new(&vec![link; hops], GREEDY, seed);
        line.run(3 * SECOND);
        let since = line.now;
        let up = run(&mut line);
        line.goodput(since) / link.limit(GREEDY.bytes) / up
    };
    (1..=SEEDS).map(part).sum::<f64>() / SEEDS as f64
}

/// Reports are lost in bursts, too. Keepalives 17 ms apart took long to outlast those, and what
/// arrived meanwhile was taken for the capacity: 0.5 of the limit arrived over three hops.
#[test]
fn long_bursts_stop_no_hop() {
    for (hops, least) in [(1, 0.9), (3, 0.72)] {
        let part = mean(hops, link(20.0), |line| {
            line.run(4 * SECOND);
            1.0
        });
        println!("{hops} hops, bursts of 20: {part:.2} of the limit");
        assert!(part > least, "{part}");
    }
}

/// Outages of the middle link, once a second. The rate fell to a fifth after each, and then rose
/// beyond the link.
#[test]
fn outages_cost_little_more_than_they_last() {
    for (outage, least) in [(50, 0.91), (100, 0.88), (300, 0.85)] {
        for hops in [1, 3] {
            let link = Link::new(0.03, 7);
            let part = mean(hops, link, |line| {
                for _ in 0..3 {
                    line.set(hops / 2, Link { loss: 1.0, ..link });
                    line.run(outage * MILLI);
                    line.set(hops / 2, link);
                    line.run(SECOND - outage * MILLI);
                }
                1.0 - outage as f64 * 1e-3
            });
            println!("{hops} hops, outages of {outage} ms: {part:.2} of the limit");
            assert!(part > least, "{part}");
        }
    }
}
