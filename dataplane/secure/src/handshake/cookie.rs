//! Protection in front of a handshake: MACs that only the peer can form and, beyond a number of
//! messages per second, that the sender receives at its source address. As in WireGuard (its white
//! paper, section 5.3 and 5.4.4 to 5.4.7), except for the keys: there they are public.
//!
//! ```text
//! pair   = X25519(private key of one node, public key of the other one)
//! mac1   = BLAKE2s-128(BLAKE2s("recoded v2 mac1" || pair || public key of the receiver ||
//!          scope), message before)
//! mac2   = BLAKE2s-128(cookie, message and mac1), zeros without a cookie
//! cookie = BLAKE2s-128(secret of 2 minutes, address)
//! reply  = XChaCha20-Poly1305(BLAKE2s("recoded v2 cookie" || pair || public key of the sender ||
//!          scope), nonce, cookie, associated data: mac1 of the message it answers)
//! ```
//!
//! Recorded messages have a right mac1. They use up the messages per second of the session that
//! they were recorded from, and of no other one.

use blake2::digest::consts::U16;
use blake2::digest::{Mac, Update};
use blake2::{Blake2s256, Blake2sMac, Digest};
use chacha20poly1305::aead::AeadInPlace;
use chacha20poly1305::{KeyInit, XChaCha20Poly1305};
use subtle::ConstantTimeEq;

use super::message::{COOKIE, COOKIE_BYTES, FIRST_BYTE, HEADER, MAC, MACS, Message, NONCE, parse};
use super::noise::{Identity, Scope};
use super::timing::{COOKIE_NANOS, HANDSHAKES_PER_SECOND};
use crate::error::Refused;
use crate::keys::{Entropy, PrivateKey, PublicKey};
use crate::secret::Secret;

/// A decision on a message.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Admission {
    /// Pass the message to the session of the peer.
    Pass,
    /// Send back this many bytes of the buffer; the message is not read.
    Reply(usize),
}

/// The secret of a node's cookies. Keeps no state per sender.
pub struct Gate {
    secret: Secret<32>,
    /// When the secret changes.
    until: u64,
}

impl Gate {
    /// The gate of a node.
    #[must_use]
    pub fn new(now: u64, entropy: &Entropy) -> Self {
        Self { secret: entropy.key(), until: now.saturating_add(COOKIE_NANOS) }
    }

    /// The cookie of the sender at `address`.
    fn cookie(&mut self, now: u64, entropy: &Entropy, address: &[u8]) -> [u8; MAC] {
        if now >= self.until {
            *self = Self::new(now, entropy);
        }
        mac(self.secret.expose(), &[address])
    }
}

/// A message from an address.
#[derive(Copy, Clone, Debug)]
pub struct Arrived<'a> {
    /// All bytes that distinguish senders.
    pub address: &'a [u8],
    /// The handshake message.
    pub message: &'a [u8],
}

/// The MACs of a message.
struct Macs<'a> {
    /// The message without the second one.
    rest: &'a [u8],
    mac1: &'a [u8; MAC],
    mac2: &'a [u8; MAC],
}

/// Keys of MACs and cookies that only two nodes know.
struct Pair {
    mac_to_peer: Secret<32>,
    mac_from_peer: Secret<32>,
    cookie_to_peer: Secret<32>,
    cookie_from_peer: Secret<32>,
}

/// State that a session needs for the MACs of its messages to a peer, and of the peer's.
pub(super) struct Stamps {
    pair: Pair,
    /// A cookie of the peer, and when it arrived.
    cookie: Option<(Secret<MAC>, u64)>,
    /// The last message, which a cookie answers: its bytes 2 and 3, which identify it among those
    /// of other sessions, and its MAC.
    last: Option<([u8; 2], [u8; MAC])>,
    /// Messages of the peer that may be admitted before cookies are required, in nanoseconds of
    /// their share.
    budget: u64,
    filled: u64,
}

/// Nanoseconds of a second that a message takes.
const SHARE: u64 = 1_000_000_000 / HANDSHAKES_PER_SECOND;

impl Pair {
    fn new(identity: &Identity) -> Self {
        let Identity { scope, private, peer, psk: _ } = identity;
        let (own, pair, scope) = (private.public(), private.shared_with(peer), scope.bytes());
        let key =
            |label: &[u8], node: &PublicKey| hash(&[label, pair.expose(), node.bytes(), &scope]);
        Self {
            mac_to_peer: key(MAC1, peer),
            mac_from_peer: key(MAC1, &own),
            cookie_to_peer: key(COOKIE_KEY, &own),
            cookie_from_peer: key(COOKIE_KEY, peer),
        }
    }
}

impl Stamps {
    pub fn new(identity: &Identity, now: u64) -> Self {
        let budget = HANDSHAKES_PER_SECOND * SHARE;
        Self { pair: Pair::new(identity), cookie: None, last: None, budget, filled: now }
    }

