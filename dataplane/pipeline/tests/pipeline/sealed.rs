//! Sealed flows: nothing is sent unencrypted, relays recode packets that they cannot read, and
//! whatever happens to packets on the path, a sink delivers exactly the sent packets, once.

use crate::common;
use crate::common::keys::Keys;
use crate::common::{Line, Node, SHARD, UP, codes, params};
use proptest::prelude::*;
use recoded_pipeline::params::{FlowCode, FlowParams, Role, Snapshot, StreamParams, TunnelId};
use recoded_pipeline::report::FlowCounters;
use recoded_wire::header::{Flags, Header, PacketType, write_link_sequence};
use recoded_wire::stream::{STREAM_BYTES, StreamHeader, StreamSymbol, write_symbol};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Inner flows of the traffic, in turn.
const INNER_FLOWS: u32 = 4;

/// Offset of a packet's number: in the options of its header. Ports follow.
const NUMBER: usize = 20;

const TCP: u8 = 6;
const UDP: u8 = 17;

/// Parameters of a sealed flow of a code; a plan adapts to a fifth lost on each of three hops.
fn sealed(code: FlowCode) -> impl Fn(&mut FlowParams) {
    move |params| {
        *params = FlowParams { code, symbol_bytes: 620, sealed: true, ..params.clone() };
    }
}

/// An IPv4 packet of an inner flow, whose payload repeats one byte: so do the unencrypted symbols
/// that codes form from it.
fn packet(number: u32, protocol: u8) -> Vec<u8> {
    let bytes = 90 + number as usize * 37 % 500;
    let mut packet = vec![number as u8 | 1; bytes];
    packet[..NUMBER].fill(0);
    packet[0] = 0x46;
    packet[2..4].copy_from_slice(&(bytes as u16).to_be_bytes());
    packet[9] = protocol;
    packet[NUMBER..][..4].copy_from_slice(&number.to_be_bytes());
    packet[24..28].copy_from_slice(&(number % INNER_FLOWS).to_be_bytes());
    packet[36] = 0x50;
    packet
}

/// The number of a packet from [`packet`], if every byte of it is intact.
fn number_of(delivered: &[u8], protocol: u8) -> Option<u32> {
    let number = u32::from_be_bytes(delivered.get(NUMBER..)?.get(..4)?.try_into().ok()?);
    (packet(number, protocol) == delivered).then_some(number)
}

/// Sends packets, and returns the numbers of those delivered, none of them altered or twice.
fn transfer(line: &mut Line, numbers: std::ops::Range<u32>, protocol: u8) -> Vec<u32> {
    for number in numbers.clone() {
        line.send(&packet(number, protocol));
        if number % 4 == 0 {
            line.pass(1);
        }
    }
    line.pass(1500);
    delivered(line, protocol)
}

fn delivered(line: &Line, protocol: u8) -> Vec<u32> {
    let genuine = |packet: &Vec<u8>| number_of(packet, protocol).expect("a packet that was sent");
    let numbers: Vec<u32> = line.delivered().iter().map(genuine).collect();
    let different: BTreeSet<u32> = numbers.iter().copied().collect();
    assert_eq!(different.len(), numbers.len(), "a packet was delivered twice");
    numbers
}

fn sink(line: &Line) -> FlowCounters {
    line.nodes[line.nodes.len() - 1].flow().counters
}

/// Whether bytes show that one value is repeated: ciphertext does in one of 2^100 packets.
fn shows_payload(bytes: &[u8]) -> bool {
    bytes.windows(16).any(|run| run[0] != 0 && run.iter().all(|byte| *byte == run[0]))
}

/// Counts packets whose payload could be read on any link.
fn wiretap(line: &mut Line) -> Rc<RefCell<usize>> {
    let seen = Rc::new(RefCell::new(0));
    let count = Rc::clone(&seen);
    line.tamper = Some(Box::new(move |_, bytes| {
        *count.borrow_mut() += usize::from(shows_payload(&bytes));
        vec![bytes]
    }));
    seen
}

