//! Stages that come from another thread: packets wait for them, a refused allocation ends in a drop
//! reason, shards of other workers are handed over, packets of unknown peers are dropped.

use crate::common;
use crate::common::{DOWN, Node, Outputs, SHARD, UP, ip_packet, params};
use recoded_pipeline::memory::HeapFrames;
use recoded_pipeline::open::Opener;
use recoded_pipeline::params::{FlowParams, PeerId, Role, ShardId, Share, Snapshot, TunnelId};
use recoded_pipeline::recorder::Requests;
use recoded_pipeline::report::{DropReason, Report};
use recoded_pipeline::{Datagram, Pipeline};
use recoded_wire::coded::{CODED_BYTES, INDEX_BYTES};

const MILLI: u64 = 1_000_000;
const HANDED_OVER_MAX: usize = 100;
const SOURCE: Role = Role::Source { tunnel: TunnelId(0) };
const SINK: Role = Role::Sink { tunnel: TunnelId(0), upstream: UP };

struct Host {
    params: FlowParams,
    pipeline: Pipeline,
    frames: HeapFrames,
    desk: Outputs,
}

impl Host {
    fn new(params: FlowParams) -> Host {
        let snapshot = Snapshot { edition: 1, flows: vec![params.clone()] };
        Host {
            params,
            pipeline: Pipeline::new(&snapshot, 1),
            frames: HeapFrames::new(1024, 2048),
            desk: Outputs {
                stages: Requests::elsewhere(),
                handed_over_max: HANDED_OVER_MAX,
                ..Outputs::default()
            },
        }
    }

    fn receive(&mut self, peer: Option<PeerId>, packet: &[u8], now: u64) {
        let span = self.frames.receive(packet).expect("a frame");
        let datagram = Datagram::best_effort(peer, span);
        self.pipeline.receive(&mut self.frames, &mut self.desk, datagram, now);
        self.settle(now);
    }

    fn settle(&mut self, now: u64) {
        self.pipeline.tick(&mut self.frames, &mut self.desk, now);
        self.desk.release(&mut self.frames);
    }

    /// Answers all requests.
    fn open(&mut self, opener: &mut Opener, now: u64) {
        for request in std::mem::take(&mut self.desk.stages.asked) {
            let opened = opener.open(&request, &self.params);
            self.pipeline.opened(&mut self.frames, &mut self.desk, opened, now);
        }
        self.settle(now);
    }

    fn dropped(&self, reason: DropReason) -> u64 {
        self.pipeline.report().packets.dropped[reason as usize]
    }

    /// Every packet has one outcome, or waits.
    fn check_fates(&self) {
        let Report { packets, waiting, .. } = self.pipeline.report();
        let kept = packets.forwarded + packets.consumed + packets.handed_over;
        let dropped = packets.dropped.iter().sum::<u64>();
        assert_eq!(packets.received, kept + dropped + waiting as u64);
    }

    fn end(mut self) {
        self.check_fates();
        self.pipeline.release(&mut self.frames);
        assert_eq!(self.frames.free(), 1024, "frames leaked");
        assert_eq!(self.pipeline.report().waiting, 0);
        self.check_fates();
    }
}

/// Packets of `count` IP packets, ten per generation.
fn stream(source: &mut Node, numbers: std::ops::Range<u32>) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    for number in numbers {
        packets.extend(source.ingress(&ip_packet(150, number), u64::from(number) * 100_000));
    }
    packets.extend(source.tick(2 * MILLI + 100 * MILLI));
    packets.into_iter().map(|(_, bytes)| bytes).collect()
}

fn expected(numbers: std::ops::Range<u32>) -> Vec<Vec<u8>> {
    numbers.map(|number| ip_packet(150, number)).collect()
}

#[test]
fn packets_wait_for_their_stage_and_none_is_lost() {
    let mut source = Node::new(params(SOURCE), 3);
    let mut sink = Host::new(params(SINK));
    let mut opener = Opener::new(1);
    for packet in stream(&mut source, 0..80) {
        sink.receive(Some(UP), &packet, MILLI);
    }
    assert_eq!((sink.desk.stages.asked.len(), sink.desk.delivered.len()), (1, 0), "asked once");
    sink.open(&mut opener, 2 * MILLI);
    assert_eq!(sink.desk.delivered, expected(0..80));
    // Only the source is set to generations that the stage has no room for.
    let mut larger = params(SOURCE);
    larger.generation_size = 64;
    source.apply(&Snapshot { edition: 2, flows: vec![larger] }, 110 * MILLI);
    for packet in stream(&mut source, 80..250) {
        sink.receive(Some(UP), &packet, 120 * MILLI);
    }
    assert!(!sink.desk.stages.asked.is_empty() && sink.desk.delivered.len() == 80);
    sink.open(&mut opener, 121 * MILLI);
    assert_eq!(sink.desk.delivered.len(), 250, "waiting packets are delivered");
    assert_eq!(sink.pipeline.report().packets.dropped.iter().sum::<u64>(), 0);
    sink.end();
}

