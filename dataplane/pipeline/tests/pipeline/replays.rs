//! A relay with keys on one of two paths replays, delays and reorders symbols whose tags are valid,
//! in virtual time. The other path loses nothing: what it brings must arrive.

use crate::timed::{Line, Link, Load, MILLI, SECOND};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use recoded_pipeline::params::{FlowCode, FlowParams, Spread, StreamParams};
use recoded_wire::header::{Header, PacketType};
use recoded_wire::stream::{COMBINATION_BYTES, STREAM_BYTES, parse_stream};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

/// The relay that lies, and the sink.
const LIAR: usize = 1;
const SINK: usize = 3;

/// Packets that are counted.
const PACKETS: usize = 10_000;

/// What the liar sends in place of each symbol that it forwards.
#[derive(Copy, Clone, PartialEq, Debug)]
enum Trick {
    /// The symbols from the first on.
    Replay,
    /// The symbol of some time ago.
    Delay,
    /// Any of all symbols so far.
    Shuffle,
    /// The newest symbol after long runs of old ones.
    Alternate,
}

const TRICKS: [Trick; 4] = [Trick::Replay, Trick::Delay, Trick::Shuffle, Trick::Alternate];

/// Symbols that the liar delays them by: more than any window here.
const DELAY: usize = 11_000;

struct Liar {
    trick: Trick,
    is_active: bool,
    random: ChaCha8Rng,
    recorded: Vec<Vec<u8>>,
    replayed: usize,
    /// Its next link sequence number and place.
    number: u32,
    place: u16,
}

impl Liar {
    /// Writes the next packet of the liar in place of the one that an honest relay sends.
    fn tell(&mut self, bytes: &mut Vec<u8>) {
        let header = Header::parse(bytes).expect("a packet");
        if self.number == 0 {
            self.number = header.link_sequence;
        }
        let is_symbol = match header.packet_type {
            PacketType::Stream => parse_stream(bytes).is_ok_and(|it| it.symbol().is_some()),
            PacketType::Generation => true,
            #[cfg(feature = "bats")]
            PacketType::Bats => true,
            _ => return,
        };
        if is_symbol {
            self.recorded.push(bytes.clone());
            if self.is_active {
                *bytes = self.next();
            }
        }
        self.stamp(bytes);
    }

    /// The packet that it sends next.
    fn next(&mut self) -> Vec<u8> {
        let newest = self.recorded.len() - 1;
        self.replayed += 1;
        let at = match self.trick {
            Trick::Replay => (self.replayed - 1) % (newest + 1),
            Trick::Delay => newest.saturating_sub(DELAY),
            Trick::Shuffle => self.random.next_u32() as usize % (newest + 1),
            Trick::Alternate if self.replayed.is_multiple_of(100) => newest,
            Trick::Alternate => self.replayed % (newest / 4 + 1),
        };
        self.recorded[at].clone()
    }

    /// Counters of a hop are its own.
    fn stamp(&mut self, bytes: &mut [u8]) {
        bytes[8..12].copy_from_slice(&self.number.to_be_bytes());
        self.number = self.number.wrapping_add(1);
        let is_symbol = parse_stream(bytes).is_ok_and(|packet| packet.symbol().is_some());
        if is_symbol {
            bytes[STREAM_BYTES - 2..STREAM_BYTES].copy_from_slice(&self.place.to_be_bytes());
            self.place = self.place.wrapping_add(1);
        }
    }
}

fn codes() -> Vec<FlowCode> {
    vec![
        FlowCode::Stream(StreamParams::new(4096)),
        FlowCode::Stream(StreamParams::new(32_768)),
        FlowCode::Rlnc,
        #[cfg(feature = "bats")]
        crate::common::bats(40),
    ]
}

/// Two paths of two links, the same for all packets; the relays of both and the sink have keys.
fn line(code: FlowCode, trick: Trick, seed: u64) -> (Line, Rc<RefCell<Liar>>) {
    let change = |params: &mut FlowParams| {
        (params.code, params.spread) = (code, Spread::Every);
        (params.tagged, params.wrong_tags_max) = (true, 20);
        params.symbol_bytes = if matches!(code, FlowCode::Stream(_)) { 1430 } else { 330 };
    };
    let load = Load { bytes: 200, rate: Some(4000.0), ordered: false };
    let paths = [&[Link::new(0.0, 1); 2][..], &[Link::new(0.0, 5); 2][..]];
    let mut line = Line::paths(&paths, load, seed, change);
    let random = ChaCha8Rng::seed_from_u64(seed);
    let (recorded, is_active, place) = (Vec::new(), false, 0);
    let liar = Liar { trick, is_active, random, recorded, replayed: 0, number: 0, place };
    let liar = Rc::new(RefCell::new(liar));
    let tells = liar.clone();
    line.tamper = Some(Box::new(move |from, bytes| {
        if from == LIAR && bytes.len() > COMBINATION_BYTES {
            tells.borrow_mut().tell(bytes);
        }
    }));
    (line, liar)
}

