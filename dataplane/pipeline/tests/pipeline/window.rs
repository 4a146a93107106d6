//! Window flows: packets that enter at the source leave at the sink, whole and in order, over
//! relays that forward; redundancy is as configured or as the loss requires.

use crate::common::{DOWN, Line, Node, UP, header, ip_packet, params, window};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use recoded_code::window::{Density, Encoder, Parameters, Scheme};
use recoded_gf::FieldOrder;
use recoded_pipeline::params::{
    FlowCode, FlowParams, Redundancy, Role, Snapshot, TunnelId, WindowParams,
};
use recoded_pipeline::report::DropReason;
use recoded_wire::feedback::{FeedbackHeader, HopReport, Item, Writer};
use recoded_wire::header::{Flags, HEADER_BYTES, Header, PacketType};
use recoded_wire::window::{parse_window, write_header};

fn line(hops: usize, loss: f64, seed: u64, change: impl Fn(&mut FlowParams)) -> Line {
    Line::new(hops, loss, seed, |params| {
        window(params);
        // Output of a source if hops do not recover their losses.
        params.repair = false;
        change(params);
    })
}

/// A single node of a window flow.
fn node(role: Role, change: impl Fn(&mut FlowParams)) -> Node {
    let mut params = params(role);
    window(&mut params);
    params.repair = false;
    change(&mut params);
    Node::new(params, 77)
}

const SOURCE: Role = Role::Source { tunnel: TunnelId(0) };
const SINK: Role = Role::Sink { tunnel: TunnelId(0), upstream: UP };

fn bytes_of(number: u32) -> Vec<u8> {
    ip_packet(24 + (number as usize * 37) % 170, number)
}

fn number_of(packet: &[u8]) -> u32 {
    u32::from_be_bytes(packet[20..24].try_into().unwrap())
}

/// The numbers of delivered packets, which must be as they entered, and in order.
fn numbers(delivered: &[Vec<u8>]) -> Vec<u32> {
    let number = |packet: &Vec<u8>| {
        let number = number_of(packet);
        assert_eq!(*packet, bytes_of(number), "packet {number} was altered");
        number
    };
    let numbers: Vec<u32> = delivered.iter().map(number).collect();
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "out of order or again");
    numbers
}

/// Sends packets in bursts of eight a millisecond; returns how many did not arrive.
fn transfer(line: &mut Line, packets: std::ops::Range<u32>) -> usize {
    for number in packets.clone() {
        line.send(&bytes_of(number));
        if number % 8 == 7 {
            line.pass(1);
        }
    }
    line.pass(500);
    packets.len() - numbers(line.delivered()).iter().filter(|n| packets.contains(*n)).count()
}

#[test]
fn lossless_line_delivers_at_once_without_repair_packets() {
    let mut line = line(3, 0.0, 1, |params| params.redundancy = Redundancy::Fixed(1.0));
    for number in 0..500 {
        line.send(&bytes_of(number));
        assert_eq!(line.delivered().len(), number as usize + 1);
    }
    line.pass(100);
    numbers(line.delivered());
    let source = line.nodes[0].flow();
    assert_eq!((source.counters.sent_systematic, source.counters.sent_coded), (500, 0));
    assert_eq!(line.nodes[3].flow().counters.generations_complete, 500);
    line.check();
}

#[test]
fn moderate_loss_is_recovered_over_one_three_and_ten_hops() {
    for (hops, loss) in [(1, 0.1), (3, 0.05), (10, 0.01)] {
        let mut line = line(hops, loss, 10 + hops as u64, |params| params.target_loss = 1e-6);
        assert_eq!(transfer(&mut line, 0..4000), 0, "{hops} hops");
        let flow = line.nodes[hops].flow();
        let counters = &flow.counters;
        assert!(counters.decode_delay_nanos > 0, "nothing was recovered");
        assert!(counters.decode_delay_nanos_max < 50_000_000, "{counters:?}");
        assert_eq!(line.nodes[0].flow().hops.len(), hops);
        for node in &line.nodes {
            assert_eq!(node.packets().dropped.iter().sum::<u64>(), 0);
        }
        line.check();
    }
}

