//! Sums of carry-less products of 64-bit words: a universal hash of whole packets.

use std::sync::OnceLock;

use crate::arch::carry_less::{Available, WAYS};

/// One method to add up carry-less products that this CPU has; all give the same sum.
///
/// ```
/// use recoded_gf::CarryLess;
///
/// // (x + 1) (x^2 + 1) = x^3 + x^2 + x + 1: words 3 and 5 of the message, and a key of zeros.
/// let (key, message) = ([0; 16], [3, 0, 0, 0, 0, 0, 0, 0, 5]);
/// assert_eq!(CarryLess::best().sum(&key, &message), 0b1111);
/// ```
#[derive(Copy, Clone)]
pub struct CarryLess(Available);

impl CarryLess {
    /// The fastest method that this CPU has.
    #[must_use]
    pub fn best() -> Self {
        static BEST: OnceLock<CarryLess> = OnceLock::new();
        *BEST.get_or_init(|| Self::all_available().last().unwrap_or(Self(Available::PORTABLE)))
    }

    /// All methods that this CPU has, slowest first.
    pub fn all_available() -> impl Iterator<Item = Self> {
        WAYS.iter().filter_map(|way| way.detect()).map(Self)
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.0.way().name
    }

    /// The sum over i of (m[2 i] + k[2 i]) (m[2 i + 1] + k[2 i + 1]), polynomials over GF(2): words
    /// of 64 bits, little-endian, of a message, zero-padded to a whole pair of words, and of a key.
    /// For a random key, two messages of one length differ by a given sum with probability 2^-64 at
    /// most (CLNH: Lemire and Kaser, *Faster 64-bit universal hashing using carry-less
    /// multiplications*, 2015). The time it takes depends only on the length.
    ///
    /// # Panics
    /// When the key is shorter than the padded message.
    #[inline]
    #[must_use]
    pub fn sum(self, key: &[u8], message: &[u8]) -> u128 {
        let padded = message.len().next_multiple_of(16);
        assert!(key.len() >= padded, "a key of {} bytes for {padded}", key.len());
        self.0.sum(&key[..padded], message)
    }
}
