//! Tags of the symbols of streams: symbols that a relay changed are refused by the next node with
//! keys, whether received or solved from combinations, and the flow continues.

use crate::common;
use crate::common::keys::Keys;
use crate::common::{DOWN, Line, Node, UP, ip_packet, params};
use recoded_gf::FieldOrder;
use recoded_pipeline::egress::{STRICT_TAG_BYTES, Space, TAG_BYTES, UnitKind};
use recoded_pipeline::params::{FlowCode, FlowParams, Role, StreamParams, TunnelId};
use recoded_pipeline::report::DropReason;
use recoded_secure::{Masks, Secrets, Strength, TagKey};
use recoded_wire::stream::{STREAM_BYTES, parse_stream};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;

/// Bytes of a packet of the traffic.
const BYTES: usize = 150;

/// Packets of a transfer.
const COUNT: u32 = 1000;

fn tagged(params: &mut FlowParams) {
    params.code = FlowCode::Stream(StreamParams::new(1024));
    params.field = FieldOrder::TwoFiftySix;
    params.tagged = true;
}

/// The same with tags of sixteen bytes.
fn strict(params: &mut FlowParams) {
    tagged(params);
    params.strict = true;
}

/// Tags of one length.
#[derive(Copy, Clone)]
struct TagLength {
    /// Changes parameters to those of a flow with such tags.
    edit: fn(&mut FlowParams),
    tag_bytes: usize,
}

const STANDARD: TagLength = TagLength { edit: tagged, tag_bytes: TAG_BYTES };
const STRICT: TagLength = TagLength { edit: strict, tag_bytes: STRICT_TAG_BYTES };
const LENGTHS: [TagLength; 2] = [STANDARD, STRICT];

/// Keys of a relay of a flow with tags of `tag_bytes`.
fn of_relay(tag_bytes: usize, columns: usize) -> Keys {
    let keys = Keys::of_columns(1, columns);
    if tag_bytes == STRICT_TAG_BYTES { keys.strict() } else { keys }
}

/// Sends packets, and returns how many of them were delivered, none altered or twice.
fn transfer(line: &mut Line, numbers: std::ops::Range<u32>) -> usize {
    let before = line.delivered().len();
    for number in numbers {
        line.send(&ip_packet(BYTES, number));
        line.pass(u64::from(number % 4 == 0));
    }
    line.pass(3000);
    let number = |packet: &Vec<u8>| {
        let number = u32::from_be_bytes(packet[20..24].try_into().unwrap());
        assert_eq!(*packet, ip_packet(BYTES, number), "packet {number} was altered");
        number
    };
    let delivered: Vec<u32> = line.delivered()[before..].iter().map(number).collect();
    let different: BTreeSet<_> = delivered.iter().collect();
    assert_eq!(different.len(), delivered.len(), "a packet was delivered twice");
    delivered.len()
}

fn refused(node: &Node) -> u64 {
    node.flow().counters.tag_refused
}

#[test]
fn what_honest_relays_send_and_combine_verifies() {
    LENGTHS.into_iter().for_each(what_honest_relays_do_verifies);
}

fn what_honest_relays_do_verifies(length: TagLength) {
    let TagLength { edit, tag_bytes } = length;
    let mut line = Line::new(4, 0.1, 5, edit);
    // One of the relays is blind, and two hold some of the columns.
    line.nodes[2].keys = Some(of_relay(tag_bytes, 4));
    line.nodes[3].keys = Some(of_relay(tag_bytes, 1));
    assert_eq!(transfer(&mut line, 0..COUNT), COUNT as usize);
    assert!(line.nodes.iter().all(|node| refused(node) == 0));
    let verified = |node: usize| line.nodes[node].flow().counters.tag_verified;
    assert!(verified(2) >= 800 && verified(3) >= 800 && verified(4) >= 800);
    assert_eq!(verified(1), 0, "it has no keys");
    let came_back: u64 = line.nodes[2..]
        .iter()
        .map(|node| node.flow().counters.innovative - verified_of(node))
        .sum();
    println!("{came_back} combinations brought something");
    assert!(came_back > 0, "nothing came back out of combinations");
    line.check();
}

