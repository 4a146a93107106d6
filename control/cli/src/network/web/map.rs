//! Content of the page: nodes, links and flows of a network, from the reports of its boxes. No I/O.

use crate::flows::wire_ratio;
use recoded_api::v1::{Flow, State};
use recoded_network::{Network, Path};
use serde::Serialize;

/// State of a box.
pub enum BoxState {
    /// Not known yet, or not among the boxes that `--only` names.
    NotAsked,
    /// It does not answer; the reason.
    NoAnswer(String),
    /// No daemon answers there; the reason.
    NoDaemon(String),
    /// Its daemon's state.
    Up(Box<State>),
}

impl BoxState {
    fn word(&self) -> &'static str {
        match self {
            BoxState::NotAsked => "not asked",
            BoxState::NoAnswer(_) => "no answer",
            BoxState::NoDaemon(_) => "no daemon",
            BoxState::Up(_) => "up",
        }
    }

    fn state(&self) -> Option<&State> {
        match self {
            BoxState::Up(state) => Some(state),
            _ => None,
        }
    }

    /// Its flow of this id in this role.
    fn flow(&self, id: u32, role: &str) -> Option<&Flow> {
        let flows = &self.state()?.flows;
        flows.iter().find(|flow| flow.id == u64::from(id) && flow.role == role)
    }
}

/// The whole page.
#[derive(Debug, PartialEq, Serialize)]
pub struct Map {
    network: String,
    nodes: Vec<Node>,
    links: Vec<Link>,
    flows: Vec<FlowRoute>,
}

#[derive(Debug, PartialEq, Serialize)]
struct Node {
    name: String,
    host: String,
    state: &'static str,
    version: Option<String>,
    /// Why it is not up.
    why: String,
}

#[derive(Debug, PartialEq, Serialize)]
struct Link {
    /// Indices of nodes.
    ends: [usize; 2],
    interfaces: [String; 2],
}

/// A flow along one way.
#[derive(Debug, PartialEq, Serialize)]
struct FlowRoute {
    id: u32,
    /// Indices of nodes, source first.
    nodes: Vec<usize>,
    /// State at its source; null if unknown.
    state: Option<String>,
    code: Option<String>,
    /// Delivered at the sink.
    goodput_mbit: Option<f64>,
    /// Rate on the wire over goodput, and the theoretical minimum.
    ratio: Option<f64>,
    theory: Option<f64>,
    rank: Option<f64>,
    rank_theory: Option<f64>,
    /// Share of packets that each link loses, the first link first.
    loss: Vec<Option<f64>>,
}

impl Map {
    /// Before any box was queried.
    pub fn begin(network: &Network) -> Map {
        let seen: Vec<BoxState> = network.nodes.iter().map(|_| BoxState::NotAsked).collect();
        Map::of(network, &seen)
    }

    /// Builds the map from the state of each node, in their order.
    pub fn of(network: &Network, seen: &[BoxState]) -> Map {
        let nodes = network.nodes.iter().zip(seen).map(|(node, seen)| Node {
            name: node.name.clone(),
            host: node.host.clone(),
            state: seen.word(),
            version: seen.state().map(|state| state.version.clone()),
            why: match seen {
                BoxState::NoAnswer(why) | BoxState::NoDaemon(why) => why.clone(),
                BoxState::NotAsked | BoxState::Up(_) => String::new(),
            },
        });
        let links = network.links.iter().map(|link| Link {
            ends: link.ends.each_ref().map(|end| end.node),
            interfaces: link.ends.each_ref().map(|end| end.interface.clone()),
        });
        Map {
            network: network.file.clone(),
            nodes: nodes.collect(),
            links: links.collect(),
            flows: network.paths.iter().flat_map(|path| ways(path, seen)).collect(),
        }
    }
}

/// Each way of a path, and the return path if it has one receiver.
fn ways(path: &Path, seen: &[BoxState]) -> Vec<FlowRoute> {
    let there = path.ways.iter().map(|nodes| way(path.id, nodes.clone(), seen));
    let turned = path.ways.iter().filter(|_| path.receivers().len() == 1);
    let turned = turned.map(|nodes| nodes.iter().rev().copied().collect());
    let back = turned.map(|nodes| way(path.id.saturating_add(1), nodes, seen));
    there.chain(back).collect()
}

fn way(id: u32, nodes: Vec<usize>, seen: &[BoxState]) -> FlowRoute {
    let at = |node: Option<&usize>, role| node.and_then(|node| seen[*node].flow(id, role));
    let (source, sink) = (at(nodes.first(), "source"), at(nodes.last(), "sink"));
    let remote = source.and_then(|flow| flow.remote.as_ref());
    let code = source.or(sink).map(|flow| flow.code.clone());
    FlowRoute {
        id,
        state: source.and_then(|flow| flow.state.clone()),
        code: code.filter(|code| !code.is_empty()),
        goodput_mbit: sink.and_then(|flow| flow.goodput_mbit),
        ratio: source.and_then(wire_ratio),
        theory: source.and_then(|flow| flow.overhead_theory),
        rank: sink.and_then(|flow| flow.rank_ratio).or_else(|| remote?.rank_ratio),
        rank_theory: source.and_then(|flow| flow.rank_theory),
        loss: (0..nodes.len().saturating_sub(1)).map(|hop| loss(id, &nodes, hop, seen)).collect(),
        nodes,
    }
}

