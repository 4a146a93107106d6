//! The key thread: handshakes with neighbours and with the other ends of flows; forwards those of
//! other nodes. It also exchanges announcements with neighbours (`talk`).
//!
//! ```text
//!  workers: messages ─► one queue ─► this thread: Gate, Association ─► keys for all workers
//!                                                                  └─► letters ─► first worker
//! ```
//!
//! Anyone can trigger requests, so their cost is bounded: the queue is short and each neighbour has
//! its share of it, and the gate requires cookies beyond a hundred messages a second. Messages
//! between edges arrive over links whose packets are verified. Failed attempts to read them and
//! their forwarding have a budget for each neighbour. The first worker sends this thread's
//! messages, so handshakes take the path of all packets.

use crate::keyring::{Keyring, LETTER_BYTES, Letter, Rings};
use crate::mailbox::Inbox;
use crate::memory::Memory;
use crate::roaming::{LinkAddress, Movers};
use crate::shared::{Clock, Shared};
use crate::suspension::BootClock;
use crate::talk::Talk;
use crate::topology::Topology;
use crossbeam::channel::RecvTimeoutError;
use recoded_pipeline::params::{FlowParams, PeerId, Role, Snapshot};
use recoded_secure::{
    Admission, Arrived, ENVELOPE_BYTES, EdgeKeys, Entropy, Gate, HANDSHAKE_BYTES_MAX, HopKeys,
    Refused, Ring, Scope, Strength, Turn,
};
use recoded_wire::handshake::{parse_handshake, write_edge_handshake, write_hop_handshake};
use recoded_wire::header::{Flags, HEADER_BYTES, Header, PacketType};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

mod columns;
mod edges;
mod groups;
mod party;
mod places;
mod recorded;
mod report;
mod roaming;
mod stamps;
mod talking;

use columns::Columns;
use edges::Passes;
use groups::Groups;
use party::{Moment, Party};
use places::home;
use stamps::{Stamps, seconds};
use talking::HopLink;

/// Letters read between two checks of the timers.
const BURST: usize = 64;

/// Interval at which workers' keys are checked.
const LOOK: Duration = Duration::from_millis(50);

/// The same without keys.
const LOOK_ALONE: Duration = Duration::from_secs(1);

/// Copies of each message between neighbours: a path without keys carries nothing. On links with 10
/// % loss, one handshake in five would fail without copies, and each failure costs a tenth of a
/// second. With three it is one in five hundred. Refusing a duplicate is cheap.
const HOP_COPIES: usize = 3;

/// Copies of each message between edges, which travel several hops: over two hops with 10 % loss,
/// one handshake in four hundred fails.
const EDGE_COPIES: usize = 4;

const SECOND: u64 = 1_000_000_000;

/// Interval of reports about neighbours' announcements.
const REPORT_NANOS: u64 = SECOND / 20;

/// The thread's state.
pub(crate) struct Keyer {
    shared: Arc<Shared>,
    keyring: Arc<Keyring>,
    /// Keys also age while the box sleeps.
    clock: BootClock,
    gate: Option<Gate>,
    /// By `PeerId`; `None` if the configuration has no key for it.
    hops: Vec<Option<Party<HopKeys>>>,
    edges: Vec<(u32, Party<EdgeKeys>)>,
    columns: Columns,
    groups: Groups,
    /// State that survives a restart.
    memory: Memory,
    stamps: Stamps,
    /// Flows with a young first session.
    fresh: Vec<u32>,
    /// Messages of other nodes that each neighbour may have forwarded.
    passes: Passes,
    talk: Talk,
    /// When neighbours' announcements were last reported.
    told: Option<u64>,
    /// By `PeerId`.
    hop_links: Vec<HopLink>,
    movers: Movers,
    /// By `PeerId`: its name in the records, and its address in the configuration.
    homes: Vec<(String, SocketAddr)>,
    /// Memory for sources and for announced packets.
    flow_memory_bytes: usize,
}

