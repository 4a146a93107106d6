//! Streams to several receivers over a tree of relays: goodput of each of them, its cost on each
//! link, and the effect of slow, failed and new receivers on the others.

use crate::timed::{Line, Link, Load, MILLI, SECOND};
use recoded_pipeline::params::{FlowCode, FlowParams, Nanos, PeerId};
use recoded_wire::feedback::{FeedbackHeader, Item, Nack, Writer};
use recoded_wire::header::{Flags, Header, PacketType};
use recoded_wire::parse::{Packet, parse};

/// 50 Mbit/s of datagrams.
const DATAGRAMS: Load = Load { bytes: 1300, rate: Some(50e6 / 8.0 / 1300.0), ordered: false };

/// Loss of the links to the relays, and to the sinks.
const TO_RELAYS: [f64; 2] = [0.1, 0.05];
const TO_SINKS: [f64; 8] = [0.01, 0.02, 0.05, 0.08, 0.1, 0.12, 0.15, 0.2];

/// The first sink, and how many there are.
const SINK: usize = 3;

/// A source, two relays with four sinks each.
fn tree() -> Vec<((usize, usize), Link)> {
    let link = |loss| Link { rate: 100e6, ..Link::new(loss, 10) };
    let relays = TO_RELAYS.iter().enumerate().map(|(relay, loss)| ((0, 1 + relay), link(*loss)));
    let sinks = TO_SINKS.iter().enumerate();
    let sinks = sinks.map(|(sink, loss)| ((1 + sink / 4, SINK + sink), link(*loss)));
    relays.chain(sinks).collect()
}

/// Of the packets that entered since the number `first`, those that a sink lacks. None arrived
/// twice.
fn lost(line: &Line, sink: usize, first: usize) -> usize {
    let mut came = vec![0; line.entered()];
    for packet in line.delivered.iter().filter(|packet| packet.node == sink) {
        came[packet.number as usize] += 1;
        assert!(came[packet.number as usize] == 1, "{packet:?} again");
    }
    came[first..].iter().filter(|count| **count == 0).count()
}

/// p99 of the delay of a sink's packets since a time.
fn slowest(line: &Line, sink: usize, since: Nanos) -> Nanos {
    let recent = line.delivered.iter().filter(|packet| packet.node == sink && packet.at >= since);
    let mut took: Vec<Nanos> = recent.map(|packet| packet.took).collect();
    took.sort_unstable();
    took.get(took.len() * 99 / 100).copied().unwrap_or(Nanos::MAX)
}

/// Packets on a link per packet that entered, relative to an ideal code.
fn cost(line: &Line, hop: usize, loss: f64) -> f64 {
    line.sent(hop).0 as f64 * (1.0 - loss) / line.entered() as f64
}

#[test]
fn every_sink_gets_everything_and_no_link_carries_the_loss_of_others() {
    let mut line = Line::graph(&tree(), DATAGRAMS, 1, |_, _| ());
    line.wait_for_source();
    line.run(7 * SECOND);
    line.stop(2 * SECOND);
    for (hop, (_, link)) in tree().iter().enumerate() {
        let cost = cost(&line, hop, link.loss);
        println!("link {hop}: {cost:.3} / (1 - {})", link.loss);
        assert!(cost < 1.08, "link {hop}: {cost}");
    }
    for sink in SINK..SINK + TO_SINKS.len() {
        let (lost, slowest) = (lost(&line, sink, 0), slowest(&line, sink, 2 * SECOND));
        println!("sink {sink}: {lost} of {} lost, 99 % in {} ms", line.entered(), slowest / MILLI);
        assert!(lost * 10_000 <= line.entered() && slowest < 70 * MILLI);
    }
}

/// The code that `auto` selects for a flow with several receivers.
#[test]
fn generations_take_more_packets_and_lose_more() {
    let rlnc = |_: usize, params: &mut FlowParams| {
        params.code = FlowCode::Rlnc;
        params.symbol_bytes = 1404;
    };
    let mut line = Line::graph(&tree(), DATAGRAMS, 1, rlnc);
    line.run(3 * SECOND);
    line.stop(SECOND);
    let costs = [0, 1, 2, 9].map(|hop| cost(&line, hop, tree()[hop].1.loss));
    let losses: Vec<usize> = (0..8).map(|sink| lost(&line, SINK + sink, 0)).collect();
    println!("{costs:.3?}, {losses:?} of {}", line.entered());
    assert!(costs.iter().all(|cost| *cost > 1.1), "{costs:?}");
}

