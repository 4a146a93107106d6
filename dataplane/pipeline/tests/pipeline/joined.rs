//! Generations over branches that part and join: a relay with several upstreams combines the
//! packets of all of them. Over the butterfly each of two sinks gets the capacity of two links, one
//! of them shared, where forwarding brings three quarters. Packets in a routing loop die out.

use crate::timed::{Line, Link, Load, MILLI, SECOND};
use recoded_gf::FieldOrder;
use recoded_pipeline::params::{FlowCode, FlowParams, Recoding, Redundancy, Spread};

const PACKET_BYTES: usize = 1300;
const SYMBOLS: usize = 256;

/// Capacity of each link of the butterfly, in packets per second.
const UNIT: f64 = 1000.0;

/// Node 0 has the data of two sources, one for each branch: nodes 1 and 2. Both send to a sink, 5
/// and 6, and to node 3; between that and node 4, in front of both sinks, is one link.
const BUTTERFLY: [(usize, usize); 9] =
    [(0, 1), (0, 2), (1, 5), (1, 3), (2, 6), (2, 3), (3, 4), (4, 5), (4, 6)];

fn butterfly(loss: f64) -> Vec<((usize, usize), Link)> {
    let link = Link { rate: 1e9, queue: 100 * MILLI, ..Link::new(loss, 2) };
    BUTTERFLY.iter().map(|edge| (*edge, link)).collect()
}

/// Generations with half of `packets` carried by each branch.
fn rlnc(params: &mut FlowParams, packets: usize) {
    params.code = FlowCode::Rlnc;
    params.field = FieldOrder::Four;
    params.generation_size = SYMBOLS;
    params.redundancy = Redundancy::Fixed(packets as f64 / SYMBOLS as f64);
    params.symbol_bytes = PACKET_BYTES + 2;
    params.flush_timeout_nanos = 200 * MILLI;
    params.hold_timeout_nanos = SECOND;
    params.generations = 16;
}

/// A node of the butterfly; each branch carries `half` packets of a generation.
fn parts(node: usize, params: &mut FlowParams, half: usize) {
    rlnc(params, 2 * half);
    match node {
        0 => params.spread = Spread::Sum,
        3 => (params.recoding, params.onward_share) = (Recoding::Random, 0.5),
        _ => {}
    }
}

fn lost(line: &Line, sink: usize) -> usize {
    let came = line.delivered.iter().filter(|packet| packet.node == sink).count();
    line.entered() - came
}

/// The butterfly at a load that plans `UNIT` packets a second on each link; end-to-end repairs for
/// what sinks lack of a generation come on top.
#[test]
fn both_sinks_of_a_butterfly_get_what_two_links_carry() {
    for (loss, half) in [(0.0, 129), (0.02, 135), (0.05, 140)] {
        let branches = |node: usize, params: &mut FlowParams| {
            parts(node, params, half);
        };
        // One generation in the time that a link takes for half of its packets.
        let rate = SYMBOLS as f64 / half as f64 * UNIT;
        let load = Load { bytes: PACKET_BYTES, rate: Some(rate), ordered: false };
        let mut line = Line::graph(&butterfly(loss), load, 1, branches);
        line.run(20 * SECOND);
        let elapsed = 20.0;
        let packets: Vec<f64> =
            (0..9).map(|hop| line.sent(hop).0 as f64 / elapsed / UNIT).collect();
        line.stop(2 * SECOND);
        let most = packets.iter().copied().fold(0.0, f64::max);
        // Share of two links with the capacity of the busiest one, after losses.
        let share = rate / (2.0 * UNIT * most * (1.0 - loss));
        let lost = [lost(&line, 5), lost(&line, 6)];
        println!("loss {loss}: {share:.3} of two links, {lost:?} of {} lost", line.entered());
        println!("packets on each, of {UNIT} a second: {packets:.3?}");
        assert!(share >= 0.95, "{share}");
        assert!(lost.iter().all(|lost| lost * 10_000 <= line.entered()), "{lost:?}");
    }
}

