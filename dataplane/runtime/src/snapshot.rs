//! Checks that a snapshot fits this node, before any worker sees it.

use crate::encap::{ETHERNET_BYTES, header_bytes};
use crate::error::SnapshotError;
use crate::topology::Topology;
use recoded_pipeline::params::{FlowParams, PeerId, Role, Snapshot, TunnelId};
use recoded_secure::TRAILER_BYTES;
use recoded_wire::steer::FLOWS_MAX;
use recoded_xsk::{FrameSize, Umem};
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

/// Largest IP packet that sockets receive with such frames, whatever the MTU of their interface.
pub const fn ip_packet_bytes_max(frame: FrameSize) -> usize {
    frame.receive_bytes_max() - ETHERNET_BYTES
}

/// Frame size for links with this MTU.
pub fn frame_size(mtu: usize) -> FrameSize {
    FrameSize::receiving(mtu.saturating_add(ETHERNET_BYTES))
}

/// Bytes that one worker allocates for packets: frames, and rings of `links` sockets.
pub fn worker_memory_bytes(frames: u32, size: FrameSize, links: usize) -> usize {
    Umem::memory_bytes(frames, size) + links * SOCKET_BYTES
}

/// Rings of a socket in both places, and room for bursts.
const SOCKET_BYTES: usize = 256 << 10;

/// Largest symbol that fits an IP packet of `mtu` bytes towards `address` behind `before` bytes,
/// which are [`recoded_pipeline::params::FlowCode::header_bytes`]. `None` when not even one byte
/// fits.
pub fn symbol_bytes_max(mtu: usize, address: IpAddr, before: usize) -> Option<usize> {
    mtu.checked_sub(packet_bytes(address, before, 0)).filter(|bytes| *bytes > 0)
}

/// Bytes of the IP packet that carries a symbol.
fn packet_bytes(address: IpAddr, before: usize, symbol_bytes: usize) -> usize {
    ip_packet_bytes(address, before + symbol_bytes)
}

/// Bytes of the IP packet to `address` that carries `payload` bytes of UDP payload.
pub fn ip_packet_bytes(address: IpAddr, payload: usize) -> usize {
    header_bytes(address) - ETHERNET_BYTES + payload
}

/// Checks `snapshot` against the topology and the MTU of each of its links.
pub(crate) fn check(
    snapshot: &Snapshot,
    topology: &Topology,
    mtus: &[usize],
) -> Result<(), SnapshotError> {
    if snapshot.flows.len() > FLOWS_MAX as usize {
        return Err(SnapshotError::Flows(snapshot.flows.len()));
    }
    let mut ids = HashSet::new();
    let mut sources = HashMap::new();
    for flow in &snapshot.flows {
        if !ids.insert(flow.id) {
            return Err(SnapshotError::DuplicateFlow(flow.id));
        }
        for hop in flow.next_hops.iter().copied().chain(flow.upstreams()) {
            check_hop(flow.id, hop, topology)?;
        }
        check_frame(flow, topology.frame_size)?;
        match flow.role {
            Role::Source { tunnel } => {
                check_tunnel(flow.id, tunnel, topology)?;
                if let Some(first) = sources.insert(tunnel, flow.id) {
                    let tunnel = topology.tunnels[usize::from(tunnel.0)].name.clone();
                    return Err(SnapshotError::SharedTunnel { first, second: flow.id, tunnel });
                }
                check_fits(flow, topology, mtus)?;
            }
            Role::Relay { .. } => {}
            Role::Sink { tunnel, .. } => check_tunnel(flow.id, tunnel, topology)?,
        }
    }
    Ok(())
}

fn check_hop(flow: u32, hop: PeerId, topology: &Topology) -> Result<(), SnapshotError> {
    match topology.hops.get(usize::from(hop.0)) {
        Some(_) => Ok(()),
        None => Err(SnapshotError::Hop { flow, hop: hop.0 }),
    }
}

fn check_tunnel(flow: u32, tunnel: TunnelId, topology: &Topology) -> Result<(), SnapshotError> {
    match topology.tunnels.get(usize::from(tunnel.0)) {
        Some(_) => Ok(()),
        None => Err(SnapshotError::Tunnel { flow, tunnel: tunnel.0 }),
    }
}

/// Checks that the flow's largest packet lies within a frame, for every role.
fn check_frame(flow: &FlowParams, frame: FrameSize) -> Result<(), SnapshotError> {
    let needed = flow.frame_bytes_min();
    if needed > frame.bytes() {
        return Err(SnapshotError::FrameTooSmall {
            flow: flow.id,
            frame_bytes: frame.bytes(),
            symbol_bytes: flow.symbol_bytes,
            generation_size: flow.generation_size,
            needed,
        });
    }
    Ok(())
}