#[test]
fn sink_that_is_gone_or_slow_delays_no_other() {
    let mut line = Line::graph(&tree(), DATAGRAMS, 2, |_, _| ());
    line.wait_for_source();
    line.run(3 * SECOND);
    // The link of the first sink, and that of the first relay with its four.
    for (hop, others) in [(2, SINK + 1), (0, SINK + 4)] {
        let well = tree()[hop].1;
        for changed in [Link { loss: 1.0, ..well }, Link { rate: 20e6, ..well }] {
            line.set(hop, changed);
            line.run(2 * SECOND);
            let since = line.now - 2 * SECOND;
            let all = SINK..SINK + TO_SINKS.len();
            let times: Vec<Nanos> = all.map(|sink| slowest(&line, sink, since) / MILLI).collect();
            println!("{changed:?}: 99 % within {times:?} ms");
            assert!(times[others - SINK..].iter().all(|millis| *millis < 70), "{times:?}");
            line.set(hop, well);
            line.run(SECOND);
        }
    }
    line.run(SECOND);
    let behind: Vec<u64> = (0..3).map(|node| line.flow(node).counters.lagged).collect();
    println!("{behind:?} left out");
    assert!(behind[0] > 1000 && behind[1] > 1000 && behind[2] == 0, "{behind:?}");
    let again = line.entered();
    line.run(2 * SECOND);
    line.stop(2 * SECOND);
    for sink in SINK..SINK + TO_SINKS.len() {
        println!("sink {sink}: {} of {} lost", lost(&line, sink, 0), line.entered());
        assert!(lost(&line, sink, again) * 1000 <= line.entered() - again, "all are well again");
        assert!(sink < SINK + 4 || lost(&line, sink, 0) * 10_000 <= line.entered());
    }
}

/// Packets for a slow sink wait as long as allowed, and no longer.
#[test]
fn slow_sink_lags_as_far_as_it_may() {
    for lag in [100 * MILLI, 400 * MILLI] {
        let mut links = tree();
        links[2].1.rate = 30e6;
        let allow = |_: usize, params: &mut FlowParams| params.lag_timeout_nanos = lag;
        let mut line = Line::graph(&links, DATAGRAMS, 3, allow);
        line.wait_for_source();
        line.run(6 * SECOND);
        let since = 4 * SECOND;
        let packets = line.delivered.iter().filter(|at| at.node == SINK && at.at >= since).count();
        let took = slowest(&line, SINK, since);
        let bits = (packets * DATAGRAMS.bytes * 8) as f64 / 3.0;
        println!("lag {} ms: {} ms, {:.1} Mbit/s", lag / MILLI, took / MILLI, bits / 1e6);
        let (lagged, lost) = (line.flow(1).counters.lagged, lost(&line, SINK, 0));
        println!("{lagged} of {lost} that did not come were let go");
        // Some have arrived but are not yet acknowledged when they are released; the newest still
        // wait.
        let ratio = lagged as f64 / lost as f64;
        assert!((0.8..1.05).contains(&ratio), "{lagged} of {lost}");
        assert!(took > lag && took < lag + 300 * MILLI);
        assert!(bits > 0.85 * links[2].1.limit(DATAGRAMS.bytes) * 8.0, "{bits}");
    }
}

#[test]
fn sinks_come_and_go_while_others_go_on() {
    let last = SINK + TO_SINKS.len() - 1;
    let mut line = Line::graph(&tree(), DATAGRAMS, 4, |index, params| {
        // The last sink does not exist yet.
        params.next_hops.truncate(if index == 2 { 3 } else { 4 });
    });
    line.wait_for_source();
    line.run(2 * SECOND);
    let joined = line.entered();
    line.change(2, |params| params.next_hops.push(PeerId(4)));
    line.run(2 * SECOND);
    // The first sink of its relay leaves: the others move up.
    let left = line.entered();
    line.change(2, |params| {
        params.next_hops.remove(0);
    });
    line.run(2 * SECOND);
    // It returns, after them.
    let back = line.entered();
    line.change(2, |params| params.next_hops.push(PeerId(1)));
    line.run(2 * SECOND);
    line.stop(2 * SECOND);
    let entered = line.entered();
    for sink in SINK..=last {
        let came = line.delivered.iter().filter(|packet| packet.node == sink);
        let first = came.map(|packet| packet.number).min().unwrap_or(u32::MAX) as usize;
        println!("sink {sink}: from {first}, {} of {entered} lost", lost(&line, sink, first));
        if sink == last {
            // Packets in flight when it joins are not sent to it.
            assert!(first >= joined.saturating_sub(500) && first < joined + 500, "{first}");
        }
        if sink == SINK + 4 {
            let lacks = back - left;
            assert!(lost(&line, sink, 0).abs_diff(lacks) < 1000, "{lacks}");
            assert!(lost(&line, sink, back + 500) == 0);
        } else {
            assert!(lost(&line, sink, first) * 10_000 <= entered);
        }
    }
}

