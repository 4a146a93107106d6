//! Feeds the sources of a worker. A packet goes from the tunnel to the pipeline while its coded
//! packets can leave; otherwise it waits in the queue of the tunnel ([`crate::queue`]).
//!
//! ```text
//!                 gate open, nothing waits
//!  tunnel -> intake ---------------------> pipeline
//!                `--> queue (FQ-CoDel) -----^ gate open
//! ```
//!
//! The tunnel is read while the gate is shut, too: Linux's queue is one line for all flows, in
//! which packets wait behind those of a fast sender. It is read at a bounded pace, so that a sender
//! that does not slow down takes little of the core; Linux drops packets that exceed the pace.

use super::{RETRY_NANOS, Worker, WorkerState};
use crate::arrived::BURST_PACKETS;
use crate::intake::{Intake, Taken};
use crate::port::Port;
use crate::tunnel::Tunnel;
use recoded_counters::tunnel::{QueueDrop, TunnelCounters};
use recoded_pipeline::params::{Nanos, PeerId, Role, ShardId, Snapshot};

/// A flow that this worker feeds from a tunnel.
pub(crate) struct Source {
    pub(crate) flow: u32,
    pub(crate) tunnel: usize,
    /// Shards of the flow. Queue `q` of the tunnel is read into shard `q % shards`.
    pub(crate) shards: u8,
    /// The shards of this worker.
    pub(crate) own_shards: Vec<u8>,
    /// The queues of this worker's shards.
    pub(crate) intake: Intake,
    /// Links that its packets leave by.
    pub(crate) links: Vec<usize>,
    /// Neighbours that its packets leave to.
    pub(crate) next_hops: Vec<PeerId>,
    /// Not read before this time, because a read failed.
    pub(crate) failed_until: Nanos,
    /// Not read before this time while the gate is shut, because it was just read.
    pub(crate) paced_until: Nanos,
}

/// Whether packets of a source can leave.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Gate {
    Open,
    /// Not before this time.
    Until(Nanos),
}

impl Worker {
    /// Passes packets of a tunnel to the pipeline, or queues them. False if there were none.
    pub(crate) fn read_tunnel(&mut self, index: usize, now: Nanos) -> bool {
        let mut worked = self.fill(index, now);
        for _ in 0..BURST_PACKETS {
            if self.gate(index, now) != Gate::Open || !self.feed(index, now) {
                break;
            }
            worked = true;
        }
        self.state.dirty |= self.state.sources[index].failed_until > now;
        self.outbox.flush(&mut self.umem, &mut self.ports);
        worked
    }

    /// Reads a burst into the queue, unless packets may bypass it. Returns whether there were any.
    fn fill(&mut self, index: usize, now: Nanos) -> bool {
        let gate = self.gate(index, now);
        let readable_at = self.readable_at(index, gate, now);
        let WorkerState { sources, queues, .. } = &mut self.state;
        let source = &mut sources[index];
        let queue = &mut queues[source.tunnel];
        if readable_at > now || gate == Gate::Open && queue.is_empty() {
            return false;
        }
        let counters = &mut self.outbox.tunnel_counters[source.tunnel];
        let tunnel = &self.tunnels[source.tunnel];
        let mut worked = false;
        let reads = !self.shared.leave.is_begun();
        for _ in 0..BURST_PACKETS {
            let taken = source.take(tunnel, reads, now, counters);
            let Some((tunnel_queue, packet)) = taken else { break };
            queue.push(tunnel_queue, packet, now, counters);
            worked = true;
        }
        if worked {
            let shards = source.own_shards.iter();
            let (mut round_trip, mut lacks_paths) = (0, false);
            for shard in shards.map(|shard| ShardId { flow: source.flow, shard: *shard }) {
                round_trip = self.pipeline.path_round_trip(shard).max(round_trip);
                lacks_paths |= self.pipeline.lacks_paths(shard);
            }
            queue.follow(round_trip, lacks_paths, now);
            source.paced_until = now + PACE_NANOS;
        }
        worked
    }

