//! What theory expects of a flow, to be shown beside what is measured.

use recoded_api::v1::HopLoss;
use recoded_code::theory::stream::StreamHop;
use recoded_code::theory::{LossModel, Recoding, rank_distributions};
use recoded_pipeline::params::{FlowCode, FlowParams, Role};
use recoded_pipeline::report::FlowReport;

/// Larger generations take too long to compute each time somebody looks.
const SIZE_MAX: usize = 128;

/// Expected rank at the sink over the size of a generation or batch, as the source of a flow can
/// know it: from what the hops report. Relays are taken to recode systematically, and batches
/// adaptively, which is their default; where hops make up for their losses, all of it arrives.
pub fn expected_rank(report: &FlowReport, hops: &[HopLoss]) -> Option<f64> {
    let is_source = matches!(report.role, Role::Source { .. });
    let size = report.generation_size;
    if !is_source || !(1..=SIZE_MAX).contains(&size) || hops.is_empty() || report.planned == 0 {
        return None;
    }
    if report.is_mended {
        return Some(1.0);
    }
    let line = line(hops);
    match report.code {
        FlowCode::Rlnc => {
            let sent = vec![report.planned; line.len()];
            let ranks = rank_distributions(size, report.field, &sent, &line, Recoding::Systematic);
            ranks.last().map(|ranks| mean(ranks) / size as f64)
        }
        #[cfg(feature = "bats")]
        FlowCode::Bats(bats) => batches::expected_rank(report, &bats, &line),
        FlowCode::Window(_) | FlowCode::Stream(_) => None,
    }
}

/// Packets per source symbol that are needed, as the source of a flow can know it; `rank` is
/// [`expected_rank`]. Where hops make up for their losses, those on the link that leaves the
/// source, on whose losses alone they depend, when nothing is sent in advance: round trips and
/// rates are not known here. Not for generations otherwise, whose number of packets follows from
/// how many may stay incomplete.
#[cfg_attr(
    not(feature = "bats"),
    expect(unused_variables, reason = "batches alone go by their rank")
)]
pub fn overhead(
    params: &FlowParams,
    (rank, is_mended): (Option<f64>, bool),
    hops: &[HopLoss],
) -> Option<f64> {
    let is_source = matches!(params.role, Role::Source { .. });
    match params.code {
        FlowCode::Window(code) if is_source && !hops.is_empty() => {
            let path = LossModel::in_series(line(hops));
            let rate_max = (params.redundancy_max - 1.0).max(0.0);
            Some(1.0 + code.theory(params.field, path).rate(params.target_loss, rate_max))
        }
        _ if is_source && (is_mended || matches!(params.code, FlowCode::Stream(_))) => {
            let first = hops.iter().find(|hop| hop.hop == 0)?;
            Some(StreamHop::new(model(first), 0.0, 0.0, 0.0).packets())
        }
        #[cfg(feature = "bats")]
        FlowCode::Bats(_) => rank.filter(|rank| *rank > 0.0).map(f64::recip),
        _ => None,
    }
}

fn line(hops: &[HopLoss]) -> Vec<LossModel> {
    hops.iter().map(model).collect()
}

fn model(hop: &HopLoss) -> LossModel {
    LossModel { loss: hop.loss, burst_mean: hop.burst_mean }
}

/// BATS flows.
#[cfg(feature = "bats")]
mod batches {
    use recoded_code::theory::adaptive::{Outgoing, expected_rank_adaptive};
    use recoded_code::theory::burst::interleave_depth;
    use recoded_code::theory::{LossModel, Recoding};
    use recoded_pipeline::params::{BatsParams, Interleave};
    use recoded_pipeline::report::FlowReport;

