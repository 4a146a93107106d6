//! No number without proof of the work: by the relay's own counters, and by the counter at the end
//! of the row, which is independent of the relay.

use serde::Serialize;

use crate::error::BenchError;
use crate::relay::case::{Case, Ended};
use crate::relay::load::{Output, Progress};
use crate::relay::packets::{GENERATION_SIZE, LOSS};
use crate::relay::recoder::Account;

/// Counters of a sample, from its first packet to its last.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Proof {
    /// Packets sent to the measured host.
    pub sent: u64,
    /// Generations sent.
    pub generations: u64,
    /// Packets that arrived at the end of the row.
    pub arrived: u64,
    /// Received packets that were recoded.
    pub arrived_recoded: u64,
    /// The relay's own counters, if the case is the relay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub relay: Option<RelayProof>,
}

/// The relay's account of its work.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RelayProof {
    /// Packets received.
    pub received: u64,
    /// Packets forwarded unchanged.
    pub sent_forwarded: u64,
    /// Packets recoded.
    pub sent_recoded: u64,
    /// Generations closed.
    pub generations: u64,
    /// Mean rank of a generation, divided by its size.
    pub rank_ratio: f64,
    /// Loss of the preceding link, as measured from link sequence numbers: mean over shards.
    pub loss: f64,
    /// Packets that arrived at a worker other than their shard's.
    pub handed_over: u64,
    /// How the XDP program runs: `native` or `generic`.
    pub xdp_mode: String,
    /// How the socket works: `zero-copy` or `copy`.
    pub socket_mode: String,
}

/// Checks that `case` did its work.
///
/// # Errors
/// [`BenchError::Unproven`] naming the first claim that does not hold.
pub fn check(
    case: Case,
    packet_bytes: usize,
    ended: &Ended,
    total: &Progress,
) -> Result<Proof, BenchError> {
    let claims = Claims { case, packet_bytes };
    let planned = (total.generations * GENERATION_SIZE as u64) as f64;
    let sent = total.sent as f64;
    claims.near("the load sends what one loss in ten leaves", (1.0 - LOSS) * planned, sent)?;
    claims.near("what is sent is received", sent, ended.received(total) as f64)?;
    let expected = match case.output() {
        Output::PerPacket => sent,
        Output::PerGeneration => planned,
    };
    claims.near("what should come out arrives", expected, total.arrived as f64)?;
    let relay = match ended {
        Ended::Relay(account) => Some(account.as_deref().map(relay_proof).unwrap_or_default()),
        Ended::Bounce(_) | Ended::Silent => None,
    };
    if let Some(relay) = &relay {
        claims.relay(relay, total)?;
    }
    if let Ended::Relay(Some(account)) = ended {
        claims.workers(account, total)?;
    }
    let Progress { sent, generations, arrived, arrived_recoded, .. } = *total;
    Ok(Proof { sent, generations, arrived, arrived_recoded, relay })
}

struct Claims {
    case: Case,
    packet_bytes: usize,
}

impl Claims {
    fn relay(&self, relay: &RelayProof, total: &Progress) -> Result<(), BenchError> {
        let generations = total.generations as f64;
        let planned = generations * GENERATION_SIZE as f64;
        self.near("every generation closes", generations, relay.generations as f64)?;
        let sent = relay.sent_forwarded + relay.sent_recoded;
        self.near("16 packets leave per generation", planned, sent as f64)?;
        // The tolerance is a share of the expected value. That value is a tenth of the packets
        // here, so the tolerance is ten times as wide.
        let lost = planned - total.sent as f64;
        let recoded = relay.sent_recoded as f64;
        self.within("what was lost is recoded", lost, recoded, TOLERANCE * planned)?;
        let arrived = total.arrived_recoded as f64;
        self.within("what is recoded arrives", recoded, arrived, TOLERANCE * planned)?;
        self.near("ranks are what the loss leaves", 1.0 - LOSS, relay.rank_ratio)
    }

    fn workers(&self, account: &Account, total: &Progress) -> Result<(), BenchError> {
        let [workers, working] = account.workers.map(|count| count as f64);
        self.near("every worker has a shard", workers, working)?;
        let in_place = total.sent.saturating_sub(account.handed_over) as f64;
        self.near("packets come to the worker of their shard", total.sent as f64, in_place)?;
        self.near("every shard measures the loss", workers, account.losses.len() as f64)?;
        let mut losses = account.losses.iter();
        losses.try_for_each(|loss| {
            self.within("the relay measures the loss", LOSS, *loss, LOSS_TOLERANCE)
        })
    }

    fn near(&self, claim: &'static str, expected: f64, measured: f64) -> Result<(), BenchError> {
        self.within(claim, expected, measured, TOLERANCE * expected)
    }

