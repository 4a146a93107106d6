//! Progressive Gauss-Jordan elimination on the coding vectors of one generation.
//!
//! Rows are the innovative vectors in order of arrival (their *slots*), kept in reduced row
//! echelon form after each insertion, so rank, decoded and seen symbols are known per packet.
//! Payloads are not stored here: each row also carries the combination of arrivals that it became,
//! and [`Elimination::solution`] passes those coefficients to one fused multiply.
//!
//! That combination needs no extra room. In reduced form the column of a pivot is 1 in its own row
//! and 0 in the others, which need not be stored; the place holds the coefficient of the slot that
//! led the column instead, as in an in-place inversion:
//!
//! ```text
//!  row of slot 0, symbol 3 leads:   | x0  x1 [ 5] x4 |    x: coefficients of symbols 0, 1, 4
//!  row of slot 1, symbol 2 leads:   | ...      ...   |    [..]: coefficients of slots, at the
//!           columns of symbols        0   1   2 3  4          columns of symbols 2 and 3
//! ```
//!
//! All memory is allocated in [`Elimination::new`]. `width` is the size at the last reset; a later
//! [`Elimination::shrink`] lowers `size` only, the columns beyond it being zero.

use std::ops::{Deref, DerefMut};

use recoded_gf::{Kernel, inverse};

/// The largest generation: the largest matrix that the kernels invert, a megabyte of coefficients.
/// The wire format numbers symbols by one byte, so packets carry generations of up to 256.
pub(crate) const SIZE_LIMIT: usize = recoded_gf::SIZE_MAX;

/// In `pivot_row`: the symbol leads no row.
const NO_ROW: u16 = u16::MAX;

/// Row lengths up to which rows are padded to the next power of two, which the kernels keep in
/// registers.
const HELD_BYTES: usize = 128;

/// The result of [`Elimination::insert`].
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The vector raised the rank by one.
    Innovative {
        /// Rank including this vector, at least 1.
        rank: usize,
        /// Number of this vector among the innovative ones, in order of arrival from 0: the index
        /// at which [`Elimination::solution`] expects its payload.
        slot: usize,
    },
    /// The vector lies in the span of those already held (or is zero); it was not stored.
    Redundant,
}

impl Outcome {
    /// Whether the vector raised the rank.
    #[inline]
    #[must_use]
    pub const fn is_innovative(self) -> bool {
        matches!(self, Self::Innovative { .. })
    }
}

/// The reason why a generation cannot shrink.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ShrinkError {
    /// The new size is zero or above the present one.
    #[error("generation size can shrink to 1..={size}, not to {requested}")]
    OutOfRange {
        /// The requested size.
        requested: usize,
        /// The present size.
        size: usize,
    },
    /// A stored vector has a coefficient for a symbol beyond the new size.
    #[error("cannot shrink to {requested} symbols: symbol {symbol} occurs in a stored vector")]
    InUse {
        /// The requested size.
        requested: usize,
        /// The last symbol that occurs in a stored vector.
        symbol: usize,
    },
}

/// Progressive elimination state of one generation, reusable for the next.
pub struct Elimination {
    kernel: &'static Kernel,
    size_max: usize,
    stride: usize,
    width: usize,
    size: usize,
    rank: usize,
    decoded: usize,
    /// The first column that leads no row. Coefficients of rows are zero before it.
    first_free: usize,
    /// `rank` rows of `stride` bytes.
    rows: Aligned,
    /// The row being inserted, `stride` bytes.
    fresh: Aligned,
    /// Per row: its factor in the reduction of `fresh`.
    factors: Box<[u8]>,
    /// Per symbol: 0xFF where it leads no row, so that its column holds coefficients of symbols.
    free: Box<[u8]>,
    /// Per symbol: the row whose leading coefficient it is, or [`NO_ROW`].
    pivot_row: Box<[u16]>,
    /// Per row: the symbol that it leads.
    pivot: Box<[u16]>,
    /// The slots whose rows lead a symbol of another number: few if vectors are dense.
    displaced: Box<[u16]>,
    /// Number of displaced slots.
    displaced_count: usize,
    /// Per row: whether its vector has become a unit vector.
    is_unit: Box<[bool]>,
}

