//! One node: its workers, and how packets are spread over them.

use std::hash::{DefaultHasher, Hash, Hasher};

use recoded_pipeline::open::{OpenRequest, Opened};
use recoded_pipeline::params::{FlowParams, Nanos, PeerId, Role, ShardId, Share, Snapshot};
use recoded_pipeline::report::Report;

use crate::code::Bounds;
use crate::crew::Crew;
use crate::keys::Keys;
use crate::random::{Random, Stream};
use crate::results::{HandedOver, Results};
use crate::scenario::Threads;
use crate::traffic::FLOW;
use crate::violation::Violation;
use crate::worker::{Worker, WorkerContext};

/// Construction data of a node apart from its parameters.
#[derive(Copy, Clone)]
pub(crate) struct Make {
    /// Which node, 0 for the source.
    pub index: usize,
    pub workers: usize,
    /// Of each worker.
    pub frames: usize,
    pub threads: Threads,
    pub bounds: Bounds,
    pub hop_tags: bool,
    pub seed: u64,
}

/// A node at work.
pub(crate) struct Node {
    make: Make,
    /// How often it was restarted.
    pub start: u32,
    params: FlowParams,
    edition: u64,
    pub workers: Vec<Worker>,
    crew: Crew,
    /// Changes where packets go.
    hash_key: u64,
    starved: u64,
}

impl Node {
    pub(crate) fn new(make: Make, start: u32, params: FlowParams) -> Node {
        let mut random = Random::new(make.seed, Stream::Node { node: make.index, start });
        let worker = |worker| {
            let share = Share { worker, workers: make.workers };
            let Make { index, frames, bounds, .. } = make;
            Worker::new(index, share, &params, frames, bounds, random.number())
        };
        let workers = (0..make.workers).map(worker).collect();
        let stage_bytes_max = make.bounds.stage_bytes;
        let mut crew = Crew::new(&params, make.workers, make.threads, stage_bytes_max, random);
        let is_relay = matches!(params.role, Role::Relay { .. });
        crew.has_hop_tags = make.hop_tags;
        crew.keys = Keys::new(make.seed, is_relay.then_some(make.index), params.strict);
        Node { start, workers, crew, params, edition: 1, hash_key: 0, starved: 0, make }
    }

    /// Restarts with only its parameters; the state it left is checked.
    pub(crate) fn restart(&mut self) -> Result<(), Violation> {
        self.check()?;
        let mut next = Node::new(self.make, self.start + 1, self.params.clone());
        next.crew.keys = std::mem::take(&mut self.crew.keys);
        *self = Node { starved: self.starved(), hash_key: self.hash_key, ..next };
        Ok(())
    }

    /// The source has other keys of tags.
    pub(crate) fn renew_tags(&mut self) {
        self.crew.keys.renew_tags();
    }

    /// From now on packets go to other workers.
    pub(crate) fn rehash(&mut self) {
        self.hash_key += 1;
    }

    /// The worker whose queue receives a packet with this source port.
    pub(crate) fn steer(&self, peer: PeerId, source_port: u16) -> usize {
        let mut hasher = DefaultHasher::new();
        (self.hash_key, peer, source_port).hash(&mut hasher);
        hasher.finish() as usize % self.workers.len()
    }

    pub(crate) fn receive(
        &mut self,
        worker: usize,
        peer: PeerId,
        payload: &[u8],
        now: Nanos,
        results: &mut Results,
    ) -> Result<(), Violation> {
        self.workers[worker].receive(
            WorkerContext { crew: &mut self.crew, now, results },
            peer,
            payload,
        )
    }

    /// Takes a packet that another worker handed over.
    pub(crate) fn take_over(
        &mut self,
        HandedOver { worker, peer, payload }: HandedOver,
        now: Nanos,
        results: &mut Results,
    ) -> Result<(), Violation> {
        self.crew.taken_over(worker);
        self.receive(worker, peer, &payload, now, results)
    }

