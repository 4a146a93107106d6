//! Networks that are not lines: several paths to one sink, trees, branches that meet.
//!
//! ```text
//!  paths   0 ─┬─ 1 ─ 2 ─┬─ 6       tree   0 ─┬─ 1 ─┬─ 3       branches   0 ─┬─ 1 ─┬─ 3 ─ 4
//!             ├─ 3 ─────┤                    │     └─ 4                     └─ 2 ─┘
//!             └─ 4 ─ 5 ─┘                    └─ 2 ─── 5
//! ```

use recoded_code::theory::LossModel;
use recoded_pipeline::params::{FlowParams, Nanos, PeerId, Redundancy, Role, Spread};

use crate::code::Code;
use crate::link::Link;
use crate::random::{Random, Stream};
use crate::scenario::{Change, Hop, Scenario, flow_params};
use crate::traffic::TUNNEL;
use crate::traffic::{DOWN, Traffic, UP, is_up};

/// One seed in this many draws a graph.
const ONE_IN: u64 = 8;

const MILLI: Nanos = 1_000_000;

/// Packets that enter alone before and after the bursts: each lets one node open its stage.
const ALONE: u32 = 10;

/// Which link leads from a node to each of its neighbours.
pub(crate) struct Wires {
    edges: Vec<(usize, usize)>,
}

impl Wires {
    pub(crate) fn new(edges: &[(usize, usize)]) -> Wires {
        Wires { edges: edges.to_vec() }
    }

    /// The link from a node to a neighbour.
    pub(crate) fn edge(&self, node: usize, peer: PeerId) -> usize {
        let edges = self.edges.iter().enumerate();
        let own = edges.filter(|(_, (from, to))| node == if is_up(peer) { *to } else { *from });
        let mut own = own.map(|(edge, _)| edge);
        own.nth(usize::from(peer.0 / 2)).expect("nodes send to their neighbours")
    }

    /// The node that a packet on a link reaches, and the sender's peer id there.
    pub(crate) fn end(&self, edge: usize, is_up: bool) -> (usize, PeerId) {
        let (from, to) = self.edges[edge];
        let earlier = |is_same: &dyn Fn(&(usize, usize)) -> bool| {
            2 * self.edges[..edge].iter().filter(|edge| is_same(edge)).count() as u16
        };
        match is_up {
            true => (from, PeerId(DOWN.0 + earlier(&|edge| edge.0 == from))),
            false => (to, PeerId(UP.0 + earlier(&|edge| edge.1 == to))),
        }
    }
}

impl Scenario {
    /// The scenario of [`Scenario::line`] over links between any nodes, each in direction of the
    /// sinks: node 0 is the source, nodes without outgoing links are sinks.
    #[must_use]
    pub fn graph(seed: u64, edges: &[(usize, usize)], link: Link) -> Scenario {
        let line = Scenario::line(seed, edges.len().max(1), link);
        let nodes = edges.iter().map(|(from, to)| from.max(to) + 1).max().unwrap_or(0);
        Scenario {
            edges: edges.to_vec(),
            nodes: (0..nodes).map(|node| params(node, edges)).collect(),
            workers: vec![1; nodes],
            ..line
        }
    }
}

fn params(node: usize, edges: &[(usize, usize)]) -> FlowParams {
    let next = edges.iter().filter(|edge| edge.0 == node).count();
    let before = edges.iter().filter(|edge| edge.1 == node).count();
    let role = match node {
        0 => Role::Source { tunnel: TUNNEL },
        _ if next == 0 => Role::Sink { tunnel: TUNNEL, upstream: UP },
        _ => Role::Relay { upstream: UP },
    };
    let peers = |first: PeerId, count: usize| (0..count).map(move |at| first.0 + 2 * at as u16);
    FlowParams {
        next_hops: peers(DOWN, next).map(PeerId).collect(),
        further_upstreams: peers(UP, before).skip(1).map(PeerId).collect(),
        ..flow_params(role)
    }
}

/// Draws the network of a seed, if it is not a line.
pub(crate) fn draw(seed: u64) -> Option<Scenario> {
    let mut random = Random::new(seed, Stream::Graph);
    if random.among(1..=ONE_IN) > 1 {
        return None;
    }
    let mut scenario = match random.size(0..=2) {
        0 => paths(seed, &mut random),
        1 => tree(seed, &mut random),
        _ => branches(seed, &mut random),
    };
    links(&mut scenario, &mut random);
    traffic(&mut scenario, &mut random);
    promise(&mut scenario, &mut random);
    Some(scenario)
}

/// Two to four paths of one to three links. At least one path has a relay, because two nodes share
/// only one link.
fn paths(seed: u64, random: &mut Random) -> Scenario {
    let lengths: Vec<usize> =
        (0..random.size(2..=4)).map(|path| random.size(usize::from(path > 0) + 1..=3)).collect();
    let spread = random.pick(&[Spread::Sum, Spread::Sum, Spread::Backup, Spread::Every]);
    let edges = path_edges(&lengths);
    let mut scenario = Scenario::graph(seed, &edges, Link::CLEAN).coded(Code::Stream);
    scenario.nodes[0].spread = spread;
    scenario
}

/// Links of paths of these lengths from node 0 to one sink, path by path. The sink is the last
/// node.
pub(crate) fn path_edges(lengths: &[usize]) -> Vec<(usize, usize)> {
    let sink = 1 + lengths.iter().map(|length| length - 1).sum::<usize>();
    let (mut edges, mut relay) = (Vec::new(), 0);
    for length in lengths {
        let relays: Vec<usize> = (1..*length).map(|at| relay + at).collect();
        relay += relays.len();
        let way: Vec<usize> = [0].into_iter().chain(relays).chain([sink]).collect();
        edges.extend(way.windows(2).map(|pair| (pair[0], pair[1])));
    }
    edges
}

