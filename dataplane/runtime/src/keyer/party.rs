//! Keys shared with another node, and reports about them.

use super::recorded::Recorded;
use crate::keyring::SessionReport;
use crate::memory::Memory;
use crate::topology::PeerKey;
use recoded_secure::{
    Admission, Arrived, Association, Entropy, EpochKeys, Gate, Identity, KeyDirection, MARKS_BYTES,
    OneWayKeys, PrivateKey, Profile, Refused, Ring, Scope, Strength, Suite, Tries, Turn, is_cookie,
    is_opening,
};
use std::sync::Arc;

/// How long symbols of the previous session arrive after the sink restarted and has a new one:
/// streams keep symbols for four seconds and retransmit them.
const FRESH_NANOS: u64 = 5_000_000_000;

/// The other side.
pub(super) struct Party<Keys> {
    pub(super) key: String,
    /// The path to it, if there are several.
    pub(super) path: u8,
    pub(super) keys: Source<Keys>,
    /// Failed attempts to read messages, by the neighbour that brought them.
    tries: Tries,
    recorded: Recorded,
    refused: u64,
    refusal: Option<Refused>,
}

/// The source of keys.
pub(super) enum Source<Keys> {
    /// Handshakes.
    Agreed(Box<Association<Keys>>),
    /// Openings, which have no answer.
    OneWay(Box<OneWayKeys<Keys>>),
}

/// The time of a poll, and the state it needs.
pub(super) struct Moment<'a> {
    pub(super) now: u64,
    /// Increases from start to start.
    pub(super) stamp: u64,
    pub(super) memory: &'a mut Memory,
}

impl<Keys: EpochKeys> Source<Keys> {
    pub(super) fn ring(&self) -> &Ring<Arc<Keys>> {
        match self {
            Source::Agreed(association) => association.ring(),
            Source::OneWay(keys) => keys.ring(),
        }
    }

    /// Does the work that is due. This node makes the openings where it `sends` on the path.
    pub(super) fn poll(
        &mut self,
        Moment { now, stamp, memory }: Moment<'_>,
        sends: bool,
        out: &mut [u8],
    ) -> Result<Result<Turn, Refused>, getrandom::Error> {
        let entropy = Entropy::fresh()?;
        Ok(match self {
            Source::Agreed(association) => association.poll(now, stamp, &entropy, out),
            Source::OneWay(keys) if sends => {
                keys.poll(now, stamp, &entropy, out, &mut |way, newest| memory.keep(way, newest))
            }
            Source::OneWay(keys) => Ok(Turn { is_changed: keys.expire(now), ..Turn::default() }),
        })
    }

    /// Reads a message, as [`Association::receive`] or [`OneWayKeys::receive`].
    pub(super) fn receive(
        &mut self,
        now: u64,
        message: &[u8],
        out: &mut [u8],
        memory: &mut Memory,
    ) -> Result<Result<Turn, Refused>, getrandom::Error> {
        Ok(match self {
            Source::Agreed(association) => {
                association.receive(now, &Entropy::fresh()?, message, out)
            }
            Source::OneWay(keys) => {
                let told = keys.receive(now, message, &mut |way, newest| memory.keep(way, newest));
                told.map(|is_changed| Turn { is_changed, ..Turn::default() })
            }
        })
    }

    /// Whether a message may be read, as [`Association::admit`]. An opening costs a hash, so it
    /// needs no gate, and its sender could not answer a cookie.
    pub(super) fn admit(
        &mut self,
        gate: &mut Gate,
        now: u64,
        entropy: &Entropy,
        arrived: Arrived<'_>,
        out: &mut [u8],
    ) -> Result<Admission, Refused> {
        match self {
            Source::Agreed(association) => association.admit(gate, now, entropy, arrived, out),
            Source::OneWay(_) if is_opening(arrived.message) => Ok(Admission::Pass),
            Source::OneWay(_) => Err(Refused::Unexpected),
        }
    }

    /// Whether the other side formed a message, as [`Association::is_from_peer`]. Openings show it
    /// when they are read.
    pub(super) fn is_from_peer(&self, message: &[u8]) -> bool {
        match self {
            Source::Agreed(association) => association.is_from_peer(message),
            Source::OneWay(_) => is_opening(message),
        }
    }

    /// The newest stamp of the other side's handshakes, as [`Association::peer_stamp`].
    pub(super) fn peer_stamp(&self) -> u64 {
        match self {
            Source::Agreed(association) => association.peer_stamp(),
            Source::OneWay(_) => 0,
        }
    }

    /// Marks for an announcement, as [`Association::marks`]; zeros where the keys have one way.
    pub(super) fn marks(&mut self, entropy: &Entropy) -> [u8; MARKS_BYTES] {
        match self {
            Source::Agreed(association) => association.marks(entropy),
            Source::OneWay(_) => [0; MARKS_BYTES],
        }
    }

    /// Reads those of the other side, as [`Association::read_marks`].
    pub(super) fn read_marks(
        &mut self,
        now: u64,
        marks: &[u8; MARKS_BYTES],
    ) -> Result<(), Refused> {
        match self {
            Source::Agreed(association) => association.read_marks(now, marks),
            Source::OneWay(_) => Ok(()),
        }
    }

