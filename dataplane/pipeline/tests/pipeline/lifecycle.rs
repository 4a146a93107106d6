//! State after drains, releases and live changes: nothing is lost that repair can recover, and no
//! number is used twice.

use crate::common;
use crate::common::{Line, Node, Outputs, UP, coded, header, ip_packet, params, stream};
use recoded_pipeline::params::{FlowParams, Redundancy, Role, Snapshot, TunnelId};
use recoded_wire::coded::{CODED_BYTES, INDEX_BYTES, write_index};
use recoded_wire::header::{Flags, Header, PacketType};
use recoded_wire::stream::parse_stream;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const MILLI: u64 = 1_000_000;
const SOURCE: Role = Role::Source { tunnel: TunnelId(0) };
const SINK: Role = Role::Sink { tunnel: TunnelId(0), upstream: UP };

/// Parameters of every code.
fn codes() -> Vec<FlowParams> {
    vec![
        params(SOURCE),
        FlowParams { code: stream(), ..params(SOURCE) },
        #[cfg(feature = "bats")]
        FlowParams { code: common::bats(64), ..params(SOURCE) },
    ]
}

fn snapshot(edition: u64, flow: FlowParams) -> Snapshot {
    Snapshot { edition, flows: vec![flow] }
}

/// A generation was once kept when a daemon stopped, an interface disappeared or a flow was
/// removed.
#[test]
fn what_is_open_leaves_before_a_shutdown() {
    for flow in codes() {
        let mut line = Line::new(1, 0.0, 5, |params| params.code = flow.code);
        for number in 0..5 {
            line.send(&ip_packet(150, number));
        }
        let now = line.now;
        let out = line.nodes[0].run(|pipeline, frames, egress| pipeline.drain(frames, egress, now));
        line.carry(0, out);
        assert_eq!(line.delivered().len(), 5, "{}", flow.code.name());
        line.check();
    }
}

/// Nodes that were stalled for longer than the hold timeout, like stopped processes, once abandoned
/// incomplete units before requesting the rest.
#[test]
fn what_was_incomplete_before_a_standstill_is_asked_for_after_it() {
    for flow in codes().into_iter().filter(|flow| flow.code != stream()) {
        let mut line = Line::new(1, 0.0, 7, |params| {
            (params.code, params.redundancy) = (flow.code, Redundancy::Fixed(1.0));
        });
        for number in 0..300 {
            line.loss = if number % 10 == 7 { 1.0 } else { 0.0 };
            line.loss_up = 1.0;
            line.send(&ip_packet(150, number));
        }
        (line.loss, line.loss_up) = (0.0, 0.0);
        assert!(line.delivered().len() < 100, "{}: nothing is missing", flow.code.name());
        line.now += 300 * MILLI;
        line.pass(1000);
        assert_eq!(line.delivered().len(), 300, "{}", flow.code.name());
        line.check();
    }
}

/// A source whose frames are taken away in the middle of a generation once reused its number for
/// other symbols, which the sink took for the earlier ones.
#[test]
fn a_number_is_not_used_again_for_other_symbols() {
    for flow in codes() {
        let mut line = Line::new(1, 0.0, 6, |params| params.code = flow.code);
        for number in 0..100 {
            if number % 10 == 5 {
                let Node { pipeline, frames, .. } = &mut line.nodes[0];
                pipeline.release(frames);
            }
            line.send(&ip_packet(150, number));
            if number % 10 == 8 {
                line.pass(40);
            }
        }
        line.pass(1000);
        let number = |packet: &[u8]| u32::from_be_bytes(packet[20..24].try_into().unwrap());
        for packet in line.delivered() {
            assert_eq!(*packet, ip_packet(150, number(packet)), "{}", flow.code.name());
        }
        let delivered = line.delivered().len();
        assert!(delivered >= 40, "{}: {delivered} of 100", flow.code.name());
        line.check();
    }
}

