//! Reports of a sink whose edges have keys: relays can neither forge nor change them, and without
//! keys all is accepted.

use crate::timed::{Line, Link, Load, SECOND};
use recoded_pipeline::params::{FlowParams, Role, Spread};
use recoded_pipeline::report::DropReason;
use recoded_wire::feedback::{
    FEEDBACK_BYTES, FeedbackHeader, FlowReport, HopReport, Item, Nack, SizeReport, Writer, items,
};
use recoded_wire::header::{Flags, Header, PacketType};
use recoded_wire::stream::parse_stream;

const DATAGRAMS: Load = Load { bytes: 1000, rate: Some(1000.0), ordered: false };

/// Edges with keys or without; relays have none.
fn keys(has_keys: bool) -> impl Fn(&mut FlowParams) {
    move |params| {
        let is_relay = matches!(params.role, Role::Relay { .. });
        (params.sealed, params.tagged) = (has_keys, has_keys && !is_relay);
    }
}

/// A feedback packet to the source, with these items, in place of the packet `ahead` packets after
/// the next one.
fn feedback(line: &Line, ahead: u32, fill: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let newest = Header::parse(line.newest()).expect("a symbol");
    let common = Header {
        packet_type: PacketType::Feedback,
        flags: Flags(0),
        link_sequence: line.newest_back().wrapping_add(1 + ahead),
        hop_index: 0,
        ..newest
    };
    let mut buffer = vec![0; 1232];
    let number = line.newest_back();
    FeedbackHeader { common, node: 0x0BAD_0BAD, number }.write(&mut buffer);
    let mut writer = Writer::new(&mut buffer);
    fill(&mut writer);
    let length = writer.finish();
    buffer.truncate(length);
    buffer
}

/// Number of the newest symbol of the source.
fn newest(line: &mut Line) -> u32 {
    for _ in 0..1000 {
        let packet = parse_stream(line.newest()).expect("a packet of a stream");
        if let Some(symbol) = packet.symbol() {
            return symbol.number;
        }
        line.run(SECOND / 1000);
    }
    panic!("no symbol for a second")
}

fn wrong_reports(line: &Line) -> u64 {
    line.packets(0).dropped[DropReason::WrongReport as usize]
}

//= docs/protocol §2.8(g)
#[test]
fn forged_reports_of_a_sink_are_dropped_where_edges_have_keys() {
    for has_keys in [false, true] {
        let mut line = Line::with(&[Link::new(0.02, 5); 2], DATAGRAMS, 61, keys(has_keys));
        line.run(3 * SECOND);
        assert_eq!(wrong_reports(&line), 0, "genuine ones");
        let remote = line.flow(0).remote.expect("the sink reported");
        assert!(remote.complete > 1000, "{remote:?}");
        let number = newest(&mut line);
        let repairs = line.flow(0).counters.repairs;
        for step in 0..20 {
            let unit = number.wrapping_sub(10 + step);
            let nack = Item::Nack(Nack { unit, missing: 1, round: 3 });
            let state = Item::Flow(FlowReport { newest: 7, complete: 0, failed: 99 });
            let forged = feedback(&line, 2 * step, |writer| assert!(writer.push(nack)));
            line.inject(0, &forged);
            let forged = feedback(&line, 2 * step + 1, |writer| assert!(writer.push(state)));
            line.inject(0, &forged);
        }
        let (after, remote) = (line.flow(0).counters.repairs, line.flow(0).remote);
        let is_believed = remote.is_some_and(|remote| remote.failed == 99);
        assert_eq!((after > repairs, is_believed), (!has_keys, !has_keys));
        assert_eq!(wrong_reports(&line), if has_keys { 40 } else { 0 });
        // A relay's own reports need no seal.
        let hop = Item::Hop(HopReport { hop: 0, loss: 0.5, burst_mean: 1.0 });
        let size = Item::Size(SizeReport { hop: 0, bytes: 1300 });
        let own = feedback(&line, 41, |writer| assert!(writer.push(hop) && writer.push(size)));
        line.inject(0, &own);
        assert_eq!(wrong_reports(&line), if has_keys { 40 } else { 0 });
        assert!(line.flow(0).packet_bytes_max.is_some(), "the size is followed");
    }
}

//= docs/protocol §2.8(g), §2.8(h)
#[test]
fn reports_that_a_relay_changes_are_dropped_and_copies_are_read_once() {
    let mut line = Line::with(&[Link::new(0.02, 5); 2], DATAGRAMS, 62, keys(true));
    let mut turn = 0u32;
    line.tamper_back = Some(Box::new(move |from, bytes| {
        let is_feedback =
            Header::parse(bytes).is_ok_and(|it| it.packet_type == PacketType::Feedback);
        let is_of_sink = is_feedback && items(bytes).any(|item| matches!(item, Item::Flow(_)));
        if from == 1 && is_of_sink {
            turn += 1;
            // Every byte in turn, beginning with the name of the report.
            let body = bytes.len() - FEEDBACK_BYTES + 8;
            let at = FEEDBACK_BYTES - 8 + turn as usize % body;
            bytes[at] ^= u8::from(turn > 50) << (turn % 8);
        }
    }));
    line.run(SECOND);
    let (complete, refused) =
        (line.flow(0).remote.expect("reports").complete, wrong_reports(&line));
    assert_eq!(refused, 0);
    line.run(4 * SECOND);
    let after = line.flow(0).remote.expect("reports").complete;
    println!("{} refused, {complete} then {after}", wrong_reports(&line));
    assert!(wrong_reports(&line) > 100);
    // Not one changed report was read: those of the first second, or a kind that is skipped.
    assert!(after <= complete + 200, "{complete} then {after}");
}

/// A lying relay claims, in the name of the sink, that nothing arrives over either path.
#[test]
fn forged_arrivals_suspend_no_path_where_edges_have_keys() {
    // TCP that fills both.
    let load = Load { bytes: 1000, rate: None, ordered: true };
    let link = Link { rate: 20e6, ..Link::new(0.01, 5) };
    let mut line = Line::paths(&[&[link; 2], &[link; 2]], load, 63, |params| {
        keys(true)(params);
        params.spread = Spread::Sum;
    });
    line.run(2 * SECOND);
    for turn in 0..200 {
        line.run(SECOND / 200);
        let newest = newest(&mut line);
        let state = Item::Flow(FlowReport { newest, complete: 0, failed: 0 });
        let forged = feedback(&line, 0, |writer| {
            assert!(writer.push(state));
            assert!(writer.push_arrivals(newest.wrapping_sub(400), 256, |_| false));
        });
        line.inject(0, &forged);
        assert!(!line.lacks_paths(), "an honest path was suspended in turn {turn}");
    }
    assert_eq!(wrong_reports(&line), 200);
}
