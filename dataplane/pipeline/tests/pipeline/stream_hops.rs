//! Single nodes of streams: regressions that the simulator found.

use crate::common;
use crate::common::{Node, UP, header, ip_packet, params};
use recoded_pipeline::params::{FlowCode, FlowParams, Role, Snapshot, StreamParams, TunnelId};
use recoded_pipeline::report::DropReason;
use recoded_wire::frames::Frames as _;
use recoded_wire::header::{Flags, Header, PacketType};
use recoded_wire::link::{LINK_BYTES, LinkGap, LinkReport, Missing, link_gaps, write_link};
use recoded_wire::parse::{Packet, parse};
use recoded_wire::stream::{STREAM_BYTES, StreamHeader, StreamSymbol, write_symbol};

const MILLI: u64 = 1_000_000;
const SOURCE: Role = Role::Source { tunnel: TunnelId(0) };
const RELAY: Role = Role::Relay { upstream: UP };
const SINK: Role = Role::Sink { tunnel: TunnelId(0), upstream: UP };

fn stream(role: Role) -> FlowParams {
    let code = FlowCode::Stream(StreamParams::new(64));
    FlowParams { code, symbol_bytes: 400, ..params(role) }
}

/// A symbol that arrives under a link sequence number, and is to follow the one `after` before it.
fn symbol(number: u32, after: u16, link: u32, packet: &[u8]) -> Vec<u8> {
    // Another epoch has symbols of another length.
    let common = header(PacketType::Stream, Flags::SYSTEMATIC, link);
    let common = Header { epoch: u8::from(packet.len() > 400), ..common };
    let header = StreamHeader { common, window_log2: 6, round_trips: 0 };
    let mut payload = vec![0; STREAM_BYTES];
    header.write(&mut payload);
    let bytes = packet.len() as u16;
    write_symbol(&StreamSymbol { number, after, place: number as u16, bytes }, &mut payload);
    [&payload, packet].concat()
}

/// Symbols that a sink delivers, received in this order: each has its number and the distance back
/// to the one that it follows.
fn delivered(sink: &mut Node, order: impl IntoIterator<Item = (u32, u16)>) -> Vec<u32> {
    for (link, (number, after)) in order.into_iter().enumerate() {
        let packet = ip_packet(40, number);
        sink.receive(&symbol(number, after, link as u32, &packet), MILLI);
    }
    sink.delivered.iter().map(|packet| number_of(packet)).collect()
}

/// The number that [`ip_packet`] wrote.
fn number_of(packet: &[u8]) -> u32 {
    u32::from_be_bytes(packet[20..24].try_into().unwrap())
}

/// Symbols from the last to the first, each to follow its predecessor.
fn backwards(first: u32, last: u32) -> impl Iterator<Item = (u32, u16)> {
    (first..=last).rev().map(move |number| (number, u16::from(number > first)))
}

/// With repair off, it once requested an immediate call indefinitely.
#[test]
fn a_sink_that_may_not_ask_waits_for_its_time() {
    let mut sink = Node::new(FlowParams { repair: false, ..stream(SINK) }, 1);
    delivered(&mut sink, [(100, 0), (102, 1)]);
    let mut now = MILLI;
    let mut calls = 0;
    while let Some(due) = {
        let mut due = None;
        sink.run(|pipeline, frames, outputs| due = pipeline.tick(frames, outputs, now));
        due
    } {
        now = due.max(now);
        calls += 1;
        assert!(calls < 100, "called again and again at {now}");
    }
    assert_eq!(sink.delivered.len(), 2);
}

/// Delivered packets took the places of waiting ones, and a packet was delivered before one that it
/// follows.
#[test]
fn a_packet_waits_however_many_were_delivered_meanwhile() {
    let mut sink = Node::new(stream(SINK), 1);
    let first = [(100, 0), (132, 1)].into_iter();
    let others = backwards(101, 130).chain(backwards(133, 162)).chain(backwards(163, 192));
    let all = delivered(&mut sink, first.chain(others).chain([(131, 0)]));
    assert_eq!(all.len(), 93);
    assert_eq!(all[91..], [131, 132]);
}

/// Packets still waiting when the window moved past them were once never delivered.
#[test]
fn a_packet_that_the_window_leaves_behind_is_delivered() {
    let mut sink = Node::new(stream(SINK), 1);
    let others = (103..200).map(|number| (number, 0));
    let all = delivered(&mut sink, [(100, 0), (102, 1)].into_iter().chain(others));
    assert!(all.contains(&102), "{all:?}");
}

/// A sink that has 100 to 107, and 109, which waits for 108. It receives nothing for a second, as
/// all packets are lost. Then 142, and more from the same run of the source.
fn sink_after_an_outage() -> Node {
    let mut sink = Node::new(stream(SINK), 1);
    let before = delivered(&mut sink, (100..108).map(|number| (number, 0)).chain([(109, 1)]));
    assert_eq!(before, Vec::from_iter(100..108));
    for (link, number) in (150..).zip(142..146) {
        sink.receive(&symbol(number, 0, link, &ip_packet(40, number)), 1000 * MILLI);
    }
    sink
}

