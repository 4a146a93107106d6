//! State shared by the workers of a node: the owner of each shard, the queues between workers, and
//! the thread that creates stages.

use recoded_pipeline::egress::Answer;
use recoded_pipeline::open::{OpenRequest, Opened, Opener};
use recoded_pipeline::params::{FlowParams, Nanos, Role, ShardId, Share};
use recoded_wire::shard::SHARDS_MAX;

use crate::keys::Keys;
use crate::random::Random;
use crate::scenario::Threads;

/// The workers' common knowledge.
pub(crate) struct Crew {
    settings: FlowParams,
    threads: Threads,
    /// Largest stage that fits into memory.
    stage_bytes_max: usize,
    opener: Opener,
    random: Random,
    /// The worker that owns a shard, or requested it first.
    owners: [Option<usize>; SHARDS_MAX],
    /// Packets handed over, by the worker that they wait for.
    queued: Vec<usize>,
    pub keys: Keys,
    /// Whether hops have keys.
    pub has_hop_tags: bool,
}

impl Crew {
    pub(crate) fn new(
        settings: &FlowParams,
        workers: usize,
        threads: Threads,
        stage_bytes_max: usize,
        mut random: Random,
    ) -> Crew {
        let mut owners = [None; SHARDS_MAX];
        if matches!(settings.role, Role::Source { .. }) {
            for shard in 0..settings.shards {
                let owner = Share { worker: 0, workers }.owner(shard);
                owners[usize::from(shard)] = Some(owner);
            }
        }
        Crew {
            settings: settings.clone(),
            threads,
            stage_bytes_max,
            opener: Opener::new(random.number()),
            random,
            owners,
            queued: vec![0; workers],
            keys: Keys::default(),
            has_hop_tags: false,
        }
    }

    pub(crate) fn apply(&mut self, settings: &FlowParams) {
        self.settings = settings.clone();
    }

    /// Handles a worker's request for a stage.
    pub(crate) fn open(&mut self, worker: usize, request: &OpenRequest) -> Answer {
        let owner = &mut self.owners[usize::from(request.shard.shard)];
        if *owner.get_or_insert(worker) != worker || self.random.chance(self.threads.busy) {
            return Answer::Busy;
        }
        let is_here = self.threads.nanos_max == 0 && self.has_memory(request);
        if is_here { Answer::Here } else { Answer::Elsewhere }
    }

    fn has_memory(&self, request: &OpenRequest) -> bool {
        self.settings.with(request.sizes).memory_bytes() <= self.stage_bytes_max
    }

    /// Creates a requested stage, unless there is no memory; also returns the time that takes.
    pub(crate) fn make(&mut self, request: &OpenRequest) -> (Option<Opened>, Nanos) {
        let takes = self.random.among(0..=self.threads.nanos_max);
        let is_refused = self.random.chance(self.threads.refused) || !self.has_memory(request);
        let opened = (!is_refused).then(|| self.opener.open(request, &self.settings));
        (opened, takes)
    }

    /// Lets another worker claim a shard without a stage.
    pub(crate) fn disown(&mut self, ShardId { shard, .. }: ShardId) {
        self.owners[usize::from(shard)] = None;
    }

    /// The worker other than `worker` that has `shard`.
    pub(crate) fn owner(&self, worker: usize, shard: u8) -> Option<usize> {
        self.owners[usize::from(shard)].filter(|owner| *owner != worker)
    }

    /// Whether `worker` can accept a packet handed over.
    pub(crate) fn hand_over(&mut self, worker: usize) -> bool {
        let queued = &mut self.queued[worker];
        let takes = *queued < self.threads.queue_packets;
        *queued += usize::from(takes);
        takes
    }

    /// A packet has left the queue of `worker`.
    pub(crate) fn taken_over(&mut self, worker: usize) {
        self.queued[worker] -= 1;
    }
}
