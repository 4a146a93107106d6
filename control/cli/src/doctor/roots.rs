//! Root causes of findings: a link that is down leaves its neighbours silent, their sessions
//! without keys, their flows and tunnels without a carrier.
//!
//! ```text
//!  link (interface) ─> link (one neighbour) ─> session ─> flow ─> tunnel
//! ```

use recoded_api::v1::{Flow, State};
use recoded_host::{Finding, Level};
use std::net::IpAddr;

/// Counters of a link that rise while one of its neighbours is down.
const OF_NEIGHBOURS: [&str; 3] = ["tx_no_neighbour", "rx_icmp_no_port", "rx_icmp_unreachable"];

/// Prefix of the cause where a neighbour has no address yet.
pub const WAITING_FOR: &str = "waiting for ";

/// Words about a silent neighbour: even a warning then explains its consequences.
const SILENT: [&str; 3] = [WAITING_FOR, " was last heard ", " has not been heard "];

const LAYER_OF_FLOWS: u8 = 4;

/// The part of a network that a finding is about.
#[derive(Clone, PartialEq, Debug)]
struct Scope {
    link: String,
    /// One neighbour on it; `None` for all.
    address: Option<String>,
}

/// A finding's position in the hierarchy.
struct FindingLayer {
    /// Lower for causes than for their consequences.
    layer: u8,
    scopes: Vec<Scope>,
    /// Whether any finding about a neighbour of the link explains it.
    is_of_any_neighbour: bool,
}

/// Maps each finding to the index of the error that causes it, if there is one.
pub fn of(state: &State, findings: &[Finding]) -> Vec<Option<usize>> {
    let places: Vec<Option<FindingLayer>> = findings.iter().map(|it| place(state, it)).collect();
    let mut order: Vec<usize> = (0..findings.len()).filter(|at| places[*at].is_some()).collect();
    order.sort_by_key(|at| places[*at].as_ref().map(|place| place.layer));
    let mut causes = vec![None; findings.len()];
    let mut roots: Vec<usize> = Vec::new();
    for at in order {
        let Some(place) = &places[at] else { continue };
        let explained_by = |scope: &Scope| {
            let mut roots = roots.iter();
            roots.find(|root| {
                let root = places[**root].as_ref();
                root.is_some_and(|root| root.explains(scope, place.is_of_any_neighbour))
            })
        };
        let explained: Option<Vec<&usize>> = place.scopes.iter().map(explained_by).collect();
        match explained.as_deref() {
            Some([first, ..]) => causes[at] = Some(**first),
            // Warnings that have a place on a link are silent neighbours.
            _ if findings[at].level == Level::Error || place.layer < LAYER_OF_FLOWS => {
                roots.push(at);
            }
            _ => {}
        }
    }
    causes
}

impl FindingLayer {
    fn explains(&self, scope: &Scope, is_of_any_neighbour: bool) -> bool {
        self.scopes.iter().any(|own| {
            let is_wider = own.address.is_none() || own.address == scope.address;
            own.link == scope.link && (is_wider || is_of_any_neighbour)
        })
    }
}

/// Position of a finding; `None` if it neither causes others nor is caused by any.
fn place(state: &State, finding: &Finding) -> Option<FindingLayer> {
    let Finding { subject, cause, level, .. } = finding;
    let is_error = *level == Level::Error;
    // Other warnings cause nothing. Only one about a flow may follow from an error.
    let is_silence = subject.starts_with("link ") && SILENT.iter().any(|it| cause.contains(it));
    if !is_error && !is_silence && !subject.starts_with("flow ") {
        return None;
    }
    let with = |layer, scopes: Vec<Scope>| {
        (!scopes.is_empty()).then_some(FindingLayer { layer, scopes, is_of_any_neighbour: false })
    };
    if let Some(link) = subject.strip_prefix("link ") {
        let address = neighbour(state, link, cause);
        let layer = if address.is_some() { 1 } else { 0 };
        let is_of_any_neighbour = OF_NEIGHBOURS.iter().any(|name| cause.starts_with(name));
        let layer = if is_of_any_neighbour { 2 } else { layer };
        let scopes = vec![Scope { link: link.into(), address }];
        return Some(FindingLayer { layer, scopes, is_of_any_neighbour });
    }
    if let Some(id) = subject.strip_prefix("session with flow ") {
        let flow = state.flows.iter().find(|flow| flow.id.to_string() == id)?;
        return with(4, hops(flow).filter_map(scope).collect());
    }
    if let Some(peer) = subject.strip_prefix("session with ") {
        return with(3, scope(peer).into_iter().collect());
    }
    if let Some(id) = subject.strip_prefix("flow ") {
        let flow = state.flows.iter().find(|flow| flow.id.to_string() == id)?;
        let named = hops(flow).filter(|hop| cause.split_whitespace().any(|word| word == *hop));
        return with(LAYER_OF_FLOWS, named.filter_map(scope).collect());
    }
    let tunnel = subject.strip_prefix("tunnel ")?;
    let is_of_paths = cause.contains("no carrier");
    let fed = state.flows.iter().filter(|flow| {
        is_of_paths && flow.role == "source" && flow.tunnel.as_deref() == Some(tunnel)
    });
    with(5, fed.flat_map(|flow| &flow.next_hops).filter_map(|hop| scope(hop)).collect())
}

