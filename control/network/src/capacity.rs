//! The capacity of a path: the minimum cut between its source and a receiver.
//!
//! The maximum flow through a network equals its minimum cut (Ford and Fulkerson 1956). With
//! several receivers, coding achieves the smallest of their cuts for all at once (Ahlswede, Cai, Li
//! and Yeung 2000). Computed by augmenting along shortest ways (Edmonds and Karp 1972): at most
//! nodes times hops rounds, whatever the capacities.

use crate::model::Path;
use std::collections::VecDeque;

/// Largest capacity that counts as a rounding error.
const NOTHING: f64 = 1e-9;

/// Hops that separate a source from a receiver, and their joint capacity.
#[derive(Clone, PartialEq, Debug)]
pub struct Cut {
    /// Sum of their capacities.
    pub carries: f64,
    /// Nodes at both ends of each, in the direction of traffic.
    pub hops: Vec<(usize, usize)>,
}

impl Path {
    /// Nodes at both ends of each hop, source first, each once.
    pub fn hops(&self) -> Vec<(usize, usize)> {
        let pairs = self.ways.iter().flat_map(|way| way.windows(2));
        pairs.fold(Vec::new(), |mut hops, pair| {
            if !hops.contains(&(pair[0], pair[1])) {
                hops.push((pair[0], pair[1]));
            }
            hops
        })
    }

    /// The minimum cut between its source and a receiver, with the capacities that `capacity`
    /// returns for hops; none if one is unknown.
    pub fn cut(
        &self,
        receiver: usize,
        capacity: impl Fn(usize, usize) -> Option<f64>,
    ) -> Option<Cut> {
        let hops = self.hops().into_iter();
        let known = hops.map(|(from, to)| Some((from, to, capacity(from, to)?.max(0.0))));
        Some(least_cut(&known.collect::<Option<Vec<_>>>()?, self.source()?, receiver))
    }
}

/// The minimum cut between two nodes of a graph of directed hops with capacities.
fn least_cut(hops: &[(usize, usize, f64)], source: usize, receiver: usize) -> Cut {
    let mut left: Vec<f64> = hops.iter().map(|hop| hop.2).collect();
    let mut taken = vec![0.0; hops.len()];
    loop {
        let reached = reach(hops, source, &left, &taken);
        let way = reached.iter().find(|(node, _)| *node == receiver);
        if way.is_none() || source == receiver {
            let is_reached = |node: usize| reached.iter().any(|(there, _)| *there == node);
            let crossing =
                hops.iter().filter(|(from, to, _)| is_reached(*from) && !is_reached(*to));
            return Cut {
                carries: crossing.clone().map(|hop| hop.2).sum(),
                hops: crossing.map(|(from, to, _)| (*from, *to)).collect(),
            };
        }
        augment(&reached, receiver, &mut left, &mut taken);
    }
}

/// The step that reaches a node: a hop, whether forward or back over its flow, and the previous
/// node.
type Step = Option<(usize, bool, usize)>;

/// Nodes reachable with residual capacity, nearest first, each with its step.
fn reach(
    hops: &[(usize, usize, f64)],
    source: usize,
    left: &[f64],
    taken: &[f64],
) -> Vec<(usize, Step)> {
    let mut reached: Vec<(usize, Step)> = vec![(source, None)];
    let mut queue = VecDeque::from([source]);
    while let Some(at) = queue.pop_front() {
        for (index, (from, to, _)) in hops.iter().enumerate() {
            let next = match at {
                at if at == *from && left[index] > NOTHING => (*to, true),
                at if at == *to && taken[index] > NOTHING => (*from, false),
                _ => continue,
            };
            if !reached.iter().any(|(node, _)| *node == next.0) {
                reached.push((next.0, Some((index, next.1, at))));
                queue.push_back(next.0);
            }
        }
    }
    reached
}

/// Augments the flow along the way to `receiver` as far as possible.
fn augment(reached: &[(usize, Step)], receiver: usize, left: &mut [f64], taken: &mut [f64]) {
    let step = |node: usize| reached.iter().find(|(there, _)| *there == node).and_then(|it| it.1);
    let way = std::iter::successors(step(receiver), |(_, _, before)| step(*before));
    let way: Vec<_> = way.collect();
    let room = |(index, is_forward, _): &(usize, bool, usize)| {
        if *is_forward { left[*index] } else { taken[*index] }
    };
    let more = way.iter().map(room).fold(f64::INFINITY, f64::min);
    for (index, is_forward, _) in way {
        let more = if is_forward { more } else { -more };
        left[index] -= more;
        taken[index] += more;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The least capacity of all subsets of nodes that contain the source but not the receiver.
    fn least_of_all_cuts(hops: &[(usize, usize, f64)], nodes: usize, receiver: usize) -> f64 {
        let cuts = (0..1u32 << nodes).filter(|set| set & 1 == 1 && set >> receiver & 1 == 0);
        let carries = cuts.map(|set| {
            let leaves =
                |hop: &&(usize, usize, f64)| set >> hop.0 & 1 == 1 && set >> hop.1 & 1 == 0;
            hops.iter().filter(leaves).map(|hop| hop.2).sum::<f64>()
        });
        carries.fold(f64::INFINITY, f64::min)
    }

    #[test]
    fn butterfly_brings_two_to_each_receiver_and_the_cut_is_named() {
        let ends = [(0, 1), (0, 2), (1, 5), (1, 3), (2, 6), (2, 3), (3, 4), (4, 5), (4, 6)];
        let mut hops = ends.map(|(from, to)| (from, to, 1.0));
        for receiver in [5, 6] {
            assert_eq!(least_cut(&hops, 0, receiver).carries, 2.0);
        }
        hops[2].2 = 0.25;
        let cut = least_cut(&hops, 0, 5);
        assert_eq!((cut.carries, &cut.hops[..]), (1.25, &[(1, 5), (3, 4)][..]));
        assert_eq!(least_cut(&hops, 0, 6).carries, 2.0);
        assert_eq!(least_cut(&hops, 5, 0), Cut { carries: 0.0, hops: Vec::new() });
    }

    /// Compares with every cut of random graphs, including hops that lead back.
    #[test]
    fn least_cut_is_the_least_of_all() {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut draw = |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        for graph in 0..300 {
            let nodes = 2 + draw(5) as usize;
            let mut hops: Vec<(usize, usize, f64)> = Vec::new();
            for _ in 0..draw(14) {
                let (from, to) = (draw(nodes as u64) as usize, draw(nodes as u64) as usize);
                if from != to && !hops.iter().any(|hop| (hop.0, hop.1) == (from, to)) {
                    hops.push((from, to, draw(90) as f64 / 8.0));
                }
            }
            let receiver = nodes - 1;
            let (cut, least) =
                (least_cut(&hops, 0, receiver), least_of_all_cuts(&hops, nodes, receiver));
            assert!((cut.carries - least).abs() < 1e-6, "graph {graph}: {cut:?}, {least} {hops:?}");
        }
    }
}
