//! Keys from keys: HKDF-SHA256 (RFC 5869), one label per use.
//!
//! ```text
//!  PRK = HKDF-Extract(salt, secret)
//!  key = HKDF-Expand(PRK, "recoded v2 " || label || 0x00 || context, its length)
//! ```
//!
//! | label | context | bytes | for |
//! |---|---|---|---|
//! | `hop tag` | lane, 2 bytes | 16 | SipHash of a lane |
//! | `hop digest` | - | 16 | AES-128 of the digest |
//! | `envelope` | suite, 1 byte | 32 | AEAD; AES-128-GCM takes the first 16 |
//! | `column` | column, 1 byte | 32 | seed of a column of homomorphic tags |
//! | `factors`, `masks` | - | 16 | AES-128, from the seed of a column (PRK with an empty salt) |
//! | `opening` | way, see `one_way` | 32 | BLAKE2s over openings of one-way paths |

use hkdf::Hkdf;
use sha2::Sha256;

use crate::envelope::{Opener, Sealer, Suite};
use crate::secret::Secret;

/// Prefix of every label.
pub const LABEL_PREFIX: &str = "recoded v2 ";

/// The secret of one direction of one epoch. Its keys are derived from it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Secrets(Secret<32>);

impl Secrets {
    /// `secret` is unknown to attackers, `salt` is fresh.
    #[must_use]
    pub fn extract(salt: &[u8], secret: &[u8; 32]) -> Self {
        let (key, _) = Hkdf::<Sha256>::extract(Some(salt), secret);
        Self(Secret::new(key.into()))
    }

    /// The key of a label and a context.
    #[must_use]
    pub fn key<const N: usize>(&self, label: &str, context: &[u8]) -> Secret<N> {
        let hkdf = Hkdf::<Sha256>::from_prk(self.0.expose()).expect("a PRK is as long as a hash");
        let mut key = Secret::new([0; N]);
        let info = [LABEL_PREFIX.as_bytes(), label.as_bytes(), &[0], context];
        hkdf.expand_multi_info(&info, key.expose_mut()).expect("keys are shorter than 255 hashes");
        key
    }

    /// Seals source packets; `key_id` identifies the key to the receiver.
    #[must_use]
    pub fn sealer(&self, suite: Suite, key_id: u8) -> Sealer {
        Sealer::new(suite, &self.key("envelope", &[suite.code()]), key_id)
    }

    /// Opens packets sealed by the [`Sealer`] of the same direction. `window` is how many packets
    /// may be late, in packets.
    #[must_use]
    pub fn opener(&self, suite: Suite, window: usize) -> Opener {
        Opener::new(suite, &self.key("envelope", &[suite.code()]), window)
    }

    /// The PRK itself, for test vectors.
    #[must_use]
    pub fn expose(&self) -> &[u8; 32] {
        self.0.expose()
    }
}