/// A stage once continued with memory for smaller symbols, and dropped all larger ones.
#[test]
fn symbols_that_may_be_larger_get_another_stage() {
    let of = |role, symbol_bytes| {
        let mut params = params(role);
        params.code = common::stream();
        FlowParams { symbol_bytes, ..params }
    };
    let mut source = Node::new(of(SOURCE, 160), 3);
    let mut sink = Host::new(of(SINK, 160));
    let mut opener = Opener::new(1);
    let pass = |sink: &mut Host, opener: &mut Opener, packets: Vec<Vec<u8>>, now| {
        for packet in packets {
            sink.receive(Some(UP), &packet, now);
            sink.open(opener, now);
        }
    };
    pass(&mut sink, &mut opener, stream(&mut source, 0..80), MILLI);
    assert_eq!(sink.desk.delivered, expected(0..80));
    source.apply(&Snapshot { edition: 2, flows: vec![of(SOURCE, 400)] }, 110 * MILLI);
    sink.params = of(SINK, 400);
    let new = Snapshot { edition: 2, flows: vec![sink.params.clone()] };
    sink.pipeline.apply(&new, &mut sink.frames, &mut sink.desk, 110 * MILLI);
    pass(&mut sink, &mut opener, stream(&mut source, 80..160), 120 * MILLI);
    assert_eq!(sink.desk.delivered, expected(0..160));
    sink.end();
}

/// Two packets that no single stage accepts once circulated indefinitely: the first stage took one,
/// the other waited again, and was taken out of the queue at once.
#[test]
fn packets_that_wait_for_two_stages_take_their_turns() {
    let other = FlowParams { code: common::stream(), ..params(SOURCE) };
    let mut source = Node::new(params(SOURCE), 3);
    let packets = stream(&mut source, 0..40);
    source.apply(&Snapshot { edition: 2, flows: vec![other] }, 110 * MILLI);
    let other = stream(&mut source, 40..41);
    let mut sink = Host::new(params(SINK));
    let mut opener = Opener::new(1);
    for packet in [&packets[0], &other[0]] {
        sink.receive(Some(UP), packet, MILLI);
    }
    sink.open(&mut opener, 2 * MILLI);
    assert_eq!(sink.desk.stages.asked.len(), 1, "the other one's stage is requested");
    for packet in &packets[1..] {
        sink.receive(Some(UP), packet, 3 * MILLI);
    }
    sink.open(&mut opener, 4 * MILLI);
    let mut delivered = sink.desk.delivered.clone();
    delivered.sort_by_key(|packet| packet[20..24].to_vec());
    assert_eq!(delivered, expected(0..41));
    sink.end();
}

/// Packets that waited when another worker had requested the shard first once stayed, with their
/// frames.
#[test]
fn packets_that_wait_for_a_shard_of_another_worker_follow_it() {
    let packets = stream(&mut Node::new(params(SOURCE), 3), 0..120);
    let mut sink = Host::new(params(SINK));
    for packet in &packets[..60] {
        sink.receive(Some(UP), packet, MILLI);
    }
    sink.desk.elsewhere.push(SHARD);
    sink.pipeline.elsewhere(&mut sink.frames, &mut sink.desk, SHARD, 2 * MILLI);
    assert_eq!((sink.desk.handed_over.len(), sink.frames.free()), (60, 1024));
    // That worker can take this many, no more.
    for packet in &packets[60..] {
        sink.receive(Some(UP), packet, 3 * MILLI);
    }
    assert_eq!(sink.desk.handed_over.len(), HANDED_OVER_MAX);
    assert_eq!(sink.dropped(DropReason::Opening), packets.len() as u64 - HANDED_OVER_MAX as u64);
    assert_eq!(sink.desk.stages.asked.len(), 1, "asked for what another worker has");
    sink.end();
}

#[test]
fn packets_whose_stage_never_comes_let_their_frames_go() {
    let packets = stream(&mut Node::new(params(SOURCE), 3), 0..40);
    let mut sink = Host::new(params(SINK));
    for packet in &packets {
        sink.receive(Some(UP), packet, MILLI);
    }
    assert_eq!(sink.frames.free(), 1024 - packets.len());
    let at = sink.pipeline.tick(&mut sink.frames, &mut sink.desk, 500 * MILLI);
    assert_eq!(at, Some(1001 * MILLI));
    sink.settle(1001 * MILLI);
    assert_eq!(sink.frames.free(), 1024);
    sink.end();
}