fn hops(flow: &Flow) -> impl Iterator<Item = &str> {
    flow.next_hops.iter().chain(&flow.upstreams).map(String::as_str)
}

/// The scope of `link:address`.
fn scope(name: &str) -> Option<Scope> {
    let (link, address) = name.split_once(':')?;
    Some(Scope { link: link.into(), address: Some(address.into()) })
}

/// The neighbour of a link named in a cause, by address or as link:name: a name alone may be any
/// word.
fn neighbour(state: &State, link: &str, cause: &str) -> Option<String> {
    let ours = state.links.iter().filter(|it| it.name == link);
    let known = ours.flat_map(|link| link.neighbours.iter().map(|it| it.address.as_str()));
    let of_flows = state.flows.iter().flat_map(hops).filter_map(|hop| hop.split_once(':'));
    let of_flows = of_flows.filter(|(of, _)| *of == link).map(|(_, address)| address);
    let mut all = known.chain(of_flows);
    let awaited = cause.strip_prefix(WAITING_FOR).and_then(|it| it.split(": ").next());
    let is_named = |address: &&str| {
        let is_address = address.parse::<IpAddr>().is_ok();
        let hop = format!("{link}:{address}");
        let mut words = cause.split_whitespace();
        awaited == Some(address)
            || words.any(|word| {
                let word = word.trim_matches(['(', ')', ',', ':', ';']);
                word == hop || is_address && word == *address
            })
    };
    all.find(is_named).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use recoded_api::v1::Link;

    fn state() -> State {
        let link = |name: &str| Link { name: name.into(), ..Link::default() };
        let flow = |id, hops: &[&str]| Flow {
            id,
            role: "source".into(),
            tunnel: Some(format!("rec{id}")),
            next_hops: hops.iter().map(|hop| (*hop).to_owned()).collect(),
            ..Flow::default()
        };
        State {
            links: vec![link("west"), link("east")],
            flows: vec![
                flow(1, &["east:10.0.2.1"]),
                flow(2, &["east:10.0.2.1", "west:10.0.1.1"]),
                flow(3, &["east:10.0.2.10"]),
            ],
            ..crate::fixed::state()
        }
    }

    fn error(subject: &str, cause: &str) -> Finding {
        let [subject, cause, cure] = [subject, cause, "do"].map(str::to_owned);
        Finding { level: Level::Error, subject, cause, cure, mend: Vec::new() }
    }

    #[test]
    fn all_that_a_dead_link_causes_follows_from_it() {
        let findings = [
            error("tunnel rec1", "it has no carrier, since no next hop of its stream answers"),
            error("flow 1", "east:10.0.2.1 does not answer, although packets are sent to it"),
            error("session with east:10.0.2.1", "there are no keys"),
            error("link east", "eth1 is down"),
            error("link east", "the Ethernet address of 10.0.2.1 is not known"),
            error("link east", "tx_no_neighbour, 4 more while looking"),
            error("link west", "another one"),
        ];
        let causes = of(&state(), &findings);
        assert_eq!(causes, [Some(3), Some(3), Some(3), None, Some(3), Some(3), None]);
    }

    #[test]
    fn neighbour_that_is_down_explains_nothing_of_another() {
        let findings = [
            error("link east", "10.0.2.1 answers \"port 9426 unreachable\""),
            error("link east", "rx_icmp_no_port, 7 more while looking"),
            error("session with east:10.0.2.1", "there are no keys"),
            error("session with east:10.0.2.10", "there are no keys"),
            error("flow 3", "east:10.0.2.10 does not answer"),
            error("tunnel rec2", "it has no carrier"),
            error("tunnel rec1", "it is gone"),
        ];
        let causes = of(&state(), &findings);
        // The tunnel has another path, which has no finding.
        assert_eq!(causes, [None, Some(0), Some(0), None, Some(3), None, None]);
    }

    /// A box called `not` was once named by every cause with that word.
    #[test]
    fn awaited_box_is_named_as_link_and_name_only() {
        let mut state = state();
        state.flows[0].next_hops = vec!["east:not".into()];
        state.flows[1].next_hops = vec!["east:10.0.2.1".into()];
        let silent = |who: &str| error("link east", &format!("{who} was last heard 45 s ago"));
        let unknown = error("link east", "the Ethernet address of 10.0.2.1 is not known");
        let session = |with: &str| error(&format!("session with {with}"), "there are no keys");
        let (one, other) = (session("east:10.0.2.1"), session("east:not"));
        let causes = of(&state, &[unknown, one.clone(), other.clone()]);
        assert_eq!(causes, [None, Some(0), None]);
        let causes = of(&state, &[silent("east:not"), one.clone(), other.clone()]);
        assert_eq!(causes, [None, None, Some(0)]);
        let waits = error("link east", "waiting for not: its address is known once it sends");
        assert_eq!(of(&state, &[waits.clone(), one, other.clone()]), [None, None, Some(0)]);
        let warning = Finding { level: Level::Warning, ..waits };
        assert_eq!(of(&state, &[warning, other]), [None, Some(0)], "it may sleep");
    }

    #[test]
    fn warnings_and_findings_of_the_host_stand_for_themselves() {
        let warning = Finding { level: Level::Warning, ..error("link east", "eth1 is slow") };
        let findings = [warning, error("host", "no tun"), error("session with east:a", "keys")];
        assert_eq!(of(&state(), &findings), [None, None, None]);
        assert_eq!(of(&state(), &[]), []);
    }
}
