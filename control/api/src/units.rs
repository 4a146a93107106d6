//! Durations and rates with their unit: `20 ms`, `50 Mbit/s`.
//!
//! Place: off the packet path. The daemon's parser and `recodectl` read both here, so that one
//! spelling works everywhere. Numbers are decimal and exact: no sign, no exponent, no rounding.

/// Why a text is no quantity.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}", self.verdict())]
pub enum UnitError {
    /// Its number is negative.
    Negative,
    /// It does not begin with a number.
    Number,
    /// There is nothing behind the number.
    NoUnit,
    /// The word behind the number is no unit of this quantity.
    Unit,
    /// It is finer than the smallest unit.
    Fine,
    /// It does not fit any range.
    Range,
}

impl UnitError {
    /// The error as the verdict of a message that names the value first.
    pub const fn verdict(self) -> &'static str {
        match self {
            UnitError::Negative => "is negative",
            UnitError::Number => "does not begin with a number",
            UnitError::NoUnit => "has no unit",
            UnitError::Unit => "has an unknown unit",
            UnitError::Fine => "has too many decimals",
            UnitError::Range => "is out of range",
        }
    }
}

/// Units of durations, in nanoseconds. The micro sign has two code points.
const DURATIONS: [(&str, u64); 9] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Units of rates, in bits per second. Bytes are refused: `MB` is too easily taken for `Mb`.
const RATES: [(&str, u64); 4] =
    [("bit/s", 1), ("kbit/s", 1_000), ("Mbit/s", 1_000_000), ("Gbit/s", 1_000_000_000)];

/// The units of durations, for messages.
pub const DURATION_UNITS: &str = "ns, us, ms, s, min or h";

/// The units of rates, for messages.
pub const RATE_UNITS: &str = "bit/s, kbit/s, Mbit/s or Gbit/s";

/// Digits of a number at most: more fit no range, and this many cannot overflow.
const DIGITS_MAX: usize = 18;

/// Nanoseconds of a duration such as `20 ms` or `1.5s`.
///
/// # Errors
/// The text is no duration.
pub fn nanoseconds(text: &str) -> Result<u64, UnitError> {
    quantity(text, &DURATIONS)
}

/// Bits per second of a rate such as `50 Mbit/s`.
///
/// # Errors
/// The text is no rate.
pub fn bits_per_second(text: &str) -> Result<u64, UnitError> {
    quantity(text, &RATES)
}

/// A number with one of these units, in the smallest of them.
fn quantity(text: &str, units: &[(&str, u64)]) -> Result<u64, UnitError> {
    let text = text.trim();
    if text.strip_prefix('-').is_some_and(|rest| rest.starts_with(|it: char| it.is_ascii_digit())) {
        return Err(UnitError::Negative);
    }
    let ends = text.find(|it: char| !it.is_ascii_digit() && it != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(ends);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || fraction.contains('.') || number.ends_with('.') {
        return Err(UnitError::Number);
    }
    let unit = unit.trim_start();
    if unit.is_empty() {
        return Err(UnitError::NoUnit);
    }
    let known = units.iter().find(|(name, _)| *name == unit);
    let (_, factor) = known.ok_or(UnitError::Unit)?;
    if whole.len() + fraction.len() > DIGITS_MAX {
        return Err(if whole.len() > DIGITS_MAX { UnitError::Range } else { UnitError::Fine });
    }
    let digits: u128 = format!("{whole}{fraction}").parse().map_err(|_| UnitError::Number)?;
    let divisor = 10_u128.pow(u32::try_from(fraction.len()).unwrap_or(0));
    let product = digits * u128::from(*factor);
    if !product.is_multiple_of(divisor) {
        return Err(UnitError::Fine);
    }
    u64::try_from(product / divisor).map_err(|_| UnitError::Range)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_exact_with_and_without_a_blank() {
        for (text, expected) in [
            ("20 ms", 20_000_000),
            ("20ms", 20_000_000),
            (" 1.5 s ", 1_500_000_000),
            ("0.001 us", 1),
            ("7 \u{b5}s", 7_000),
            ("0 s", 0),
            ("5m", 300_000_000_000),
            ("2 min", 120_000_000_000),
            ("24 h", 86_400_000_000_000),
        ] {
            assert_eq!(nanoseconds(text), Ok(expected), "{text}");
        }
        assert_eq!(bits_per_second("50 Mbit/s"), Ok(50_000_000));
        assert_eq!(bits_per_second("0.1 Gbit/s"), Ok(100_000_000));
        assert_eq!(bits_per_second("1.2345 kbit/s"), Err(UnitError::Fine));
    }

    #[test]
    fn each_mistake_has_its_error() {
        for (text, expected) in [
            ("", UnitError::Number),
            ("ms", UnitError::Number),
            ("-5 ms", UnitError::Negative),
            ("-ms", UnitError::Number),
            ("+5 ms", UnitError::Number),
            ("NaN ms", UnitError::Number),
            ("inf s", UnitError::Number),
            (".5 s", UnitError::Number),
            ("5. s", UnitError::Number),
            ("1.2.3 s", UnitError::Number),
            ("20", UnitError::NoUnit),
            ("20 ", UnitError::NoUnit),
            ("20 parsecs", UnitError::Unit),
            ("20 MS", UnitError::Unit),
            ("1e3 ms", UnitError::Unit),
            ("20 ms 5 us", UnitError::Unit),
            ("20 Mbit/s", UnitError::Unit),
            ("1.5 ns", UnitError::Fine),
            ("0.0000000000000000000000001 s", UnitError::Fine),
            ("99999999999999999999999999999999 s", UnitError::Range),
            ("999999999999999999 h", UnitError::Range),
        ] {
            assert_eq!(nanoseconds(text), Err(expected), "{text}");
            assert_eq!(expected.verdict(), expected.to_string());
        }
        for text in ["5 MB/s", "5 Mbps", "5 mbit/s", "5 Mbit", "20 ms"] {
            assert_eq!(bits_per_second(text), Err(UnitError::Unit), "{text}");
        }
    }
}