impl Elimination {
    /// State for generations of up to `size_max` symbols, reset to that size. Takes about
    /// `size_max^2` bytes; nothing is allocated later.
    ///
    /// # Panics
    /// When `size_max` is not in 1..=1024.
    #[must_use]
    pub fn new(size_max: usize) -> Self {
        assert!((1..=SIZE_LIMIT).contains(&size_max), "generation size {size_max} not in 1..=1024");
        let stride = padded(size_max);
        Self {
            kernel: Kernel::best(),
            size_max,
            stride,
            width: size_max,
            size: size_max,
            rank: 0,
            decoded: 0,
            first_free: 0,
            rows: Aligned::zeros(size_max * stride),
            fresh: Aligned::zeros(stride),
            factors: vec![0; size_max].into_boxed_slice(),
            free: vec![0xFF; size_max].into_boxed_slice(),
            pivot_row: vec![NO_ROW; size_max].into_boxed_slice(),
            pivot: vec![0; size_max].into_boxed_slice(),
            displaced: vec![0; size_max].into_boxed_slice(),
            displaced_count: 0,
            is_unit: vec![false; size_max].into_boxed_slice(),
        }
    }

    /// Clears the state and starts a generation of `size` symbols.
    ///
    /// # Panics
    /// When `size` is zero or above the capacity given to [`Elimination::new`].
    pub fn reset(&mut self, size: usize) {
        let size_max = self.size_max;
        assert!((1..=size_max).contains(&size), "generation size {size} not in 1..={size_max}");
        self.width = size;
        self.size = size;
        self.rank = 0;
        self.decoded = 0;
        self.first_free = 0;
        self.displaced_count = 0;
        self.pivot_row.fill(NO_ROW);
        self.free.fill(0xFF);
    }

    /// Processes the coding vector of a packet: elements of GF(256), one per symbol.
    ///
    /// # Panics
    /// When `vector` is not [`Elimination::size`] long.
    pub fn insert(&mut self, vector: &[u8]) -> Outcome {
        assert_eq!(vector.len(), self.size, "coding vector of the wrong size");
        if self.is_complete() {
            return Outcome::Redundant;
        }
        let used = padded(self.width);
        self.fresh[..vector.len()].copy_from_slice(vector);
        self.fresh[vector.len()..used].fill(0);
        self.reduce_fresh();
        self.admit_fresh()
    }

    /// Processes an uncoded packet: the unit vector of symbol `index`.
    ///
    /// # Panics
    /// When `index` is not below [`Elimination::size`].
    pub fn insert_unit(&mut self, index: usize) -> Outcome {
        assert!(index < self.size, "symbol {index} of a generation of {}", self.size);
        let row = self.row_of(index);
        if row.is_some_and(|row| self.is_unit[row]) {
            return Outcome::Redundant;
        }
        let used = padded(self.width);
        self.fresh[..used].fill(0);
        self.fresh[index] = 1;
        if row.is_some() {
            self.reduce_fresh();
        }
        self.admit_fresh()
    }

    /// Symbols of the generation.
    #[inline]
    #[must_use]
    pub const fn size(&self) -> usize {
        self.size
    }

    /// Innovative vectors held: degrees of freedom.
    #[inline]
    #[must_use]
    pub const fn rank(&self) -> usize {
        self.rank
    }

    /// Decoded symbols; rises to [`Elimination::size`].
    #[inline]
    #[must_use]
    pub const fn decoded(&self) -> usize {
        self.decoded
    }

