//! Reports: what happened to packets, by flow and by reason. Counters are plain integers that a
//! worker owns and publishes between bursts; `dataplane/counters` declares them.
//!
//! The conservation law, held by a property test: every received packet is counted in exactly one
//! of `forwarded`, `consumed`, `handed_over` and one [`DropReason`], or is among those `waiting`.

use crate::params::{FlowCode, Nanos, PeerId, Role};
use crate::time::earlier;
use recoded_gf::FieldOrder;

pub use recoded_counters::flow::FlowCounters;
pub use recoded_counters::worker::{DROP_REASONS, DropReason, PacketCounters};

/// Loss of one hop, as a source has heard or a receiver has measured it.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct HopLoss {
    /// Hop index, 0 for the link that leaves the source.
    pub hop: u8,
    /// Share of packets lost.
    pub loss: f64,
    /// Mean run of consecutive losses, at least 1.
    pub burst_mean: f64,
}

/// Change of a loss estimate that is worth planning anew: what one standard error moves it by.
const LOSS_STEP: f64 = 0.003;
const LOSS_STEP_RELATIVE: f64 = 0.05;

impl HopLoss {
    /// Whether it has changed so much that plans made for `old` are out of date.
    pub(crate) fn differs(&self, old: &HopLoss) -> bool {
        (self.loss - old.loss).abs() > LOSS_STEP.max(old.loss * LOSS_STEP_RELATIVE)
            || (self.burst_mean - old.burst_mean).abs() > 0.2 * old.burst_mean
    }
}

/// A next hop of a stream that has not answered for so long, while packets were sent to it, is
/// silent. Queues and restarts take less; hosts are to route around a dead path soon.
pub const SILENT_NANOS: Nanos = 3_000_000_000;

/// A next hop of a stream, as one shard has it from link reports.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct NextHop {
    /// The neighbour.
    pub peer: PeerId,
    /// How fast it may be sent to, in bytes per second: Ethernet, IP and UDP headers included.
    pub bytes_per_second: f64,
    /// What it reported; `None` before its first report.
    pub heard: Option<HeardHop>,
    /// For how long it has been sent to and has not answered.
    pub silence: Nanos,
    /// Whether large packets do not get there.
    pub black_hole: Option<BlackHole>,
    /// What was planned to be sent in advance.
    pub planned: Planned,
    /// How it is as one of several.
    pub branch: Branch,
}

/// A next hop of a stream as one of several: a path to one receiver, or a receiver.
#[derive(Copy, Clone, PartialEq, Default, Debug)]
pub struct Branch {
    /// Path: share of the newest symbols that went this way; `None` before the first.
    pub share: Option<f64>,
    /// Path: whether others send what it had, since nothing is heard of it.
    pub is_in_doubt: bool,
    /// When the oldest symbol that waits for it was heard of.
    pub waits_since: Option<Nanos>,
}

impl Branch {
    /// Of two shards: the mean share, weighted by how many shards are joined already.
    fn join(self, other: Self, shards: f64) -> Self {
        let mean = |(one, other): (f64, f64)| (one * shards + other) / (shards + 1.0);
        Self {
            share: self.share.zip(other.share).map(mean).or(self.share).or(other.share),
            is_in_doubt: self.is_in_doubt | other.is_in_doubt,
            waits_since: earlier(self.waits_since, other.waits_since),
        }
    }
}

/// A neighbour that a relay or sink receives from, as one shard has it.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct UpstreamLink {
    /// The neighbour.
    pub peer: PeerId,
    /// What its link loses, once that is known.
    pub loss: Option<HopLoss>,
    /// When a packet came last, by the clock of the pipeline.
    pub heard_at: Option<Nanos>,
    /// Share of the newest packets that came from it; `None` before the first.
    pub share: Option<f64>,
}

