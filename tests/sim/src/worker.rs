//! One worker of a node: a pipeline, its transmit ring, and the invariants that hold at every call.

use std::collections::VecDeque;
use std::hash::Hasher;

use recoded_pipeline::egress::{Answer, Egress, HandOver, Origin, Outer};
use recoded_pipeline::open::{OpenRequest, Opened};
use recoded_pipeline::params::{
    FlowParams, Nanos, PeerId, Role, ShardId, Share, Snapshot, TunnelId,
};
use recoded_pipeline::report::{FlowReport, Report};
use recoded_pipeline::{Datagram, Pipeline};
use recoded_wire::feedback::{Item, items};
use recoded_wire::frames::{Frames, Span};
use recoded_wire::header::{Header, PacketType};

use crate::code::Bounds;
use crate::crew::Crew;
use crate::frames::{WatchedFrames, scribble, watched};
use crate::hops::{Hops, WorkerTotals};
use crate::keys::Keys;
use crate::results::{HandedOver, Results, Sent};
use crate::traffic::is_up;
use crate::violation::Violation;

/// Packets that stay in the transmit ring after a call, and must not change meanwhile.
const RING: usize = 32;

/// Rounds of repair that are answered per generation, each at most once.
const REPAIR_ROUNDS: u64 = 4;

/// Budget for repairs of a shard: a reserve, plus one packet per `PLANNED_PER_REPAIR` planned
/// packets.
const REPAIR_RESERVE: u64 = 1024;
const PLANNED_PER_REPAIR: u64 = 2;

/// Packets that a source sends in addition to the plan when no traffic follows; at most batches of
/// the largest size.
const TAIL_PROBES: u64 = 5 * 128;

/// Copies of one report on one link.
const COPIES_MAX: u64 = 4;

/// Shortest time between two reports without a NACK.
const REPORT_NANOS: Nanos = 20_000_000;

/// Reports that one generation or block can cause: its requests, sent three times each.
const ASKS_MAX: u64 = 3 * REPAIR_ROUNDS;

/// How often in a row a worker may request another call at once without sending anything.
const SPINS_MAX: usize = 16;

/// Output of a worker in one call.
#[derive(Default)]
struct Outputs {
    sent: Vec<(PeerId, u16, Span)>,
    delivered: Vec<Vec<u8>>,
    handed_over: Vec<HandedOver>,
    asked: Vec<OpenRequest>,
}

/// Environment of a worker: its outputs, and the other workers of its node.
struct Outside<'a> {
    outputs: &'a mut Outputs,
    crew: &'a mut Crew,
    worker: usize,
}

impl Egress for Outside<'_> {
    type Keys = Keys;

    fn keys(&mut self) -> Option<&mut Keys> {
        Some(&mut self.crew.keys)
    }

    fn is_authenticated(&self, _peer: PeerId) -> bool {
        self.crew.has_hop_tags
    }

    fn transmit(&mut self, hop: PeerId, span: Span, outer: Outer) {
        self.outputs.sent.push((hop, outer.source_port, span));
    }

    fn deliver(&mut self, _tunnel: TunnelId, packet: &[u8]) {
        self.outputs.delivered.push(packet.to_vec());
    }

    fn open(&mut self, request: &OpenRequest) -> Answer {
        let answer = self.crew.open(self.worker, request);
        if answer == Answer::Elsewhere {
            self.outputs.asked.push(*request);
        }
        answer
    }

    fn hand_over(&mut self, shard: ShardId, origin: Origin, payload: &[u8]) -> HandOver {
        let Origin { peer, .. } = origin;
        let Some(worker) = self.crew.owner(self.worker, shard.shard) else {
            return HandOver::Unowned;
        };
        if !self.crew.hand_over(worker) {
            return HandOver::Full;
        }
        self.outputs.handed_over.push(HandedOver { worker, peer, payload: payload.to_vec() });
        HandOver::Taken
    }
}

/// Input and output of a worker, counted from outside.
#[derive(Clone, Default, Debug)]
struct Observed {
    /// From the first call to the last.
    first_nanos: Option<Nanos>,
    lived_nanos: Nanos,
    received: u64,
    received_data: u64,
    /// Feedback packets, and the repairs that they requested.
    received_up: u64,
    requests: u64,
    ingress: u64,
    sent_down: u64,
    sent_up: u64,
    delivered: u64,
    handed_over: u64,
    hops: Hops,
}

