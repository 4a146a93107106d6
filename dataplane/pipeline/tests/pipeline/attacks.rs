//! Regressions found by an attack on the first version, one test for each fault. A *blind* attacker
//! knows flow id, port and destination; an *informed* one the present generation number and epoch
//! as well.

#[cfg(feature = "bats")]
use crate::common;
use crate::common::{DOWN, Line, Node, Outputs, SHARD, UP, coded, header, ip_packet, params};
use recoded_pipeline::memory::HeapFrames;
use recoded_pipeline::params::{FlowParams, HOPS_MAX, PeerId, Role, Snapshot, TunnelId};
use recoded_pipeline::plan::PlanMaker;
use recoded_pipeline::recorder::Requests;
use recoded_pipeline::report::DropReason;
use recoded_pipeline::{Datagram, Pipeline};
use recoded_wire::coded::{Coded, CodedHeader, PLANNED_MAX, coding_offset, write_index};
use recoded_wire::feedback::{FeedbackHeader, HopReport, Item, Nack, Writer, items};
use recoded_wire::header::{Flags, Header, PacketType};
use recoded_wire::link::{LINK_BYTES, LinkReport, Missing, write_link};
use recoded_wire::parse::{Packet, parse};
use recoded_wire::stream::{KEEPALIVE_BYTES, STREAM_LOG2_NONE, StreamHeader};

const MILLI: u64 = 1_000_000;
const SOURCE: Role = Role::Source { tunnel: TunnelId(0) };

/// A feedback packet with `items`, from `travelled` links away.
fn feedback(travelled: u8, number: u32, items: &[Item<'_>]) -> Vec<u8> {
    let common = Header { hop_index: travelled, ..header(PacketType::Feedback, 0, number) };
    let header = FeedbackHeader { common, node: 99, number };
    let mut bytes = vec![0; 1432];
    header.write(&mut bytes);
    let mut writer = Writer::new(&mut bytes);
    for item in items {
        assert!(writer.push(*item), "one packet holds them all");
    }
    let length = writer.finish();
    bytes.truncate(length);
    bytes
}

fn hop(hop: u8, loss: f32) -> Item<'static> {
    Item::Hop(HopReport { hop, loss, burst_mean: 1.0 })
}

/// The codes of units.
fn codes() -> Vec<FlowParams> {
    vec![
        params(SOURCE),
        #[cfg(feature = "bats")]
        FlowParams { code: common::bats(40), ..params(SOURCE) },
    ]
}

/// Three blind packets that named 256 hops once crashed the daemon: plans were made in an array of
/// 255.
//= docs/protocol §2.8(b)
#[test]
fn feedback_that_names_every_hop_index_is_bounded() {
    for params in codes() {
        let mut node = Node::new(params, 1);
        node.ingress(&ip_packet(100, 0), 0);
        for (number, first) in [0u8, 90, 180].into_iter().enumerate() {
            let hops: Vec<u8> = (first..=first.saturating_add(89)).collect();
            for travelled in [0, first, u8::MAX] {
                let items: Vec<Item<'_>> = hops.iter().map(|index| hop(*index, 0.6)).collect();
                node.receive(&feedback(travelled, number as u32, &items), MILLI);
            }
        }
        // A report for each hop by itself, from the distance at which it is valid.
        for index in 0..=u8::MAX {
            node.receive(&feedback(index, 10 + u32::from(index), &[hop(index, 0.6)]), 2 * MILLI);
        }
        for number in 0..40 {
            node.ingress(&ip_packet(400, number), 3 * MILLI);
        }
        node.tick(10 * MILLI);
        assert!(node.flow().hops.len() <= HOPS_MAX);
        assert_eq!(node.leaked(), 0);
    }
}

//= docs/protocol §2.1(c), §2.1(d)
#[test]
fn packets_that_travelled_too_far_are_dropped_by_reason() {
    let mut relay = Node::new(params(Role::Relay { upstream: UP }), 1);
    let dropped = |node: &Node, reason: DropReason| node.packets().dropped[reason as usize];
    for (hop_index, expected) in [(63, 0), (64, 1), (255, 2)] {
        let common = header(PacketType::Stream, Flags::END, u32::from(hop_index));
        let common = Header { hop_index, ..common };
        let mut bytes = vec![0; KEEPALIVE_BYTES];
        StreamHeader { common, window_log2: 6, round_trips: 0 }.write(&mut bytes);
        relay.receive(&bytes, MILLI);
        assert_eq!(dropped(&relay, DropReason::HopLimit), expected);
    }
    for (travelled, expected) in [(64, 0), (254, 0), (255, 1)] {
        relay.receive(&feedback(travelled, 1000 + u32::from(travelled), &[hop(0, 0.5)]), MILLI);
        assert_eq!(dropped(&relay, DropReason::WrongRole), expected, "{travelled} hops");
    }
}

