//! Window flows over links with a rate, a queue and a delay, whose hops recover their own losses:
//! packets on every link per IP packet, deliveries, and delays.

use crate::timed::{Line, Link, Load, MILLI, SECOND};
use recoded_pipeline::params::{FlowCode, FlowParams, Nanos, WindowParams};
use recoded_wire::header::{Flags, Header, PacketType};
use recoded_wire::link::{LINK_BYTES, LinkGap, LinkReport, Missing, write_link};

/// 100 Mbit/s of datagrams, over links of 300.
const STEADY: Load = Load { bytes: 1300, rate: Some(100e6 / 8.0 / 1300.0), ordered: true };

fn window(params: &mut FlowParams) {
    params.code = FlowCode::Window(WindowParams { window_symbols: 64, density: 15 });
    params.field = recoded_gf::FieldOrder::TwoFiftySix;
}

/// Measurements of a line, after its first second.
struct Measured {
    /// Packets on each link per IP packet.
    packets: Vec<f64>,
    /// The median, and the 99th percentile.
    delays: [Nanos; 2],
    missing: usize,
}

fn measure(line: &mut Line, hops: usize) -> Measured {
    let counts = |line: &Line| -> Vec<u64> {
        (0..hops).map(|hop| line.sent(hop).0).chain([line.entered() as u64]).collect()
    };
    line.run(SECOND);
    let before = counts(line);
    line.run(2 * SECOND);
    let mut grown: Vec<f64> =
        counts(line).iter().zip(before).map(|(now, before)| (now - before) as f64).collect();
    let entered = grown.pop().expect("there are packets");
    let packets: Vec<f64> = grown.iter().map(|packets| packets / entered).collect();
    let since = line.now - 2 * SECOND;
    let delays = [0.5, 0.99].map(|share| line.delay(since, share));
    line.stop(2 * SECOND);
    let mut numbers: Vec<u32> = line.delivered.iter().map(|packet| packet.number).collect();
    numbers.sort_unstable();
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "a packet was delivered twice");
    let missing = line.entered() - numbers.len();
    let in_millis = delays.map(|nanos| nanos / MILLI);
    println!("{packets:.3?} packets, {in_millis:?} ms, {missing} missing");
    Measured { packets, delays, missing }
}

/// It once took 1.3 to 2.3 packets for each IP packet, and over six hops of 20 % nothing arrived.
#[test]
fn source_packets_over_short_hops_cost_what_their_losses_take() {
    let cases = [(1, 0.1, 1.0, 3), (4, 0.1, 1.0, 4), (6, 0.2, 1.0, 10), (4, 0.1, 8.0, 20)];
    for (hops, loss, burst, most_millis) in cases {
        let link = Link { burst, ..Link::new(loss, 0) };
        let mut line = Line::with(&vec![link; hops], STEADY, 1, window);
        let Measured { packets, delays, missing } = measure(&mut line, hops);
        assert!(packets.iter().all(|packets| *packets < 1.02 / (1.0 - loss)), "{packets:?}");
        assert!(delays[1] < most_millis * MILLI, "{hops} hops: {delays:?}");
        assert_eq!(missing, 0, "{hops} hops");
        assert!(line.flow(0).is_mended);
    }
}

/// On a long path, a few repair packets save round trips; otherwise hops recover losses by
/// themselves.
#[test]
fn repair_packets_are_sent_in_advance_where_they_are_few_and_round_trips_long() {
    for (hops, loss, delay, most, median) in [(4, 0.1, 10, 1.13, 110), (3, 0.03, 50, 1.26, 155)] {
        let mut line = Line::with(&vec![Link::new(loss, delay); hops], STEADY, 1, window);
        let Measured { packets, delays, missing } = measure(&mut line, hops);
        assert!(packets.iter().all(|packets| *packets < most), "{packets:?}");
        assert!(delays[0] < median * MILLI, "{delays:?}");
        assert_eq!(missing, 0, "{hops} hops");
    }
}

/// A socket with the default buffer of Linux holds 92 datagrams of 1300 bytes. Packets waiting
/// behind a lost one were once delivered at once: with 10 ms a hop a quarter of 100 Mbit/s was lost
/// there.
#[test]
fn deliveries_fit_the_buffer_of_a_socket() {
    for (hops, delay) in [(4, 0), (4, 10), (3, 20)] {
        let load = Load { ordered: false, ..STEADY };
        let mut line = Line::with(&vec![Link::new(0.1, delay); hops], load, 1, window);
        line.run(3 * SECOND);
        // The application reads 60 packets each millisecond: 620 Mbit/s.
        let most = line.most_waiting(2 * SECOND, 60.0);
        println!("{hops} hops of {delay} ms: at most {most:.0} packets wait");
        assert!(most < 64.0, "{most} packets wait in the socket");
        line.stop(2 * SECOND);
        let missing = line.entered() - line.delivered.len();
        assert_eq!(missing, 0, "{hops} hops of {delay} ms");
    }
}