fn verified_of(node: &Node) -> u64 {
    node.flow().counters.tag_verified.min(node.flow().counters.innovative)
}

/// The packets of a source of four IP packets.
fn packets(edit: fn(&mut FlowParams)) -> Vec<Vec<u8>> {
    let mut params = params(Role::Source { tunnel: TunnelId(0) });
    edit(&mut params);
    let mut source = Node::new(params, 3);
    let mut packets = Vec::new();
    for number in 0..4 {
        packets.extend(source.ingress(&ip_packet(BYTES, number), 1000));
    }
    packets.into_iter().filter(|(hop, _)| *hop == DOWN).map(|(_, bytes)| bytes).collect()
}

/// Whether tags cover a bit of a symbol: those of its hop, its epoch, its window and flags are not
/// covered, except for the flag that marks it as a symbol.
fn is_bound(at: usize, _bit: u8) -> bool {
    // Type and version, flow and shard, number and predecessor; not the place on the hop.
    matches!(at, 0 | 3..8 | 16..22 | STREAM_BYTES..)
}

#[test]
fn every_bit_that_tags_cover_is_refused_when_it_is_changed() {
    LENGTHS.into_iter().for_each(every_bit_that_tags_cover_is_refused);
}

fn every_bit_that_tags_cover_is_refused(length: TagLength) {
    let TagLength { edit, tag_bytes } = length;
    let packets = packets(edit);
    let is_symbol =
        |bytes: &&Vec<u8>| matches!(parse_stream(bytes), Ok(packet) if packet.symbol().is_some());
    let symbols: Vec<_> = packets.iter().filter(is_symbol).collect();
    let mut params = params(Role::Sink { tunnel: TunnelId(0), upstream: UP });
    edit(&mut params);
    let mut sink = Node::new(params, 7);
    let (mut swept, mut now) = (0, 1000);
    for (at, bit) in (0..symbols[0].len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
        if !is_bound(at, bit) {
            continue;
        }
        let mut changed = symbols[0].clone();
        changed[at] ^= 1 << bit;
        now += 1000;
        sink.receive_next(&changed, now);
        swept += 1;
        let dropped: u64 = sink.packets().dropped.iter().sum();
        assert_eq!(dropped, swept, "byte {at}, bit {bit}");
    }
    for bytes in [symbols[0].len() - 1, STREAM_BYTES + tag_bytes, STREAM_BYTES + 1] {
        now += 1000;
        sink.receive_next(&symbols[0][..bytes], now);
        swept += 1;
        assert_eq!(sink.packets().dropped.iter().sum::<u64>(), swept, "cut to {bytes} bytes");
    }
    assert!(swept > 1300, "{swept}");
    assert_eq!(sink.pipeline.report().flows.len(), 0, "a forged packet opened a shard");
    for packet in symbols {
        now += 1000;
        sink.receive_next(packet, now);
    }
    assert_eq!(sink.delivered.len(), 4);
}

/// A change by a relay that has the keys of its hops.
#[derive(Copy, Clone, PartialEq, Debug)]
enum Lie {
    Tag,
    Payload,
    Number,
    Predecessor,
    Place,
    Zero,
    Swap,
    Cut,
}

const LIES: [Lie; 8] = [
    Lie::Tag,
    Lie::Payload,
    Lie::Number,
    Lie::Predecessor,
    Lie::Place,
    Lie::Zero,
    Lie::Swap,
    Lie::Cut,
];