    /// Whether the rank equals the size, so that every symbol is decoded.
    #[inline]
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.rank == self.size
    }

    /// Whether the vectors held determine `symbol`. False for symbols beyond the size.
    #[inline]
    #[must_use]
    pub fn is_decoded(&self, symbol: usize) -> bool {
        self.decoding_row(symbol).is_some()
    }

    /// Whether `symbol` is seen: it leads a stored row, so the vectors held give it as a
    /// combination of later symbols. False for symbols beyond the size.
    #[inline]
    #[must_use]
    pub fn is_seen(&self, symbol: usize) -> bool {
        symbol < self.size && self.leads(symbol)
    }

    /// Reduces the generation to `size` symbols.
    ///
    /// # Errors
    /// `size` is zero or above the present size, or a stored vector has a coefficient beyond it;
    /// nothing changes then.
    pub fn shrink(&mut self, size: usize) -> Result<(), ShrinkError> {
        if !(1..=self.size).contains(&size) {
            return Err(ShrinkError::OutOfRange { requested: size, size: self.size });
        }
        // The span has support beyond `size` exactly when its reduced rows have; the column of a
        // pivot holds something else, but the pivot always occurs.
        let last_used = (size..self.size).rev().find(|&symbol| {
            self.leads(symbol)
                || self.rows.chunks_exact(self.stride).take(self.rank).any(|row| row[symbol] != 0)
        });
        if let Some(symbol) = last_used {
            return Err(ShrinkError::InUse { requested: size, symbol });
        }
        self.size = size;
        Ok(())
    }

    /// Writes the coefficients over slots that reproduce `symbol`:
    /// symbol = sum over slots of `out[slot] * payload[slot]`. Writes [`Elimination::rank`] bytes.
    ///
    /// `None`, with `out` untouched, unless [`Elimination::is_decoded`].
    ///
    /// # Panics
    /// When `out` is shorter than [`Elimination::rank`].
    pub fn solution(&self, symbol: usize, out: &mut [u8]) -> Option<()> {
        let row = &self.rows[self.decoding_row(symbol)? * self.stride..][..self.stride];
        let out = &mut out[..self.rank];
        out.copy_from_slice(&row[..self.rank]);
        for (slot, pivot) in self.displaced() {
            out[slot] = row[pivot];
        }
        Some(())
    }

    /// The slots whose rows lead a symbol of another number, and those symbols.
    fn displaced(&self) -> impl Iterator<Item = (usize, usize)> {
        let slots = self.displaced[..self.displaced_count].iter().map(|&slot| usize::from(slot));
        slots.map(|slot| (slot, usize::from(self.pivot[slot])))
    }

    /// The row that has become the unit vector of `symbol`.
    fn decoding_row(&self, symbol: usize) -> Option<usize> {
        if symbol >= self.size {
            return None;
        }
        self.row_of(symbol).filter(|&row| self.is_unit[row])
    }

    /// The row that `symbol` leads.
    #[inline]
    fn row_of(&self, symbol: usize) -> Option<usize> {
        let row = self.pivot_row[symbol];
        (row != NO_ROW).then_some(usize::from(row))
    }

    /// Whether `symbol` leads a row.
    #[inline]
    fn leads(&self, symbol: usize) -> bool {
        self.pivot_row[symbol] != NO_ROW
    }

    /// Subtracts stored rows from `fresh` until its pivot columns are zero, and leaves the
    /// combination's coefficient of each slot there. Pivot columns are zero in all other rows, so
    /// the factors are all known at the start and the sum is one product.
    fn reduce_fresh(&mut self) {
        self.factors[..self.rank].copy_from_slice(&self.fresh[..self.rank]);
        for &slot in &self.displaced[..self.displaced_count] {
            let slot = usize::from(slot);
            self.factors[slot] = self.fresh[usize::from(self.pivot[slot])];
        }
        let fresh = &mut self.fresh[..padded(self.width)];
        fresh.iter_mut().zip(&self.free).for_each(|(element, free)| *element &= free);
        self.kernel.reduce(fresh, &self.factors[..self.rank], &self.rows, self.stride);
    }

    /// Stores the reduced `fresh` as the next row unless it is zero, and clears its leading
    /// column in the other rows.
    fn admit_fresh(&mut self) -> Outcome {
        let candidates =
            self.fresh[self.first_free..self.size].iter().zip(&self.free[self.first_free..]);
        let Some(leading) = candidates.map(|(element, free)| element & free).position(|e| e != 0)
        else {
            return Outcome::Redundant;
        };
        let (pivot, slot) = (self.first_free + leading, self.rank);
        self.lead(pivot, slot);
        let used = padded(self.width);
        let fresh = &mut self.fresh[..used];
        // The row contains its own slot once, as the column shows.
        let scale = inverse(std::mem::replace(&mut fresh[pivot], 1)).unwrap_or_default();
        if scale != 1 {
            self.kernel.mul(fresh, scale);
        }
        let (stored, free) = self.rows.split_at_mut(slot * self.stride);
        free[..used].copy_from_slice(fresh);
        // Rows that are all units have no coefficient left to clear.
        if self.decoded < slot {
            // Elsewhere the column holds a coefficient f, to be replaced by this slot's, f * scale:
            // f + f * (scale + 1).
            fresh[pivot] = scale ^ 1;
            self.kernel.eliminate(stored, self.stride, pivot, fresh);
            self.find_units(pivot, slot);
        }
        self.is_unit[slot] = self.is_unit_row(slot);
        self.decoded += usize::from(self.is_unit[slot]);
        Outcome::Innovative { rank: self.rank, slot }
    }

    /// Finds the rows among the first `rows` that became unit vectors without column `pivot`.
    fn find_units(&mut self, pivot: usize, rows: usize) {
        if self.is_complete() {
            self.is_unit[..rows].fill(true);
            self.decoded = rows;
            return;
        }
        let mut from = 0;
        while let Some(row) = self.candidate(pivot, from, rows) {
            if !self.is_unit[row] && self.is_unit_row(row) {
                self.is_unit[row] = true;
                self.decoded += 1;
            }
            from = row + 1;
        }
    }

    /// The first of `from..to` that may have become a unit vector: the next coefficient excludes
    /// most rows.
    fn candidate(&self, pivot: usize, from: usize, to: usize) -> Option<usize> {
        let mut rows = self.rows[from * self.stride..to * self.stride].chunks_exact(self.stride);
        let found = rows.position(|row| row[self.first_free] == 0 && row[pivot] != 0)?;
        Some(from + found)
    }

    /// Whether a row has no coefficient except its leading one.
    fn is_unit_row(&self, row: usize) -> bool {
        let columns = self.first_free..self.size;
        let row = &self.rows[row * self.stride..][columns.clone()];
        let (chunks, rest) = row.as_chunks::<16>();
        let (free_chunks, free_rest) = self.free[columns].as_chunks::<16>();
        let is_zero = |(elements, free): (&[u8; 16], &[u8; 16])| {
            u128::from_ne_bytes(*elements) & u128::from_ne_bytes(*free) == 0
        };
        chunks.iter().zip(free_chunks).all(is_zero)
            && rest.iter().zip(free_rest).all(|(element, free)| element & free == 0)
    }

    /// Records that the row of `slot` leads symbol `pivot`.
    fn lead(&mut self, pivot: usize, slot: usize) {
        self.pivot_row[pivot] = number(slot);
        self.pivot[slot] = number(pivot);
        if pivot != slot {
            self.displaced[self.displaced_count] = number(slot);
            self.displaced_count += 1;
        }
        self.free[pivot] = 0;
        self.rank += 1;
        while self.first_free < self.size && self.leads(self.first_free) {
            self.first_free += 1;
        }
    }
}

/// Symbols and rows are numbered below [`SIZE_LIMIT`].
fn number(index: usize) -> u16 {
    u16::try_from(index).expect("generations have at most 1024 symbols")
}

/// Bytes of a row of `width` elements: lengths that kernels handle best.
const fn padded(width: usize) -> usize {
    if width <= 16 {
        16
    } else if width <= HELD_BYTES {
        width.next_power_of_two()
    } else {
        width.next_multiple_of(32)
    }
}

/// Bytes aligned to a cache line, so that no row spans more lines than it must.
struct Aligned {
    memory: Box<[u8]>,
    start: usize,
    bytes: usize,
}

impl Aligned {
    fn zeros(bytes: usize) -> Self {
        let memory = vec![0; bytes + LINE_BYTES].into_boxed_slice();
        let start = memory.as_ptr().align_offset(LINE_BYTES).min(LINE_BYTES);
        Self { memory, start, bytes }
    }
}

impl Deref for Aligned {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.memory[self.start..][..self.bytes]
    }
}

impl DerefMut for Aligned {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..][..self.bytes]
    }
}

const LINE_BYTES: usize = 64;