#[test]
fn relays_measure_loss_and_pass_reports_up() {
    let mut line = line(3, 0.1, 21, |_| ());
    line.loss_up = 0.0;
    transfer(&mut line, 0..20_000);
    let source = line.nodes[0].flow();
    assert_eq!(source.hops.len(), 3);
    for hop in &source.hops {
        assert!((hop.loss - 0.1).abs() < 0.03, "{hop:?}");
        assert!((hop.burst_mean - 1.1).abs() < 0.2, "{hop:?}");
    }
    let (remote, sink) = (source.remote.expect("no report"), line.nodes[3].flow());
    assert_eq!(u64::from(remote.complete), sink.counters.generations_complete);
    assert_eq!(u64::from(remote.failed), sink.counters.generations_failed);
    line.check();
}

#[test]
fn automatic_redundancy_meets_its_target_and_wastes_little() {
    for (seed, target, burst_mean) in [(30, 1e-2, 1.0), (31, 1e-3, 1.0), (32, 1e-2, 3.0)] {
        let mut line = line(2, 0.05, seed, |params| {
            params.target_loss = target;
            params.flush_timeout_nanos = 100_000_000; // no pauses, no tails
        });
        line.burst_mean = burst_mean;
        transfer(&mut line, 0..4000); // until all is measured
        let before = line.nodes[0].flow().counters;
        let missing = transfer(&mut line, 4000..44_000) as f64 / 40_000.0;
        let source = line.nodes[0].flow().counters;
        let rate = (source.sent_coded - before.sent_coded) as f64 / 40_000.0;
        println!("target {target}, bursts of {burst_mean}: {missing} missing at {rate:.3}");
        assert!(missing < 2.0 * target, "{missing} missing at a rate of {rate}");
        assert!(rate < if burst_mean > 1.0 { 0.7 } else { 0.35 }, "a rate of {rate}");
        line.check();
    }
}

#[test]
fn bursts_are_seen_as_such_and_answered() {
    let mut line = line(1, 0.05, 40, |params| {
        params.code = FlowCode::Window(WindowParams { window_symbols: 256, density: 15 });
        params.target_loss = 1e-3;
    });
    line.loss_up = 0.0;
    line.burst_mean = 6.0;
    transfer(&mut line, 0..5000);
    let missing = transfer(&mut line, 5000..25_000);
    assert!(missing <= 40, "{missing} of 20000 missing");
    let hop = line.nodes[0].flow().hops[0];
    assert!((3.0..9.0).contains(&hop.burst_mean), "{hop:?}");
    line.check();
}

#[test]
fn binary_field_and_sparse_coefficients_deliver() {
    for (seed, field, density) in
        [(50, FieldOrder::Two, 7), (51, FieldOrder::Two, 3), (52, FieldOrder::TwoFiftySix, 5)]
    {
        let mut line = line(2, 0.05, seed, |params| {
            params.field = field;
            params.code = FlowCode::Window(WindowParams { window_symbols: 64, density });
        });
        let missing = transfer(&mut line, 0..4000);
        assert!(missing <= 4, "{missing} missing: {field:?}, DT {density}");
        assert_eq!(line.nodes[2].flow().field, field);
        line.check();
    }
}

#[test]
fn fixed_redundancy_is_exactly_its_ratio() {
    for (factor, expected) in [(1.25, 250), (1.0, 0), (1.1, 100), (3.0, 2000), (9.0, 3000)] {
        let mut source = node(SOURCE, |params| params.redundancy = Redundancy::Fixed(factor));
        for number in 0..1000 {
            source.ingress(&bytes_of(number), 1000);
        }
        let counters = source.flow().counters;
        assert_eq!((counters.sent_systematic, counters.sent_coded), (1000, expected), "{factor}");
    }
    // Sent one at a time, with a pause after each that would be time for a tail.
    let mut source = node(SOURCE, |params| params.redundancy = Redundancy::Fixed(1.3));
    for number in 0..1000 {
        source.ingress(&bytes_of(number), u64::from(number) * 50_000_000);
        source.tick(u64::from(number) * 50_000_000 + 10_000_000);
    }
    assert_eq!(source.flow().counters.sent_coded, 300);
}

