//! Keys: a MAC for datagrams under an optional pre-shared key, cookies of addresses, and the secret
//! that the source shares with one receiver.
//!
//! ```text
//!  pre-shared key --BLAKE3 derive_key--> MAC of each datagram, 16 bytes at its end
//!  random secret, replaced every minute --keyed BLAKE3--> cookie of an address
//!  X25519(key of the session, key of the source) --BLAKE3 derive_key--> columns and seal of checks
//! ```

use std::net::{IpAddr, SocketAddr};

use chacha20poly1305::aead::{AeadInPlace, KeyInit};
use chacha20poly1305::{ChaCha20Poly1305, Key, Nonce, Tag};
use curve25519_dalek::MontgomeryPoint;
use subtle::ConstantTimeEq;

use crate::manifest::ContentId;
use crate::random::Random;
use crate::wire::COOKIE_BYTES;

/// Bytes of a MAC: a forgery succeeds with probability 2^-128.
pub const MAC_BYTES: usize = 16;

/// Bytes of the tag of sealed checks.
pub(crate) const SEAL_BYTES: usize = 16;

/// How long a secret makes cookies; it is accepted for as long again.
///
/// A client answers a challenge within a round trip. At half, nothing breaks; at twice, an address
/// that a host has lost is accepted from it for four minutes.
const COOKIE_NANOS: u64 = 60_000_000_000;

/// A pre-shared key, for MACs of all datagrams. It does not encrypt.
#[derive(Clone)]
pub struct DatagramKey([u8; 32]);

impl DatagramKey {
    /// The key of a secret.
    #[must_use]
    pub fn new(secret: &[u8; 32]) -> Self {
        Self(blake3::derive_key("recoded-swarm v1 MAC of datagrams", secret))
    }

    /// The MAC of a datagram.
    #[must_use]
    pub fn mac(&self, datagram: &[u8]) -> [u8; MAC_BYTES] {
        truncated(&blake3::keyed_hash(&self.0, datagram))
    }
}

/// Appends the MAC, if there is a key.
pub(crate) fn authenticate(key: Option<&DatagramKey>, datagram: &mut Vec<u8>) {
    if let Some(key) = key {
        let mac = key.mac(datagram);
        datagram.extend(mac);
    }
}

/// The message of a datagram, if its MAC is correct or there is no key.
pub(crate) fn authenticated<'a>(key: Option<&DatagramKey>, datagram: &'a [u8]) -> Option<&'a [u8]> {
    let Some(key) = key else { return Some(datagram) };
    let (message, mac) = datagram.split_last_chunk::<MAC_BYTES>()?;
    bool::from(key.mac(message).ct_eq(mac)).then_some(message)
}

fn truncated<const N: usize>(hash: &blake3::Hash) -> [u8; N] {
    std::array::from_fn(|index| hash.as_bytes()[index])
}

/// Makes and verifies cookies without state for each address.
pub(crate) struct Cookies {
    secrets: [[u8; 32]; 2],
    replaced_at: u64,
}

impl Cookies {
    pub(crate) fn new(random: &mut Random, now: u64) -> Self {
        Self { secrets: [random.array(), random.array()], replaced_at: now }
    }

    /// Replaces secrets that are old.
    pub(crate) fn rotate(&mut self, random: &mut Random, now: u64) {
        while now.saturating_sub(self.replaced_at) >= COOKIE_NANOS {
            self.secrets = [random.array(), self.secrets[0]];
            self.replaced_at += COOKIE_NANOS;
        }
    }

    /// The current cookie of an address.
    pub(crate) fn make(&self, address: &SocketAddr) -> [u8; COOKIE_BYTES] {
        cookie(&self.secrets[0], address)
    }

    pub(crate) fn is_valid(&self, address: &SocketAddr, given: &[u8; COOKIE_BYTES]) -> bool {
        let is = |secret| bool::from(cookie(secret, address).ct_eq(given));
        is(&self.secrets[0]) | is(&self.secrets[1])
    }
}

fn cookie(secret: &[u8; 32], address: &SocketAddr) -> [u8; COOKIE_BYTES] {
    let mut bytes = [0; 18];
    let ip = match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    bytes[..16].copy_from_slice(&ip.octets());
    bytes[16..].copy_from_slice(&address.port().to_be_bytes());
    truncated(&blake3::keyed_hash(secret, &bytes))
}

/// An X25519 key pair: of the source, or of a session.
#[derive(Clone)]
pub struct KeyPair {
    private: [u8; 32],
    public: [u8; 32],
}

impl KeyPair {
    /// The pair of 32 random bytes.
    #[must_use]
    pub fn new(private: [u8; 32]) -> Self {
        Self { private, public: MontgomeryPoint::mul_base_clamped(private).to_bytes() }
    }

    /// The public key.
    #[must_use]
    pub const fn public(&self) -> &[u8; 32] {
        &self.public
    }

