//! How a worker feeds its sources: tunnels are read while what comes of their packets can leave.

use crate::intake::{Intake, Taken};
use crate::worker::{BURST_PACKETS, RETRY_NANOS, Worker};
use recoded_pipeline::params::{Nanos, Role, ShardId, Snapshot};
use recoded_xsk::Socket;

/// A flow that this worker feeds from a tunnel.
pub(crate) struct Source {
    pub(crate) flow: u32,
    pub(crate) tunnel: usize,
    /// Shards of the flow. Queue `q` of the tunnel is read into shard `q % shards`.
    pub(crate) shards: u8,
    /// Those of this worker.
    pub(crate) own_shards: Vec<u8>,
    /// The queues of this worker's shards.
    pub(crate) intake: Intake,
    /// Links that its packets leave by.
    pub(crate) links: Vec<usize>,
    /// Not read before this time, because a read failed.
    pub(crate) held_until: Nanos,
}

/// Whether a tunnel may be read.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Gate {
    Open,
    /// Not before this time.
    Until(Nanos),
}

impl Worker {
    pub(crate) fn read_tunnel(&mut self, index: usize, now: Nanos) -> bool {
        let mut worked = false;
        for _ in 0..BURST_PACKETS {
            if self.gate(index, now) != Gate::Open {
                break;
            }
            let Source { flow, tunnel, shards, intake, .. } = &mut self.state.sources[index];
            let counters = &mut self.outbox.tunnel_counters[*tunnel];
            match intake.take(&self.tunnels[*tunnel]) {
                Taken::Empty => break,
                Taken::Failed => {
                    counters.read_failed += 1;
                    self.state.sources[index].held_until = now + FAILED_NANOS;
                    self.state.dirty = true;
                    break;
                }
                Taken::Packet(queue, packet) => {
                    counters.read_packets += 1;
                    counters.read_bytes += packet.len() as u64;
                    let shard = (queue % usize::from(*shards)) as u8;
                    let packet = (ShardId { flow: *flow, shard }, packet);
                    self.pipeline.ingress(&mut self.umem, &mut self.outbox, packet, now);
                    worked = true;
                }
            }
        }
        self.outbox.flush(&mut self.umem, &mut self.sockets);
        worked
    }

    /// A tunnel is read only while every link of its flow can take its packets. Otherwise
    /// packets wait in the tunnel's queue, where TCP sees them as delay and not as loss.
    pub(crate) fn gate(&mut self, source: usize, now: Nanos) -> Gate {
        let Source { tunnel, held_until, flow, own_shards, .. } = &self.state.sources[source];
        if *held_until > now {
            return Gate::Until(*held_until);
        }
        if self.tunnels[*tunnel].is_gone() {
            return Gate::Until(Nanos::MAX);
        }
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
            let socket = self.sockets[*link].as_ref();
            let pending = socket.filter(|_| self.is_present(*link)).map_or(0, Socket::pending);
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

    /// The sources of which this worker sends shards. One that goes on keeps what it has read.
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
                held_until: 0,
            });
        }
        sources
    }
}

/// Frames in a transmit ring (2048 places) above which tunnels wait: the rest is for relayed
/// packets, which do not.
const TX_BACKLOG_PACKETS: usize = 512;
/// Tunnels wait when fewer than this part of the frames are free: coded packets need them more.
const FREE_PART: u32 = 8;
/// Pause after a failed read, so that a tunnel that keeps failing costs little.
const FAILED_NANOS: Nanos = 10_000_000;
