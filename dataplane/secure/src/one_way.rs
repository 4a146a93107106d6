//! Paths without a way back: keys from a pre-shared key and a random salt that the sender announces
//! and receivers remember, so that what was recorded under an earlier salt is not accepted again.
//!
//! ```text
//! opening = 0x27, 4, key id (8), profile (8) || salt (128) || stamp (64) || mac (128)
//! mac     = BLAKE2s-128(HKDF(pre-shared key, "opening", way), opening before it)
//! secret  = HKDF-Extract(salt || stamp || way, pre-shared key)
//! way     = "hop", or "edge" || flow (32); public keys of the sender and of the receiver
//! ```
//!
//! The sender repeats its opening, since it may be lost, and begins a new one at each start and
//! before keys are used up. The way is bound in, so that an opening means nothing in the other
//! direction, of another flow, or where the same pre-shared key serves other hosts. There is no
//! forward secrecy: who learns the pre-shared key reads what was recorded.
//!
//! The first bit of a key id says which of the two public keys is greater, the sender's or the
//! receiver's: epochs of both directions may stand in one list.

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

/// Whether a message is an opening, for whichever node.
#[must_use]
pub fn is_opening(message: &[u8]) -> bool {
    message.first_chunk() == Some(&[FIRST_BYTE, OPENING])
}

/// Who tells whom, and what for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Way {
    /// A hop, or a flow.
    pub scope: Scope,
    /// Who sends.
    pub sender: PublicKey,
    /// Who receives.
    pub receiver: PublicKey,
}

impl Way {
    /// Tells ways apart; no secret.
    #[must_use]
    pub fn id(&self) -> [u8; 16] {
        mac(&[0; 32], &[&self.bytes()])
    }

    fn bytes(&self) -> Vec<u8> {
        let Way { scope, sender, receiver } = self;
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
    /// To be sent before the first packet, and again from time to time.
    pub opening: [u8; OPENING_BYTES],
    /// How packets name these keys.
    pub key_id: u8,
    /// Secret of the only direction.
    pub secrets: Secrets,
}

impl OneWaySender {
    /// `number` is the epoch's, modulo 128, so that those that are valid at once differ. `stamp`
    /// grows from epoch to epoch, over starts too: the wall clock, or a kept number.
    #[must_use]
    pub fn new(
        (psk, way): (&PresharedKey, &Way),
        profile: impl Into<Profile>,
        (number, stamp): (u8, u64),
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
        Self { opening, key_id, secrets: secrets((psk, way), Remembered { salt, stamp }) }
    }

    /// What receivers are to remember of it, and the sender itself, so that its stamps grow.
    #[must_use]
    pub fn remembered(&self) -> Remembered {
        let (salt, rest) = self.opening[HEADER..].split_first_chunk().expect("it has a salt");
        let stamp = rest.first_chunk().expect("it has a stamp");
        Remembered { salt: *salt, stamp: u64::from_be_bytes(*stamp) }
    }
}

/// What a receiver must not forget, over starts too: it is no secret.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Remembered {
    /// The salt of the newest epoch.
    pub salt: [u8; SALT],
    /// Its stamp; epochs with lower ones are over.
    pub stamp: u64,
}

/// An epoch that a receiver learned of.
#[derive(Debug)]
pub struct Opened {
    /// How packets name these keys.
    pub key_id: u8,
    /// The AEAD that the sender chose, and its tags.
    pub profile: Profile,
    /// Secret of the only direction.
    pub secrets: Secrets,
    /// To be kept before the first packet is accepted.
    pub remembered: Remembered,
}

/// The receiver of a path without a way back.
#[derive(Clone, Debug)]
pub struct OneWayReceiver {
    psk: PresharedKey,
    way: Way,
    strength: Strength,
    newest: Option<Remembered>,
}

impl OneWayReceiver {
    /// `newest` is what an earlier start has kept. Without it, the first opening that arrives is
    /// believed, be it a recorded one.
    #[must_use]
    pub const fn new(psk: PresharedKey, way: Way, newest: Option<Remembered>) -> Self {
        Self { psk, way, strength: Strength::Standard, newest }
    }

    /// Takes epochs with tags of this strength alone; else it is [`Strength::Standard`].
    #[must_use]
    pub const fn requiring(mut self, strength: Strength) -> Self {
        self.strength = strength;
        self
    }

    /// What it receives.
    #[must_use]
    pub const fn way(&self) -> &Way {
        &self.way
    }

    /// Reads an opening: a new epoch, or `None` for the one that is known.
    ///
    /// # Errors
    /// It is none of this pre-shared key, or of an epoch that is over. The epoch that a receiver
    /// remembers over a start is over as well: which of its packets were accepted is not known. Or
    /// its tags are of another strength.
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
        match self.newest {
            Some(newest) if newest == opened => return Ok(None),
            Some(newest) if opened.stamp <= newest.stamp => return Err(Refused::Stale),
            _ => self.newest = Some(opened),
        }
        let secrets = secrets((&self.psk, &self.way), opened);
        Ok(Some(Opened { key_id, profile, secrets, remembered: opened }))
    }
}

fn mac_key(psk: &PresharedKey, way: &Way) -> Secret<32> {
    Secrets::extract(&[], psk.bytes()).key("opening", &way.bytes())
}

fn secrets((psk, way): (&PresharedKey, &Way), epoch: Remembered) -> Secrets {
    let salt = [&epoch.salt[..], &epoch.stamp.to_be_bytes(), &way.bytes()].concat();
    Secrets::extract(&salt, psk.bytes())
}
