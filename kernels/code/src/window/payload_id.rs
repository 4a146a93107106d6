//! The RFC 8681 fields around symbols on the wire, and the parameters that both ends agree on.

use std::fmt;
use std::str::FromStr;

use super::Density;

/// Bytes of the Explicit Source FEC Payload ID, at the end of a source packet.
pub const SOURCE_ID_BYTES: usize = 4;

/// Bytes of the Repair FEC Payload ID, at the start of a repair packet.
pub const REPAIR_ID_BYTES: usize = 8;

/// The Repair FEC Payload ID (RFC 8681 section 4.1.3, figure 8).
///
/// ```text
///  0               16      20                      32
/// +---------------+-------+-----------------------+
/// |  Repair_Key   |  DT   |          NSS          |
/// +---------------+-------+-----------------------+
/// |                    FSS_ESI                    |
/// +-----------------------------------------------+
/// ```
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RepairId {
    /// Seed of the coefficients of the packet's first repair symbol; the next ones count on.
    pub key: u16,
    /// DT of the coefficients.
    pub density: Density,
    /// NSS, source symbols in the encoding window: 0 to 4095; 0 is no valid window.
    pub source_symbols: u16,
    /// FSS_ESI, the ESI of the first of them.
    pub first: u32,
}

impl RepairId {
    /// The wire format, every field with its most significant byte first. NSS is cut to 12 bits.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; REPAIR_ID_BYTES] {
        let [k0, k1] = self.key.to_be_bytes();
        let word = ((self.density.threshold() as u16) << 12) | (self.source_symbols & 0xFFF);
        let [d0, d1] = word.to_be_bytes();
        let [e0, e1, e2, e3] = self.first.to_be_bytes();
        [k0, k1, d0, d1, e0, e1, e2, e3]
    }

    /// Reads what [`RepairId::to_bytes`] wrote. Any eight bytes are an ID.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; REPAIR_ID_BYTES]) -> Self {
        let [k0, k1, d0, d1, e0, e1, e2, e3] = bytes;
        Self {
            key: u16::from_be_bytes([k0, k1]),
            density: Density::from_low_bits(d0 >> 4),
            source_symbols: u16::from_be_bytes([d0 & 0xF, d1]),
            first: u32::from_be_bytes([e0, e1, e2, e3]),
        }
    }
}

/// The FEC Scheme-Specific Information (RFC 8681 section 4.1.1.2).
///
/// The text form is that of SDP: `E:1400,WSR:191`.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct SchemeInformation {
    /// E, bytes of a symbol.
    pub symbol_bytes: u16,
    /// WSR: encoding window to decoding window, in 255ths; 0 means unspecified.
    pub window_size_ratio: u8,
}

impl SchemeInformation {
    /// The opaque form of three octets (figure 4).
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 3] {
        let [e0, e1] = self.symbol_bytes.to_be_bytes();
        [e0, e1, self.window_size_ratio]
    }

    /// Reads what [`SchemeInformation::to_bytes`] wrote.
    #[must_use]
    pub const fn from_bytes([e0, e1, window_size_ratio]: [u8; 3]) -> Self {
        Self { symbol_bytes: u16::from_be_bytes([e0, e1]), window_size_ratio }
    }

    /// The decoding window for the longest encoding window seen and this ratio (RFC 8681 appendix
    /// C.1): `source_symbols * 255 / WSR`, rounded up. `None` for a ratio of 0.
    #[must_use]
    pub fn decoding_window(self, source_symbols: usize) -> Option<usize> {
        let ratio = usize::from(self.window_size_ratio);
        (ratio > 0).then(|| source_symbols.saturating_mul(255).div_ceil(ratio))
    }
}

impl fmt::Display for SchemeInformation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "E:{},WSR:{}", self.symbol_bytes, self.window_size_ratio)
    }
}

/// A text that is no FEC Scheme-Specific Information.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{text:?} is not of the form E:1400,WSR:191")]
pub struct ParseInformationError {
    /// The text.
    pub text: String,
}

impl FromStr for SchemeInformation {
    type Err = ParseInformationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let (symbol_bytes, ratio) = text.strip_prefix("E:")?.split_once(",WSR:")?;
            Some(Self {
                symbol_bytes: symbol_bytes.parse().ok()?,
                window_size_ratio: ratio.parse().ok()?,
            })
        };
        parse().ok_or_else(|| ParseInformationError { text: text.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::{Density, RepairId, SchemeInformation};

    /// RFC 8681 figure 8, by hand.
    #[test]
    fn repair_id_has_the_layout_of_the_rfc() {
        let id = RepairId {
            key: 0x1234,
            density: Density::new(11).expect("0..=15"),
            source_symbols: 0x5A7,
            first: 0x89AB_CDEF,
        };
        assert_eq!(id.to_bytes(), [0x12, 0x34, 0xB5, 0xA7, 0x89, 0xAB, 0xCD, 0xEF]);
        assert_eq!(RepairId::from_bytes(id.to_bytes()), id);
    }

    /// RFC 8681 section 4.1.1.2 and figure 4.
    #[test]
    fn scheme_information_has_the_forms_of_the_rfc() {
        let information = SchemeInformation { symbol_bytes: 1400, window_size_ratio: 191 };
        assert_eq!(information.to_bytes(), [0x05, 0x78, 191]);
        assert_eq!(SchemeInformation::from_bytes([0x05, 0x78, 191]), information);
        assert_eq!(information.to_string(), "E:1400,WSR:191");
        assert_eq!("E:1400,WSR:191".parse(), Ok(information));
        assert!("E:70000,WSR:1".parse::<SchemeInformation>().is_err());
        assert!("E:1400".parse::<SchemeInformation>().is_err());
        assert_eq!(information.decoding_window(18), Some(25));
    }
}
