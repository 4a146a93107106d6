//! Tagged flows: a changed symbol is dropped by the next node with keys before it is combined or
//! decoded, and the remaining ones arrive.

#[cfg(feature = "bats")]
use crate::common;
use crate::common::keys::Keys;
use crate::common::{DOWN, Line, Node, UP, ip_packet, params};
use recoded_gf::FieldOrder;
use recoded_pipeline::egress::{STRICT_TAG_BYTES, TAG_BYTES};
use recoded_pipeline::params::{FlowCode, FlowParams, Recoding, Redundancy, Role, TunnelId};
use recoded_pipeline::report::{DropReason, FlowCounters};
use recoded_wire::coded::{BLOCK_BYTES, CODED_BYTES};
use recoded_wire::header::{Flags, Header, PacketType};
use std::collections::BTreeSet;
use std::time::Instant;

/// Bytes of a packet of the traffic.
const BYTES: usize = 150;

/// Coding of a flow with tags.
#[derive(Copy, Clone)]
struct Coding {
    code: FlowCode,
    field: FieldOrder,
    /// Whether tags have sixteen bytes.
    strict: bool,
}

/// Codes whose symbols have tags, over every field, and each with strict tags over two of them.
fn codings() -> Vec<Coding> {
    use FieldOrder::{Four, Sixteen, Two, TwoFiftySix};
    let codes = [
        FlowCode::Rlnc,
        #[cfg(feature = "bats")]
        common::bats(40),
    ];
    let of = |code: &FlowCode| {
        let coding = |field, strict| Coding { code: *code, field, strict };
        let standard = [Two, Four, Sixteen, TwoFiftySix].map(|field| coding(field, false));
        let strict = [Four, TwoFiftySix].map(|field| coding(field, true));
        [&standard[..], &strict].concat()
    };
    codes.iter().flat_map(of).collect()
}

/// Every code with tags of either length, over one field.
fn some_codings() -> impl Iterator<Item = Coding> {
    let is_one = |coding: &Coding| match (coding.code, coding.strict) {
        (FlowCode::Rlnc, false) => coding.field == FieldOrder::Sixteen,
        _ => coding.field == FieldOrder::TwoFiftySix,
    };
    codings().into_iter().filter(is_one)
}

/// Parameters of a tagged flow.
fn tagged(coding: Coding) -> impl Fn(&mut FlowParams) {
    let Coding { code, field, strict } = coding;
    move |params| *params = FlowParams { code, field, tagged: true, strict, ..params.clone() }
}

fn tag_bytes(coding: Coding) -> usize {
    if coding.strict { STRICT_TAG_BYTES } else { TAG_BYTES }
}

/// Keys of a relay of such a flow.
fn of_relay(coding: Coding, columns: usize) -> Keys {
    let keys = Keys::of_columns(1, columns);
    if coding.strict { keys.strict() } else { keys }
}

/// Sends packets, and returns the numbers of those delivered, in order, none altered.
fn transfer(line: &mut Line, numbers: std::ops::Range<u32>) -> Vec<u32> {
    let before = line.delivered().len();
    for number in numbers.clone() {
        line.send(&ip_packet(BYTES, number));
        if number % 4 == 0 {
            line.pass(1);
        }
    }
    line.pass(1500);
    let number = |packet: &Vec<u8>| {
        let number = u32::from_be_bytes(packet[20..24].try_into().unwrap());
        assert_eq!(*packet, ip_packet(BYTES, number), "packet {number} was altered");
        number
    };
    let delivered: Vec<u32> = line.delivered()[before..].iter().map(number).collect();
    let different: BTreeSet<_> = delivered.iter().collect();
    assert_eq!(different.len(), delivered.len(), "a packet was delivered twice");
    delivered
}

fn refused(node: &Node) -> u64 {
    node.packets().dropped[DropReason::WrongSymbolTag as usize]
}

fn sink(line: &Line) -> &Node {
    line.nodes.last().expect("a sink")
}

