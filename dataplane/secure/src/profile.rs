//! Protection of a flow's packets by its ends, as one byte of handshakes, openings and group
//! messages.
//!
//! ```text
//! profile = 0x80 where tags of symbols have 16 columns, not 8 || suite (7 bits)
//! ```
//!
//! Ends agree on a suite, and refuse each other if the strengths differ: the length of a tag is
//! part of the size of every symbol, which both are configured with.

use crate::envelope::Suite;
use crate::error::Refused;
use crate::homomorphic::Strength;

/// The bit of [`Strength::Strict`].
pub(crate) const STRICT: u8 = 0x80;

/// The AEAD of envelopes, and the number of columns of symbol tags.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Profile {
    /// Suite for source packets.
    pub suite: Suite,
    /// Strength of tags. Hops have no such tags, and use [`Strength::Standard`].
    pub strength: Strength,
}

impl From<Suite> for Profile {
    /// A profile with tags of eight columns.
    fn from(suite: Suite) -> Self {
        Self { suite, strength: Strength::Standard }
    }
}

impl Profile {
    /// The byte.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self.strength {
            Strength::Standard => self.suite.code(),
            Strength::Strict => self.suite.code() | STRICT,
        }
    }

    /// The profile of a byte.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        let strength = if code & STRICT == 0 { Strength::Standard } else { Strength::Strict };
        Some(Self { suite: Suite::from_code(code & !STRICT)?, strength })
    }

    /// The profile of a byte, if it has this strength.
    ///
    /// # Errors
    /// The byte is invalid, or of another strength.
    //= docs/protocol §3.1(f)
    pub(crate) fn required(code: u8, strength: Strength) -> Result<Self, Refused> {
        let profile = Self::from_code(code).ok_or(Refused::Malformed)?;
        if profile.strength == strength { Ok(profile) } else { Err(Refused::Strength) }
    }
}
