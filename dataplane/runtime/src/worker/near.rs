//! Finds the neighbour that sent a packet, and follows the places of neighbours.

use super::Worker;
use crate::guard::{Admitted, count};
use crate::outbox::Outbox;
use crate::port::Port;
use crate::roaming::{AddressOwner, LinkAddress, Lookout, is_message};
use recoded_pipeline::params::{Nanos, PeerId};
use recoded_secure::Refused;
use recoded_wire::frames::{Frames, Span};

impl Worker {
    /// The neighbour that sent a packet, and the part of it for the pipeline, if its tag is valid;
    /// otherwise the packet ends here. Without roaming neighbours, packets of unknown senders end
    /// in the pipeline.
    #[inline]
    pub(super) fn admit(
        &mut self,
        place: LinkAddress,
        payload: Span,
        now: Nanos,
    ) -> Option<(Option<PeerId>, Span)> {
        let LinkAddress { link, address } = place;
        let packet = self.umem.bytes(payload);
        let (peer, admitted) = match self.near.links[link].find(address, packet) {
            Some(AddressOwner { peer, roams: false }) => {
                let Outbox { guard, links, .. } = &mut self.outbox;
                (peer, guard.admit(peer, packet, &mut links[link]))
            }
            Some(AddressOwner { peer, .. }) => self.recognise(place, Some(peer), payload)?,
            None if self.near.links[link].roaming().next().is_none() => {
                return Some((None, payload));
            }
            None => self.recognise(place, None, payload)?,
        };
        if admitted.is_newest {
            let packet = self.umem.bytes(payload);
            if let Some(address) = self.near.moved(peer, address, packet) {
                self.outbox.guard.relocate(peer, LinkAddress { link, address }, now);
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

    /// Which roaming neighbour sent a packet: the one `known` to be at its address, or another one
    /// with a key of its id, since translated addresses are reassigned. `None`: it ends here, and
    /// was counted.
    fn recognise(
        &mut self,
        place: LinkAddress,
        known: Option<PeerId>,
        payload: Span,
    ) -> Option<(PeerId, Admitted)> {
        let packet = self.umem.bytes(payload);
        let Outbox { guard, links, .. } = &mut self.outbox;
        let counters = &mut links[place.link];
        if is_message(packet) {
            guard.ask(place, packet, counters);
            self.umem.release(payload.frame);
            return None;
        }
        let first = guard.recognise(known.into_iter(), packet, counters);
        let mut is_looked_for = || {
            let lookout = self.ports[place.link].as_mut().and_then(Port::lookout);
            known.is_none() || lookout.is_some_and(Lookout::takes_another)
        };
        let found = match first {
            Err(reason) if reason != Refused::Replayed && is_looked_for() => {
                let senders = self.state.senders[place.link].of(packet);
                let others = senders.filter(|peer| Some(*peer) != known);
                let found = guard.recognise(others, packet, counters);
                counters.rx_elsewhere += u64::from(found.is_ok());
                found.map_err(|other| if known.is_some() { reason } else { other })
            }
            first => first,
        };
        let reason = match found {
            Ok(found) => return Some(found),
            Err(reason) => reason,
        };
        match (known, &mut self.ports[place.link]) {
            (Some(_), _) => count(reason, counters),
            (None, Some(port)) => port.refuse(place.address.ip()),
            (None, None) => {}
        }
        self.umem.release(payload.frame);
        None
    }

    /// Adopts new keys, and the places of neighbours that moved.
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

    /// Passes the places of neighbours to the sockets, and the keys that identify roaming ones.
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
            let keys = || roaming().flat_map(|peer| guard.key_ids(peer).map(move |id| (id, peer)));
            lookout.watch(roaming().count(), keys().map(|(id, _)| id));
            self.state.senders[link].fill(keys());
        }
    }
}