/// Packets that waited once counted as consumed, regardless of their outcome.
#[test]
fn packets_that_wait_have_their_fate_when_they_have_waited() {
    let packets = stream(&mut Node::new(params(SOURCE), 3), 0..40);
    let count = packets.len() as u64;
    let fates = |sink: &Host| {
        sink.check_fates();
        let Report { packets, waiting, .. } = sink.pipeline.report();
        let dropped = [DropReason::Opening, DropReason::NoMemory].map(|it| sink.dropped(it));
        (waiting as u64, packets.consumed + packets.handed_over, dropped)
    };
    let waiting = || {
        let mut sink = Host::new(params(SINK));
        for packet in &packets {
            sink.receive(Some(UP), packet, MILLI);
        }
        assert_eq!(fates(&sink), (count, 0, [0, 0]));
        sink
    };
    let mut sink = waiting();
    sink.settle(1001 * MILLI);
    assert_eq!(fates(&sink), (0, 0, [count, 0]), "no stage came");
    let mut sink = waiting();
    sink.pipeline.refused(&mut sink.frames, SHARD);
    assert_eq!(fates(&sink), (0, 0, [0, count]), "none will come");
    let mut sink = waiting();
    sink.open(&mut Opener::new(1), 2 * MILLI);
    let (waits, consumed, _) = fates(&sink);
    assert!(waits == 0 && consumed > 0, "{consumed} of {count}");
    let mut sink = waiting();
    sink.desk.elsewhere.push(SHARD);
    sink.pipeline.elsewhere(&mut sink.frames, &mut sink.desk, SHARD, 2 * MILLI);
    assert_eq!(fates(&sink), (0, count, [0, 0]), "another worker has it");
}

/// A few forged packets once took all memory until a restart.
#[test]
fn stages_that_prove_nothing_are_given_back() {
    let mut opener = Opener::new(1);
    let packets = stream(&mut Node::new(params(SOURCE), 3), 0..80);
    for role in [SINK, Role::Relay { upstream: UP }] {
        let is_relay = matches!(role, Role::Relay { .. });
        let mut host = Host::new(params(role));
        // A packet of a shard that the source does not use, without an IP packet in it.
        let mut forged = packets[0].clone();
        forged[3] = 9;
        forged[CODED_BYTES + INDEX_BYTES..].fill(0);
        host.receive(Some(UP), &forged, MILLI);
        host.receive(Some(UP), &packets[0], MILLI);
        host.open(&mut opener, 2 * MILLI);
        for packet in &packets[1..] {
            host.receive(Some(UP), packet, 3 * MILLI);
        }
        assert_eq!(host.pipeline.report().flows.len(), 2);
        assert!(host.pipeline.give_back(&mut host.frames, 1500 * MILLI).is_none(), "in use");
        let closed = |host: &mut Host| host.pipeline.give_back(&mut host.frames, 2500 * MILLI);
        assert!(closed(&mut host).is_some());
        // A relay recognises genuine packets by reports of the next node, and there are none here.
        assert_eq!(closed(&mut host).is_some(), is_relay);
        assert!(closed(&mut host).is_none());
        host.end();
    }
}

