//! States of neighbours and flows in one word: a path over which nothing is sent is idle, and a
//! fault is one only where something does not answer.

use crate::box_names::named_box;
use recoded_api::v1::{Flow, Link, Neighbour, State};
use std::net::IpAddr;

/// A neighbour that runs announces itself every ten seconds, traffic or not; two may be lost.
pub const SILENT_SECONDS: f64 = 30.0;

/// Rates below this are keepalives, in Mbit/s.
const IDLE_MBIT: f64 = 0.05;

/// What to do about a neighbour that does not answer.
pub const SILENCE_CURE: &str =
    "check that recoded runs there, and that packets pass in both directions";

/// Why a neighbour is not up, in words behind its name.
pub struct Silence {
    /// Since when.
    pub words: String,
    /// Whether this daemon has started too recently to expect more.
    pub is_new: bool,
}

/// The name of a neighbour in flows and sessions.
pub fn hop_of(link: &Link, neighbour: &Neighbour) -> String {
    format!("{}:{}", link.name, neighbour.address)
}

/// Seconds since a packet of a neighbour came, of any kind: losses do not take all of them.
pub fn heard(state: &State, hop: &str, neighbour: &Neighbour) -> Option<f64> {
    let arrivals = state.flows.iter().flat_map(|flow| &flow.arrivals);
    let arrivals =
        arrivals.filter(|it| it.upstream == hop).filter_map(|it| it.received_ago_seconds);
    let reports = state.flows.iter().flat_map(|flow| &flow.neighbours);
    let reports = reports.filter(|it| it.next_hop == hop).filter_map(|it| it.heard_ago_seconds);
    let answers = state.sessions.iter().filter(|it| it.with == hop && !it.one_way);
    let answers = answers.filter_map(|it| it.age_seconds);
    let all = arrivals.chain(reports).chain(answers).chain(neighbour.said_ago_seconds);
    all.reduce(f64::min)
}

/// Whether a neighbour is silent, traffic or not. Those without a return path, and those that a
/// source only sends to, need not announce themselves.
pub fn silence(state: &State, link: &Link, neighbour: &Neighbour) -> Option<Silence> {
    if !neighbour.resolved || !neighbour.waits.is_empty() {
        return None;
    }
    let hop = hop_of(link, neighbour);
    let is_one_way = state.sessions.iter().any(|it| it.with == hop && it.one_way);
    let mut flows = state.flows.iter();
    let is_expected = !is_one_way
        && flows.any(|flow| {
            let answers = flow.role == "relay" || flow.role == "source" && flow.state.is_some();
            flow.upstreams.contains(&hop) || answers && flow.next_hops.contains(&hop)
        });
    let announces = neighbour.said_ago_seconds.is_some() || is_expected;
    let is_new = state.uptime_seconds as f64 <= SILENT_SECONDS;
    let words = match heard(state, &hop, neighbour) {
        Some(ago) if announces && ago > SILENT_SECONDS => format!("was last heard {ago:.0} s ago"),
        None if is_expected && is_new => "has not been heard yet".to_owned(),
        None if is_expected => "has not been heard since the start".to_owned(),
        _ => return None,
    };
    Some(Silence { is_new: is_new && words.ends_with("yet"), words })
}

/// Cause and cure where a neighbour sends packets of another version of the protocol. Anyone who
/// can send from its address can send those, so a neighbour that is up is not suspected.
pub fn other_protocol(state: &State, link: &Link, neighbour: &Neighbour) -> Option<[String; 2]> {
    if neighbour_word(state, link, neighbour) == "up" {
        return None;
    }
    neighbour.other_protocol_words(&who(link, neighbour), state.protocol)
}

/// A neighbour by name and address, or by link:name while its address is a placeholder.
pub fn who(link: &Link, neighbour: &Neighbour) -> String {
    match neighbour.address.parse::<IpAddr>() {
        Ok(_) => named_box(&neighbour.name, &neighbour.address),
        Err(_) => hop_of(link, neighbour),
    }
}

