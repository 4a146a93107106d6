//! Keys without a return path: derived from a pre-shared key and a random salt that the sender
//! announces and receivers remember, so that packets recorded under an earlier salt are not
//! accepted again.
//!
//! ```text
//! opening = 0x27, 4, key id (8), profile (8) || salt (128) || stamp (64) || mac (128)
//! mac     = BLAKE2s-128(HKDF(pre-shared key, "opening", way), opening before it)
//! secret  = HKDF-Extract(salt || stamp || way, pre-shared key)
//! way     = "hop", or "edge" || flow (32); public keys of the sender and of the receiver
//! ```
//!
//! The sender repeats its opening, since it may be lost, and begins a new one at each start and
//! before keys are used up. The way is bound in, so that an opening is invalid in the other
//! direction, for another flow, or if other nodes use the same pre-shared key. There is no forward
//! secrecy: an attacker who learns the pre-shared key can read recorded traffic.
//!
//! The first bit of a key id tells which of the two public keys is greater, the sender's or the
//! receiver's: epochs of both directions may be in one list.

use subtle::ConstantTimeEq;

use crate::derive::Secrets;
use crate::error::Refused;
use crate::handshake::{FIRST_BYTE, OPENING, Scope, mac};
use crate::homomorphic::Strength;
use crate::keys::{Entropy, PresharedKey, PublicKey};
use crate::profile::Profile;
use crate::secret::Secret;

const HEADER: usize = 4;
const SALT: usize = 16;
const STAMP: usize = 8;
const MAC: usize = 16;

/// Bytes of an opening.
pub const OPENING_BYTES: usize = HEADER + SALT + STAMP + MAC;

/// Whether a message is an opening, for any node.
#[must_use]
pub fn is_opening(message: &[u8]) -> bool {
    message.first_chunk() == Some(&[FIRST_BYTE, OPENING])
}

/// Direction of keys: sender, receiver and purpose.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct KeyDirection {
    /// A hop, or a flow.
    pub scope: Scope,
    /// Public key of the sender.
    pub sender: PublicKey,
    /// Public key of the receiver.
    pub receiver: PublicKey,
}

impl KeyDirection {
    /// Distinguishes ways; not secret.
    #[must_use]
    pub fn id(&self) -> [u8; 16] {
        mac(&[0; 32], &[&self.bytes()])
    }

    fn bytes(&self) -> Vec<u8> {
        let KeyDirection { scope, sender, receiver } = self;
        [&scope.bytes()[..], sender.bytes(), receiver.bytes()].concat()
    }

    /// The key id of an epoch with this number.
    fn key_id(&self, number: u8) -> u8 {
        number & 0x7F | u8::from(self.sender > self.receiver) << 7
    }
}

/// The sender of an epoch.
#[derive(Debug)]
pub struct OneWaySender {
    /// To be sent before the first packet, and repeated from time to time.
    pub opening: [u8; OPENING_BYTES],
    /// Key id of these keys in packets.
    pub key_id: u8,
    /// Secret of the only direction.
    pub secrets: Secrets,
}

impl OneWaySender {
    /// `number` is the epoch's, modulo 128, so that simultaneously valid epochs differ. `stamp`
    /// grows from epoch to epoch, over starts too: the wall clock, or a stored number.
    #[must_use]
    pub fn new(
        psk: &PresharedKey,
        way: &KeyDirection,
        profile: impl Into<Profile>,
        number: u8,
        stamp: u64,
        entropy: &Entropy,
    ) -> Self {
        let mut opening = [0; OPENING_BYTES];
        let salt = *entropy.key().expose().first_chunk::<SALT>().expect("a key is longer");
        let key_id = way.key_id(number);
        let header = [FIRST_BYTE, OPENING, key_id, profile.into().code()];
        opening[..HEADER].copy_from_slice(&header);
        opening[HEADER..][..SALT].copy_from_slice(&salt);
        opening[HEADER + SALT..][..STAMP].copy_from_slice(&stamp.to_be_bytes());
        let (before, tag) = opening.split_last_chunk_mut::<MAC>().expect("it ends with one");
        *tag = mac(mac_key(psk, way).expose(), &[before]);
        Self { opening, key_id, secrets: secrets(psk, way, Remembered { salt, stamp }) }
    }

