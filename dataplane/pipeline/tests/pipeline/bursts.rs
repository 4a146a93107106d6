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
