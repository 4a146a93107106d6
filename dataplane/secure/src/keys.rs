//! Curve25519 keys and pre-shared keys, in the text form of WireGuard: 32 bytes in base64.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use curve25519_dalek::MontgomeryPoint;
use zeroize::Zeroizing;

use crate::error::KeyError;
use crate::secret::Secret;

/// Fresh random bytes for one handshake, one key or one secret. Never use it twice: two handshakes
/// with the same entropy have the same ephemeral key.
#[derive(Debug)]
pub struct Entropy(Secret<64>);

impl Entropy {
    /// From the random generator of Linux.
    ///
    /// # Errors
    /// The system call fails.
    pub fn fresh() -> Result<Self, getrandom::Error> {
        let mut bytes = Secret::new([0; 64]);
        getrandom::fill(bytes.expose_mut())?;
        Ok(Self(bytes))
    }

    /// From a generator of the caller, for repeatable simulations.
    #[must_use]
    pub const fn new(bytes: [u8; 64]) -> Self {
        Self(Secret::new(bytes))
    }

    /// The first half: a private key, a salt.
    pub(crate) fn key(&self) -> Secret<32> {
        Secret::new(self.part(0))
    }

    /// `N` bytes of the second half, starting at its byte `at`.
    pub(crate) fn extra<const N: usize>(&self, at: usize) -> [u8; N] {
        self.part(32 + at)
    }

    fn part<const N: usize>(&self, at: usize) -> [u8; N] {
        *self.0.expose()[at..].first_chunk().expect("callers stay within 64 bytes")
    }
}

/// The private half of a pair.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PrivateKey(Secret<32>);

impl PrivateKey {
    /// A new key, clamped as RFC 7748 specifies.
    #[must_use]
    pub fn generate(entropy: &Entropy) -> Self {
        Self(Secret::new(curve25519_dalek::scalar::clamp_integer(*entropy.key().expose())))
    }

    /// The public half.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        PublicKey(MontgomeryPoint::mul_base_clamped(*self.0.expose()).to_bytes())
    }

    /// The secret that this key and a public one have in common (RFC 7748, section 6.1). It never
    /// changes, so it identifies two nodes but gives no forward secrecy.
    pub(crate) fn shared_with(&self, peer: &PublicKey) -> Secret<32> {
        Secret::new(MontgomeryPoint(peer.0).mul_clamped(*self.0.expose()).to_bytes())
    }

    /// The key in base64.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        to_text(&self.0)
    }

    pub(crate) fn bytes(&self) -> &[u8; 32] {
        self.0.expose()
    }
}

impl FromStr for PrivateKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        secret_from_text(text).map(Self)
    }
}

/// A key that two neighbours share in addition to their pairs; all zeros is none, as in WireGuard.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PresharedKey(Secret<32>);

impl PresharedKey {
    /// A new key.
    #[must_use]
    pub fn generate(entropy: &Entropy) -> Self {
        Self(entropy.key())
    }

    /// The key that stands for none.
    #[must_use]
    pub const fn none() -> Self {
        Self(Secret::new([0; 32]))
    }

    /// The key in base64.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        to_text(&self.0)
    }

    pub(crate) fn bytes(&self) -> &[u8; 32] {
        self.0.expose()
    }

    /// The secret of an epoch of a group.
    pub(crate) const fn of_group(secret: [u8; 32]) -> Self {
        Self(Secret::new(secret))
    }
}

impl FromStr for PresharedKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        secret_from_text(text).map(Self)
    }
}

/// The public half of a pair; never a point of small order.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey([u8; 32]);

impl PublicKey {
    /// A key from its bytes.
    ///
    /// # Errors
    /// The point has a small order: any private key multiplies it to zero.
    //= docs/protocol §3.1(c)
    pub fn new(bytes: [u8; 32]) -> Result<Self, KeyError> {
        // Clamped scalars are multiples of the cofactor.
        let product = MontgomeryPoint(bytes).mul_clamped([1; 32]);
        if product.to_bytes() == [0; 32] { Err(KeyError::SmallOrder) } else { Ok(Self(bytes)) }
    }

    /// The 32 bytes.
    #[must_use]
    pub const fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl FromStr for PublicKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::new(*secret_from_text(text)?.expose())
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&STANDARD.encode(self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "PublicKey({self})")
    }
}

fn to_text(secret: &Secret<32>) -> Zeroizing<String> {
    Zeroizing::new(STANDARD.encode(secret.expose()))
}

fn secret_from_text(text: &str) -> Result<Secret<32>, KeyError> {
    // One byte more than a key has: the size of 44 characters without `=`.
    let mut bytes = Zeroizing::new([0; 33]);
    let length = STANDARD.decode_slice(text.trim(), &mut *bytes).map_err(|_| KeyError::Text)?;
    match bytes[..length].first_chunk() {
        Some(key) if length == 32 => Ok(Secret::new(*key)),
        _ => Err(KeyError::Text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    //= RFC 7748 section 6.1: the key pairs of Alice and Bob
    #[test]
    fn public_half_matches_rfc_7748() {
        let private: PrivateKey =
            "dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo=".parse().expect("a key");
        let public = private.public().to_string();
        assert_eq!(public, "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=");
        assert_eq!(&*private.to_text(), "dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo=");
    }

    #[test]
    fn generated_keys_survive_their_text_form_and_are_clamped() {
        let key = PrivateKey::generate(&Entropy::new([0xFF; 64]));
        assert_eq!(key.to_text().parse::<PrivateKey>().expect("a key"), key);
        assert_eq!((key.bytes()[0], key.bytes()[31]), (0xF8, 0x7F));
        let psk = PresharedKey::generate(&Entropy::new([7; 64]));
        assert_eq!(psk.to_text().parse::<PresharedKey>().expect("a key"), psk);
    }

    #[test]
    fn texts_of_other_lengths_and_alphabets_are_refused() {
        for text in ["", "AAAA", &"A".repeat(44), &"A".repeat(42), &format!("{}_=", "A".repeat(42))]
        {
            assert!(matches!(text.parse::<PrivateKey>(), Err(KeyError::Text)), "{text}");
        }
    }

    //= docs/protocol §3.1(c)
    #[test]
    fn public_keys_of_small_order_are_refused() {
        let mut one = [0; 32];
        one[0] = 1;
        for bytes in [[0; 32], one] {
            assert!(matches!(PublicKey::new(bytes), Err(KeyError::SmallOrder)));
        }
    }

    #[test]
    fn debug_of_keys_shows_no_secret() {
        let key = PrivateKey::generate(&Entropy::new([0x5A; 64]));
        let shown = format!("{key:?} {:?}", PresharedKey::generate(&Entropy::new([0x5A; 64])));
        assert_eq!(shown, "PrivateKey(Secret(32 bytes)) PresharedKey(Secret(32 bytes))");
    }
}
