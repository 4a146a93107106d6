//! The four coefficient fields: GF(256) modulo 0x11D and its subfields of order 2, 4 and 16.
//!
//! A coefficient of a small field is an element x of GF(256) with x^order = x, so one multiply
//! serves every field and inner codes over small fields compose with outer codes over GF(256).
//! The wire carries short indices instead. The map from index to element keeps addition *and*
//! multiplication: indices of GF(4) are the polynomials of GF(2)[x]/(x^2+x+1), those of GF(16) the
//! polynomials of GF(2)[x]/(x^4+x+1), where x stands for the numerically smallest root in GF(256).

use core::fmt;
use core::str::FromStr;

use crate::field::Field;
use crate::table::mul_elements;

/// The order (number of elements) of a coefficient field.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FieldOrder {
    /// GF(2): coefficients 0 and 1, coding is XOR.
    Two,
    /// GF(4).
    Four,
    /// GF(16).
    Sixteen,
    /// GF(256).
    TwoFiftySix,
}

impl FieldOrder {
    /// Every field, smallest first.
    pub const ALL: [Self; 4] = [Self::Two, Self::Four, Self::Sixteen, Self::TwoFiftySix];

    /// Number of elements: 2, 4, 16 or 256.
    #[inline]
    #[must_use]
    pub const fn order(self) -> u16 {
        1 << self.bits()
    }

    /// Bits of one index: 1, 2, 4 or 8.
    #[inline]
    #[must_use]
    pub const fn bits(self) -> u32 {
        1 << self.code()
    }

    /// The field with `order` elements, if it is one of the four.
    #[must_use]
    pub const fn from_order(order: u16) -> Option<Self> {
        match order {
            2 => Some(Self::Two),
            4 => Some(Self::Four),
            16 => Some(Self::Sixteen),
            256 => Some(Self::TwoFiftySix),
            _ => None,
        }
    }

    /// The field of a two-bit wire code: 0, 1, 2, 3 stand for order 2, 4, 16, 256.
    #[inline]
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Two),
            1 => Some(Self::Four),
            2 => Some(Self::Sixteen),
            3 => Some(Self::TwoFiftySix),
            _ => None,
        }
    }

    /// The two-bit wire code, inverse of [`FieldOrder::from_code`].
    #[inline]
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Two => 0,
            Self::Four => 1,
            Self::Sixteen => 2,
            Self::TwoFiftySix => 3,
        }
    }

    /// The element of GF(256) that a wire index stands for. Bits of `index` beyond
    /// [`FieldOrder::bits`] are ignored, so a random byte gives a uniformly random element.
    #[inline]
    #[must_use]
    pub fn embed(self, index: u8) -> u8 {
        match self {
            Self::Two => index & 1,
            Self::Four => EMBED_4[usize::from(index & 3)],
            Self::Sixteen => EMBED_16[usize::from(index & 15)],
            Self::TwoFiftySix => index,
        }
    }

    /// The wire index of an element, or `None` when it lies outside this subfield.
    #[inline]
    #[must_use]
    pub fn index_of(self, element: u8) -> Option<u8> {
        let index = match self {
            Self::Two => element,
            Self::Four => INDEX_4[usize::from(element)],
            Self::Sixteen => INDEX_16[usize::from(element)],
            Self::TwoFiftySix => return Some(element),
        };
        (u16::from(index) < self.order()).then_some(index)
    }
}

impl fmt::Display for FieldOrder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.order(), formatter)
    }
}

impl FromStr for FieldOrder {
    type Err = ParseFieldOrderError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let order = text.parse().ok().and_then(Self::from_order);
        order.ok_or_else(|| ParseFieldOrderError { text: text.to_owned() })
    }
}

/// A text that names none of the four field orders.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{text}` is not a field order: 2, 4, 16 or 256")]
pub struct ParseFieldOrderError {
    /// The given text.
    pub text: String,
}

const EMBED_4: [u8; 4] = embedding::<4>(0b111);
const EMBED_16: [u8; 16] = embedding::<16>(0b1_0011);
static INDEX_4: [u8; 256] = indices(&EMBED_4);
static INDEX_16: [u8; 256] = indices(&EMBED_16);

/// No index of a proper subfield: all of those are below 16.
const OUTSIDE: u8 = 0xFF;

/// Elements of the subfield with `N` elements in the order of their indices: index bits are the
/// coefficients of 1, x, x^2, ... at x = the smallest root of `polynomial` in GF(256).
const fn embedding<const N: usize>(polynomial: u8) -> [u8; N] {
    let mut root = 2;
    while evaluate(polynomial, root) != 0 {
        root += 1;
    }
    let mut elements = [0; N];
    let mut index = 0;
    while index < N {
        elements[index] = evaluate(index as u8, root);
        index += 1;
    }
    elements
}

/// The value at `x` of the polynomial over GF(2) whose coefficients are the bits of `polynomial`.
const fn evaluate(polynomial: u8, x: u8) -> u8 {
    let (mut power, mut sum, mut bit) = (1, 0, 0);
    while bit < 8 {
        if polynomial >> bit & 1 == 1 {
            sum ^= power;
        }
        power = mul_elements(Field::Gf256x11D, power, x);
        bit += 1;
    }
    sum
}

const fn indices(elements: &[u8]) -> [u8; 256] {
    let mut table = [OUTSIDE; 256];
    let mut index = 0;
    while index < elements.len() {
        table[elements[index] as usize] = index as u8;
        index += 1;
    }
    table
}