    /// Whether an IP packet of a shard may enter; otherwise when to try again, if that is known.
    pub(crate) fn opens_at(&mut self, shard: u8, now: Nanos) -> Result<(), Option<Nanos>> {
        let worker = Share { worker: 0, workers: self.workers.len() }.owner(shard);
        self.workers[worker].opens_at(ShardId { flow: FLOW, shard }, now)
    }

    /// Takes an IP packet of a shard. Returns the worker that sends it.
    pub(crate) fn ingress(
        &mut self,
        shard: u8,
        packet: &[u8],
        now: Nanos,
        results: &mut Results,
    ) -> Result<usize, Violation> {
        let worker = Share { worker: 0, workers: self.workers.len() }.owner(shard);
        let shard = ShardId { flow: FLOW, shard };
        self.workers[worker].ingress(
            WorkerContext { crew: &mut self.crew, now, results },
            shard,
            packet,
        )?;
        Ok(worker)
    }

    /// Runs timers of a worker until none is due; returns when the next one is.
    pub(crate) fn tick(
        &mut self,
        worker: usize,
        now: Nanos,
        results: &mut Results,
    ) -> Result<Option<Nanos>, Violation> {
        self.workers[worker].tick(WorkerContext { crew: &mut self.crew, now, results })
    }

    pub(crate) fn apply(
        &mut self,
        params: FlowParams,
        now: Nanos,
        results: &mut Results,
    ) -> Result<(), Violation> {
        self.edition += 1;
        self.crew.apply(&params);
        let snapshot = Snapshot { edition: self.edition, flows: vec![params.clone()] };
        self.params = params;
        for worker in &mut self.workers {
            worker.apply(WorkerContext { crew: &mut self.crew, now, results }, &snapshot)?;
        }
        Ok(())
    }

    /// Creates a stage; also returns the time that takes.
    pub(crate) fn make(&mut self, request: &OpenRequest) -> (Option<Opened>, Nanos) {
        self.crew.make(request)
    }

    /// Gives a worker its requested stage; `None` if there is no memory for it.
    pub(crate) fn opened(
        &mut self,
        worker: usize,
        shard: ShardId,
        opened: Option<Opened>,
        now: Nanos,
        results: &mut Results,
    ) -> Result<(), Violation> {
        let has_shard =
            |worker: &Worker| worker.report().flows.iter().any(|flow| flow.shard == shard.shard);
        if opened.is_none() && !has_shard(&self.workers[worker]) {
            self.crew.disown(shard);
        }
        self.workers[worker].opened(
            WorkerContext { crew: &mut self.crew, now, results },
            shard,
            opened,
        )
    }

    /// Closes all open units, as before a shutdown.
    pub(crate) fn drain(&mut self, now: Nanos, results: &mut Results) -> Result<(), Violation> {
        for worker in &mut self.workers {
            worker.drain(WorkerContext { crew: &mut self.crew, now, results })?;
        }
        Ok(())
    }

    /// Combined report of its workers.
    pub(crate) fn report(&self) -> Report {
        let mut workers = self.workers.iter().map(Worker::report);
        let first = workers.next().expect("a node has a worker");
        let mut all = workers.fold(first, |mut all, report| {
            all.packets += &report.packets;
            all.waiting += report.waiting;
            all.flows.extend(report.flows);
            all.remainders.extend(report.remainders);
            all
        });
        all.flows.sort_by_key(|flow| flow.shard);
        all
    }

    /// Packets that found no free frame on arrival.
    pub(crate) fn starved(&self) -> u64 {
        self.starved + self.workers.iter().map(|worker| worker.starved).sum::<u64>()
    }

    /// Checks the node when it ends.
    pub(crate) fn check(&mut self) -> Result<(), Violation> {
        self.workers.iter_mut().try_for_each(Worker::check)
    }
}
