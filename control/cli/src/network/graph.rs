//! The paths of a network in their present state as seen by its boxes: each hop with its rate and
//! loss, and for each receiver its goodput relative to the capacity of the minimum cut. No I/O.
//!
//! ```text
//!  path s -> t, u (flow 1)
//!  s
//!  ├─ a  98.0 Mbit/s, 10.1 % lost, 20.4 ms
//!  │  └─ t  ...
//!  └─ b  ...
//!  t gets 80.2 of at most 88.1 Mbit/s (91 %), which s -> a carries
//! ```

use crate::table::percent;
use crate::trace::arrived;
use recoded_api::units;
use recoded_api::v1::{Flow, FlowNeighbour, State};
use recoded_network::{Cut, Link, Network, Path};
use serde::Serialize;

/// Hops that are named as a cut; a larger cut shows only a number.
const CUT_NAMED: usize = 3;

/// The state of a path.
#[derive(Debug, PartialEq, Serialize)]
pub struct Graph {
    /// Name in messages.
    pub path: String,
    /// The flow from the source.
    pub flow: u32,
    source: String,
    pub hops: Vec<Hop>,
    receivers: Vec<Receiver>,
}

/// The link from one node to the next.
#[derive(Debug, PartialEq, Serialize)]
pub struct Hop {
    pub from: String,
    pub to: String,
    /// The rate in the network file, otherwise the rate estimate for the next node.
    pub rate_mbit: Option<f64>,
    pub loss: Option<f64>,
    /// Mean run of consecutive losses.
    pub burst_mean: Option<f64>,
    pub round_trip_us: Option<f64>,
    pub queue_us: Option<f64>,
    /// Share of the source's packets, repairs included, that arrive after this hop: from the
    /// counters of the node there, or for relays of streams from the symbols that the nodes before
    /// it did not abandon.
    pub arrived: Option<f64>,
    /// The same by theory, computed by the source.
    pub arrived_theory: Option<f64>,
    /// Sink: mean delay of decoding lost symbols.
    pub decode_delay_us: Option<f64>,
    /// Whether it is unknown, or no reports return.
    pub state: &'static str,
}

/// An end of a path.
#[derive(Debug, PartialEq, Serialize)]
struct Receiver {
    node: String,
    /// IP packets delivered.
    goodput_mbit: Option<f64>,
    /// Capacity of the minimum cut after losses, headers included; null if a hop's rate is unknown.
    at_most_mbit: Option<f64>,
    /// Ratio of the two.
    share: Option<f64>,
    /// The hops of that cut.
    cut: Vec<[String; 2]>,
}

/// All paths, from the states of nodes in their order; `None` for a node that does not answer.
pub fn graphs(network: &Network, states: &[Option<&State>]) -> Vec<Graph> {
    let seen = ObservedNetwork { network, states };
    network.paths.iter().map(|path| seen.graph(path)).collect()
}

/// The same with each return path after its path, if there is one.
pub fn graphs_and_back(network: &Network, states: &[Option<&State>]) -> Vec<Graph> {
    let seen = ObservedNetwork { network, states };
    let both = network.paths.iter().flat_map(|path| {
        let mut ways = path.ways.clone();
        ways.iter_mut().for_each(|way| way.reverse());
        let leads_back = path.receivers().len() == 1 && !path.is_one_way(network);
        let back = Path { ways, id: path.id.wrapping_add(1), ..path.clone() };
        [Some(path.clone()), Some(back).filter(|_| leads_back)]
    });
    both.flatten().map(|path| seen.graph(&path)).collect()
}

struct ObservedNetwork<'a> {
    network: &'a Network,
    states: &'a [Option<&'a State>],
}

