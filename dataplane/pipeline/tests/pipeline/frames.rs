//! Packets lie within their frames: the bound that configurations are checked against is the one
//! that packets reach.

use crate::common;
use crate::common::{DOWN, Node, Outputs, SHARD, Sent, UP, params};
use recoded_gf::FieldOrder;
use recoded_pipeline::memory::HeapFrames;
use recoded_pipeline::params::{
    FlowCode, FlowParams, PeerId, Recoding, Role, ShardId, Snapshot, TunnelId,
};
use recoded_pipeline::report::FlowReport;
use recoded_pipeline::{Datagram, Pipeline};
use recoded_wire::frames::Frames;
use recoded_wire::stream::STREAM_BYTES;

struct Host {
    pipeline: Pipeline,
    frames: HeapFrames,
    outputs: Outputs,
}

impl Host {
    fn new(params: FlowParams, frame_bytes: usize) -> Host {
        let snapshot = Snapshot { edition: 1, flows: vec![params] };
        Host {
            pipeline: Pipeline::new(&snapshot, 1),
            frames: HeapFrames::new(2048, frame_bytes),
            outputs: Outputs::default(),
        }
    }
}

/// Regression: a relay of generations of 256 formed packets whose symbols extended past their
/// frame.
#[test]
fn packets_formed_for_the_largest_generation_end_where_the_bound_says() {
    for generation_size in [16, 64, 128, 256] {
        let role = Role::Relay { upstream: UP };
        let mut relay = FlowParams { generation_size, ..params(role) };
        relay.recoding = Recoding::Random;
        // The largest that a frame of 2048 bytes allows.
        relay.symbol_bytes += 2048 - relay.frame_bytes_min();
        let source = FlowParams {
            role: Role::Source { tunnel: TunnelId(0) },
            field: FieldOrder::TwoFiftySix,
            ..relay.clone()
        };

        // Larger frames, so that overruns are measured without occurring.
        let mut from = Host::new(source, 4096);
        let mut to = Host::new(relay, 4096);
        let packet = common::ip_packet(1400, 7);
        for round in 0..2 * generation_size as u64 {
            let (frames, outputs) = (&mut from.frames, &mut from.outputs);
            from.pipeline.ingress(frames, outputs, SHARD, &packet, round * 1000);
        }
        for Sent { hop, span, .. } in std::mem::take(&mut from.outputs.sent) {
            assert_eq!(hop, DOWN);
            let payload = to.frames.receive(from.frames.bytes(span)).expect("a frame");
            let datagram = Datagram::best_effort(Some(UP), payload);
            to.pipeline.receive(&mut to.frames, &mut to.outputs, datagram, 1_000_000);
            from.frames.release(span.frame);
        }
        let sent = &to.outputs.sent;
        assert!(sent.len() >= generation_size, "{} sent", sent.len());
        let end = sent.iter().map(|Sent { span, .. }| span.offset + span.len).max();
        assert_eq!(end, Some(2048), "with generations of {generation_size}");
    }
}

/// A worker whose sockets are reopened gets new frames, and its flows continue without the old
/// ones.
#[test]
fn flows_go_on_after_their_frames_were_taken_away() {
    let codes = [
        FlowCode::Rlnc,
        common::stream(),
        #[cfg(feature = "bats")]
        common::bats(48),
    ];
    for code in codes {
        let tunnel = TunnelId(0);
        let roles = [
            Role::Source { tunnel },
            Role::Relay { upstream: UP },
            Role::Sink { tunnel, upstream: UP },
        ];
        for victim in 0..roles.len() {
            let node = |role| Node::new(FlowParams { code, ..params(role) }, 1);
            let mut nodes = roles.clone().map(node);
            let mut delivered = [0; 2];
            for number in 0..4_000 {
                if number == 2_003 {
                    let Node { pipeline, frames, .. } = &mut nodes[victim];
                    pipeline.release(frames);
                    assert_eq!(nodes[victim].leaked(), 0);
                    nodes[victim].set_frames(4096);
                    delivered[0] = nodes[2].delivered.len();
                }
                step(&mut nodes, number);
            }
            // Waiting packets are delivered in parts.
            (400..600).for_each(|millis| drop(nodes[2].tick(millis * 1_000_000)));
            delivered[1] = nodes[2].delivered.len();
            let what = format!("{} with node {victim}", code.name());
            assert!(delivered[0] > 1_900, "{what}: {delivered:?}");
            assert!(delivered[1] - delivered[0] > 1_700, "{what}: {delivered:?}");
            for mut node in nodes {
                assert_eq!(node.leaked(), 0, "{what}");
            }
        }
    }
}

