//! One node: a pipeline, its frames, its transmit ring, and the invariants that hold at every call.

use std::collections::VecDeque;
use std::hash::Hasher;

use recoded_pipeline::Pipeline;
use recoded_pipeline::egress::Egress;
use recoded_pipeline::params::{FlowParams, Nanos, PeerId, Role, Snapshot, TunnelId};
use recoded_pipeline::report::{FlowReport, Report};
use recoded_wire::feedback::{Item, items};
use recoded_wire::frames::{Frames, Span};
use recoded_wire::header::{Header, PacketType};

use crate::code::{forgets, table, unit};
use crate::frames::WatchedFrames;
use crate::random::{Random, Stream};
use crate::scenario::{FLOW, UP};
use crate::violation::Violation;

/// Packets that stay in the transmit ring while the node goes on, and must not change meanwhile.
const RING: usize = 32;

/// Rounds of repair that are answered per generation, each at most once.
const REPAIR_ROUNDS: u64 = 4;

/// What repairs may cost at most: a reserve, and one packet for so many that plans sent.
const REPAIR_RESERVE: u64 = 1024;
const PLANNED_PER_REPAIR: u64 = 2;

/// Packets that a source sends beside the plan when nothing follows; batches of the largest size,
/// at most.
const TAIL_PROBES: u64 = 5 * 128;

/// Copies of one report on one link.
const COPIES_MAX: u64 = 4;

/// Shortest time between two reports without a NACK.
const REPORT_NANOS: Nanos = 20_000_000;

/// Reports that one generation or block can cause: its requests, said three times each.
const ASKS_MAX: u64 = 3 * REPAIR_ROUNDS;

/// How often in a row a node may ask to be called again at once without sending anything.
const SPINS_MAX: usize = 16;

/// What left a node in one call.
#[derive(Default)]
struct Outputs {
    sent: Vec<(PeerId, Span)>,
    delivered: Vec<Vec<u8>>,
}

impl Egress for Outputs {
    fn transmit(&mut self, hop: PeerId, span: Span, _source_port: u16) {
        self.sent.push((hop, span));
    }

    fn deliver(&mut self, _tunnel: TunnelId, packet: &[u8]) {
        self.delivered.push(packet.to_vec());
    }
}

/// What a node was given and what came of it, counted from outside.
#[derive(Copy, Clone, Default, Debug)]
struct Observed {
    /// From the first call to the last.
    first_nanos: Option<Nanos>,
    lived_nanos: Nanos,
    received: u64,
    received_data: u64,
    /// Feedback packets, and repairs that they asked for.
    received_up: u64,
    requests: u64,
    ingress: u64,
    sent_down: u64,
    sent_up: u64,
    delivered: u64,
}

/// A node at work.
pub(crate) struct Node {
    index: usize,
    params: FlowParams,
    /// Largest generation and redundancy since it started, which its bounds follow.
    largest: (usize, f64),
    edition: u64,
    start: u32,
    pipeline: Pipeline,
    frames: WatchedFrames,
    outputs: Outputs,
    ring: VecDeque<(Span, u64)>,
    observed: Observed,
    /// Packets that found no free frame on arrival.
    pub starved: u64,
    /// When the next timer event is under way.
    pub wakes_at: Option<Nanos>,
}

/// What a call to a node yields: packets to the network, packets to the tunnel.
#[derive(Default)]
pub(crate) struct Results {
    pub sent: Vec<(PeerId, Vec<u8>)>,
    pub delivered: Vec<Vec<u8>>,
}

impl Node {
    pub(crate) fn new(
        (index, start): (usize, u32),
        params: FlowParams,
        frames: usize,
        seed: u64,
    ) -> Node {
        let snapshot = Snapshot { edition: 1, flows: vec![params.clone()] };
        let seed = Random::new(seed, Stream::Node { node: index, start }).number();
        Node {
            index,
            largest: (params.generation_size, params.redundancy_max),
            edition: 1,
            start,
            pipeline: Pipeline::new(&snapshot, seed),
            frames: WatchedFrames::new(frames, params.symbol_bytes),
            params,
            outputs: Outputs::default(),
            ring: VecDeque::with_capacity(RING + 1),
            observed: Observed::default(),
            starved: 0,
            wakes_at: None,
        }
    }

