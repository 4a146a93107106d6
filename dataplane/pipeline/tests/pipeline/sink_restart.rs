//! A sink that restarts has other keys. Packets that only its last session could verify and open
//! are encoded again, and relays do not keep their windows full of them.

use crate::common::keys::Keys;
use crate::common::{Line, Node, UP, ip_packet, params};
use recoded_gf::FieldOrder;
use recoded_pipeline::params::{FlowCode, FlowParams, Role, StreamParams, TunnelId};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

const BYTES: usize = 150;

/// Number of the keys of both ends.
const NUMBER: u8 = 1;

/// Packets delivered since the last report are delivered again; the sink reports every 20 ms.
const TWICE_MAX: usize = 20;

fn sealed(params: &mut FlowParams) {
    params.code = FlowCode::Stream(StreamParams::new(1024));
    params.field = FieldOrder::TwoFiftySix;
    (params.tagged, params.sealed) = (true, true);
}

fn sink(seed: u64) -> Node {
    let mut params = params(Role::Sink { tunnel: TunnelId(0), upstream: UP });
    sealed(&mut params);
    Node::new(params, seed)
}

/// Sends packets of these numbers, one every two milliseconds.
fn send(line: &mut Line, numbers: std::ops::Range<u32>) {
    for number in numbers {
        line.send(&ip_packet(BYTES, number));
        line.pass(2);
    }
}

/// How often each packet was delivered, by its number.
fn counts(packets: &[Vec<u8>]) -> BTreeMap<u32, usize> {
    let mut counts = BTreeMap::new();
    for packet in packets {
        let number = u32::from_be_bytes(packet[20..24].try_into().unwrap());
        assert_eq!(*packet, ip_packet(BYTES, number), "packet {number} was altered");
        *counts.entry(number).or_default() += 1;
    }
    counts
}

/// Sends 200 packets, `away` while there is no sink, `before` while the new sink has other keys
/// than the source, and 200 more. Returns the packets lost, and those that arrived twice.
fn restart(loss: f64, away: u32, before: u32) -> (usize, usize) {
    let mut line = Line::new(2, loss, 7, sealed);
    let is_down = Rc::new(Cell::new(false));
    let down = Rc::clone(&is_down);
    line.tamper = Some(Box::new(move |from, bytes| match from == 1 && down.get() {
        true => Vec::new(),
        false => vec![bytes],
    }));
    send(&mut line, 0..200);
    is_down.set(true);
    let old = std::mem::replace(&mut line.nodes[2], sink(99));
    line.nodes[2].keys = Some(Keys::restarted(NUMBER));
    send(&mut line, 200..200 + away);
    is_down.set(false);
    let end = 200 + away + before;
    send(&mut line, 200 + away..end);
    line.nodes[0].keys.as_mut().unwrap().renew();
    send(&mut line, end..end + 200);
    line.pass(1500);
    let [source, relay, sink] = [0, 1, 2].map(|node| line.nodes[node].flow().counters);
    assert_eq!([relay.tag_refused, sink.tag_refused, sink.unseal_refused], [0; 3]);
    assert!(source.encoded_again >= u64::from(away));
    let counts = counts(&[old.delivered, line.delivered().to_vec()].concat());
    line.check();
    ((end + 200) as usize - counts.len(), counts.values().map(|count| count - 1).sum())
}

#[test]
fn sink_that_restarts_with_other_keys_lacks_nothing() {
    // 400 packets while the sink is away are more than a relay has in flight at once.
    for (loss, away, before) in [(0.0, 50, 5), (0.0, 50, 0), (0.05, 50, 5), (0.0, 400, 20)] {
        let (lost, twice) = restart(loss, away, before);
        println!(
            "loss {loss}, {away} while away, {before} before keys: {lost} lost, {twice} twice"
        );
        assert!(lost <= 2, "{lost} lost");
        assert!(twice <= TWICE_MAX, "{twice} twice");
    }
}

/// Keys also change by age: then the sink has both, and nothing is sent twice.
#[test]
fn keys_that_change_without_a_restart_encode_nothing_again() {
    let mut line = Line::new(2, 0.02, 7, sealed);
    send(&mut line, 0..200);
    line.nodes[2].keys.as_mut().unwrap().renew();
    line.nodes[0].keys.as_mut().unwrap().renew();
    send(&mut line, 200..400);
    line.pass(1500);
    assert_eq!(line.nodes[0].flow().counters.encoded_again, 0);
    let counts = counts(line.delivered());
    assert_eq!((counts.len(), counts.values().sum::<usize>()), (400, 400));
}
