//! Sources of coding coefficients.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use recoded_gf::FieldOrder;

use crate::TinyMt32;
use crate::rlnc::Error;

/// A source of coefficients. Implement it for custom coefficients.
pub trait Generator {
    /// Overwrites `row` with elements of `field`, one per symbol present, not all of them zero.
    fn fill(&mut self, field: FieldOrder, row: &mut [u8]);
}

/// Draws a coding vector over the first `present` symbols; the others get zero.
///
/// # Errors
/// [`Error::Present`] unless `present` is in 1..=`vector.len()`; [`Error::ZeroVector`] and
/// [`Error::OutsideField`] when a generator breaks its contract, which those of this module do not.
pub fn draw(
    generator: &mut impl Generator,
    field: FieldOrder,
    present: usize,
    vector: &mut [u8],
) -> Result<(), Error> {
    if !(1..=vector.len()).contains(&present) {
        return Err(Error::Present { present, size: vector.len() });
    }
    let (row, absent) = vector.split_at_mut(present);
    generator.fill(field, row);
    absent.fill(0);
    check_vector(field, row)
}

/// # Errors
/// [`Error::ZeroVector`] and [`Error::OutsideField`].
pub(super) fn check_vector(field: FieldOrder, vector: &[u8]) -> Result<(), Error> {
    if is_zero(vector) {
        return Err(Error::ZeroVector);
    }
    match vector.iter().find(|&&element| field.index_of(element).is_none()) {
        Some(&element) => Err(Error::OutsideField { element, field }),
        None => Ok(()),
    }
}

/// The share of nonzero coefficients.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Density {
    /// A coefficient is nonzero when a random word is at most this; `None` if all elements of the
    /// field are equally likely, zero included.
    threshold: Option<u32>,
}

impl Density {
    /// Every element of the field with the same probability: the subject of the theory of dense
    /// codes.
    pub const UNIFORM: Density = Density { threshold: None };

    /// Each coefficient is nonzero with probability `share`, and then uniform over the others. A
    /// zero vector gets one nonzero coefficient at a random place.
    ///
    /// # Errors
    /// [`Error::Density`] unless `share` is above 0 and at most 1.
    pub fn share(share: f64) -> Result<Density, Error> {
        if !(share > 0.0 && share <= 1.0) {
            return Err(Error::Density { share });
        }
        // At most 2^32 words of 2^32 are at or below the threshold, at least one is.
        let words = (share * 4_294_967_296.0).ceil() as u64;
        Ok(Density { threshold: Some((words - 1) as u32) })
    }

    fn fill(self, field: FieldOrder, row: &mut [u8], mut word: impl FnMut() -> u32) {
        match self.threshold {
            _ if row.is_empty() => {}
            None => fill_uniform(field, row, word),
            Some(threshold) => fill_sparse(field, threshold, row, &mut word),
        }
    }
}

/// Random coefficients, dense or sparse. Equal seeds give equal coefficients.
#[derive(Clone, Debug)]
pub struct Random {
    // ChaCha is not linear over GF(2): a shift-register generator caps the rank at its state bits.
    words: ChaCha8Rng,
    density: Density,
}

impl Random {
    /// Dense coefficients. Use another seed for each start of a program.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { words: ChaCha8Rng::seed_from_u64(seed), density: Density::UNIFORM }
    }

    /// Changes the density, from the next vector on.
    pub fn set_density(&mut self, density: Density) {
        self.density = density;
    }
}

impl Generator for Random {
    fn fill(&mut self, field: FieldOrder, row: &mut [u8]) {
        if self.density != Density::UNIFORM {
            return self.density.fill(field, row, || self.words.next_u32());
        }
        // Bytes instead of words: all elements are equally likely either way.
        while !row.is_empty() {
            self.words.fill_bytes(row);
            row.iter_mut().for_each(|element| *element = field.embed(*element));
            if !is_zero(row) {
                break;
            }
        }
    }
}

/// The coefficients of a 32-bit seed, the same at both ends: words of TinyMT32 (RFC 8682), whose
/// *top* bits are the index of an element of the field.
///
/// Low bits do not work: the lowest bit of a word is linear over GF(2) in 127 bits of state, so
/// vectors of more than 127 coefficients of GF(2) would never reach full rank.
///
/// A seed is valid until the first recoding; from there on the packet must carry the vector. RFC
/// 8682 forbids cryptographic use of TinyMT32: coefficients are predictable, and an attacker who
/// changes a seed in flight corrupts a generation, so packets need authentication.
#[derive(Clone, Debug)]
pub struct Seeded {
    words: TinyMt32,
    density: Density,
}

impl Seeded {
    /// The generator of one packet. The vector also depends on the density, the field and the
    /// number of symbols present, which both ends must know.
    #[must_use]
    pub fn new(seed: u32, density: Density) -> Self {
        Self { words: TinyMt32::new(seed), density }
    }
}

impl Generator for Seeded {
    fn fill(&mut self, field: FieldOrder, row: &mut [u8]) {
        self.density.fill(field, row, || self.words.next_u32());
    }
}

/// One word per coefficient; redrawn from the next words if all are zero.
fn fill_uniform(field: FieldOrder, row: &mut [u8], mut word: impl FnMut() -> u32) {
    loop {
        row.iter_mut().for_each(|element| *element = field.embed(top_bits(word(), field.bits())));
        if !is_zero(row) {
            return;
        }
    }
}

/// One word per coefficient decides whether it is zero, another one selects the nonzero element.
fn fill_sparse(field: FieldOrder, threshold: u32, row: &mut [u8], word: &mut impl FnMut() -> u32) {
    for element in row.iter_mut() {
        *element = if word() <= threshold { non_zero(field, word()) } else { 0 };
    }
    if is_zero(row) {
        let place = scaled(word(), row.len());
        row[place] = non_zero(field, word());
    }
}

fn non_zero(field: FieldOrder, word: u32) -> u8 {
    field.embed(1 + scaled(word, usize::from(field.order()) - 1) as u8)
}

/// A number below `limit` (at most 1024), each equally likely to within 2^-22.
fn scaled(word: u32, limit: usize) -> usize {
    ((u64::from(word) * limit as u64) >> 32) as usize
}

fn top_bits(word: u32, bits: u32) -> u8 {
    (word >> (32 - bits)) as u8
}

fn is_zero(row: &[u8]) -> bool {
    row.iter().all(|&element| element == 0)
}
