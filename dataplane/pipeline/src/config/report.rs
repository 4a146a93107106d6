//! Reports: outcomes of packets, by flow and by reason. Counters are plain integers that a worker
//! owns and publishes between bursts; `dataplane/counters` declares them.
//!
//! The conservation law, verified by a property test: every received packet is counted in exactly
//! one of `forwarded`, `consumed`, `handed_over` and one [`DropReason`], or is among those
//! `waiting`.

use crate::base::time::earlier;
use crate::config::params::{FlowCode, Nanos, PeerId, Role};
use recoded_gf::FieldOrder;

pub use recoded_counters::flow::FlowCounters;
pub use recoded_counters::worker::{DROP_REASONS, DropReason, PacketCounters};

/// Loss of one hop, as reported to a source or measured by a receiver.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct HopLoss {
    /// Hop index, 0 for the source's outgoing link.
    pub hop: u8,
    /// Share of packets lost.
    pub loss: f64,
    /// Mean run of consecutive losses, at least 1.
    pub burst_mean: f64,
}

/// Smallest change of a loss estimate that makes plans out of date: one standard error of the
/// estimate.
const LOSS_STEP: f64 = 0.003;
const LOSS_STEP_RELATIVE: f64 = 0.05;

impl HopLoss {
    /// Whether it has changed enough that plans made for `old` are out of date.
    pub(crate) fn differs(&self, old: &HopLoss) -> bool {
        (self.loss - old.loss).abs() > LOSS_STEP.max(old.loss * LOSS_STEP_RELATIVE)
            || (self.burst_mean - old.burst_mean).abs() > 0.2 * old.burst_mean
    }
}

/// A next hop of a stream is silent if it has not answered for this long while packets were sent to
/// it. Queues and restarts take less time; a longer limit would delay routing around a dead path.
pub const SILENT_NANOS: Nanos = 3_000_000_000;

/// A next hop of a stream, as one shard sees it through link reports.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct NextHop {
    /// The neighbour.
    pub peer: PeerId,
    /// Sending rate that it allows, in bytes per second: Ethernet, IP and UDP headers included.
    pub bytes_per_second: f64,
    /// Its newest report; `None` before the first.
    pub heard: Option<HeardHop>,
    /// How long it has been sent packets without answering.
    pub silence: Nanos,
    /// Whether large packets fail to arrive there.
    pub black_hole: Option<BlackHole>,
    /// Proactive redundancy that was planned.
    pub planned: Planned,
    /// Its state as one of several next hops.
    pub branch: Branch,
}

/// A next hop of a stream as one of several: a path to one receiver, or a receiver.
#[derive(Copy, Clone, PartialEq, Default, Debug)]
pub struct Branch {
    /// Path: share of the newest symbols sent over it; `None` before the first.
    pub share: Option<f64>,
    /// Path: whether others carry its traffic because it does not report.
    pub is_in_doubt: bool,
    /// When the oldest symbol that waits for it was first seen.
    pub waits_since: Option<Nanos>,
}

impl Branch {
    /// Of two shards: the mean share, weighted by the number of shards joined so far.
    fn join(self, other: Self, shards: f64) -> Self {
        let both = self.share.zip(other.share);
        let mean = both.map(|(one, other)| (one * shards + other) / (shards + 1.0));
        Self {
            share: mean.or(self.share).or(other.share),
            is_in_doubt: self.is_in_doubt | other.is_in_doubt,
            waits_since: earlier(self.waits_since, other.waits_since),
        }
    }
}

/// A neighbour that a relay or sink receives from, as one shard sees it.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct UpstreamLink {
    /// The neighbour.
    pub peer: PeerId,
    /// Loss of its link, once known.
    pub loss: Option<HopLoss>,
    /// When a packet last arrived, by the clock of the pipeline.
    pub heard_at: Option<Nanos>,
    /// Share of the newest packets received from it; `None` before the first.
    pub share: Option<f64>,
}

/// Proactive redundancy that a hop of a stream planned, before any loss was known.
#[derive(Copy, Clone, PartialEq, Default, Debug)]
pub struct Planned {
    /// Symbols sent for the first time.
    pub symbols: u64,
    /// Combinations planned for them.
    pub combinations: f64,
    /// Symbols per second, recently.
    pub symbols_per_second: f64,
}

impl Planned {
    /// Combinations per symbol.
    pub fn share(&self) -> f64 {
        self.combinations / self.symbols.max(1) as f64
    }

    /// Of two shards, whose packets are distinguished on the link: the rate of the faster one.
    fn join(self, other: Self) -> Self {
        Self {
            symbols: self.symbols + other.symbols,
            combinations: self.combinations + other.combinations,
            symbols_per_second: self.symbols_per_second.max(other.symbols_per_second),
        }
    }
}

