//! Flows that branch or merge at this node: the joint rate of several next hops, and the share of
//! each of several upstreams.

use crate::config::Config;
use recoded_api::v1::{FlowNeighbour, FlowUpstream};
use recoded_pipeline::params::{FlowParams, Nanos, PeerId, Spread};
use recoded_pipeline::report::FlowReport;

/// Joint goodput of several next hops: the sum over paths, or the least of several receivers.
/// Silent next hops are left out.
pub fn carries_mbit(params: &FlowParams, neighbours: &[FlowNeighbour]) -> Option<f64> {
    let answers = neighbours.iter().filter(|hop| !hop.silent && !hop.in_doubt);
    let each = answers.map(|hop| Some(hop.rate_mbit * (1.0 - hop.loss?)));
    let each = each.collect::<Option<Vec<f64>>>()?;
    if params.next_hops.len() < 2 {
        return None;
    }
    match params.spread {
        Spread::Sum => (!each.is_empty()).then(|| each.iter().sum()),
        Spread::Backup => each.first().copied(),
        Spread::Every => each.into_iter().reduce(f64::min),
    }
}

/// The neighbours that a flow is received from, up to `now`. Shares and losses are means over
/// shards.
pub fn arrivals(config: &Config, reports: &[&FlowReport], now: Nanos) -> Vec<FlowUpstream> {
    let links = || reports.iter().flat_map(|report| &report.upstreams);
    let mut peers: Vec<PeerId> = Vec::new();
    for link in links() {
        if !peers.contains(&link.peer) {
            peers.push(link.peer);
        }
    }
    let mean = |values: Vec<f64>| {
        let count = values.len() as f64;
        (count > 0.0).then(|| values.iter().sum::<f64>() / count)
    };
    let upstream = |peer: PeerId| {
        let of = || links().filter(move |link| link.peer == peer);
        let heard_at = of().filter_map(|link| link.heard_at).max();
        FlowUpstream {
            upstream: config.hop_name(peer),
            loss: mean(of().filter_map(|link| Some(link.loss?.loss)).collect()),
            share: mean(of().filter_map(|link| link.share).collect()),
            received_ago_seconds: heard_at.map(|at| now.saturating_sub(at) as f64 / 1e9),
        }
    };
    peers.into_iter().map(upstream).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use recoded_pipeline::params::{Role, TunnelId};

    #[test]
    fn paths_carry_their_sum_and_receivers_what_the_least_of_them_does() {
        let role = Role::Source { tunnel: TunnelId(0) };
        let params = |spread| FlowParams {
            spread,
            ..FlowParams::new(1, role.clone(), vec![PeerId(0), PeerId(1)])
        };
        let hop = |rate_mbit, loss| FlowNeighbour { rate_mbit, loss, ..FlowNeighbour::default() };
        let two = [hop(100.0, Some(0.1)), hop(50.0, Some(0.02))];
        let of = |spread, hops: &[FlowNeighbour]| carries_mbit(&params(spread), hops);
        assert_eq!(of(Spread::Sum, &two), Some(139.0));
        assert_eq!(of(Spread::Backup, &two), Some(90.0));
        assert_eq!(of(Spread::Every, &two), Some(49.0));
        let doubted = FlowNeighbour { in_doubt: true, ..two[0].clone() };
        assert_eq!(of(Spread::Sum, &[doubted.clone(), two[1].clone()]), Some(49.0));
        assert_eq!(of(Spread::Backup, &[doubted.clone(), two[1].clone()]), Some(49.0));
        let silent = FlowNeighbour { silent: true, ..two[1].clone() };
        assert_eq!(of(Spread::Every, &[two[0].clone(), silent.clone()]), Some(90.0));
        assert_eq!(of(Spread::Sum, &[doubted, silent]), None, "no path answers");
        assert_eq!(of(Spread::Sum, &[two[0].clone(), hop(20.0, None)]), None, "not known yet");
        let one = FlowParams::new(1, role.clone(), vec![PeerId(0)]);
        assert_eq!(carries_mbit(&one, &two[..1]), None, "nothing to add up");
    }
}
