//! The content of a symbol's bytes: the finite fields a kernel computes over.
//!
//! A product by a constant is a linear map of the eight bits of a byte in all of them, so the same
//! routines serve all of them with other constants (`table.rs`).

use core::fmt;
use core::str::FromStr;

/// A finite field and how its elements lie in the bytes of a symbol. The reduction polynomial is
/// part of the name.
///
/// [`FieldOrder`](crate::FieldOrder) is different: the subfield that *coefficients* are drawn from
/// while symbols stay bytes of [`Field::Gf256x11D`].
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub enum Field {
    /// GF(256) modulo x^8 + x^4 + x^3 + x^2 + 1 (0x11D), one element a byte: RFC 6330, RFC 8681,
    /// RFC 9426, and the whole wire format. It contains GF(2), GF(4) and GF(16).
    #[default]
    Gf256x11D,
    /// GF(256) modulo x^8 + x^4 + x^3 + x + 1 (0x11B), one element a byte: AES, libmoepgf, and the
    /// instruction `gf2p8mulb`.
    Gf256x11B,
    /// GF(16) modulo x^4 + x + 1 (0x13), two elements a byte, the first in the low bits:
    /// libmoepgf's. Coefficients are 0 to 15.
    PackedGf16x13,
    /// GF(4) modulo x^2 + x + 1 (0x7), four elements a byte, the first in the low bits:
    /// libmoepgf's. Coefficients are 0 to 3.
    PackedGf4x7,
    /// GF(2), eight elements a byte. Coefficients are 0 and 1.
    PackedGf2,
}

impl Field {
    /// Every field, the default one first.
    pub const ALL: [Self; 5] =
        [Self::Gf256x11D, Self::Gf256x11B, Self::PackedGf16x13, Self::PackedGf4x7, Self::PackedGf2];

    /// Number of elements, which is the number of coefficients: 2, 4, 16 or 256.
    #[inline]
    #[must_use]
    pub const fn order(self) -> u16 {
        1 << self.element_bits()
    }

    /// Bits of one element: 1, 2, 4 or 8.
    #[inline]
    #[must_use]
    pub const fn element_bits(self) -> u32 {
        match self {
            Self::Gf256x11D | Self::Gf256x11B => 8,
            Self::PackedGf16x13 => 4,
            Self::PackedGf4x7 => 2,
            Self::PackedGf2 => 1,
        }
    }

    /// The reduction polynomial with its leading term; bit i is the coefficient of x^i.
    #[inline]
    #[must_use]
    pub const fn polynomial(self) -> u16 {
        match self {
            Self::Gf256x11D => 0x11D,
            Self::Gf256x11B => 0x11B,
            Self::PackedGf16x13 => 0x13,
            Self::PackedGf4x7 => 0x7,
            Self::PackedGf2 => 0x2,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Gf256x11D => "gf256-11d",
            Self::Gf256x11B => "gf256-11b",
            Self::PackedGf16x13 => "gf16-13",
            Self::PackedGf4x7 => "gf4-7",
            Self::PackedGf2 => "gf2",
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

impl FromStr for Field {
    type Err = ParseFieldError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let named = Self::ALL.into_iter().find(|field| field.name() == text);
        named.ok_or_else(|| ParseFieldError { text: text.to_owned() })
    }
}

/// A text that names none of the fields.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{text}` is not a field: gf256-11d, gf256-11b, gf16-13, gf4-7 or gf2")]
pub struct ParseFieldError {
    /// The given text.
    pub text: String,
}