#[test]
fn a_lone_packet_that_is_lost_comes_back_with_the_tail() {
    let mut line = line(2, 0.0, 60, |_| ());
    line.send(&bytes_of(0));
    line.pass(10);
    line.loss = 1.0;
    line.send(&bytes_of(1));
    line.loss = 0.0;
    assert_eq!(line.delivered().len(), 1);
    line.pass(3);
    assert_eq!(numbers(line.delivered()), [0, 1]);
    line.check();
}

#[test]
fn tails_stay_within_the_cap_of_redundancy() {
    let mut source = node(SOURCE, |params| params.redundancy_max = 2.5);
    for number in 0..1000 {
        source.ingress(&bytes_of(number), u64::from(number) * 50_000_000);
        source.tick(u64::from(number) * 50_000_000 + 10_000_000);
    }
    let sent = source.flow().counters.sent_coded;
    assert!((1000..=1500).contains(&sent), "{sent} repair packets");
}

#[test]
fn a_packet_that_cannot_be_recovered_is_given_up_in_time() {
    let mut line = line(1, 0.0, 61, |params| params.redundancy = Redundancy::Fixed(1.0));
    for number in 0..10 {
        line.loss = if number == 5 { 1.0 } else { 0.0 };
        line.send(&bytes_of(number));
    }
    line.pass(199);
    assert_eq!(line.delivered().len(), 5, "delivery must wait");
    line.pass(2);
    assert_eq!(numbers(line.delivered()), [0, 1, 2, 3, 4, 6, 7, 8, 9]);
    let counters = line.nodes[1].flow().counters;
    assert_eq!((counters.generations_complete, counters.generations_failed), (9, 1));
    // A window that moves on does not wait that long.
    line.loss = 1.0;
    line.send(&bytes_of(10));
    line.loss = 0.0;
    for number in 11..300 {
        line.send(&bytes_of(number));
    }
    line.pass(20); // symbols that became known at once are delivered in parts
    assert_eq!(line.delivered().len(), 9 + 289);
    line.check();
}

/// Packets of a source for numbers `0..count`, tails included.
fn stream(source: &mut Node, count: u32) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    for number in 0..count {
        packets.extend(source.ingress(&bytes_of(number), u64::from(number) * 10_000));
    }
    packets.extend(source.tick(u64::from(count) * 10_000 + 100_000_000));
    packets.into_iter().map(|(_, bytes)| bytes).collect()
}

#[test]
fn reordered_and_repeated_packets_are_put_right() {
    let mut random = ChaCha8Rng::seed_from_u64(70);
    let mut below = |limit: u32| random.next_u32() % limit;
    let mut packets = stream(&mut node(SOURCE, |_| ()), 3000);
    let first = packets.remove(0);
    for at in (0..packets.len()).rev().filter(|_| below(5) == 0).collect::<Vec<_>>() {
        packets.insert(at, packets[at].clone());
    }
    for at in 0..packets.len() {
        let other = (at + below(20) as usize).min(packets.len() - 1);
        packets.swap(at, other);
    }
    let mut sink = node(SINK, |_| ());
    sink.receive(&first, 0);
    for (now, packet) in (0u64..).zip(&packets) {
        if below(30) > 0 {
            sink.receive(packet, now * 1000);
        }
    }
    sink.tick(1_000_000_000);
    assert!(numbers(&sink.delivered).len() >= 2990, "{} of 3000", sink.delivered.len());
    let counters = sink.flow().counters;
    let dropped = sink.packets().dropped;
    let replays = dropped[DropReason::Replayed as usize];
    assert!(replays > 500 && dropped.iter().sum::<u64>() == replays, "{dropped:?}");
    assert!(counters.innovative > 2900, "{counters:?}");
    assert_eq!(sink.leaked(), 0);
}