/// Recovery of a panicked worker: each node in turn restarts in the middle of a unit.
#[test]
fn a_pipeline_made_anew_goes_on_and_what_was_counted_stays() {
    for code in common::codes() {
        let change = |params: &mut FlowParams| params.code = code;
        let mut line = Line::new(2, 0.0, 8, change);
        let roles = [SOURCE, Role::Relay { upstream: UP }, SINK];
        let mut sent = 0;
        let mut send = |line: &mut Line, count| {
            for _ in 0..count {
                line.send(&ip_packet(150, sent));
                line.pass(2);
                sent += 1;
            }
        };
        send(&mut line, 100);
        for (index, role) in roles.into_iter().enumerate() {
            send(&mut line, 25);
            let mut flow = params(role);
            change(&mut flow);
            let Node { pipeline, frames, .. } = &mut line.nodes[index];
            let before = pipeline.report();
            pipeline.release(frames);
            pipeline.renew(&snapshot(7, flow), 100 + index as u64);
            let after = pipeline.report();
            assert_eq!(after.edition, 7);
            assert!(after.packets.received >= before.packets.received, "{}", code.name());
            let symbols = |report: &recoded_pipeline::report::Report| {
                let flows = report.flows.iter().map(|flow| flow.counters.source_symbols);
                let gone = report.remainders.iter().map(|it| it.counters.source_symbols);
                flows.chain(gone).sum::<u64>()
            };
            assert_eq!(symbols(&after), symbols(&before), "{}", code.name());
            send(&mut line, 200);
        }
        line.pass(2000);
        let number = |packet: &[u8]| u32::from_be_bytes(packet[20..24].try_into().unwrap());
        let delivered = line.delivered();
        for packet in delivered {
            assert_eq!(*packet, ip_packet(150, number(packet)), "{}", code.name());
        }
        let last = delivered.iter().filter(|packet| number(packet) >= sent - 50).count();
        println!("{}: {} of {sent}, {last} of the last 50", code.name(), delivered.len());
        assert!(delivered.len() as u32 > sent * 7 / 10 && last >= 45, "{}", code.name());
        line.check();
    }
}

/// A change of any key of BATS once discarded all blocks that the sink still requested.
#[cfg(feature = "bats")]
#[test]
fn blocks_of_before_a_change_are_still_repaired() {
    use recoded_pipeline::params::{BatsParams, FlowCode, Interleave};
    let FlowCode::Bats(bats) = common::bats(64) else { unreachable!() };
    let changes = [
        (BatsParams { interleave: Interleave::Fixed(4), ..bats }, 16),
        (BatsParams { source_symbols: 200, ..bats }, 16),
        (BatsParams { source_symbols: 16, ..bats }, 8),
    ];
    for (bats, generation_size) in changes {
        let mut line = Line::new(1, 0.6, 7, |params| params.code = common::bats(64));
        for number in 0..300 {
            line.send(&ip_packet(150, number));
        }
        line.pass(2);
        let code = FlowCode::Bats(bats);
        let flow = FlowParams { code, generation_size, ..params(SOURCE) };
        let out = line.nodes[0].apply(&snapshot(2, flow), line.now);
        line.carry(0, out);
        (line.loss, line.loss_up) = (0.0, 0.0);
        let before = line.delivered().len();
        assert!(before < 250, "{before} were delivered before the change");
        line.pass(500);
        assert_eq!(line.delivered().len(), 300, "{code:?}");
        line.check();
    }
}