/// One of forty flows takes all frames. Relief looks at a few flows per packet and still finds it
/// before frames run out; others lose one generation for each look that missed it.
#[test]
fn the_flow_that_takes_the_frames_gives_them_back() {
    let flow = |id| {
        let mut params = params(Role::Source { tunnel: TunnelId(0) });
        (params.id, params.generations, params.generation_size) = (id, 64, 16);
        params
    };
    for greedy in [0, 17, 39] {
        let snapshot = Snapshot { edition: 1, flows: (0..40).map(flow).collect() };
        let mut pipeline = Pipeline::new(&snapshot, 1);
        let mut frames = HeapFrames::new(512, 2048);
        let mut outputs = Outputs::default();
        let others = (0..40).filter(|id| *id != greedy);
        let packets = others.chain(std::iter::repeat_n(greedy, 4000));
        let mut least = frames.free();
        for (number, flow) in (0..).zip(packets) {
            let packet = common::ip_packet(190, number);
            let now = u64::from(number) * 10_000;
            pipeline.ingress(&mut frames, &mut outputs, ShardId { flow, shard: 0 }, &packet, now);
            pipeline.tick(&mut frames, &mut outputs, now);
            outputs.sent.drain(..).for_each(|sent| frames.release(sent.span.frame));
            least = least.min(frames.free());
        }
        assert!((64..128).contains(&least), "{least} of 512 frames were left");
        let flows = pipeline.report().flows;
        let (own, of_others): (Vec<_>, Vec<_>) = flows.iter().partition(|flow| flow.id == greedy);
        let evicted = |flows: &[&FlowReport]| -> u64 {
            flows.iter().map(|flow| flow.counters.generations_evicted).sum()
        };
        let (own, of_others) = (evicted(&own), evicted(&of_others));
        assert!(
            own > 100 && of_others <= 5,
            "{own} of its generations went, {of_others} of others"
        );
        pipeline.release(&mut frames);
        assert_eq!(frames.free(), 512);
    }
}

/// One packet enters, and each node's outputs reach its neighbours except for an occasional loss.
fn step(nodes: &mut [Node; 3], number: u32) {
    let now = u64::from(number) * 100_000;
    let mut waiting: Vec<(usize, PeerId, Vec<u8>)> = Vec::new();
    let sent = nodes[0].ingress(&common::ip_packet(150, number), now);
    waiting.extend(sent.into_iter().map(|(hop, bytes)| (0, hop, bytes)));
    for (index, node) in nodes.iter_mut().enumerate() {
        waiting.extend(node.tick(now).into_iter().map(|(hop, bytes)| (index, hop, bytes)));
    }
    let mut carried = 0;
    while let Some((from, hop, bytes)) = waiting.pop() {
        carried += 1;
        let to = if hop == DOWN { from + 1 } else { from.wrapping_sub(1) };
        if (number + carried).is_multiple_of(41) {
            continue;
        }
        if let Some(node) = nodes.get_mut(to) {
            let sent = node.receive(&bytes, now);
            waiting.extend(sent.into_iter().map(|(hop, bytes)| (to, hop, bytes)));
        }
    }
}

/// A relay copies a symbol once, into its store: the frame that arrived leaves again, to one next
/// hop. Symbols that have to wait leave in another frame, as do those to further next hops.
#[test]
fn relay_of_a_stream_sends_on_the_frame_that_arrived() {
    const BURST: u64 = 200;
    for hops in [1, 2] {
        let mut params =
            FlowParams { code: common::stream(), ..params(Role::Relay { upstream: UP }) };
        params.next_hops.extend((1..hops).map(|hop| PeerId(10 + hop)));
        let role = Role::Source { tunnel: TunnelId(0) };
        let mut source = Node::new(FlowParams { role, next_hops: vec![DOWN], ..params.clone() }, 1);
        let mut relay = Host::new(params, 2048);
        let (mut in_place, mut packets) = (0, 0);
        for number in 0..BURST {
            let now = number * 1_000_000;
            for (_, packet) in source.ingress(&common::ip_packet(100, number as u32), now) {
                let arrived = relay.frames.receive(&packet).expect("a frame");
                let datagram = Datagram::best_effort(Some(UP), arrived);
                relay.pipeline.receive(&mut relay.frames, &mut relay.outputs, datagram, now);
                for Sent { span, .. } in std::mem::take(&mut relay.outputs.sent) {
                    let is_same = span == arrived;
                    let sent = relay.frames.bytes(span);
                    let body = STREAM_BYTES..;
                    assert!(!is_same || sent[body.clone()] == packet[body], "packet {number}");
                    in_place += u64::from(is_same);
                    relay.frames.release(span.frame);
                }
                packets += 1;
            }
        }
        let report = relay.pipeline.report();
        let counters = &report.flows[0].counters;
        println!("{hops} next hops: {in_place} of {} sent in place", counters.sent_forwarded);
        assert_eq!(report.packets.forwarded, in_place);
        assert_eq!(report.packets.forwarded + report.packets.consumed, packets);
        // The gate opens for all but a few of them at once.
        assert!(counters.sent_forwarded > 9 * u64::from(hops) * BURST / 10, "{counters:?}");
        assert!(in_place * u64::from(hops) > 9 * counters.sent_forwarded / 10, "{in_place}");
        relay.pipeline.release(&mut relay.frames);
        assert_eq!(relay.frames.free(), 2048);
    }
}
