//! Follows the paths of streams: logs next hops that do not respond or get no large packets,
//! removes the carrier of a tunnel while no next hop of its flow responds, so that hosts behind it
//! may route around it, and sets the tunnels' MTU to that of the path (`mtus.rs`).
//!
//! A thread of its own reads the state that the workers published. The pipeline decides whether a
//! next hop is silent, by the packets from it; streams keep probing a silent neighbour, though
//! nothing comes out of a tunnel without a carrier. Other codes do not know whether anyone
//! responds.

use crate::mtus::Mtus;
use crate::netlink::Netlink;
use crate::node::Node;
use crate::report::WorkerPart;
use crate::sent_stream::Flow;
use crate::snapshot::ip_packet_bytes;
use crate::topology::Topology;
use crossbeam::channel::{Receiver, RecvTimeoutError};
use recoded_pipeline::params::{Nanos, PeerId, Role};
use recoded_pipeline::report::{BlackHole, FlowReport, NextHop, SILENT_NANOS};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Follows the paths until `stopped` hangs up.
pub(crate) fn run(node: &Node, netlink: &Netlink, stopped: &Receiver<()>) {
    let (mut silent, mut holes, mut narrow) = (Places::new(), Places::new(), Places::new());
    let (mut carriers, mut mtus) = (Carriers::default(), Mtus::default());
    while stopped.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
        let flows = flows(&node.shared.parts(), node.clock.now());
        for change in changes(&mut silent, &flows, NextHop::is_silent) {
            log_silence(&node.topology, change);
        }
        let next_hops = flows.iter().flat_map(|flow| &flow.next_hops);
        for hop in next_hops.filter(|hop| hop.silence >= SUSPECT_NANOS) {
            node.shared.suspect(hop.peer);
        }
        for change in changes(&mut holes, &flows, |hop| hop.black_hole.is_some()) {
            log_black_hole(&node.topology, &flows, change);
        }
        for change in changes(&mut narrow, &flows, is_too_narrow) {
            log_too_narrow(&node.topology, &flows, change);
        }
        carriers.follow(node, netlink, &flows);
        mtus.follow(node, netlink, &flows);
    }
}

/// The streams that this node sends, as published by its workers.
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
        packet_bytes: reports.iter().filter_map(|report| report.packet_bytes_max).min(),
    };
    shards.into_iter().map(flow).collect()
}

/// A state that began or ended at a next hop of a flow.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct PathChange {
    flow: u32,
    peer: PeerId,
    begins: bool,
}

/// Flows and next hops.
type Places = BTreeSet<(u32, PeerId)>;

/// Next hops that meet a condition.
fn places(flows: &[Flow], is_so: fn(&NextHop) -> bool) -> Places {
    let hops = flows.iter().flat_map(|flow| flow.next_hops.iter().map(|hop| (flow.id, hop)));
    hops.filter(|(_, hop)| is_so(hop)).map(|(flow, hop)| (flow, hop.peer)).collect()
}

/// Changes since the last poll; `before` holds the places where the condition held then.
fn changes(before: &mut Places, flows: &[Flow], is_so: fn(&NextHop) -> bool) -> Vec<PathChange> {
    let (now, known) = (places(flows, is_so), places(flows, |_| true));
    let change = |begins| {
        move |(flow, peer): &(u32, PeerId)| PathChange { flow: *flow, peer: *peer, begins }
    };
    let began = now.difference(before).map(change(true));
    // If a flow or next hop is gone, nothing is known to have ended.
    let ended = before.difference(&now).filter(|place| known.contains(place)).map(change(false));
    let changes = began.chain(ended).collect();
    *before = now;
    changes
}

/// Logs next hops that fall silent or respond again.
fn log_silence(topology: &Topology, PathChange { flow, peer, begins }: PathChange) {
    let neighbour = name(topology, peer);
    if begins {
        tracing::warn!(
            flow,
            neighbour,
            "the next hop has not answered for {} s: check that recoded runs there, and that \
             packets pass in both directions",
            SILENT_NANOS / 1_000_000_000
        );
    } else {
        tracing::info!(flow, neighbour, "the next hop answers again");
    }
}

