//! Relays that lie, in virtual time: symbols of combinations that they spoil, their effect on one
//! of several paths, and the handling of a neighbour that sends too many spoiled symbols.

use crate::timed::{Line, Link, Load, SECOND};
use recoded_pipeline::params::{Role, Spread};
use recoded_pipeline::report::{DropReason, FlowCounters};
use recoded_wire::stream::{COMBINATION_BYTES, STREAM_BYTES, StreamBody, parse_stream};
use std::cell::Cell;
use std::rc::Rc;

/// Bytes of a combination that a relay changes.
const LIES_OF_SUMS: [(&str, usize); 6] = [
    ("payload", COMBINATION_BYTES + 300),
    ("tag", COMBINATION_BYTES + 8 + 27 + 1000 + 6),
    ("number", COMBINATION_BYTES + 3),
    ("length", COMBINATION_BYTES + 7),
    ("key", 23),
    ("places", 19),
];

/// Four hops of 10 % and 10 ms. A third of the losses is recovered from combinations; the first
/// relay spoils half of the combinations. The relays behind it all have keys or none.
#[test]
fn spoiled_combinations_give_nothing_and_what_they_were_for_is_sent_again() {
    let load = Load { bytes: 1000, rate: Some(2000.0), ordered: false };
    for has_keys in [false, true] {
        for (name, at) in LIES_OF_SUMS {
            let links = [Link::new(0.1, 10); 4];
            let mut line = Line::with(&links, load, 31, |params| {
                let is_relay = matches!(params.role, Role::Relay { .. });
                (params.sealed, params.tagged) = (true, has_keys || !is_relay);
            });
            let told = Rc::new(Cell::new(0));
            let (count, mut turn) = (told.clone(), 0);
            line.tamper = Some(Box::new(move |from, bytes| {
                let body = parse_stream(bytes).map(|packet| packet.body);
                if from == 1 && matches!(body, Ok(StreamBody::Combination(_))) {
                    turn += 1;
                    bytes[at] ^= (turn % 2) as u8;
                    count.set(count.get() + turn % 2);
                }
            }));
            line.run(4 * SECOND);
            line.load.rate = Some(1e-3);
            line.run(2 * SECOND);
            let (entered, arrived) = (line.entered(), line.delivered.len());
            let refused = [2, 3, 4].map(|node| line.flow(node).counters.tag_refused);
            let counters = line.flow(4).counters;
            println!("{name}, keys {has_keys}: {arrived} of {entered}, {told:?} told, {refused:?}");
            assert!(told.get() > 100, "{told:?}");
            // Solutions of spoiled combinations rarely have a valid symbol length.
            let is_symbol = at > COMBINATION_BYTES;
            assert!(!is_symbol || refused[if has_keys { 0 } else { 2 }] > 10, "{refused:?}");
            // Symbols with valid tags always open.
            assert_eq!((counters.unseal_refused, counters.framing_errors), (0, 0));
            let least = match (has_keys, name) {
                (true, _) => entered,
                // Blind relays make room for numbers that were never sent.
                (false, "places") => 1,
                (false, _) => entered * 9 / 10,
            };
            assert!(arrived >= least && arrived <= entered, "{arrived} of {entered}");
            if has_keys {
                assert_eq!(refused[1..], [0, 0], "a lie was passed on");
            }
        }
    }
}

/// Two paths of two hops; the relay of one spoils every fourth symbol. Only the sink has keys.
#[test]
fn relay_that_lies_on_one_of_two_paths_spoils_its_own_symbols_alone() {
    let load = Load { bytes: 1000, rate: Some(2000.0), ordered: false };
    let [one, other] = [[Link::new(0.02, 5); 2]; 2];
    let mut line = Line::paths(&[&one, &other], load, 37, |params| {
        let is_relay = matches!(params.role, Role::Relay { .. });
        (params.sealed, params.tagged, params.spread) = (true, !is_relay, Spread::Every);
    });
    let mut turn = 0;
    line.tamper = Some(Box::new(move |from, bytes| {
        if from == 1 && parse_stream(bytes).is_ok_and(|packet| packet.symbol().is_some()) {
            turn += 1;
            bytes[STREAM_BYTES + 100] ^= u8::from(turn % 4 == 0);
        }
    }));
    line.run(4 * SECOND);
    line.load.rate = Some(1e-3);
    line.run(2 * SECOND);
    let (entered, arrived) = (line.entered(), line.delivered.len());
    let FlowCounters { tag_refused, unseal_refused, .. } = line.flow(3).counters;
    println!("{arrived} of {entered}, {tag_refused} refused");
    assert!(tag_refused > 1000, "{tag_refused}");
    assert_eq!((arrived, unseal_refused), (entered, 0));
}

