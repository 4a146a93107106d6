//! Flows to several sinks: a source draws keys and sends them to each sink, a sink adopts them,
//! other nodes forward them.
//!
//! ```text
//!  source: sinks, as the configuration has them -> GroupSender -> a telling for each -> next hops
//!  sink:   a telling for it                     -> GroupReceiver -> keys for workers
//! ```

use super::{Keyer, receives_from, towards_edge};
use crate::keyring::{LETTER_BYTES, Letter, SessionReport};
use crate::memory::Memory;
use crate::topology::{GroupPart, Topology};
use recoded_pipeline::params::PeerId;
use recoded_secure::{
    EdgeKeys, Entropy, GROUP_BYTES, GroupReceiver, GroupSender, Profile, Refused, Ring, Suite,
    group_way,
};
use recoded_wire::handshake::{MESSAGE_BYTES_MAX, write_edge_handshake};
use recoded_wire::header::HEADER_BYTES;
use std::sync::Arc;

const _: () = assert!(GROUP_BYTES <= MESSAGE_BYTES_MAX);

/// Groups of this node, by the number of the flow.
#[derive(Default)]
pub(super) struct Groups {
    known: Vec<(u32, Group)>,
    /// The list of sinks seen last.
    seen: u64,
}

struct Group {
    /// The key of the source.
    key: String,
    part: GroupRole,
    refused: u64,
    refusal: Option<Refused>,
}

enum GroupRole {
    Source(Box<GroupSender>),
    Sink(Box<GroupReceiver>),
}

impl Group {
    fn ring(&self) -> &Ring<Arc<EdgeKeys>> {
        match &self.part {
            GroupRole::Source(sender) => sender.ring(),
            GroupRole::Sink(receiver) => receiver.ring(),
        }
    }

    fn report(&self, now: u64) -> SessionReport {
        let (since, handshakes) = match &self.part {
            GroupRole::Source(sender) => {
                (sender.ring().sending().map(|epoch| epoch.since), sender.epochs())
            }
            GroupRole::Sink(receiver) => (receiver.heard(now), receiver.epochs()),
        };
        SessionReport {
            key: self.key.clone(),
            age_nanos: since.map(|since| now.saturating_sub(since)),
            handshakes,
            refused: self.refused,
            refusal: self.refusal.map(|reason| reason.to_string()).unwrap_or_default(),
            one_way: true,
        }
    }
}

impl Groups {
    pub(super) fn new(topology: &Topology, memory: &Memory) -> Result<Groups, getrandom::Error> {
        let mut groups = Groups::default();
        let Some(private) = &topology.private_key else { return Ok(groups) };
        for config in &topology.groups {
            let flow = config.flow;
            let (source, part) = match &config.part {
                GroupPart::Source(sinks) => {
                    let own = private.public();
                    let newest = memory.recall(&group_way(own, flow));
                    let (private, sinks) = (private.clone(), sinks.clone());
                    let strength = config.strength;
                    let profile = Profile { suite: Suite::preferred(), strength };
                    let entropy = Entropy::fresh()?;
                    let sender = GroupSender::new(private, flow, sinks, profile, newest, &entropy);
                    (own, GroupRole::Source(Box::new(sender)))
                }
                GroupPart::Sink(source) => {
                    let newest = memory.recall(&group_way(*source, flow));
                    let receiver = GroupReceiver::new(private.clone(), *source, flow, newest);
                    let receiver = receiver.requiring(config.strength);
                    (*source, GroupRole::Sink(Box::new(receiver)))
                }
            };
            let group = Group { key: source.to_string(), part, refused: 0, refusal: None };
            groups.known.push((flow, group));
        }
        Ok(groups)
    }

    pub(super) fn ring(&self, flow: u32) -> Option<&Ring<Arc<EdgeKeys>>> {
        self.known.iter().find(|(known, _)| *known == flow).map(|(_, group)| group.ring())
    }

