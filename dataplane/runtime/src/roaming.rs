//! Roaming neighbours: hosts whose address changes while they run, or that are behind a NAT which
//! drops its mappings. As in WireGuard, such a neighbour is at the source of its latest
//! authenticated packet.
//!
//! ```text
//!  known address ----------------------------------> tag right? --> pipeline
//!  other address -> header, flow, key id right? -------^    `-> newest of its lane?
//!               `-> handshake? -> thread of keys                    |
//!                       ^ few of both a second                      v
//!  all workers  <---------- endpoints ------------ thread of keys: allowed, and not too often?
//! ```
//!
//! No replayed packet moves a neighbour: the replay window refuses copies, and a packet that others
//! overtook is not the newest. Handshake messages do not move it either, since recorded ones pass
//! after a restart of this node: the reply goes to their source, and the first packet under the
//! resulting keys moves the neighbour.
//!
//! Does not handle keys or sockets. Everything is bounded: [`PACKETS`] and [`HANDSHAKES`] from
//! other addresses between two polls, and for each neighbour [`MOVES`] at once and one a second.

use crate::topology::{Backend, HopConfig, Topology};
use recoded_pipeline::params::{Nanos, PeerId};
use recoded_secure::TRAILER_BYTES;
use recoded_wire::handshake::parse_handshake;
use recoded_wire::header::{Flags, HEADER_BYTES};
use recoded_wire::shard::source_port_of;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};

/// Packets from other addresses than the sender's known one whose tag is verified between two polls
/// of a worker's keys, 50 ms, each under the keys that have its id. A neighbour at a new address
/// uses them until the address is known. At most 2 % of a core. A flood of forgeries takes part of
/// the budget, but one packet of a moved neighbour suffices.
pub(crate) const PACKETS: u32 = 512;

/// The same for handshake messages: the gate's limit for a second, and copies.
pub(crate) const HANDSHAKES: u32 = 16;

/// Roaming neighbours per additional handshake message: all neighbours of a hub connect at once
/// when it starts, with three copies each, and with [`HANDSHAKES`] only, two hundred waited for a
/// quarter of a minute. The key thread reads them, and requires cookies before it computes.
const ROAMING_PER_HANDSHAKE: u32 = 4;

/// Burst of moves of a neighbour: a host that changes networks moves once or twice.
const MOVES: u64 = 8;

/// Beyond those, time between two.
const MOVE_NANOS: Nanos = 1_000_000_000;

/// The place of a neighbour.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Endpoint {
    /// Destination of packets to it.
    pub(crate) at: SocketAddr,
    /// Number of changes.
    pub(crate) moves: u64,
}

/// An address on a link.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct LinkAddress {
    pub(crate) link: usize,
    pub(crate) address: SocketAddr,
}

/// The places of neighbours.
#[derive(Clone, Default, Debug)]
pub(crate) struct Near {
    /// By `PeerId`.
    pub(crate) endpoints: Vec<Endpoint>,
    /// By link.
    pub(crate) links: Vec<Around>,
    /// By `PeerId`: whether it roams.
    roams: Vec<bool>,
    port: u16,
}

impl Near {
    /// The places of neighbours before any moved.
    pub(crate) fn new(topology: &Topology) -> Near {
        Movers::new(topology).near()
    }

    /// The place of a roaming neighbour, if its newest packet shows that it moved.
    #[inline]
    pub(crate) fn moved(
        &self,
        peer: PeerId,
        source: SocketAddr,
        packet: &[u8],
    ) -> Option<SocketAddr> {
        let index = usize::from(peer.0);
        let known = self.endpoints.get(index).filter(|_| self.roams[index])?;
        let at = endpoint_of(source, packet, self.port);
        (at != known.at).then_some(at)
    }
}

/// Whether a neighbour may move: only with a key and UDP sockets.
fn roams(topology: &Topology, hop: &HopConfig) -> bool {
    hop.roams && hop.key.is_some() && topology.links[hop.link].backend == Backend::Udp
}

/// The place of a neighbour that sent a packet from `source`. AF_XDP sends each shard from its own
/// port, and receives on the port of all nodes.
fn endpoint_of(source: SocketAddr, packet: &[u8], port: u16) -> SocketAddr {
    let port = if source.port() == source_port_of(packet) { port } else { source.port() };
    match source {
        SocketAddr::V4(_) => SocketAddr::new(source.ip(), port),
        // Without the flow label.
        SocketAddr::V6(v6) => SocketAddrV6::new(*v6.ip(), port, 0, v6.scope_id()).into(),
    }
}

/// The neighbours of a link by address, sorted for a search per packet.
#[derive(Clone, Default, Debug)]
pub(crate) struct Around {
    /// In order of addresses.
    fixed: Vec<(IpAddr, PeerId)>,
    /// Likewise. Several paths may share one address and port: translated addresses change, and the
    /// known one may be stale.
    roaming: Vec<(IpAddr, u16, PeerId)>,
}

