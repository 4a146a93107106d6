//! One batch of the outer code: its symbols and their coefficients.

use crate::bats::params::{BATCH_SIZE_MAX, SYMBOLS_MAX};

/// Largest degree of a batch, of any profile and size: it bounds the memory of a decoder, and the
/// time that one batch can take.
pub const DEGREE_MAX: usize = 512;

/// Symbols and coefficients of one batch. Reusable; allocates in [`Batch::new`] only.
#[derive(Clone, Default, Debug)]
pub struct Batch {
    indices: Vec<u16>,
    generator: Vec<u8>,
    /// Picked symbols come first, then the others.
    pool: Vec<u16>,
}

impl Batch {
    /// An empty batch with room for any batch.
    #[must_use]
    pub fn new() -> Self {
        Self {
            indices: Vec::with_capacity(DEGREE_MAX),
            generator: Vec::with_capacity(DEGREE_MAX * BATCH_SIZE_MAX),
            pool: Vec::with_capacity(SYMBOLS_MAX),
        }
    }

    /// Number of symbols that the batch combines, at least 1 once it is filled.
    #[must_use]
    pub fn degree(&self) -> usize {
        self.indices.len()
    }

    /// The intermediate symbols combined, all different.
    #[must_use]
    pub fn indices(&self) -> &[u16] {
        &self.indices
    }

    /// Coefficients in GF(256), row-major: one row per coded symbol of the batch, one column per
    /// entry of [`Batch::indices`], as `Kernel::matmul` takes them.
    #[must_use]
    pub fn generator(&self) -> &[u8] {
        &self.generator
    }

    /// Starts a batch of `degree` symbols (at most `symbols` and [`DEGREE_MAX`]) to be picked.
    pub(super) fn begin(&mut self, degree: usize, symbols: usize, batch_size: usize) {
        self.pool.clear();
        self.pool.extend((0..symbols).map(|symbol| symbol as u16));
        let degree = degree.min(symbols).min(DEGREE_MAX);
        self.indices.clear();
        self.indices.resize(degree, 0);
        self.generator_mut(batch_size);
    }

    /// Picks the symbol at place `other` of those left, for edge number `edge`: a step of a
    /// Fisher-Yates shuffle.
    pub(super) fn pick(&mut self, edge: usize, other: usize) {
        self.pool.swap(edge, other);
        self.indices[edge] = self.pool[edge];
    }

    /// Sets the coefficient of an edge in one coded symbol.
    pub(super) fn set_coefficient(&mut self, row: usize, edge: usize, coefficient: u8) {
        let degree = self.indices.len();
        self.generator[row * degree + edge] = coefficient;
    }

    /// Copies `symbols`: all different, at most [`DEGREE_MAX`].
    pub(super) fn set_indices(&mut self, symbols: impl Iterator<Item = u16>) {
        self.indices.clear();
        self.indices.extend(symbols.take(DEGREE_MAX));
    }

    /// The coefficients, to be filled in: `batch_size` rows of [`Batch::degree`] elements.
    pub(super) fn generator_mut(&mut self, batch_size: usize) -> &mut [u8] {
        self.generator.clear();
        self.generator.resize(batch_size * self.indices.len(), 0);
        &mut self.generator
    }
}