/// Logs next hops that large packets fail to reach, or reach again.
fn log_black_hole(topology: &Topology, flows: &[Flow], change: PathChange) {
    let PathChange { flow, peer, begins } = change;
    let neighbour = name(topology, peer);
    if !begins {
        return tracing::info!(flow, neighbour, "large packets arrive again");
    }
    let Some(hole) = black_hole(flows, change).filter(|hole| !hole.is_below_tunnels()) else {
        return;
    };
    let address = topology.hops[usize::from(peer.0)].address;
    let [lost, came] =
        [hole.lost_bytes, hole.came_bytes].map(|payload| ip_packet_bytes(address, payload.into()));
    tracing::warn!(
        flow,
        neighbour,
        "IP packets of {lost} bytes do not arrive, those of {came} do: the source of the flow is \
         told, which sends smaller ones"
    );
}

/// Whether the path is smaller than a tunnel can become.
fn is_too_narrow(hop: &NextHop) -> bool {
    hop.black_hole.is_some_and(|hole| hole.is_below_tunnels())
}

/// Logs next hops that not even the smallest tunnel's packets reach, or reach again.
fn log_too_narrow(topology: &Topology, flows: &[Flow], change: PathChange) {
    let PathChange { flow, peer, begins } = change;
    let neighbour = name(topology, peer);
    if !begins {
        return tracing::info!(flow, neighbour, "packets of the least tunnel MTU arrive again");
    }
    let Some(hole) = black_hole(flows, change) else { return };
    let address = topology.hops[usize::from(peer.0)].address;
    let [lost, came, needed] = [hole.lost_bytes, hole.came_bytes, hole.needed_bytes]
        .map(|payload| ip_packet_bytes(address, payload.into()));
    tracing::warn!(
        flow,
        neighbour,
        "IP packets of {lost} bytes do not arrive, those of {came} do, and no tunnel has so small \
         an MTU: full packets are lost until the MTU of the path is {needed} bytes or more"
    );
}

/// The sizes that do not arrive at a changed next hop.
fn black_hole(flows: &[Flow], PathChange { flow, peer, .. }: PathChange) -> Option<BlackHole> {
    let hops = flows.iter().filter(|it| it.id == flow).flat_map(|it| &it.next_hops);
    hops.filter(|hop| hop.peer == peer).find_map(|hop| hop.black_hole)
}

/// A neighbour as link:address.
fn name(topology: &Topology, peer: PeerId) -> String {
    let hop = &topology.hops[usize::from(peer.0)];
    format!("{}:{}", topology.links[hop.link].name, hop.address)
}

/// The carriers of the tunnels.
#[derive(Default)]
struct Carriers {
    /// Tunnels whose carrier Linux refused to change, as logged.
    refused: BTreeSet<usize>,
}

impl Carriers {
    /// Sets every tunnel's carrier. A recreated tunnel has one.
    fn follow(&mut self, node: &Node, netlink: &Netlink, flows: &[Flow]) {
        for (index, tunnel) in node.shared.tunnels.get().iter().enumerate() {
            let silent = flows.iter().find(|flow| flow.reads(index) && flow.is_silent());
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

/// Polling interval: a small part of the time after which a next hop is silent, and of TCP's
/// timeout before it retransmits oversized packets.
const LOOK: Duration = Duration::from_millis(100);

/// A next hop silent for this long may have another Ethernet address. A reply takes a round trip,
/// and a needless ARP query costs nothing.
const SUSPECT_NANOS: Nanos = 1_500_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use recoded_pipeline::report::{Branch, Planned};

    fn flow(id: u32, silent: &[bool]) -> Flow {
        let hop = |(peer, is_silent): (u16, &bool)| NextHop {
            peer: PeerId(peer),
            bytes_per_second: 1.0,
            heard: None,
            silence: if *is_silent { SILENT_NANOS } else { 0 },
            black_hole: None,
            planned: Planned::default(),
            branch: Branch::default(),
        };
        let next_hops = (0..).zip(silent).map(hop).collect();
        Flow { id, tunnel: None, next_hops, packet_bytes: None }
    }

    #[test]
    fn flow_is_silent_when_all_its_next_hops_are() {
        assert!(flow(1, &[true, true]).is_silent());
        assert!(!flow(1, &[true, false]).is_silent());
    }

    #[test]
    fn each_change_is_told_once() {
        let mut silent = Places::new();
        let change = |flow, peer, begins| PathChange { flow, peer: PeerId(peer), begins };
        let look = |silent: &mut _, flows: &[Flow]| changes(silent, flows, NextHop::is_silent);
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