impl Keyer {
    /// Prepares the associations that a topology names.
    ///
    /// # Errors
    /// Linux gives no random bytes.
    pub(crate) fn new(
        topology: &Topology,
        shared: Arc<Shared>,
        keyring: Arc<Keyring>,
        clock: Clock,
        memory: Memory,
    ) -> Result<Keyer, getrandom::Error> {
        let now = clock.now();
        let mut keyer = Keyer {
            shared,
            keyring,
            clock: BootClock::beside(clock),
            gate: None,
            hops: topology.hops.iter().map(|_| None).collect(),
            edges: Vec::new(),
            columns: Columns::new(topology),
            groups: Groups::new(topology, &memory)?,
            stamps: Stamps::new(&memory),
            fresh: Vec::new(),
            memory,
            passes: Passes::new(topology.hops.len()),
            talk: Talk::new(topology, now, getrandom::u32()? as u16),
            told: None,
            flow_memory_bytes: topology.flow_memory_bytes,
            hop_links: topology.hops.iter().map(HopLink::new).collect(),
            movers: Movers::new(topology),
            homes: topology.hops.iter().map(|hop| home(topology, hop)).collect(),
        };
        keyer.recall_places(topology);
        let Some(private) = &topology.private_key else { return Ok(keyer) };
        keyer.gate = Some(Gate::new(now, &Entropy::fresh()?));
        for (party, hop) in keyer.hops.iter_mut().zip(&topology.hops) {
            if let Some(key) = &hop.key {
                let (scope, strength) = (Scope::Hop, Strength::Standard);
                let made = Party::new(scope, strength, private, key, now, &keyer.memory)?;
                *party = Some(made.over(hop.path));
            }
        }
        for edge in &topology.edges {
            let (scope, memory) = (Scope::Edge(edge.flow), &keyer.memory);
            let party = Party::new(scope, edge.strength, private, &edge.key, now, memory)?;
            keyer.edges.push((edge.flow, party));
        }
        keyer.edges.sort_by_key(|(flow, _)| *flow);
        Ok(keyer)
    }

