//! A stream node's report on its next hops.

use crate::timed::{Line, Link, Load, MILLI, SECOND};
use recoded_pipeline::params::{FlowParams, Nanos, Spread};
use recoded_pipeline::report::NextHop;

fn load(packets_a_second: f64) -> Load {
    Load { bytes: 1300, rate: Some(packets_a_second), ordered: false }
}

/// The only next hop of a node.
fn next_hop(line: &Line, node: usize) -> NextHop {
    let hops = line.flow(node).next_hops;
    assert_eq!(hops.len(), 1, "{hops:?}");
    hops[0]
}

#[test]
fn source_and_relay_say_how_each_next_hop_is_reached() {
    let (near, far) = (Link::new(0.0, 2), Link::new(0.1, 20));
    let mut line = Line::new(&[near, far], load(2000.0), 1);
    line.run(5 * SECOND);
    for (node, link) in [near, far].iter().enumerate() {
        let hop = next_hop(&line, node);
        println!("{hop:?}");
        let heard = hop.heard.expect("it reports");
        assert!(line.now - heard.at < 50 * MILLI);
        assert!((2 * link.delay..2 * link.delay + 5 * MILLI).contains(&heard.round_trip_nanos));
        assert!(heard.queue_nanos < 2 * MILLI);
        assert!(heard.loss.is_some_and(|loss| (loss - link.loss).abs() < 0.02));
        // It sends 21 Mbit/s, and may send more.
        assert!(hop.bytes_per_second * 8.0 > 21e6);
    }
    assert_eq!(line.flow(2).next_hops, [], "a sink has none");
}

/// Packets sent towards the sink over the first link while time passes.
fn sent(line: &mut Line, nanos: u64) -> u64 {
    let before = line.sent(0).0;
    line.run(nanos);
    line.sent(0).0 - before
}

#[test]
fn path_that_is_dead_is_noticed_in_3_s_and_one_that_is_back_without_traffic() {
    let link = Link::new(0.1, 2);
    let dead = Link { loss: 1.0, ..link };
    let mut line = Line::new(&[link; 2], load(1000.0), 1);
    line.run(2 * SECOND);
    for hop in [0, 1] {
        line.set(hop, dead);
        line.run(2900 * MILLI);
        assert!(!next_hop(&line, hop).is_silent());
        line.run(200 * MILLI);
        assert!(next_hop(&line, hop).is_silent());
        line.set(hop, link);
        line.run(200 * MILLI);
        assert!(!next_hop(&line, hop).is_silent());
        line.run(3 * SECOND);
    }
    line.set(0, dead);
    line.run(4 * SECOND);
    line.load.rate = Some(1e-3);
    line.run(10 * SECOND);
    assert!(next_hop(&line, 0).is_silent());
    for range in [160..=170, 30..=34] {
        let sent_to_the_dead = sent(&mut line, 10 * SECOND);
        assert!(range.contains(&sent_to_the_dead), "{sent_to_the_dead} keepalives in 10 s");
        line.run(20 * SECOND);
    }
    line.set(0, Link { loss: 0.0, ..link });
    line.run(1000 * MILLI);
    assert!(!next_hop(&line, 0).is_silent());
    line.run(10 * SECOND);
    assert_eq!(sent(&mut line, 10 * SECOND), 0, "it comes to rest");
}

#[test]
fn one_packet_to_a_neighbour_that_never_answers_is_enough() {
    let dead = Link::new(1.0, 2);
    let mut line = Line::new(&[dead; 1], load(1e-3), 1);
    line.run(3900 * MILLI);
    let hop = next_hop(&line, 0);
    assert!(hop.is_silent() && hop.heard.is_none(), "{hop:?}");
}

/// The first report of a neighbour that restarted is not trusted, and it may be down for long.
#[test]
fn relay_that_restarts_is_silent_once_at_most() {
    for (away, falls_silent) in [(SECOND, false), (5 * SECOND, true), (60 * SECOND, true)] {
        let link = Link::new(0.02, 2);
        let mut line = Line::new(&[link; 2], load(1000.0), 1);
        line.run(2 * SECOND);
        line.set(0, Link { loss: 1.0, ..link });
        line.run(away);
        assert_eq!(next_hop(&line, 0).is_silent(), falls_silent, "away for {away} ns");
        line.restart(1);
        line.set(0, link);
        line.run(1200 * MILLI);
        for _ in 0..100 {
            assert!(!next_hop(&line, 0).is_silent(), "away for {away} ns");
            line.run(100 * MILLI);
        }
        let delivered = line.goodput(line.now - 5 * SECOND);
        assert!(delivered > 0.95 * 1300.0 * 1000.0, "{delivered} bytes a second");
    }
}

