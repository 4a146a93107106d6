//! The structured graph of CS-BATS: a base graph, shifted cyclically (Sec. II-C of "Towards
//! High-Performance Network Coding: FPGA Acceleration With Bounded-value Generators").
//!
//! A base graph has a few rows, each a set of symbols. Batch `i` combines the symbols of row
//! `i mod rows`, all moved up by `i / rows` modulo the block. Coefficients belong to rows, so a
//! handful of generator matrices serve all batches (the paper keeps them in ROM).
//!
//! ```text
//!  symbols   0 1 2 3 4 5 6 7 8 9 ...          batch
//!  row 0     x . . . x . . . x .              0        first layer: no shift
//!  row 1     . . x . . . x . . .              1
//!  row 0     . x . . . x . . . x              2        second layer: shifted by one
//!  row 1     . . . x . . . x . .              3
//! ```
//!
//! Rows take their symbols in turn from a stream of random permutations of the block. The last
//! permutation is cut short and spread evenly over the block: every symbol is covered equally often
//! (within one batch) after any number of batches, and two batches share no more symbols than by
//! chance. Large blocks get proportionally many rows, so that two or three layers cover them
//! whatever their size.
//!
//! The paper's own supports are not published; degrees are, see [`PAPER_ROW_DEGREES`].

use crate::bats::batch::{Batch, DEGREE_MAX};
use crate::bats::params::{Limits, Params, ParamsError};
use crate::bats::sampler::scaled;
use crate::tinymt32::TinyMt32;
use recoded_gf::Kernel;

/// Row degrees of the base graph in the paper's experiments, for batches of 16 (Sec. V-B).
pub const PAPER_ROW_DEGREES: [u16; 7] = [11, 12, 14, 14, 19, 20, 27];

/// Most degrees in a pattern of row degrees.
pub const PATTERN_MAX: usize = 32;

/// Degrees in the built-in pattern.
pub(super) const BUILT_IN: usize = 7;

/// Seeds the permutations of a block. Of some fifty tried, it serves blocks of 192 symbols with the
/// paper's degrees well; the built-in degrees work with any.
const DEAL_SEED: u32 = 0x5EED_000C;

/// Seeds the coefficients of a row. Any value works; it is part of the code.
const GENERATOR_SEED: u32 = 0x5EED_6E4E;

/// The lowest bits of TinyMT32 follow a linear recurrence of this order (its state has 127 bits):
/// no matrix filled with them has a higher rank.
const SINGLE_BIT_RANK_MAX: usize = 127;

/// Attempts to draw one generator; the last is used as it is. Single bits give full rank three
/// times in ten, so that all shapes need far fewer: packets choose the shape, so success must not
/// depend on luck.
const DRAWS_MAX: usize = 64;

/// A base graph for one block shape.
#[derive(Debug)]
pub struct BaseGraph {
    symbols: usize,
    batch_size: usize,
    /// Row degrees, repeated.
    degrees: Vec<u16>,
    /// Symbols of each row in turn, ascending within a row.
    places: Vec<u16>,
    /// Per row: where its places begin. One more entry than rows.
    starts: Vec<u32>,
    /// Per degree: a generator, row-major `batch_size` x degree, one after the other.
    generators: Vec<u8>,
    /// Batch size and coefficient width of the generators.
    made_for: Option<(usize, u8)>,
    scratch: Vec<u8>,
}

impl BaseGraph {
    /// A graph without rows, to be reset before use, with room for built-in ones within `limits`.
    pub(super) fn new(limits: Limits) -> Self {
        let Limits { source_symbols_max, batch_size_max, .. } = limits;
        let degree_max = DEGREE_MAX.min(source_symbols_max);
        let generator = degree_max * batch_size_max;
        Self {
            symbols: 0,
            batch_size: 0,
            degrees: Vec::with_capacity(PATTERN_MAX),
            places: Vec::with_capacity(source_symbols_max + BUILT_IN * degree_max),
            starts: Vec::with_capacity(source_symbols_max / 8 + BUILT_IN + 2),
            generators: Vec::with_capacity(BUILT_IN * generator),
            made_for: None,
            scratch: Vec::with_capacity(generator),
        }
    }

    /// Whether row degrees describe a base graph.
    ///
    /// # Errors
    /// There are none or too many, or one is out of range.
    pub(super) fn check(degrees: &[u16]) -> Result<(), ParamsError> {
        let is_degree = |&degree: &u16| (1..=DEGREE_MAX).contains(&usize::from(degree));
        if (1..=PATTERN_MAX).contains(&degrees.len()) && degrees.iter().all(is_degree) {
            return Ok(());
        }
        Err(ParamsError::RowDegrees { max: PATTERN_MAX, degree_max: DEGREE_MAX })
    }