#[test]
fn what_honest_relays_mix_verifies_in_every_code_and_field() {
    for coding in codings() {
        let mut line = Line::new(4, 0.05, 5, |params| {
            tagged(coding)(params);
            params.recoding = Recoding::Random;
        });
        // One of the relays recodes blindly, and two hold some of the columns.
        line.nodes[2].keys = Some(of_relay(coding, 4));
        line.nodes[3].keys = Some(of_relay(coding, 1));
        let numbers = transfer(&mut line, 0..1000);
        println!("{}, {:?}: {} of 1000", coding.code.name(), coding.field, numbers.len());
        assert!(numbers.len() >= 990 && numbers.is_sorted(), "{}", numbers.len());
        for node in &line.nodes {
            assert_eq!(refused(node), 0, "{}, {:?}", coding.code.name(), coding.field);
        }
        let mixed = |node: &Node| node.flow().counters.sent_recoded;
        assert!(line.nodes[1..4].iter().map(mixed).sum::<u64>() > 0, "nothing was mixed");
        line.check();
    }
}

/// The packets of a unit of a source with this coding.
fn unit_of(coding: Coding) -> Vec<Vec<u8>> {
    let mut params = params(Role::Source { tunnel: TunnelId(0) });
    tagged(coding)(&mut params);
    params.redundancy = Redundancy::Fixed(2.0);
    let mut source = Node::new(params, 3);
    let mut packets = Vec::new();
    for number in 0..4 {
        packets.extend(source.ingress(&ip_packet(BYTES, number), 1000));
    }
    for step in 1..50 {
        packets.extend(source.tick(1000 + step * 1_000_000));
    }
    assert_eq!(source.leaked(), 0);
    packets.into_iter().filter(|(hop, _)| *hop == DOWN).map(|(_, bytes)| bytes).collect()
}

/// Whether tags cover a bit of a packet: those of its hop, the size of its generation, its plan,
/// its flags and padding are not covered, except for its field and whether it is systematic.
fn is_bound(bytes: &[u8], at: usize, bit: u8) -> bool {
    let header = Header::parse(bytes).expect("a packet");
    let is_systematic = header.flags.has(Flags::SYSTEMATIC);
    let is_batch = header.packet_type == PacketType::Bats;
    let coding = CODED_BYTES + if is_batch { BLOCK_BYTES } else { 0 };
    let field_code = header.flags.field_code();
    match at {
        // A vector of small elements may end within a byte.
        _ if !is_systematic && at >= coding && field_code != 3 => {
            let size = usize::from(bytes[13]) + 1;
            let bits = size << field_code;
            let within = at - coding;
            within >= bits.div_ceil(8).next_multiple_of(4) || within < bits / 8
        }
        0 | 2..8 | 16.. => true,
        1 => 1 << bit == Flags::SYSTEMATIC || (Flags(1 << bit).field_code() != 0),
        13 => is_batch,
        14 => bit >= 4,
        _ => false,
    }
}

/// Every bit of every kind of packet, one at a time: nothing of it is accepted.
#[test]
fn every_bit_that_tags_cover_is_refused_when_it_is_changed() {
    for coding in codings() {
        let packets = unit_of(coding);
        let mut params = params(Role::Sink { tunnel: TunnelId(0), upstream: UP });
        tagged(coding)(&mut params);
        let mut sink = Node::new(params, 7);
        let is_systematic =
            |bytes: &&Vec<u8>| Header::parse(bytes).unwrap().flags.has(Flags::SYSTEMATIC);
        let mut kinds = vec![packets.iter().find(is_systematic).expect("a source symbol")];
        kinds.extend(packets.iter().find(|bytes| !is_systematic(bytes)));
        let (mut swept, mut now) = (0, 1000);
        for packet in kinds {
            for (at, bit) in (0..packet.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
                if !is_bound(packet, at, bit) {
                    continue;
                }
                let mut changed = packet.clone();
                changed[at] ^= 1 << bit;
                now += 1000;
                sink.receive_next(&changed, now);
                swept += 1;
                let dropped: u64 = sink.packets().dropped.iter().sum();
                assert_eq!(
                    dropped,
                    swept,
                    "{}, {:?}: byte {at}, bit {bit}",
                    coding.code.name(),
                    coding.field
                );
            }
        }
        assert_eq!(sink.pipeline.report().flows.len(), 0, "a forged packet opened a shard");
        println!("{}, {:?}: {swept} bits", coding.code.name(), coding.field);
        for packet in &packets {
            now += 1000;
            sink.receive_next(packet, now);
            sink.tick(now);
        }
        assert_eq!(sink.delivered.len(), 4, "{}", coding.code.name());
        assert_eq!(sink.flow().counters.tag_refused, 0);
    }
}