#[test]
fn packets_of_every_code_and_size_arrive_and_none_can_be_read_on_the_way() {
    for code in codes() {
        for (hops, loss) in [(1, 0.0), (3, 0.0), (3, 0.05), (3, 0.2)] {
            let mut line = Line::new(hops, loss, 11, sealed(code));
            let seen = wiretap(&mut line);
            let numbers = transfer(&mut line, 0..2000, UDP);
            let counters = sink(&line);
            let arrived = numbers.len() as f64 / 2000.0;
            println!("{}, {hops} hops, {loss}: {arrived} arrive", code.name());
            assert!(arrived >= 0.98, "{arrived}");
            assert_eq!(*seen.borrow(), 0, "{}: packets in the clear", code.name());
            let refused = counters.unseal_refused + counters.clear_refused;
            assert_eq!((refused, counters.framing_errors), (0, 0), "{}", code.name());
            assert_eq!(counters.delivered_packets, numbers.len() as u64);
            line.check();
        }
    }
}

/// Control for the test above: without sealing, the payload is readable, also in combinations.
#[test]
fn payload_of_a_flow_in_the_clear_can_be_read_on_the_way() {
    for code in codes() {
        let clear = |params: &mut FlowParams| {
            sealed(code)(params);
            params.sealed = false;
        };
        let mut line = Line::new(3, 0.05, 11, clear);
        let seen = wiretap(&mut line);
        transfer(&mut line, 0..200, UDP);
        assert!(*seen.borrow() > 200, "{}: {}", code.name(), seen.borrow());
    }
}

/// The order of a connection is taken from the packet before it is encrypted.
#[test]
fn stream_keeps_the_order_of_connections_and_of_nothing_else() {
    let is_sorted = |numbers: &[u32]| {
        let flow = |flow| numbers.iter().filter(move |number| **number % INNER_FLOWS == flow);
        (0..INNER_FLOWS).all(|it| flow(it).is_sorted())
    };
    let numbers = |protocol| {
        let stream = FlowCode::Stream(StreamParams::new(1024));
        let mut line = Line::new(3, 0.1, 5, sealed(stream));
        transfer(&mut line, 0..2000, protocol)
    };
    let (tcp, udp) = (numbers(TCP), numbers(UDP));
    assert!(tcp.len() >= 1980 && udp.len() >= 1980, "{} and {}", tcp.len(), udp.len());
    assert!(is_sorted(&tcp), "packets of a connection overtook each other");
    assert!(!is_sorted(&udp), "datagrams wait for each other");
}

/// Modification by a relay of a packet whose keys it does not have.
#[derive(Copy, Clone, Debug)]
enum Lie {
    /// Bits of the last half of the packet, which is payload.
    Payload,
    /// Bits of the part between header and symbol: vector, index or numbers.
    Vector,
    /// The last half of another packet.
    Swap,
    /// An earlier packet, repeated as if it were the next one.
    Replay,
    /// Anywhere.
    Anything,
}

const LIES: [Lie; 5] = [Lie::Payload, Lie::Vector, Lie::Swap, Lie::Replay, Lie::Anything];

/// A relay that lies once in every `TRUTHS` packets, and records some.
struct Liar {
    lie: Lie,
    turn: usize,
    seen: Vec<Vec<u8>>,
}

const TRUTHS: usize = 25;

