//! `recodectl trace`: the hops of a flow, from the reports of the nodes along its path to this one.
//!
//! Sends nothing. Unreported values are `-`, or null: a distant hop has a loss, but no round trip,
//! since only neighbours measure that. `recodectl -f net.toml trace` queries all nodes.

use crate::activity::flow_word;
use crate::box_names::BoxNames;
use crate::table::{Align, count, known, millis, percent, residual, sentence, table, wrapped};
use recoded_api::v1::{Flow, State};
use serde::Serialize;

use Align::{Left, Right};

/// State of a flow's path.
#[derive(Debug, PartialEq, Serialize)]
pub struct Trace {
    flow: u64,
    role: String,
    state: Option<String>,
    /// The same in the word that all commands have for it.
    #[serde(skip)]
    word: String,
    hops: Vec<Hop>,
    /// Why no hop is known, and what to do; null where one is.
    not_known: Option<String>,
    /// Mean rank of full generations or batches at the sink or here, and by theory.
    rank_ratio: Option<f64>,
    rank_theory: Option<f64>,
    /// Generations that the sink completed, and those that it abandoned.
    complete: Option<u64>,
    failed: Option<u64>,
    /// Share that the sink abandoned.
    residual_loss: Option<f64>,
    /// Sink: mean delay of decoding lost symbols.
    decode_delay_mean_us: Option<f64>,
    /// For text; values have addresses.
    #[serde(skip)]
    names: BoxNames,
}

/// One link of the path.
#[derive(Debug, Default, PartialEq, Serialize)]
struct Hop {
    /// At a source or relay: number of links from this node, 0 for its own. Null for the incoming
    /// link.
    hop: Option<u64>,
    /// The neighbour at the other end, if there is one.
    neighbour: Option<String>,
    loss: Option<f64>,
    burst_mean: Option<f64>,
    /// Share of the source's packets, repairs included, that arrived after this hop.
    arrived: Option<f64>,
    /// The same by theory.
    arrived_theory: Option<f64>,
    round_trip_us: Option<f64>,
    queue_us: Option<f64>,
    heard_ago_seconds: Option<f64>,
    silent: Option<bool>,
}

/// Why a flow is not shown.
#[derive(Debug, thiserror::Error)]
#[error("this box has no flow {flow}: {known}")]
pub struct UnknownFlow {
    flow: u32,
    known: String,
}

impl UnknownFlow {
    /// The flows that exist.
    pub fn new(flow: u32, ids: impl Iterator<Item = String>) -> UnknownFlow {
        let ids = ids.collect::<Vec<_>>().join(", ");
        let known = match ids.is_empty() {
            true => "it has none; see recodectl show config".to_owned(),
            false => format!("write one of {ids}"),
        };
        UnknownFlow { flow, known }
    }
}

/// The path of one flow, or of all.
///
/// # Errors
/// There is no such flow.
pub fn traces(state: &State, flow: Option<u32>) -> Result<Vec<Trace>, UnknownFlow> {
    let wanted = |it: &&Flow| flow.is_none_or(|flow| it.id == u64::from(flow));
    let trace = |flow: &Flow| trace(state, flow);
    let traces: Vec<Trace> = state.flows.iter().filter(wanted).map(trace).collect();
    match flow {
        Some(flow) if traces.is_empty() => {
            Err(UnknownFlow::new(flow, state.flows.iter().map(|flow| flow.id.to_string())))
        }
        _ => Ok(traces),
    }
}

/// The paths of the flows that enter or leave a tunnel here: outbound first, then return.
pub fn of_tunnel(state: &State, tunnel: &str) -> Vec<Trace> {
    let of_it = |flow: &&Flow| flow.tunnel.as_deref() == Some(tunnel);
    let trace = |flow: &Flow| trace(state, flow);
    let mut traces: Vec<Trace> = state.flows.iter().filter(of_it).map(trace).collect();
    traces.sort_by_key(|trace| trace.role != "source");
    traces
}

fn trace(state: &State, flow: &Flow) -> Trace {
    let remote = flow.remote.as_ref();
    let hops = hops(flow);
    Trace {
        flow: flow.id,
        role: flow.role.clone(),
        state: flow.state.clone(),
        word: flow_word(state, flow).to_owned(),
        not_known: hops.is_empty().then(|| not_known(state, flow)),
        hops,
        rank_ratio: flow.rank_ratio.or_else(|| remote?.rank_ratio),
        rank_theory: flow.rank_theory,
        complete: remote.map(|remote| remote.complete),
        failed: remote.map(|remote| remote.failed),
        residual_loss: flow.residual_loss,
        decode_delay_mean_us: flow.decode_delay_mean_us,
        names: BoxNames::of(state),
    }
}

/// Why no hop of a flow is known, and what to do.
fn not_known(state: &State, flow: &Flow) -> String {
    let is_source = flow.role == "source";
    let packets = flow.count(if is_source { "ingress_packets" } else { "received" });
    match flow_word(state, flow) {
        "waiting" if !flow.waits.is_empty() => format!("waiting: {}", flow.waits),
        "waiting" | "down" | "quiet" => {
            "no box answers on this path: run recodectl doctor".to_owned()
        }
        _ if packets == 0 => "nothing was sent so far, so there are no losses to report: send \
                              something through the tunnel, such as recodectl ping with the \
                              tunnel address of the far end"
            .to_owned(),
        _ if flow.parameters.repair == Some(false) => {
            "this flow has no return path, so no box reports: trace it at the box where it ends"
                .to_owned()
        }
        _ => format!(
            "{} packets are too few to measure losses: trace again after some hundred",
            count(packets)
        ),
    }
}