    fn within(
        &self,
        claim: &'static str,
        expected: f64,
        measured: f64,
        tolerance: f64,
    ) -> Result<(), BenchError> {
        let (case, packet_bytes) = (self.case.name(), self.packet_bytes);
        // Nothing sent would satisfy most claims.
        if expected > 0.0 && (measured - expected).abs() <= tolerance {
            return Ok(());
        }
        Err(BenchError::Unproven { case, packet_bytes, claim, expected, measured })
    }
}

fn relay_proof(account: &Account) -> RelayProof {
    let flow = &account.flow;
    let closed: u64 = flow.rank_histogram.iter().sum();
    let ranks: u64 = flow.rank_histogram.iter().zip(0..).map(|(count, rank)| count * rank).sum();
    RelayProof {
        received: account.received,
        sent_forwarded: flow.sent_forwarded,
        sent_recoded: flow.sent_recoded,
        generations: flow.generations,
        rank_ratio: ranks as f64 / (closed * GENERATION_SIZE as u64).max(1) as f64,
        loss: account.losses.iter().sum::<f64>() / account.losses.len().max(1) as f64,
        handed_over: account.handed_over,
        xdp_mode: account.xdp_mode.clone(),
        socket_mode: account.socket_mode.clone(),
    }
}

/// Chance accounts for a thousandth after 100,000 packets; the rest is for a shared machine, where
/// a core that is preempted for long costs packets.
const TOLERANCE: f64 = 0.01;
/// The relay's estimate remembers some 2,000 packets: six standard deviations.
const LOSS_TOLERANCE: f64 = 0.04;

#[cfg(test)]
mod tests {
    use super::*;
    use recoded_pipeline::report::FlowCounters;

    fn total() -> Progress {
        let (sent, generations) = (144_000, 10_000);
        Progress { sent, generations, waited_nanos: 0, arrived: 160_000, arrived_recoded: 16_000 }
    }

    fn account() -> Account {
        let mut rank_histogram = vec![0; 17];
        (rank_histogram[14], rank_histogram[15]) = (6_000, 4_000);
        let flow = FlowCounters {
            sent_forwarded: 144_000,
            sent_recoded: 16_000,
            generations: 10_000,
            rank_histogram,
            ..FlowCounters::default()
        };
        let (xdp_mode, socket_mode) = ("native".into(), "copy".into());
        Account {
            received: 144_000,
            flow,
            losses: vec![0.11, 0.09],
            workers: [2, 2],
            handed_over: 0,
            xdp_mode,
            socket_mode,
        }
    }

    fn refused(change: impl FnOnce(&mut Account, &mut Progress)) -> &'static str {
        let (mut account, mut total) = (account(), total());
        change(&mut account, &mut total);
        match check(Case::Relay, 256, &Ended::Relay(Some(account.into())), &total) {
            Err(BenchError::Unproven { claim, .. }) => claim,
            outcome => panic!("{outcome:?}"),
        }
    }

    #[test]
    fn relay_that_did_its_work_is_believed() {
        let proof =
            check(Case::Relay, 256, &Ended::Relay(Some(account().into())), &total()).unwrap();
        assert_eq!(proof.relay.unwrap().rank_ratio, 0.9);
    }

    #[test]
    fn relay_that_only_forwards_is_not_believed() {
        let claim = refused(|account, _| {
            account.flow.sent_recoded = 0;
            account.flow.sent_forwarded = 160_000;
        });
        assert_eq!(claim, "what was lost is recoded");
        assert_eq!(refused(|_, total| total.arrived_recoded = 0), "what is recoded arrives");
    }

    #[test]
    fn relay_that_loses_packets_is_not_believed() {
        assert_eq!(refused(|account, _| account.received = 140_000), "what is sent is received");
        assert_eq!(refused(|_, total| total.arrived = 157_000), "what should come out arrives");
        let claim = refused(|account, _| account.flow.sent_forwarded = 140_000);
        assert_eq!(claim, "16 packets leave per generation");
        let claim = refused(|account, _| account.flow.rank_histogram[3] = 500);
        assert_eq!(claim, "ranks are what the loss leaves");
        assert_eq!(refused(|account, _| account.losses[1] = 0.0), "the relay measures the loss");
    }

    #[test]
    fn relay_whose_workers_do_not_share_the_work_is_not_believed() {
        assert_eq!(refused(|account, _| account.workers[1] = 1), "every worker has a shard");
        let claim = refused(|account, _| account.handed_over = 72_000);
        assert_eq!(claim, "packets come to the worker of their shard");
        let claim = refused(|account, _| account.losses.truncate(1));
        assert_eq!(claim, "every shard measures the loss");
    }

    #[test]
    fn nothing_sent_is_no_proof() {
        let refused = check(Case::Bounce, 256, &Ended::Bounce(0), &Progress::default());
        assert!(matches!(refused, Err(BenchError::Unproven { .. })));
        let refused = check(Case::Relay, 256, &Ended::Relay(None), &total());
        assert!(matches!(refused, Err(BenchError::Unproven { .. })));
    }
}
