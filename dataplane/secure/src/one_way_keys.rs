//! The epochs of keys without a return path: those that one side begins and announces, and those
//! that the peer announces.
//!
//! ```text
//!  sender     opening of B, every 100 ms, for 1 s -> B is sent with, its opening every 500 ms
//!             |<-------------------- 10 s: then C --------------------------------------->|
//!  receiver   opening of B: newer than all that it remembers? -> remembers it -> B is valid
//! ```
//!
//! There is no return path, so nothing is confirmed: a new epoch is announced ten times before it
//! is used, and repeatedly while it is in use. A receiver that restarts refuses the epoch that it
//! remembers, since its record of accepted packets is lost; it can read again from the next one,
//! after 10 s at most. Keys live for that long, which is also how late packets may be: two previous
//! epochs stay valid.
//!
//! Either side of a hop may send: each direction has epochs of its own, and a side that receives
//! nothing sends nevertheless.

use std::sync::Arc;

use crate::REKEY_PACKETS;
use crate::association::{EpochKeys, Turn};
use crate::error::Refused;
use crate::handshake::timing::EPOCH_NANOS_MAX;
use crate::homomorphic::Strength;
use crate::keys::{Entropy, PresharedKey};
use crate::one_way::{KeyDirection, OPENING_BYTES, OneWayReceiver, OneWaySender, Remembered};
use crate::profile::Profile;
use crate::ring::{Epoch, Ring};

const MILLI: u64 = 1_000_000;

/// How long an epoch is used for sending.
pub const ONE_WAY_EPOCH_NANOS: u64 = 10_000 * MILLI;

/// How long it is announced before use: all ten openings must be lost for a receiver to miss it.
const HOLD_NANOS: u64 = 1000 * MILLI;

/// The same if there is no other epoch to send with.
const FIRST_HOLD_NANOS: u64 = 30 * MILLI;

/// Interval of openings of an epoch before its use.
const HELD_PERIOD_NANOS: u64 = 100 * MILLI;

/// The same for a first one.
const FIRST_PERIOD_NANOS: u64 = 10 * MILLI;

/// Interval of openings of the epoch in use: how long a receiver that starts later, or missed all,
/// cannot read.
const PERIOD_NANOS: u64 = 500 * MILLI;

/// Stores the state of a way that must survive a restart of this node. Returns whether it could.
pub type Keep<'a> = &'a mut dyn FnMut(&KeyDirection, Remembered) -> bool;

/// The keys of a peer that gives no answer.
pub struct OneWayKeys<Keys> {
    sending: Option<Sending<Keys>>,
    receiver: Option<OneWayReceiver>,
    ring: Ring<Arc<Keys>>,
    /// Epochs begun here, and announced by the peer.
    begun: u64,
    told: u64,
    /// When the newest one of the peer arrived.
    heard: Option<u64>,
}

/// The direction to the peer.
struct Sending<Keys> {
    psk: PresharedKey,
    /// Whether each epoch has its own secret, which the caller announces.
    draws: bool,
    way: KeyDirection,
    profile: Profile,
    /// Whether work begun under an epoch is finished under it: units are.
    keeps: bool,
    number: u8,
    stamp: u64,
    opening: [u8; OPENING_BYTES],
    /// The epoch announced and not yet used, and when its use begins.
    coming: Option<(Epoch<Arc<Keys>>, u64)>,
    next_opening: u64,
    next_epoch: u64,
}

impl<Keys: EpochKeys> OneWayKeys<Keys> {
    /// Nothing in either direction.
    #[must_use]
    pub fn new() -> Self {
        let ring = Ring::default();
        Self { sending: None, receiver: None, ring, begun: 0, told: 0, heard: None }
    }