/// Counters of a shard once disappeared with it, and the totals that an operator sees fell.
#[test]
fn totals_of_a_flow_stay_when_its_shards_go() {
    let total = |report: &Report| -> (u64, u64) {
        let shards = report.flows.iter().map(|flow| &flow.counters);
        let counters = shards.chain(report.remainders.iter().map(|gone| &gone.counters));
        let totals = counters.map(|it| (it.received, it.ingress_packets));
        totals.fold((0, 0), |(a, b), (c, d)| (a + c, b + d))
    };
    // A relay whose shard is returned and reopened.
    let mut opener = Opener::new(1);
    let mut relay = Host::new(params(Role::Relay { upstream: UP }));
    let packets = stream(&mut Node::new(params(SOURCE), 3), 0..80);
    for (again, now) in [(0, MILLI), (1, 5000 * MILLI)] {
        for packet in &packets {
            relay.receive(Some(UP), packet, now);
            relay.open(&mut opener, now);
        }
        let all = (again + 1) * packets.len() as u64;
        assert_eq!(total(&relay.pipeline.report()), (all, 0));
        assert!(relay.pipeline.give_back(&mut relay.frames, now + 2500 * MILLI).is_some());
        assert_eq!(relay.pipeline.report().flows, []);
        assert_eq!(total(&relay.pipeline.report()), (all, 0));
    }
    // The flow is removed: nothing remains of it.
    let (frames, desk) = (&mut relay.frames, &mut relay.desk);
    let none = Snapshot { edition: 2, flows: Vec::new() };
    relay.pipeline.apply(&none, frames, desk, 9000 * MILLI);
    assert_eq!(relay.pipeline.report().remainders, []);
    relay.end();
    // A source that is changed to fewer shards.
    let mut source = Host::new(FlowParams { shards: 2, ..params(SOURCE) });
    let (shard, packet) = (ShardId { shard: 1, ..SHARD }, ip_packet(150, 1));
    source.pipeline.ingress(&mut source.frames, &mut source.desk, shard, &packet, MILLI);
    let fewer = Snapshot { edition: 2, flows: vec![params(SOURCE)] };
    source.pipeline.apply(&fewer, &mut source.frames, &mut source.desk, 2 * MILLI);
    assert_eq!(total(&source.pipeline.report()), (0, 1));
    source.settle(2 * MILLI);
    source.end();
}

#[test]
fn memory_that_is_refused_is_a_reason_and_is_asked_for_again() {
    let mut source = Node::new(params(SOURCE), 3);
    let mut sink = Host::new(params(SINK));
    let packets = stream(&mut source, 0..200);
    sink.receive(Some(UP), &packets[0], 0);
    assert_eq!(sink.desk.stages.asked.len(), 1);
    sink.pipeline.refused(&mut sink.frames, SHARD);
    for packet in &packets[1..21] {
        sink.receive(Some(UP), packet, 500 * MILLI);
    }
    assert_eq!(
        (sink.dropped(DropReason::NoMemory), sink.desk.stages.asked.len()),
        (21, 1),
        "the first had waited"
    );
    sink.receive(Some(UP), &packets[21], 1_001 * MILLI);
    assert_eq!(sink.desk.stages.asked.len(), 2, "a second later");
    sink.end();
}

/// Waiting packets are bounded, and the excess is counted.
#[test]
fn a_flood_that_waits_holds_a_bounded_number_of_frames() {
    let mut source = Node::new(params(SOURCE), 3);
    let mut sink = Host::new(params(SINK));
    for packet in stream(&mut source, 0..700) {
        sink.receive(Some(UP), &packet, MILLI);
    }
    assert!(sink.frames.free() >= 1024 - 256, "{} frames free", sink.frames.free());
    assert!(sink.dropped(DropReason::Opening) > 0);
    sink.end();
}

#[test]
fn packets_of_shards_that_another_worker_has_are_handed_over() {
    let mut source = Node::new(params(SOURCE), 3);
    let mut sink = Host::new(params(SINK));
    sink.desk.elsewhere.push(SHARD);
    let packets = stream(&mut source, 0..20);
    for packet in &packets {
        sink.receive(Some(UP), packet, MILLI);
    }
    assert_eq!(sink.desk.handed_over.len(), packets.len());
    assert_eq!(sink.desk.handed_over[0], (SHARD, UP, packets[0].len()));
    assert_eq!(sink.pipeline.report().packets.handed_over, packets.len() as u64);
    assert!(sink.desk.stages.asked.is_empty());
    sink.end();
}

#[test]
fn senders_that_are_no_neighbours_open_nothing() {
    let mut source = Node::new(params(SOURCE), 3);
    let mut sink = Host::new(params(SINK));
    let packets = stream(&mut source, 0..20);
    for peer in [None, Some(DOWN), Some(PeerId(7))] {
        sink.receive(peer, &packets[0], MILLI);
    }
    assert_eq!((sink.dropped(DropReason::UnknownPeer), sink.desk.stages.asked.len()), (3, 0));
    sink.end();
}

#[test]
fn workers_send_the_shards_of_their_share() {
    let flow = FlowParams { shards: 5, ..params(SOURCE) };
    let snapshot = Snapshot { edition: 1, flows: vec![flow] };
    let mut all = Vec::new();
    for worker in 0..3 {
        let pipeline = Pipeline::of_worker(Share { worker, workers: 3 }, &snapshot, 1);
        let shards: Vec<u8> = pipeline.report().flows.iter().map(|flow| flow.shard).collect();
        assert!(shards.iter().all(|shard| usize::from(*shard) % 3 == worker), "{shards:?}");
        all.extend(shards);
    }
    all.sort_unstable();
    assert_eq!(all, [0, 1, 2, 3, 4]);
}