/// Checks sources only: a relay's and a sink's sizes are ceilings, and packets that exceed a link
/// are counted.
fn check_fits(flow: &FlowParams, topology: &Topology, mtus: &[usize]) -> Result<(), SnapshotError> {
    for hop in &flow.next_hops {
        let hop = &topology.hops[usize::from(hop.0)];
        let before = flow.code.header_bytes(flow.generation_size, flow.field);
        let tag = if hop.key.is_some() { TRAILER_BYTES } else { 0 };
        let needed = packet_bytes(hop.address, before, flow.symbol_bytes) + tag;
        let mtu = mtus[hop.link].min(ip_packet_bytes_max(topology.frame_size));
        if needed > mtu {
            let interface = topology.links[hop.link].interface.clone();
            return Err(SnapshotError::MtuTooSmall { flow: flow.id, interface, needed, mtu });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::tests::topology;

    fn source(id: u32, symbol_bytes: usize) -> FlowParams {
        let role = Role::Source { tunnel: TunnelId(0) };
        FlowParams { symbol_bytes, ..FlowParams::new(id, role, vec![PeerId(0)]) }
    }

    fn outcome(flows: Vec<FlowParams>) -> Result<(), SnapshotError> {
        check(&Snapshot { edition: 1, flows }, &topology(), &[1500])
    }

    #[test]
    fn symbol_bytes_max_is_the_largest_accepted() {
        let max = symbol_bytes_max(1500, "10.0.2.2".parse().unwrap(), 28).unwrap();
        // 1500 - IPv4 20 - UDP 8 - header 20 - vector 8
        assert_eq!(max, 1444);
        assert_eq!(outcome(vec![source(1, max)]), Ok(()));
        assert!(matches!(
            outcome(vec![source(1, max + 1)]),
            Err(SnapshotError::MtuTooSmall { needed: 1501, mtu: 1500, .. })
        ));
    }

    #[test]
    fn frames_receive_packets_of_the_mtu_that_they_are_for() {
        for mtu in (68..=9216).chain([10_000, 65_535, usize::MAX]) {
            let frame = frame_size(mtu);
            assert_eq!(ip_packet_bytes_max(frame) >= mtu, mtu <= 9216 + 50, "{mtu}: {frame:?}");
            assert_eq!(frame.suits_af_xdp(), mtu <= 4096 - 256 - 14, "{mtu}: {frame:?}");
            assert_eq!(frame == FrameSize::SMALL, mtu <= 2048 - 256 - 14, "{mtu}: {frame:?}");
            assert!(frame.suits_af_xdp() || frame.bytes() / 64 % 2 == 1, "{mtu}: {frame:?}");
        }
        let address = "10.0.2.2".parse().unwrap();
        assert_eq!(symbol_bytes_max(56, address, 28), None);
    }

    #[test]
    fn source_of_larger_packets_than_frames_receive_is_refused_whatever_the_mtu() {
        let jumbo = |frame_size| Topology { frame_size, ..topology() };
        let snapshot = Snapshot { edition: 1, flows: vec![source(1, 3000)] };
        let outcome = |frame_size| check(&snapshot, &jumbo(frame_size), &[9000]);
        assert_eq!(outcome(FrameSize::PAGE), Ok(()));
        let small = outcome(FrameSize::SMALL).unwrap_err();
        assert!(matches!(small, SnapshotError::FrameTooSmall { frame_bytes: 2048, .. }), "{small}");
    }

    #[test]
    fn check_relay_whose_packets_leave_their_frame_is_refused() {
        // 128 of headroom, 20 of header and 264 of block word and vector, to a cache line: 448.
        let relay = |symbol_bytes| FlowParams {
            role: Role::Relay { upstream: PeerId(0) },
            generation_size: 256,
            ..source(1, symbol_bytes)
        };
        assert_eq!(outcome(vec![relay(1600)]), Ok(()));
        let error = outcome(vec![relay(1601)]).unwrap_err();
        assert!(matches!(error, SnapshotError::FrameTooSmall { needed: 2049, .. }), "{error}");
        let small = FlowParams { generation_size: 64, ..relay(1706) };
        assert_eq!(outcome(vec![small]), Ok(()));
    }

    #[test]
    fn check_unknown_hop_or_tunnel_is_refused() {
        let mut flow = source(1, 1000);
        flow.next_hops.push(PeerId(1));
        assert_eq!(outcome(vec![flow]), Err(SnapshotError::Hop { flow: 1, hop: 1 }));
        let mut flow = source(1, 1000);
        flow.role = Role::Sink { tunnel: TunnelId(3), upstream: PeerId(0) };
        assert_eq!(outcome(vec![flow]), Err(SnapshotError::Tunnel { flow: 1, tunnel: 3 }));
    }

    #[test]
    fn check_flows_that_clash_are_refused() {
        assert_eq!(
            outcome(vec![source(1, 1000), source(1, 1000)]),
            Err(SnapshotError::DuplicateFlow(1))
        );
        assert!(matches!(
            outcome(vec![source(1, 1000), source(2, 1000)]),
            Err(SnapshotError::SharedTunnel { first: 1, second: 2, .. })
        ));
    }
}
