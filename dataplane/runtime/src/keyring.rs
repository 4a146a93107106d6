//! State shared by the key thread and the workers: keys, letters to send, and the sessions that
//! `recodectl` shows.

use crate::roaming::{LinkAddress, Near};
use crate::slot::Slot;
use crate::talk::Talked;
use crossbeam::queue::ArrayQueue;
use recoded_pipeline::params::PeerId;
use recoded_secure::{EdgeKeys, HopKeys, PublicKey, Ring, TagKey};
use recoded_wire::announcement::ANNOUNCEMENT_BYTES_MAX;
use recoded_wire::handshake::MESSAGE_BYTES_MAX;
use recoded_wire::header::HEADER_BYTES;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

/// Letters waiting to be sent.
pub(crate) const OUTGOING: usize = 256;

/// Neighbours whose keys must change; one that finds no room is named again.
const DISTRUSTED: usize = 64;

/// Longest handshake packet or announcement, without a trailer.
pub(crate) const LETTER_BYTES: usize = HEADER_BYTES + MESSAGE_BYTES_MAX;
const _: () = assert!(LETTER_BYTES >= ANNOUNCEMENT_BYTES_MAX);

/// Valid keys, by neighbour and by flow.
#[derive(Clone, Default)]
pub(crate) struct Rings {
    /// By `PeerId`; `None` if the configuration has no key for it.
    pub(crate) hops: Vec<Option<Ring<Arc<HopKeys>>>>,
    /// For sealed flows that begin or end here, by flow number.
    pub(crate) edges: Vec<(u32, Ring<Arc<EdgeKeys>>)>,
    /// For flows that relays verify, by flow number: the keys that tag symbols. For others these
    /// are the sending keys.
    pub(crate) tagging: Vec<(u32, u8)>,
    /// For flows relayed here, by flow number: keys that verify their symbols.
    pub(crate) columns: Vec<(u32, Vec<Arc<TagKey>>)>,
    /// Flows whose first session since this node's start is so young that symbols of the previous
    /// session still arrive. No key here verifies those, and no relay is at fault.
    pub(crate) fresh: Vec<u32>,
}

impl Rings {
    /// Index of the keys of a flow.
    #[inline]
    pub(crate) fn edge(&self, flow: u32) -> Option<usize> {
        self.edges.binary_search_by_key(&flow, |(id, _)| *id).ok()
    }

    /// The key that tags symbols of a flow.
    #[inline]
    pub(crate) fn tagging(&self, flow: u32) -> Option<u8> {
        let (_, ring) = &self.edges[self.edge(flow)?];
        match self.tagging.binary_search_by_key(&flow, |(id, _)| *id) {
            Ok(place) => Some(self.tagging[place].1).filter(|key_id| ring.holds(*key_id)),
            Err(_) => ring.sending().map(|epoch| epoch.key_id),
        }
    }

    /// Keys that a relay verifies symbols of a flow by.
    #[inline]
    pub(crate) fn columns(&self, flow: u32) -> Option<&[Arc<TagKey>]> {
        let place = self.columns.binary_search_by_key(&flow, |(id, _)| *id).ok()?;
        Some(&self.columns[place].1)
    }
}

/// A handshake packet or an announcement, received from a neighbour or for it. An empty one reports
/// the neighbour's place.
#[derive(Clone, Debug)]
pub(crate) struct Letter {
    /// `None` if the sender is not identified yet.
    pub(crate) peer: Option<PeerId>,
    /// Source or destination, if it differs from the neighbour's known place.
    pub(crate) place: Option<LinkAddress>,
    len: usize,
    bytes: [u8; LETTER_BYTES],
}

impl Letter {
    /// `None` if it exceeds the longest packet.
    pub(crate) fn new(peer: PeerId, packet: &[u8]) -> Option<Letter> {
        Letter::write(Some(peer), None, packet)
    }

