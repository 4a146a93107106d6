//! Streams under a thousand hostile packets a second. A *blind* attacker knows flow id, port and
//! destination; an *informed* one the present numbers and the epoch as well.

use crate::timed::{Line, Link, Load, MILLI, SECOND};
use recoded_wire::feedback::{FEEDBACK_BYTES, FeedbackHeader, Item, SizeReport, Writer};
use recoded_wire::header::{Flags, Header, PacketType, write_link_sequence};
use recoded_wire::link::{LINK_BYTES, LINK_GAPS_MAX, LinkGap, LinkReport, Missing, write_link};
use recoded_wire::parse::{Packet, parse};
use recoded_wire::stream::{
    KEEPALIVE_BYTES, STREAM_BYTES, StreamHeader, StreamPacket, StreamSymbol, write_symbol,
};

/// A thousand packets a second.
const LOAD: Load = Load { bytes: 400, rate: Some(1000.0), ordered: true };

/// Packets under attack by an attacker with the numbers of the return path as well.
const INFORMED: Load = Load { bytes: 500, ..LOAD };

/// The same, and packets that another MTU of the tunnel would cut.
const LARGE: Load = Load { bytes: 1300, ..LOAD };

/// The minimum MTU of a tunnel, and a packet that is never too large.
const TUNNEL_LEAST: usize = 576;
const SMALL: usize = 100;

/// Numbers that no two calls share.
fn noise(number: u32) -> u32 {
    (number ^ 0x5bd1).wrapping_mul(0x9E37_79B1) ^ number << 13
}

/// Every millisecond for five seconds, `attack` builds a packet from its turn and the source's
/// newest symbol, and that goes to node `to`. Returns the share of packets that arrive within the
/// second after.
fn under_attack(to: usize, attack: impl Fn(u32, &StreamPacket) -> Vec<u8>) -> f64 {
    line_under_attack(LOAD, to, attack).0
}

/// The same with another load. With large packets, every second one is small. The others are as
/// long as the source reports for the path, but not shorter than the minimum MTU of a tunnel.
/// Returns the line as well.
fn line_under_attack(
    load: Load,
    to: usize,
    attack: impl Fn(u32, &StreamPacket) -> Vec<u8>,
) -> (f64, Line) {
    line_over(Link::new(0.05, 2), load, to, attack)
}

/// The same over two of these links.
fn line_over(
    link: Link,
    load: Load,
    to: usize,
    attack: impl Fn(u32, &StreamPacket) -> Vec<u8>,
) -> (f64, Line) {
    attack_line(Line::new(&[link; 2], load, 1), to, attack)
}

/// The same of a line.
fn attack_line(
    mut line: Line,
    to: usize,
    attack: impl Fn(u32, &StreamPacket) -> Vec<u8>,
) -> (f64, Line) {
    let load = line.load;
    line.run(SECOND);
    let mut symbol: Option<StreamPacket> = None;
    let mut most_bytes = load.bytes;
    for turn in 0..5000 {
        let newest = line.newest().to_vec();
        let Ok(Packet::Stream(packet)) = parse(&newest) else { panic!("a packet of the stream") };
        // Combinations between them are ignored.
        let newest = *symbol.insert(if packet.symbol().is_some() {
            packet
        } else {
            symbol.expect("a symbol comes first")
        });
        let mut forged = attack(turn, &newest);
        if load.bytes > LOAD.bytes && !forged.is_empty() {
            // An informed attacker knows the numbers of the return path as well.
            write_link_sequence(&mut forged, line.newest_back().wrapping_add(1));
        }
        line.inject(to, &forged);
        if load.bytes > TUNNEL_LEAST {
            let most = line.flow(0).packet_bytes_max.unwrap_or(load.bytes);
            most_bytes = most.clamp(TUNNEL_LEAST, load.bytes);
            line.load.bytes = if turn % 2 == 0 { most_bytes } else { SMALL };
        }
        line.run(MILLI);
    }
    line.load.rate = Some(1e-3);
    line.run(SECOND);
    // An attacker's symbols are delivered as well.
    let good = line.delivered.len() as f64 / line.entered() as f64;
    println!("{good:.4} at node {to}");
    line.load.bytes = most_bytes;
    (good, line)
}

fn header(newest: &StreamPacket, packet_type: PacketType, flags: u8, link: u32) -> Header {
    Header { packet_type, flags: Flags(flags), link_sequence: link, ..newest.header.common }
}

/// A report of up to 64 gaps.
fn report(newest: &StreamPacket, horizon: u32, turn: u32, gaps: &[LinkGap]) -> Vec<u8> {
    let report = LinkReport {
        header: header(newest, PacketType::Link, 0, noise(turn)),
        from: horizon.wrapping_sub(1000),
        horizon,
        latest: horizon.wrapping_sub(1),
        arrived: noise(turn.wrapping_add(1)),
        held: 0,
        backlog: 0,
        beyond: 0,
        bytes: noise(turn.wrapping_add(2)),
        packets: noise(turn.wrapping_add(3)),
        missing: Missing::default(),
    };
    let mut bytes = vec![0; LINK_BYTES + 4 * LINK_GAPS_MAX];
    let length = write_link(&report, gaps.iter().copied(), &mut bytes);
    bytes.truncate(length);
    bytes
}

