//! Random batches: the procedures of RFC 9426 behind one trait.
//!
//! RFC 9426 describes a degree sampler and a batch sampler over a pseudorandom generator that both
//! ends seed with the batch id. The order of the draws below is this project's reading of it; if
//! the text turns out to differ, only this file changes.

use crate::bats::batch::{Batch, DEGREE_MAX};
use crate::tinymt32::TinyMt32;

/// Derives degree, symbols and coefficients from a batch id, the same on both ends.
pub trait Sampler {
    /// Degree of batch `id`: at most `symbols` and [`DEGREE_MAX`].
    fn degree(&self, id: u16, symbols: usize) -> usize;

    /// Fills in `batch`: `degree` different symbols of `symbols`, and a generator of `batch_size`
    /// rows with coefficients of `bits` bits.
    fn sample(&self, id: u16, degree: usize, shape: SamplerSizes, batch: &mut Batch);
}

/// The sizes that a sampler draws from.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct SamplerSizes {
    /// Intermediate symbols of the block.
    pub symbols: usize,
    /// Coded symbols of a batch.
    pub batch_size: usize,
    /// Bits of a coefficient.
    pub bits: u8,
}

/// The procedures DegreeSampler and BatchSampler of RFC 9426 with TinyMT32 (RFC 8682).
#[derive(Copy, Clone, Debug)]
pub struct Rfc9426<D> {
    degree_of: D,
}

impl<D: Fn(u32) -> usize> Rfc9426<D> {
    /// A sampler that maps uniformly random numbers to degrees by `degree_of`.
    #[must_use]
    pub const fn new(degree_of: D) -> Self {
        Self { degree_of }
    }
}

impl<D: Fn(u32) -> usize> Sampler for Rfc9426<D> {
    fn degree(&self, id: u16, symbols: usize) -> usize {
        let drawn = TinyMt32::new(u32::from(id)).next_u32();
        (self.degree_of)(drawn).clamp(1, symbols.min(DEGREE_MAX))
    }

    fn sample(&self, id: u16, degree: usize, shape: SamplerSizes, batch: &mut Batch) {
        let mut random = TinyMt32::new(u32::from(id));
        let mask = ((1u16 << shape.bits) - 1) as u8;
        // A partial Fisher-Yates shuffle; each symbol is followed by its coefficients.
        batch.begin(degree, shape.symbols, shape.batch_size);
        for edge in 0..batch.degree() {
            let other = edge + scaled(random.next_u32(), shape.symbols - edge);
            batch.pick(edge, other);
            for row in 0..shape.batch_size {
                batch.set_coefficient(row, edge, random.next_u32() as u8 & mask);
            }
        }
    }
}

/// A number below `limit` from a uniformly random one.
pub(super) fn scaled(uniform: u32, limit: usize) -> usize {
    ((u64::from(uniform) * limit as u64) >> 32) as usize
}
