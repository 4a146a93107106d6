//! Protection in front of a handshake: MACs that require knowledge of this node's public key and,
//! under load, that the sender receives at its source address. As in WireGuard (its white paper,
//! section 5.3 and 5.4.4 to 5.4.7).
//!
//! ```text
//! mac1   = BLAKE2s-128(BLAKE2s("recoded v2 mac1" || public key of the receiver), message before)
//! mac2   = BLAKE2s-128(cookie, message and mac1), zeros without a cookie
//! cookie = BLAKE2s-128(secret of 2 minutes, address)
//! reply  = XChaCha20-Poly1305(BLAKE2s("recoded v2 cookie" || public key of the sender), nonce,
//!          cookie, associated data: mac1 of the message it answers)
//! ```

use blake2::digest::consts::U16;
use blake2::digest::{Mac, Update};
use blake2::{Blake2s256, Blake2sMac, Digest};
use chacha20poly1305::aead::AeadInPlace;
use chacha20poly1305::{KeyInit, XChaCha20Poly1305};
use subtle::ConstantTimeEq;

use super::message::{COOKIE, COOKIE_BYTES, FIRST_BYTE, HEADER, MAC, MACS, Message, NONCE, parse};
use super::timing::{COOKIE_NANOS, HANDSHAKES_PER_SECOND};
use crate::error::Refused;
use crate::keys::{Entropy, PublicKey};
use crate::secret::Secret;

/// A [`Gate`]'s decision on a message.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Admission {
    /// Pass the message to the session of the peer.
    Pass,
    /// Send back this many bytes of the buffer; the message is not read.
    Reply(usize),
}

/// Admits handshake messages, for a node and all of its peers. Keeps no state per sender.
pub struct Gate {
    mac1_key: Secret<32>,
    cookie_key: Secret<32>,
    secret: Secret<32>,
    /// When the secret changes.
    until: u64,
    /// Messages that may be admitted before cookies are required, in nanoseconds of their share.
    budget: u64,
    filled: u64,
}

/// The MACs of a message.
struct Macs<'a> {
    /// The message without the second one.
    rest: &'a [u8],
    mac1: &'a [u8; MAC],
    mac2: &'a [u8; MAC],
}

/// Nanoseconds of a second that a message takes.
const SHARE: u64 = 1_000_000_000 / HANDSHAKES_PER_SECOND;

impl Gate {
    /// The gate of the node with this public key.
    #[must_use]
    pub fn new(own: &PublicKey, now: u64, entropy: &Entropy) -> Self {
        Self {
            mac1_key: mac1_key(own),
            cookie_key: cookie_key(own),
            secret: entropy.key(),
            until: now.saturating_add(COOKIE_NANOS),
            budget: HANDSHAKES_PER_SECOND * SHARE,
            filled: now,
        }
    }

    /// Whether a message from `address` (all bytes that distinguish senders) may be read. `out` has
    /// room for [`HANDSHAKE_BYTES_MAX`](super::HANDSHAKE_BYTES_MAX) bytes. Cookies need no MAC;
    /// they are for the session that waits for one.
    ///
    /// # Errors
    /// It is not a handshake message, or its MAC is wrong.
    pub fn admit(
        &mut self,
        now: u64,
        entropy: &Entropy,
        address: &[u8],
        message: &[u8],
        out: &mut [u8],
    ) -> Result<Admission, Refused> {
        if let Message::Cookie { .. } = parse(message).ok_or(Refused::Malformed)? {
            return Ok(Admission::Pass);
        }
        let Macs { rest, mac1, mac2 } = self.macs(message)?;
        self.advance(now, entropy);
        let cookie = mac(self.secret.expose(), &[address]);
        if self.budget >= SHARE {
            self.budget -= SHARE;
            return Ok(Admission::Pass);
        }
        if is_equal(&mac(&cookie, &[rest]), mac2) {
            return Ok(Admission::Pass);
        }
        self.reply(&cookie, message, mac1, entropy, out).map(Admission::Reply)
    }

    /// Whether a message was formed for this node, by the MAC that needs its public key; this takes
    /// no multiplication. Cookies have no MAC.
    #[must_use]
    pub fn is_for_this(&self, message: &[u8]) -> bool {
        match parse(message) {
            Some(Message::Cookie { .. }) => true,
            Some(_) => self.macs(message).is_ok(),
            None => false,
        }
    }