/// A stage that a source had replaced once stayed until memory was short.
#[test]
fn a_source_keeps_what_it_replaced_as_long_as_sinks_ask_for_it() {
    let flows = codes();
    for (index, flow) in flows.iter().enumerate() {
        let mut source = Node::new(flow.clone(), 8);
        let total = source.frames.free();
        let other = flows[(index + 1) % flows.len()].clone();
        // Back and forth: the kept stage is the previous one each time.
        for (edition, flow) in [(2, other.clone()), (3, flow.clone()), (4, other)] {
            let now = edition * 10_000 * MILLI;
            for number in 0..100 {
                source.ingress(&ip_packet(150, number), now);
            }
            source.tick(now + 500 * MILLI);
            source.apply(&snapshot(edition, flow), now + 1000 * MILLI);
            let mut retire = |at| source.pipeline.retire(&mut source.frames, now + at * MILLI);
            assert!(retire(2500).is_none(), "requests for it may still arrive");
            assert!(retire(3000).is_some() && retire(3000).is_none());
            assert_eq!(source.frames.free(), total, "nothing came since the change");
        }
        // Within a moment it continues its numbering.
        source.apply(&snapshot(5, flow.clone()), 60_000 * MILLI);
        assert!(source.pipeline.retire(&mut source.frames, 61_000 * MILLI).is_none());
        assert_eq!(source.leaked(), 0);
    }
}

/// A stage that a source had replaced was once in no budget.
#[test]
fn what_a_source_replaced_is_counted_or_goes_at_once() {
    let flows = codes();
    let bytes = [flows[0].memory_bytes(), flows[1].memory_bytes()];
    for budget in [usize::MAX, bytes[0] - 1] {
        let mut egress = Outputs { budget: (Arc::default(), budget), ..Outputs::default() };
        let mut source = Node::new(flows[0].clone(), 8);
        let mut change = |edition, index: usize| {
            let new = snapshot(edition, flows[index].clone());
            source.pipeline.apply(&new, &mut source.frames, &mut egress, edition * MILLI);
            egress.budget.0.load(Ordering::Relaxed)
        };
        let kept = |index: usize| if bytes[index] <= budget { bytes[index] } else { 0 };
        assert_eq!(change(2, 1), kept(0));
        assert_eq!(change(3, 0), kept(1), "the former one of the two");
        assert_eq!(change(4, 1), kept(0));
        let closed = source.pipeline.retire(&mut source.frames, 3000 * MILLI);
        assert_eq!(closed.is_some(), budget == usize::MAX);
        drop(closed);
        assert_eq!(egress.budget.0.load(Ordering::Relaxed), 0);
    }
}

/// A stage for other packets once made another one abandon at once the symbols it waited for.
#[test]
fn a_stream_goes_on_waiting_while_other_stages_are_made() {
    let change = |role| {
        let mut params = params(role);
        (params.code, params.redundancy) = (stream(), Redundancy::Fixed(1.5));
        params
    };
    let (mut source, mut sink) = (Node::new(change(SOURCE), 9), Node::new(change(SINK), 10));
    let mut sent = Vec::new();
    for number in 0..40 {
        let now = u64::from(number) * 10_000;
        sent.extend(source.ingress(&ip_packet(150, number), now).into_iter().map(|(_, it)| it));
    }
    let is_source = |packet: &Vec<u8>| parse_stream(packet).unwrap().symbol().is_some();
    // The first of two consecutive source packets: the second one refers to it.
    let lost = sent.windows(2).position(|pair| pair.iter().all(is_source)).unwrap();
    let lost = lost + usize::from(lost == 0) * 3;
    assert!(is_source(&sent[lost]) && is_source(&sent[lost + 1]));
    for (place, packet) in sent.iter().enumerate() {
        if place == lost + 2 {
            let mut common = header(PacketType::Generation, Flags::SYSTEMATIC | 3, 0);
            common.epoch = Header::parse(packet).unwrap().epoch.wrapping_add(1);
            let mut other = vec![0; CODED_BYTES + INDEX_BYTES + 40];
            coded(common, 7, 64).write(&mut other);
            write_index(&mut other, false, 0);
            sink.receive_next(&other, MILLI);
        }
        if place != lost {
            sink.receive_next(packet, MILLI);
        }
    }
    let expected: Vec<_> = (0..40).map(|number| ip_packet(150, number)).collect();
    // Datagrams are delivered as they arrive.
    sink.delivered.sort_by_key(|packet| packet[20..24].to_vec());
    assert!(sink.delivered == expected, "{} of 40", sink.delivered.len());
    assert_eq!((source.leaked(), sink.leaked()), (0, 0));
}