    /// A packet from an unknown address, or a reply to it. `None` if it exceeds the longest packet.
    pub(crate) fn from_elsewhere(place: LinkAddress, packet: &[u8]) -> Option<Letter> {
        Letter::write(None, Some(place), packet)
    }

    /// The newest packet of a neighbour came from this place.
    pub(crate) fn moved(peer: PeerId, place: LinkAddress) -> Letter {
        Letter { peer: Some(peer), place: Some(place), len: 0, bytes: [0; LETTER_BYTES] }
    }

    fn write(peer: Option<PeerId>, place: Option<LinkAddress>, packet: &[u8]) -> Option<Letter> {
        let mut bytes = [0; LETTER_BYTES];
        bytes.get_mut(..packet.len())?.copy_from_slice(packet);
        Some(Letter { peer, place, len: packet.len(), bytes })
    }

    /// The same for another neighbour.
    pub(crate) fn to(&self, peer: PeerId) -> Letter {
        Letter { peer: Some(peer), place: None, ..self.clone() }
    }

    pub(crate) fn packet(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    pub(crate) fn packet_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len]
    }
}

/// A session with a neighbour or with the other end of a flow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionReport {
    /// The peer's public key, in WireGuard's format.
    pub key: String,
    /// Nanoseconds since agreement on the active keys; `None` if there are none.
    pub age_nanos: Option<u64>,
    /// Completed handshakes.
    pub handshakes: u64,
    /// Refused messages: wrong MAC, invalid content, too old.
    pub refused: u64,
    /// Reason of the last refusal; empty if there was none.
    pub refusal: String,
    /// Whether keys come from a pre-shared key, without a reply.
    pub one_way: bool,
}

/// Sessions of a node.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Sessions {
    /// By `PeerId`; `None` if the configuration has no key for it.
    pub hops: Vec<Option<SessionReport>>,
    /// For sealed flows that begin or end here.
    pub edges: Vec<(u32, SessionReport)>,
    /// For relayed flows whose source grants this node columns of tags: the source's key, the age
    /// of the columns in use, the number of changes.
    pub columns: Vec<(u32, SessionReport)>,
}

/// Shared by the thread of keys and the workers.
pub(crate) struct Keyring {
    pub(crate) rings: Slot<Rings>,
    pub(crate) outgoing: ArrayQueue<Letter>,
    /// Neighbours that sent too many symbols with wrong tags.
    pub(crate) distrusted: ArrayQueue<PeerId>,
    /// Whether a worker renumbers the units of its sources, so that the edge keys must change.
    /// Relaxed: it guards no other memory.
    pub(crate) has_new_numbers: AtomicBool,
    /// The places of neighbours.
    pub(crate) near: Slot<Near>,
    /// Sinks of flows with several, by flow number, if they change.
    pub(crate) sinks: Slot<Vec<(u32, Vec<PublicKey>)>>,
    sessions: Mutex<Sessions>,
    talked: Mutex<Vec<Talked>>,
}

impl Keyring {
    pub(crate) fn new(rings: Rings) -> Keyring {
        let outgoing = ArrayQueue::new(OUTGOING);
        Keyring {
            rings: Slot::new(rings),
            outgoing,
            distrusted: ArrayQueue::new(DISTRUSTED),
            has_new_numbers: AtomicBool::new(false),
            near: Slot::new(Near::default()),
            sinks: Slot::new(Vec::new()),
            sessions: Mutex::default(),
            talked: Mutex::default(),
        }
    }

    pub(crate) fn sessions(&self) -> Sessions {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn store_sessions(&self, sessions: Sessions) {
        *self.sessions.lock().unwrap_or_else(PoisonError::into_inner) = sessions;
    }

    /// Announcements of neighbours, by `PeerId`; empty before the key thread first looked.
    pub(crate) fn talked(&self) -> Vec<Talked> {
        self.talked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn store_talked(&self, talked: Vec<Talked>) {
        *self.talked.lock().unwrap_or_else(PoisonError::into_inner) = talked;
    }
}