#[test]
fn large_packets_that_vanish_are_told_until_they_come_again() {
    let link = Link::new(0.1, 5);
    let narrow = Link { bytes_max: 1200, ..link };
    let mut line = Line::new(&[link; 2], load(200.0), 1);
    line.run(2 * SECOND);
    line.set(1, narrow);
    line.run(2 * SECOND);
    let hop = next_hop(&line, 1);
    let hole = hop.black_hole.expect("all packets are too large");
    let is_found = (1190..=1200).contains(&hole.came_bytes) && hole.lost_bytes < 1220;
    assert!(is_found, "{hole:?}");
    assert!(!hop.is_silent(), "keepalives are answered");
    assert_eq!(next_hop(&line, 0).black_hole, None);
    line.set(1, link);
    line.run(6 * SECOND);
    assert_eq!(next_hop(&line, 1).black_hole, None);
}

#[test]
fn losses_bursts_and_outages_are_no_black_hole() {
    for (loss, burst) in [(0.5, 1.0), (0.3, 20.0)] {
        let link = Link { burst, ..Link::new(loss, 5) };
        let mut line = Line::new(&[link; 1], load(500.0), 1);
        for round in 0..20 {
            line.set(0, if round % 4 == 3 { Link { loss: 1.0, burst: 1.0, ..link } } else { link });
            line.run(500 * MILLI);
            assert_eq!(next_hop(&line, 0).black_hole, None, "round {round} of {link:?}");
        }
    }
}

/// A node's report on its graph: for each path its share and whether it is in doubt, for each
/// receiver how far it is behind, and at a sink the same for its upstreams.
#[test]
fn paths_say_their_share_and_whether_they_are_in_doubt() {
    let fast = Link { rate: 100e6, ..Link::new(0.1, 20) };
    let slow = Link { rate: 50e6, ..Link::new(0.02, 60) };
    let greedy = Load { bytes: 1400, rate: None, ordered: true };
    let sum = |params: &mut FlowParams| params.spread = Spread::Sum;
    let mut line = Line::paths(&[&[fast], &[slow]], greedy, 8, sum);
    line.run(5 * SECOND);
    let limits = [fast, slow].map(|link| link.limit(1400));
    let expected = limits[0] / (limits[0] + limits[1]);
    let hops = line.flow(0).next_hops;
    let upstreams = line.flow(1).upstreams;
    println!("{hops:?}\n{upstreams:?}");
    let share = hops[0].branch.share.expect("symbols left");
    assert!((share - expected).abs() < 0.05, "{share}, {expected} of the sum");
    assert!(hops.iter().all(|hop| !hop.branch.is_in_doubt));
    let loss = upstreams[0].loss.expect("it is measured").loss;
    assert!((loss - 0.1).abs() < 0.02 && upstreams[0].share > Some(0.55), "{upstreams:?}");
    line.set(0, Link { loss: 1.0, ..fast });
    line.run(SECOND);
    let hops = line.flow(0).next_hops;
    assert!(hops[0].branch.is_in_doubt && !hops[1].branch.is_in_doubt, "{hops:?}");
    assert!(hops[1].branch.share > Some(0.7), "{hops:?}");
    line.set(0, fast);
    line.run(3 * SECOND);
    assert!(line.flow(0).next_hops.iter().all(|hop| !hop.branch.is_in_doubt));
}

#[test]
fn receivers_say_how_far_they_are_behind() {
    let wide = Link { rate: 100e6, ..Link::new(0.01, 5) };
    let narrow = Link { rate: 10e6, ..wide };
    let links = [((0, 1), wide), ((0, 2), narrow)];
    // 20 Mbit/s.
    let load = Load { bytes: 1250, rate: Some(2000.0), ordered: false };
    let mut line = Line::graph(&links, load, 9, |_, _| ());
    line.run(4 * SECOND);
    let hops = line.flow(0).next_hops;
    let behind = hops.iter().map(|hop| hop.branch.waits_since.map_or(0, |at| line.now - at));
    let behind: Vec<Nanos> = behind.collect();
    println!("{:?} ms", [behind[0] / MILLI, behind[1] / MILLI]);
    assert!(behind[0] < 50 * MILLI && behind[1] > 200 * MILLI, "{behind:?}");
    assert_eq!(hops[0].branch.share, None, "each gets everything");
}
