//! The paths of a network as its boxes see them now: each hop with its rate and loss, and for each
//! receiver what comes beside what could (the least cut). No I/O.
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
use recoded_api::v1::{Flow, FlowNeighbour, State};
use recoded_network::{Cut, Network, Path};
use serde::Serialize;

/// Hops that are named as a cut; more are counted.
const CUT_NAMED: usize = 3;

/// A path now.
#[derive(Debug, PartialEq, Serialize)]
pub struct Graph {
    /// As messages call it.
    path: String,
    /// The flow from the source.
    flow: u32,
    source: String,
    hops: Vec<Hop>,
    receivers: Vec<Receiver>,
}

/// One node to the next.
#[derive(Debug, PartialEq, Serialize)]
struct Hop {
    from: String,
    to: String,
    /// What the network file says, else how fast the next node may be sent to.
    rate_mbit: Option<f64>,
    loss: Option<f64>,
    round_trip_us: Option<f64>,
    /// Whether nothing is known of it, or nothing comes back.
    state: &'static str,
}

/// Where it ends.
#[derive(Debug, PartialEq, Serialize)]
struct Receiver {
    node: String,
    /// IP packets that are delivered.
    goodput_mbit: Option<f64>,
    /// What the least cut carries after losses, headers included; null where a hop's rate is not
    /// known.
    at_most_mbit: Option<f64>,
    /// The former of the latter.
    share: Option<f64>,
    /// The hops of that cut.
    cut: Vec<[String; 2]>,
}

/// All paths, by the states of nodes in their order; none where a node does not answer.
pub fn graphs(network: &Network, states: &[Option<&State>]) -> Vec<Graph> {
    let seen = Seen { network, states };
    network.paths.iter().map(|path| seen.graph(path)).collect()
}

struct Seen<'a> {
    network: &'a Network,
    states: &'a [Option<&'a State>],
}

impl Seen<'_> {
    fn name(&self, node: usize) -> String {
        self.network.nodes[node].name.clone()
    }

    fn flow(&self, path: &Path, node: usize) -> Option<&Flow> {
        let state = self.states.get(node).copied().flatten()?;
        state.flows.iter().find(|flow| flow.id == u64::from(path.id))
    }

    /// What a node says of the next one.
    fn neighbour(&self, path: &Path, from: usize, to: usize) -> Option<&FlowNeighbour> {
        let (_, far) = self.network.link_between(from, to)?.seen_from(from)?;
        let mut neighbours = self.flow(path, from)?.neighbours.iter();
        match far.place.address() {
            Some(address) => {
                let end = format!(":{address}");
                neighbours.find(|neighbour| neighbour.next_hop.ends_with(&end))
            }
            // A node says addresses, whatever it was told; its next hops are in this order.
            None => {
                let hops = path.hops();
                let mut after = hops.iter().filter(|hop| hop.0 == from);
                neighbours.nth(after.position(|hop| hop.1 == to)?)
            }
        }
    }

    fn hop(&self, path: &Path, from: usize, to: usize) -> Hop {
        let neighbour = self.neighbour(path, from, to);
        let link = self.network.link_between(from, to);
        let written = link.and_then(|link| {
            let rate = link.extras.iter().find(|extra| extra.key == "rate_mbit")?;
            rate.value.as_float().or_else(|| rate.value.as_integer().map(|rate| rate as f64))
        });
        // A node with one before it knows which link its losses are of.
        let counted = || {
            let is_only = path.hops().iter().filter(|hop| hop.1 == to).count() == 1;
            let flow = self.flow(path, to).filter(|flow| is_only && flow.role != "source")?;
            Some(flow.hops.first()?.loss)
        };
        Hop {
            from: self.name(from),
            to: self.name(to),
            rate_mbit: written.or_else(|| neighbour.map(|it| it.rate_mbit)),
            loss: neighbour.and_then(|it| it.loss).or_else(counted),
            round_trip_us: neighbour.and_then(|it| it.round_trip_us),
            state: match (self.flow(path, from), neighbour) {
                (None, _) => "no answer",
                (_, Some(neighbour)) if neighbour.silent => "silent",
                _ => "up",
            },
        }
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

impl Graph {
    /// For people.
    pub fn text(&self) -> String {
        let mut text = format!("\n{} (flow {})\n{}\n", self.path, self.flow, self.source);
        let mut drawn = vec![self.source.clone()];
        self.branches(&self.source, "", &mut drawn, &mut text);
        self.receivers.iter().for_each(|receiver| text += &receiver.text());
        text
    }

    /// What comes after a node, below it. A node where ways meet has its branches once.
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
            "no answer" => return format!("{} says nothing of it", self.from),
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
            None => format!("{node} does not say what it gets"),
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