    /// Restarts with only its parameters; the state it left is checked.
    pub(crate) fn restart(&mut self, frames: usize, seed: u64) -> Result<(), Violation> {
        self.check()?;
        let next = Node::new((self.index, self.start + 1), self.params.clone(), frames, seed);
        *self = Node { starved: self.starved, ..next };
        Ok(())
    }

    /// Whether adopting `params` drops the state of the node.
    pub(crate) fn would_forget(&self, params: &FlowParams) -> bool {
        forgets(&self.params, params)
    }

    pub(crate) fn receive(
        &mut self,
        payload: &[u8],
        now: Nanos,
        results: &mut Results,
    ) -> Result<(), Violation> {
        let Some(span) = self.frames.receive(payload) else {
            self.starved += 1;
            return Ok(());
        };
        self.observed.received += 1;
        match Header::parse(payload).map(|header| header.packet_type) {
            Ok(PacketType::Feedback) => {
                let repairs = items(payload).filter(|item| matches!(item, Item::Repair(_)));
                self.observed.requests += repairs.count() as u64;
                self.observed.received_up += 1;
            }
            Ok(_) => self.observed.received_data += 1,
            Err(_) => {}
        }
        self.pipeline.receive(&mut self.frames, &mut self.outputs, span, now);
        self.collect(now, results)
    }

    pub(crate) fn ingress(
        &mut self,
        packet: &[u8],
        now: Nanos,
        results: &mut Results,
    ) -> Result<(), Violation> {
        self.observed.ingress += 1;
        self.pipeline.ingress(&mut self.frames, &mut self.outputs, FLOW, packet, now);
        self.collect(now, results)
    }

    /// Lets timers act until none is due; returns when the next one is.
    pub(crate) fn tick(
        &mut self,
        now: Nanos,
        results: &mut Results,
    ) -> Result<Option<Nanos>, Violation> {
        let mut idle = 0;
        while idle < SPINS_MAX {
            let due = self.pipeline.tick(&mut self.frames, &mut self.outputs, now);
            idle = if self.outputs.sent.is_empty() { idle + 1 } else { 0 };
            self.collect(now, results)?;
            if due.is_none_or(|due| due > now) {
                return Ok(due);
            }
        }
        Err(Violation::Spin { node: self.index, at: now })
    }

    pub(crate) fn apply(
        &mut self,
        params: FlowParams,
        now: Nanos,
        results: &mut Results,
    ) -> Result<(), Violation> {
        self.edition += 1;
        let (size, redundancy) = self.largest;
        self.largest = (size.max(params.generation_size), redundancy.max(params.redundancy_max));
        let snapshot = Snapshot { edition: self.edition, flows: vec![params.clone()] };
        self.params = params;
        self.pipeline.apply(&snapshot, &mut self.frames, &mut self.outputs, now);
        self.collect(now, results)
    }

    /// Closes what is open, as before a shutdown.
    pub(crate) fn drain(&mut self, now: Nanos, results: &mut Results) -> Result<(), Violation> {
        self.pipeline.drain(&mut self.frames, &mut self.outputs, now);
        self.collect(now, results)
    }

    pub(crate) fn report(&self) -> Report {
        self.pipeline.report()
    }

    /// Takes over what the last call emitted, and checks that it stays within bounds.
    fn collect(&mut self, now: Nanos, results: &mut Results) -> Result<(), Violation> {
        let first = *self.observed.first_nanos.get_or_insert(now);
        self.observed.lived_nanos = now - first;
        self.observed.delivered += self.outputs.delivered.len() as u64;
        results.delivered.append(&mut self.outputs.delivered);
        let mut sent = std::mem::take(&mut self.outputs.sent);
        for (hop, span) in sent.drain(..) {
            let is_up = hop == UP;
            self.observed.sent_up += u64::from(is_up);
            self.observed.sent_down += u64::from(!is_up);
            self.frames.scribble(span);
            results.sent.push((hop, self.frames.bytes(span).to_vec()));
            self.ring.push_back((span, digest(self.frames.bytes(span))));
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
            return Err(Violation::Overwritten { node: self.index });
        }
        self.frames.release(span.frame);
        Ok(())
    }