impl Liar {
    fn tell(&mut self, mut bytes: Vec<u8>) -> Vec<Vec<u8>> {
        self.turn += 1;
        let length = bytes.len();
        let is_data = Header::parse(&bytes)
            .is_ok_and(|header| header.packet_type != PacketType::Feedback && length > 100);
        if !is_data {
            return vec![bytes];
        }
        self.seen.push(bytes.clone());
        if !self.turn.is_multiple_of(TRUTHS) {
            return vec![bytes];
        }
        let noise = self.turn.wrapping_mul(0x9E37_79B1) >> 4;
        let other = &self.seen[noise % self.seen.len()];
        let half = length / 2;
        match self.lie {
            Lie::Payload => bytes[half + noise % (length - half)] ^= 1 << (noise % 8),
            Lie::Vector => bytes[16 + noise % 12] ^= 1 << (noise % 8),
            Lie::Swap => {
                let count = half.min(other.len() / 2);
                bytes[length - count..].copy_from_slice(&other[other.len() - count..]);
            }
            Lie::Anything => bytes[12 + noise % (length - 12)] ^= 1 << (noise % 8),
            Lie::Replay => {
                let mut again = other.clone();
                let number = Header::parse(&bytes).map_or(0, |header| header.link_sequence);
                write_link_sequence(&mut again, number);
                return vec![again];
            }
        }
        vec![bytes]
    }
}

#[test]
fn relay_that_lies_has_no_wrong_byte_delivered_and_is_counted() {
    for code in codes() {
        for lie in LIES {
            let mut line = Line::new(3, 0.02, 23, sealed(code));
            let mut liar = Liar { lie, turn: 0, seen: Vec::new() };
            // The first relay, so that another one recodes its packets.
            line.tamper = Some(Box::new(move |from, bytes| match from {
                1 => liar.tell(bytes),
                _ => vec![bytes],
            }));
            let numbers = transfer(&mut line, 0..2000, UDP);
            let counters = sink(&line);
            let refused =
                counters.unseal_refused + counters.clear_refused + counters.framing_errors;
            println!("{}, {lie:?}: {} of 2000, {refused} refused", code.name(), numbers.len());
            assert!(numbers.len() > 1600, "{}, {lie:?}: {}", code.name(), numbers.len());
            let pollutes = matches!(lie, Lie::Payload | Lie::Swap);
            assert!(!pollutes || refused > 0, "{}, {lie:?}: nothing was counted", code.name());
            // Each symbol of these codes is a packet: delivered, or refused and counted.
            let decoded = match code {
                FlowCode::Stream(_) => Some(counters.source_symbols),
                _ => None,
            };
            let judged = counters.delivered_packets + refused;
            assert_eq!(decoded.unwrap_or(judged), judged, "{}, {lie:?}", code.name());
            assert_eq!(counters.unseal_no_keys + counters.sealed_refused, 0);
            line.check();
        }
    }
}

/// A sink that lost its record of deliveries, with keys that kept theirs.
#[test]
fn packets_that_were_captured_are_not_delivered_again() {
    for code in codes() {
        for is_sealed in [true, false] {
            let change = |params: &mut FlowParams| {
                sealed(code)(params);
                params.sealed = is_sealed;
            };
            let mut line = Line::new(1, 0.0, 3, change);
            let captured = Rc::new(RefCell::new(Vec::new()));
            let copies = Rc::clone(&captured);
            line.tamper = Some(Box::new(move |_, bytes| {
                copies.borrow_mut().push(bytes.clone());
                vec![bytes]
            }));
            transfer(&mut line, 0..200, UDP);
            let mut params = params(Role::Sink { tunnel: TunnelId(0), upstream: UP });
            change(&mut params);
            let mut restarted = Node::new(params, 99);
            restarted.keys = line.nodes[1].keys.take();
            for (number, bytes) in captured.borrow().iter().enumerate() {
                let mut bytes = bytes.clone();
                write_link_sequence(&mut bytes, number as u32);
                restarted.receive(&bytes, line.now + number as u64 * 1000);
                restarted.tick(line.now + number as u64 * 1000);
            }
            restarted.tick(line.now + 1_000_000_000);
            let counters = restarted.flow().counters;
            let again = restarted.delivered.len();
            println!("{}, sealed {is_sealed}: {again} again", code.name());
            match is_sealed {
                true => assert!(again == 0 && counters.unseal_refused > 150, "{counters:?}"),
                false => assert!(again > 150, "what is in the clear is delivered again: {again}"),
            }
        }
    }
}