/// A forged packet of a generation: junk under a valid header.
fn forged(template: &CodedHeader, generation: u32, noise: u32) -> Vec<u8> {
    let flags = Flags(template.common.flags.field_code() | Flags::SYSTEMATIC);
    let common = Header { flags, link_sequence: noise, ..template.common };
    let header = CodedHeader { common, generation, ..*template };
    let mut bytes = vec![noise as u8 | 1; 224];
    header.write(&mut bytes);
    write_index(&mut bytes, false, (noise % u32::from(header.size)) as u8);
    bytes
}

/// The newest data packet that the source of `line` has sent.
fn newest_packet(line: &mut Line, packet: &[u8]) -> Vec<u8> {
    let out = line.nodes[0].ingress(packet, line.now);
    let newest = out.last().map(|(_, bytes)| bytes.clone());
    line.carry(0, out);
    newest.expect("a packet that fills a symbol leaves at once")
}

/// A lossless line of `hops` links that carries packets while `attack` strikes every millisecond,
/// at the relay and at the sink. Returns the share of packets that arrive.
fn under_attack(
    hops: usize,
    change: impl Fn(&mut FlowParams),
    mut attack: impl FnMut(u32, &[u8]) -> Vec<Vec<u8>>,
) -> f64 {
    const PACKETS: u32 = 2000;
    let mut line = Line::new(hops, 0.0, 7, |params| {
        params.flush_timeout_nanos = 4 * MILLI;
        change(params);
    });
    let mut first = None;
    for number in 0..PACKETS {
        let packet = ip_packet(390, number);
        match first {
            None => first = Some(newest_packet(&mut line, &packet)),
            Some(_) => line.send(&packet),
        }
        line.pass(1);
        for forged in attack(number, first.as_deref().unwrap()) {
            for node in 1..=hops {
                let out = line.nodes[node].receive(&forged, line.now);
                line.carry(node, out);
            }
        }
    }
    line.pass(500);
    let good = line.delivered().iter().filter(|packet| packet.len() == 390).count();
    line.check();
    good as f64 / f64::from(PACKETS)
}

/// Like [`under_attack`], for a flow of generations, with the header of its first packet.
fn generations_under_attack(mut attack: impl FnMut(u32, &CodedHeader) -> Vec<Vec<u8>>) -> f64 {
    under_attack(2, |_| (), |number, first| attack(number, &CodedHeader::parse(first).unwrap()))
}

/// Position of the source: two packets per generation pass each millisecond.
fn present(number: u32, first: &CodedHeader) -> u32 {
    first.generation.wrapping_add(number / 8)
}

/// A packet far ahead once made the sink discard all that it held, and the relay its table: 2000
/// good packets lost for one forged.
#[test]
fn a_generation_far_ahead_ends_nothing() {
    for distance in [70, 255, 1 << 15, 1 << 20] {
        let share = generations_under_attack(|number, first| {
            vec![forged(first, present(number, first).wrapping_add(distance), number)]
        });
        assert!(share >= 0.95, "{share} of the packets arrive, forged {distance} ahead");
    }
}

/// Groups of three blind packets, each group from its own number range, once made the sink follow
/// every group.
#[test]
fn packets_of_other_lives_in_threes_end_nothing() {
    let share = generations_under_attack(|number, first| {
        let life = number.wrapping_mul(0x9E37_79B1);
        (0..3).map(|step| forged(first, life.wrapping_add(step), number)).collect()
    });
    assert!(share >= 0.95, "{share} of the packets arrive");
}

