//! Paths without a way back: keys from a pre-shared key and a random salt that the sender announces
//! and receivers remember, so that what was recorded under an earlier salt is not accepted again.
//!
//! ```text
//! opening = 0x27, 4, key id (8), 0 || salt (128) || stamp (64) || mac (128)
//! mac     = BLAKE2s-128(HKDF(pre-shared key, "opening"), opening before it)
//! secret  = HKDF-Extract(salt || stamp, pre-shared key)
//! ```
//!
//! The sender repeats its opening, since it may be lost, and begins a new one at each start and
//! before keys are used up. There is no forward secrecy: who learns the pre-shared key reads
//! what was recorded.

use subtle::ConstantTimeEq;

use crate::derive::Secrets;
use crate::error::Refused;
use crate::handshake::{FIRST_BYTE, OPENING, mac};
use crate::keys::{Entropy, PresharedKey};
use crate::secret::Secret;

const HEADER: usize = 4;
const SALT: usize = 16;
const STAMP: usize = 8;
const MAC: usize = 16;

/// Bytes of an opening.
pub const OPENING_BYTES: usize = HEADER + SALT + STAMP + MAC;

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
    /// `stamp` grows from epoch to epoch, over starts too: the wall clock, or a kept number.
    #[must_use]
    pub fn new(psk: &PresharedKey, stamp: u64, entropy: &Entropy) -> Self {
        let mut opening = [0; OPENING_BYTES];
        let salt = *entropy.key().expose().first_chunk::<SALT>().expect("a key is longer");
        let key_id = entropy.extra::<1>(0)[0];
        opening[..HEADER].copy_from_slice(&[FIRST_BYTE, OPENING, key_id, 0]);
        opening[HEADER..][..SALT].copy_from_slice(&salt);
        opening[HEADER + SALT..][..STAMP].copy_from_slice(&stamp.to_be_bytes());
        let (before, tag) = opening.split_last_chunk_mut::<MAC>().expect("it ends with one");
        *tag = mac(mac_key(psk).expose(), &[before]);
        Self { opening, key_id, secrets: secrets(psk, Remembered { salt, stamp }) }
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
    /// Secret of the only direction.
    pub secrets: Secrets,
    /// To be kept before the first packet is accepted.
    pub remembered: Remembered,
}

/// The receiver of a path without a way back.
#[derive(Debug)]
pub struct OneWayReceiver {
    psk: PresharedKey,
    newest: Option<Remembered>,
}

impl OneWayReceiver {
    /// `newest` is what an earlier start has kept. Without it, the first opening that arrives is
    /// believed, be it a recorded one.
    #[must_use]
    pub const fn new(psk: PresharedKey, newest: Option<Remembered>) -> Self {
        Self { psk, newest }
    }

    /// Reads an opening: a new epoch, or `None` for the one that is known.
    ///
    /// # Errors
    /// It is none of this pre-shared key, or of an epoch that is over. The epoch that a receiver
    /// remembers over a start is over as well: which of its packets were accepted is not known.
    pub fn receive(&mut self, opening: &[u8]) -> Result<Option<Opened>, Refused> {
        let opening: &[u8; OPENING_BYTES] = opening.try_into().map_err(|_| Refused::Malformed)?;
        let (before, tag) = opening.split_last_chunk::<MAC>().ok_or(Refused::Malformed)?;
        let (header, rest) = before.split_first_chunk::<HEADER>().ok_or(Refused::Malformed)?;
        let (salt, stamp) = rest.split_first_chunk::<SALT>().ok_or(Refused::Malformed)?;
        let stamp: [u8; STAMP] = stamp.try_into().map_err(|_| Refused::Malformed)?;
        let &[FIRST_BYTE, OPENING, key_id, 0] = header else { return Err(Refused::Malformed) };
        let equal: bool = mac(mac_key(&self.psk).expose(), &[before]).ct_eq(tag).into();
        if !equal {
            return Err(Refused::Tag);
        }
        let opened = Remembered { salt: *salt, stamp: u64::from_be_bytes(stamp) };
        match self.newest {
            Some(newest) if newest == opened => return Ok(None),
            Some(newest) if opened.stamp <= newest.stamp => return Err(Refused::Stale),
            _ => self.newest = Some(opened),
        }
        Ok(Some(Opened { key_id, secrets: secrets(&self.psk, opened), remembered: opened }))
    }
}

fn mac_key(psk: &PresharedKey) -> Secret<32> {
    Secrets::extract(&[], psk.bytes()).key("opening", &[])
}

fn secrets(psk: &PresharedKey, epoch: Remembered) -> Secrets {
    let mut salt = [0; SALT + STAMP];
    salt[..SALT].copy_from_slice(&epoch.salt);
    salt[SALT..].copy_from_slice(&epoch.stamp.to_be_bytes());
    Secrets::extract(&salt, psk.bytes())
}