/// Up to three relays with one to three sinks each, and perhaps a sink directly behind the source.
fn tree(seed: u64, random: &mut Random) -> Scenario {
    let relays = random.size(1..=3);
    let mut edges: Vec<(usize, usize)> = (1..=relays).map(|relay| (0, relay)).collect();
    let mut sink = relays;
    for relay in 1..=relays {
        for _ in 0..random.size(1..=3) {
            sink += 1;
            edges.push((relay, sink));
        }
    }
    if random.chance(0.3) {
        edges.push((0, sink + 1));
    }
    Scenario::graph(seed, &edges, Link::CLEAN).coded(Code::Stream)
}

/// Two or three branches that join in front of a shared link: generations, split across the
/// branches.
fn branches(seed: u64, random: &mut Random) -> Scenario {
    let count = random.size(2..=3);
    let (meet, sink) = (count + 1, count + 2);
    let out = (1..=count).map(|branch| (0, branch));
    let edges: Vec<_> =
        out.chain((1..=count).map(|branch| (branch, meet))).chain([(meet, sink)]).collect();
    let redundancy = random.between(1.2, 1.6);
    let mut scenario = Scenario::graph(seed, &edges, Link::CLEAN);
    scenario.nodes[0].spread = Spread::Sum;
    scenario.with(|node| node.redundancy = Redundancy::Fixed(redundancy))
}

fn links(scenario: &mut Scenario, random: &mut Random) {
    for hop in &mut scenario.hops {
        let link = |random: &mut Random| Link {
            loss: LossModel::independent(random.between(0.0, 0.15)),
            delay_nanos: random.pick(&[0, MILLI / 2, 5 * MILLI, 20 * MILLI]),
            duplication: random.pick(&[0.0, 0.0, 0.02]),
            ..Link::CLEAN
        };
        let down = link(random);
        *hop = Hop { down, up: Link { delay_nanos: down.delay_nanos, ..link(random) } };
    }
}

fn traffic(scenario: &mut Scenario, random: &mut Random) {
    let interval_nanos = random.among(MILLI..=4 * MILLI);
    scenario.traffic = Traffic {
        packets: random.among(150..=500) as u32,
        alone: (ALONE, ALONE),
        interval_nanos,
        alone_nanos: 50 * MILLI,
        burst: random.among(1..=6) as u32,
        ..scenario.traffic.clone()
    };
    // A symbol holds a packet of a stream.
    let bytes_max = *scenario.traffic.bytes.end();
    *scenario = scenario.clone().with(|node| node.symbol_bytes = node.symbol_bytes.max(bytes_max));
}

/// In healthy networks, streams deliver everything to every sink. Otherwise a relay restarts, or a
/// link loses everything for a while, and only order and integrity are promised.
fn promise(scenario: &mut Scenario, random: &mut Random) {
    let is_stream = scenario.nodes[0].code == Code::Stream.usual();
    let bursts = scenario.traffic.bursts();
    let at = random.among(bursts.start..=bursts.end.max(bursts.start));
    match random.size(0..=3) {
        0 => {
            let node = random.size(1..=scenario.nodes.len() - 1);
            scenario.changes = vec![(at, Change::Restart { node })];
        }
        1 => {
            let hop = random.size(0..=scenario.hops.len() - 1);
            let dead = Link { loss: LossModel::independent(1.0), ..Link::CLEAN };
            let before = scenario.hops[hop];
            let back = at + random.among(50 * MILLI..=1500 * MILLI);
            scenario.changes = vec![
                (at, Change::Link { hop, link: Hop::both(dead) }),
                (back, Change::Link { hop, link: before }),
            ];
        }
        _ if is_stream => scenario.promise.delivered = Some(bursts),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_draw_graphs_of_each_kind_and_every_link_has_two_ends() {
        let (mut graphs, mut sums, mut trees, mut meeting, mut promised) = (0, 0, 0, 0, 0);
        for scenario in (0..2000).filter_map(draw) {
            graphs += 1;
            let sinks = scenario.nodes.iter().filter(|node| matches!(node.role, Role::Sink { .. }));
            let is_stream = scenario.nodes[0].code == Code::Stream.usual();
            let is_sum = scenario.nodes[0].spread == Spread::Sum;
            sums += usize::from(is_stream && is_sum);
            meeting += usize::from(!is_stream && is_sum);
            trees += usize::from(sinks.count() > 1);
            promised += usize::from(scenario.promise.delivered.is_some());
            let wires = Wires::new(&scenario.edges);
            for (edge, (from, to)) in scenario.edges.iter().enumerate() {
                let (down, up) = (wires.end(edge, false), wires.end(edge, true));
                assert_eq!((down.0, up.0), (*to, *from));
                assert_eq!([wires.edge(*to, down.1), wires.edge(*from, up.1)], [edge; 2]);
                assert!(scenario.nodes[*from].next_hops.contains(&up.1), "{:?}", scenario.edges);
                let mut upstreams = scenario.nodes[*to].upstreams();
                assert!(upstreams.any(|peer| peer == down.1), "{:?}", scenario.edges);
            }
        }
        println!("{graphs} graphs: {sums} sums, {trees} trees, {meeting} that meet, {promised}");
        assert!((200..300).contains(&graphs), "{graphs}");
        assert!([sums, trees, meeting, promised].iter().all(|count| *count > 20));
    }
}
