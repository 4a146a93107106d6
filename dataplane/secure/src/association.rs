//! Agreements between two nodes: their handshakes, and the resulting epochs of keys.
//!
//! ```text
//!  poll, receive --> Session --> Ring<Arc<Keys>> --> a copy for each worker
//!       ^                              |
//!       '---- keys say that a packet of the peer was verified
//! ```
//!
//! The initiator of a handshake sends *hello* until the peer uses the new keys: an empty packet
//! under them, which shows the peer that its response arrived. Traffic does the same.

use std::sync::Arc;

use crate::derive::Secrets;
use crate::error::Refused;
use crate::handshake::timing::{EPOCH_NANOS_MAX, RETRY_ROUND};
use crate::handshake::{
    Admission, Arrived, Established, Gate, Identity, MARKS_BYTES, Session, Step,
};
use crate::keys::Entropy;
use crate::profile::Profile;
use crate::ring::{Epoch, Ring};
use crate::silence::{Counters, Finding, Silence};

/// First pause between two hellos; doubled with each.
const HELLO_NANOS: u64 = 100_000_000;

/// Hellos for an epoch: the last one is sent 50 seconds after the first one.
const HELLOS: u32 = 10;

/// The keys of an epoch as workers use them.
pub trait EpochKeys {
    /// Derives them from a finished handshake.
    fn new(established: &Established) -> Self;

    /// Keys of one direction, for sending.
    fn to_send(secrets: &Secrets, key_id: u8, profile: Profile) -> Self;

    /// Keys of one direction, for receiving.
    fn to_receive(secrets: &Secrets, key_id: u8, profile: Profile) -> Self;

    /// Whether a packet of the peer has been verified under them.
    fn is_confirmed(&self) -> bool;

    /// Number of packets sent under them.
    fn packets(&self) -> u64;

    /// A number that changes when packets of the peer are verified under them; `None` if the peer
    /// need not send any.
    fn heard(&self) -> Option<u64>;
}

/// Requests of an [`Association`] to its caller.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct Turn {
    /// Bytes of the buffer to send to the peer as a handshake message; 0 for nothing.
    pub send: usize,
    /// Send the peer an empty packet under the current sending keys.
    pub hello: bool,
    /// Workers need a new copy of [`Association::ring`].
    pub is_changed: bool,
    /// The peer does not answer, although it should have: its address may have changed.
    pub is_silent: bool,
    /// Why a message that is answered was refused.
    pub refusal: Option<Refused>,
}

/// The handshakes with a peer and their keys.
pub struct Association<Keys> {
    session: Session,
    ring: Ring<Arc<Keys>>,
    hello: Option<Hello>,
    agreed: u64,
    silence: Silence,
}

/// Hellos of an epoch that this side began.
struct Hello {
    key_id: u8,
    next: u64,
    said: u32,
}

impl<Keys: EpochKeys> Association<Keys> {
    /// Like [`Session::new`].
    #[must_use]
    pub fn new(
        identity: Identity,
        profile: impl Into<Profile>,
        now: u64,
        entropy: &Entropy,
    ) -> Self {
        let session = Session::new(identity, profile, now, entropy);
        let silence = Silence::default();
        Self { session, ring: Ring::default(), hello: None, agreed: 0, silence }
    }

    /// Like [`Session::over`].
    #[must_use]
    pub fn over(self, path: u8) -> Self {
        Self { session: self.session.over(path), ..self }
    }

    /// Like [`Session::path`].
    #[must_use]
    pub const fn path(&self) -> u8 {
        self.session.path()
    }

    /// The epochs that are valid.
    #[must_use]
    pub const fn ring(&self) -> &Ring<Arc<Keys>> {
        &self.ring
    }

    /// Handshakes that were finished.
    #[must_use]
    pub const fn agreed(&self) -> u64 {
        self.agreed
    }