    /// Writes both MACs into the last bytes of a message.
    pub fn write(&mut self, now: u64, message: &mut [u8]) {
        let at = message.len() - MACS;
        let mac1 = mac(self.pair.mac_to_peer.expose(), &[&message[..at]]);
        message[at..][..MAC].copy_from_slice(&mac1);
        self.cookie.take_if(|(_, since)| now.saturating_sub(*since) >= COOKIE_NANOS);
        let mac2 = match &self.cookie {
            Some((cookie, _)) => mac(cookie.expose(), &[&message[..at + MAC]]),
            None => [0; MAC],
        };
        message[at + MAC..].copy_from_slice(&mac2);
        self.last = Some(([message[2], message[3]], mac1));
    }

    /// Whether the peer formed a message for this node, now or before. Takes two hashes. Cookies
    /// have no MAC.
    pub fn is_from_peer(&self, message: &[u8]) -> bool {
        match parse(message) {
            Some(Message::Cookie { .. }) => true,
            Some(_) => self.macs(message).is_ok(),
            None => false,
        }
    }

    /// Like [`Session::admit`](super::Session::admit).
    pub fn admit(
        &mut self,
        gate: &mut Gate,
        now: u64,
        entropy: &Entropy,
        Arrived { address, message }: Arrived<'_>,
        out: &mut [u8],
    ) -> Result<Admission, Refused> {
        if let Message::Cookie { .. } = parse(message).ok_or(Refused::Malformed)? {
            return Ok(Admission::Pass);
        }
        //= docs/protocol §3.2(b), §3.2(c)
        let Macs { rest, mac1, mac2 } = self.macs(message)?;
        let full = HANDSHAKES_PER_SECOND * SHARE;
        self.budget = self.budget.saturating_add(now.saturating_sub(self.filled)).min(full);
        self.filled = self.filled.max(now);
        if self.budget >= SHARE {
            self.budget -= SHARE;
            return Ok(Admission::Pass);
        }
        let cookie = gate.cookie(now, entropy, address);
        if is_equal(&mac(&cookie, &[rest]), mac2) {
            return Ok(Admission::Pass);
        }
        self.reply(&cookie, message, mac1, entropy, out).map(Admission::Reply)
    }

    /// The MACs of a message, once the first one is verified.
    fn macs<'a>(&self, message: &'a [u8]) -> Result<Macs<'a>, Refused> {
        let (rest, mac2) = message.split_last_chunk::<MAC>().ok_or(Refused::Malformed)?;
        let (before, mac1) = rest.split_last_chunk::<MAC>().ok_or(Refused::Malformed)?;
        if !is_equal(&mac(self.pair.mac_from_peer.expose(), &[before]), mac1) {
            return Err(Refused::Tag);
        }
        Ok(Macs { rest, mac1, mac2 })
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
        let tag = XChaCha20Poly1305::new(self.pair.cookie_to_peer.expose().into())
            .encrypt_in_place_detached(&nonce.into(), mac1, &mut sealed[..MAC])
            .map_err(|_| Refused::Long)?;
        sealed[MAC..].copy_from_slice(&tag);
        Ok(COOKIE_BYTES)
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
        XChaCha20Poly1305::new(self.pair.cookie_from_peer.expose().into())
            .decrypt_in_place_detached(nonce.into(), &last, cookie.expose_mut(), tag.into())
            .map_err(|_| Refused::Tag)?;
        self.cookie = Some((cookie, now));
        // One answer per message.
        self.last = None;
        Ok(())
    }
}

/// Label of keys of the first MAC.
const MAC1: &[u8] = b"recoded v2 mac1";

/// Label of keys that seal cookies.
const COOKIE_KEY: &[u8] = b"recoded v2 cookie";

/// The key of the first MAC of messages that only two nodes can form, in one direction.
#[derive(Debug)]
pub(crate) struct Mac1(Secret<32>);

impl Mac1 {
    /// For messages from this node to the peer.
    pub(crate) fn to(private: &PrivateKey, peer: &PublicKey, scope: Scope) -> Mac1 {
        Mac1::new(private, peer, peer, scope)
    }

    /// For messages from the peer to this node.
    pub(crate) fn from(private: &PrivateKey, peer: &PublicKey, scope: Scope) -> Mac1 {
        Mac1::new(private, peer, &private.public(), scope)
    }

    fn new(private: &PrivateKey, peer: &PublicKey, receiver: &PublicKey, scope: Scope) -> Mac1 {
        let pair = private.shared_with(peer);
        Mac1(hash(&[MAC1, pair.expose(), receiver.bytes(), &scope.bytes()]))
    }

    /// The MAC of the bytes before it.
    pub(crate) fn of(&self, before: &[u8]) -> [u8; MAC] {
        mac(self.0.expose(), &[before])
    }

    /// Whether a message ends with its MAC.
    pub(crate) fn verifies(&self, message: &[u8]) -> bool {
        let parts = message.split_last_chunk::<MAC>();
        parts.is_some_and(|(before, tag)| is_equal(&self.of(before), tag))
    }
}

fn hash(parts: &[&[u8]]) -> Secret<32> {
    let hash = parts.iter().fold(Blake2s256::new(), |hash, part| hash.chain(part));
    Secret::new(hash.finalize().into())
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
