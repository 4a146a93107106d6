//! Announcements to neighbours and from them (`talk`).

use super::{Keyer, Party, seconds};
use crate::encap::{ETHERNET_BYTES, header_bytes};
use crate::keyring::Letter;
use crate::opening::source_memory_bytes;
use crate::shared::LinkNow;
use crate::talk::Surroundings;
use crate::topology::HopConfig;
use recoded_pipeline::params::PeerId;
use recoded_secure::{Entropy, HopKeys, TRAILER_BYTES};
use std::cell::RefCell;
use std::net::IpAddr;

impl Keyer {
    /// Sends due announcements to neighbours.
    pub(super) fn talk(&mut self, now: u64) {
        let Keyer { talk, shared, keyring, hops, hop_links, flow_memory_bytes, .. } = self;
        let (snapshot, links) = (shared.snapshot.get(), shared.links.get());
        let room = |peer: PeerId| room(&hop_links[usize::from(peer.0)], &links);
        let memory_bytes = flow_memory_bytes.saturating_sub(source_memory_bytes(&snapshot));
        let (snapshot, clock) = (&snapshot, seconds());
        let around = Surroundings { now, clock, snapshot, room: &room, memory_bytes };
        let next_hops = shared.next_hops.get();
        let hops = RefCell::new(hops);
        let is_reached = |peer: PeerId| {
            let hop = usize::from(peer.0);
            let has_keys = |party: &Party<HopKeys>| party.keys.ring().sending().is_some();
            next_hops.get(hop).is_some_and(Option::is_some)
                && hops.borrow()[hop].as_ref().is_none_or(has_keys)
        };
        let marks = |peer: PeerId| {
            let mut hops = hops.borrow_mut();
            let party = hops[usize::from(peer.0)].as_mut();
            // Without random bytes no keys are agreed on either, which the log reports.
            let marks = party.zip(Entropy::fresh().ok()).map(|(it, random)| it.keys.marks(&random));
            marks.unwrap_or_default()
        };
        talk.poll(&around, is_reached, marks, |peer, packet| {
            let letter = Letter::new(peer, packet);
            if letter.is_some_and(|letter| keyring.outgoing.push(letter).is_ok()) {
                shared.waker(0).wake();
            }
        });
    }

    /// Reads a neighbour's announcement.
    pub(super) fn listen(&mut self, peer: PeerId, letter: &Letter) {
        let Keyer { talk, shared, clock, hop_links, flow_memory_bytes, .. } = self;
        let (snapshot, links) = (shared.snapshot.get(), shared.links.get());
        let room = |peer: PeerId| room(&hop_links[usize::from(peer.0)], &links);
        let memory_bytes = flow_memory_bytes.saturating_sub(source_memory_bytes(&snapshot));
        let (now, clock, snapshot) = (clock.now(), seconds(), &snapshot);
        let around = Surroundings { now, clock, snapshot, room: &room, memory_bytes };
        let marks = talk.receive(&around, peer, letter.packet());
        // With keys, the worker has verified the tag of the hop.
        let party = self.hops[usize::from(peer.0)].as_mut();
        if let Some((party, marks)) = party.zip(marks)
            && let Err(reason) = party.keys.read_marks(now, &marks)
        {
            party.refuse(reason);
            self.look_for_set_back(reason);
        }
    }
}

/// Properties of a hop that determine the room in its packets.
pub(super) struct HopLink {
    /// Index of the link to the neighbour.
    pub(super) link: usize,
    /// Address of the neighbour, whose family determines the size of the headers.
    address: IpAddr,
    /// Whether packets have the tag of a hop.
    has_key: bool,
}

impl HopLink {
    pub(super) fn new(hop: &HopConfig) -> HopLink {
        HopLink { link: hop.link, address: hop.address, has_key: hop.key.is_some() }
    }
}

/// UDP payload that the link to a neighbour carries, without the tag of a hop.
fn room(hop: &HopLink, links: &[LinkNow]) -> u16 {
    let &HopLink { link, address, has_key } = hop;
    let mtu = links.get(link).map_or(0, |link| link.mtu);
    let taken = header_bytes(address) - ETHERNET_BYTES + if has_key { TRAILER_BYTES } else { 0 };
    u16::try_from(mtu.saturating_sub(taken)).unwrap_or(u16::MAX)
}