/// A packet over GF(256) with `flags`.
fn packet(flags: u8, epoch: u8, symbol_bytes: u16, body: &[u8]) -> Vec<u8> {
    let header = Header { epoch, ..header(PacketType::Window, flags | 3, 0) };
    let mut bytes = vec![0; HEADER_BYTES];
    write_header(&header, symbol_bytes, 64, &mut bytes);
    bytes.extend_from_slice(body);
    assert_eq!(parse_window(&bytes).expect("a whole packet").header, header);
    bytes
}

fn source_packet(esi: u32, epoch: u8, adu: &[u8]) -> Vec<u8> {
    packet(Flags::SYSTEMATIC, epoch, 200, &[adu, &esi.to_be_bytes()].concat())
}

#[test]
fn the_esi_wraps_around_and_bytes_are_those_of_the_rfc() {
    let parameters = Parameters { scheme: Scheme::Gf256, symbol_bytes: 200, window_symbols: 32 };
    let mut encoder = Encoder::new(parameters).unwrap();
    encoder.reset(u32::MAX - 500);
    let mut sink = node(SINK, |_| ());
    for number in 0..1000 {
        let adu = bytes_of(number);
        let esi = encoder.push(0, &adu).unwrap();
        if number % 7 != 3 {
            sink.receive_next(&source_packet(esi, 0, &adu), 0);
        }
        if number % 4 == 0 {
            let mut body = vec![0; 208];
            encoder.repair(Density::FULL, &mut body).unwrap();
            sink.receive_next(&packet(0, 0, 200, &body), 0);
        }
    }
    let delivered = numbers(&sink.delivered);
    assert_eq!(delivered, (0..delivered.len() as u32).collect::<Vec<_>>());
    assert!(delivered.len() >= 990, "{}", delivered.len());
    assert_eq!(sink.leaked(), 0);
}

#[test]
fn a_source_that_restarts_is_followed() {
    let mut line = line(2, 0.0, 80, |_| ());
    for number in 0..500 {
        line.send(&bytes_of(number));
    }
    line.pass(50);
    line.nodes[0] = node(SOURCE, |_| ());
    for number in 500..1000 {
        line.send(&bytes_of(number));
    }
    line.pass(10);
    // The first packet of another run is dropped, as it might be a replay.
    assert_eq!(numbers(line.delivered()).len(), 999);
    line.check();
}

#[test]
fn stray_packets_cost_nothing_and_a_long_silence_is_passed_over() {
    let mut sink = node(SINK, |_| ());
    for number in 0..3000u32 {
        let esi = (u32::MAX - 1000).wrapping_add(number);
        sink.receive_next(&source_packet(esi, 0, &bytes_of(number)), 0);
        let distance = [1 << 31, 1 << 20, 1 << 14, 1000, 0u32.wrapping_sub(1 << 20)];
        let stray = esi.wrapping_add(distance[number as usize % 5]);
        sink.receive_next(&source_packet(stray, 3, &bytes_of(number)), 0);
    }
    assert_eq!(numbers(&sink.delivered), (0..3000).collect::<Vec<_>>());
    // More than a window is lost. The third packet after it is believed; those before it are known
    // to be missing.
    let mut parameters = stream(&mut node(SOURCE, |_| ()), 1000);
    let later = parameters.split_off(900);
    let mut sink = node(SINK, |_| ());
    for packet in parameters.iter().take(300) {
        sink.receive(packet, 0);
    }
    for packet in &later {
        sink.receive(packet, 50_000_000);
    }
    for milli in 0..20 {
        sink.tick(1_000_000_000 + milli * 1_000_000);
    }
    let delivered = numbers(&sink.delivered);
    let counters = sink.flow().counters;
    assert_eq!(*delivered.last().unwrap(), 999);
    assert_eq!(counters.generations_failed + delivered.len() as u64, 1000);
}