    /// State of it that receivers must remember, and the sender itself, so that its stamps grow.
    #[must_use]
    pub fn remembered(&self) -> Remembered {
        let (salt, rest) = self.opening[HEADER..].split_first_chunk().expect("it has a salt");
        let stamp = rest.first_chunk().expect("it has a stamp");
        Remembered { salt: *salt, stamp: u64::from_be_bytes(*stamp) }
    }
}

/// State that a receiver must remember, over starts too: it is not secret.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Remembered {
    /// The salt of the newest epoch.
    pub salt: [u8; SALT],
    /// Its stamp; epochs with lower ones are over.
    pub stamp: u64,
}

/// An epoch announced to a receiver.
#[derive(Debug)]
pub struct Opened {
    /// Key id of these keys in packets.
    pub key_id: u8,
    /// The AEAD that the sender chose, and the strength of its tags.
    pub profile: Profile,
    /// Secret of the only direction.
    pub secrets: Secrets,
    /// To be stored before the first packet is accepted.
    pub remembered: Remembered,
}

/// The receiver of keys without a return path.
#[derive(Clone, Debug)]
pub struct OneWayReceiver {
    psk: PresharedKey,
    way: KeyDirection,
    strength: Strength,
    newest: Option<Remembered>,
}

impl OneWayReceiver {
    /// `newest` is the state that an earlier start stored. Without it, the first opening to arrive
    /// is trusted, even a recorded one.
    #[must_use]
    pub const fn new(psk: PresharedKey, way: KeyDirection, newest: Option<Remembered>) -> Self {
        Self { psk, way, strength: Strength::Standard, newest }
    }

    /// Accepts only epochs with tags of this strength; the default is [`Strength::Standard`].
    #[must_use]
    pub const fn requiring(mut self, strength: Strength) -> Self {
        self.strength = strength;
        self
    }

    /// The way that it receives on.
    #[must_use]
    pub const fn way(&self) -> &KeyDirection {
        &self.way
    }

    /// Reads an opening: a new epoch, or `None` for the known one.
    ///
    /// # Errors
    /// It is not under this pre-shared key, or belongs to an epoch that is over. The epoch that a
    /// receiver remembers over a start is over as well, because the record of its accepted packets
    /// is lost. Or its tags are of another strength.
    pub fn receive(&mut self, opening: &[u8]) -> Result<Option<Opened>, Refused> {
        let opening: &[u8; OPENING_BYTES] = opening.try_into().map_err(|_| Refused::Malformed)?;
        let (before, tag) = opening.split_last_chunk::<MAC>().ok_or(Refused::Malformed)?;
        let (header, rest) = before.split_first_chunk::<HEADER>().ok_or(Refused::Malformed)?;
        let (salt, stamp) = rest.split_first_chunk::<SALT>().ok_or(Refused::Malformed)?;
        let stamp: [u8; STAMP] = stamp.try_into().map_err(|_| Refused::Malformed)?;
        let &[FIRST_BYTE, OPENING, key_id, code] = header else { return Err(Refused::Malformed) };
        let key = mac_key(&self.psk, &self.way);
        let equal: bool = mac(key.expose(), &[before]).ct_eq(tag).into();
        if !equal {
            return Err(Refused::Tag);
        }
        let profile = Profile::required(code, self.strength)?;
        if self.way.key_id(key_id) != key_id {
            return Err(Refused::Malformed);
        }
        let opened = Remembered { salt: *salt, stamp: u64::from_be_bytes(stamp) };
        //= docs/protocol §3.3(e)
        match self.newest {
            Some(newest) if newest == opened => return Ok(None),
            Some(newest) if opened.stamp <= newest.stamp => return Err(Refused::Stale),
            _ => self.newest = Some(opened),
        }
        let secrets = secrets(&self.psk, &self.way, opened);
        Ok(Some(Opened { key_id, profile, secrets, remembered: opened }))
    }
}

fn mac_key(psk: &PresharedKey, way: &KeyDirection) -> Secret<32> {
    Secrets::extract(&[], psk.bytes()).key("opening", &way.bytes())
}

fn secrets(psk: &PresharedKey, way: &KeyDirection, epoch: Remembered) -> Secrets {
    let salt = [&epoch.salt[..], &epoch.stamp.to_be_bytes(), &way.bytes()].concat();
    Secrets::extract(&salt, psk.bytes())
}
