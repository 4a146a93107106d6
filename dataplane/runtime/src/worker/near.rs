//! Which neighbour sent a packet, and where neighbours are.

use super::Worker;
use crate::guard::Admitted;
use crate::outbox::Outbox;
use crate::roaming::{Place, is_message};
use recoded_pipeline::params::{Nanos, PeerId};
use recoded_wire::frames::{Frames, Span};

impl Worker {
    /// The neighbour that sent a packet, and the part of it that the pipeline gets, if its tag is
    /// right; otherwise the packet ends here. Those of unknown senders end in the pipeline, where
    /// none of the neighbours roams.
    #[inline]
    pub(super) fn admit(
        &mut self,
        place: Place,
        payload: Span,
        now: Nanos,
    ) -> Option<(Option<PeerId>, Span)> {
        let Place { link, address } = place;
        let packet = self.umem.bytes(payload);
        let Outbox { guard, links, .. } = &mut self.outbox;
        let (peer, admitted) = match self.near.links[link].find(address, packet) {
            Some(peer) => (peer, guard.admit(peer, packet, &mut links[link])),
            None => match self.recognise(place, payload)? {
                Some(found) => found,
                None => return Some((None, payload)),
            },
        };
        if admitted.is_newest {
            let packet = self.umem.bytes(payload);
            if let Some(address) = self.near.links[link].moved(peer, address, packet) {
                self.outbox.guard.relocate(peer, Place { link, address }, now);
            }
        }
        match admitted.packet.and_then(|len| payload.slice(0, len)) {
            Some(payload) => Some((Some(peer), payload)),
            None => {
                self.umem.release(payload.frame);
                None
            }
        }
    }

    /// Looks at a packet from an address that is no neighbour's: which of those that roam sent it,
    /// or `Some(None)` where none does. `None`: it ends here, and was counted.
    #[cold]
    fn recognise(&mut self, place: Place, payload: Span) -> Option<Option<(PeerId, Admitted)>> {
        let (around, packet) = (&self.near.links[place.link], self.umem.bytes(payload));
        if around.roaming().next().is_none() {
            return Some(None);
        }
        let Outbox { guard, links, .. } = &mut self.outbox;
        let counters = &mut links[place.link];
        if is_message(packet) {
            guard.ask(place, packet, counters);
        } else if let Some(found) = guard.recognise(around.roaming(), packet, counters) {
            return Some(Some(found));
        } else if let Some(port) = &mut self.ports[place.link] {
            port.refuse();
        }
        self.umem.release(payload.frame);
        None
    }

    /// Takes over new keys, and where neighbours are that moved.
    #[inline]
    pub(super) fn adopt_keys(&mut self) {
        let has_keys = self.outbox.guard.adopt();
        let near = self.outbox.guard.near(&mut self.state.near_seen);
        let is_moved = near.is_some();
        if let Some(near) = near {
            self.near = near;
        }
        if has_keys || is_moved {
            self.look_out(is_moved);
        }
    }

    /// Tells the sockets where neighbours are, and by which keys those are known that roam.
    #[cold]
    fn look_out(&mut self, is_moved: bool) {
        let guard = &self.outbox.guard;
        for (link, port) in self.ports.iter_mut().enumerate() {
            let Some(port) = port else { continue };
            if is_moved {
                port.place(&self.near, link);
            }
            let Some(lookout) = port.lookout() else { continue };
            let roaming = || self.near.links[link].roaming();
            let keys = roaming().flat_map(|peer| guard.key_ids(peer));
            lookout.watch(roaming().next().is_some(), keys);
        }
    }
}
