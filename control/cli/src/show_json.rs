//! The state of a daemon as JSON, under the keys of the control API.

use crate::json::pretty;
use crate::part::Show;
use crate::show::flow_faults;
use recoded_api::v1::{Engine, Flow, Link, State, Worker};
use serde::Serialize;
use std::collections::BTreeMap;

/// The state, or a part of it under its own key; on several lines, or on one.
pub fn show(state: &State, what: Option<Show>, is_line: bool) -> serde_json::Result<String> {
    #[derive(Serialize)]
    #[serde(rename_all = "lowercase")]
    enum Part<'a> {
        Flows(&'a [Flow]),
        Links(&'a [Link]),
        Workers(&'a [Worker]),
        Config(&'a str),
        Engine(&'a Engine),
        #[serde(untagged)]
        All(&'a State),
        #[serde(untagged)]
        Drops(Drops<'a>),
    }
    let part = match what {
        None | Some(Show::All) => Part::All(state),
        Some(Show::Flows) => Part::Flows(&state.flows),
        Some(Show::Links) => Part::Links(&state.links),
        Some(Show::Workers) => Part::Workers(&state.workers),
        Some(Show::Config) => Part::Config(&state.config),
        Some(Show::Engine) => Part::Engine(&state.engine),
        Some(Show::Drops) => Part::Drops(drops(state)),
    };
    if is_line { Ok(serde_json::to_string(&part)? + "\n") } else { pretty(&part) }
}

type Reasons<'a> = &'a BTreeMap<String, u64>;

#[derive(Serialize)]
struct Drops<'a> {
    drops: Reasons<'a>,
    verdicts: Reasons<'a>,
    links: BTreeMap<&'a str, Reasons<'a>>,
    tunnels: BTreeMap<&'a str, Reasons<'a>>,
    flows: BTreeMap<u64, BTreeMap<String, u64>>,
}

fn drops(state: &State) -> Drops<'_> {
    let links = state.links.iter().map(|link| (link.name.as_str(), &link.faults));
    let tunnels = state.tunnels.iter().map(|tunnel| (tunnel.name.as_str(), &tunnel.faults));
    Drops {
        drops: &state.drops,
        verdicts: &state.verdicts,
        links: links.collect(),
        tunnels: tunnels.collect(),
        flows: state.flows.iter().map(|flow| (flow.id, flow_faults(flow))).collect(),
    }
}
