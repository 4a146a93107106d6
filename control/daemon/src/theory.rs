//! Theoretical predictions for a flow, shown next to measurements.

use recoded_api::v1::HopLoss;
use recoded_code::theory::stream::StreamHop;
use recoded_code::theory::{LossModel, Recoding, rank_distributions};
use recoded_pipeline::params::{FlowCode, FlowParams, Redundancy, Role, Spread};
use recoded_pipeline::report::{FlowReport, NextHop};

/// Larger generations take too long to compute on each request.
const SIZE_MAX: usize = 128;

/// Share of a source's packets expected after each hop, as far as the source knows from reports of
/// the hops. For generations and batches it is the expected rank over their size: relays are
/// assumed to recode systematically, and batches adaptively, which is their default. If hops
/// compensate for their losses, as those of streams do, everything arrives. Empty if nothing is
/// known, and for an open loop.
pub fn arrived(params: &FlowParams, report: &FlowReport, hops: &[HopLoss]) -> Vec<f64> {
    let is_source = matches!(report.role, Role::Source { .. });
    let has_ranks = (1..=SIZE_MAX).contains(&report.generation_size) && report.planned > 0;
    match report.code {
        _ if !is_source || hops.is_empty() || params.is_open_loop() => Vec::new(),
        FlowCode::Stream(_) => vec![1.0; hops.len()],
        _ if !has_ranks => Vec::new(),
        _ if report.is_mended => vec![1.0; hops.len()],
        FlowCode::Rlnc => {
            let (size, line) = (report.generation_size, line(hops));
            let sent = vec![report.planned; line.len()];
            let ranks = rank_distributions(size, report.field, &sent, &line, Recoding::Systematic);
            ranks.iter().map(|ranks| mean(ranks) / size as f64).collect()
        }
        #[cfg(feature = "bats")]
        FlowCode::Bats(bats) => batches::expected_ranks(report, &bats, &line(hops)),
    }
}

/// Expected rank at the sink over the size of a generation or batch, from [`arrived`]; streams have
/// none.
pub fn expected_rank(report: &FlowReport, arrived: &[f64]) -> Option<f64> {
    arrived.last().copied().filter(|_| !report.code.is_stream())
}

/// Packets needed per source symbol, as far as the source of a flow knows; `rank` is
/// [`expected_rank`]. For a stream, packets on the links that leave the source, including proactive
/// redundancy: the losses are those of the first hop. For an open loop, the planned number, which
/// no loss changes. For other codes whose hops compensate for losses (`is_mended`), packets on the
/// link that leaves the source, without those in advance: their number follows from round trips and
/// rates. Otherwise none for generations, whose number of packets depends on how many may stay
/// incomplete.
#[cfg_attr(
    not(feature = "bats"),
    expect(unused_variables, reason = "batches alone go by their rank")
)]
pub fn overhead(
    params: &FlowParams,
    rank: Option<f64>,
    is_mended: bool,
    hops: &[HopLoss],
    next_hops: &[NextHop],
) -> Option<f64> {
    let is_source = matches!(params.role, Role::Source { .. });
    match params.code {
        FlowCode::Stream(_) if is_source => {
            let packets = match params.redundancy {
                Redundancy::Fixed(factor) => factor * params.next_hops.len() as f64,
                Redundancy::Auto => {
                    let first = model(hops.iter().find(|hop| hop.hop == 0)?);
                    on_links(params.spread, first, next_hops)
                }
            };
            Some(packets).filter(|packets| *packets > 0.0)
        }
        _ if is_source && is_mended => {
            let first = hops.iter().find(|hop| hop.hop == 0)?;
            Some(StreamHop::new(model(first), 0.0, 0.0, 0.0).packets())
        }
        #[cfg(feature = "bats")]
        FlowCode::Bats(_) => rank.filter(|rank| *rank > 0.0).map(f64::recip),
        _ => None,
    }
}

/// Packets per symbol of a stream on all links that leave the source. If each next hop gets every
/// symbol, the sum over the links; if symbols are spread over paths, the mean weighted by their
/// planned rates. With several links, each reports its own losses.
fn on_links(spread: Spread, first: LossModel, next_hops: &[NextHop]) -> f64 {
    let lost = |hop: &NextHop| match (next_hops.len(), hop.heard) {
        (2.., Some(heard)) => LossModel { loss: heard.loss.unwrap_or(first.loss), ..first },
        _ => first,
    };
    let packets = |hop: &NextHop| stream_hop(lost(hop), hop).packets();
    if spread == Spread::Every {
        return next_hops.iter().map(packets).sum();
    }
    let rate = |hop: &NextHop| hop.planned.symbols_per_second;
    let all: f64 = next_hops.iter().map(rate).sum();
    next_hops.iter().map(|hop| packets(hop) * rate(hop) / all.max(1e-9)).sum()
}