/// The butterfly over links that are nearly full: the shared link brings its part of a generation
/// in one burst as long as the generation, so that sinks have all of the other branch long before.
/// They send requests when both have ended, not during the burst.
#[test]
fn sinks_wait_for_the_branch_that_brings_a_generation_late() {
    let half = 135;
    // With seed 5, sinks that sent requests after a silence fell into permanent repair. With 27 and
    // 28, workers are stalled in turn for 30 ms, twice a second.
    for (seed, stalls) in [(0, false), (5, false), (27, true), (28, true)] {
        let branches = |node: usize, params: &mut FlowParams| {
            parts(node, params, half);
            params.generations = 32;
            params.generation_timeout_nanos = params.flush_timeout_nanos;
        };
        let link = Link { rate: 20e6, queue: 200 * MILLI, ..Link::new(0.02, 2) };
        let links: Vec<_> = BUTTERFLY.iter().map(|edge| (*edge, link)).collect();
        // The plan uses 0.96 of each link, in packets of 1450 bytes.
        let unit = 0.96 * link.rate / 8.0 / 1450.0;
        let rate = unit * SYMBOLS as f64 / half as f64;
        let load = Load { bytes: PACKET_BYTES, rate: Some(rate), ordered: false };
        let mut line = Line::graph(&links, load, seed, branches);
        for step in 0..20 {
            line.run(SECOND / 2);
            if stalls {
                line.stall(step % 7, 30 * MILLI);
            }
        }
        let most = (0..9).map(|hop| line.sent(hop).0).max().unwrap_or(0) as f64 / 10.0;
        line.stop(2 * SECOND);
        let lost = [lost(&line, 5), lost(&line, 6)];
        let share = rate / (most * (1.0 - link.loss));
        let asked = [5, 6].map(|sink| line.flow(sink).counters.repairs);
        println!("{share:.3} links, {lost:?} of {} lost, asked {asked:?}", line.entered());
        println!("{} ms", line.delay(2 * SECOND, 0.99) / MILLI);
        assert!(share >= 1.9, "{share}");
        assert!(lost.iter().all(|lost| lost * 10_000 <= line.entered()), "{lost:?}");
    }
}

/// Packets that an idle source sends, so that sinks notice missing ones, arrive over the shorter
/// paths first. They once ended a generation at sinks while the shared link still had to bring a
/// third of it: the sinks requested all of it.
#[test]
fn last_generation_is_not_asked_for_while_a_branch_brings_it() {
    let half = 140;
    let branches = |node: usize, params: &mut FlowParams| {
        parts(node, params, half);
        params.generation_timeout_nanos = params.flush_timeout_nanos;
    };
    let link = Link { rate: 20e6, queue: 200 * MILLI, ..Link::new(0.02, 2) };
    let links: Vec<_> = BUTTERFLY.iter().map(|edge| (*edge, link)).collect();
    let rate = 0.96 * link.rate / 8.0 / 1450.0 * SYMBOLS as f64 / half as f64;
    let mut asked = 0;
    for seed in 0..8 {
        let load = Load { bytes: PACKET_BYTES, rate: Some(rate), ordered: false };
        let mut line = Line::graph(&links, load, seed, branches);
        line.run(SECOND / 2);
        line.stop(2 * SECOND);
        let lost = [lost(&line, 5), lost(&line, 6)];
        assert_eq!(lost, [0, 0], "of {}", line.entered());
        asked += [5, 6].map(|sink| line.flow(sink).counters.repairs).iter().sum::<u64>();
    }
    println!("asked {asked} times in 8 runs");
    assert!(asked <= 8, "{asked}");
}