impl ObservedNetwork<'_> {
    fn name(&self, node: usize) -> String {
        self.network.nodes[node].name.clone()
    }

    fn flow(&self, path: &Path, node: usize) -> Option<&Flow> {
        let state = self.states.get(node).copied().flatten()?;
        state.flows.iter().find(|flow| flow.id == u64::from(path.id))
    }

    /// A node's reports of the next one, over each link between them.
    fn neighbours(&self, path: &Path, from: usize, to: usize) -> Vec<Option<&FlowNeighbour>> {
        // A node reports addresses, even for host names; its next hops are in this order.
        let hops = path.hops().into_iter().filter(|hop| hop.0 == from);
        let links = hops
            .flat_map(|hop| self.network.links_between(from, hop.1).map(move |link| (hop.1, link)));
        let known = self.flow(path, from).map_or(&[][..], |flow| &flow.neighbours);
        let of = |(place, (_, link)): (usize, (usize, &Link))| {
            let (end, far) = link.seen_from(from)?;
            let Some(address) = far.place.address() else { return known.get(place) };
            let ends = format!(":{address}");
            let mut there = known.iter().filter(|it| it.next_hop.ends_with(&ends));
            // Several interfaces may lead to one address.
            let begins = format!("{}:", end.interface);
            let exact = there.clone().find(|it| it.next_hop.starts_with(&begins));
            exact.or_else(|| there.next())
        };
        links.enumerate().filter(|(_, (node, _))| *node == to).map(of).collect()
    }

    fn hop(&self, path: &Path, from: usize, to: usize) -> Hop {
        let neighbours = self.neighbours(path, from, to);
        let neighbour = neighbours.first().copied().flatten();
        let written = |link: &Link| {
            let rate = link.extras.iter().find(|extra| extra.key == "rate_mbit")?;
            if let Some(text) = rate.value.as_str() {
                return units::bits_per_second(text).ok().map(|bits| bits as f64 / 1e6);
            }
            rate.value.as_float().or_else(|| rate.value.as_integer().map(|rate| rate as f64))
        };
        // The rates of parallel links add up.
        let links = self.network.links_between(from, to).zip(&neighbours);
        let rates = links.map(|(link, it)| written(link).or_else(|| it.map(|it| it.rate_mbit)));
        let rate_mbit = rates.collect::<Option<Vec<f64>>>().filter(|rates| !rates.is_empty());
        // A node with a single predecessor can attribute its losses to that link.
        let is_only = path.hops().iter().filter(|hop| hop.1 == to).count() == 1;
        let there = self.flow(path, to);
        let counted = there.filter(|flow| is_only && flow.role != "source");
        let counted = counted.and_then(|flow| flow.hops.first());
        // A source identifies hops by distance, which is unambiguous on a single way.
        let far = path.ways.first().filter(|_| path.ways.len() == 1);
        let far = far.and_then(|way| way.windows(2).position(|hop| hop == [from, to]));
        let source = path.source().and_then(|source| self.flow(path, source));
        let told = source.zip(far).and_then(|(flow, far)| {
            let far = u64::try_from(far).ok()?;
            flow.hops.iter().find(|hop| hop.hop == far)
        });
        Hop {
            from: self.name(from),
            to: self.name(to),
            rate_mbit: rate_mbit.map(|rates| rates.iter().sum()),
            loss: neighbour.and_then(|it| it.loss).or(counted.or(told).map(|hop| hop.loss)),
            burst_mean: counted.or(told).map(|hop| hop.burst_mean),
            round_trip_us: neighbour.and_then(|it| it.round_trip_us),
            queue_us: neighbour.and_then(|it| it.queue_us),
            arrived: self.arrived(path, from, to),
            arrived_theory: told.and_then(|hop| hop.arrived_theory),
            decode_delay_us: there.and_then(|flow| flow.decode_delay_mean_us),
            state: match (self.flow(path, from), neighbour) {
                (None, _) => "no answer",
                (_, Some(neighbour)) if neighbour.silent => "silent",
                _ => "up",
            },
        }
    }

    /// Share that arrives after a hop. A relay of a stream does not count symbols that never
    /// arrived; the nodes before it count those that they abandoned.
    fn arrived(&self, path: &Path, from: usize, to: usize) -> Option<f64> {
        let there = self.flow(path, to)?;
        if let Some(share) = arrived(there) {
            return Some(share);
        }
        let way = path.ways.first().filter(|_| path.ways.len() == 1 && there.role == "relay")?;
        let senders = way.iter().take(1 + way.iter().position(|node| *node == from)?);
        senders.map(|node| kept(self.flow(path, *node)?)).product()
    }

    fn receiver(&self, path: &Path, node: usize, hops: &[Hop]) -> Receiver {
        let carries = |from: usize, to: usize| {
            let (from, to) = (self.name(from), self.name(to));
            let hop = hops.iter().find(|hop| hop.from == from && hop.to == to)?;
            match hop.state {
                "silent" => Some(0.0),
                _ => Some(hop.rate_mbit? * (1.0 - hop.loss.unwrap_or(0.0))),
            }
        };
        let cut: Option<Cut> = path.cut(node, carries);
        let flow = self.flow(path, node).filter(|flow| flow.role == "sink");
        let goodput_mbit = flow.and_then(|flow| flow.goodput_mbit);
        let at_most_mbit = cut.as_ref().map(|cut| cut.carries);
        let both = goodput_mbit.zip(at_most_mbit).filter(|(_, most)| *most > 0.0);
        let named = |(from, to): &(usize, usize)| [self.name(*from), self.name(*to)];
        Receiver {
            node: self.name(node),
            goodput_mbit,
            at_most_mbit,
            share: both.map(|(goodput, most)| goodput / most),
            cut: cut.map_or(Vec::new(), |cut| cut.hops.iter().map(named).collect()),
        }
    }

    fn graph(&self, path: &Path) -> Graph {
        let hops = path.hops().into_iter().map(|(from, to)| self.hop(path, from, to));
        let hops: Vec<Hop> = hops.collect();
        let receivers = path.receivers().into_iter();
        Graph {
            path: path.place(&self.network.nodes),
            flow: path.id,
            source: path.source().map_or(String::new(), |source| self.name(source)),
            receivers: receivers.map(|node| self.receiver(path, node, &hops)).collect(),
            hops,
        }
    }
}