/// A symbol of noise.
fn symbol(newest: &StreamPacket, number: u32, link: u32) -> Vec<u8> {
    let common = header(newest, PacketType::Stream, Flags::SYSTEMATIC, link);
    let header = StreamHeader { common, ..newest.header };
    let mut bytes = vec![0xEE; STREAM_BYTES + 100];
    header.write(&mut bytes);
    write_symbol(&StreamSymbol { number, after: 0, place: number as u16, bytes: 100 }, &mut bytes);
    bytes
}

fn keepalive(newest: &StreamPacket, link: u32) -> Vec<u8> {
    let common = header(newest, PacketType::Stream, Flags::END, link);
    let mut bytes = vec![0; KEEPALIVE_BYTES];
    StreamHeader { common, round_trips: u16::MAX, ..newest.header }.write(&mut bytes);
    bytes
}

#[test]
fn without_an_attack_everything_arrives() {
    assert_eq!(under_attack(2, |_, _| Vec::new()), 1.0);
}

#[test]
fn link_reports_of_random_numbers_end_nothing() {
    for to in 0..2 {
        let share = under_attack(to, |turn, newest| {
            let horizon = noise(turn);
            report(newest, horizon, turn, &[LinkGap { first: horizon - 9, count: 9 }])
        });
        assert!(share >= 0.95, "{share}");
    }
}

/// Symbols that they call received are not retransmitted on that hop: the sink requests them end to
/// end.
#[test]
fn link_reports_of_present_numbers_without_gaps_cost_little() {
    let share = under_attack(0, |turn, newest| {
        report(newest, newest.header.common.link_sequence, turn, &[])
    });
    assert!(share >= 0.95, "{share}");
}

#[test]
fn symbols_far_from_the_window_end_nothing() {
    for to in 1..3 {
        for distance in [5000u32, 40_000, 1 << 20, 1 << 31, 60_000u32.wrapping_neg()] {
            let share = under_attack(to, |turn, newest| {
                let number = newest.symbol().unwrap().number.wrapping_add(distance);
                symbol(newest, number.wrapping_add(turn), noise(turn))
            });
            assert!(share >= 0.95, "{share} of the packets arrive, forged {distance} ahead");
        }
    }
}

#[test]
fn symbols_of_the_past_end_nothing() {
    for to in 1..3 {
        let share = under_attack(to, |turn, newest| {
            let number = newest.symbol().unwrap().number.wrapping_sub(100 + turn % 3000);
            symbol(newest, number, noise(turn))
        });
        assert!(share >= 0.95, "{share}");
    }
}

#[test]
fn keepalives_of_random_numbers_end_nothing() {
    for to in 1..3 {
        let share = under_attack(to, |turn, newest| keepalive(newest, noise(turn)));
        assert!(share >= 0.95, "{share}");
    }
}

/// Numbers ahead that a forged packet used are replays when the neighbour reaches them; only
/// authentication prevents that. The flow continues at a fraction of its rate.
#[test]
fn keepalives_ahead_of_the_present_numbers_do_not_end_the_flow() {
    for (distance, least) in [(100, 0.3), (5000, 0.85), (16_000, 0.85), (1 << 20, 0.95)] {
        let share = under_attack(1, |turn, newest| {
            keepalive(newest, newest.header.common.link_sequence + distance + noise(turn) % 50)
        });
        assert!(share >= least, "{share} of the packets arrive, forged {distance} ahead");
    }
}

/// They make the tunnel's packets as short as allowed, and nothing is dropped for them. How often
/// the limit changes is bounded in `source/size.rs`.
#[test]
fn size_reports_lead_no_further_than_the_least_mtu_of_a_tunnel() {
    let (share, line) = line_under_attack(LARGE, 0, |turn, newest| {
        let common = header(newest, PacketType::Feedback, 0, noise(turn));
        let common = Header { hop_index: 0, ..common };
        let mut bytes = vec![0; 64];
        FeedbackHeader { common, node: noise(turn), number: turn }.write(&mut bytes);
        let mut writer = Writer::new(&mut bytes);
        assert!(writer.push(Item::Size(SizeReport { hop: 0, bytes: (noise(turn) % 1500) as u16 })));
        let length = writer.finish();
        assert!(length > FEEDBACK_BYTES);
        bytes.truncate(length);
        bytes
    });
    // Smaller reports are ignored, and few of the others have the minimum.
    let bytes = line.load.bytes;
    assert!((TUNNEL_LEAST..TUNNEL_LEAST + 8).contains(&bytes), "{bytes}");
    assert!(share >= 0.95, "{share}");
    assert_eq!(line.flow(0).counters.too_large, 0);
}