/// The window was reset, and retransmitted symbols were delivered twice.
#[test]
fn symbols_are_known_after_an_outage_that_lost_half_a_window() {
    let mut sink = sink_after_an_outage();
    let count = sink.delivered.len();
    for (link, number) in (160..).zip(100..108) {
        sink.receive(&symbol(number, 0, link, &ip_packet(40, number)), 1001 * MILLI);
    }
    let again: Vec<u32> = sink.delivered[count..].iter().map(|packet| number_of(packet)).collect();
    assert_eq!(again, []);
}

/// It was forgotten when the window was reset.
#[test]
fn packet_that_waits_is_delivered_after_an_outage_of_any_length() {
    assert!(sink_after_an_outage().delivered.iter().any(|packet| number_of(packet) == 109));
    let mut sink = Node::new(stream(SINK), 1);
    delivered(&mut sink, [(100, 0), (102, 1)]);
    for (link, number) in (900..).zip(90_000..90_004) {
        sink.receive(&symbol(number, 0, link, &ip_packet(40, number)), 1000 * MILLI);
    }
    let all: Vec<u32> = sink.delivered.iter().map(|packet| number_of(packet)).collect();
    assert!(all.contains(&102) && all.contains(&90_003), "{all:?}");
}

/// A relay forgot its queued symbols when the window was reset.
#[test]
fn relay_sends_again_what_was_lost_before_an_outage() {
    let mut relay = Node::new(stream(RELAY), 1);
    let packet = ip_packet(40, 0);
    let mut sent = Vec::new();
    for (link, number) in (0..).zip(100..108) {
        sent.extend(relay.receive(&symbol(number, 0, link, &packet), MILLI));
    }
    for (link, number) in (150..).zip(142..146) {
        relay.receive(&symbol(number, 0, link, &packet), 1000 * MILLI);
    }
    let sent: Vec<Vec<u8>> = sent.into_iter().map(|(_, bytes)| bytes).collect();
    let again = relay.receive(&all_lost(&sent), 1010 * MILLI);
    let numbers = again.iter().filter_map(|(_, bytes)| match parse(bytes) {
        Ok(Packet::Stream(packet)) => packet.symbol().map(|symbol| symbol.number),
        _ => None,
    });
    assert_eq!(Vec::from_iter(numbers), Vec::from_iter(100..108));
}

/// The packets that a link report of `node` reports lost.
fn gaps(node: &mut Node, now: u64) -> Vec<LinkGap> {
    let sent = node.tick(now);
    let mut reports = sent.iter().filter_map(|(_, bytes)| match parse(bytes) {
        Ok(Packet::Link(report)) => Some((report, bytes)),
        _ => None,
    });
    let (report, bytes) = reports.next_back().expect("a report");
    link_gaps(&report, bytes).collect()
}

/// A relay acknowledged symbols that it did not keep, and no hop retransmitted them.
#[test]
fn a_symbol_that_is_not_kept_is_not_acknowledged() {
    let mut relay = Node::new(stream(RELAY), 1);
    let packet = ip_packet(40, 0);
    for (link, number) in [(7, 100), (8, 5000), (9, 101)] {
        relay.receive(&symbol(number, 0, link, &packet), MILLI);
    }
    assert_eq!(relay.packets().dropped[DropReason::Stray as usize], 1);
    assert_eq!(gaps(&mut relay, 6 * MILLI), [LinkGap { first: 8, count: 1 }]);
}

/// One packet with a link sequence number far ahead once made all later reports useless to a
/// neighbour.
#[test]
fn a_link_sequence_number_far_ahead_moves_no_report() {
    let mut relay = Node::new(stream(RELAY), 1);
    let packet = ip_packet(40, 0);
    for (link, number) in [(7, 100), (6000, 101), (8, 102)] {
        relay.receive(&symbol(number, 0, link, &packet), MILLI);
    }
    assert_eq!(gaps(&mut relay, 6 * MILLI), []);
    // Three in a row are a blackout.
    for (link, number) in [(6001, 103), (6002, 104), (6003, 105)] {
        relay.receive(&symbol(number, 0, link, &packet), 7 * MILLI);
    }
    assert_eq!(gaps(&mut relay, 12 * MILLI)[0].first, 9);
}

/// The link sequence number of a packet.
fn link_of(packet: &[u8]) -> u32 {
    Header::parse(packet).unwrap().link_sequence
}