    /// The MACs of a message, of which the first one is right.
    fn macs<'a>(&self, message: &'a [u8]) -> Result<Macs<'a>, Refused> {
        let (rest, mac2) = message.split_last_chunk::<MAC>().ok_or(Refused::Malformed)?;
        let (before, mac1) = rest.split_last_chunk::<MAC>().ok_or(Refused::Malformed)?;
        if !is_equal(&mac(self.mac1_key.expose(), &[before]), mac1) {
            return Err(Refused::Tag);
        }
        Ok(Macs { rest, mac1, mac2 })
    }

    fn advance(&mut self, now: u64, entropy: &Entropy) {
        if now >= self.until {
            self.secret = entropy.key();
            self.until = now.saturating_add(COOKIE_NANOS);
        }
        let full = HANDSHAKES_PER_SECOND * SHARE;
        self.budget = self.budget.saturating_add(now.saturating_sub(self.filled)).min(full);
        self.filled = self.filled.max(now);
    }

    fn reply(
        &self,
        cookie: &[u8; MAC],
        message: &[u8],
        mac1: &[u8; MAC],
        entropy: &Entropy,
        out: &mut [u8],
    ) -> Result<usize, Refused> {
        let out = out.get_mut(..COOKIE_BYTES).ok_or(Refused::Malformed)?;
        let nonce: [u8; NONCE] = entropy.extra(0);
        out[..HEADER].copy_from_slice(&[FIRST_BYTE, COOKIE, message[2], message[3]]);
        out[HEADER..][..NONCE].copy_from_slice(&nonce);
        let sealed = &mut out[HEADER + NONCE..];
        sealed[..MAC].copy_from_slice(cookie);
        let tag = XChaCha20Poly1305::new(self.cookie_key.expose().into())
            .encrypt_in_place_detached(&nonce.into(), mac1, &mut sealed[..MAC])
            .map_err(|_| Refused::Long)?;
        sealed[MAC..].copy_from_slice(&tag);
        Ok(COOKIE_BYTES)
    }
}

/// State that a session needs for the MACs of its messages to a peer.
pub(super) struct Stamps {
    mac1_key: Secret<32>,
    cookie_key: Secret<32>,
    /// A cookie of the peer, and when it arrived.
    cookie: Option<(Secret<MAC>, u64)>,
    /// The last message, which a cookie answers: its bytes 2 and 3, which identify it among those
    /// of other sessions, and its MAC.
    last: Option<([u8; 2], [u8; MAC])>,
}

impl Stamps {
    pub fn new(peer: &PublicKey) -> Self {
        Self { mac1_key: mac1_key(peer), cookie_key: cookie_key(peer), cookie: None, last: None }
    }

    /// Writes both MACs into the last bytes of a message.
    pub fn write(&mut self, now: u64, message: &mut [u8]) {
        let at = message.len() - MACS;
        let mac1 = mac(self.mac1_key.expose(), &[&message[..at]]);
        message[at..][..MAC].copy_from_slice(&mac1);
        self.cookie.take_if(|(_, since)| now.saturating_sub(*since) >= COOKIE_NANOS);
        let mac2 = match &self.cookie {
            Some((cookie, _)) => mac(cookie.expose(), &[&message[..at + MAC]]),
            None => [0; MAC],
        };
        message[at + MAC..].copy_from_slice(&mac2);
        self.last = Some(([message[2], message[3]], mac1));
    }

    /// Reads a cookie that answers the last message.
    pub fn read_cookie(
        &mut self,
        now: u64,
        answered: [u8; 2],
        nonce: &[u8; NONCE],
        sealed: &[u8],
    ) -> Result<(), Refused> {
        let (_, last) = self.last.filter(|it| it.0 == answered).ok_or(Refused::Unexpected)?;
        let (cookie, tag) = sealed.split_first_chunk::<MAC>().ok_or(Refused::Malformed)?;
        let tag: &[u8; 16] = tag.first_chunk().ok_or(Refused::Malformed)?;
        let mut cookie = Secret::new(*cookie);
        XChaCha20Poly1305::new(self.cookie_key.expose().into())
            .decrypt_in_place_detached(nonce.into(), &last, cookie.expose_mut(), tag.into())
            .map_err(|_| Refused::Tag)?;
        self.cookie = Some((cookie, now));
        // One answer per message.
        self.last = None;
        Ok(())
    }
}

/// The MAC of a message for the owner of this key.
pub(crate) fn mac1(receiver: &PublicKey, before: &[u8]) -> [u8; MAC] {
    mac(mac1_key(receiver).expose(), &[before])
}

fn mac1_key(key: &PublicKey) -> Secret<32> {
    hash(b"recoded v2 mac1", key)
}

fn cookie_key(key: &PublicKey) -> Secret<32> {
    hash(b"recoded v2 cookie", key)
}

fn hash(label: &[u8], key: &PublicKey) -> Secret<32> {
    Secret::new(Blake2s256::new().chain(label).chain(key.bytes()).finalize().into())
}

/// BLAKE2s with a key and 16 bytes of output.
pub(crate) fn mac(key: &[u8], parts: &[&[u8]]) -> [u8; MAC] {
    let keyed = <Blake2sMac<U16> as Mac>::new_from_slice(key);
    let mut keyed = keyed.expect("keys have 16 or 32 bytes");
    parts.iter().for_each(|part| Mac::update(&mut keyed, part));
    keyed.finalize().into_bytes().into()
}

fn is_equal(a: &[u8; MAC], b: &[u8; MAC]) -> bool {
    a.ct_eq(b).into()
}
