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
//! The places of all rows together are spread evenly over the block and dealt to the rows at
//! random: every symbol is covered equally often (by one batch more or less) after any number of
//! layers, and no two batches share more symbols than chance gives them. Large blocks get
//! proportionally many rows, so that a few layers cover them whatever their size.
//!
//! The paper's own supports are not published; degrees are, see [`PAPER_ROW_DEGREES`].

use crate::bats::batch::{Batch, DEGREE_MAX};
use crate::bats::params::{Params, ParamsError};
use crate::bats::sampler::scaled;
use crate::tinymt32::TinyMt32;
use recoded_gf::Kernel;

/// Row degrees of the base graph in the paper's experiments, for batches of 16 (Sec. V-B).
pub const PAPER_ROW_DEGREES: [u16; 7] = [11, 12, 14, 14, 19, 20, 27];

/// Most rows in a list of degrees.
pub const ROWS_MAX: usize = 32;

/// Symbols for which one copy of the row degrees is meant: the block size "frequently used" in
/// practice. Twice as large a block has twice as many rows.
const SYMBOLS_PER_COPY: usize = 256;

/// Starts the dealing of places to rows. Any value does; it is part of the code.
const DEAL_SEED: u32 = 0x5EED_CA5D;

/// Starts the coefficients of a row. Any value does; it is part of the code.
const GENERATOR_SEED: u32 = 0x5EED_6E4E;

/// A base graph for one block shape.
#[derive(Debug)]
pub struct BaseGraph {
    symbols: usize,
    batch_size: usize,
    /// Degrees of one copy of the rows.
    degrees: Vec<u16>,
    /// Symbols of each row in turn, ascending within a row.
    places: Vec<u16>,
    /// Per row: where its places begin. One more entry than rows.
    starts: Vec<u32>,
    /// Per degree: a generator, row-major `batch_size` x degree, one after the other.
    generators: Vec<u8>,
    /// What the generators were made for.
    made_for: Option<(usize, u8)>,
    scratch: Vec<u8>,
    deal: Vec<u16>,
}

impl BaseGraph {
    /// A graph without rows, to be reset before use.
    pub(super) fn new() -> Self {
        Self {
            symbols: 0,
            batch_size: 0,
            degrees: Vec::with_capacity(ROWS_MAX),
            places: Vec::new(),
            starts: Vec::new(),
            generators: Vec::new(),
            made_for: None,
            scratch: Vec::new(),
            deal: Vec::new(),
        }
    }

    /// Sets the row degrees.
    ///
    /// # Errors
    /// There are none or too many, or one is out of range.
    pub(super) fn set_degrees(&mut self, degrees: &[u16]) -> Result<(), ParamsError> {
        let is_degree = |&degree: &u16| (1..=DEGREE_MAX).contains(&usize::from(degree));
        if !(1..=ROWS_MAX).contains(&degrees.len()) || !degrees.iter().all(is_degree) {
            return Err(ParamsError::RowDegrees { max: ROWS_MAX, degree_max: DEGREE_MAX });
        }
        if self.degrees != degrees {
            self.degrees.clear();
            self.degrees.extend_from_slice(degrees);
            self.made_for = None;
        }
        Ok(())
    }

    /// Forms the graph of a block. Allocates only when it grows beyond what it has been before.
    pub(super) fn reset(&mut self, params: Params) {
        self.symbols = params.source_symbols;
        self.batch_size = params.batch_size;
        self.deal_places();
        if self.made_for != Some((params.batch_size, params.generator_bits)) {
            self.make_generators(params.generator_bits);
            self.made_for = Some((params.batch_size, params.generator_bits));
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

    /// Degree and generator of a row of the first copy.
    fn generator(&self, row: usize) -> (usize, &[u8]) {
        let before: usize = self.degrees[..row].iter().map(|&degree| usize::from(degree)).sum();
        let degree = usize::from(self.degrees[row]);
        let start = before * self.batch_size;
        (degree, &self.generators[start..start + degree * self.batch_size])
    }

    /// Deals evenly spread places to the rows.
    fn deal_places(&mut self) {
        let copies = (self.symbols / SYMBOLS_PER_COPY).max(1);
        let degrees = self.degrees.iter().map(|&degree| usize::from(degree));
        let slots = copies * degrees.clone().sum::<usize>();
        self.deal.clear();
        let rows = (0..copies).flat_map(|_| degrees.clone()).enumerate();
        for (row, degree) in rows {
            self.deal.extend(std::iter::repeat_n(row as u16, degree));
        }
        shuffle(&mut self.deal, DEAL_SEED ^ self.symbols as u32);
        self.places.clear();
        self.starts.clear();
        self.starts.push(0);
        for row in 0..copies * self.degrees.len() {
            let start = self.places.len();
            for (slot, _) in self.deal.iter().enumerate().filter(|(_, to)| **to == row as u16) {
                let place = (slot * self.symbols / slots) as u16;
                // Where places outnumber symbols, a row may be dealt one symbol twice.
                if self.places[start..].last() != Some(&place) {
                    self.places.push(place);
                }
            }
            self.starts.push(self.places.len() as u32);
        }
    }

    /// Draws the generator of every degree, of full rank.
    fn make_generators(&mut self, bits: u8) {
        self.generators.clear();
        let mask = ((1u16 << bits) - 1) as u8;
        let mut random = TinyMt32::new(GENERATOR_SEED);
        for &degree in &self.degrees {
            let (degree, start) = (usize::from(degree), self.generators.len());
            let wanted = degree.min(self.batch_size);
            loop {
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

/// Fisher-Yates from a seed.
fn shuffle(items: &mut [u16], seed: u32) {
    let mut random = TinyMt32::new(seed);
    for last in (1..items.len()).rev() {
        items.swap(last, scaled(random.next_u32(), last + 1));
    }
}
