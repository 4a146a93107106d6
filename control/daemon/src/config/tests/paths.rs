//! Paths to one box whose address is known once it sends.

use super::{errors, parse};
use crate::config::Config;
use crate::dataplane::Observation;
use crate::metrics::text::text;
use crate::rates::Rates;
use crate::state::state;
use recoded_api::v1::{Link, Neighbour, State};
use recoded_pipeline::params::PeerId;
use recoded_runtime::{SessionReport, Sessions};
use std::collections::BTreeSet;
use std::time::Duration;

/// Two boxes, one with two uplinks, as rendered.
const UPLINKS: &str = include_str!("../../../../network/tests/golden/boxes-uplinks.txt");

/// The box that both uplinks lead to.
fn hub() -> String {
    let (_, hub) = UPLINKS.split_once("# vps of net.toml").expect("the hub");
    format!("#{hub}")
}

/// The state of a daemon that has seen nothing.
fn observed(config: &Config) -> State {
    let report = SessionReport {
        key: String::new(),
        age_nanos: None,
        handshakes: 0,
        refused: 0,
        refusal: String::new(),
        one_way: false,
    };
    let hops = config.hops.iter().map(|_| Some(report.clone())).collect();
    let neighbours = config.hops.iter().map(|_| Neighbour::default()).collect();
    let link = Link { name: config.links[0].name.clone(), neighbours, ..Link::default() };
    let seen = Observation {
        links: vec![link],
        sessions: Sessions { hops, ..Sessions::default() },
        ..Observation::default()
    };
    state(config, 1, Duration::from_secs(9), seen, &Rates::default())
}

/// Both were once `auto0:home`: metrics had each series twice, and events compared one path with
/// the other.
#[test]
fn paths_to_one_awaited_box_have_different_names_everywhere() {
    let config = parse(&hub()).expect("the configuration of the hub");
    let names = [0, 1].map(|id| config.hop_name(PeerId(id)));
    assert_eq!(names, ["auto0:home#0", "auto0:home#1"]);
    assert_eq!(parse(&config.to_toml()).expect("what is rendered is valid"), config);
    let state = observed(&config);
    let shown: Vec<&str> = state.links[0].neighbours.iter().map(|it| &*it.address).collect();
    assert_eq!(shown, ["home#0", "home#1"]);
    assert!(state.links[0].neighbours.iter().all(|it| it.name == "home"));
    let sessions: Vec<&str> = state.sessions.iter().map(|it| &*it.with).collect();
    assert_eq!(sessions[..2], names);
    assert_eq!(state.flows[0].upstreams, names);
    assert_eq!(state.flows[1].next_hops, names);
    let metrics = text(state).expect("metrics");
    assert!(metrics.contains("home#1"), "{metrics}");
    let mut series = BTreeSet::new();
    for line in metrics.lines().filter(|line| !line.starts_with('#')) {
        let (name, _) = line.rsplit_once(' ').expect("a value");
        assert!(series.insert(name), "twice: {name}");
    }
    // A box with one path keeps its name, and so do boxes of different names on one link.
    let cut = hub().replace("name = \"home\" },\n", "name = \"away\" },\n");
    let other = cut.replacen("hSDwCYkwp1R0i33ctD73Wg2", "3p7bfXt9wbTTW2HC7OQ1Nz+", 1);
    let config = parse(&other).expect("two boxes");
    let names = [0, 1].map(|id| config.hop_name(PeerId(id)));
    assert_eq!(names, ["auto0:away", "auto0:home"]);
}

#[test]
fn name_of_a_box_is_refused_for_two_keys() {
    let other = hub().replacen("hSDwCYkwp1R0i33ctD73Wg2", "3p7bfXt9wbTTW2HC7OQ1Nz+", 1);
    let said = errors(&other);
    assert!(said.contains("name = \"home\" is taken: another neighbour of this name"), "{said}");
}