/// The liar sends packets of its own for a while, one each millisecond, after three at once.
fn flood(line: &mut Line, liar: &RefCell<Liar>, millis: usize) {
    for step in 0..millis {
        for _ in 0..if step == 0 { 3 } else { 1 } {
            let mut packet = liar.borrow_mut().next();
            liar.borrow_mut().stamp(&mut packet);
            line.inject(SINK, &packet);
        }
        line.run(MILLI);
    }
}

/// Lets the counted packets enter; returns how many of them arrived.
fn count(line: &mut Line) -> usize {
    let first = line.entered();
    line.resume();
    while line.entered() < first + PACKETS {
        line.run(10 * MILLI);
    }
    line.stop(3 * SECOND);
    let numbers = line.delivered.iter().map(|packet| packet.number as usize);
    let arrived = numbers.filter(|number| (first..first + PACKETS).contains(number));
    arrived.collect::<BTreeSet<_>>().len()
}

/// Every code, every trick: the liar records, waits for a pause, and sends old symbols afterwards.
#[test]
fn old_symbols_with_valid_tags_never_move_a_window_back() {
    let (mut seed, mut lost) = (700, Vec::new());
    for code in codes() {
        for trick in TRICKS {
            seed += 1;
            let (mut line, liar) = line(code, trick, seed);
            line.run(5 * SECOND);
            line.stop(20 * MILLI);
            liar.borrow_mut().is_active = true;
            flood(&mut line, &liar, 2500);
            let arrived = count(&mut line);
            println!("{}, {trick:?}: {arrived} of {PACKETS}", code.name());
            if arrived * 1000 < PACKETS * 999 {
                lost.push((code.name(), trick, arrived));
            }
        }
    }
    assert!(lost.is_empty(), "{lost:?}");
}

/// The source restarts, and its keys are new. Or the worker of the sink restarts, which keeps the
/// keys, and hears the liar first.
#[test]
fn restarts_are_followed_at_once_whatever_is_replayed() {
    let mut seed = 740;
    for code in codes() {
        for node in [0, SINK] {
            seed += 1;
            let (mut line, liar) = line(code, Trick::Replay, seed);
            line.run(5 * SECOND);
            line.stop(20 * MILLI);
            liar.borrow_mut().is_active = true;
            if node == 0 {
                line.renew_tags();
            }
            line.restart(node);
            flood(&mut line, &liar, 20);
            let arrived = count(&mut line);
            println!("{}, node {node}: {arrived} of {PACKETS}", code.name());
            assert!(arrived * 1000 >= PACKETS * 999, "{}, {node}: {arrived}", code.name());
        }
    }
}

/// Keys that change in the middle of the traffic cost nothing.
#[test]
fn keys_change_without_a_packet_lost_whatever_is_replayed() {
    for (code, seed) in codes().into_iter().zip(760..) {
        let (mut line, liar) = line(code, Trick::Shuffle, seed);
        line.run(2 * SECOND);
        liar.borrow_mut().is_active = true;
        for _ in 0..5 {
            line.run(500 * MILLI);
            line.renew_tags();
        }
        line.stop(3 * SECOND);
        let numbers = line.delivered.iter().map(|packet| packet.number);
        let arrived = numbers.collect::<BTreeSet<_>>().len();
        println!("{}: {arrived} of {}", code.name(), line.entered());
        assert!(arrived * 1000 >= line.entered() * 999, "{}: {arrived}", code.name());
    }
}

/// A change of the configuration makes another source, under the same keys: nodes follow it.
//= docs/protocol §4.5(e)
#[test]
fn source_that_a_change_makes_anew_is_followed_under_the_same_keys() {
    for (code, seed) in codes().into_iter().zip(780..) {
        let (mut line, liar) = line(code, Trick::Replay, seed);
        line.run(SECOND);
        liar.borrow_mut().is_active = true;
        for round in 0..6 {
            line.change_source(|params| params.generations = 24 + round);
            line.run(500 * MILLI);
            let first = line.entered();
            line.run(SECOND);
            let all = first..line.entered() - 200;
            let numbers = line.delivered.iter().map(|packet| packet.number as usize);
            let arrived = numbers.filter(|number| all.contains(number)).collect::<BTreeSet<_>>();
            let case = format!("{}, round {round}: {} of {all:?}", code.name(), arrived.len());
            println!("{case}");
            assert!(arrived.len() * 1000 >= all.len() * 999, "{case}");
        }
    }
}
