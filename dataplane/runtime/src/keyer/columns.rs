//! Columns of tags for relays: a source grants them, a relay adopts them, others forward them.
//!
//! ```text
//!  source: keys of the flow -> GrantSchedule -> a grant for each relay -> next hops
//!  relay:  a grant for it   -> RelayColumns  -> what workers verify symbols by
//!          for another one  -> passed on
//! ```

use super::{Keyer, receives_from, towards_edge};
use crate::keyring::{LETTER_BYTES, Letter, SessionReport};
use crate::topology::Topology;
use recoded_pipeline::params::PeerId;
use recoded_secure::{
    EdgeKeys, Entropy, GRANT_BYTES_MAX, Grant, GrantSchedule, GrantedSeeds, PrivateKey, PublicKey,
    Refused, RelayColumns, Ring, Strength, TagKey, write_grant,
};
use recoded_wire::handshake::{MESSAGE_BYTES_MAX, write_edge_handshake};
use recoded_wire::header::HEADER_BYTES;
use std::sync::Arc;

const _: () = assert!(GRANT_BYTES_MAX <= MESSAGE_BYTES_MAX);

/// Columns that this node grants, and those it was granted.
pub(super) struct Columns {
    /// By the number of the flow.
    granting: Vec<Granting>,
    holding: Vec<Holding>,
}

/// A flow that begins here, and the relays that verify its symbols.
struct Granting {
    flow: u32,
    private: PrivateKey,
    relays: Vec<PublicKey>,
    strength: Strength,
    schedule: GrantSchedule,
    /// Stamp of the newest grant.
    stamp: u64,
}

/// A flow that is relayed here.
struct Holding {
    flow: u32,
    columns: RelayColumns,
    /// When its present columns were adopted.
    since: Option<u64>,
    /// Number of changes.
    changes: u64,
    refused: u64,
    refusal: Option<Refused>,
}

impl Columns {
    pub(super) fn new(topology: &Topology) -> Columns {
        let mut columns = Columns { granting: Vec::new(), holding: Vec::new() };
        let Some(private) = &topology.private_key else { return columns };
        let edges = topology.edges.iter().map(|it| (it.flow, &it.relays, it.strength));
        let groups = topology.groups.iter().map(|it| (it.flow, &it.relays, it.strength));
        let granting = edges.chain(groups).filter(|(_, relays, _)| !relays.is_empty());
        columns.granting.extend(granting.map(|(flow, relays, strength)| Granting {
            flow,
            private: private.clone(),
            relays: relays.clone(),
            strength,
            schedule: GrantSchedule::default(),
            stamp: 0,
        }));
        columns.holding.extend(topology.relayed.iter().map(|relayed| Holding {
            flow: relayed.flow,
            columns: RelayColumns::of(private.clone(), relayed.source, relayed.flow),
            since: None,
            changes: 0,
            refused: 0,
            refusal: None,
        }));
        columns.granting.sort_by_key(|granting| granting.flow);
        columns.holding.sort_by_key(|holding| holding.flow);
        columns
    }

    pub(super) fn wake(&self) -> u64 {
        // Columns held by relays expire some milliseconds late.
        self.granting.iter().map(|granting| granting.schedule.wake()).fold(u64::MAX, u64::min)
    }

    /// Whether a flow that begins here has to wait until relays can verify it.
    pub(super) fn holds_back(&self, flow: u32) -> bool {
        let granting = self.granting.iter().find(|granting| granting.flow == flow);
        granting.is_some_and(|granting| granting.schedule.tagging().is_none())
    }

    /// The keys that symbols are tagged with.
    pub(super) fn tagging(&self) -> Vec<(u32, u8)> {
        let tagging = |it: &Granting| Some((it.flow, it.schedule.tagging()?));
        self.granting.iter().filter_map(tagging).collect()
    }

    /// Keys that this relay verifies symbols by.
    pub(super) fn held(&self) -> Vec<(u32, Vec<Arc<TagKey>>)> {
        let held = self.holding.iter().map(|holding| (holding.flow, holding.columns.keys()));
        held.filter(|(_, keys)| !keys.is_empty()).collect()
    }

    pub(super) fn report(&self, now: u64) -> Vec<(u32, SessionReport)> {
        let report = |holding: &Holding| SessionReport {
            key: holding.columns.source().to_string(),
            age_nanos: holding.since.map(|since| now.saturating_sub(since)),
            handshakes: holding.changes,
            refused: holding.refused,
            refusal: holding.refusal.map(|reason| reason.to_string()).unwrap_or_default(),
            one_way: false,
        };
        self.holding.iter().map(|holding| (holding.flow, report(holding))).collect()
    }
}

