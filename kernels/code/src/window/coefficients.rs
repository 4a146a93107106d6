//! Coding coefficients from a repair key (RFC 8681 section 3.6, figure 3).

use super::Scheme;
use crate::TinyMt32;

/// The reason why a number is no density threshold.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("density threshold {0}: not in 0..=15")]
pub struct DensityError(
    /// The given number.
    pub u8,
);

/// DT, the density threshold: a coefficient is nonzero with probability (DT + 1) / 16.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Density(u8);

impl Density {
    /// No coefficient is zero.
    pub const FULL: Self = Self(15);

    /// The threshold `threshold`.
    ///
    /// # Errors
    /// It is above 15.
    pub const fn new(threshold: u8) -> Result<Self, DensityError> {
        if threshold > 15 { Err(DensityError(threshold)) } else { Ok(Self(threshold)) }
    }

    /// The threshold in the low four bits, as in a Repair FEC Payload ID.
    pub(super) const fn from_low_bits(bits: u8) -> Self {
        Self(bits & 0xF)
    }

    /// The number, 0 to 15.
    #[must_use]
    pub const fn threshold(self) -> u8 {
        self.0
    }
}

/// Fills `out` with the coefficients of the source symbols of a window, oldest first: elements of
/// GF(256), for [`Scheme::Gf2`] 0 or 1.
///
/// This is `generate_coding_coefficients` of RFC 8681 section 3.6.
pub fn coding_coefficients(scheme: Scheme, repair_key: u16, density: Density, out: &mut [u8]) {
    let mut generator = TinyMt32::new(u32::from(repair_key));
    let is_full = density == Density::FULL;
    match scheme {
        Scheme::Gf2 if is_full => out.fill(1),
        Scheme::Gf2 => out.fill_with(|| u8::from(generator.rand16() <= density.0)),
        // No draw decides on zero here, so that the sequence differs from that of any other DT.
        Scheme::Gf256 if is_full => out.fill_with(|| nonzero(&mut generator)),
        Scheme::Gf256 => {
            out.fill_with(
                || {
                    if generator.rand16() <= density.0 { nonzero(&mut generator) } else { 0 }
                },
            )
        }
    }
}

/// A nonzero element, by rejection.
fn nonzero(generator: &mut TinyMt32) -> u8 {
    loop {
        let element = generator.rand256();
        if element != 0 {
            return element;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Density, Scheme, coding_coefficients};

    fn value<'a>(case: &'a str, name: &str) -> &'a str {
        let mut fields = case.split_whitespace().filter_map(|field| field.split_once('='));
        fields.find(|field| field.0 == name).expect("a field of the case").1
    }

    /// Keys {0, 1, 2, 255, 65535}, DT {15, 7, 0}, both fields.
    #[test]
    fn coefficients_match_derived_vectors() {
        let vectors = include_str!("../../tests/vectors/rfc8681_gen_coeffs_derived.txt");
        assert_eq!(vectors.lines().count(), 30);
        for line in vectors.lines() {
            let (case, numbers) = line.split_once(" : ").expect("a case and its coefficients");
            let expected: Vec<u8> =
                numbers.split(' ').map(|n| n.parse().expect("a byte")).collect();
            let scheme = if value(case, "m") == "1" { Scheme::Gf2 } else { Scheme::Gf256 };
            let density = Density::new(value(case, "dt").parse().expect("DT")).expect("0..=15");
            let mut coefficients = vec![0xAA; value(case, "n").parse().expect("a length")];
            let key = value(case, "key").parse().expect("a key");
            coding_coefficients(scheme, key, density, &mut coefficients);
            assert_eq!(coefficients, expected, "{case}");
        }
    }

    #[test]
    fn density_is_what_the_threshold_says() {
        for (scheme, threshold) in [Scheme::Gf2, Scheme::Gf256].into_iter().zip([3, 11]) {
            let density = Density::new(threshold).expect("0..=15");
            let mut coefficients = [0; 4095];
            coding_coefficients(scheme, 7, density, &mut coefficients);
            let nonzero = coefficients.iter().filter(|&&c| c != 0).count() as f64 / 4095.0;
            let expected = (f64::from(threshold) + 1.0) / 16.0;
            assert!((nonzero - expected).abs() < 0.04, "{nonzero} instead of {expected}");
        }
        assert!(Density::new(16).is_err());
    }
}