    /// Runs until all workers are gone.
    pub(crate) fn run(mut self, mail: &Inbox) {
        let mut is_warned = false;
        loop {
            let came = mail.recv_timeout(self.pause());
            let worked = match came {
                Ok(letter) => {
                    // Under a flood, timers take their turn after a burst.
                    let mut letters = std::iter::once(letter).chain(mail.try_iter()).take(BURST);
                    letters.try_for_each(|letter| self.receive(letter))
                }
                Err(RecvTimeoutError::Timeout) => Ok(()),
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let worked = worked.and_then(|()| self.poll());
            if let Err(error) = worked
                && !std::mem::replace(&mut is_warned, true)
            {
                tracing::error!(%error, "Linux gives no random bytes: no keys are agreed on");
            }
        }
    }

    /// Time until something is due, unless a letter comes.
    fn pause(&self) -> Duration {
        let hops = self.hops.iter().flatten().map(|party| party.keys.wake());
        let ready = self.edges.iter().filter(|(flow, _)| self.is_on_the_way(*flow));
        let edges = ready.map(|(_, party)| party.keys.wake());
        let wake = hops.chain(edges).chain([self.columns.wake(), self.groups.wake()]);
        let wake = wake.fold(self.talk.wake(), u64::min);
        let wait = wake.saturating_sub(self.clock.now());
        let is_alone = self.hops.iter().all(Option::is_none) && self.edges.is_empty();
        Duration::from_nanos(wait).min(if is_alone { LOOK_ALONE } else { LOOK })
    }

    /// Does the work that is due.
    fn poll(&mut self) -> Result<(), getrandom::Error> {
        let (now, stamp) = (self.clock.now(), self.stamps.now());
        self.renew(now);
        let mut out = [0; HANDSHAKE_BYTES_MAX];
        for hop in 0..self.hops.len() {
            self.poll_hop(hop, None)?;
        }
        for edge in 0..self.edges.len() {
            // A message without keys on its path is lost, and waiting for the reply takes longer.
            if !self.is_on_the_way(self.edges[edge].0) {
                continue;
            }
            let begins_here = self.begins_here(self.edges[edge].0);
            let (_, party) = &mut self.edges[edge];
            let moment = Moment { now, stamp, memory: &mut self.memory };
            let turn = party.keys.poll(moment, begins_here, &mut out)?;
            self.follow_edge(edge, turn, &out);
        }
        self.poll_groups(now, stamp)?;
        self.poll_columns(now, stamp)?;
        self.age_sessions(now);
        self.talk(now);
        self.report(now);
        Ok(())
    }

    /// Agrees on other keys with neighbours that workers distrust, and with the far ends of flows
    /// that begin here after units were renumbered.
    fn renew(&mut self, now: u64) {
        while let Some(peer) = self.keyring.distrusted.pop() {
            let party = self.hops.get_mut(usize::from(peer.0)).and_then(Option::as_mut);
            let Some(party) = party else { continue };
            party.keys.renew(now);
            let key = &party.key;
            tracing::warn!(neighbour = %key, "many symbols with wrong tags: its keys are changed");
        }
        if self.keyring.has_new_numbers.swap(false, Relaxed) {
            self.edges.iter_mut().for_each(|(_, party)| party.keys.renew(now));
            self.groups.renew(now);
        }
    }

    /// Whether messages between the edges of a flow can leave.
    fn is_on_the_way(&self, flow: u32) -> bool {
        let snapshot = self.shared.snapshot.get();
        let flow = snapshot.flows.iter().find(|known| known.id == flow);
        let Some(flow) = flow else { return false };
        towards_edge(flow).iter().any(|next| {
            let hop = self.hops[usize::from(next.0)].as_ref();
            hop.is_none_or(|hop| hop.keys.ring().sending().is_some())
        })
    }

    /// Keys for a flow that begins or ends here.
    fn edge_ring(&self, flow: u32) -> Option<&Ring<Arc<EdgeKeys>>> {
        match self.edges.binary_search_by_key(&flow, |(known, _)| *known) {
            Ok(edge) => Some(self.edges[edge].1.keys.ring()),
            Err(_) => self.groups.ring(flow),
        }
    }

    /// Whether this node is the source of a flow.
    fn begins_here(&self, flow: u32) -> bool {
        let snapshot = self.shared.snapshot.get();
        let mut flows = snapshot.flows.iter();
        flows.any(|known| known.id == flow && matches!(known.role, Role::Source { .. }))
    }

    fn receive(&mut self, letter: Letter) -> Result<(), getrandom::Error> {
        let peer = match (letter.peer, letter.place) {
            (Some(peer), Some(place)) => {
                self.relocate(peer, place);
                return Ok(());
            }
            (Some(peer), None) => peer,
            (None, Some(place)) => return self.receive_from(place, &letter),
            (None, None) => return Ok(()),
        };
        let header = Header::parse(letter.packet());
        if header.is_ok_and(|header| header.packet_type == PacketType::Announcement) {
            self.listen(peer, &letter);
            return Ok(());
        }
        // Without a trailer: the worker has removed it.
        let Ok(header) = parse_handshake(letter.packet()) else { return Ok(()) };
        if header.flags.has(Flags::EDGE) {
            return self.receive_edge(header.flow, peer, letter);
        }
        let hop = usize::from(peer.0);
        let (Some(party), Some(gate)) = (&mut self.hops[hop], &mut self.gate) else {
            return Ok(());
        };
        let (now, entropy) = (self.clock.now(), Entropy::fresh()?);
        let message = &letter.packet()[HEADER_BYTES..];
        let mut out = [0; HANDSHAKE_BYTES_MAX];
        // The worker has checked that the address is that of the neighbour.
        let arrived = Arrived { address: &peer.0.to_be_bytes(), message };
        let admission = party.keys.admit(gate, now, &entropy, arrived, &mut out);
        let turn = match admission {
            Ok(Admission::Reply(send)) => {
                // A reply is no longer than its request.
                self.send_to_hop(hop, None, &out[..send], 1);
                return Ok(());
            }
            Ok(Admission::Pass) => party.keys.receive(now, message, &mut out, &mut self.memory)?,
            Err(reason) => Err(reason),
        };
        self.follow_hop(hop, None, turn, &out);
        Ok(())
    }

    /// Moves a roaming neighbour to the place of its newest packet.
    fn relocate(&mut self, peer: PeerId, place: LinkAddress) {
        let hop = usize::from(peer.0);
        let key =
            self.hops.get(hop).and_then(Option::as_ref).map_or("", |party| party.key.as_str());
        match self.movers.relocate(hop, place, self.clock.now()) {
            Ok(false) => {}
            Ok(true) => {
                tracing::info!(neighbour = key, address = %place.address, "the neighbour moved");
                self.memory.keep_place(&self.homes[hop].0, place.address);
                self.keyring.near.publish(self.movers.near());
                self.shared.wake_all();
            }
            Err(reason) => {
                tracing::debug!(neighbour = key, address = %place.address, %reason, "not moved");
            }
        }
    }

    /// Sends the message that an association with a neighbour requests: to `place`, or to the
    /// neighbour's known place.
    fn follow_hop(
        &mut self,
        hop: usize,
        place: Option<LinkAddress>,
        turn: Result<Turn, Refused>,
        message: &[u8],
    ) {
        let turn = match turn {
            Ok(turn) => turn,
            Err(reason) => {
                self.look_for_set_back(reason);
                if let Some(party) = &mut self.hops[hop] {
                    party.refuse(reason);
                }
                return;
            }
        };
        if let Some(party) = &mut self.hops[hop] {
            self.stamps.follow(party.keys.peer_stamp());
            turn.refusal.into_iter().for_each(|reason| party.refuse(reason));
        }
        if turn.is_silent
            && let Ok(id) = u16::try_from(hop)
        {
            self.shared.suspect(PeerId(id));
        }
        // Workers need the keys before the hello leaves.
        self.publish(turn.is_changed);
        if turn.send > 0 {
            self.stamps.used(self.stamps.now(), &mut self.memory);
            self.send_to_hop(hop, place, &message[..turn.send], HOP_COPIES);
            if place.is_none()
                && let Some(home) = self.home(hop)
            {
                self.send_to_hop(hop, Some(home), &message[..turn.send], HOP_COPIES);
            }
        }
        if turn.hello {
            self.send_to_hop(hop, None, &[], 1);
        }
    }

    /// Has this process end where a peer shows that it was set back.
    fn look_for_set_back(&self, reason: Refused) {
        if reason == Refused::SetBack {
            self.shared.is_set_back.store(true, Relaxed);
            self.publish(true);
        }
    }

    /// Sends a handshake message or a hello to a neighbour: to `place`, or to its known place.
    fn send_to_hop(&self, hop: usize, place: Option<LinkAddress>, message: &[u8], copies: usize) {
        let Ok(id) = u16::try_from(hop) else { return };
        let mut packet = [0; LETTER_BYTES];
        let len = write_hop_handshake(message, &mut packet);
        let letter = match place {
            Some(place) => Letter::from_elsewhere(place, &packet[..len]),
            None => Letter::new(PeerId(id), &packet[..len]),
        };
        let copies = letter.into_iter().flat_map(|letter| vec![letter; copies]);
        copies.for_each(|letter| self.send(letter));
    }

    /// Sends the message that an association with another edge requests.
    fn follow_edge(&mut self, edge: usize, turn: Result<Turn, Refused>, message: &[u8]) {
        turn.err().into_iter().for_each(|reason| self.look_for_set_back(reason));
        let (flow, party) = &mut self.edges[edge];
        let flow = *flow;
        let turn = match turn {
            Ok(turn) => turn,
            Err(reason) => {
                party.refuse(reason);
                return;
            }
        };
        self.stamps.follow(party.keys.peer_stamp());
        turn.refusal.into_iter().for_each(|reason| party.refuse(reason));
        let mut hello = [0; ENVELOPE_BYTES];
        let sending = party.keys.ring().sending();
        let is_sealed =
            sending.is_some_and(|epoch| epoch.keys.seal(&mut hello, &flow.to_be_bytes()).is_ok());
        self.publish(turn.is_changed);
        let snapshot = self.shared.snapshot.get();
        let Some(params) = snapshot.flows.iter().find(|known| known.id == flow) else { return };
        let next = towards_edge(params);
        let mut packet = [0; LETTER_BYTES];
        if turn.send > 0 {
            self.stamps.used(self.stamps.now(), &mut self.memory);
            let len = write_edge_handshake(flow, &message[..turn.send], &mut packet);
            self.send_all(&next, &packet[..len], EDGE_COPIES);
        }
        if turn.hello && is_sealed {
            let len = write_edge_handshake(flow, &hello, &mut packet);
            self.send_all(&next, &packet[..len], EDGE_COPIES);
        }
    }

    fn send_all(&self, peers: &[PeerId], packet: &[u8], copies: usize) {
        for peer in peers {
            if let Some(letter) = Letter::new(*peer, packet) {
                (0..copies).for_each(|_| self.send(letter.clone()));
            }
        }
    }

    /// Passes it to the first worker; session timers retransmit letters that find no room.
    fn send(&self, letter: Letter) {
        if self.keyring.outgoing.push(letter).is_ok() {
            self.shared.waker(0).wake();
        }
    }

    /// Gives workers new keys.
    fn publish(&self, is_changed: bool) {
        if is_changed {
            self.keyring.rings.publish(self.rings());
            self.shared.wake_all();
        }
    }

    /// Keys that are valid; none once another copy of them is in use.
    pub(crate) fn rings(&self) -> Rings {
        let is_valid = !self.shared.is_set_back.load(Relaxed);
        let hop = |party: &Option<Party<HopKeys>>| {
            let ring = |party: &Party<HopKeys>| party.keys.ring().clone();
            party.as_ref().map(|party| if is_valid { ring(party) } else { Ring::default() })
        };
        let edge = |flow: u32| {
            // Nothing is sealed or tagged before relays can verify it.
            let ring = self.edge_ring(flow).filter(|_| is_valid && !self.columns.holds_back(flow));
            (flow, ring.cloned().unwrap_or_default())
        };
        let flows = self.edges.iter().map(|(flow, _)| *flow).chain(self.groups.flows());
        let mut edges: Vec<_> = flows.map(edge).collect();
        // Workers look keys up by flow number.
        edges.sort_by_key(|(flow, _)| *flow);
        Rings {
            hops: self.hops.iter().map(hop).collect(),
            edges,
            tagging: self.columns.tagging(),
            columns: self.columns.held(),
            fresh: self.fresh_flows(self.clock.now()),
        }
    }
}

/// The neighbours on the path from one edge of a flow to the other.
fn towards_edge(flow: &FlowParams) -> Vec<PeerId> {
    match flow.role {
        Role::Sink { .. } => flow.upstreams().collect(),
        _ => flow.next_hops.clone(),
    }
}

/// Whether a neighbour brings a flow to this node: only such a one brings grants and keys of it.
fn receives_from(snapshot: &Snapshot, flow: u32, peer: PeerId) -> bool {
    let flow = snapshot.flows.iter().find(|known| known.id == flow);
    flow.is_some_and(|flow| flow.upstreams().any(|upstream| upstream == peer))
}

#[cfg(test)]
mod tests;