/// A report that all of `sent` was lost.
fn all_lost(sent: &[Vec<u8>]) -> Vec<u8> {
    let (first, count) = (link_of(&sent[0]), sent.len() as u16);
    let horizon = first + u32::from(count);
    let report = LinkReport {
        header: header(PacketType::Link, 0, 1),
        from: first,
        horizon,
        latest: horizon - 1,
        arrived: 10_000,
        held: 0,
        backlog: 0,
        beyond: 0,
        bytes: 0,
        packets: 0,
        missing: Missing::default(),
    };
    let mut bytes = vec![0; LINK_BYTES + 4];
    write_link(&report, [LinkGap { first, count }].into_iter(), &mut bytes);
    bytes
}

/// A source once forgot symbols in flight when longer symbols were allowed.
#[test]
fn a_source_keeps_what_is_on_the_way_when_symbols_become_longer() {
    let before = stream(SOURCE);
    let mut source = Node::new(before.clone(), 1);
    let mut sent: Vec<Vec<u8>> = Vec::new();
    for number in 0..5 {
        let out = source.ingress(&ip_packet(400, number), MILLI);
        sent.extend(out.into_iter().map(|(_, bytes)| bytes));
    }
    assert_eq!(sent.len(), 5);
    let after = FlowParams { symbol_bytes: 800, ..before };
    source.apply(&Snapshot { edition: 2, flows: vec![after] }, MILLI);
    let again = source.receive(&all_lost(&sent), 2 * MILLI);
    let symbols = |packets: Vec<Vec<u8>>| -> Vec<Vec<u8>> {
        packets.iter().map(|bytes| bytes[STREAM_BYTES..].to_vec()).collect()
    };
    let again = again.into_iter().map(|(_, bytes)| bytes).collect();
    assert_eq!(symbols(again), symbols(sent));
    assert_eq!(source.ingress(&ip_packet(800, 5), 3 * MILLI).len(), 1);
}

/// Symbols lie in a table made for their size. A node that was given a larger one once wrote beyond
/// their places.
#[test]
fn a_node_that_is_told_of_longer_symbols_keeps_them_apart() {
    for role in [RELAY, SINK] {
        let before = stream(role.clone());
        let mut node = Node::new(before.clone(), 1);
        let mut out = node.receive(&symbol(127, 0, 0, &ip_packet(400, 127)), MILLI);
        let after = FlowParams { symbol_bytes: 800, ..before };
        node.apply(&Snapshot { edition: 2, flows: vec![after] }, MILLI);
        for number in 128..200 {
            let (packet, now) = (ip_packet(800, number), u64::from(number) * MILLI);
            out.extend(node.receive(&symbol(number, 0, number - 127, &packet), now));
            out.extend(node.tick(now));
        }
        let passed: Vec<Vec<u8>> = match role {
            SINK => node.delivered.clone(),
            _ => out
                .into_iter()
                .filter(|(_, bytes)| bytes.len() > 400)
                .map(|(_, bytes)| bytes[STREAM_BYTES..].to_vec())
                .collect(),
        };
        assert!(passed.len() > 40, "{} packets", passed.len());
        for packet in passed {
            let number = number_of(&packet);
            assert_eq!(packet, ip_packet(if number == 127 { 400 } else { 800 }, number));
        }
        assert_eq!(node.leaked(), 0);
    }
}

/// When a next hop had been silent for seconds, nothing was ever sent to it again.
#[test]
fn a_source_tries_a_silent_hop_again() {
    let mut source = Node::new(stream(SOURCE), 1);
    let mut now = MILLI;
    let mut entered = 0;
    let mut last = 0;
    while now < 60_000 * MILLI {
        let opens = source.pipeline.opens_at(common::SHARD, now);
        if opens.is_ok() {
            entered += 1;
            last = now;
            source.ingress(&ip_packet(100, entered), now);
        }
        source.tick(now);
        now += MILLI;
    }
    assert!(last > 40_000 * MILLI, "{entered} packets, the last at {last}");
}

/// A call with nothing to send once counted a packet as failed to send.
#[test]
fn only_what_could_not_leave_for_want_of_a_frame_is_counted() {
    let mut relay = Node::new(stream(RELAY), 1);
    let came = |number, link, relay: &mut Node| {
        relay.receive(&symbol(number, 0, link, &ip_packet(40, number)), MILLI).len()
    };
    assert_eq!(came(100, 0, &mut relay), 1);
    // One is left for received packets.
    let mut taken: Vec<_> = std::iter::from_fn(|| relay.frames.take()).collect();
    relay.frames.release(taken.pop().expect("a frame"));
    assert_eq!(came(100, 1, &mut relay), 0);
    assert_eq!(relay.flow().counters.send_failed, 0);
    assert_eq!(came(101, 2, &mut relay), 0);
    assert_eq!(relay.flow().counters.send_failed, 1);
    taken.into_iter().for_each(|frame| relay.frames.release(frame));
    let sent = relay.tick(3 * MILLI);
    let symbols = sent.iter().filter(|(peer, _)| *peer != UP).count();
    assert_eq!(symbols, 1, "it leaves once there are frames");
}
