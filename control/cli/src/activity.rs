//! States of neighbours and flows in one word: a path over which nothing is sent is idle, and a
//! fault is one only where something does not answer.

use recoded_api::v1::{Flow, Link, Neighbour, State};

/// A neighbour that runs announces itself every ten seconds, traffic or not; two may be lost.
pub const SILENT_SECONDS: f64 = 30.0;

/// Rates below this are keepalives, in Mbit/s.
const IDLE_MBIT: f64 = 0.05;

/// Whether a neighbour announced itself recently.
pub fn is_heard(neighbour: &Neighbour) -> bool {
    neighbour.said_ago_seconds.is_some_and(|ago| ago <= SILENT_SECONDS)
}

/// State of a neighbour.
pub fn neighbour_word(state: &State, link: &Link, neighbour: &Neighbour) -> &'static str {
    let hop = format!("{}:{}", link.name, neighbour.address);
    let mut reports = state.flows.iter().flat_map(|flow| &flow.neighbours);
    let mut sessions = state.sessions.iter();
    let has_no_keys = sessions.any(|it| it.with == hop && it.age_seconds.is_none());
    match () {
        () if !link.waits.is_empty() || !neighbour.waits.is_empty() => "waiting",
        () if link.state == "down" => "down",
        () if reports.any(|it| it.next_hop == hop && it.silent) => "silent",
        () if !neighbour.resolved => "silent",
        () if has_no_keys => "no keys",
        () if neighbour.said_ago_seconds.is_some() && !is_heard(neighbour) => "silent",
        () => "up",
    }
}

/// State of a flow.
pub fn flow_word<'a>(state: &State, flow: &'a Flow) -> &'a str {
    let word = flow.state.as_deref().unwrap_or("-");
    let hops = if flow.role == "source" { &flow.next_hops } else { &flow.upstreams };
    let is_idle = |rate: Option<f64>| rate.is_none_or(|mbit| mbit < IDLE_MBIT);
    match word {
        _ if !flow.waits.is_empty() => "waiting",
        "waiting" | "quiet" if hops.iter().any(|hop| is_up(state, hop)) => "idle",
        "up" if is_idle(flow.goodput_mbit) && is_idle(flow.wire_mbit) => "idle",
        word => word,
    }
}

/// Whether a neighbour is there, by its announcements.
fn is_up(state: &State, hop: &str) -> bool {
    let mut neighbours = state.links.iter().flat_map(|link| {
        let of = |it: &Neighbour| format!("{}:{}", link.name, it.address) == hop;
        link.neighbours.iter().filter(move |it| of(it)).map(move |it| (link, it))
    });
    neighbours.any(|(link, it)| is_heard(it) && neighbour_word(state, link, it) == "up")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixed::line;

    #[test]
    fn flow_is_idle_where_its_neighbour_answers_and_waits_where_it_does_not() {
        let mut state = line::idle();
        assert_eq!(flow_word(&state, &state.flows[1]), "idle");
        state.links[0].neighbours[0].said_ago_seconds = Some(SILENT_SECONDS + 1.0);
        assert_eq!(flow_word(&state, &state.flows[1]), "waiting");
        assert_eq!(
            neighbour_word(&state, &state.links[0], &state.links[0].neighbours[0]),
            "silent"
        );
    }
}