    /// Sends on a way, with epochs newer than the one that an earlier start stored. With `keeps`,
    /// epochs stay valid for work begun under them.
    #[must_use]
    pub fn sending(
        self,
        psk: &PresharedKey,
        way: KeyDirection,
        profile: impl Into<Profile>,
        keeps: bool,
        newest: Option<Remembered>,
        entropy: &Entropy,
    ) -> Self {
        let sending = Sending {
            psk: psk.clone(),
            draws: false,
            way,
            profile: profile.into(),
            keeps,
            number: entropy.extra::<1>(0)[0],
            stamp: newest.map_or(0, |newest| newest.stamp),
            opening: [0; OPENING_BYTES],
            coming: None,
            next_opening: 0,
            next_epoch: 0,
        };
        Self { sending: Some(sending), ..self }
    }

    /// Sends on a way under a secret for each epoch, [`OneWayKeys::drawn`], instead of a pre-shared
    /// key; epochs stay valid for work begun under them.
    pub(crate) fn drawing(
        self,
        way: KeyDirection,
        profile: Profile,
        newest: Option<Remembered>,
        entropy: &Entropy,
    ) -> Self {
        let nothing = PresharedKey::none();
        let mut keys = self.sending(&nothing, way, profile, true, newest, entropy);
        if let Some(sending) = &mut keys.sending {
            sending.draws = true;
        }
        keys
    }

    /// The secret of the announced epoch.
    pub(crate) fn drawn(&self) -> Option<&PresharedKey> {
        self.sending.as_ref().map(|sending| &sending.psk).filter(|_| self.begun > 0)
    }

    /// Discards the announced and unused epoch, and begins another one.
    pub(crate) fn begin_anew(&mut self, now: u64) {
        if let Some(sending) = &mut self.sending {
            sending.coming = None;
            sending.next_epoch = now;
        }
    }

    /// Receives on a way, continuing from the state of an earlier start; see
    /// [`OneWayReceiver::new`].
    #[must_use]
    pub fn receiving(
        self,
        psk: &PresharedKey,
        way: KeyDirection,
        newest: Option<Remembered>,
    ) -> Self {
        Self { receiver: Some(OneWayReceiver::new(psk.clone(), way, newest)), ..self }
    }

    /// Accepts only epochs of the peer with tags of this strength; see
    /// [`OneWayReceiver::requiring`].
    #[must_use]
    pub fn requiring(self, strength: Strength) -> Self {
        Self { receiver: self.receiver.map(|receiver| receiver.requiring(strength)), ..self }
    }

    /// The valid epochs, of both directions.
    #[must_use]
    pub const fn ring(&self) -> &Ring<Arc<Keys>> {
        &self.ring
    }

    /// Epochs begun here, and announced by the peer.
    #[must_use]
    pub const fn epochs(&self) -> (u64, u64) {
        (self.begun, self.told)
    }

    /// When the newest epoch of the peer arrived, while it is valid.
    #[must_use]
    pub fn heard(&self, now: u64) -> Option<u64> {
        self.heard.filter(|heard| now.saturating_sub(*heard) < EPOCH_NANOS_MAX)
    }

    /// Forgets expired epochs, for a side that sends nothing. Returns whether there were any.
    pub fn expire(&mut self, now: u64) -> bool {
        self.ring.expire(now, EPOCH_NANOS_MAX)
    }