/// The neighbour at an address, as far as the address identifies it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct AddressOwner {
    pub(crate) peer: PeerId,
    /// Whether it roams: another one may be there by now.
    pub(crate) roams: bool,
}

impl Around {
    /// The neighbour at this address. For roaming ones the port counts, too: several may be behind
    /// one address.
    #[inline]
    pub(crate) fn find(&self, source: SocketAddr, packet: &[u8]) -> Option<AddressOwner> {
        let (ip, port) = (source.ip(), source.port());
        if let Ok(place) = self.fixed.binary_search_by_key(&ip, |(known, _)| *known) {
            return Some(AddressOwner { peer: self.fixed[place].1, roams: false });
        }
        let at = |port| self.roaming.partition_point(|known| (known.0, known.1) < (ip, port));
        let exact = self.roaming.get(at(port)).filter(|known| (known.0, known.1) == (ip, port));
        // AF_XDP sends each shard from its own port.
        let any = || {
            let by_shard = self.roaming.get(at(0)).filter(|known| known.0 == ip);
            by_shard.filter(|_| source_port_of(packet) == port)
        };
        exact.or_else(any).map(|known| AddressOwner { peer: known.2, roams: true })
    }

    /// The roaming neighbours.
    pub(crate) fn roaming(&self) -> impl Iterator<Item = PeerId> + '_ {
        self.roaming.iter().map(|known| known.2)
    }
}

/// Roaming neighbours, by the ids of their sending keys: a packet is verified only under keys that
/// have its id.
#[derive(Default, Debug)]
pub(crate) struct Senders(Vec<(u8, PeerId)>);

impl Senders {
    /// Replaces them.
    pub(crate) fn fill(&mut self, senders: impl Iterator<Item = (u8, PeerId)>) {
        self.0.clear();
        self.0.extend(senders);
        self.0.sort_unstable();
    }

    /// Neighbours whose sending key has the id in a packet.
    pub(crate) fn of(&self, packet: &[u8]) -> impl Iterator<Item = PeerId> + '_ {
        let key_id = packet.last_chunk::<TRAILER_BYTES>().map(|trailer| trailer[0]);
        let first = key_id
            .map_or(self.0.len(), |key_id| self.0.partition_point(|(known, _)| *known < key_id));
        let same = self.0[first..].iter().take_while(move |(known, _)| Some(*known) == key_id);
        same.map(|(_, peer)| *peer)
    }
}

/// The filter for packets from other addresses, and the remaining budget.
#[derive(Clone, Default, Debug)]
pub(crate) struct Lookout {
    /// Ids of the sending keys of roaming neighbours, a bit each.
    keys: [u64; 4],
    /// Roaming neighbours on the link.
    roaming: u32,
    packets: u32,
    handshakes: u32,
}

impl Lookout {
    /// Sets these keys, and the number of roaming neighbours.
    pub(crate) fn watch(&mut self, roaming: usize, keys: impl Iterator<Item = u8>) {
        self.keys = [0; 4];
        self.roaming = u32::try_from(roaming).unwrap_or(u32::MAX);
        for key in keys {
            self.keys[usize::from(key / 64)] |= 1 << (key % 64);
        }
    }

    /// Restores the budget for the next interval.
    pub(crate) fn refill(&mut self) {
        let handshakes = HANDSHAKES.saturating_add(self.roaming / ROAMING_PER_HANDSHAKE);
        (self.packets, self.handshakes) = (PACKETS, handshakes);
    }

    /// Whether to check a packet.
    pub(crate) fn takes(&mut self, packet: &[u8]) -> bool {
        if self.roaming == 0 {
            return false;
        }
        if is_message(packet) {
            return take(&mut self.handshakes);
        }
        let Some(trailer) = packet.last_chunk::<TRAILER_BYTES>() else { return false };
        let key = trailer[0];
        self.keys[usize::from(key / 64)] & 1 << (key % 64) != 0 && self.takes_another()
    }

    /// Whether to verify a packet under keys of others than the one at its address.
    pub(crate) fn takes_another(&mut self) -> bool {
        take(&mut self.packets)
    }
}

fn take(left: &mut u32) -> bool {
    let is_some = *left > 0;
    *left = left.saturating_sub(1);
    is_some
}

/// Whether it is a handshake message between neighbours, which has no tag.
pub(crate) fn is_message(packet: &[u8]) -> bool {
    let header = parse_handshake(packet).ok().filter(|header| !header.flags.has(Flags::EDGE));
    header.is_some() && packet.len() > HEADER_BYTES + TRAILER_BYTES
}