/// Three forged packets lead an idle window away. Its source was once too far behind to be in range
/// and not far enough to count as restarted, for as many symbols as the packets had led it.
#[test]
fn a_window_that_was_led_away_in_a_silence_is_found_again() {
    for distance in [1000, 30_000, 1 << 20] {
        let mut sink = node(SINK, |_| ());
        let packets = stream(&mut node(SOURCE, |_| ()), 1000);
        for packet in &packets[..300] {
            sink.receive_next(packet, 0);
        }
        let end = parse_window(&packets[300]).unwrap().first;
        for step in 0..3 {
            let stray = source_packet(end.wrapping_add(distance + step), 0, &bytes_of(2000 + step));
            sink.receive_next(&stray, 5_000_000_000);
        }
        for packet in &packets[300..] {
            sink.receive_next(packet, 5_001_000_000);
        }
        sink.tick(6_000_000_000);
        let genuine = sink.delivered.iter().filter(|packet| number_of(packet) < 2000).count();
        assert!(genuine >= 995, "{genuine} of 1000 packets, led {distance} ahead");
    }
}

/// A sink's report on the hop before it.
fn hop_report(loss: f32) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    let common = header(PacketType::Feedback, 0, 0);
    FeedbackHeader { common, node: 1, number: 1 }.write(&mut bytes);
    let mut writer = Writer::new(&mut bytes);
    assert!(writer.push(Item::Hop(HopReport { hop: 0, loss, burst_mean: 1.0 / (1.0 - loss) })));
    let length = writer.finish();
    bytes.truncate(length);
    bytes
}

#[test]
fn long_tails_take_turns_with_other_work() {
    let mut source = node(SOURCE, |params| {
        params.target_loss = 1e-9;
        params.redundancy_max = 9.0;
    });
    for number in 0..100 {
        source.ingress(&bytes_of(number), 0);
    }
    // A path that no longer delivers anything.
    source.receive(&hop_report(0.9), 0);
    let sent: Vec<usize> = (0..20).map(|_| source.tick_once(10_000_000).len()).collect();
    assert!(sent[0] == 32 && sent.iter().all(|&count| count <= 32), "{sent:?}");
    assert_eq!(sent[19], 0, "{sent:?}");
}

#[test]
fn parameters_changed_under_traffic_lose_nothing() {
    let mut line = line(3, 0.03, 81, |params| params.target_loss = 1e-7);
    line.loss_up = 0.0;
    let mut source = params(SOURCE);
    window(&mut source);
    (source.target_loss, source.repair) = (1e-7, false);
    let changes = [
        (FieldOrder::TwoFiftySix, 197, 64, 15),
        (FieldOrder::Two, 200, 64, 7),
        (FieldOrder::Two, 200, 20, 11),
        (FieldOrder::TwoFiftySix, 200, 90, 12),
    ];
    for number in 0..8000u32 {
        line.send(&bytes_of(number));
        if number % 500 == 250 {
            let edition = number / 500;
            let (field, symbol_bytes, window_symbols, density) = changes[edition as usize % 4];
            (source.field, source.symbol_bytes) = (field, symbol_bytes);
            source.code = FlowCode::Window(WindowParams { window_symbols, density });
            source.redundancy =
                if edition % 3 == 0 { Redundancy::Fixed(2.5) } else { Redundancy::Auto };
            let snapshot = Snapshot { edition: edition.into(), flows: vec![source.clone()] };
            let now = line.now;
            let out = line.nodes[0].apply(&snapshot, now);
            line.carry(0, out);
        }
        if number % 8 == 0 {
            line.pass(1);
        }
    }
    // A larger window shortly after another change waits for a second.
    line.pass(1500);
    let missing = 8000 - numbers(line.delivered()).len();
    assert!(missing <= 4, "{missing} missing");
    assert_eq!(line.nodes[0].flow().generation_size, 90);
    for node in &line.nodes {
        assert_eq!(node.packets().dropped.iter().sum::<u64>(), 0);
    }
    line.check();
}