impl Granting {
    /// Seeds of all granted keys for a relay.
    fn seeds(&self, place: usize, ring: &Ring<Arc<EdgeKeys>>) -> Vec<GrantedSeeds> {
        let keys = |key_id| ring.epochs().find(|epoch| epoch.key_id == key_id);
        let granted = self.schedule.granted().filter_map(keys);
        granted.filter_map(|epoch| epoch.keys.granted_seeds(place)).collect()
    }
}

impl Keyer {
    /// Sends due grants, and drops expired ones.
    pub(super) fn poll_columns(&mut self, now: u64, stamp: u64) -> Result<(), getrandom::Error> {
        let mut is_changed = false;
        for holding in &mut self.columns.holding {
            if holding.columns.expire(now) {
                holding.since = None;
                is_changed = true;
                tracing::warn!(
                    flow = holding.flow,
                    "no columns of tags come from the source: symbols are mixed unverified"
                );
            }
        }
        for place in 0..self.columns.granting.len() {
            let flow = self.columns.granting[place].flow;
            let Some(ring) = self.edge_ring(flow).cloned() else { continue };
            let turn = self.columns.granting[place].schedule.poll(now, &ring);
            is_changed |= turn.is_changed;
            if turn.copies > 0 {
                self.grant(place, &ring, stamp, turn.copies)?;
            }
        }
        self.publish(is_changed);
        Ok(())
    }

    /// Sends each relay of a flow its columns.
    fn grant(
        &mut self,
        place: usize,
        ring: &Ring<Arc<EdgeKeys>>,
        stamp: u64,
        copies: usize,
    ) -> Result<(), getrandom::Error> {
        self.stamps.used(stamp, &mut self.memory);
        let granting = &mut self.columns.granting[place];
        granting.stamp = stamp.max(granting.stamp.saturating_add(1));
        let granting = &self.columns.granting[place];
        let flow = granting.flow;
        let snapshot = self.shared.snapshot.get();
        let Some(params) = snapshot.flows.iter().find(|known| known.id == flow) else {
            return Ok(());
        };
        let next = towards_edge(params);
        for (number, relay) in granting.relays.iter().enumerate() {
            let epochs = granting.seeds(number, ring);
            let Granting { stamp, strength, .. } = *granting;
            let grant = Grant { flow, stamp, strength, epochs: &epochs };
            let mut message = [0; GRANT_BYTES_MAX];
            let (source, entropy) = (&granting.private, Entropy::fresh()?);
            let written = write_grant(&grant, source, relay, &entropy, &mut message);
            // Without keys there is nothing to grant.
            let Ok(bytes) = written else { continue };
            let mut packet = [0; LETTER_BYTES];
            let len = write_edge_handshake(flow, &message[..bytes], &mut packet);
            self.send_all(&next, &packet[..len], copies);
        }
        Ok(())
    }

    /// Adopts a grant for this relay; forwards one for another.
    pub(super) fn receive_grant(&mut self, flow: u32, peer: PeerId, letter: Letter) {
        // The ends of a flow have all columns.
        if self.edge_ring(flow).is_some() {
            return;
        }
        let message = &letter.packet()[HEADER_BYTES..];
        let mut holding = self.columns.holding.iter_mut();
        let holding = holding.find(|it| it.flow == flow && it.columns.is_for_this(message));
        let Some(holding) = holding else {
            self.pass(flow, peer, letter);
            return;
        };
        if !receives_from(&self.shared.snapshot.get(), flow, peer) {
            holding.refused += 1;
            return;
        }
        let now = self.clock.now();
        match holding.columns.receive(now, message) {
            Ok(is_changed) => {
                if is_changed {
                    holding.changes += 1;
                    if holding.since.replace(now).is_none() {
                        tracing::info!(flow, "symbols are verified: the source granted columns");
                    }
                }
                self.publish(is_changed);
            }
            // Duplicates: each grant is sent several times.
            Err(Refused::Stale) => {}
            Err(reason) => {
                holding.refused += 1;
                if holding.refusal.replace(reason) != Some(reason) {
                    tracing::warn!(flow, %reason, "columns of tags are refused");
                }
            }
        }
    }
}