/// State outside a worker that its calls use.
pub(crate) struct WorkerContext<'a> {
    /// The rest of its node.
    pub crew: &'a mut Crew,
    /// The present time.
    pub now: Nanos,
    /// Output of the call.
    pub results: &'a mut Results,
}

/// A worker.
pub(crate) struct Worker {
    /// Node and worker.
    place: (usize, usize),
    role: Role,
    generations: usize,
    /// Next hops, and neighbours before it; at least one each.
    fans: (u64, u64),
    bounds: Bounds,
    pipeline: Pipeline,
    frames: WatchedFrames,
    outputs: Outputs,
    ring: VecDeque<(Span, u64)>,
    observed: Observed,
    /// Packets that found no free frame on arrival.
    pub starved: u64,
    /// Time of the pending timer event.
    pub wakes_at: Option<Nanos>,
}

impl Worker {
    pub(crate) fn new(
        node: usize,
        share: Share,
        params: &FlowParams,
        frames: usize,
        bounds: Bounds,
        seed: u64,
    ) -> Worker {
        let snapshot = Snapshot { edition: 1, flows: vec![params.clone()] };
        Worker {
            place: (node, share.worker),
            role: params.role.clone(),
            generations: params.generations,
            fans: (params.next_hops.len().max(1) as u64, params.upstreams().count().max(1) as u64),
            bounds,
            pipeline: Pipeline::of_worker(share, &snapshot, seed),
            frames: watched(frames, params.symbol_bytes),
            outputs: Outputs::default(),
            ring: VecDeque::with_capacity(RING + 1),
            observed: Observed::default(),
            starved: 0,
            wakes_at: None,
        }
    }

