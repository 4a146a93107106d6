//! What the thread of keys and the workers share: keys, letters to send, and what `recodectl`
//! shows of sessions.

use crate::roaming::{Near, Place};
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

/// Letters that wait to be sent.
const OUTGOING: usize = 256;

/// Neighbours whose keys are to be changed; one that finds no room is named again.
const DISTRUSTED: usize = 64;

/// Longest packet of a handshake, or announcement, without a trailer.
pub(crate) const LETTER_BYTES: usize = HEADER_BYTES + MESSAGE_BYTES_MAX;
const _: () = assert!(LETTER_BYTES >= ANNOUNCEMENT_BYTES_MAX);

/// Valid keys, by neighbour and by flow.
#[derive(Clone, Default)]
pub(crate) struct Rings {
    /// By `PeerId`; `None` where the configuration has no key of it.
    pub(crate) hops: Vec<Option<Ring<Arc<HopKeys>>>>,
    /// Of sealed flows that begin or end here, by the number of the flow.
    pub(crate) edges: Vec<(u32, Ring<Arc<EdgeKeys>>)>,
    /// Of those that relays verify, by number: the keys that symbols are tagged with. Of others
    /// they are those that are sent with.
    pub(crate) tagging: Vec<(u32, u8)>,
    /// Of flows that this node relays, by number: what it verifies their symbols by.
    pub(crate) columns: Vec<(u32, Vec<Arc<TagKey>>)>,
    /// Flows whose first session since this node started is so young that symbols of the session
    /// before still come. None of the keys here verifies those, and no relay lied.
    pub(crate) fresh: Vec<u32>,
}

impl Rings {
    /// Where the keys of a flow are.
    #[inline]
    pub(crate) fn edge(&self, flow: u32) -> Option<usize> {
        self.edges.binary_search_by_key(&flow, |(id, _)| *id).ok()
    }

    /// The keys that symbols of a flow are tagged with.
    #[inline]
    pub(crate) fn tagging(&self, flow: u32) -> Option<u8> {
        let (_, ring) = &self.edges[self.edge(flow)?];
        match self.tagging.binary_search_by_key(&flow, |(id, _)| *id) {
            Ok(place) => Some(self.tagging[place].1).filter(|key_id| ring.holds(*key_id)),
            Err(_) => ring.sending().map(|epoch| epoch.key_id),
        }
    }

    /// What a relay verifies symbols of a flow by.
    #[inline]
    pub(crate) fn columns(&self, flow: u32) -> Option<&[Arc<TagKey>]> {
        let place = self.columns.binary_search_by_key(&flow, |(id, _)| *id).ok()?;
        Some(&self.columns[place].1)
    }
}

/// A packet of a handshake, or an announcement, received from or to be sent to a neighbour. One
/// without a byte says where the neighbour is.
#[derive(Clone, Debug)]
pub(crate) struct Letter {
    /// `None`: who it is of is to be found out.
    pub(crate) peer: Option<PeerId>,
    /// Where it came from, or is to be sent, where that is not where the neighbour is known to be.
    pub(crate) place: Option<Place>,
    len: usize,
    bytes: [u8; LETTER_BYTES],
}

impl Letter {
    /// `None` when it is longer than any.
    pub(crate) fn new(peer: PeerId, packet: &[u8]) -> Option<Letter> {
        Letter::write(Some(peer), None, packet)
    }

    /// Of an address that is no neighbour's, or an answer to it. `None` when it is longer than any.
    pub(crate) fn from_elsewhere(place: Place, packet: &[u8]) -> Option<Letter> {
        Letter::write(None, Some(place), packet)
    }

    /// The newest packet of a neighbour came from there.
    pub(crate) fn moved(peer: PeerId, place: Place) -> Letter {
        Letter { peer: Some(peer), place: Some(place), len: 0, bytes: [0; LETTER_BYTES] }
    }

    fn write(peer: Option<PeerId>, place: Option<Place>, packet: &[u8]) -> Option<Letter> {
        let mut bytes = [0; LETTER_BYTES];
        bytes.get_mut(..packet.len())?.copy_from_slice(packet);
        Some(Letter { peer, place, len: packet.len(), bytes })
    }

    /// The same to another neighbour.
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
    /// The public key of the other one, as WireGuard writes it.
    pub key: String,
    /// Nanoseconds since the keys in use were agreed on; `None` while there are none.
    pub age_nanos: Option<u64>,
    /// Handshakes that were finished.
    pub handshakes: u64,
    /// Messages that were refused: by their MAC, their content, their age.
    pub refused: u64,
    /// Why the last one was refused; empty when none was.
    pub refusal: String,
    /// Whether keys come of a pre-shared key, without an answer.
    pub one_way: bool,
}

/// Sessions of a node.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Sessions {
    /// By `PeerId`; `None` where the configuration has no key of it.
    pub hops: Vec<Option<SessionReport>>,
    /// Of sealed flows that begin or end here.
    pub edges: Vec<(u32, SessionReport)>,
    /// Of flows that this node relays and whose source grants it columns of tags: the source's key,
    /// how old those are that it goes by, how often they changed.
    pub columns: Vec<(u32, SessionReport)>,
}

/// Shared by the thread of keys and the workers.
pub(crate) struct Keyring {
    pub(crate) rings: Slot<Rings>,
    pub(crate) outgoing: ArrayQueue<Letter>,
    /// Those that sent too many symbols with wrong tags.
    pub(crate) distrusted: ArrayQueue<PeerId>,
    /// Whether a worker numbers the units of its sources anew, so that those of edges are to be
    /// other keys. Relaxed: it guards no other memory.
    pub(crate) has_new_numbers: AtomicBool,
    /// Where neighbours are.
    pub(crate) near: Slot<Near>,
    /// Sinks of flows that have several, by the number of the flow, where they change.
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

    /// What neighbours said, by `PeerId`; empty before the thread of keys first looked.
    pub(crate) fn talked(&self) -> Vec<Talked> {
        self.talked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn store_talked(&self, talked: Vec<Talked>) {
        *self.talked.lock().unwrap_or_else(PoisonError::into_inner) = talked;
    }
}
