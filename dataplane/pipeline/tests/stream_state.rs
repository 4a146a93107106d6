//! What a node of a stream says of its next hops.

mod timed;

use recoded_pipeline::report::NextHop;
use timed::{Line, Link, Load, MILLI, SECOND};

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
        assert!((heard.loss - link.loss).abs() < 0.02);
        // It sends 21 Mbit/s, and may send more.
        assert!(hop.bytes_per_second * 8.0 > 21e6);
    }
    assert_eq!(line.flow(2).next_hops, [], "a sink sends to nobody");
}
