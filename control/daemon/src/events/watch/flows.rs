//! Flows and their next hops.

use crate::events::{Happened, Kind};
use recoded_api::v1::{Flow, FlowNeighbour};
use std::collections::BTreeMap;

/// Reports changes of flows.
pub fn compare(old: &[Flow], new: &[Flow], events: &mut Vec<Happened>) {
    let mut before: BTreeMap<u64, &Flow> = old.iter().map(|flow| (flow.id, flow)).collect();
    for flow in new {
        let subject = format!("flow {}", flow.id);
        match before.remove(&flow.id) {
            Some(old) if old.role == flow.role => {
                state(old, flow, &subject, events);
                code(old, flow, &subject, events);
                next_hops(old, flow, &subject, events);
            }
            Some(old) => {
                let text = format!("{} here, before {}", flow.role, old.role);
                events.push(Happened::new(Kind::FlowChanged, subject, text));
            }
            None => {
                let text = format!("added, as {}", flow.role);
                events.push(Happened::new(Kind::FlowAdded, subject, text));
            }
        }
    }
    for id in before.into_keys() {
        events.push(Happened::new(Kind::FlowRemoved, format!("flow {id}"), "removed"));
    }
}

fn state(old: &Flow, new: &Flow, subject: &str, events: &mut Vec<Happened>) {
    if old.state == new.state {
        return;
    }
    let is_source = new.role == "source";
    let (kind, text) = match (old.state.as_deref(), new.state.as_deref()) {
        (_, Some("down")) => (Kind::FlowDown, "down: no next hop answers"),
        (_, Some("quiet")) => (Kind::FlowQuiet, "quiet: no packet has come for 3 s"),
        (Some("quiet"), Some("up")) => (Kind::FlowActive, "packets come again"),
        (_, Some("up")) if is_source => (Kind::FlowUp, "up: a next hop answers"),
        (_, Some("up")) => (Kind::FlowUp, "up: packets come"),
        (_, Some("waiting")) if is_source => {
            (Kind::FlowWaiting, "waiting for the first report of a next hop")
        }
        (_, Some("waiting")) => (Kind::FlowWaiting, "waiting for the first packet"),
        // Next hops report only with streams.
        _ => return,
    };
    events.push(Happened::new(kind, subject, text));
}

/// Code and sizes of a source. Of a relay or sink only the code, since packet sizes vary there.
fn code(old: &Flow, new: &Flow, subject: &str, events: &mut Vec<Happened>) {
    let words = |flow: &Flow| {
        let Flow { code, field, generation_size, symbol_bytes, .. } = flow;
        match flow.role.as_str() {
            "source" => {
                format!(
                    "{code}, field {field}, size {generation_size}, symbols of {symbol_bytes} bytes"
                )
            }
            _ => format!("{code}, field {field}"),
        }
    };
    let (before, now) = (words(old), words(new));
    // Before the first packet nothing is in use.
    if before == now || old.code.is_empty() || new.code.is_empty() {
        return;
    }
    let text = format!("now {now}; before {before}");
    events.push(Happened::new(Kind::FlowChanged, subject, text));
}

fn next_hops(old: &Flow, new: &Flow, subject: &str, events: &mut Vec<Happened>) {
    for hop in &new.neighbours {
        let name = &hop.next_hop;
        let Some(before) = old.neighbours.iter().find(|old| old.next_hop == *name) else {
            continue;
        };
        let mut push = |kind, text: String| {
            events.push(Happened::new(kind, subject, text).about(name));
        };
        match (before.silent, hop.silent) {
            (false, true) => push(Kind::NextHopSilent, silence(hop)),
            (true, false) => push(Kind::NextHopHeard, format!("{name} answers again")),
            _ => {}
        }
        match (before.lost_packet_bytes, hop.lost_packet_bytes) {
            (None, Some(lost)) => push(
                Kind::MtuSmaller,
                format!("IP packets of {lost} bytes and more do not arrive at {name}"),
            ),
            (Some(_), None) => {
                push(Kind::MtuNormal, format!("large packets arrive at {name} again"));
            }
            _ => {}
        }
        match (before.needed_packet_bytes, hop.needed_packet_bytes) {
            (None, Some(needed)) => push(
                Kind::MtuSmaller,
                format!(
                    "the path to {name} carries no full packets of any tunnel: its MTU has to be \
                     {needed} bytes or more"
                ),
            ),
            (Some(_), None) => push(
                Kind::MtuNormal,
                format!("the path to {name} carries packets of the least tunnel MTU again"),
            ),
            _ => {}
        }
    }
}

fn silence(hop: &FlowNeighbour) -> String {
    let heard = hop
        .heard_ago_seconds
        .map_or("no report so far".to_owned(), |seconds| format!("last report {seconds:.0} s ago"));
    format!("{} does not answer, although packets are sent to it; {heard}", hop.next_hop)
}