/// State of a neighbour.
pub fn neighbour_word(state: &State, link: &Link, neighbour: &Neighbour) -> &'static str {
    let hop = hop_of(link, neighbour);
    let mut reports = state.flows.iter().flat_map(|flow| &flow.neighbours);
    let mut sessions = state.sessions.iter();
    let has_no_keys = sessions.any(|it| it.with == hop && it.age_seconds.is_none());
    match silence(state, link, neighbour) {
        _ if !link.waits.is_empty() || !neighbour.waits.is_empty() => "waiting",
        _ if link.state == "down" => "down",
        _ if reports.any(|it| it.next_hop == hop && it.silent) => "silent",
        _ if !neighbour.resolved => "silent",
        Some(Silence { is_new: false, .. }) => "silent",
        _ if has_no_keys => "no keys",
        Some(_) => "waiting",
        None => "up",
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

/// Replaces the states of flows by their words.
pub fn reword(state: &mut State) {
    let words = state.flows.iter().map(|flow| flow_word(state, flow).to_owned());
    let words: Vec<String> = words.collect();
    for (flow, word) in state.flows.iter_mut().zip(words) {
        flow.state = flow.state.take().map(|_| word);
    }
}

/// Whether packets of some flow could pass this box now.
pub fn carries(state: &State) -> bool {
    let any_up = |hops: &[String]| hops.is_empty() || hops.iter().any(|hop| is_up(state, hop));
    state.flows.iter().any(|flow| any_up(&flow.upstreams) && any_up(&flow.next_hops))
}

/// Whether a neighbour is up, judged by its latest packets.
fn is_up(state: &State, hop: &str) -> bool {
    let mut neighbours = state.links.iter().flat_map(|link| {
        let neighbours = link.neighbours.iter().filter(|it| hop_of(link, it) == hop);
        neighbours.map(move |it| (link, it))
    });
    neighbours.any(|(link, it)| {
        let is_heard = heard(state, hop, it).is_some_and(|ago| ago <= SILENT_SECONDS);
        is_heard && neighbour_word(state, link, it) == "up"
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixed::line;
    use recoded_api::v1::FlowUpstream;

    #[test]
    fn flow_is_idle_where_its_neighbour_answers_and_waits_where_it_does_not() {
        let mut state = line::idle();
        assert_eq!(flow_word(&state, &state.flows[1]), "idle");
        let mut worded = state.clone();
        reword(&mut worded);
        assert!(worded.flows.iter().all(|flow| flow.state.as_deref() == Some("idle")));
        state.links[0].neighbours[0].said_ago_seconds = Some(SILENT_SECONDS + 1.0);
        assert_eq!(flow_word(&state, &state.flows[1]), "waiting");
        assert_eq!(
            neighbour_word(&state, &state.links[0], &state.links[0].neighbours[0]),
            "silent"
        );
    }

    /// Announcements alone once counted: at 40 % loss three of them in a row are lost every few
    /// minutes.
    #[test]
    fn neighbour_whose_packets_arrive_is_up_although_its_announcements_are_lost() {
        let mut state = line::relay();
        let neighbour = |state: &State| {
            let link = &state.links[0];
            neighbour_word(state, link, &link.neighbours[0])
        };
        state.links[0].neighbours[0].said_ago_seconds = Some(45.0);
        state.sessions[0].age_seconds = Some(90.0);
        state.flows[0].arrivals = vec![FlowUpstream {
            upstream: "wan:laptop".into(),
            received_ago_seconds: Some(0.4),
            ..FlowUpstream::default()
        }];
        assert_eq!(neighbour(&state), "up", "its packets arrive");
        state.flows[0].arrivals.clear();
        assert_eq!(neighbour(&state), "silent");
        state.flows[1].neighbours[0].heard_ago_seconds = Some(0.2);
        assert_eq!(neighbour(&state), "up", "its reports arrive");
    }

    /// Forged packets of another version say nothing of a neighbour that is up.
    #[test]
    fn neighbour_of_another_version_is_named_unless_it_is_up() {
        let mut state = line::relay();
        state.protocol = 3;
        state.flows.iter_mut().for_each(|flow| flow.arrivals.clear());
        state.flows.iter_mut().for_each(|flow| flow.neighbours.clear());
        state.sessions.iter_mut().for_each(|it| it.age_seconds = None);
        let words = |state: &State| {
            let link = &state.links[0];
            other_protocol(state, link, &link.neighbours[0])
        };
        state.links[0].neighbours[0].said_ago_seconds = None;
        assert_eq!(words(&state), None);
        state.links[0].neighbours[0].other_protocol = Some(2);
        let [cause, cure] = words(&state).unwrap();
        assert!(
            cause.ends_with("speaks protocol 2, this box 3: its packets are dropped"),
            "{cause}"
        );
        assert!(cure.starts_with("upgrade wan:laptop"), "{cure}");
        state.links[0].neighbours[0].other_protocol = Some(4);
        assert!(words(&state).unwrap()[1].starts_with("upgrade this box"));
        state.links[0].neighbours[0].said_ago_seconds = Some(1.0);
        assert!(words(&state).is_some(), "it has no keys");
        state.sessions.iter_mut().for_each(|it| it.age_seconds = Some(9.0));
        assert_eq!(words(&state), None, "it is up");
    }

    /// A relay once expected nothing of its next hops.
    #[test]
    fn next_hop_of_a_relay_is_expected_unless_its_keys_are_one_way() {
        let mut state = line::relay();
        state.sessions.iter_mut().for_each(|it| it.age_seconds = Some(90.0));
        for flow in &mut state.flows {
            flow.arrivals.clear();
        }
        state.flows.remove(1);
        state.links[1].neighbours[0].said_ago_seconds = None;
        let word =
            |state: &State| neighbour_word(state, &state.links[1], &state.links[1].neighbours[0]);
        assert_eq!(word(&state), "silent");
        state.sessions.remove(1);
        assert_eq!(word(&state), "silent");
        state.uptime_seconds = 5;
        assert_eq!(word(&state), "waiting", "it has not been heard yet");
        state.sessions[0].with = "lan:10.0.2.2".into();
        state.sessions[0].one_way = true;
        assert_eq!(word(&state), "up");
    }
}