/// An attacker that sent two blind packets in a pause, and continued, once locked the flow out
/// while it continued: its link sequence numbers had replaced the neighbour's.
#[test]
fn packets_that_go_on_from_a_pause_do_not_lock_the_flow_out() {
    let mut line = Line::new(2, 0.0, 7, |params| params.flush_timeout_nanos = 4 * MILLI);
    let (mut template, mut sent) = (None, 0);
    for number in 0..3000u32 {
        if number % 500 < 300 {
            let packet = ip_packet(390, number);
            let first = newest_packet(&mut line, &packet);
            template.get_or_insert(CodedHeader::parse(&first).unwrap());
            sent += 1;
        }
        line.pass(1);
        if number % 10 == 0 {
            let forged = forged(&template.unwrap(), 1 << 30, (1 << 30) + number / 10);
            for node in 1..=2 {
                let out = line.nodes[node].receive(&forged, line.now);
                line.carry(node, out);
            }
        }
    }
    line.pass(500);
    let good = line.delivered().iter().filter(|packet| packet.len() == 390).count();
    assert!(good * 100 >= sent * 95, "{good} of {sent} packets arrive");
    line.check();
}

/// Blind bursts across the window once cost three quarters of the goodput and half a core.
#[test]
fn bursts_that_walk_the_window_end_nothing() {
    let share = generations_under_attack(|number, first| {
        let life = (number / 50).wrapping_mul(0x9E37_79B1);
        let steps = if number % 50 == 0 { 33 } else { 0 };
        (0..steps).map(|step| forged(first, life.wrapping_add(64 * step), number)).collect()
    });
    assert!(share >= 0.95, "{share} of the packets arrive");
}

/// Blind packets of the generation that a flow had just finished, after two seconds of silence,
/// once went into a table entry that was no longer in use: frames leaked, and the next unit there
/// crashed the daemon.
#[test]
fn a_finished_generation_stays_finished_after_a_silence() {
    let mut line = Line::new(1, 0.0, 3, |_| ());
    let header = CodedHeader::parse(&newest_packet(&mut line, &ip_packet(390, 0))).unwrap();
    line.pass(300);
    line.now += 2_500 * MILLI;
    for noise in 0..6 {
        let packet = forged(&header, header.generation, 1000 + noise);
        let out = line.nodes[1].receive(&packet, line.now);
        line.carry(1, out);
        line.pass(1);
    }
    for number in 1..1000 {
        line.send(&ip_packet(390, number));
        line.pass(2);
    }
    line.pass(500);
    let good = line.delivered().iter().filter(|packet| packet.len() == 390).count();
    assert!(good >= 950, "{good} of 1000 packets delivered");
    line.check();
}

/// One packet of 67 bytes that announced a generation of 256 once made a relay send 256 packets.
#[test]
fn a_relay_sends_in_proportion_to_the_rank_it_received() {
    let relay = params(Role::Relay { upstream: UP });
    let most = relay.redundancy_max as usize;
    let mut node = Node::new(relay, 5);
    let mut sent = 0;
    for number in 0..100u32 {
        let common = header(PacketType::Generation, 2 | Flags::END, number);
        let header =
            CodedHeader { planned: PLANNED_MAX, full_log2: 8, ..coded(common, number, 256) };
        let out = node.receive(&forged(&header, number, number), u64::from(number) * MILLI);
        sent += out.len() + node.tick(u64::from(number) * MILLI).len();
    }
    sent += node.tick(1_000 * MILLI).len();
    assert!(sent <= 100 * (most + 1), "{sent} packets for 100");
    assert_eq!(node.leaked(), 0);
}

/// Symbols of one byte under coefficients of 256 once made a relay send twenty times their bytes,
/// as a plan or as repairs.
#[test]
fn relay_sends_three_times_the_bytes_it_received_and_no_more() {
    for (flags, copies) in [(Flags::END, 1), (Flags::END, 3), (Flags::REPAIR, 5)] {
        let mut node = Node::new(params(Role::Relay { upstream: UP }), 5);
        let (mut sent, mut received) = (0, 0);
        for number in 0..400u32 {
            let now = u64::from(number) * MILLI;
            for copy in 0..copies {
                let common = header(PacketType::Generation, 3 | flags, number * copies + copy);
                let common = Header { flags: common.flags.with(Flags::SYSTEMATIC, true), ..common };
                let planned = if flags == Flags::REPAIR { 0 } else { PLANNED_MAX };
                let header = coded(common, number, 256);
                let header = CodedHeader { planned, full_log2: 8, ..header };
                let mut bytes = vec![1; coding_offset(false) + header.vector_bytes() + 1];
                header.write(&mut bytes);
                write_index(&mut bytes, false, number as u8);
                received += bytes.len();
                let out = node.receive(&bytes, now).into_iter().chain(node.tick(now));
                sent += out.map(|(_, bytes)| bytes.len()).sum::<usize>();
            }
        }
        sent += node.tick(1_000 * MILLI).iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
        println!("{:.2} times the bytes", sent as f64 / received as f64);
        assert!(sent > 0 && sent <= 3 * received, "{sent} bytes for {received}");
        assert_eq!(node.leaked(), 0);
    }
}