impl Lie {
    /// Applies it; false if the packet has no such part.
    fn tell(self, bytes: &mut Vec<u8>, before: &[u8]) -> bool {
        if parse_stream(bytes).expect("a packet").symbol().is_none() {
            return false;
        }
        match self {
            Lie::Tag => *bytes.last_mut().expect("a tag") ^= 0x40,
            Lie::Payload => bytes[STREAM_BYTES + 50] ^= 1,
            Lie::Number => bytes[19] ^= 1,
            Lie::Predecessor => bytes[21] ^= 1,
            Lie::Place => bytes[23] ^= 1,
            Lie::Zero => bytes[STREAM_BYTES..].fill(0),
            Lie::Swap if before.is_empty() => return false,
            Lie::Swap => bytes[STREAM_BYTES..].copy_from_slice(&before[STREAM_BYTES..]),
            Lie::Cut => bytes.truncate(bytes.len() - 1),
        }
        true
    }
}

/// One symbol in this many.
const TRUTHS: usize = 10;

/// Makes the first relay of a line lie occasionally. Returns the number of lies.
fn lie(line: &mut Line, lie: Lie) -> Rc<Cell<u64>> {
    let told = Rc::new(Cell::new(0));
    let count = told.clone();
    let (mut turn, mut last) = (0, Vec::new());
    line.tamper = Some(Box::new(move |from, mut bytes| {
        if from != 1 {
            return vec![bytes];
        }
        let original = bytes.clone();
        if lie.tell(&mut bytes, &last) {
            turn += 1;
            if turn % TRUTHS == 0 {
                count.set(count.get() + 1);
                return vec![bytes];
            }
        }
        if parse_stream(&original).is_ok_and(|packet| packet.symbol().is_some()) {
            last.clone_from(&original);
        }
        vec![original]
    }));
    told
}

#[test]
fn relay_with_some_columns_drops_every_lie_and_the_flow_goes_on() {
    let cases = LENGTHS.iter().flat_map(|length| LIES.map(|kind| (*length, kind)));
    for (TagLength { edit, tag_bytes }, kind) in cases {
        let mut line = Line::new(3, 0.1, 23, edit);
        line.nodes[2].keys = Some(of_relay(tag_bytes, 4));
        let told = lie(&mut line, kind);
        let arrived = transfer(&mut line, 0..COUNT);
        let (caught, later) = (refused(&line.nodes[2]), refused(&line.nodes[3]));
        println!("{kind:?}: {arrived} of {COUNT}, {} told, {caught} refused", told.get());
        assert!(told.get() > 20, "{kind:?}");
        assert_eq!(later, 0, "{kind:?}: a lie was passed on");
        // Refused symbols are requested end to end, and may meet the liar again.
        assert!(arrived >= 990, "{kind:?}: {arrived}");
        // A place only identifies the combined symbols.
        assert!(caught > 0 || kind == Lie::Place, "{kind:?}: nothing was refused");
        if kind != Lie::Place {
            let dropped = line.nodes[2].packets().dropped[DropReason::WrongSymbolTag as usize];
            assert!(dropped <= told.get() && dropped * 5 >= told.get() * 4, "{dropped}");
        }
        line.check();
    }
}

#[test]
fn sink_drops_what_blind_relays_pass_on_and_the_rest_arrives() {
    for kind in LIES {
        let mut line = Line::new(3, 0.1, 29, tagged);
        let told = lie(&mut line, kind);
        let arrived = transfer(&mut line, 0..COUNT);
        let caught = refused(&line.nodes[3]);
        println!("{kind:?}: {arrived} of {COUNT}, {} told, {caught} refused", told.get());
        assert!(told.get() > 20, "{kind:?}");
        assert!(arrived >= 700, "{kind:?}: {arrived}");
        assert!(caught > 0 || kind == Lie::Place, "{kind:?}: nothing was refused");
        // Each lie costs a few packets: refused symbols are not requested endlessly.
        assert!(caught <= 20 * told.get(), "{kind:?}: {caught} for {}", told.get());
        line.check();
    }
}