/// A change by a relay that has the keys of its hops.
#[derive(Copy, Clone, PartialEq, Debug)]
enum Lie {
    Tag,
    Payload,
    Vector,
    Number,
    Field,
    Zero,
    Swap,
}

const LIES: [Lie; 7] =
    [Lie::Tag, Lie::Payload, Lie::Vector, Lie::Number, Lie::Field, Lie::Zero, Lie::Swap];

/// One packet in this many.
const TRUTHS: usize = 10;

impl Lie {
    /// Applies it to a packet with a tag of `tag_bytes`; false if the packet has no such part.
    fn tell(self, tag_bytes: usize, bytes: &mut [u8], before: &[u8]) -> bool {
        let header = Header::parse(bytes).expect("a packet");
        let is_batch = header.packet_type == PacketType::Bats;
        let coding = CODED_BYTES + if is_batch { BLOCK_BYTES } else { 0 };
        // Symbols of all packets have the same length.
        let symbol = bytes.len() - 200;
        match self {
            Lie::Tag => bytes[symbol + tag_bytes - 2] ^= 0x40,
            Lie::Payload => bytes[symbol + tag_bytes + 50] ^= 1,
            Lie::Vector => bytes[coding + 3] ^= 1,
            Lie::Number => bytes[CODED_BYTES - 1] ^= 1,
            Lie::Field => bytes[14] ^= 0x10,
            Lie::Zero => bytes[symbol..].fill(0),
            Lie::Swap => {
                let from = before.len() - 200;
                if before[from..] == bytes[symbol..] {
                    return false;
                }
                bytes[symbol..].copy_from_slice(&before[from..]);
            }
        }
        true
    }
}

/// A line of three hops whose first relay lies; `judge` is the node that must refuse it. Returns
/// the number of lies.
fn with_liar(coding: Coding, lie: Lie, judge: usize) -> u64 {
    let mut line = Line::new(3, 0.02, 23, tagged(coding));
    if judge == 2 {
        line.nodes[2].keys = Some(of_relay(coding, 4));
    }
    let tag_bytes = tag_bytes(coding);
    let told = std::rc::Rc::new(std::cell::Cell::new(0));
    let count = told.clone();
    let (mut turn, mut last) = (0, Vec::new());
    line.tamper = Some(Box::new(move |from, mut bytes| {
        // Keepalives are short.
        let is_symbol = from == 1 && bytes.len() > 200;
        turn += usize::from(is_symbol);
        if is_symbol && turn % TRUTHS == 0 && lie.tell(tag_bytes, &mut bytes, &last) {
            count.set(count.get() + 1);
        } else if is_symbol {
            last.clone_from(&bytes);
        }
        vec![bytes]
    }));
    let numbers = transfer(&mut line, 0..1000);
    let (caught, sink_caught) = (refused(&line.nodes[judge]), refused(sink(&line)));
    let name = coding.code.name();
    println!(
        "{name} {:?}, {tag_bytes} bytes, {lie:?}: {} of 1000, {} told, {caught} refused, sink {sink_caught}",
        coding.field,
        numbers.len(),
        told.get(),
    );
    // Lies that a blind relay combines are lost, and with them later packets of the generation.
    let least = if judge == 2 { 950 } else { 600 };
    assert!(numbers.len() > least && numbers.is_sorted(), "{name}, {lie:?}: {}", numbers.len());
    // A blind relay does not accept packets that contradict their unit.
    assert!(caught > 0 || lie == Lie::Field, "{name}, {lie:?}: nothing was refused");
    let counters = line.nodes[judge].flow().counters;
    assert_eq!(counters.tag_refused, caught);
    if judge == 2 {
        assert_eq!(sink_caught, 0, "{name}, {lie:?}: a lie was mixed");
        // Links lose some of them.
        assert!(caught <= told.get() && caught * 10 >= told.get() * 9, "{caught}");
    }
    line.check();
    told.get()
}