#[test]
fn source_without_keys_sends_nothing() {
    for code in codes() {
        let mut line = Line::new(1, 0.0, 3, sealed(code));
        line.nodes[0].keys = None;
        let sent = Rc::new(RefCell::new(0));
        let count = Rc::clone(&sent);
        line.tamper = Some(Box::new(move |_, bytes| {
            *count.borrow_mut() += 1;
            vec![bytes]
        }));
        assert!(transfer(&mut line, 0..100, UDP).is_empty());
        let counters = line.nodes[0].flow().counters;
        assert_eq!((*sent.borrow(), counters.seal_failed), (0, 100), "{}", code.name());
        assert_eq!(counters.ingress_dropped, 0);
        // As soon as there are keys, packets are sent.
        line.nodes[0].keys = Some(Keys::new(1));
        assert!(transfer(&mut line, 100..200, UDP).len() >= 95, "{}", code.name());
    }
}

/// Each end refuses packets that the other should not have sent, and reports why.
#[test]
fn ends_that_differ_deliver_nothing() {
    let without = |line: &mut Line| line.nodes[1].keys = None;
    let others = |line: &mut Line| line.nodes[1].keys = Some(Keys::new(2));
    let leave = |_: &mut Line| ();
    type Edit = fn(&mut Line);
    type Count = fn(&FlowCounters) -> u64;
    let cases: [(bool, bool, Edit, Count); 4] = [
        (true, true, without, |it| it.unseal_no_keys),
        (true, true, others, |it| it.unseal_refused),
        (true, false, leave, |it| it.sealed_refused),
        (false, true, leave, |it| it.clear_refused),
    ];
    for code in codes() {
        for (case, (source, sink, edit, count)) in cases.into_iter().enumerate() {
            let mut line = Line::new(1, 0.0, 3, |params| {
                sealed(code)(params);
                let is_source = matches!(params.role, Role::Source { .. });
                params.sealed = if is_source { source } else { sink };
            });
            edit(&mut line);
            assert!(transfer(&mut line, 0..200, UDP).is_empty(), "{}, case {case}", code.name());
            let counters = self::sink(&line);
            let counted = count(&counters);
            assert!(counted >= 190, "{}, case {case}: {counters:?}", code.name());
        }
    }
}

/// After sealing is turned on, packets that a table still holds must not be sent unencrypted.
#[test]
fn flow_that_begins_to_be_sealed_sends_nothing_more_in_the_clear() {
    for code in codes() {
        let clear = |params: &mut FlowParams| {
            sealed(code)(params);
            params.sealed = false;
        };
        let mut line = Line::new(2, 0.05, 9, clear);
        transfer(&mut line, 0..200, UDP);
        // Some of these are still held.
        (200..203).for_each(|number| line.send(&packet(number, UDP)));
        let before = line.delivered().len();
        for node in [2, 0] {
            let mut params = params(match node {
                0 => Role::Source { tunnel: TunnelId(0) },
                _ => Role::Sink { tunnel: TunnelId(0), upstream: UP },
            });
            sealed(code)(&mut params);
            line.nodes[node].keys = Some(Keys::new(1));
            let snapshot = Snapshot { edition: 2, flows: vec![params] };
            let out = line.nodes[node].apply(&snapshot, line.now);
            assert!(!out.iter().any(|(_, bytes)| shows_payload(bytes)), "{}", code.name());
        }
        // The relay may still repair earlier packets.
        let seen = Rc::new(RefCell::new(0));
        let count = Rc::clone(&seen);
        line.tamper = Some(Box::new(move |from, bytes| {
            *count.borrow_mut() += usize::from(from == 0 && shows_payload(&bytes));
            vec![bytes]
        }));
        let numbers = transfer(&mut line, 1000..2000, UDP);
        assert_eq!(*seen.borrow(), 0, "{}: packets in the clear", code.name());
        assert!(numbers.len() - before > 700, "{}: {}", code.name(), numbers.len() - before);
        line.check();
    }
}