/// Packets above some size do not arrive, while smaller ones do: bytes of UDP payload.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct BlackHole {
    /// Largest packet known to arrive.
    pub came_bytes: u16,
    /// Smallest packet known not to arrive.
    pub lost_bytes: u16,
    /// Smallest full packet of the flow on any path: with the minimum MTU of a tunnel, and the
    /// overhead of keys.
    pub needed_bytes: u16,
}

impl BlackHole {
    /// Whether even a tunnel of minimum MTU has packets that do not arrive.
    pub fn is_below_tunnels(&self) -> bool {
        self.lost_bytes <= self.needed_bytes
    }
}

/// Report of a next hop of a stream.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct HeardHop {
    /// When it last reported, by the clock of the pipeline.
    pub at: Nanos,
    /// Mean time from a packet to its report.
    pub round_trip_nanos: Nanos,
    /// Mean queueing delay of packets on the link.
    pub queue_nanos: Nanos,
    /// Loss rate of the link, once measured.
    pub loss: Option<f64>,
}

impl NextHop {
    /// Whether it has not answered for [`SILENT_NANOS`].
    pub fn is_silent(&self) -> bool {
        self.silence >= SILENT_NANOS
    }

    /// The next hops of a flow, in order of appearance, joined from those of its shards: the sum of
    /// rates, the mean of losses, the longest times, the latest report, the smallest size that does
    /// not arrive, and the sum of plans. One that any shard has heard from recently is not silent.
    pub fn joined<'a>(of_shards: impl Iterator<Item = &'a NextHop>, now: Nanos) -> Vec<NextHop> {
        let mut hops: Vec<(NextHop, f64, f64)> = Vec::new();
        for hop in of_shards {
            let measured = f64::from(u8::from(hop.heard.is_some_and(|it| it.loss.is_some())));
            match hops.iter_mut().find(|(known, ..)| known.peer == hop.peer) {
                Some((sum, shards, joined)) => {
                    sum.bytes_per_second += hop.bytes_per_second;
                    sum.heard = join(sum.heard, hop.heard);
                    sum.silence = sum.silence.max(hop.silence);
                    let holes = [sum.black_hole, hop.black_hole].into_iter().flatten();
                    sum.black_hole = holes.min_by_key(|hole| hole.lost_bytes);
                    sum.planned = sum.planned.join(hop.planned);
                    sum.branch = sum.branch.join(hop.branch, *joined);
                    (*shards, *joined) = (*shards + measured, *joined + 1.0);
                }
                None => hops.push((*hop, measured, 1.0)),
            }
        }
        let mean = |(mut hop, shards, _): (NextHop, f64, f64)| {
            if let Some(heard) = &mut hop.heard {
                heard.loss = heard.loss.map(|sum| sum / shards);
                hop.silence = hop.silence.min(now.saturating_sub(heard.at));
            }
            hop
        };
        hops.into_iter().map(mean).collect()
    }
}

/// Latest report, longest times, sum of losses.
fn join(one: Option<HeardHop>, other: Option<HeardHop>) -> Option<HeardHop> {
    let (Some(one), Some(other)) = (one, other) else { return one.or(other) };
    Some(HeardHop {
        at: one.at.max(other.at),
        round_trip_nanos: one.round_trip_nanos.max(other.round_trip_nanos),
        queue_nanos: one.queue_nanos.max(other.queue_nanos),
        loss: [one.loss, other.loss].into_iter().flatten().reduce(|one, other| one + other),
    })
}

/// Newest report of a flow's sink to its source. Counters are modulo 2^32.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RemoteReport {
    /// Newest generation seen.
    pub newest: u32,
    /// Generations decoded completely.
    pub complete: u32,
    /// Generations abandoned.
    pub failed: u32,
    /// Full-size generations of the present epoch by their rank when they closed.
    pub rank_histogram: Vec<u32>,
}