    pub fn expected_rank(
        report: &FlowReport,
        bats: &BatsParams,
        line: &[LossModel],
    ) -> Option<f64> {
        let size = report.generation_size;
        let burst = line.iter().map(|hop| hop.burst_mean).fold(1.0, f64::max);
        let depth = match bats.interleave {
            Interleave::Fixed(depth) => usize::from(depth),
            Interleave::Auto => interleave_depth(burst, size, 0, u64::MAX, 255),
        };
        let line: Vec<LossModel> = line.iter().map(|hop| hop.interleaved(depth)).collect();
        let outgoing = Outgoing::equal_airtime(size, report.field, line[0], Recoding::Systematic);
        expected_rank_adaptive(&outgoing, &line).last().copied()
    }
}

fn mean(distribution: &[f64]) -> f64 {
    let ranks = distribution.iter().enumerate();
    ranks.map(|(rank, probability)| rank as f64 * probability).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use recoded_gf::FieldOrder;
    #[cfg(feature = "bats")]
    use recoded_pipeline::params::{BatsParams, Interleave, Profile};
    use recoded_pipeline::params::{StreamParams, TunnelId};
    use recoded_pipeline::report::FlowCounters;

    fn report(code: FlowCode, planned: usize) -> FlowReport {
        FlowReport {
            shard: 0,
            id: 1,
            role: Role::Source { tunnel: TunnelId(0) },
            code,
            epoch: 0,
            field: FieldOrder::Sixteen,
            generation_size: 16,
            symbol_bytes: 1428,
            planned,
            is_mended: false,
            next_hops: Vec::new(),
            hops: Vec::new(),
            remote: None,
            held: 0,
            counters: FlowCounters::default(),
        }
    }

    fn ten_hops() -> Vec<HopLoss> {
        (0..10).map(|hop| HopLoss { hop, loss: 0.1, burst_mean: 1.0 }).collect()
    }

    /// Values of the published tables: ten hops, 10 % loss, M = 16, field of order 16.
    #[test]
    fn ten_hops_have_the_published_rank() {
        let hops = ten_hops();
        let rlnc = expected_rank(&report(FlowCode::Rlnc, 16), &hops).expect("hops are known");
        assert!((rlnc - 0.771).abs() < 1e-3, "{rlnc}");
        assert_eq!(expected_rank(&report(FlowCode::Rlnc, 16), &[]), None);
    }

    #[test]
    fn streams_pay_for_the_first_hop_alone() {
        let code = FlowCode::Stream(StreamParams { window_symbols: 1024 });
        let role = Role::Source { tunnel: TunnelId(0) };
        let params = FlowParams { code, ..FlowParams::new(1, role, Vec::new()) };
        let packets = overhead(&params, (None, false), &ten_hops()).expect("hops are known");
        assert!((packets - 1.0 / 0.9).abs() < 1e-9, "{packets}");
        assert_eq!(overhead(&params, (None, false), &[]), None);
    }

    #[test]
    fn generations_pay_for_the_first_hop_alone_where_hops_make_up_for_losses() {
        let mended = FlowReport { is_mended: true, ..report(FlowCode::Rlnc, 16) };
        let rank = expected_rank(&mended, &ten_hops());
        assert_eq!(rank, Some(1.0));
        let params = FlowParams::new(1, Role::Source { tunnel: TunnelId(0) }, Vec::new());
        let packets = overhead(&params, (rank, true), &ten_hops()).expect("hops are known");
        assert!((packets - 1.0 / 0.9).abs() < 1e-9, "{packets}");
        assert_eq!(overhead(&params, (rank, false), &ten_hops()), None);
    }

    #[cfg(feature = "bats")]
    #[test]
    fn adaptive_relays_raise_it() {
        let hops = ten_hops();
        let bats = FlowCode::Bats(BatsParams {
            source_symbols: 256,
            profile: Profile::CyclicShift,
            generator_bits: 8,
            interleave: Interleave::Auto,
        });
        let adaptive = expected_rank(&report(bats, 16), &hops).expect("hops are known");
        assert!(adaptive > 0.771 + 0.005 && adaptive < 0.85, "{adaptive}");
    }
}