    /// Passes one packet to the pipeline: a waiting one first, otherwise one from the tunnel. False
    /// if there is none.
    fn feed(&mut self, index: usize, now: Nanos) -> bool {
        let readable_at = self.readable_at(index, Gate::Open, now);
        let WorkerState { sources, queues, .. } = &mut self.state;
        let source = &mut sources[index];
        let (flow, shards) = (source.flow, usize::from(source.shards));
        let queue = &mut queues[source.tunnel];
        let counters = &mut self.outbox.tunnel_counters[source.tunnel];
        let reads = !self.shared.leave.is_begun();
        let taken = if !queue.is_empty() {
            queue.pop(now, counters)
        } else if readable_at <= now {
            source.take(&self.tunnels[source.tunnel], reads, now, counters)
        } else {
            None
        };
        let Some((queue, packet)) = taken else { return false };
        let shard = ShardId { flow, shard: (queue % shards) as u8 };
        self.pipeline.ingress(&mut self.umem, &mut self.outbox, shard, packet, now);
        true
    }

    /// When the tunnel of a source may be read.
    fn readable_at(&self, source: usize, gate: Gate, now: Nanos) -> Nanos {
        let Source { flow, tunnel, intake, failed_until, paced_until, next_hops, .. } =
            &self.state.sources[source];
        match gate {
            _ if self.tunnels[*tunnel].is_gone() => Nanos::MAX,
            _ if self.shared.leave.is_begun() && !intake.is_pending() => Nanos::MAX,
            _ if now < KEYS_NANOS && self.outbox.guard.lacks_keys(*flow, next_hops) => {
                now + KEYS_PAUSE_NANOS
            }
            Gate::Open => *failed_until,
            Gate::Until(_) => *failed_until.max(paced_until),
        }
    }

    /// When a worker that is about to sleep must wake for its sources; `None` if there is work at
    /// once. Records the sources to wait on.
    pub(crate) fn sources_wake_at(&mut self, now: Nanos) -> Option<Nanos> {
        let mut wake_at = Nanos::MAX;
        self.state.readable.clear();
        for index in 0..self.state.sources.len() {
            let gate = self.gate(index, now);
            let readable_at = self.readable_at(index, gate, now);
            let Source { tunnel, intake, .. } = &self.state.sources[index];
            let is_waiting = !self.state.queues[*tunnel].is_empty();
            match gate {
                // The gate has opened meanwhile, and no poll reports that.
                Gate::Open if is_waiting => return None,
                Gate::Until(at) if is_waiting => wake_at = wake_at.min(at),
                _ => {}
            }
            if readable_at > now {
                wake_at = wake_at.min(readable_at);
            } else if intake.is_pending() {
                return None;
            } else {
                self.state.readable.push(index);
            }
        }
        Some(wake_at)
    }

    /// Whether all packets read from tunnels are known to have arrived at the next hops and had
    /// time to go further.
    fn has_left(&mut self, now: Nanos) -> bool {
        let begun = *self.state.leaves_from.get_or_insert(now);
        let mut round_trip = 0;
        let mut waits =
            self.outbox.len() > 0 || self.ports.iter_mut().flatten().any(|it| it.unsent() > 0);
        for Source { flow, tunnel, intake, own_shards, .. } in &self.state.sources {
            waits |= intake.is_pending() || !self.state.queues[*tunnel].is_empty();
            for shard in own_shards {
                let shard = ShardId { flow: *flow, shard: *shard };
                round_trip = self.pipeline.path_round_trip(shard).max(round_trip);
                waits |= !self.pipeline.is_settled(shard, now);
            }
        }
        if self.state.sources.is_empty() {
            return !waits;
        }
        let patience = (LEAVE_ROUND_TRIPS * round_trip).clamp(LEAVE_NANOS, LEAVE_NANOS_MAX);
        now >= begun + if waits { LEAVE_NANOS_MAX } else { patience }
    }

    /// Records once that another process may take over, while one is about to.
    pub(crate) fn look_at_leaving(&mut self, now: Nanos) {
        if self.shared.leave.is_begun() && self.has_left(now) {
            self.shared.leave.note_done(self.index);
        }
    }

    /// Whether packets of a source can leave: every link of its flow can take them.
    fn gate(&mut self, source: usize, now: Nanos) -> Gate {
        let Source { flow, own_shards, .. } = &self.state.sources[source];
        for shard in own_shards {
            let shard = ShardId { flow: *flow, shard: *shard };
            if let Err(at) = self.pipeline.opens_at(shard, now) {
                return Gate::Until(at.unwrap_or(Nanos::MAX));
            }
        }
        for link in &self.state.sources[source].links {
            let opens_at = self.pacers[*link].opens_at();
            if opens_at > now {
                return Gate::Until(opens_at);
            }
            // Packets on an interface that is gone cannot be sent.
            let port = self.ports[*link].as_ref();
            let pending = port.filter(|_| self.is_present(*link)).map_or(0, Port::pending);
            if pending + self.outbox.len() > TX_BACKLOG_PACKETS {
                return Gate::Until(now + RETRY_NANOS);
            }
        }
        let frames = self.umem.gauge();
        if frames.free < frames.total / FREE_PART {
            return Gate::Until(now + RETRY_NANOS);
        }
        Gate::Open
    }