    /// The secret of this session and this source: of `public`, and of both public keys.
    pub(crate) fn shared(&self, public: &[u8; 32], session: SessionKeys<'_>) -> SharedKey {
        let point = MontgomeryPoint(*public).mul_clamped(self.private);
        let mut hasher = blake3::Hasher::new_derive_key("recoded-swarm v1 checks of blocks");
        hasher.update(point.as_bytes()).update(session.receiver).update(session.source);
        hasher.update(&session.content.0);
        SharedKey(*hasher.finalize().as_bytes())
    }
}

/// Public values that the secret of a session is bound to.
#[derive(Copy, Clone)]
pub(crate) struct SessionKeys<'a> {
    /// Public key of the receiver.
    pub receiver: &'a [u8; 32],
    /// Public key of the source.
    pub source: &'a [u8; 32],
    /// The content.
    pub content: ContentId,
}

/// A secret of the source and one receiver.
#[derive(Clone)]
pub(crate) struct SharedKey([u8; 32]);

impl SharedKey {
    /// The secret columns of a segment.
    pub(crate) fn columns(&self, segment: u32, columns: &mut [u8]) {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(b"columns").update(&segment.to_be_bytes());
        hasher.finalize_xof().fill(columns);
    }

    fn seal_key(&self) -> ChaCha20Poly1305 {
        let key = blake3::keyed_hash(&self.0, b"seal");
        ChaCha20Poly1305::new(Key::from_slice(key.as_bytes()))
    }

    /// Encrypts checks in place. One place has one plaintext under one key, so the nonce is safe.
    pub(crate) fn seal(&self, place: SealPlace, bytes: &mut [u8]) -> [u8; SEAL_BYTES] {
        let sealed = self.seal_key().encrypt_in_place_detached(&place.nonce(), &[], bytes);
        // Fails only beyond 2^36 bytes.
        sealed.map_or([0; SEAL_BYTES], Into::into)
    }

    /// Decrypts checks in place.
    pub(crate) fn open(&self, place: SealPlace, bytes: &mut [u8], tag: &[u8; SEAL_BYTES]) -> bool {
        let tag = Tag::from_slice(tag);
        self.seal_key().decrypt_in_place_detached(&place.nonce(), &[], bytes, tag).is_ok()
    }
}

/// Which checks are sealed.
#[derive(Copy, Clone)]
pub(crate) struct SealPlace {
    pub segment: u32,
    pub part: u8,
}

impl SealPlace {
    fn nonce(self) -> Nonce {
        let mut nonce = [0; 12];
        nonce[..4].copy_from_slice(&self.segment.to_be_bytes());
        nonce[4] = self.part;
        nonce.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_belong_to_an_address_and_end() {
        let mut random = Random::new(&crate::tests_seed());
        let mut cookies = Cookies::new(&mut random, 0);
        let address: SocketAddr = "192.0.2.1:7".parse().expect("an address");
        let given = cookies.make(&address);
        assert!(cookies.is_valid(&address, &given));
        assert!(!cookies.is_valid(&"192.0.2.1:8".parse().expect("an address"), &given));
        assert!(!cookies.is_valid(&"[2001:db8::1]:7".parse().expect("an address"), &given));
        assert!(!cookies.is_valid(&address, &[0; COOKIE_BYTES]));
        cookies.rotate(&mut random, COOKIE_NANOS);
        assert!(cookies.is_valid(&address, &given));
        cookies.rotate(&mut random, 2 * COOKIE_NANOS);
        assert!(!cookies.is_valid(&address, &given));
    }

    #[test]
    fn datagrams_need_the_key() {
        let (key, other) = (DatagramKey::new(&[1; 32]), DatagramKey::new(&[2; 32]));
        let mut datagram = b"message".to_vec();
        authenticate(Some(&key), &mut datagram);
        assert_eq!(authenticated(Some(&key), &datagram), Some(&b"message"[..]));
        assert_eq!(authenticated(Some(&other), &datagram), None);
        assert_eq!(authenticated(Some(&key), &datagram[1..]), None);
        assert_eq!(authenticated(Some(&key), b"short"), None);
        assert_eq!(authenticated(None, b"short"), Some(&b"short"[..]));
    }

    #[test]
    fn both_ends_share_a_secret() {
        let (source, receiver) = (KeyPair::new([1; 32]), KeyPair::new([2; 32]));
        let content = ContentId([3; 32]);
        let keys = SessionKeys { receiver: receiver.public(), source: source.public(), content };
        let at_source = source.shared(receiver.public(), keys);
        let at_receiver = receiver.shared(source.public(), keys);
        let place = SealPlace { segment: 4, part: 0 };
        let mut bytes = *b"checks";
        let tag = at_source.seal(place, &mut bytes);
        assert_ne!(&bytes, b"checks");
        assert!(!at_receiver.open(SealPlace { segment: 5, part: 0 }, &mut bytes.clone(), &tag));
        assert!(at_receiver.open(place, &mut bytes, &tag));
        assert_eq!(&bytes, b"checks");
    }
}