/// The longest packet that fits arrives; a longer one costs no encryption, and no number.
#[test]
fn packets_that_do_not_fit_are_refused_before_they_are_encrypted() {
    for code in codes() {
        let mut line = Line::new(1, 0.0, 3, sealed(code));
        let mut flow = params(Role::Source { tunnel: TunnelId(0) });
        sealed(code)(&mut flow);
        let symbols = match code {
            FlowCode::Rlnc => flow.generation_size,
            #[cfg(feature = "bats")]
            FlowCode::Bats(bats) => bats.source_symbols,
            _ => 1,
        };
        let room = symbols * flow.symbol_bytes - flow.framing_bytes();
        for (bytes, fits) in [(room, true), (room + 1, false), (room, true)] {
            line.send(&common::ip_packet(bytes, 1));
            line.pass(50);
            let counters = line.nodes[0].flow().counters;
            assert_eq!(counters.ingress_dropped > 0, !fits || counters.ingress_packets == 3);
        }
        let sealed = line.nodes[0].keys.as_ref().map(|keys| keys.sealed);
        assert_eq!((line.delivered().len(), sealed), (2, Some(2)), "{}", code.name());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Arbitrary symbols, marked as sealed, as an IP packet or not at all.
    //= docs/protocol §2.12(b)
    #[test]
    fn forged_symbols_of_any_bytes_are_refused_and_counted(
        symbols in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..200), 1..40),
        first in prop::sample::select(vec![0u8, 0x45, 0x60, 7]),
    ) {
        let mut params = params(Role::Sink { tunnel: TunnelId(0), upstream: UP });
        sealed(FlowCode::Stream(StreamParams::new(64)))(&mut params);
        let mut sink = Node::new(params, 1);
        for (number, packet) in symbols.iter().enumerate() {
            let mut packet = packet.clone();
            let length = (packet.len() as u16).to_be_bytes();
            packet[0] = first;
            // A sink finds every checked field of the IPv4 packet valid.
            packet.iter_mut().skip(2).zip(length).for_each(|(byte, right)| *byte = right);
            let common = common::header(PacketType::Stream, Flags::SYSTEMATIC, number as u32);
            let header = StreamHeader { common, window_log2: 6, round_trips: 0 };
            let mut payload = vec![0; STREAM_BYTES];
            header.write(&mut payload);
            let (number, bytes) = (number as u32, packet.len() as u16);
            let symbol = StreamSymbol { number, after: 0, place: number as u16, bytes };
            write_symbol(&symbol, &mut payload);
            sink.receive(&[payload, packet].concat(), u64::from(number) * 1000);
        }
        let counters = sink.flow().counters;
        prop_assert!(sink.delivered.is_empty());
        let refused = counters.unseal_refused + counters.clear_refused + counters.framing_errors;
        prop_assert_eq!(refused, counters.source_symbols);
        prop_assert_eq!(refused, symbols.len() as u64);
    }
}

/// Shards have keys of their own.
#[test]
fn shards_are_sealed_each_by_itself() {
    let mut line = Line::new(2, 0.02, 3, |params| {
        sealed(FlowCode::Stream(StreamParams::new(1024)))(params);
        params.shards = 3;
    });
    for number in 0..900 {
        let shard = recoded_pipeline::params::ShardId { shard: (number % 3) as u8, ..SHARD };
        let now = line.now;
        let packet = packet(number, UDP);
        let out = line.nodes[0].run(|pipeline, frames, outputs| {
            pipeline.ingress(frames, outputs, shard, &packet, now);
        });
        line.carry(0, out);
        line.pass(u64::from(number % 4 == 0));
    }
    line.pass(1500);
    let mut of_shards: BTreeMap<u32, usize> = BTreeMap::new();
    delivered(&line, UDP).iter().for_each(|number| *of_shards.entry(number % 3).or_default() += 1);
    assert!(of_shards.values().all(|count| *count >= 295), "{of_shards:?}");
}