/// Without combining, the shared link brings each sink half of the packets that the other has.
#[test]
fn relay_that_forwards_brings_less() {
    let forward = |node: usize, params: &mut FlowParams| {
        rlnc(params, 256);
        match node {
            0 => params.spread = Spread::Sum,
            3 => params.onward_share = 0.5,
            _ => {}
        }
        params.repair = false;
    };
    let load = Load { bytes: PACKET_BYTES, rate: Some(2.0 * UNIT), ordered: false };
    let mut line = Line::graph(&butterfly(0.0), load, 1, forward);
    line.run(10 * SECOND);
    line.stop(SECOND);
    let ranks: Vec<f64> = [5, 6]
        .map(|sink| line.flow(sink).counters.innovative as f64 / line.entered() as f64 * 2.0)
        .to_vec();
    println!("{ranks:?} of 2");
    assert!(ranks.iter().all(|rank| *rank < 1.65), "{ranks:?}");
    assert!(ranks.iter().sum::<f64>() < 3.1, "{ranks:?}");
}

/// Two halves that join before a link that carries both: all of it is forwarded.
#[test]
fn halves_that_join_are_whole_again() {
    let edges = [(0, 1), (0, 2), (1, 3), (2, 3), (3, 4)];
    for (slower, gone) in [(2, false), (9, false), (2, true)] {
        let link = |hop: usize| {
            let link = Link { rate: 1e9, ..Link::new(0.03, 2) };
            let is_slower = edges[hop] == (2, 3);
            Link { delay: if is_slower { slower * MILLI } else { link.delay }, ..link }
        };
        let links: Vec<_> = (0..5).map(|hop| (edges[hop], link(hop))).collect();
        let load = Load { bytes: PACKET_BYTES, rate: Some(2000.0), ordered: false };
        let halves = |node: usize, params: &mut FlowParams| {
            rlnc(params, 0);
            params.generation_size = 64;
            params.redundancy = Redundancy::Fixed(1.3);
            params.spread = if node == 0 { Spread::Sum } else { Spread::Every };
        };
        let mut line = Line::graph(&links, load, 2, halves);
        if gone {
            // Half of all packets go to a branch that is down: the remaining ones do not increase.
            line.set(1, Link { loss: 1.0, ..links[1].1 });
        }
        line.run(6 * SECOND);
        line.stop(2 * SECOND);
        let lost = lost(&line, 4);
        println!("{slower} ms, gone {gone}: {lost} of {} lost", line.entered());
        assert!(gone || lost * 1000 <= line.entered(), "{lost}");
        // Nothing is amplified: output equals the input of the branches.
        let came = line.sent(2).0 + line.sent(3).0;
        assert!(line.sent(4).0 <= came + came / 10, "{} of {came}", line.sent(4).0);
    }
}

/// Relays 1 and 2 send to each other, by mistake.
#[test]
fn packets_that_go_round_end() {
    let edges = [(0, 1), (1, 2), (2, 1), (2, 3)];
    let links = edges.map(|edge| (edge, Link { rate: 1e9, ..Link::new(0.02, 1) }));
    for code in ["stream", "rlnc"] {
        let load = Load { bytes: PACKET_BYTES, rate: Some(500.0), ordered: false };
        let mut line = Line::graph(&links, load, 3, |_, params| {
            if code == "rlnc" {
                rlnc(params, 0);
                params.generation_size = 16;
                params.redundancy = Redundancy::Auto;
            }
        });
        line.run(4 * SECOND);
        line.stop(2 * SECOND);
        let entered = line.entered() as u64;
        let sent: Vec<u64> = (0..4).map(|hop| line.sent(hop).0).collect();
        println!("{code}: {sent:?} for {entered}, {} lost", lost(&line, 3));
        assert!(lost(&line, 3) * 100 <= line.entered());
        assert!(sent.iter().all(|sent| *sent < 12 * entered), "{sent:?}");
        // Nothing is sent when nothing enters.
        let before: u64 = (1..3).map(|hop| line.sent(hop).0).sum();
        line.run(20 * SECOND);
        let after: u64 = (1..3).map(|hop| line.sent(hop).0).sum();
        assert!(after - before < 400, "{} packets", after - before);
    }
}