    pub(super) fn flows(&self) -> impl Iterator<Item = u32> + '_ {
        self.known.iter().map(|(flow, _)| *flow)
    }

    /// Schedules other keys for flows that begin here.
    pub(super) fn renew(&mut self, now: u64) {
        for (_, group) in &mut self.known {
            if let GroupRole::Source(sender) = &mut group.part {
                sender.renew(now);
            }
        }
    }

    pub(super) fn wake(&self) -> u64 {
        let wake = |(_, group): &(u32, Group)| match &group.part {
            GroupRole::Source(sender) => sender.wake(),
            GroupRole::Sink(_) => u64::MAX,
        };
        self.known.iter().map(wake).fold(u64::MAX, u64::min)
    }

    pub(super) fn report(&self, now: u64) -> impl Iterator<Item = (u32, SessionReport)> + '_ {
        self.known.iter().map(move |(flow, group)| (*flow, group.report(now)))
    }
}

impl Keyer {
    /// Sends due keys to sinks, and drops expired ones.
    pub(super) fn poll_groups(&mut self, now: u64, stamp: u64) -> Result<(), getrandom::Error> {
        let sinks = self.keyring.sinks.newer(&mut self.groups.seen);
        let mut is_changed = false;
        for place in 0..self.groups.known.len() {
            let flow = self.groups.known[place].0;
            let is_on_the_way = self.is_on_the_way(flow);
            let Keyer { groups, memory, .. } = self;
            let sender = match &mut groups.known[place].1.part {
                GroupRole::Source(sender) => sender,
                GroupRole::Sink(receiver) => {
                    is_changed |= receiver.expire(now);
                    continue;
                }
            };
            let mut others = sinks.iter().flat_map(|sinks| sinks.iter());
            if let Some((_, others)) = others.find(|(known, _)| *known == flow)
                && sender.set_sinks(now, others.clone())
            {
                tracing::info!(flow, sinks = others.len(), "other sinks: new keys are sent");
            }
            // A message without keys on its path is lost, and a retransmission would carry old
            // keys.
            if !is_on_the_way {
                continue;
            }
            let mut keep = |way: &_, newest| memory.keep(way, newest);
            let Ok(turn) = sender.poll(now, stamp, Entropy::fresh, &mut keep)? else { continue };
            is_changed |= turn.is_changed;
            if turn.send > 0 {
                self.tell(place);
            }
        }
        self.publish(is_changed);
        Ok(())
    }

    /// Sends each sink of a flow its keys.
    fn tell(&self, place: usize) {
        let (flow, group) = &self.groups.known[place];
        let snapshot = self.shared.snapshot.get();
        let params = snapshot.flows.iter().find(|known| known.id == *flow);
        let (Some(params), GroupRole::Source(sender)) = (params, &group.part) else { return };
        let next = towards_edge(params);
        for telling in sender.tellings() {
            let mut packet = [0; LETTER_BYTES];
            let len = write_edge_handshake(*flow, telling, &mut packet);
            self.send_all(&next, &packet[..len], 1);
        }
    }

    /// Adopts keys meant for this sink; forwards those for others.
    pub(super) fn receive_telling(&mut self, flow: u32, peer: PeerId, letter: Letter) {
        let Keyer { groups, memory, clock, shared, .. } = self;
        let message = &letter.packet()[HEADER_BYTES..];
        let group = groups.known.iter_mut().find(|(known, _)| *known == flow);
        let Some((_, group)) = group else {
            self.pass(flow, peer, letter);
            return;
        };
        let GroupRole::Sink(receiver) = &mut group.part else { return };
        if !receiver.is_for_this(message) {
            return;
        }
        if !receives_from(&shared.snapshot.get(), flow, peer) {
            group.refused += 1;
            return;
        }
        let mut keep = |way: &_, newest| memory.keep(way, newest);
        match receiver.receive(clock.now(), message, &mut keep) {
            Ok(is_changed) => self.publish(is_changed),
            Err(reason) => {
                group.refused += 1;
                group.refusal = Some(reason);
            }
        }
    }
}