    /// The sources whose shards this worker sends. A remaining source keeps the packets it has
    /// read, and the waiting ones.
    pub(crate) fn sources(&mut self, snapshot: &Snapshot) -> Vec<Source> {
        let mut before = std::mem::take(&mut self.state.sources);
        let share = self.outbox.whereabouts.share;
        let mut sources = Vec::new();
        for flow in &snapshot.flows {
            let Role::Source { tunnel } = flow.role else { continue };
            let (tunnel, shards) = (usize::from(tunnel.0), flow.shards.max(1));
            let is_ours = |queue: &usize| {
                let shard = (queue % usize::from(shards)) as u8;
                share.owner(shard) == share.worker
            };
            let queues = (0..self.tunnels[tunnel].queues()).filter(is_ours);
            let same = before
                .iter()
                .position(|old| old.tunnel == tunnel && old.intake.queues().eq(queues.clone()));
            let intake = match same {
                Some(index) => before.swap_remove(index).intake,
                None => Intake::new(queues),
            };
            if intake.queues().next().is_none() {
                continue;
            }
            sources.push(Source {
                flow: flow.id,
                tunnel,
                shards,
                own_shards: share.sends(shards).collect(),
                intake,
                links: flow
                    .next_hops
                    .iter()
                    .map(|peer| self.hop_links[usize::from(peer.0)])
                    .collect(),
                next_hops: flow.next_hops.clone(),
                failed_until: 0,
                paced_until: 0,
            });
        }
        before.into_iter().for_each(|source| self.close(source));
        sources
    }

    /// Drops packets read for a removed source.
    pub(crate) fn close(&mut self, mut source: Source) {
        let counters = &mut self.outbox.tunnel_counters[source.tunnel];
        let (packets, bytes) = source.intake.discard();
        counters.read_packets += packets;
        counters.read_bytes += bytes;
        counters.queued_packets += packets;
        counters.drop_queued(QueueDrop::Closed, packets);
        self.state.queues[source.tunnel].clear(counters);
    }
}

impl Source {
    /// The next packet of the tunnel, and the queue it was read from: from the last read, or from
    /// another one if it `reads`.
    #[inline]
    fn take(
        &mut self,
        tunnel: &Tunnel,
        reads: bool,
        now: Nanos,
        counters: &mut TunnelCounters,
    ) -> Option<(usize, &[u8])> {
        match self.intake.take(tunnel, reads) {
            Taken::Packet(queue, packet) => {
                counters.read_packets += 1;
                counters.read_bytes += packet.len() as u64;
                Some((queue, packet))
            }
            Taken::Empty => None,
            Taken::Failed => {
                counters.read_failed += 1;
                self.failed_until = now + FAILED_NANOS;
                None
            }
        }
    }
}

/// Frames in a transmit ring (2048 places) above which tunnels wait: the rest is for relayed
/// packets, which do not wait.
const TX_BACKLOG_PACKETS: usize = 512;
/// Tunnels wait when fewer than this part of the frames are free: coded packets need them more.
const FREE_PART: u32 = 8;
/// Interval between two bursts read while the gate is shut: 256,000 packets a second, which take a
/// fifth of a core when they arrive singly. Longer leaves packets in Linux's queue, which does not
/// separate flows; shorter costs a wakeup for fewer packets.
const PACE_NANOS: Nanos = 250_000;
/// Pause after a failed read, so that a tunnel that keeps failing costs little.
const FAILED_NANOS: Nanos = 10_000_000;
/// Round trips that a leaving process waits for packets already read: a packet and its repair pass
/// all hops meanwhile.
const LEAVE_ROUND_TRIPS: Nanos = 2;
/// Least and most time for that. The tunnel's queue has room for 1000 packets, which wait as long.
const LEAVE_NANOS: Nanos = 20_000_000;
const LEAVE_NANOS_MAX: Nanos = 200_000_000;
/// How long after its start a node leaves packets without keys in the tunnel: Linux keeps them, and
/// they would be lost here. Handshakes take some round trips; packets that do not leave then are
/// too old.
const KEYS_NANOS: Nanos = 2_000_000_000;
/// Interval at which it checks for keys meanwhile.
const KEYS_PAUSE_NANOS: Nanos = 1_000_000;