/// A hop that sends the planned proactive share on average. If that is less than its losses
/// require, the rest is retransmitted: as many packets as without it.
fn stream_hop(model: LossModel, hop: &NextHop) -> StreamHop {
    let share = hop.planned.share();
    let share = if share * (1.0 - model.loss) > model.loss { share } else { 0.0 };
    let round_trip = hop.heard.map_or(0.0, |heard| heard.round_trip_nanos as f64 / 1e9);
    StreamHop::new(model, round_trip, hop.planned.symbols_per_second, share)
}

fn line(hops: &[HopLoss]) -> Vec<LossModel> {
    hops.iter().map(model).collect()
}

fn model(hop: &HopLoss) -> LossModel {
    LossModel { loss: hop.loss, burst_mean: hop.burst_mean }
}

/// Predictions for BATS flows.
#[cfg(feature = "bats")]
mod batches {
    use recoded_code::theory::adaptive::{Outgoing, expected_rank_adaptive};
    use recoded_code::theory::burst::interleave_depth;
    use recoded_code::theory::{LossModel, Recoding};
    use recoded_pipeline::params::{BatsParams, Interleave};
    use recoded_pipeline::report::FlowReport;

    pub fn expected_ranks(report: &FlowReport, bats: &BatsParams, line: &[LossModel]) -> Vec<f64> {
        let size = report.generation_size;
        let burst = line.iter().map(|hop| hop.burst_mean).fold(1.0, f64::max);
        let depth = match bats.interleave {
            Interleave::Fixed(depth) => usize::from(depth),
            Interleave::Auto => interleave_depth(burst, size, 0, u64::MAX, 255),
        };
        let line: Vec<LossModel> = line.iter().map(|hop| hop.interleaved(depth)).collect();
        let outgoing = Outgoing::equal_airtime(size, report.field, line[0], Recoding::Systematic);
        expected_rank_adaptive(&outgoing, &line)
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
    use recoded_pipeline::params::{PeerId, StreamParams, TunnelId};
    use recoded_pipeline::report::{Branch, FlowCounters, HeardHop, Planned};

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
            upstreams: Vec::new(),
            next_hops: Vec::new(),
            hops: Vec::new(),
            packet_bytes_max: None,
            remote: None,
            held: 0,
            counters: FlowCounters::default(),
        }
    }

    fn ten_hops() -> Vec<HopLoss> {
        let hop = |hop| HopLoss { hop, loss: 0.1, burst_mean: 1.0, ..HopLoss::default() };
        (0..10).map(hop).collect()
    }

    fn params(code: FlowCode) -> FlowParams {
        let role = Role::Source { tunnel: TunnelId(0) };
        FlowParams { code, ..FlowParams::new(1, role, vec![PeerId(0)]) }
    }

    fn arrived(report: &FlowReport, hops: &[HopLoss]) -> Vec<f64> {
        super::arrived(&params(report.code), report, hops)
    }

    fn expected_rank(report: &FlowReport, hops: &[HopLoss]) -> Option<f64> {
        super::expected_rank(report, &arrived(report, hops))
    }

    /// Values of the published tables: ten hops, 10 % loss, M = 16, field of order 16.
    #[test]
    fn ten_hops_have_the_published_rank() {
        let hops = ten_hops();
        let rlnc = expected_rank(&report(FlowCode::Rlnc, 16), &hops).expect("hops are known");
        assert!((rlnc - 0.771).abs() < 1e-3, "{rlnc}");
        assert_eq!(expected_rank(&report(FlowCode::Rlnc, 16), &[]), None);
    }

    /// The rank of the same line after fewer hops, and everything if hops compensate.
    #[test]
    fn what_arrives_is_known_behind_each_hop() {
        let rlnc = report(FlowCode::Rlnc, 16);
        let shares = arrived(&rlnc, &ten_hops());
        assert_eq!(shares.len(), 10);
        assert!(shares.is_sorted_by(|before, after| before > after), "{shares:?}");
        assert_eq!(shares[3], arrived(&rlnc, &ten_hops()[..4])[3]);
        assert!((shares[0] - 0.9).abs() < 1e-9, "16 packets for 16 symbols, a tenth is lost");
        assert_eq!(arrived(&FlowReport { is_mended: true, ..rlnc }, &ten_hops()), [1.0; 10]);
        let stream = report(FlowCode::Stream(StreamParams::new(1024)), 0);
        let stream = FlowReport { generation_size: 1024, ..stream };
        assert_eq!(arrived(&stream, &ten_hops()), [1.0; 10]);
        assert_eq!(expected_rank(&stream, &ten_hops()), None, "streams have no rank");
        let sink = Role::Sink { tunnel: TunnelId(0), upstream: PeerId(0) };
        let sink = FlowReport { role: sink, ..report(FlowCode::Rlnc, 16) };
        assert_eq!(arrived(&sink, &ten_hops()), [0.0; 0]);
    }

    #[test]
    fn streams_pay_for_the_links_that_leave_the_source_and_what_it_planned() {
        let params = params(FlowCode::Stream(StreamParams::new(1024)));
        let next_hop = |combinations| NextHop {
            peer: PeerId(0),
            bytes_per_second: 1e6,
            heard: Some(HeardHop {
                at: 0,
                round_trip_nanos: 20_000_000,
                queue_nanos: 0,
                loss: Some(0.1),
            }),
            silence: 0,
            black_hole: None,
            planned: Planned { symbols: 100, combinations, symbols_per_second: 9600.0 },
            branch: Branch::default(),
        };
        let packets = |planned: &[f64]| {
            let next_hops: Vec<NextHop> = planned.iter().map(|share| next_hop(*share)).collect();
            overhead(&params, None, false, &ten_hops(), &next_hops)
        };
        for (planned, expected) in [
            (&[0.0][..], 1.0 / 0.9),
            (&[5.0], 1.0 / 0.9),
            (&[17.0], 1.17),
            (&[100.0], 2.0),
            (&[0.0, 17.0], 1.0 / 0.9 + 1.17),
        ] {
            let packets = packets(planned).expect("hops are known");
            assert!((packets - expected).abs() < 0.01, "{packets} of {planned:?}");
        }
        assert_eq!(packets(&[]), None);
        assert_eq!(overhead(&params, None, false, &[], &[next_hop(0.0)]), None);
        // Paths: one with four times the rate, and no loss on the other.
        let paths = FlowParams { spread: Spread::Sum, ..params };
        let mut next_hops = [next_hop(0.0), next_hop(0.0)];
        next_hops[0].planned.symbols_per_second *= 4.0;
        next_hops[1].heard = next_hops[1].heard.map(|heard| HeardHop { loss: Some(0.0), ..heard });
        let packets = overhead(&paths, None, false, &ten_hops(), &next_hops).expect("known");
        assert!((packets - (0.8 / 0.9 + 0.2)).abs() < 0.01, "{packets}");
    }

    #[test]
    fn generations_pay_for_the_first_hop_alone_where_hops_make_up_for_losses() {
        let mended = FlowReport { is_mended: true, ..report(FlowCode::Rlnc, 16) };
        let rank = expected_rank(&mended, &ten_hops());
        assert_eq!(rank, Some(1.0));
        let params = params(FlowCode::Rlnc);
        let packets = overhead(&params, rank, true, &ten_hops(), &[]).expect("hops are known");
        assert!((packets - 1.0 / 0.9).abs() < 1e-9, "{packets}");
        assert_eq!(overhead(&params, rank, false, &ten_hops(), &[]), None);
    }

    /// Losses, even reported ones, change nothing.
    #[test]
    fn open_loops_send_the_planned_packets_to_each_next_hop_and_promise_no_delivery() {
        let code = FlowCode::Stream(StreamParams::new(1024));
        let open = FlowParams { redundancy: Redundancy::Fixed(1.25), ..params(code) };
        assert!(open.is_open_loop() && !params(code).is_open_loop());
        assert!(!FlowParams { code: FlowCode::Rlnc, ..open.clone() }.is_open_loop());
        assert_eq!(super::arrived(&open, &report(code, 0), &ten_hops()), [0.0; 0]);
        for hops in [ten_hops(), Vec::new()] {
            assert_eq!(overhead(&open, None, false, &hops, &[]), Some(1.25));
        }
        let two = FlowParams { next_hops: vec![PeerId(0), PeerId(1)], ..open };
        assert_eq!(overhead(&two, None, false, &[], &[]), Some(2.5));
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
