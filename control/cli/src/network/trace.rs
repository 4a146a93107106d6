//! `-f net.toml trace`: every hop of every path, in both directions, each as seen by the nodes at
//! its two ends. Only queries boxes.

use super::graph::{Graph, Hop, graphs_and_back};
use super::ssh::NoAnswer;
use super::status::{BoxFinding, finding, findings, refused, values};
use super::{Boxes, Told, worse};
use crate::table::{Align, known, millis, percent, table};
use crate::trace::UnknownFlow;
use recoded_api::exit;
use recoded_api::v1::State;
use serde::Serialize;

use Align::{Left, Right};

/// The result, as serialised to JSON.
#[derive(Serialize)]
struct TraceReport<'a> {
    paths: &'a [Graph],
    /// Boxes that did not answer.
    errors: Vec<Silent>,
}

#[derive(Serialize)]
struct Silent {
    node: String,
    error: BoxFinding,
}

/// Queries all boxes for their states, and shows the paths of one flow, or all.
///
/// # Errors
/// No path has this flow.
pub fn run(boxes: &Boxes, flow: Option<u32>, json: bool) -> Result<Told, crate::Failure> {
    let answers = boxes.ask(|place| place.ask(true, "show"))?;
    let mut states: Vec<Option<State>> = vec![None; boxes.network.nodes.len()];
    let mut errors = Vec::new();
    for ((index, node), answer) in boxes.chosen.iter().zip(boxes.nodes()).zip(answers) {
        let failed = match answer {
            Ok(answer) => {
                let state = values(&answer.text).into_iter().next();
                states[*index] = state.and_then(|state| serde_json::from_value(state).ok());
                if states[*index].is_some() {
                    continue;
                }
                refused(&answer)
            }
            Err(NoAnswer { cause, cure }) => (cause, cure),
        };
        errors.push(Silent { node: node.name.clone(), error: finding(failed.0, failed.1) });
    }
    let states: Vec<Option<&State>> = states.iter().map(Option::as_ref).collect();
    let all = graphs_and_back(&boxes.network, &states);
    let ids = all.iter().map(|path| path.flow).collect::<Vec<_>>();
    let paths = all.into_iter().filter(|path| flow.is_none_or(|flow| flow == path.flow));
    let paths: Vec<Graph> = paths.collect();
    if let Some(flow) = flow.filter(|_| paths.is_empty()) {
        return Err(UnknownFlow::new(flow, ids.iter().map(u32::to_string)).into());
    }
    let code = errors.iter().map(|_| exit::NOT_RUNNING).fold(exit::OK, worse);
    let text = match json {
        true => crate::json::pretty(&TraceReport { paths: &paths, errors })?,
        false => {
            let blocks = paths.iter().map(block).collect::<Vec<_>>().join("\n");
            let silent = errors.iter();
            blocks
                + &silent
                    .map(|it| findings(&it.node, std::slice::from_ref(&it.error)))
                    .collect::<String>()
        }
    };
    Ok(Told { code, text })
}

fn block(path: &Graph) -> String {
    let head = [
        ("hop", Left),
        ("state", Left),
        ("Mbit/s", Right),
        ("loss", Right),
        ("runs", Right),
        ("trip ms", Right),
        ("queue ms", Right),
        ("arrived", Right),
        ("theory", Right),
        ("delay ms", Right),
    ];
    let rows: Vec<_> = path.hops.iter().map(row).collect();
    format!("{} (flow {})\n{}", path.path, path.flow, table(head, &rows))
}

fn row(hop: &Hop) -> [String; 10] {
    [
        format!("{} -> {}", hop.from, hop.to),
        hop.state.to_owned(),
        known(hop.rate_mbit, 1),
        hop.loss.map_or("-".into(), percent),
        known(hop.burst_mean, 1),
        millis(hop.round_trip_us),
        millis(hop.queue_us),
        known(hop.arrived, 4),
        known(hop.arrived_theory, 4),
        millis(hop.decode_delay_us),
    ]
}