/// The source changes to a new key in the middle of the traffic; the sink has both.
#[test]
fn change_of_keys_loses_nothing() {
    let mut line = Line::new(2, 0.1, 11, tagged);
    for round in 0..4 {
        line.nodes[2].keys.as_mut().unwrap().renew();
        line.send(&ip_packet(BYTES, round * 200));
        line.nodes[0].keys.as_mut().unwrap().renew();
        let arrived = transfer(&mut line, round * 200 + 1..(round + 1) * 200);
        assert!(arrived >= 199, "{arrived}");
    }
    assert_eq!(line.delivered().len(), 800);
    assert_eq!(refused(&line.nodes[2]), 0);
    assert_eq!(line.nodes[0].flow().counters.tag_failed, 0);
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
    for (is_tagged, edit, reason) in cases {
        let mut line = Line::new(2, 0.0, 3, |params| {
            tagged(params);
            params.tagged = is_tagged || matches!(params.role, Role::Sink { .. });
        });
        edit(&mut line);
        assert_eq!(transfer(&mut line, 0..100), 0);
        let dropped = line.nodes[2].packets().dropped[reason as usize];
        assert!(dropped >= 100, "{reason:?}: {dropped}");
        line.check();
    }
}

/// The longest packet that fits a symbol arrives; one a byte longer does not enter.
#[test]
fn tags_take_their_bytes_of_every_symbol() {
    for TagLength { edit, tag_bytes } in LENGTHS {
        let mut line = Line::new(1, 0.0, 3, edit);
        let room = line.nodes[0].flow().symbol_bytes - tag_bytes;
        for bytes in [room, room + 1, room] {
            line.send(&ip_packet(bytes, 1));
            line.pass(50);
        }
        let counters = line.nodes[0].flow().counters;
        assert_eq!((counters.ingress_dropped, line.delivered().len()), (1, 2));
    }
}

/// A source without tag keys sends nothing; with keys, symbols are accepted.
#[test]
fn source_without_keys_is_counted_and_refused() {
    let mut line = Line::new(1, 0.0, 3, |params| {
        tagged(params);
        params.sealed = false;
    });
    line.nodes[0].keys = None;
    assert_eq!(transfer(&mut line, 0..100), 0);
    let counters = line.nodes[0].flow().counters;
    assert_eq!((counters.seal_failed, counters.source_symbols), (100, 0));
    line.nodes[0].keys = Some(Keys::new(1));
    assert_eq!(transfer(&mut line, 100..200), 100);
}

/// The tag of a packet of a source, by the construction in `docs/internals/tags.md` and without the
/// pipeline: as published in `tests/vectors`, where plain Python recomputes it.
#[test]
fn tag_is_that_of_number_predecessor_and_length() {
    for (length, strength) in [(STANDARD, Strength::Standard), (STRICT, Strength::Strict)] {
        tag_is_that_of_a_symbol(&packets(length.edit), strength);
    }
}

fn tag_is_that_of_a_symbol(packets: &[Vec<u8>], strength: Strength) {
    let tag_bytes = strength.columns();
    let seeds = Secrets::extract(&[0], &[1; 32]).column_seeds(strength);
    let key = TagKey::new(strength, &seeds, 2048).expect("a key");
    let space = Space { flow: common::FLOW, shard: 0, kind: UnitKind::Stream };
    for packet in packets {
        let Ok(Some(symbol)) = parse_stream(packet).map(|packet| packet.symbol()) else {
            continue;
        };
        let bytes = packet.len() - tag_bytes;
        let (payload, tag) = packet[STREAM_BYTES..].split_at(bytes - STREAM_BYTES);
        assert_eq!(usize::from(symbol.bytes), tag_bytes + payload.len());
        let context = [
            &symbol.number.to_be_bytes()[..],
            &symbol.after.to_be_bytes(),
            &symbol.bytes.to_be_bytes(),
            &[0; 8],
        ];
        let mut masks = Masks::new(&key, 1);
        masks.fill_stream(&key, space, symbol.number.into(), 1).expect("room");
        let mut expected = vec![0; tag_bytes];
        key.tag(&masks, 0, &context.concat(), payload, &mut expected).expect("a tag");
        assert_eq!(tag, expected);
    }
}