/// The loss of one link: as the next node reports it to the previous one, otherwise as the next
/// node counts it, otherwise as reported to the source.
fn loss(id: u32, nodes: &[usize], hop: usize, seen: &[BoxState]) -> Option<f64> {
    let role = |place: usize| match place {
        0 => "source",
        place if place + 1 == nodes.len() => "sink",
        _ => "relay",
    };
    let flow = |place: usize| seen[nodes[place]].flow(id, role(place));
    // With several neighbours it is unknown which one this is.
    let heard = flow(hop).and_then(|flow| match flow.neighbours.as_slice() {
        [next] => next.loss,
        _ => None,
    });
    let counted = || flow(hop + 1).and_then(|flow| Some(flow.hops.first()?.loss));
    let told = || {
        let hops = &flow(0)?.hops;
        hops.iter().find(|told| told.hop == hop as u64).map(|told| told.loss)
    };
    heard.or_else(counted).or_else(told)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixed;
    use recoded_api::v1::{FlowNeighbour, HopLoss};

    const NETWORK: &str = "auth = \"none\"\n[nodes]\na = \"a\"\nb = \"b\"\nc = \"c\"\n\
        [[link]]\na = \"10.0.1.1 dev eth0\"\nb = \"10.0.1.2 dev eth0\"\n\
        [[link]]\nb = \"10.0.2.1 dev eth1\"\nc = \"10.0.2.2 dev eth0\"\n\
        [[path]]\nfrom = \"a\"\nvia = [\"b\"]\nto = \"c\"\n\
        tunnel = [\"10.99.0.1/24\", \"10.99.0.2/24\"]\n";

    fn up(flows: Vec<Flow>) -> BoxState {
        BoxState::Up(Box::new(State { flows, ..fixed::state() }))
    }

    #[test]
    fn flows_have_what_their_nodes_say_and_unknown_is_null() {
        let network = recoded::network::parse("net.toml", NETWORK).expect("a network");
        let flow = |id, role: &str| Flow { id, role: role.into(), ..Flow::default() };
        let source = Flow {
            state: Some("up".into()),
            goodput_mbit: Some(50.0),
            wire_mbit: Some(60.0),
            overhead_theory: Some(1.11),
            rank_theory: Some(0.9),
            neighbours: vec![FlowNeighbour { loss: Some(0.1), ..FlowNeighbour::default() }],
            code: "stream".into(),
            ..flow(1, "source")
        };
        let hops = vec![HopLoss { hop: 0, loss: 0.2, burst_mean: 1.0, ..HopLoss::default() }];
        let sink = Flow { goodput_mbit: Some(48.0), hops, ..flow(1, "sink") };
        // For flow 2, only the relay has more than its id.
        let seen = [
            up(vec![source]),
            BoxState::NoDaemon("no daemon answers".into()),
            up(vec![sink, flow(2, "sink")]),
        ];
        let map = Map::of(&network, &seen);
        assert_eq!(
            map.nodes.iter().map(|it| it.state).collect::<Vec<_>>(),
            ["up", "no daemon", "up"]
        );
        assert_eq!(map.nodes[1].why, "no daemon answers");
        assert_eq!((map.links[1].ends, map.links[1].interfaces[0].as_str()), ([1, 2], "eth1"));
        let [there, back] = &map.flows[..] else { panic!("two flows: {map:?}") };
        assert_eq!(
            (there.id, &there.nodes[..], &there.loss[..]),
            (1, &[0, 1, 2][..], &[Some(0.1), Some(0.2)][..])
        );
        assert_eq!((there.goodput_mbit, there.ratio), (Some(48.0), Some(1.2)));
        assert_eq!((there.theory, there.rank_theory, there.rank), (Some(1.11), Some(0.9), None));
        assert_eq!(
            (back.id, &back.nodes[..], &back.loss[..]),
            (2, &[2, 1, 0][..], &[None, None][..])
        );
        assert_eq!((back.state.as_deref(), back.code.as_deref()), (None, None));
    }

    #[test]
    fn map_before_any_box_was_asked_has_all_of_the_network() {
        let network = recoded::network::parse("net.toml", NETWORK).expect("a network");
        let map = Map::begin(&network);
        assert_eq!((map.nodes.len(), map.links.len(), map.flows.len()), (3, 2, 2));
        assert!(map.nodes.iter().all(|node| node.state == "not asked" && node.version.is_none()));
    }
}