/// The reason why a neighbour stays in its place despite a packet of it.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Stays {
    /// It does not roam.
    #[error("it does not roam")]
    Fixed,
    /// Nothing can be sent there.
    #[error("nothing can be sent there")]
    Unreachable,
    /// Another neighbour is there, which does not roam.
    #[error("another neighbour is there")]
    Taken,
    /// It moved too often recently.
    #[error("it moved too often")]
    TooOften,
}

/// The places of all neighbours, for the key thread.
pub(crate) struct Movers {
    movers: Vec<Mover>,
    links: usize,
    port: u16,
}

/// By `PeerId`.
struct Mover {
    link: usize,
    roams: bool,
    endpoint: Endpoint,
    /// When its moves so far are paid for.
    paid: Nanos,
}

impl Movers {
    pub(crate) fn new(topology: &Topology) -> Movers {
        let movers = topology.hops.iter().map(|hop| Mover {
            link: hop.link,
            roams: roams(topology, hop),
            endpoint: Endpoint { at: SocketAddr::new(hop.address, topology.port), moves: 0 },
            paid: 0,
        });
        Movers { movers: movers.collect(), links: topology.links.len(), port: topology.port }
    }

    /// Sends packets for a neighbour to its address in an earlier process of this node, if the
    /// neighbour may be there.
    pub(crate) fn recall(&mut self, hop: usize, address: SocketAddr) {
        let Some(Mover { link, .. }) = self.movers.get(hop) else { return };
        let is_moved = self.relocate(hop, LinkAddress { link: *link, address }, 0).is_ok();
        if let Some(mover) = self.movers.get_mut(hop).filter(|_| is_moved) {
            // The neighbour has yet to prove it.
            (mover.endpoint.moves, mover.paid) = (0, 0);
        }
    }

    /// The present places.
    pub(crate) fn near(&self) -> Near {
        let mut links = vec![Around::default(); self.links];
        for (index, mover) in (0..).zip(&self.movers) {
            let Mover { link, roams, endpoint: Endpoint { at, .. }, .. } = *mover;
            match roams {
                true => links[link].roaming.push((at.ip(), at.port(), PeerId(index))),
                false => links[link].fixed.push((at.ip(), PeerId(index))),
            }
        }
        for around in &mut links {
            around.fixed.sort_unstable_by_key(|(address, _)| *address);
            around.roaming.sort_unstable_by_key(|(address, port, _)| (*address, *port));
        }
        Near {
            endpoints: self.movers.iter().map(|mover| mover.endpoint).collect(),
            links,
            roams: self.movers.iter().map(|mover| mover.roams).collect(),
            port: self.port,
        }
    }

    /// The address of a neighbour.
    pub(crate) fn address(&self, hop: usize) -> Option<SocketAddr> {
        self.movers.get(hop).map(|mover| mover.endpoint.at)
    }

    /// Roaming neighbours on a link.
    pub(crate) fn on_link(&self, link: usize) -> impl Iterator<Item = usize> + '_ {
        let movers = self.movers.iter().enumerate();
        movers.filter(move |(_, mover)| mover.roams && mover.link == link).map(|(hop, _)| hop)
    }

    /// Moves a neighbour to the source of its newest packet. False if it is there already.
    ///
    /// # Errors
    /// The reason why it stays.
    pub(crate) fn relocate(
        &mut self,
        hop: usize,
        to: LinkAddress,
        now: Nanos,
    ) -> Result<bool, Stays> {
        let LinkAddress { link, address } = to;
        let mover = self.movers.get(hop).filter(|mover| mover.roams && mover.link == link);
        let Mover { endpoint, paid, .. } = mover.ok_or(Stays::Fixed)?;
        if endpoint.at == address {
            return Ok(false);
        }
        let is_reachable = address.port() > 0 && is_unicast(address.ip());
        if !is_reachable || address.is_ipv4() != endpoint.at.is_ipv4() {
            return Err(Stays::Unreachable);
        }
        // A roaming neighbour may have left silently.
        let is_there = |other: &Mover| {
            other.link == link && !other.roams && other.endpoint.at.ip() == address.ip()
        };
        if self.movers.iter().any(is_there) {
            return Err(Stays::Taken);
        }
        let paid = (*paid).max(now) + MOVE_NANOS;
        if paid > now + MOVES * MOVE_NANOS {
            return Err(Stays::TooOften);
        }
        let mover = &mut self.movers[hop];
        mover.paid = paid;
        mover.endpoint = Endpoint { at: address, moves: mover.endpoint.moves + 1 };
        Ok(true)
    }
}

fn is_unicast(address: IpAddr) -> bool {
    let is_broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    !(address.is_unspecified() || address.is_multicast() || is_broadcast)
}

#[cfg(test)]
mod tests;