/// Forty forged requests once kept a source busy for ten seconds.
//= docs/protocol §2.8(c)
#[test]
fn forged_repair_requests_are_answered_within_a_budget() {
    for (params, unit) in codes().into_iter().zip(["generation", "block"]) {
        let mut node = Node::new(params, 1);
        let mut data = Vec::new();
        for number in 0..2000 {
            data.extend(node.ingress(&ip_packet(190, number), 0));
            data.extend(node.tick(u64::from(number) * 10_000));
        }
        let sent = data.len();
        let names = |bytes: &[u8]| match parse(bytes).unwrap() {
            Packet::Coded(Coded { block: Some(block), .. }) => u32::from(block.number),
            Packet::Coded(coded) => coded.header.generation,
            Packet::Stream(packet) => packet.symbol().map_or(0, |symbol| symbol.number),
            other => unreachable!("a source sends none: {other:?}"),
        };
        let mut units: Vec<u32> = data.iter().map(|(_, bytes)| names(bytes)).collect();
        units.dedup();
        let mut answers = 0;
        for (number, generation) in units.iter().enumerate() {
            let ask = |round| {
                let missing = Nack::ALL;
                Item::Nack(Nack { unit: *generation, missing, round })
            };
            let bytes = feedback(0, number as u32, &(0..4).map(ask).collect::<Vec<_>>());
            let now = 30 * MILLI + number as u64 * 1000;
            answers += node.receive(&bytes, now).len();
            answers += node.tick(now).len();
        }
        println!("{unit}: {answers} packets of repair for {sent} sent");
        assert!(answers <= 1100, "{unit}: {answers} packets of repair");
        assert_eq!(node.leaked(), 0);
    }
}

/// A link report that everything up to `next` was lost.
fn nothing_came(next: u32, number: u32, now: u64) -> Vec<u8> {
    let report = LinkReport {
        header: header(PacketType::Link, 0, number),
        from: next,
        horizon: next,
        latest: next.wrapping_sub(1),
        arrived: (now / 1000) as u32,
        held: 0,
        backlog: 0,
        beyond: 0,
        bytes: 0,
        packets: number,
        missing: Missing::default(),
    };
    let mut bytes = vec![0; LINK_BYTES];
    write_link(&report, [].into_iter(), &mut bytes);
    bytes
}

/// A node that reports every packet lost gets each of them once more, and a reserve.
#[test]
fn forged_link_reports_are_answered_within_a_budget() {
    for params in codes() {
        let mut node = Node::new(params, 1);
        let (mut sent, mut answers) = (0, 0);
        for number in 0..4000u32 {
            let now = u64::from(number) * MILLI / 4;
            let mut data = node.ingress(&ip_packet(190, number), now);
            data.extend(node.tick(now));
            sent += data.len();
            let Some((_, newest)) = data.last() else { continue };
            let next = Header::parse(newest).unwrap().link_sequence.wrapping_add(1);
            answers += node.receive(&nothing_came(next, number, now), now).len();
        }
        println!("{answers} retransmissions of {sent} packets");
        assert!(answers > 100, "{answers} retransmissions of lost packets");
        assert!(answers <= 1100 + sent, "{answers} retransmissions of {sent} packets");
        assert_eq!(node.leaked(), 0);
    }
}

/// A sink misled into lacking ever more packets requests them within a budget.
#[test]
fn forged_generations_draw_few_requests() {
    let mut sink = Node::new(params(Role::Sink { tunnel: TunnelId(0), upstream: UP }), 3);
    let (mut asked, mut received) = (0, 0);
    for number in 0..20_000u32 {
        let now = u64::from(number) * MILLI / 8;
        let common = header(PacketType::Generation, 2 | Flags::END, number);
        let packet = forged(&coded(common, 0, 16), number, number);
        let out = [sink.receive(&packet, now), sink.tick(now)].concat();
        received += 1;
        let asks = |(_, bytes): &&(PeerId, Vec<u8>)| {
            items(bytes).any(|item| matches!(item, Item::Nack(_)))
        };
        asked += out.iter().filter(asks).count();
    }
    println!("{asked} reports with requests for {received} packets");
    // The first ones are copied, while the loss of the link is unknown.
    assert!(asked <= 1300 + received / 8, "{asked} reports with requests");
    assert_eq!(sink.leaked(), 0);
}

