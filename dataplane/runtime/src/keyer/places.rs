//! Destinations of handshakes with neighbours: their last known addresses, and those in the
//! configuration.

use super::{Keyer, Moment, Party};
use crate::roaming::{LinkAddress, Near};
use crate::topology::{HopConfig, Topology};
use recoded_secure::{HANDSHAKE_BYTES_MAX, HopKeys};
use std::net::SocketAddr;

impl Keyer {
    /// Restores the places of roaming neighbours from before this process.
    pub(super) fn recall_places(&mut self, topology: &Topology) {
        for (hop, (name, _)) in self.homes.iter().enumerate() {
            if topology.hops[hop].roams
                && let Some(address) = self.memory.place(name)
            {
                self.movers.recall(hop, address);
            }
        }
    }

    /// The places of neighbours.
    pub(crate) fn near(&self) -> Near {
        self.movers.near()
    }

    /// Does the work due with a neighbour, at `place` or at its known place.
    pub(super) fn poll_hop(
        &mut self,
        hop: usize,
        place: Option<LinkAddress>,
    ) -> Result<(), getrandom::Error> {
        let (now, stamp) = (self.clock.now(), self.stamps.now());
        let Some(party) = &mut self.hops[hop] else { return Ok(()) };
        let mut out = [0; HANDSHAKE_BYTES_MAX];
        let moment = Moment { now, stamp, memory: &mut self.memory };
        let turn = party.keys.poll(moment, true, &mut out)?;
        self.follow_hop(hop, place, turn, &out);
        Ok(())
    }

    /// The configured address of a neighbour that is sought elsewhere and has no keys.
    pub(super) fn home(&self, hop: usize) -> Option<LinkAddress> {
        let has_keys = |party: &Party<HopKeys>| party.keys.ring().sending().is_some();
        if self.hops[hop].as_ref().is_none_or(has_keys) {
            return None;
        }
        let (_, address) = self.homes[hop];
        let place = LinkAddress { link: self.hop_links[hop].link, address };
        (self.movers.address(hop) != Some(address)).then_some(place)
    }
}

/// Name of a neighbour in the records of sessions, and its address in the configuration.
pub(super) fn home(topology: &Topology, hop: &HopConfig) -> (String, SocketAddr) {
    let key = hop.key.as_ref().map(|key| key.public.to_string()).unwrap_or_default();
    let name = format!("{} {} {key}", topology.links[hop.link].name, hop.address);
    (name, SocketAddr::new(hop.address, topology.port))
}
