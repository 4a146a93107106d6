//! Messages between the ends of a flow: read at the ends, forwarded by relays.
//!
//! They arrive from neighbours, and a neighbour may forge them. Checks come before costs: first
//! whether the neighbour is one of that flow, then the MAC of the message, then the budget of the
//! neighbour, and only then multiplications on the curve.

use super::{Keyer, SECOND, receives_from};
use crate::keyring::{Letter, OUTGOING};
use crate::mailbox::{FLOW_SHARES, flow_share};
use recoded_pipeline::params::{FlowParams, PeerId, Role, Snapshot};
use recoded_secure::{ENVELOPE_BYTES, HANDSHAKE_BYTES_MAX, Refused, is_grant, is_group, open_edge};
use recoded_wire::handshake::travel;
use recoded_wire::header::HEADER_BYTES;

/// Messages of other nodes forwarded per second and neighbour. At half of it, a restart of a source
/// of several hundred flows would take seconds; at twice, two neighbours fill a core.
const PASSED_PER_SECOND: u32 = 1000;

/// Forwarded messages that wait to be sent; the rest of the queue is for messages of this node.
const PASSED_WAITING: usize = OUTGOING / 2;

/// Messages forwarded in the present second.
pub(super) struct Passes {
    second: u64,
    /// By `PeerId`.
    made: Box<[u32]>,
    /// By [`flow_share`].
    of_flow: Box<[u32]>,
}

impl Passes {
    pub(super) fn new(neighbours: usize) -> Passes {
        let zeros = |count| vec![0; count].into_boxed_slice();
        Passes { second: 0, made: zeros(neighbours), of_flow: zeros(neighbours * FLOW_SHARES) }
    }

    /// Counts a message of a flow from this neighbour. Returns whether it may be forwarded: a flow
    /// gets as many as it leaves to the other flows of the neighbour.
    fn spend(&mut self, from: PeerId, flow: u32, now: u64) -> bool {
        let second = now / SECOND;
        if self.second != second {
            self.second = second;
            self.made.fill(0);
            self.of_flow.fill(0);
        }
        let made = self.made.get_mut(usize::from(from.0));
        let of_flow = self.of_flow.get_mut(flow_share(from, flow));
        let (Some(made), Some(of_flow)) = (made, of_flow) else { return false };
        let is_left = *made + *of_flow < PASSED_PER_SECOND;
        *made += u32::from(is_left);
        *of_flow += u32::from(is_left);
        is_left
    }
}

impl Keyer {
    pub(super) fn receive_edge(
        &mut self,
        flow: u32,
        peer: PeerId,
        mut letter: Letter,
    ) -> Result<(), getrandom::Error> {
        if is_grant(&letter.packet()[HEADER_BYTES..]) {
            self.receive_grant(flow, peer, letter);
            return Ok(());
        }
        if is_group(&letter.packet()[HEADER_BYTES..]) {
            self.receive_telling(flow, peer, letter);
            return Ok(());
        }
        let Some(edge) = self.edges.iter().position(|(id, _)| *id == flow) else {
            self.pass(flow, peer, letter);
            return Ok(());
        };
        let is_between = leads_to_edge(&self.shared.snapshot.get(), flow, peer);
        let (_, party) = &mut self.edges[edge];
        if !is_between {
            party.refuse(Refused::OtherPeer);
            return Ok(());
        }
        let packet = letter.packet_mut();
        let message = &mut packet[HEADER_BYTES..];
        if message.len() == ENVELOPE_BYTES {
            // A hello, shorter than any message: the peer has the keys.
            let mut ring = party.keys.ring().clone();
            if let Err(reason) = open_edge(&mut ring, message, &flow.to_be_bytes()) {
                party.refuse(reason);
            }
            return Ok(());
        }
        let now = self.clock.now();
        if let Err(reason) = party.admit_edge(now, peer.0, message) {
            party.refuse(reason);
            return Ok(());
        }
        let mut out = [0; HANDSHAKE_BYTES_MAX];
        let turn = party.keys.receive(now, message, &mut out, &mut self.memory)?;
        party.note_read(peer.0, message, turn.as_ref().err());
        self.follow_edge(edge, turn, &out);
        Ok(())
    }

    /// Forwards a message between edges in its direction of travel.
    pub(super) fn pass(&mut self, flow: u32, from: PeerId, mut letter: Letter) {
        let snapshot = self.shared.snapshot.get();
        let Some(flow) = snapshot.flows.iter().find(|known| known.id == flow) else { return };
        if !matches!(flow.role, Role::Relay { .. }) {
            return;
        }
        let is_upstream = flow.upstreams().any(|upstream| upstream == from);
        if !is_upstream && !flow.next_hops.contains(&from) {
            return;
        }
        let has_room = self.keyring.outgoing.len() < PASSED_WAITING;
        let now = self.clock.now();
        if !has_room || !travel(letter.packet_mut()) || !self.passes.spend(from, flow.id, now) {
            return;
        }
        if is_upstream {
            flow.next_hops.iter().for_each(|hop| self.send(letter.to(*hop)));
        } else {
            flow.upstreams().for_each(|upstream| self.send(letter.to(upstream)));
        }
    }
}

/// Whether a neighbour lies between this end of a flow and the other one.
fn leads_to_edge(snapshot: &Snapshot, flow: u32, peer: PeerId) -> bool {
    let source =
        |known: &&FlowParams| known.id == flow && matches!(known.role, Role::Source { .. });
    match snapshot.flows.iter().find(source) {
        Some(source) => source.next_hops.contains(&peer),
        None => receives_from(snapshot, flow, peer),
    }
}