    /// Performs due work; `stamp` and `out` as in [`Session::poll`].
    ///
    /// # Errors
    /// The buffer is too short.
    pub fn poll(
        &mut self,
        now: u64,
        stamp: u64,
        entropy: &Entropy,
        out: &mut [u8],
    ) -> Result<Turn, Refused> {
        let mut is_changed = self.ring.expire(now, EPOCH_NANOS_MAX);
        let confirmed = self.ring.waiting().filter(|epoch| epoch.keys.is_confirmed());
        if let Some(key_id) = confirmed.map(|epoch| epoch.key_id) {
            is_changed |= self.ring.confirm(key_id);
            self.session.confirm(now, key_id);
        }
        let packets = self.ring.sending().map_or(0, |epoch| epoch.keys.packets());
        let Finding { is_silent, says_hello } = self.look(now, packets);
        if is_silent {
            self.session.renew(now);
        }
        let Step { send, .. } = self.session.poll(now, stamp, packets, entropy, out)?;
        let is_silent = is_silent || send > 0 && self.session.retries() > RETRY_ROUND;
        let hello = self.says_hello(now) || says_hello && self.ring.sending().is_some();
        Ok(Turn { send, hello, is_changed, is_silent, refusal: None })
    }

    /// Evaluates the counters of all keys.
    fn look(&mut self, now: u64, sent: u64) -> Finding {
        let heard = self.ring.epochs().filter_map(|epoch| epoch.keys.heard());
        let Some(heard) = heard.reduce(u64::wrapping_add) else { return Finding::default() };
        self.silence.look(Counters { now, sent, heard }, self.session.round_trip())
    }

    /// Reads a message, like [`Session::receive`].
    ///
    /// # Errors
    /// As for [`Session::receive`].
    pub fn receive(
        &mut self,
        now: u64,
        entropy: &Entropy,
        message: &[u8],
        out: &mut [u8],
    ) -> Result<Turn, Refused> {
        let step = self.session.receive(now, entropy, message, out)?;
        let Step { send, established, refusal } = step;
        let Some(established) = established else {
            return Ok(Turn { send, refusal, ..Turn::default() });
        };
        self.agreed += 1;
        let key_id = established.key_id;
        let epoch = Epoch { key_id, since: now, keys: Arc::new(Keys::new(&established)) };
        if established.is_confirmed {
            self.ring.install(epoch);
            self.hello = Some(Hello { key_id, next: now, said: 0 });
        } else {
            self.ring.propose(epoch);
        }
        let hello = self.says_hello(now);
        Ok(Turn { send, hello, is_changed: true, refusal, ..Turn::default() })
    }

    /// Like [`Session::is_from_peer`].
    #[must_use]
    pub fn is_from_peer(&self, message: &[u8]) -> bool {
        self.session.is_from_peer(message)
    }

    /// Like [`Session::admit`].
    ///
    /// # Errors
    /// As for [`Session::admit`].
    pub fn admit(
        &mut self,
        gate: &mut Gate,
        now: u64,
        entropy: &Entropy,
        arrived: Arrived<'_>,
        out: &mut [u8],
    ) -> Result<Admission, Refused> {
        self.session.admit(gate, now, entropy, arrived, out)
    }

    /// Like [`Session::peer_stamp`].
    #[must_use]
    pub fn peer_stamp(&self) -> u64 {
        self.session.peer_stamp()
    }

    /// Like [`Session::marks`].
    pub fn marks(&mut self, entropy: &Entropy) -> [u8; MARKS_BYTES] {
        self.session.marks(entropy)
    }

    /// Like [`Session::read_marks`].
    ///
    /// # Errors
    /// As for [`Session::read_marks`].
    pub fn read_marks(&mut self, now: u64, marks: &[u8; MARKS_BYTES]) -> Result<(), Refused> {
        self.session.read_marks(now, marks)
    }

    /// Agrees on other keys with the next [`Association::poll`].
    pub fn renew(&mut self, now: u64) {
        self.session.renew(now);
    }

    /// When [`Association::poll`] has work, unless an event comes first.
    #[must_use]
    pub fn wake(&self) -> u64 {
        let hello = self.hello.as_ref().map_or(u64::MAX, |hello| hello.next);
        self.session.wake().min(hello)
    }

    fn says_hello(&mut self, now: u64) -> bool {
        let Some(hello) = &mut self.hello else { return false };
        let sending = self.ring.sending().filter(|epoch| epoch.key_id == hello.key_id);
        if sending.is_none_or(|epoch| epoch.keys.is_confirmed()) || hello.said == HELLOS {
            self.hello = None;
            return false;
        }
        if now < hello.next {
            return false;
        }
        hello.next = now.saturating_add(HELLO_NANOS << hello.said);
        hello.said += 1;
        true
    }
}