/// The first sink requests all of the newest symbols, repeatedly.
#[test]
fn sink_that_asks_for_everything_takes_its_own_share() {
    let mut line = Line::graph(&tree(), DATAGRAMS, 6, |_, _| ());
    line.wait_for_source();
    line.run(2 * SECOND);
    let mut newest = None;
    let before: Vec<u64> = (0..tree().len()).map(|hop| line.sent(hop).0).collect();
    let entered = line.entered();
    for turn in 0..3000 {
        let Ok(Packet::Stream(packet)) = parse(line.newest()) else { panic!("a stream") };
        newest = packet.symbol().map(|symbol| symbol.number).or(newest);
        let Some(newest) = newest else {
            line.run(MILLI);
            continue;
        };
        let common = Header {
            packet_type: PacketType::Feedback,
            flags: Flags(0),
            link_sequence: line.newest_back_to(1).wrapping_add(1),
            hop_index: 0,
            ..packet.header.common
        };
        let mut bytes = [0; 600];
        FeedbackHeader { common, node: 9, number: turn }.write(&mut bytes);
        let mut writer = Writer::new(&mut bytes);
        for back in 0..30 {
            let unit = newest.wrapping_sub(200 + back);
            let round = (turn % 4) as u8;
            writer.push(Item::Nack(Nack { unit, missing: 1, round }));
        }
        let length = writer.finish();
        line.inject(1, &bytes[..length]);
        line.run(MILLI);
    }
    let refused = line.flow(1).counters.repairs_refused;
    let entered = (line.entered() - entered) as f64;
    let costs: Vec<f64> = (0..tree().len())
        .map(|hop| (line.sent(hop).0 - before[hop]) as f64 * (1.0 - tree()[hop].1.loss) / entered)
        .collect();
    line.stop(2 * SECOND);
    let losses: Vec<usize> = (0..8).map(|sink| lost(&line, SINK + sink, 0)).collect();
    println!("{costs:.3?}; {losses:?} lost; {refused} refused");
    assert!(refused > 1000, "{refused}");
    assert!(costs.iter().enumerate().all(|(hop, cost)| hop == 2 || *cost < 1.09), "{costs:?}");
    // Its reserve, and a packet for every second one that it gets.
    assert!(costs[2] < 1.7, "{costs:?}");
    assert!(losses[1..].iter().all(|lost| *lost == 0), "{losses:?}");
}

/// Sixty-four sinks, each behind a link of its own: eight relays of eight.
#[test]
fn sixty_four_sinks_ask_no_more_of_the_source_than_a_few() {
    let link = |loss| Link { rate: 50e6, ..Link::new(loss, 5) };
    let mut links: Vec<((usize, usize), Link)> =
        (0..8).map(|relay| ((0, 1 + relay), link(0.05))).collect();
    links.extend((0..64).map(|sink| ((1 + sink / 8, 9 + sink), link(0.01 + 0.003 * sink as f64))));
    let load = Load { rate: Some(10e6 / 8.0 / 1300.0), ..DATAGRAMS };
    let mut line = Line::graph(&links, load, 5, |_, _| ());
    line.wait_for_source();
    line.run(4 * SECOND);
    line.stop(2 * SECOND);
    let losses: Vec<usize> = (0..64).map(|sink| lost(&line, 9 + sink, 0)).collect();
    let back = (0..8).map(|hop| line.sent(hop).1).max().unwrap_or(0);
    let costs: Vec<f64> = (0..8).map(|hop| cost(&line, hop, 0.05)).collect();
    println!("{losses:?} of {}; {back} packets back on a link; {costs:.2?}", line.entered());
    assert!(losses.iter().all(|lost| *lost == 0), "{losses:?}");
    // Sparse traffic has more combinations.
    assert!(costs.iter().all(|cost| *cost < 1.4));
    // Reports on the link, and as many reports on sinks as one sink makes.
    assert!(back < 2 * line.entered() as u64, "{back}");
}