/// A keepalive of an unknown flow does not announce its code.
//= docs/protocol §2.6(c)
#[test]
fn forged_keepalives_open_nothing() {
    let mut relay = Node::new(params(Role::Relay { upstream: UP }), 5);
    for number in 0..100 {
        let common = header(PacketType::Stream, Flags::END, number);
        let header = StreamHeader { common, window_log2: STREAM_LOG2_NONE, round_trips: 0 };
        let mut bytes = vec![0; KEEPALIVE_BYTES];
        header.write(&mut bytes);
        assert!(relay.receive(&bytes, u64::from(number)).is_empty());
    }
    assert!(relay.pipeline.report().flows.is_empty());
    assert_eq!(relay.packets().dropped[DropReason::Opening as usize], 100);
}

/// One stale packet, repeated ten times as often as good ones arrive, once left the sink a fifth.
#[test]
fn a_stale_packet_repeated_is_dropped() {
    let mut stale = None;
    let share = generations_under_attack(|_, first| {
        let bytes = stale.get_or_insert_with(|| {
            let mut bytes = forged(first, first.generation, 0);
            first.write(&mut bytes);
            bytes
        });
        vec![bytes.clone(); 10]
    });
    assert!(share >= 0.95, "{share} of the packets arrive");
    let mut relay = Node::new(params(Role::Relay { upstream: UP }), 5);
    let stale = stale.unwrap();
    let passed: usize = (0..1000).map(|_| relay.receive(&stale, MILLI).len()).sum();
    assert!(passed <= 1, "{passed} copies passed on");
    assert_eq!(relay.packets().dropped[DropReason::Replayed as usize], 999);
}

/// A packet of feedback with 119 items once cost from a tenth of a second to five seconds of
/// planning, on the packet path.
#[test]
fn feedback_draws_no_plan_on_the_packet_path_and_few_elsewhere() {
    for params in codes() {
        let mut pipeline = Pipeline::new(&Snapshot { edition: 1, flows: vec![params] }, 1);
        let mut frames = HeapFrames::new(4096, 2048);
        let mut outputs = Outputs { plans: Requests::elsewhere(), ..Outputs::default() };
        let mut maker = PlanMaker::new();
        for number in 0..1000u32 {
            let now = u64::from(number) * MILLI;
            let items: Vec<Item<'_>> =
                (0..117).map(|item| hop(0, ((number + item) % 60) as f32 / 100.0)).collect();
            let span = frames.receive(&feedback(0, number, &items)).unwrap();
            let datagram = Datagram::best_effort(Some(DOWN), span);
            pipeline.receive(&mut frames, &mut outputs, datagram, now);
            pipeline.ingress(&mut frames, &mut outputs, SHARD, &ip_packet(100, number), now);
            pipeline.tick(&mut frames, &mut outputs, now);
            if let Some(request) = outputs.plans.asked.last().filter(|_| number % 100 == 50) {
                pipeline.planned(maker.make(request));
            }
            outputs.release(&mut frames);
        }
        // One is outstanding at a time, and each was answered after a tenth of a second.
        let asked = outputs.plans.asked.len();
        assert!((8..=12).contains(&asked), "{asked} plans asked for");
        pipeline.release(&mut frames);
        assert_eq!(frames.free(), 4096);
    }
}

/// `hostile.md`, F7: 500 symbols a second of the next generation, with the largest plan, other
/// sizes or another epoch, once left 5 % of the goodput. Link numbers refuse them where the flow is
/// faster; a slower one is corrupted, as `docs/limits.md` says.
#[test]
fn symbols_of_the_next_generation_end_nothing() {
    // Size, epochs ahead, bytes of the packet.
    for (size, epochs, bytes) in [(16, 0, 224), (16, 0, 124), (3, 0, 224), (16, 1, 224)] {
        let share = generations_under_attack(|number, first| {
            let epoch = first.common.epoch.wrapping_add(epochs);
            let common = Header { epoch, ..first.common };
            let header = CodedHeader { common, size, planned: PLANNED_MAX, ..*first };
            let ahead = present(number, first).wrapping_add(1);
            // Numbers of a life of its own, in order.
            let mut packet = forged(&header, ahead, number / 2);
            packet.resize(bytes, 1);
            if number % 2 == 0 { vec![packet] } else { Vec::new() }
        });
        assert!(share >= 0.95, "{share} arrive, forged size {size}, {bytes} bytes");
    }
}
