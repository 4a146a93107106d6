//! The packet path allocates nothing: all memory is allocated when a flow is created.

use crate::common::keys::Keys;
use crate::common::{DOWN, Outputs, SHARD, Sent, UP, ip_packet, params};
use recoded_pipeline::memory::HeapFrames;
use recoded_pipeline::params::{FlowCode, FlowParams, Role, Snapshot, StreamParams, TunnelId};
use recoded_pipeline::report::FlowCounters;
use recoded_pipeline::{Datagram, Pipeline};
use recoded_wire::frames::Frames;

struct Host {
    pipeline: Pipeline,
    frames: HeapFrames,
    wire: Outputs,
}

fn host(role: Role, code: FlowCode, sealed: bool) -> Host {
    let params = FlowParams { code, sealed, tagged: sealed, ..params(role) };
    let snapshot = Snapshot { edition: 1, flows: vec![params] };
    Host {
        pipeline: Pipeline::new(&snapshot, 1),
        frames: HeapFrames::new(4096, 2048),
        wire: Outputs::counting(4096, Some(Keys::new(1))),
    }
}

/// Carries the outputs of `from` to its neighbours, up and down; losses come in runs.
fn carry(from: &mut Host, up: Option<&mut Host>, down: Option<&mut Host>, clock: &mut Clock) {
    from.wire.sent.reverse();
    let mut neighbours = [(UP, up), (DOWN, down)];
    while let Some(Sent { hop, span, .. }) = from.wire.sent.pop() {
        clock.packets += 1;
        let is_lost = clock.packets % 97 < 14;
        let to = neighbours.iter_mut().find(|(known, _)| *known == hop);
        if let Some((_, Some(to))) = to.filter(|_| !is_lost)
            && let Some(copy) = to.frames.receive(from.frames.bytes(span))
        {
            let peer = Some(if hop == DOWN { UP } else { DOWN });
            let datagram = Datagram::best_effort(peer, copy);
            to.pipeline.receive(&mut to.frames, &mut to.wire, datagram, clock.now);
        }
        from.frames.release(span.frame);
    }
    from.pipeline.tick(&mut from.frames, &mut from.wire, clock.now);
}

struct Clock {
    now: u64,
    packets: u32,
}

#[test]
fn packets_from_source_to_sink_and_back_allocate_nothing() {
    let counters = allocates_nothing(FlowCode::Rlnc);
    assert!(counters.sent_repair > 0, "nothing was repaired");
}

#[cfg(feature = "bats")]
#[test]
fn blocks_from_source_to_sink_and_back_allocate_nothing() {
    use recoded_pipeline::params::{BatsParams, Profile};
    for profile in Profile::ALL {
        let FlowCode::Bats(bats) = crate::common::bats(48) else { unreachable!() };
        let counters = allocates_nothing(FlowCode::Bats(BatsParams { profile, ..bats }));
        assert!(counters.sent_repair > 0, "nothing was repaired");
    }
}

#[test]
fn streams_from_source_to_sink_and_back_allocate_nothing() {
    let counters = allocates_nothing(FlowCode::Stream(StreamParams::new(1024)));
    assert!(counters.decode_delay_nanos > 0, "there were no retransmissions");
}

#[test]
fn sealed_packets_and_tags_from_source_to_sink_allocate_nothing() {
    let codes = [
        FlowCode::Rlnc,
        #[cfg(feature = "bats")]
        crate::common::bats(48),
        FlowCode::Stream(StreamParams::new(1024)),
    ];
    for code in codes {
        let counters = carries(code, true);
        assert_eq!((counters.unseal_refused, counters.tag_refused), (0, 0));
    }
}

fn allocates_nothing(code: FlowCode) -> FlowCounters {
    carries(code, false)
}

/// Carries packets over a lossy line of three nodes, and counts allocations after warm-up.
fn carries(code: FlowCode, sealed: bool) -> FlowCounters {
    let mut source = host(Role::Source { tunnel: TunnelId(0) }, code, sealed);
    let mut relay = host(Role::Relay { upstream: UP }, code, sealed);
    let mut sink = host(Role::Sink { tunnel: TunnelId(0), upstream: UP }, code, sealed);
    let packet = ip_packet(150, 7);
    let mut clock = Clock { now: 0, packets: 0 };
    let mut run = |rounds: u64| {
        for _ in 0..rounds {
            clock.now += 100_000;
            let (frames, wire) = (&mut source.frames, &mut source.wire);
            source.pipeline.ingress(frames, wire, SHARD, &packet, clock.now);
            carry(&mut source, None, Some(&mut relay), &mut clock);
            carry(&mut relay, Some(&mut source), Some(&mut sink), &mut clock);
            carry(&mut sink, Some(&mut relay), None, &mut clock);
        }
    };
    run(5_000); // the first packets of a flow size its rank histogram
    let allocations = allocation_counter::measure(|| run(15_000));
    assert_eq!(allocations.count_total, 0, "{allocations:?}");
    assert!(sink.wire.delivered_count > 19_000, "{} packets delivered", sink.wire.delivered_count);
    let mut counters = sink.pipeline.report().flows[0].counters.clone();
    counters.sent_repair = source.pipeline.report().flows[0].counters.sent_repair;
    counters
}