/// What a hop of a stream planned to send before anything was known to be lost.
#[derive(Copy, Clone, PartialEq, Default, Debug)]
pub struct Planned {
    /// Symbols that left for the first time.
    pub symbols: u64,
    /// Combinations planned for them.
    pub combinations: f64,
    /// Symbols a second, of late.
    pub symbols_per_second: f64,
}

impl Planned {
    /// Combinations for each symbol.
    pub fn share(&self) -> f64 {
        self.combinations / self.symbols.max(1) as f64
    }

    /// Of two shards, whose packets are told apart on the link: the rate of the faster one.
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
    /// Largest packet that comes, as far as is known.
    pub came_bytes: u16,
    /// Least size that does not, as far as is known.
    pub lost_bytes: u16,
    /// The least that a full packet of the flow has, whatever the path carries: of the least MTU of
    /// a tunnel, and with what keys add.
    pub needed_bytes: u16,
}

impl BlackHole {
    /// Whether even a tunnel of the least MTU has packets that do not arrive.
    pub fn is_below_tunnels(&self) -> bool {
        self.lost_bytes <= self.needed_bytes
    }
}

/// What a next hop of a stream reported.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct HeardHop {
    /// When it reported last, by the clock of the pipeline.
    pub at: Nanos,
    /// Mean time from a packet to the report on it.
    pub round_trip_nanos: Nanos,
    /// Mean time that packets waited on the link.
    pub queue_nanos: Nanos,
    /// Share of packets that the link loses, once it was measured.
    pub loss: Option<f64>,
}

impl NextHop {
    /// Whether it has not answered for [`SILENT_NANOS`].
    pub fn is_silent(&self) -> bool {
        self.silence >= SILENT_NANOS
    }

    /// The next hops of a flow, in order of appearance, by those of its shards: the sum of rates,
    /// the mean of losses, the longest of times, the latest report, the least size that does not
    /// arrive, all that was planned. One that any shard has heard lately is not silent.
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

/// What the sink of a flow told its source, as last heard. Counters are modulo 2^32.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RemoteReport {
    /// Newest generation seen.
    pub newest: u32,
    /// Generations decoded completely.
    pub complete: u32,
    /// Generations given up.
    pub failed: u32,
    /// Full-size generations of the present epoch by rank when they closed.
    pub rank_histogram: Vec<u32>,
}

/// One shard of a flow as a worker sees it.
#[derive(Clone, PartialEq, Debug)]
pub struct FlowReport {
    /// Flow id.
    pub id: u32,
    /// Shard of the flow.
    pub shard: u8,
    /// Role.
    pub role: Role,
    /// Code. A relay's is that of its configuration, which it ignores.
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
    /// Source of generations or batches: whether the first hop makes up for its losses by what the
    /// next node reports, and sends nothing in advance.
    pub is_mended: bool,
    /// Source: what the hops report. Relay and sink: the one incoming link.
    pub hops: Vec<HopLoss>,
    /// Relay and sink: the neighbours that it is received from.
    pub upstreams: Vec<UpstreamLink>,
    /// Source and relay of a stream: the neighbours that it is sent to. Of other codes: the one
    /// where large packets do not arrive, while that is so.
    pub next_hops: Vec<NextHop>,
    /// Source of a stream: bytes of the longest IP packet that every link carries, where longer
    /// ones are known to vanish on the way.
    pub packet_bytes_max: Option<usize>,
    /// Source: what the sink reports of itself.
    pub remote: Option<RemoteReport>,
    /// Generations held now.
    pub held: usize,
    /// Counters.
    pub counters: FlowCounters,
}

/// What shards of a flow counted that are gone: a total of the flow is the sum of this and its
/// shards. It has no rank histogram, which is that of the present parameters.
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
    /// Fate of received packets.
    pub packets: PacketCounters,
    /// Received packets that wait for their stages, and have no fate yet.
    pub waiting: usize,
    /// The shards, by flow id and shard. One that nothing was received of is missing.
    pub flows: Vec<FlowReport>,
    /// Of flows of which shards are gone.
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