    pub(super) fn renew(&mut self, now: u64) {
        match self {
            Source::Agreed(association) => association.renew(now),
            Source::OneWay(keys) => keys.renew(now),
        }
    }

    pub(super) fn wake(&self) -> u64 {
        match self {
            Source::Agreed(association) => association.wake(),
            Source::OneWay(keys) => keys.wake(),
        }
    }

    pub(super) fn is_one_way(&self) -> bool {
        matches!(self, Source::OneWay(_))
    }
}

impl<Keys: EpochKeys> Party<Keys> {
    pub(super) fn new(
        scope: Scope,
        strength: Strength,
        private: &PrivateKey,
        key: &PeerKey,
        now: u64,
        memory: &Memory,
    ) -> Result<Self, getrandom::Error> {
        let PeerKey { public, psk, one_way } = key.clone();
        let profile = Profile { suite: Suite::preferred(), strength };
        let entropy = Entropy::fresh()?;
        let keys = if one_way {
            let there = KeyDirection { scope, sender: private.public(), receiver: public };
            let back = KeyDirection { sender: public, receiver: there.sender, ..there };
            // Units begun under keys of an edge are finished under them.
            let keeps = matches!(scope, Scope::Edge(_));
            let newest = memory.recall(&there);
            let keys = OneWayKeys::new();
            let keys = keys.sending(&psk, there, profile, keeps, newest, &entropy);
            let keys = keys.receiving(&psk, back, memory.recall(&back));
            Source::OneWay(Box::new(keys.requiring(strength)))
        } else {
            let identity = Identity { scope, private: private.clone(), peer: public, psk };
            Source::Agreed(Box::new(Association::new(identity, profile, now, &entropy)))
        };
        let (tries, recorded) = (Tries::default(), Recorded::default());
        let key = public.to_string();
        Ok(Party { key, path: 0, keys, tries, recorded, refused: 0, refusal: None })
    }

    /// The same over this path. One-way keys are for one path.
    pub(super) fn over(self, path: u8) -> Self {
        let keys = match self.keys {
            Source::Agreed(association) => Source::Agreed(Box::new(association.over(path))),
            keys @ Source::OneWay(_) => keys,
        };
        Party { path, keys, ..self }
    }

    /// Whether the first session since this node started is young.
    pub(super) fn is_fresh(&self, now: u64) -> bool {
        let oldest = self.keys.ring().epochs().map(|epoch| epoch.since).min();
        oldest.is_some_and(|since| now.saturating_sub(since) < FRESH_NANOS)
    }

    /// Whether a message of the other edge, which a neighbour brought, may be read. Forged ones and
    /// those that were read before take hashes only, and nothing of the neighbour's budget.
    //= docs/protocol §3.2(a)
    pub(super) fn admit_edge(
        &mut self,
        now: u64,
        from: u16,
        message: &[u8],
    ) -> Result<(), Refused> {
        // An edge has no gate, so no edge sends cookies.
        if is_cookie(message) {
            return Err(Refused::Unexpected);
        }
        if !self.keys.is_from_peer(message) {
            return Err(Refused::Tag);
        }
        // An opening costs a hash.
        if self.keys.is_one_way() {
            return Ok(());
        }
        if self.recorded.knows(message) {
            return Err(Refused::Replayed);
        }
        if self.tries.are_left(now, from) { Ok(()) } else { Err(Refused::TooMany) }
    }

    /// Notes that a message of the other edge was read, or why it was refused.
    pub(super) fn note_read(&mut self, from: u16, message: &[u8], refusal: Option<&Refused>) {
        // These cost no multiplication, as most copies.
        let is_cheap =
            matches!(refusal, Some(Refused::TooSoon | Refused::Unexpected | Refused::Malformed));
        if is_cheap || self.keys.is_one_way() {
            return;
        }
        self.recorded.note(message);
        if refusal.is_some() {
            self.tries.spend(from);
        }
    }

    pub(super) fn refuse(&mut self, reason: Refused) {
        // Duplicates: each message is sent several times.
        if matches!(reason, Refused::TooSoon | Refused::Unexpected | Refused::Replayed) {
            return;
        }
        self.refused += 1;
        self.refusal = Some(reason);
    }

    /// `hears`: whether packets from the other side are expected. Without a return path, the age of
    /// keys that this node made itself says nothing about the peer.
    pub(super) fn report(&self, now: u64, hears: bool) -> SessionReport {
        let Party { key, keys, refused, refusal, .. } = self;
        let sending = keys.ring().sending().map(|epoch| epoch.since);
        let (since, handshakes) = match keys {
            Source::Agreed(association) => (sending, association.agreed()),
            Source::OneWay(keys) if hears => (keys.heard(now), keys.epochs().1),
            Source::OneWay(keys) => (sending, keys.epochs().0),
        };
        SessionReport {
            key: key.clone(),
            age_nanos: since.map(|since| now.saturating_sub(since)),
            handshakes,
            refused: *refused,
            refusal: refusal.map(|reason| reason.to_string()).unwrap_or_default(),
            one_way: keys.is_one_way(),
        }
    }
}
