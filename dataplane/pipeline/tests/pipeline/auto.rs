//! `code = "auto"` selects a stream on a line with a return path
//! (`control/daemon/src/config/auto.rs`). Compares it with the other codes on such lines, so that
//! the rule holds.

#[cfg(feature = "bats")]
use crate::common::blocks;
use crate::timed::{Line, Link, Load, SECOND};
use recoded_pipeline::params::{FlowCode, FlowParams};

/// 150 Mbit/s of datagrams, over links of 300.
const STEADY: Load = Load { bytes: 1400, rate: Some(150e6 / 8.0 / 1400.0), ordered: false };

/// Least share of the best code's goodput that `auto` must carry.
const WITHIN: f64 = 0.97;

fn stream(_params: &mut FlowParams) {}

fn rlnc(params: &mut FlowParams) {
    params.code = FlowCode::Rlnc;
    params.generations = 1024;
}

/// IP bytes delivered per byte on the busiest link, once a flow has settled: the share of a link
/// that a code uses.
fn carried(links: &[Link], code: fn(&mut FlowParams)) -> f64 {
    let mut line = Line::with(links, STEADY, 1, code);
    let is_far = links[0].delay > 0;
    line.run(if is_far { 4 } else { 1 } * SECOND);
    let counts = |line: &Line| -> Vec<u64> {
        let sent = (0..links.len()).map(|hop| line.bytes(hop));
        sent.chain([(line.delivered.len() * STEADY.bytes) as u64]).collect()
    };
    let before = counts(&line);
    line.run(if is_far { 2 } else { 1 } * SECOND);
    let mut grown: Vec<u64> =
        counts(&line).iter().zip(before).map(|(now, before)| now - before).collect();
    let delivered = grown.pop().expect("a count of bytes") as f64;
    delivered / grown.into_iter().max().expect("a link") as f64
}

#[test]
fn a_stream_carries_what_the_best_code_does_on_every_line() {
    let bursts = Link { burst: 8.0, ..Link::new(0.1, 0) };
    let lines = [
        (1, Link::new(0.1, 0)),
        (4, Link::new(0.1, 0)),
        (6, Link::new(0.2, 0)),
        (4, Link::new(0.1, 10)),
        (3, Link::new(0.03, 50)),
        (1, Link::new(0.02, 270)),
        (4, bursts),
    ];
    let others = [
        ("rlnc", rlnc as fn(&mut FlowParams)),
        #[cfg(feature = "bats")]
        ("bats", blocks),
    ];
    for (hops, link) in lines {
        let links = vec![link; hops];
        let auto = carried(&links, stream);
        for (name, code) in others {
            let other = carried(&links, code);
            println!("{hops} hops of {:?}: {auto:.3}, {name} {other:.3}", (link.loss, link.delay));
            assert!(auto >= WITHIN * other, "auto {auto}, {name} {other}: {hops} of {link:?}");
        }
    }
}