#[test]
fn a_packet_longer_than_a_symbol_is_refused_at_the_source() {
    let mut source = node(SOURCE, |_| ());
    assert_eq!(source.ingress(&ip_packet(198, 1), 0).len(), 0);
    assert_eq!(source.ingress(&[], 0).len(), 0);
    assert_eq!(source.ingress(&ip_packet(197, 1), 0).len(), 1);
    let counters = source.flow().counters;
    assert_eq!((counters.ingress_packets, counters.ingress_dropped), (3, 2));
    assert_eq!(source.leaked(), 0);
}

#[test]
fn packets_that_do_not_fit_the_flow_have_their_reasons() {
    let mut sink = node(SINK, |_| ());
    let adu = bytes_of(5);
    sink.receive_next(&source_packet(100, 0, &adu), 0);
    let foreign = packet(Flags::SYSTEMATIC, 9, 201, &[&adu[..], &[0, 0, 0, 101]].concat());
    let other_length = packet(Flags::SYSTEMATIC, 0, 199, &[&adu[..], &[0, 0, 0, 101]].concat());
    let mut contradiction = source_packet(102, 0, &adu);
    contradiction[1] |= Flags::END;
    for (bytes, reason) in [
        (&foreign, DropReason::Oversize),
        (&other_length, DropReason::Mismatch),
        (&contradiction, DropReason::Malformed),
        (&foreign[..18].to_vec(), DropReason::Truncated),
    ] {
        let before = sink.packets().dropped[reason as usize];
        sink.receive_next(bytes, 0);
        assert_eq!(sink.packets().dropped[reason as usize], before + 1, "{reason:?}");
    }
    for (role, reason) in
        [(SOURCE, Some(DropReason::WrongRole)), (Role::Relay { upstream: UP }, None), (SINK, None)]
    {
        let mut other = Node::new(params(role.clone()), 5);
        let out = other.receive_next(&source_packet(100, 0, &adu), 0);
        assert_eq!(
            out.iter().filter(|(hop, _)| *hop == DOWN).count(),
            usize::from(matches!(role, Role::Relay { .. }))
        );
        let dropped = other.packets().dropped;
        assert_eq!(dropped.iter().sum::<u64>(), u64::from(reason.is_some()));
        assert!(reason.is_none_or(|reason| dropped[reason as usize] == 1));
    }
}

#[test]
fn codes_change_under_traffic_at_the_source_alone() {
    let mut line = line(2, 0.0, 90, |_| ());
    let code = |line: &mut Line, to: &dyn Fn(&mut FlowParams)| {
        let mut flow = params(SOURCE);
        to(&mut flow);
        let snapshot = Snapshot { edition: 2, flows: vec![flow] };
        let out = line.nodes[0].apply(&snapshot, line.now);
        line.carry(0, out);
    };
    let mut sent = 0;
    let mut packets = |line: &mut Line| {
        for number in sent..sent + 300 {
            line.send(&bytes_of(number));
        }
        sent += 300;
        line.pass(500);
        let missing = sent - line.delivered().len() as u32;
        (line.nodes[0].flow().counters.ingress_packets, missing)
    };
    assert_eq!(packets(&mut line), (300, 0));
    code(&mut line, &|_| ());
    assert_eq!(packets(&mut line), (600, 0));
    #[cfg(feature = "bats")]
    {
        code(&mut line, &|params| params.code = crate::common::bats(40));
        assert_eq!(packets(&mut line), (900, 0));
    }
    code(&mut line, &window);
    let entered = if cfg!(feature = "bats") { 1200 } else { 900 };
    assert_eq!(packets(&mut line), (entered, 0));
    numbers(line.delivered());
    line.check();
}

/// A relay forwards packets as they came, except for the fields of the hop.
#[test]
fn relays_forward_as_it_came() {
    let mut relay = node(Role::Relay { upstream: UP }, |_| ());
    for mut bytes in stream(&mut node(SOURCE, |_| ()), 50) {
        let out = relay.receive(&bytes, 0);
        bytes[12] = 1;
        bytes[8..12].copy_from_slice(&out[0].1[8..12]);
        assert_eq!(out, [(DOWN, bytes)]);
    }
    assert_eq!(relay.leaked(), 0);
}