    /// Checks the node when it ends: counters, output, frames.
    pub(crate) fn check(&mut self) -> Result<(), Violation> {
        let report = self.report();
        self.check_fates(&report)?;
        for flow in &report.flows {
            self.check_counters(flow)?;
            self.check_output(flow)?;
            let room = match self.params.role {
                Role::Relay { .. } => self.params.batches.max(1),
                _ => table(&self.params),
            };
            if flow.held > room {
                return Err(Violation::Overfull { node: self.index, held: flow.held, room });
            }
        }
        while !self.ring.is_empty() {
            self.complete()?;
        }
        self.pipeline.release(&mut self.frames);
        match self.frames.held() {
            0 => Ok(()),
            frames => Err(Violation::Leaked { node: self.index, frames }),
        }
    }

    fn check_fates(&self, report: &Report) -> Result<(), Violation> {
        let packets = report.packets;
        let fates = packets.forwarded + packets.consumed + packets.dropped.iter().sum::<u64>();
        let (handed, received) = (self.observed.received, packets.received);
        if handed == received && received == fates {
            return Ok(());
        }
        Err(Violation::Unaccounted { node: self.index, handed, received, fates })
    }

    /// Holds the node's counters against what was seen to go in and out.
    fn check_counters(&self, flow: &FlowReport) -> Result<(), Violation> {
        let (counters, observed) = (&flow.counters, &self.observed);
        let judged = counters.innovative + counters.redundant;
        let sent = counters.sent_systematic
            + counters.sent_coded
            + counters.sent_forwarded
            + counters.sent_recoded;
        let laws = [
            ("packets from the tunnel", counters.ingress_packets, (observed.ingress, 0)),
            ("packets to the tunnel", counters.delivered_packets, (observed.delivered, 0)),
            // A relay counts a repair that it passes on as such, and as forwarded or recoded too.
            ("packets sent", observed.sent_down, (sent, counters.sent_repair)),
            ("packets of the flow", counters.received, (0, observed.received_data)),
            ("packets judged", judged, (0, counters.received)),
        ];
        for (what, counted, (least, more)) in laws {
            if !(least..=least + more).contains(&counted) {
                let node = self.index;
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

    /// Output is bounded by input and parameters, independent of what packets announce.
    fn check_output(&self, flow: &FlowReport) -> Result<(), Violation> {
        let observed = &self.observed;
        let (size, redundancy) = self.largest;
        // The plan of a generation (or block, in whole batches), and a repair of all of it.
        let unit = unit(&self.params.code, size) + 2 * size;
        let most = |symbols: u64| (redundancy * symbols as f64).ceil().max(1.0) as u64;
        let plan = most(unit as u64);
        let repair = plan.max(unit as u64);
        let generations = flow.counters.generations;
        let (plans, more, repairs) = match self.params.role {
            Role::Source { .. } => (
                generations * plan,
                generations * TAIL_PROBES,
                generations * REPAIR_ROUNDS * repair,
            ),
            // What a relay sends follows the rank that it received, whatever packets announce; some
            // it passes on one for one.
            Role::Relay { .. } => {
                let received = observed.received_data;
                (most(flow.counters.innovative), received, observed.requests * repair)
            }
            Role::Sink { .. } => (0, 0, 0),
        };
        let budget = REPAIR_RESERVE + (plans + more) / PLANNED_PER_REPAIR;
        let down = plans + more + repairs.min(budget);
        let reports = observed.lived_nanos / REPORT_NANOS + 2;
        let up = match self.params.role {
            Role::Source { .. } => 0,
            Role::Relay { .. } => reports + COPIES_MAX * observed.received_up,
            Role::Sink { .. } => {
                let asked = flow.counters.generations + table(&self.params) as u64;
                reports + COPIES_MAX * ASKS_MAX * asked
            }
        };
        for (sent, allowed) in [(observed.sent_down, down), (observed.sent_up, up)] {
            if sent > allowed {
                return Err(Violation::Flood { node: self.index, sent, allowed });
            }
        }
        Ok(())
    }
}

/// A fingerprint of bytes, the same in every run.
pub(crate) fn digest(bytes: &[u8]) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}
