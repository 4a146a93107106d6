//! Nodes joined by links, and how each node numbers its neighbours.

use super::PeerId;
use std::collections::BTreeMap;

/// The first neighbour that a node receives from, and the first that it sends to.
pub const UP: PeerId = PeerId(0);
pub const DOWN: PeerId = PeerId(1);

/// The second neighbour that it receives from.
const FURTHER: u16 = 11;

/// Destination of a packet to a neighbour.
#[derive(Copy, Clone)]
pub struct Wire {
    /// The link.
    pub hop: usize,
    /// Whether it is opposite to the direction of data.
    pub is_up: bool,
    pub to: usize,
    /// The sender, as the receiver numbers its neighbours.
    pub from: PeerId,
}

/// Both directions of all links, by the sending node, and the receiver as the sender numbers its
/// neighbours.
pub type Wires = BTreeMap<(usize, PeerId), Wire>;

/// The links between these nodes, each from one to another.
pub fn wires(edges: &[(usize, usize)]) -> Wires {
    let mut wires = Wires::new();
    for (hop, (from, to)) in edges.iter().copied().enumerate() {
        let before = &edges[..hop];
        let outgoing = before.iter().filter(|edge| edge.0 == from).count() as u16;
        let incoming = before.iter().filter(|edge| edge.1 == to).count() as u16;
        let there = PeerId(DOWN.0 + outgoing);
        let back = if incoming == 0 { UP } else { PeerId(FURTHER - 1 + incoming) };
        wires.insert((from, there), Wire { hop, is_up: false, to, from: back });
        wires.insert((to, back), Wire { hop, is_up: true, to: from, from: there });
    }
    wires
}

/// Edges of lines from one source to one sink, the last node, with these numbers of links.
pub fn lines(links: &[usize]) -> Vec<(usize, usize)> {
    let sink = links.iter().sum::<usize>() + 1 - links.len();
    let (mut edges, mut relay) = (Vec::new(), 1);
    for count in links {
        let mut from = 0;
        for link in 0..*count {
            let is_last = link + 1 == *count;
            let to = if is_last { sink } else { relay };
            relay += usize::from(!is_last);
            edges.push((from, to));
            from = to;
        }
    }
    edges
}