/// One shard of a flow, as seen by a worker.
#[derive(Clone, PartialEq, Debug)]
pub struct FlowReport {
    /// Flow id.
    pub id: u32,
    /// Shard of the flow.
    pub shard: u8,
    /// Role.
    pub role: Role,
    /// Code. For a relay, the configured one, which it ignores.
    pub code: FlowCode,
    /// Source: epoch of the parameters in use.
    pub epoch: u8,
    /// Field in use (relay and sink: of the newest generation).
    pub field: FieldOrder,
    /// Generation or batch size in use (relay and sink: of the newest generation).
    pub generation_size: usize,
    /// Bytes per symbol in use.
    pub symbol_bytes: usize,
    /// Source: packets planned for a full generation. Relay: of the newest packet.
    pub planned: usize,
    /// Source of generations or batches: whether the first hop recovers its losses from the next
    /// node's reports, and sends nothing proactively.
    pub is_mended: bool,
    /// Source: reports of the hops. Relay and sink: the one incoming link.
    pub hops: Vec<HopLoss>,
    /// Relay and sink: the neighbours that the flow is received from.
    pub upstreams: Vec<UpstreamLink>,
    /// Source and relay of a stream: the neighbours that it is sent to. Other codes: the one where
    /// large packets fail to arrive, while that is so.
    pub next_hops: Vec<NextHop>,
    /// Source of a stream: bytes of the longest IP packet that every link carries, if longer ones
    /// are known to be lost.
    pub packet_bytes_max: Option<usize>,
    /// Source: the sink's report on itself.
    pub remote: Option<RemoteReport>,
    /// Generations held now.
    pub held: usize,
    /// Counters.
    pub counters: FlowCounters,
}

/// Counters of removed shards of a flow: the total of a flow is the sum of this and its shards. It
/// has no rank histogram, which covers the present parameters only.
#[derive(Clone, PartialEq, Debug)]
pub struct Remainder {
    /// Flow id.
    pub flow: u32,
    /// Counters.
    pub counters: FlowCounters,
}

/// Everything a pipeline reports.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    /// Edition of the snapshot in use.
    pub edition: u64,
    /// Outcomes of received packets.
    pub packets: PacketCounters,
    /// Received packets that wait for their stages, and have no outcome yet.
    pub waiting: usize,
    /// The shards, by flow id and shard. Shards that received nothing are missing.
    pub flows: Vec<FlowReport>,
    /// Totals of flows with removed shards.
    pub remainders: Vec<Remainder>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_hops_of_shards_are_joined() {
        let heard = |at, times, loss| {
            Some(HeardHop { at, round_trip_nanos: times, queue_nanos: times, loss })
        };
        let hop = |peer, heard| NextHop {
            peer: PeerId(peer),
            bytes_per_second: 1e6,
            heard,
            silence: 0,
            black_hole: None,
            planned: Planned { symbols: 4, combinations: 1.0, symbols_per_second: 9.0 },
            branch: Branch {
                share: Some(0.25 * f64::from(peer)),
                is_in_doubt: heard.is_none_or(|it: HeardHop| it.loss.is_none()),
                waits_since: heard.map(|heard| heard.at),
            },
        };
        let shards = [
            vec![hop(4, heard(7, 30, Some(0.1))), hop(2, None)],
            vec![hop(4, heard(8, 10, None)), hop(2, None)],
            vec![hop(4, heard(9, 20, Some(0.3))), hop(2, None)],
        ];
        let all = NextHop::joined(shards.iter().flatten(), 10);
        let [first, second] = all[..] else { panic!("{all:?}") };
        assert_eq!((first.peer, first.bytes_per_second), (PeerId(4), 3e6));
        let heard = first.heard.expect("all shards heard it");
        assert_eq!((heard.at, heard.round_trip_nanos, heard.queue_nanos), (9, 30, 30));
        assert!(heard.loss.is_some_and(|loss| (loss - 0.2).abs() < 1e-9), "{heard:?}");
        assert_eq!(
            first.planned,
            Planned { symbols: 12, combinations: 3.0, ..shards[0][0].planned }
        );
        assert!((first.planned.share() - 0.25).abs() < 1e-9 && Planned::default().share() == 0.0);
        assert_eq!((second.peer, second.heard), (PeerId(2), None));
        let branch = Branch { share: Some(1.0), is_in_doubt: true, waits_since: Some(7) };
        assert_eq!(first.branch, branch);
        assert_eq!(second.branch, Branch { share: Some(0.5), waits_since: None, ..branch });
    }

    #[test]
    fn next_hop_is_silent_when_no_shard_has_heard_it_lately() {
        let hop = |at, silence| {
            let heard = HeardHop { at, round_trip_nanos: 1, queue_nanos: 0, loss: None };
            let peer = PeerId(0);
            NextHop {
                peer,
                bytes_per_second: 1e6,
                heard: Some(heard),
                silence,
                black_hole: None,
                planned: Planned::default(),
                branch: Branch::default(),
            }
        };
        let at =
            |now| NextHop::joined([hop(5, SILENT_NANOS), hop(7, 0)].iter(), now)[0].is_silent();
        assert!(!at(6 + SILENT_NANOS) && at(7 + SILENT_NANOS));
        let idle = [hop(5, 0), hop(7, 0)];
        assert!(!NextHop::joined(idle.iter(), 100 * SILENT_NANOS)[0].is_silent());
    }
}
