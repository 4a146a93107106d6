//! Follows the paths of streams: logs which next hops do not answer, and takes the carrier of a
//! tunnel away while no next hop of its flow does, so that hosts behind it may route around it.
//!
//! A thread of its own looks at what the workers published. Whether a next hop is silent is decided
//! in the pipeline, by what it sent; streams go on asking a neighbour that is silent, though
//! nothing comes out of a tunnel without a carrier. Other codes do not know whether anyone answers.

use crate::netlink::Netlink;
use crate::node::Node;
use crate::report::WorkerPart;
use crate::topology::Topology;
use crossbeam::channel::{Receiver, RecvTimeoutError};
use recoded_pipeline::params::{Nanos, PeerId, Role, TunnelId};
use recoded_pipeline::report::{FlowReport, NextHop, SILENT_NANOS};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Follows the paths until `stopped` hangs up.
pub(crate) fn run(node: &Node, netlink: &Netlink, stopped: &Receiver<()>) {
    let mut silent = BTreeSet::new();
    let mut carriers = Carriers::default();
    while stopped.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
        let flows = flows(&node.shared.parts(), node.clock.now());
        for change in changes(&mut silent, &flows) {
            change.log(&node.topology);
        }
        carriers.follow(node, netlink, &flows);
    }
}

/// A stream that this node sends.
#[derive(Debug)]
struct Flow {
    id: u32,
    /// Of a source.
    tunnel: Option<TunnelId>,
    next_hops: Vec<NextHop>,
}

impl Flow {
    fn is_silent(&self) -> bool {
        self.next_hops.iter().all(|hop| hop.is_silent)
    }
}

/// The streams that this node sends, by what its workers published.
fn flows(parts: &[WorkerPart], now: Nanos) -> Vec<Flow> {
    let mut shards: BTreeMap<u32, Vec<&FlowReport>> = BTreeMap::new();
    for report in parts.iter().flat_map(|part| &part.worker.pipeline.flows) {
        if !report.next_hops.is_empty() {
            shards.entry(report.id).or_default().push(report);
        }
    }
    let flow = |(id, reports): (u32, Vec<&FlowReport>)| Flow {
        id,
        tunnel: reports.iter().find_map(|report| match report.role {
            Role::Source { tunnel } => Some(tunnel),
            _ => None,
        }),
        next_hops: NextHop::joined(reports.iter().flat_map(|report| &report.next_hops), now),
    };
    shards.into_iter().map(flow).collect()
}

/// A next hop that fell silent, or answers again.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Change {
    flow: u32,
    peer: PeerId,
    is_silent: bool,
}

impl Change {
    fn log(&self, topology: &Topology) {
        let Change { flow, peer, is_silent } = self;
        let hop = &topology.hops[usize::from(peer.0)];
        let (link, address) = (&topology.links[hop.link].name, hop.address);
        if *is_silent {
            tracing::warn!(
                flow,
                neighbour = %format_args!("{link}:{address}"),
                "the next hop has not answered for {} s: see that recoded runs there, and that \
                 packets get there and back",
                SILENT_NANOS / 1_000_000_000
            );
        } else {
            let neighbour = format_args!("{link}:{address}");
            tracing::info!(flow, %neighbour, "the next hop answers again");
        }
    }
}

/// What changed since the last look; `silent` holds who was silent then.
fn changes(silent: &mut BTreeSet<(u32, PeerId)>, flows: &[Flow]) -> Vec<Change> {
    let hops = flows.iter().flat_map(|flow| flow.next_hops.iter().map(move |hop| (flow.id, hop)));
    let silent_now: BTreeSet<_> =
        hops.filter(|(_, hop)| hop.is_silent).map(|(flow, hop)| (flow, hop.peer)).collect();
    let change = |is_silent| {
        move |(flow, peer): &(u32, PeerId)| Change { flow: *flow, peer: *peer, is_silent }
    };
    let fell = silent_now.difference(silent).map(change(true));
    // One whose flow is gone does not answer.
    let is_there = |(flow, peer): &&(u32, PeerId)| {
        let mut of_flow = flows.iter().filter(|known| known.id == *flow);
        of_flow.any(|known| known.next_hops.iter().any(|hop| hop.peer == *peer))
    };
    let back = silent.difference(&silent_now).filter(is_there).map(change(false));
    let changes = fell.chain(back).collect();
    *silent = silent_now;
    changes
}

/// The carriers of the tunnels.
#[derive(Default)]
struct Carriers {
    /// Tunnels whose carrier Linux did not change, which was logged.
    refused: BTreeSet<usize>,
}

impl Carriers {
    /// Gives every tunnel the carrier that it should have. One that was created again has one.
    fn follow(&mut self, node: &Node, netlink: &Netlink, flows: &[Flow]) {
        for (index, tunnel) in node.shared.tunnels.get().iter().enumerate() {
            let reads = |flow: &&Flow| flow.tunnel.is_some_and(|it| usize::from(it.0) == index);
            let silent = flows.iter().filter(reads).find(|flow| flow.is_silent());
            let carrier = silent.is_none();
            if tunnel.has_carrier() == carrier || tunnel.is_gone() {
                continue;
            }
            let name = tunnel.name();
            match (tunnel.set_carrier(carrier, netlink), silent) {
                (Ok(()), Some(flow)) => tracing::warn!(
                    flow = flow.id,
                    tunnel = name,
                    "no next hop answers: the tunnel has no carrier until one does"
                ),
                (Ok(()), None) => tracing::info!(tunnel = name, "the tunnel has a carrier again"),
                (Err(error), _) if self.refused.insert(index) => tracing::warn!(
                    %error,
                    tunnel = name,
                    "the carrier of the tunnel stays as it is: hosts notice less of its path"
                ),
                _ => {}
            }
        }
    }
}

/// How often to look: a small part of the time after which a next hop is silent.
const LOOK: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(id: u32, silent: &[bool]) -> Flow {
        let hop = |(peer, is_silent): (u16, &bool)| NextHop {
            peer: PeerId(peer),
            bytes_per_second: 1.0,
            heard: None,
            is_silent: *is_silent,
        };
        Flow { id, tunnel: None, next_hops: (0..).zip(silent).map(hop).collect() }
    }

    #[test]
    fn flow_is_silent_when_all_its_next_hops_are() {
        assert!(flow(1, &[true, true]).is_silent());
        assert!(!flow(1, &[true, false]).is_silent());
    }

    #[test]
    fn each_change_is_told_once() {
        let mut silent = BTreeSet::new();
        let change = |flow, peer, is_silent| Change { flow, peer: PeerId(peer), is_silent };
        let look = |silent: &mut _, flows: &[Flow]| changes(silent, flows);
        assert_eq!(look(&mut silent, &[flow(1, &[false, false])]), []);
        let one = [flow(1, &[false, true]), flow(2, &[true])];
        assert_eq!(look(&mut silent, &one), [change(1, 1, true), change(2, 0, true)]);
        assert_eq!(look(&mut silent, &one), []);
        // Flow 2 is gone.
        assert_eq!(
            look(&mut silent, &[flow(1, &[true, false])]),
            [change(1, 0, true), change(1, 1, false)]
        );
    }
}