    /// Calls the pipeline, and collects its output.
    fn call<T>(
        &mut self,
        context: WorkerContext<'_>,
        work: impl FnOnce(&mut Pipeline, &mut WatchedFrames, &mut Outside<'_>) -> T,
    ) -> Result<T, Violation> {
        let WorkerContext { crew, now, results } = context;
        let worker = self.place.1;
        let mut outside = Outside { outputs: &mut self.outputs, crew, worker };
        let result = work(&mut self.pipeline, &mut self.frames, &mut outside);
        self.collect(now, results)?;
        Ok(result)
    }

    pub(crate) fn receive(
        &mut self,
        context: WorkerContext<'_>,
        peer: PeerId,
        payload: &[u8],
    ) -> Result<(), Violation> {
        let now = context.now;
        let Some(span) = self.frames.receive(payload) else {
            self.starved += 1;
            return Ok(());
        };
        self.observed.received += 1;
        self.observed.hops.note_received(peer, payload);
        match Header::parse(payload).map(|header| header.packet_type) {
            Ok(PacketType::Feedback) => {
                let nacks = items(payload).filter(|item| matches!(item, Item::Nack(_)));
                self.observed.requests += nacks.count() as u64;
                self.observed.received_up += 1;
            }
            Ok(PacketType::Link) => {}
            Ok(_) => self.observed.received_data += 1,
            Err(_) => {}
        }
        self.call(context, |pipeline, frames, outside| {
            pipeline.receive(frames, outside, Datagram::best_effort(Some(peer), span), now);
        })
    }

    pub(crate) fn ingress(
        &mut self,
        context: WorkerContext<'_>,
        shard: ShardId,
        packet: &[u8],
    ) -> Result<(), Violation> {
        let now = context.now;
        self.observed.ingress += 1;
        self.call(context, |pipeline, frames, outside| {
            pipeline.ingress(frames, outside, shard, packet, now);
        })
    }

    /// Whether an IP packet may enter; otherwise when to try again, if that is known.
    pub(crate) fn opens_at(&mut self, shard: ShardId, now: Nanos) -> Result<(), Option<Nanos>> {
        self.pipeline.opens_at(shard, now)
    }

    /// Lets timers act until none is due; returns when the next one is.
    pub(crate) fn tick(&mut self, context: WorkerContext<'_>) -> Result<Option<Nanos>, Violation> {
        let WorkerContext { crew, now, results } = context;
        let mut idle = 0;
        while idle < SPINS_MAX {
            let sent = self.observed.sent_down + self.observed.sent_up;
            let context = WorkerContext { crew, now, results };
            let due = self.call(context, |pipeline, frames, outside| {
                drop(pipeline.retire(frames, now));
                pipeline.tick(frames, outside, now)
            })?;
            let has_sent = self.observed.sent_down + self.observed.sent_up > sent;
            idle = if has_sent { 0 } else { idle + 1 };
            if due.is_none_or(|due| due > now) {
                return Ok(due);
            }
        }
        Err(Violation::Spin { node: self.place.0, at: now })
    }

    pub(crate) fn apply(
        &mut self,
        context: WorkerContext<'_>,
        snapshot: &Snapshot,
    ) -> Result<(), Violation> {
        let now = context.now;
        self.call(context, |pipeline, frames, outside| {
            pipeline.apply(snapshot, frames, outside, now);
        })
    }

    /// Adopts a requested stage; `None` if there is no memory for it.
    pub(crate) fn opened(
        &mut self,
        context: WorkerContext<'_>,
        shard: ShardId,
        opened: Option<Opened>,
    ) -> Result<(), Violation> {
        let now = context.now;
        self.call(context, |pipeline, frames, outside| match opened {
            Some(opened) => drop(pipeline.opened(frames, outside, opened, now)),
            None => pipeline.refused(frames, shard),
        })
    }

    /// Closes all open units, as before a shutdown.
    pub(crate) fn drain(&mut self, context: WorkerContext<'_>) -> Result<(), Violation> {
        let now = context.now;
        self.call(context, |pipeline, frames, outside| {
            pipeline.drain(frames, outside, now);
        })
    }

    pub(crate) fn report(&self) -> Report {
        self.pipeline.report()
    }

    /// Collects the output of the last call.
    fn collect(&mut self, now: Nanos, results: &mut Results) -> Result<(), Violation> {
        let first = *self.observed.first_nanos.get_or_insert(now);
        self.observed.lived_nanos = now - first;
        self.observed.delivered += self.outputs.delivered.len() as u64;
        self.observed.handed_over += self.outputs.handed_over.len() as u64;
        results.delivered.append(&mut self.outputs.delivered);
        results.handed_over.append(&mut self.outputs.handed_over);
        let worker = self.place.1;
        results.asked.extend(self.outputs.asked.drain(..).map(|request| (worker, request)));
        let mut sent = std::mem::take(&mut self.outputs.sent);
        for (hop, source_port, span) in sent.drain(..) {
            let is_up = is_up(hop);
            self.observed.sent_up += u64::from(is_up);
            self.observed.sent_down += u64::from(!is_up);
            scribble(&mut self.frames, span);
            let payload = self.frames.bytes(span).to_vec();
            self.observed.hops.note_sent(&payload);
            self.ring.push_back((span, digest(&payload)));
            results.sent.push(Sent { hop, source_port, payload });
            if self.ring.len() > RING {
                self.complete()?;
            }
        }
        self.outputs.sent = sent;
        Ok(())
    }

    /// The oldest packet in the transmit ring has left.
    fn complete(&mut self) -> Result<(), Violation> {
        let Some((span, before)) = self.ring.pop_front() else { return Ok(()) };
        if digest(self.frames.bytes(span)) != before {
            return Err(Violation::Overwritten { node: self.place.0 });
        }
        self.frames.release(span.frame);
        Ok(())
    }

    /// Checks the worker when it ends: counters, output, frames.
    pub(crate) fn check(&mut self) -> Result<(), Violation> {
        let report = self.report();
        self.check_fates(&report)?;
        self.check_counters(&report.flows)?;
        self.check_output(&report.flows)?;
        let room = match self.role {
            Role::Relay { .. } => Some(self.bounds.relay_stages * self.generations.max(1)),
            _ => self.bounds.room,
        };
        let held = report.flows.iter().map(|flow| flow.held).max().unwrap_or(0);
        if let Some(room) = room.filter(|room| held > *room) {
            return Err(Violation::Overfull { node: self.place.0, held, room });
        }
        while !self.ring.is_empty() {
            self.complete()?;
        }
        self.pipeline.release(&mut self.frames);
        match self.frames.held() {
            0 => Ok(()),
            frames => Err(Violation::Leaked { node: self.place.0, frames }),
        }
    }

    fn check_fates(&self, report: &Report) -> Result<(), Violation> {
        let packets = report.packets;
        let kept = packets.forwarded + packets.consumed + packets.handed_over;
        let fates = kept + packets.dropped.iter().sum::<u64>() + report.waiting as u64;
        let (handed, received) = (self.observed.received, packets.received);
        if handed == received && received == fates {
            return Ok(());
        }
        Err(Violation::Unaccounted { node: self.place.0, handed, received, fates })
    }

    /// Compares the worker's counters with its observed input and output.
    fn check_counters(&self, flows: &[FlowReport]) -> Result<(), Violation> {
        let observed = &self.observed;
        let (mut judged, mut sent, mut received) = (0, 0, 0);
        let (mut ingress, mut delivered, mut repairs) = (0, 0, 0);
        for FlowReport { counters, .. } in flows {
            judged += counters.innovative + counters.redundant;
            sent += counters.sent_systematic
                + counters.sent_coded
                + counters.sent_forwarded
                + counters.sent_recoded
                + counters.sent_keepalive
                + counters.sent_probe;
            received += counters.received;
            ingress += counters.ingress_packets;
            delivered += counters.delivered_packets;
            repairs += counters.sent_repair;
        }
        let handed_over = self.pipeline.report().packets.handed_over;
        // A packet of generations may go to each next hop, and is counted once.
        let next = self.fans.0;
        let laws = [
            ("packets from the tunnel", ingress, (observed.ingress, 0)),
            ("packets to the tunnel", delivered, (observed.delivered, 0)),
            // A relay counts a repair that it forwards both as a repair and as forwarded or
            // recoded.
            ("packets sent", observed.sent_down, (sent, repairs + (next - 1) * (sent + repairs))),
            ("packets of the flow", received, (0, observed.received_data)),
            ("packets judged", judged, (0, received)),
            ("packets handed over", handed_over, (observed.handed_over, 0)),
        ];
        for (what, counted, (least, more)) in laws {
            if !(least..=least + more).contains(&counted) {
                let node = self.place.0;
                return Err(Violation::Miscounted {
                    node,
                    what,
                    counted,
                    least,
                    most: least + more,
                });
            }
        }
        Ok(())
    }

    /// Output is bounded by input and parameters, whatever packets announce.
    fn check_output(&self, flows: &[FlowReport]) -> Result<(), Violation> {
        let observed = &self.observed;
        let Bounds { unit, redundancy, combinations, table, .. } = self.bounds;
        // The plan of a generation (or block, in whole batches), and a repair of all of it.
        let most = |symbols: u64| (redundancy * symbols as f64).ceil().max(1.0) as u64;
        let plan = most(unit as u64);
        let repair = plan.max(unit as u64);
        let generations: u64 = flows.iter().map(|flow| flow.counters.generations).sum();
        let shards = flows.len() as u64;
        let (plans, more, repairs) = match self.role {
            Role::Source { .. } => (
                generations * plan,
                generations * TAIL_PROBES,
                generations * REPAIR_ROUNDS * repair,
            ),
            // A relay sends according to the rank that it received, whatever packets announce; some
            // packets it forwards one for one.
            Role::Relay { .. } => {
                let recoded = flows.iter().map(|flow| most(flow.counters.innovative)).sum();
                (recoded, observed.received_data, observed.requests * repair)
            }
            Role::Sink { .. } => (0, 0, 0),
        };
        let budget = REPAIR_RESERVE * shards + (plans + more) / PLANNED_PER_REPAIR;
        let symbols = match self.role {
            Role::Source { .. } => flows.iter().map(|flow| flow.counters.source_symbols).sum(),
            Role::Relay { .. } => flows.iter().map(|flow| flow.counters.innovative).sum(),
            Role::Sink { .. } => 0,
        };
        let hops = &observed.hops;
        // Replacements for packets that the next node lacks.
        let mended = if hops.is_mended() { REPAIR_RESERVE * shards + symbols } else { 0 };
        let down = plans + more + repairs.min(budget) + mended;
        let reports = shards * (observed.lived_nanos / REPORT_NANOS + 2);
        let up = match self.role {
            Role::Source { .. } => 0,
            Role::Relay { .. } => reports + COPIES_MAX * observed.received_up,
            Role::Sink { .. } => {
                let asked = generations + shards * table as u64;
                reports + COPIES_MAX * ASKS_MAX * asked
            }
        };
        let coded = observed.sent_down - hops.keepalives() - hops.repairs();
        // All of it may go to each next hop, and all reports to each neighbour before it.
        let (next, before) = self.fans;
        let laws = [(coded, next * down), (observed.sent_up - hops.reports(), before * up)];
        let worker = WorkerTotals {
            symbols,
            requests: observed.requests.min(budget),
            shards,
            lived: observed.lived_nanos,
            combinations,
        };
        let hops = hops.laws(&worker, next, before);
        for (sent, allowed) in laws.into_iter().chain(hops) {
            if sent > allowed {
                return Err(Violation::Flood { node: self.place.0, sent, allowed });
            }
        }
        Ok(())
    }
}

/// A fingerprint of bytes, the same in every run.
fn digest(bytes: &[u8]) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}