/// The shorter of two paths has all the load; its relay begins to lie after 8 s. The sink ignores
/// it for 10 s, while the other path carries the flow, and then tries it again.
#[test]
fn neighbour_with_many_wrong_tags_is_not_heard_while_another_path_brings_the_flow() {
    let load = Load { bytes: 1000, rate: Some(1000.0), ordered: false };
    let [one, other] = [5, 15].map(|millis| [Link::new(0.02, millis); 2]);
    let mut line = Line::paths(&[&one, &other], load, 41, |params| {
        let is_relay = matches!(params.role, Role::Relay { .. });
        (params.sealed, params.tagged, params.spread) = (true, !is_relay, Spread::Sum);
        params.wrong_tags_max = 20;
    });
    let (lies, sent) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(0)));
    let (does_lie, count, mut turn) = (lies.clone(), sent.clone(), 0);
    line.tamper = Some(Box::new(move |from, bytes| {
        if from == 1 && parse_stream(bytes).is_ok_and(|packet| packet.symbol().is_some()) {
            count.set(count.get() + 1);
            turn += 1;
            bytes[STREAM_BYTES + 100] ^= u8::from(does_lie.get() && turn % 4 == 0);
        }
    }));
    line.run(8 * SECOND);
    assert!(sent.get() > 1000, "the path is used: {}", sent.get());
    assert_eq!(line.flow(3).counters.quarantines, 0);
    lies.set(true);
    line.run(2 * SECOND);
    let FlowCounters { quarantines, tag_refused, .. } = line.flow(3).counters;
    assert_eq!((quarantines, tag_refused), (1, 20));
    let (before, begun) = (line.delivered.len(), line.entered());
    line.run(7 * SECOND);
    let counters = line.flow(3).counters;
    assert_eq!((counters.quarantines, counters.tag_refused), (1, 20), "it is not heard");
    let (came, entered) = (line.delivered.len() - before, line.entered() - begun);
    println!("{came} of {entered} while it is not heard");
    assert!(came + 20 >= entered, "{came} of {entered}");
    // After 10 s it is accepted again, and lies again.
    line.run(4 * SECOND);
    let counters = line.flow(3).counters;
    assert_eq!((counters.quarantines, counters.tag_refused), (2, 40));
    lies.set(false);
    line.run(30 * SECOND);
    let before = sent.get();
    line.run(4 * SECOND);
    assert!(sent.get() > before + 500, "honest again, it is used again");
    assert_eq!((line.flow(3).counters.tag_refused, line.flow(3).counters.quarantines), (40, 2));
    line.load.rate = Some(1e-3);
    line.run(2 * SECOND);
    let lost = line.entered() - line.delivered.len();
    println!("{lost} of {} lost", line.entered());
    // Spoiled symbols: the sink requests them end to end, and the source has them.
    assert!(lost <= 40, "{lost}");
}

/// Without another path, nothing is gained by ignoring the neighbour.
#[test]
fn only_neighbour_is_heard_whatever_it_sends_and_gets_other_keys() {
    let load = Load { bytes: 1000, rate: Some(1000.0), ordered: false };
    let mut line = Line::with(&[Link::new(0.02, 5); 2], load, 43, |params| {
        let is_relay = matches!(params.role, Role::Relay { .. });
        (params.sealed, params.tagged) = (true, !is_relay);
    });
    let mut turn = 0;
    line.tamper = Some(Box::new(move |from, bytes| {
        if from == 1 && parse_stream(bytes).is_ok_and(|packet| packet.symbol().is_some()) {
            turn += 1;
            bytes[STREAM_BYTES + 100] ^= u8::from(turn % 10 == 0);
        }
    }));
    line.run(12 * SECOND);
    let FlowCounters { quarantines, tag_refused, .. } = line.flow(2).counters;
    let dropped = line.packets(2).dropped[DropReason::Quarantined as usize];
    let (entered, arrived) = (line.entered(), line.delivered.len());
    println!("{arrived} of {entered}, {tag_refused} refused, {quarantines}");
    assert_eq!((quarantines, dropped), (1, 0));
    assert_eq!(line.distrusted(2), 1, "the keys are changed once");
    assert!(arrived + 100 >= entered, "{arrived} of {entered}");
}
