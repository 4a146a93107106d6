//! Branches of a flow's graph as a box sees them: a line for each of several next hops and
//! upstreams, and their joint rate.

use crate::table::{clean, percent};
use recoded_api::v1::{Flow, FlowNeighbour, FlowUpstream};

/// A receiver whose oldest pending symbol exceeds this is behind: other receivers have had it for
/// long.
const BEHIND_MICROS: f64 = 100_000.0;

/// The flows that branch or merge here; empty if there are none.
pub fn branches(flows: &[Flow]) -> String {
    let several = |flow: &&Flow| flow.next_hops.len() > 1 || flow.upstreams.len() > 1;
    flows.iter().filter(several).map(of_flow).collect()
}

fn of_flow(flow: &Flow) -> String {
    let spread = flow.spread.as_deref();
    let mut lines = Vec::new();
    if flow.upstreams.len() > 1 {
        lines.extend(flow.upstreams.iter().map(|name| {
            let known = flow.arrivals.iter().find(|upstream| upstream.upstream == *name);
            format!("from {name}  {}", known.map_or(words_unknown(), upstream))
        }));
    }
    if flow.next_hops.len() > 1 {
        lines.extend(flow.next_hops.iter().map(|name| {
            let known = flow.neighbours.iter().find(|hop| hop.next_hop == *name);
            format!("to {name}  {}", known.map_or(words_unknown(), next_hop))
        }));
    }
    let last = lines.len() - 1;
    let mut text = format!("flow {}, {}{}\n", flow.id, flow.role, carried(flow, spread));
    for (at, line) in lines.iter().enumerate() {
        text += &format!("{} {}\n", if at == last { "└─" } else { "├─" }, clean(line));
    }
    text
}

/// Goodput against the capacity of the next hops after losses: the sum of paths, or the least of
/// receivers.
fn carried(flow: &Flow, spread: Option<&str>) -> String {
    let (what, count) = match spread {
        Some("sum") => ("its paths together carry", flow.next_hops.len()),
        Some("backup") => ("the first path that answers carries", 1),
        Some(_) => ("the least of its next hops gets", flow.next_hops.len()),
        None => return String::new(),
    };
    let now = flow.goodput_mbit.map(|mbit| format!("{mbit:.1}"));
    match (now, flow.carries_mbit) {
        (Some(now), Some(most)) if most > 0.0 => {
            let share = flow.goodput_mbit.unwrap_or(0.0) / most;
            let share = format!("{:.0} %", share * 100.0);
            format!(": {now} of at most {most:.1} Mbit/s ({share}), which {what}")
        }
        (Some(now), None) => format!(": {now} Mbit/s"),
        (_, Some(most)) => format!(": at most {most:.1} Mbit/s, which {what}"),
        (None, None) if count > 1 => format!(", to {count} next hops ({})", spread.unwrap_or("")),
        _ => String::new(),
    }
}

/// State of a next hop in one word.
pub fn state(hop: &FlowNeighbour) -> &'static str {
    match hop {
        hop if hop.silent => "silent",
        hop if hop.in_doubt => "in doubt",
        hop if hop.round_trip_us.is_none() => "waiting",
        hop if hop.behind_us.is_some_and(|micros| micros > BEHIND_MICROS) => "behind",
        _ => "up",
    }
}

fn next_hop(hop: &FlowNeighbour) -> String {
    let mut facts = vec![match state(hop) {
        "silent" => "does not answer".to_owned(),
        "waiting" => "has not reported yet".to_owned(),
        "behind" => format!("{:.0} ms behind", hop.behind_us.unwrap_or(0.0) / 1e3),
        state => state.to_owned(),
    }];
    if hop.round_trip_us.is_some() && !hop.silent {
        facts.push(format!("{:.1} Mbit/s", hop.rate_mbit));
        facts.extend(hop.loss.map(|loss| format!("{} lost", percent(loss))));
        facts.extend(hop.round_trip_us.map(|micros| format!("{:.1} ms", micros / 1e3)));
    }
    facts.extend(hop.share.map(|share| format!("{} of the symbols", percent(share))));
    facts.join(", ")
}

fn upstream(upstream: &FlowUpstream) -> String {
    let Some(ago) = upstream.received_ago_seconds else { return words_unknown() };
    let mut facts =
        vec![if ago < 3.0 { "up".to_owned() } else { format!("nothing for {ago:.0} s") }];
    facts.extend(upstream.loss.map(|loss| format!("{} lost", percent(loss))));
    facts.extend(upstream.share.map(|share| format!("{} of the packets", percent(share))));
    facts.join(", ")
}

fn words_unknown() -> String {
    "nothing is known of it yet".to_owned()
}