    /// Forms the graph of a block with `rows` rows, whose degrees repeat `degrees`. Allocates only
    /// to grow beyond its largest size so far.
    pub(super) fn reset(&mut self, params: Params, degrees: &[u16], rows: usize) {
        let made_for = (params.batch_size, params.generator_bits);
        let is_made = self.made_for == Some(made_for) && self.degrees == degrees;
        self.symbols = params.source_symbols;
        self.batch_size = params.batch_size;
        self.degrees.clear();
        self.degrees.extend_from_slice(degrees);
        self.deal(rows);
        if !is_made {
            self.make_generators(params.generator_bits);
            self.made_for = Some(made_for);
        }
    }

    /// Rows of the base graph.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }

    /// Symbols of one row of the base graph, ascending.
    #[must_use]
    pub fn row(&self, row: usize) -> &[u16] {
        &self.places[self.starts[row] as usize..self.starts[row + 1] as usize]
    }

    /// The batch with number `id`.
    pub(super) fn batch(&self, id: u16, batch: &mut Batch) {
        let (rows, symbols) = (self.rows(), self.symbols as u32);
        let (row, shift) = (usize::from(id) % rows, usize::from(id) / rows);
        let shift = (shift % self.symbols) as u32;
        let moved = |place: &u16| ((u32::from(*place) + shift) % symbols) as u16;
        batch.set_indices(self.row(row).iter().map(moved));
        let (full, generator) = self.generator(row % self.degrees.len());
        let degree = batch.degree();
        let out = batch.generator_mut(self.batch_size).chunks_exact_mut(degree);
        for (out, coefficients) in out.zip(generator.chunks_exact(full)) {
            out.copy_from_slice(&coefficients[..degree]);
        }
    }

    /// Degree and generator of a row by its place in the pattern.
    fn generator(&self, row: usize) -> (usize, &[u8]) {
        let before: usize = self.degrees[..row].iter().map(|&degree| usize::from(degree)).sum();
        let degree = usize::from(self.degrees[row]);
        let start = before * self.batch_size;
        (degree, &self.generators[start..start + degree * self.batch_size])
    }

    /// Assigns symbols to the rows.
    fn deal(&mut self, rows: usize) {
        let symbols = self.symbols;
        let degree_of =
            |row: usize| usize::from(self.degrees[row % self.degrees.len()]).min(symbols);
        let length = (0..rows).map(degree_of).sum();
        self.starts.clear();
        self.starts.push(0);
        let (mut start, mut kept) = (0, 0);
        self.fill_stream(length);
        for row in 0..rows {
            let end = start + usize::from(self.degrees[row % self.degrees.len()]).min(symbols);
            for at in start..end {
                self.avoid_repetition(start, at);
            }
            self.places[start..end].sort_unstable();
            let first = kept;
            for at in start..end {
                let place = self.places[at];
                if kept == first || self.places[kept - 1] != place {
                    self.places[kept] = place;
                    kept += 1;
                }
            }
            self.starts.push(kept as u32);
            start = end;
        }
        self.places.truncate(kept);
    }

    /// Fills `places` with permutations of the block; the last one is thinned evenly.
    fn fill_stream(&mut self, length: usize) {
        let symbols = self.symbols;
        let mut random = TinyMt32::new(DEAL_SEED ^ symbols as u32);
        self.places.clear();
        while self.places.len() < length {
            let start = self.places.len();
            let count = symbols.min(length - start);
            self.places.extend((0..count).map(|slot| (slot * symbols / count) as u16));
            shuffle(&mut self.places[start..], &mut random);
        }
    }

    /// Avoids a repeated symbol where two permutations meet in a row: takes a later one, if any is
    /// left.
    fn avoid_repetition(&mut self, start: usize, at: usize) {
        let (row, rest) = self.places.split_at_mut(at);
        let row = &row[start..];
        if let Some(other) = rest.iter().position(|symbol| !row.contains(symbol)) {
            rest.swap(0, other);
        }
    }

    /// Draws the generator of every degree, of full rank if possible.
    fn make_generators(&mut self, bits: u8) {
        self.generators.clear();
        let mask = ((1u16 << bits) - 1) as u8;
        let mut random = TinyMt32::new(GENERATOR_SEED);
        for &degree in &self.degrees {
            let (degree, start) = (usize::from(degree), self.generators.len());
            let single = if bits == 1 { SINGLE_BIT_RANK_MAX } else { usize::MAX };
            let wanted = degree.min(self.batch_size).min(single);
            for _ in 0..DRAWS_MAX {
                self.generators.truncate(start);
                let count = degree * self.batch_size;
                self.generators.extend((0..count).map(|_| random.next_u32() as u8 & mask));
                self.scratch.clear();
                self.scratch.extend_from_slice(&self.generators[start..]);
                if Kernel::best().rank(&mut self.scratch, degree) == wanted {
                    break;
                }
            }
        }
    }
}

/// Fisher-Yates.
fn shuffle(items: &mut [u16], random: &mut TinyMt32) {
    for last in (1..items.len()).rev() {
        items.swap(last, scaled(random.next_u32(), last + 1));
    }
}