    /// Performs due work. `stamp` is the wall clock in nanoseconds, or another number that grows
    /// from start to start of this node; `out` has room for [`OPENING_BYTES`].
    ///
    /// # Errors
    /// The buffer is too short.
    pub fn poll(
        &mut self,
        now: u64,
        stamp: u64,
        entropy: &Entropy,
        out: &mut [u8],
        keep: Keep<'_>,
    ) -> Result<Turn, Refused> {
        let mut is_changed = self.ring.expire(now, EPOCH_NANOS_MAX);
        let Some(sending) = &mut self.sending else {
            return Ok(Turn { is_changed, ..Turn::default() });
        };
        let current = self.ring.sending();
        if current.is_some_and(|epoch| epoch.keys.packets() >= REKEY_PACKETS) {
            sending.next_epoch = sending.next_epoch.min(now);
        }
        if now >= sending.next_epoch && sending.coming.is_none() {
            sending.begin(now, stamp, current.is_none(), entropy, keep);
            self.begun += 1;
        }
        if let Some((epoch, _)) = sending.coming.take_if(|(_, from)| now >= *from) {
            self.ring.replace(epoch, sending.keeps);
            is_changed = true;
        }
        if now < sending.next_opening {
            return Ok(Turn { is_changed, ..Turn::default() });
        }
        let period = match (&sending.coming, self.ring.sending()) {
            (Some(_), None) => FIRST_PERIOD_NANOS,
            (Some(_), Some(_)) => HELD_PERIOD_NANOS,
            (None, _) => PERIOD_NANOS,
        };
        sending.next_opening = now.saturating_add(period);
        out.get_mut(..OPENING_BYTES).ok_or(Refused::Long)?.copy_from_slice(&sending.opening);
        Ok(Turn { send: OPENING_BYTES, is_changed, ..Turn::default() })
    }

    /// Reads an opening of the peer. Returns whether workers need a new copy of
    /// [`OneWayKeys::ring`].
    ///
    /// # Errors
    /// As for [`OneWayReceiver::receive`], or it could not be stored: no state has changed then.
    pub fn receive(&mut self, now: u64, message: &[u8], keep: Keep<'_>) -> Result<bool, Refused> {
        let mut receiver = self.receiver.clone().ok_or(Refused::Unexpected)?;
        let Some(opened) = receiver.receive(message)? else { return Ok(false) };
        //= docs/protocol §3.3(d)
        if !keep(receiver.way(), opened.remembered) {
            return Err(Refused::NotKept);
        }
        self.receiver = Some(receiver);
        let keys = Arc::new(Keys::to_receive(&opened.secrets, opened.key_id, opened.profile));
        self.ring.admit(Epoch { key_id: opened.key_id, since: now, keys });
        self.told += 1;
        self.heard = Some(now);
        Ok(true)
    }

    /// Begins an epoch with the next [`OneWayKeys::poll`].
    pub fn renew(&mut self, now: u64) {
        if let Some(sending) = &mut self.sending {
            sending.next_epoch = now;
        }
    }

    /// When [`OneWayKeys::poll`] has work.
    #[must_use]
    pub fn wake(&self) -> u64 {
        let Some(sending) = &self.sending else { return u64::MAX };
        let from = sending.coming.as_ref().map_or(sending.next_epoch, |(_, from)| *from);
        from.min(sending.next_opening)
    }
}

impl<Keys: EpochKeys> Default for OneWayKeys<Keys> {
    fn default() -> Self {
        Self::new()
    }
}

impl<Keys: EpochKeys> Sending<Keys> {
    fn begin(&mut self, now: u64, stamp: u64, is_first: bool, entropy: &Entropy, keep: Keep<'_>) {
        self.number = self.number.wrapping_add(1);
        self.stamp = stamp.max(self.stamp.saturating_add(1));
        let (number, stamp) = (self.number, self.stamp);
        if self.draws {
            // The salt is taken from the first half.
            self.psk = PresharedKey::of_group(entropy.extra(0));
        }
        let sender = OneWaySender::new(&self.psk, &self.way, self.profile, number, stamp, entropy);
        // If it cannot be stored and the clock goes back, receivers refuse packets after a restart
        // until the clock has caught up: better than sending nothing.
        keep(&self.way, sender.remembered());
        let OneWaySender { opening, key_id, secrets } = sender;
        let keys = Arc::new(Keys::to_send(&secrets, key_id, self.profile));
        let hold = if is_first { FIRST_HOLD_NANOS } else { HOLD_NANOS };
        self.coming = Some((Epoch { key_id, since: now, keys }, now.saturating_add(hold)));
        self.opening = opening;
        self.next_opening = now;
        self.next_epoch = now.saturating_add(ONE_WAY_EPOCH_NANOS);
    }
}