/// Every large packet is reported lost and every small one received: large ones are retransmitted,
/// and their arrival settles the doubt.
#[test]
fn link_reports_that_call_large_packets_lost_end_nothing() {
    let (share, line) = line_under_attack(LARGE, 0, |turn, newest| {
        let link = newest.header.common.link_sequence;
        let gap = LinkGap { first: link, count: 1 };
        let is_large = newest.symbol().is_some_and(|symbol| usize::from(symbol.bytes) > SMALL);
        report(newest, link + 1, turn, if is_large { std::slice::from_ref(&gap) } else { &[] })
    });
    println!("{} bytes", line.load.bytes);
    assert!(share >= 0.95, "{share}");
}

/// Bytes that the source retransmits in all.
const RESERVE: u64 = 3 << 19;

/// Share of the packets that arrive over links without losses, bytes that the source retransmits,
/// and bytes of the forged packets that draw them. With keys, the neighbour itself forms them.
fn drawn(has_keys: bool, attack: impl Fn(u32, &StreamPacket) -> Vec<u8>) -> (f64, u64, u64) {
    let forged = std::cell::Cell::new(0);
    let mut line = Line::new(&[Link::new(0.0, 2); 2], INFORMED, 1);
    if has_keys {
        line.authenticate();
    }
    let (share, line) = attack_line(line, 0, |turn, newest| {
        let bytes = attack(turn, newest);
        forged.set(forged.get() + bytes.len() as u64);
        bytes
    });
    let repairs = line.flow(0).counters.sent_repair * (INFORMED.bytes + STREAM_BYTES) as u64;
    println!("{repairs} bytes retransmitted, {} forged", forged.get());
    (share, repairs, forged.get())
}

/// A report of seven symbols that were reported before, and older than a round trip.
fn missing_symbols(turn: u32, newest: &StreamPacket) -> Vec<u8> {
    let horizon = newest.header.common.link_sequence.wrapping_sub(500);
    let mut bytes = report(newest, horizon, turn, &[]);
    let back = 40 + turn % 60 * 7;
    let place = |index: u32| newest.symbol().unwrap().place.wrapping_sub((back + index) as u16);
    let mut named = match parse(&bytes) {
        Ok(Packet::Link(report)) => report,
        other => panic!("a link report: {other:?}"),
    };
    named.missing = Missing::of((0..7).map(place));
    write_link(&named, [].into_iter(), &mut bytes);
    bytes
}

/// A report that none of the newest packets arrived.
fn nothing_came(turn: u32, newest: &StreamPacket) -> Vec<u8> {
    let horizon = newest.header.common.link_sequence.wrapping_add(1);
    let gap = LinkGap { first: horizon.wrapping_sub(900), count: 900 };
    report(newest, horizon, turn, &[gap])
}

/// `hostile.md`, F5: seven symbols each, older than a round trip, once drew 20 to 31 times their
/// bytes. With keys, three times.
//= docs/protocol §7.1 B16
#[test]
fn link_reports_of_missing_symbols_draw_three_times_their_bytes_and_as_many_with_keys() {
    for (has_keys, times) in [(false, 3), (true, 1)] {
        let (_, honest, _) = drawn(has_keys, |_, _| Vec::new());
        let (share, repairs, forged) = drawn(has_keys, missing_symbols);
        // A burst, and a few symbols that were not reported yet.
        let most = honest + times * forged + (20 << 10);
        assert!(repairs <= most, "{repairs} bytes for {forged} forged, {honest} without");
        assert!(share >= 0.95, "{share}");
    }
}

/// Each symbol was retransmitted a thousand times, in front of new ones. With keys, three times.
//= docs/protocol §7.1 B15
#[test]
fn link_reports_that_nothing_came_draw_three_times_the_new_bytes_and_as_many_with_keys() {
    let new = 6500 * (INFORMED.bytes + STREAM_BYTES) as u64;
    for (has_keys, times) in [(false, 3), (true, 1)] {
        let (share, repairs, _) = drawn(has_keys, nothing_came);
        assert!(repairs <= times * new + RESERVE, "{repairs} bytes for {new} new ones");
        assert!(share >= 0.95, "{share}");
    }
}

/// Links with a third of the packets lost, at random and in bursts, have room in the budget.
#[test]
fn honest_losses_need_less_than_neighbours_with_keys_may_draw() {
    for (loss, burst) in [(0.3, 1.0), (0.3, 4.0)] {
        let link = Link { rate: 20e6, burst, ..Link::new(loss, 10) };
        let delivered = |has_keys: bool| {
            let mut line = Line::new(&[link; 2], Load { bytes: 1300, ..LOAD }, 1);
            if has_keys {
                line.authenticate();
            }
            line.run(4 * SECOND);
            line.load.rate = Some(1e-3);
            line.run(SECOND);
            let refused: u64 = (0..2).map(|node| line.flow(node).counters.repairs_refused).sum();
            (line.delivered.len(), refused)
        };
        let [without, with] = [false, true].map(delivered);
        println!("{loss} in bursts of {burst}: {without:?}, with keys {with:?}");
        assert_eq!(without, with, "delivered and refused");
    }
}