#[test]
fn relay_with_some_columns_drops_every_lie_before_it_mixes() {
    for coding in some_codings() {
        LIES.iter().for_each(|lie| assert!(with_liar(coding, *lie, 2) > 20));
    }
}

#[test]
fn sink_drops_what_a_blind_relay_mixed_with_lies_and_the_flow_goes_on() {
    for coding in some_codings() {
        LIES.iter().for_each(|lie| assert!(with_liar(coding, *lie, 3) > 20));
    }
}

/// Without tags, one changed packet spoils a generation, and altered packets are delivered.
#[test]
fn the_same_lies_get_through_where_symbols_have_no_tags() {
    let mut line = Line::new(3, 0.02, 23, |_| ());
    let mut turn = 0;
    line.tamper = Some(Box::new(move |from, mut bytes| {
        turn += usize::from(from == 1 && bytes.len() > 200);
        if from == 1 && bytes.len() > 200 && turn % TRUTHS == 0 {
            Lie::Payload.tell(TAG_BYTES, &mut bytes, &[]);
        }
        vec![bytes]
    }));
    for number in 0..1000 {
        line.send(&ip_packet(BYTES, number));
        line.pass(u64::from(number % 4 == 0));
    }
    line.pass(1500);
    let is_genuine = |packet: &&Vec<u8>| {
        let number = u32::from_be_bytes(packet[20..24].try_into().unwrap());
        **packet == ip_packet(BYTES, number)
    };
    let genuine = line.delivered().iter().filter(is_genuine).count();
    println!("{genuine} of {} are genuine", line.delivered().len());
    assert!(line.delivered().len() > genuine + 50, "the relay alters nothing");
}

/// The source changes to a new key in the middle of the traffic; the sink has both.
#[test]
fn change_of_keys_loses_nothing_and_is_along_units() {
    for coding in codings() {
        let mut line = Line::new(2, 0.05, 11, tagged(coding));
        let mut delivered = Vec::new();
        for round in 0..4 {
            line.nodes[2].keys.as_mut().unwrap().renew();
            // Open units continue under the key that they began with.
            line.send(&ip_packet(BYTES, round * 200));
            line.nodes[0].keys.as_mut().unwrap().renew();
            delivered.extend(transfer(&mut line, round * 200 + 1..round * 200 + 200));
        }
        assert_eq!(refused(sink(&line)), 0, "{}", coding.code.name());
        assert!(delivered.len() >= 780, "{}: {}", coding.code.name(), delivered.len());
        assert_eq!(line.nodes[0].flow().counters.tag_failed, 0);
    }
}

