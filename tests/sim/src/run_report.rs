//! Results of a run, and how they compare with theory.

use recoded_code::theory::{self, LossModel, Recoding as TheoryRecoding};
use recoded_pipeline::params::{FlowCode, Nanos, Recoding, Redundancy};
use recoded_pipeline::report::{FlowReport, Report};

use crate::delay::Delays;
use crate::link::LinkCounters;
use crate::scenario::Scenario;

/// The result of a run that violated no invariant.
#[derive(Clone, PartialEq, Debug)]
pub struct RunReport {
    /// Fingerprint of all events in order: equal for equal scenarios.
    pub hash: u64,
    /// Events handled.
    pub events: u64,
    /// When the last thing happened.
    pub ended_nanos: Nanos,
    /// By hop: towards the sink, towards the source.
    pub links: Vec<(LinkCounters, LinkCounters)>,
    /// Report of each node at the end.
    pub reports: Vec<Report>,
    /// By node: packets that found no free frame on arrival.
    pub starved: Vec<u64>,
    /// Packets without a valid tag of their hop, or received before: copies, damaged and forged
    /// ones.
    pub refused: u64,
    /// IP packets delivered, each counted once.
    pub delivered: u64,
    /// Packets that are missing although their delivery was promised, within the allowance.
    pub missing: u64,
    /// Packets delivered again after the sink had lost its memory.
    pub repeated: u64,
    /// Those delivered that were never sent: undetectable corruption.
    pub foreign: u64,
    /// From entering the source to leaving the sink.
    pub delays: Delays,
}

/// Rank of full generations behind a hop.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Rank {
    /// Generations counted.
    pub generations: u64,
    /// Their mean rank, as a share of the generation size.
    pub mean: f64,
    /// Mean rank expected by theory.
    pub expected: f64,
    /// Standard error of the mean in theory, if generations are independent.
    pub standard_error: f64,
}

impl RunReport {
    /// The shards of the flow that `node` knows.
    #[must_use]
    pub fn shards(&self, node: usize) -> &[FlowReport] {
        self.reports.get(node).map_or(&[], |report| &report.flows)
    }

    /// Packets that the source sent for each source symbol.
    #[must_use]
    pub fn overhead(&self) -> f64 {
        let (mut symbols, mut sent) = (0, 0);
        for FlowReport { code, counters, .. } in self.shards(0) {
            let uncoded = counters.sent_systematic;
            sent += uncoded + counters.sent_coded;
            match code {
                FlowCode::Rlnc => {
                    symbols += uncoded;
                    sent += counters.sent_repair;
                }
                // Repairs of blocks are further batches.
                _ => symbols += counters.source_symbols,
            }
        }
        sent as f64 / symbols.max(1) as f64
    }

    /// Rank behind each hop compared with theory, for a scenario whose links and parameters did not
    /// change: every node of `scenario` recodes alike and sends as the source plans (as at the end,
    /// if that is automatic). `None` for a hop behind which no full generation was counted.
    ///
    /// Theory covers neither repair nor reordering: with either, the mean deviates from it.
    #[must_use]
    pub fn ranks(&self, scenario: &Scenario) -> Vec<Option<Rank>> {
        let source = &scenario.nodes[0];
        let size = source.generation_size;
        let planned = match source.redundancy {
            _ if source.code != FlowCode::Rlnc => size,
            Redundancy::Fixed(factor) => (factor * size as f64 - 1e-9).ceil() as usize,
            Redundancy::Auto => self.shards(0).first().map_or(size, |flow| flow.planned.max(size)),
        };
        let hops: Vec<LossModel> = scenario.hops.iter().map(|hop| hop.down.loss).collect();
        let recoding = match scenario.nodes[scenario.nodes.len() / 2].recoding {
            Recoding::Systematic => TheoryRecoding::Systematic,
            Recoding::Random => TheoryRecoding::Random,
        };
        let sent = vec![planned; hops.len()];
        let theory = theory::rank_distributions(size, source.field, &sent, &hops, recoding);
        let ranks = theory.iter().enumerate().map(|(hop, distribution)| {
            let mut histogram = vec![0; distribution.len()];
            for flow in self.shards(hop + 1) {
                let ranks = &flow.counters.rank_histogram;
                if ranks.len() == histogram.len() {
                    histogram.iter_mut().zip(ranks).for_each(|(sum, count)| *sum += count);
                }
            }
            rank(&histogram, distribution)
        });
        ranks.collect()
    }
}

/// Compares a histogram with the distribution of its theory.
fn rank(histogram: &[u64], distribution: &[f64]) -> Option<Rank> {
    let generations: u64 = histogram.iter().sum();
    if generations == 0 {
        return None;
    }
    let size = (distribution.len() - 1) as f64;
    let moment = |weights: &dyn Fn(usize) -> f64, power: i32| -> f64 {
        (0..distribution.len()).map(|rank| weights(rank) * (rank as f64 / size).powi(power)).sum()
    };
    let counted = |rank: usize| histogram[rank] as f64 / generations as f64;
    let expected = moment(&|rank| distribution[rank], 1);
    let variance = moment(&|rank| distribution[rank], 2) - expected * expected;
    let standard_error = (variance.max(0.0) / generations as f64).sqrt();
    Some(Rank { generations, mean: moment(&counted, 1), expected, standard_error })
}
