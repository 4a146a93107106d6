//! Reports of sessions.

use super::{Keyer, Party, REPORT_NANOS};
use crate::keyring::{SessionReport, Sessions};
use recoded_pipeline::params::FlowParams;
use recoded_secure::{EdgeKeys, HopKeys};

impl Keyer {
    /// Flows whose first session since this node's start is young.
    pub(super) fn fresh_flows(&self, now: u64) -> Vec<u32> {
        let fresh = self.edges.iter().filter(|(_, party)| party.is_fresh(now));
        fresh.map(|(flow, _)| *flow).collect()
    }

    /// Publishes to workers which first sessions are no longer young.
    pub(super) fn age_sessions(&mut self, now: u64) {
        let fresh = self.fresh_flows(now);
        if fresh != self.fresh {
            self.fresh = fresh;
            self.publish(true);
        }
    }

    /// Publishes the sessions.
    pub(crate) fn report(&mut self, now: u64) {
        // Reports format strings, a cost that bursts of letters must not repeat.
        if self.told.is_none_or(|told| now.saturating_sub(told) >= REPORT_NANOS) {
            self.told = Some(now);
            self.keyring.store_talked(self.talk.report(now));
        }
        let hop = |(hop, party): (usize, &Option<Party<HopKeys>>)| {
            party.as_ref().map(|party| party.report(now, self.is_upstream(hop)))
        };
        let edge = |(flow, party): &(u32, Party<EdgeKeys>)| {
            (*flow, party.report(now, !self.begins_here(*flow)))
        };
        let mut edges: Vec<(u32, SessionReport)> =
            self.edges.iter().map(edge).chain(self.groups.report(now)).collect();
        // Nothing is sent under keys that relays cannot verify yet.
        for (flow, session) in &mut edges {
            session.age_nanos = session.age_nanos.filter(|_| !self.columns.holds_back(*flow));
        }
        self.keyring.store_sessions(Sessions {
            hops: self.hops.iter().enumerate().map(hop).collect(),
            edges,
            columns: self.columns.report(now),
        });
    }

    /// Whether packets of flows come from a neighbour.
    fn is_upstream(&self, hop: usize) -> bool {
        let snapshot = self.shared.snapshot.get();
        let mut upstreams = snapshot.flows.iter().flat_map(FlowParams::upstreams);
        upstreams.any(|peer| usize::from(peer.0) == hop)
    }
}