#[test]
fn sink_takes_nothing_without_tags_under_other_keys_or_without_keys() {
    type Edit = fn(&mut Line);
    let nothing: Edit = |_| ();
    let other: Edit = |line| line.nodes[2].keys = Some(Keys::new(2));
    let none: Edit = |line| line.nodes[2].keys = None;
    let cases = [
        (false, nothing, DropReason::WrongSymbolTag),
        (true, other, DropReason::WrongSymbolTag),
        (true, none, DropReason::NoSymbolKeys),
    ];
    for coding in codings() {
        for (is_tagged, edit, reason) in cases {
            let mut line = Line::new(2, 0.0, 3, |params| {
                tagged(coding)(params);
                params.tagged = is_tagged || matches!(params.role, Role::Sink { .. });
            });
            edit(&mut line);
            assert!(transfer(&mut line, 0..100).is_empty(), "{}", coding.code.name());
            let packets = sink(&line).packets();
            let dropped = packets.dropped[reason as usize];
            assert!(dropped >= 100, "{}, {reason:?}: {packets:?}", coding.code.name());
            line.check();
        }
    }
}

#[test]
fn source_without_keys_sends_nothing() {
    for coding in codings().into_iter().take(1) {
        let mut line = Line::new(1, 0.0, 3, tagged(coding));
        line.nodes[0].keys = None;
        assert!(transfer(&mut line, 0..100).is_empty());
        let FlowCounters { seal_failed, sent_systematic, .. } = line.nodes[0].flow().counters;
        assert_eq!((seal_failed, sent_systematic), (100, 0));
        line.nodes[0].keys = Some(Keys::new(1));
        assert_eq!(transfer(&mut line, 100..200).len(), 100);
    }
}

/// The longest packet that fits a unit arrives; one a byte longer does not enter.
#[test]
fn tags_take_their_bytes_of_every_symbol() {
    for coding in codings() {
        let mut line = Line::new(1, 0.0, 3, tagged(coding));
        let flow = { line.nodes[0].flow() };
        let symbols = match coding.code {
            #[cfg(feature = "bats")]
            FlowCode::Bats(bats) => bats.source_symbols,
            _ => flow.generation_size,
        };
        let room = symbols * (flow.symbol_bytes - tag_bytes(coding)) - 2;
        for bytes in [room, room + 1, room] {
            line.send(&ip_packet(bytes, 1));
            line.pass(50);
        }
        let counters = line.nodes[0].flow().counters;
        assert_eq!(
            (counters.ingress_dropped, line.delivered().len()),
            (1, 2),
            "{}",
            coding.code.name()
        );
    }
}

/// Prints the cost of tags at a relay with half of the columns and at a sink, in an optimised
/// build.
#[test]
fn cost_of_tags_is_printed() {
    for is_tagged in [false, true] {
        let mut line = Line::new(2, 0.0, 3, |params| {
            let (code, field) = (FlowCode::Rlnc, FieldOrder::Sixteen);
            tagged(Coding { code, field, strict: false })(params);
            (params.symbol_bytes, params.tagged) = (1404, is_tagged);
        });
        line.nodes[1].keys = is_tagged.then(|| Keys::of_columns(1, 4));
        let mut nanos = [0; 3];
        let mut count = [0; 3];
        for number in 0..20_000_u32 {
            line.now += 100_000;
            let now = line.now;
            let mut packets = vec![ip_packet(1390, number)];
            for node in 0..3 {
                let mut next = Vec::new();
                for packet in packets {
                    let start = Instant::now();
                    let out = match node {
                        0 => line.nodes[node].ingress(&packet, now),
                        _ => line.nodes[node].receive(&packet, now),
                    };
                    nanos[node] += start.elapsed().as_nanos();
                    count[node] += 1;
                    next.extend(out.into_iter().filter(|(hop, _)| *hop == DOWN));
                }
                next.extend(line.nodes[node].tick(now).into_iter().filter(|(hop, _)| *hop == DOWN));
                packets = next.into_iter().map(|(_, bytes)| bytes).collect();
            }
        }
        let each = [0, 1, 2].map(|node| nanos[node] / count[node].max(1));
        println!("tagged {is_tagged}: source, relay, sink {each:?} ns per packet");
        assert_eq!(refused(sink(&line)), 0);
        assert!(line.delivered().len() > 19_900);
    }
}