/// Share of its symbols that a node of a stream did not abandon before its next hop had them.
fn kept(flow: &Flow) -> Option<f64> {
    let symbols = flow.count(if flow.role == "source" { "source_symbols" } else { "innovative" });
    let given_up = flow.count("lagged").saturating_add(flow.count("too_large"));
    let share = 1.0 - given_up as f64 / symbols as f64;
    (flow.is_stream() && symbols > 0).then_some(share.max(0.0))
}

impl Graph {
    /// Formats the graph as text.
    pub fn text(&self) -> String {
        let mut text = format!("\n{} (flow {})\n{}\n", self.path, self.flow, self.source);
        let mut drawn = vec![self.source.clone()];
        self.branches(&self.source, "", &mut drawn, &mut text);
        self.receivers.iter().for_each(|receiver| text += &receiver.text());
        text
    }

    /// Draws the nodes after a node below it. The branches of a node where ways merge are drawn
    /// once.
    fn branches(&self, node: &str, indent: &str, drawn: &mut Vec<String>, text: &mut String) {
        let next: Vec<&Hop> = self.hops.iter().filter(|hop| hop.from == node).collect();
        for (index, hop) in next.iter().enumerate() {
            let is_last = index + 1 == next.len();
            let (here, below) = if is_last { ("└─", "   ") } else { ("├─", "│  ") };
            let is_new = !drawn.contains(&hop.to);
            let leads_on = self.hops.iter().any(|other| other.from == hop.to);
            let again = if is_new || !leads_on { "" } else { ", as above" };
            *text += &format!("{indent}{here} {}  {}{again}\n", hop.to, hop.words());
            if is_new {
                drawn.push(hop.to.clone());
                self.branches(&hop.to, &format!("{indent}{below}"), drawn, text);
            }
        }
    }
}

impl Hop {
    fn words(&self) -> String {
        match self.state {
            "silent" => return "does not answer".into(),
            "no answer" => return format!("{} does not report it", self.from),
            _ => {}
        }
        let rate = self.rate_mbit.map(|rate| format!("{rate:.1} Mbit/s"));
        let loss = self.loss.map(|loss| format!("{} lost", percent(loss)));
        let round_trip = self.round_trip_us.map(|micros| format!("{:.1} ms", micros / 1e3));
        let known: Vec<String> = [rate, loss, round_trip].into_iter().flatten().collect();
        if known.is_empty() { "not measured yet".into() } else { known.join(", ") }
    }
}

impl Receiver {
    fn text(&self) -> String {
        let Receiver { node, goodput_mbit, at_most_mbit, share, cut } = self;
        let gets = match goodput_mbit {
            Some(goodput) => format!("{node} gets {goodput:.1}"),
            None => format!("{node}: received rate unknown"),
        };
        let Some(most) = at_most_mbit else {
            let unit = if goodput_mbit.is_some() { " Mbit/s" } else { "" };
            return format!("{gets}{unit}; not all rates are known\n");
        };
        let share = share.map_or(String::new(), |share| format!(" ({:.0} %)", share * 100.0));
        let named = cut.iter().take(CUT_NAMED).map(|[from, to]| format!("{from} -> {to}"));
        let named = named.collect::<Vec<_>>().join(", ");
        let more = match cut.len().saturating_sub(CUT_NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let carry = if cut.len() == 1 { "carries" } else { "carry" };
        let of = if goodput_mbit.is_some() { " of" } else { ":" };
        format!("{gets}{of} at most {most:.1} Mbit/s{share}, which {named}{more} {carry}\n")
    }
}

#[cfg(test)]
mod tests;