/// A packet of 200 bytes every 20 ms once became four and more of 1452.
#[test]
fn sparse_packets_stay_small_and_arrive() {
    for (rate, delay, most) in [(50.0, 0, 2.3), (250.0, 10, 1.9)] {
        let load = Load { bytes: 200, rate: Some(rate), ordered: false };
        let mut line = Line::with(&[Link::new(0.1, delay); 4], load, 3, window);
        line.run(SECOND);
        let before = (line.bytes(0), line.entered());
        line.run(10 * SECOND);
        let bytes = (line.bytes(0) - before.0) as f64;
        let times = bytes / (200 * (line.entered() - before.1)) as f64;
        println!("{times:.2} times the bytes");
        assert!(times < most, "{times} times the bytes");
        line.stop(2 * SECOND);
        let mut arrived: Vec<u32> = line.delivered.iter().map(|packet| packet.number).collect();
        arrived.sort_unstable();
        let missing: Vec<u32> =
            (0..line.entered() as u32).filter(|it| arrived.binary_search(it).is_err()).collect();
        assert!(missing.is_empty(), "{missing:?} of {}", line.entered());
    }
}

#[test]
fn without_a_way_back_repair_packets_are_sent() {
    for dead_hop in 0..2 {
        let mut line = Line::with(&[Link::new(0.05, 0); 2], STEADY, 1, window);
        line.run(SECOND);
        let coded = line.flow(0).counters.sent_coded;
        assert!(coded < 1000, "{coded} repair packets: the hops report");
        line.set_back(dead_hop, Link::new(1.0, 0));
        line.run(SECOND);
        let since = line.entered();
        line.run(SECOND);
        let grown = line.flow(0).counters.sent_coded - coded;
        assert!(grown > 1500 && !line.flow(0).is_mended, "{grown} repair packets");
        let until = line.entered();
        line.stop(SECOND);
        let range = since as u32..until as u32;
        let arrived = line.delivered.iter().filter(|it| range.contains(&it.number)).count();
        assert!(arrived * 100 >= range.len() * 98, "{arrived} of {} arrive", range.len());
    }
}

#[test]
fn relay_that_restarts_keeps_and_sends_again_after_it() {
    let mut line = Line::with(&[Link::new(0.1, 0); 3], STEADY, 1, window);
    line.run(SECOND);
    line.restart(1);
    let Measured { packets, missing, .. } = measure(&mut line, 3);
    assert!(packets.iter().all(|packets| *packets < 1.14), "{packets:?}");
    assert!(missing < 100, "{missing} missing");
}

/// Frames are held until the next node has reported on them, and no longer.
#[test]
fn line_that_came_to_rest_holds_no_frames() {
    let mut line = Line::with(&[Link::new(0.1, 1); 3], STEADY, 5, window);
    line.run(SECOND);
    line.stop(SECOND);
    for node in 0..3 {
        assert_eq!(line.flow(node).held, 0, "node {node}");
    }
}

/// Reports that call everything lost cost the budget: a packet for every other one, and the
/// reserve.
#[test]
fn forged_reports_cost_no_more_than_the_budget() {
    let mut line = Line::with(&[Link::new(0.0, 1); 2], STEADY, 7, window);
    line.run(SECOND);
    let before = line.flow(0).counters.sent_repair;
    let entered = line.entered();
    for _ in 0..1000 {
        line.inject(0, &report_of_losses(line.newest(), line.newest_back()));
        line.run(MILLI);
    }
    let repairs = line.flow(0).counters.sent_repair - before;
    let most = (line.entered() - entered) as u64 + 1100;
    println!("{repairs} of at most {most} packets");
    assert!((100..=most).contains(&repairs), "{repairs} packets again for {most}");
    line.stop(SECOND);
    assert!(line.delivered.len() * 100 >= line.entered() * 95);
}

/// A link report from the next node of a source that reports the last packets up to `newest` lost.
fn report_of_losses(newest: &[u8], newest_back: u32) -> Vec<u8> {
    let newest = Header::parse(newest).expect("a packet");
    let header = Header {
        packet_type: PacketType::Link,
        flags: Flags(0),
        link_sequence: newest_back.wrapping_add(1),
        hop_index: 0,
        ..newest
    };
    let next = newest.link_sequence.wrapping_add(1);
    let report = LinkReport {
        header,
        from: next.wrapping_sub(60),
        horizon: next,
        latest: newest.link_sequence,
        arrived: 0,
        held: 0,
        backlog: 0,
        bytes: 0,
        packets: 0,
        beyond: 0,
        missing: Missing::default(),
    };
    let mut bytes = vec![0; LINK_BYTES + 4];
    let gap = LinkGap { first: next.wrapping_sub(60), count: 60 };
    write_link(&report, [gap].into_iter(), &mut bytes);
    bytes
}

/// Retransmissions of hops arrive after packets of the next epoch.
#[test]
fn parameters_changed_under_traffic_lose_nothing() {
    let mut line = Line::with(&[Link::new(0.1, 5); 3], STEADY, 8, window);
    for window_symbols in [64, 20, 90, 64] {
        line.run(300 * MILLI);
        line.change_source(|params| {
            params.code = FlowCode::Window(WindowParams { window_symbols, density: 15 });
        });
    }
    line.run(300 * MILLI);
    line.stop(SECOND);
    let missing = line.entered() - line.delivered.len();
    assert!(missing <= 2, "{missing} missing");
}