/// Share of the source's packets that arrive at this node, or at the sink for a source. For
/// generations and batches it is the mean rank over their size; for streams, the
/// symbols that the sink did not abandon.
pub fn arrived(flow: &Flow) -> Option<f64> {
    let rank = flow.rank_ratio.or_else(|| flow.remote.as_ref()?.rank_ratio);
    if flow.is_stream() { flow.residual_loss.map(|lost| 1.0 - lost) } else { rank }
}

fn hops(flow: &Flow) -> Vec<Hop> {
    let is_source = flow.role == "source";
    let reported = flow.hops.iter().enumerate().map(|(place, hop)| Hop {
        hop: is_source.then_some(hop.hop),
        // A relay and a sink know the loss of the incoming link.
        neighbour: if is_source { None } else { flow.upstreams.get(place).cloned() },
        loss: Some(hop.loss),
        burst_mean: Some(hop.burst_mean),
        arrived_theory: hop.arrived_theory,
        ..Hop::default()
    });
    let mut hops: Vec<Hop> = reported.collect();
    // A source has the sink's report, after the last hop; other nodes have their own counters.
    let is_known = is_source || flow.upstreams.len() == 1;
    if let Some(last) = hops.last_mut().filter(|_| is_known) {
        last.arrived = arrived(flow);
    }
    for near in &flow.neighbours {
        let known = Hop {
            hop: Some(0),
            neighbour: Some(near.next_hop.clone()),
            loss: near.loss,
            round_trip_us: near.round_trip_us,
            queue_us: near.queue_us,
            heard_ago_seconds: near.heard_ago_seconds,
            silent: Some(near.silent),
            ..Hop::default()
        };
        // With one next hop both are the same link.
        let same = hops.iter_mut().find(|hop| hop.hop == Some(0) && hop.neighbour.is_none());
        match same.filter(|_| flow.neighbours.len() == 1) {
            Some(same) => {
                let Hop { burst_mean, arrived, arrived_theory, .. } = *same;
                let loss = same.loss.or(known.loss);
                *same = Hop { loss, burst_mean, arrived, arrived_theory, ..known };
            }
            None => hops.push(known),
        }
    }
    hops.sort_by_key(|hop| hop.hop);
    if let ([first, ..], [next]) = (&mut hops[..], &flow.next_hops[..])
        && first.hop == Some(0)
    {
        first.neighbour.get_or_insert_with(|| next.clone());
    }
    hops
}

/// Formats the traces as text.
pub fn text(traces: &[Trace]) -> String {
    let blocks: Vec<String> = traces.iter().map(block).collect();
    if blocks.is_empty() { "no flow is configured\n".to_owned() } else { blocks.join("\n") }
}

fn block(trace: &Trace) -> String {
    let Trace { flow, role, word, hops, .. } = trace;
    let word = if word == "-" { "state not known" } else { word };
    let mut text = format!("flow {flow}, {role}, {word}\n");
    if hops.is_empty() {
        text += &sentence("hops", trace.not_known.as_deref().unwrap_or_default());
    } else {
        text += &hop_table(hops, &trace.names);
    }
    let of = |name: &str, number: Option<u64>| number.map(|it| format!("{name} {}", count(it)));
    let rank = trace.rank_ratio.map(|rank| {
        let theory = trace.rank_theory.map_or(String::new(), |it| format!(", theory {it:.4}"));
        format!("rank {rank:.4}{theory}")
    });
    let left = trace.residual_loss.map(|share| format!("residual loss {}", residual(share)));
    let delay = trace.decode_delay_mean_us;
    let delay = delay.map(|micros| format!("decoded after {:.1} ms on average", micros / 1e3));
    let facts = [rank, of("complete", trace.complete), of("failed", trace.failed), left, delay];
    let facts: Vec<String> = facts.into_iter().flatten().collect();
    if !facts.is_empty() {
        let place = if trace.complete.is_some() { "at the sink" } else { "here" };
        text += &wrapped(place, &facts);
    }
    text
}

fn hop_table(hops: &[Hop], names: &BoxNames) -> String {
    let head = [
        ("hop", Right),
        ("neighbour", Left),
        ("loss", Right),
        ("runs", Right),
        ("trip ms", Right),
        ("queue ms", Right),
        ("arrived", Right),
        ("theory", Right),
        ("heard s", Right),
    ];
    let rows = hops.iter().map(|hop| {
        let silent = if hop.silent == Some(true) { " (silent)" } else { "" };
        [
            hop.hop.map_or("from".into(), |hop| hop.to_string()),
            hop.neighbour
                .as_deref()
                .map_or("-".into(), |hop| format!("{}{silent}", names.full(hop))),
            hop.loss.map_or("-".into(), percent),
            known(hop.burst_mean, 1),
            millis(hop.round_trip_us),
            millis(hop.queue_us),
            known(hop.arrived, 4),
            known(hop.arrived_theory, 4),
            known(hop.heard_ago_seconds, 1),
        ]
    });
    table(head, &rows.collect::<Vec<_>>())
}
