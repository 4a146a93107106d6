//! Progressive Gauss-Jordan elimination on the coding vectors of one generation.
//!
//! Rows are the innovative vectors in order of arrival (their *slots*), kept in reduced row
//! echelon form after each insertion, so rank, decoded and seen symbols are known per packet.
//! Payloads never come here: with tracking, each row also carries the combination of arrivals it
//! became, and [`Elimination::solution`] hands those coefficients to one fused multiply.
//!
//! ```text
//!  one row, `stride` bytes:  | vector: `width` | transform over slots: `width` | unused |
//!                             reduced in place   row i of the inverse so far
//! ```
//!
//! All memory is taken in [`Elimination::new`]. `width` is the size at the last reset; a later
//! [`Elimination::shrink`] lowers `size` only, the columns beyond it being zero.

use recoded_gf::{Kernel, inverse};

/// The largest generation, because slots and symbols are numbered by one byte on the wire.
const SIZE_LIMIT: usize = 256;

/// Vector rows summed by one call of the kernel while a new vector is reduced.
const FUSED_ROWS: usize = 16;

/// What [`Elimination::insert`] found.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The vector raised the rank by one.
    Innovative {
        /// Rank including this vector, at least 1.
        rank: usize,
        /// Number of this vector among the innovative ones, in order of arrival from 0: where
        /// [`Elimination::solution`] expects its payload.
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

/// Why a generation cannot be shorter than what it already holds.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ShrinkError {
    /// The new size is zero or above the present one.
    #[error("generation size can shrink to 1..={size}, not to {requested}")]
    OutOfRange {
        /// The size that was asked for.
        requested: usize,
        /// The present size.
        size: usize,
    },
    /// A stored vector has a coefficient for a symbol beyond the new size.
    #[error("cannot shrink to {requested} symbols: symbol {symbol} occurs in a stored vector")]
    InUse {
        /// The size that was asked for.
        requested: usize,
        /// The last symbol that occurs in a stored vector.
        symbol: usize,
    },
}

/// Progressive elimination state of one generation, reusable for the next.
pub struct Elimination {
    kernel: &'static Kernel,
    track: bool,
    size_max: usize,
    stride: usize,
    width: usize,
    size: usize,
    rank: usize,
    decoded: usize,
    /// The first column that leads no row. Rows are zero before it, except for a leading one.
    first_free: usize,
    /// `rank` rows of `stride` bytes.
    rows: Box<[u8]>,
    /// The row being inserted, `stride` bytes.
    fresh: Box<[u8]>,
    /// Per symbol: the row whose leading coefficient it is.
    pivot_row: Box<[Option<u8>]>,
    /// Per row: the symbol that it leads.
    pivot: Box<[u8]>,
    /// Per row: whether its vector has become a unit vector.
    is_unit: Box<[bool]>,
}

impl Elimination {
    /// State for generations of up to `size_max` symbols, reset to that size. `track` keeps what
    /// [`Elimination::solution`] needs, doubling memory and row work. Takes about `size_max^2`
    /// bytes, twice that with tracking; nothing is allocated later.
    ///
    /// # Panics
    /// When `size_max` is not in 1..=256.
    #[must_use]
    pub fn new(size_max: usize, track: bool) -> Self {
        assert!((1..=SIZE_LIMIT).contains(&size_max), "generation size {size_max} not in 1..=256");
        let stride = if track { 2 * size_max } else { size_max };
        Self {
            kernel: Kernel::best(),
            track,
            size_max,
            stride,
            width: size_max,
            size: size_max,
            rank: 0,
            decoded: 0,
            first_free: 0,
            rows: vec![0; size_max * stride].into_boxed_slice(),
            fresh: vec![0; stride].into_boxed_slice(),
            pivot_row: vec![None; size_max].into_boxed_slice(),
            pivot: vec![0; size_max].into_boxed_slice(),
            is_unit: vec![false; size_max].into_boxed_slice(),
        }
    }

    /// Forgets everything and starts a generation of `size` symbols.
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
        self.pivot_row.fill(None);
    }

    /// Takes in the coding vector of a packet: elements of GF(256), one per symbol.
    ///
    /// # Panics
    /// When `vector` is not [`Elimination::size`] long.
    pub fn insert(&mut self, vector: &[u8]) -> Outcome {
        assert_eq!(vector.len(), self.size, "coding vector of the wrong size");
        let fresh = &mut self.fresh[..if self.track { 2 * self.width } else { self.width }];
        fresh[..vector.len()].copy_from_slice(vector);
        fresh[vector.len()..].fill(0);
        self.reduce_fresh();
        self.admit_fresh()
    }

    /// Takes in an uncoded packet: the unit vector of symbol `index`.
    ///
    /// # Panics
    /// When `index` is not below [`Elimination::size`].
    pub fn insert_unit(&mut self, index: usize) -> Outcome {
        assert!(index < self.size, "symbol {index} of a generation of {}", self.size);
        let row = self.pivot_row[index].map(usize::from);
        if row.is_some_and(|row| self.is_unit[row]) {
            return Outcome::Redundant;
        }
        let used = self.used();
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

    /// Symbols that are decoded; rises to [`Elimination::size`].
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
        symbol < self.size && self.pivot_row[symbol].is_some()
    }

    /// Learns that the generation has only `size` symbols.
    ///
    /// # Errors
    /// `size` is zero or above the present size, or a stored vector has a coefficient beyond it;
    /// nothing changes then.
    pub fn shrink(&mut self, size: usize) -> Result<(), ShrinkError> {
        if !(1..=self.size).contains(&size) {
            return Err(ShrinkError::OutOfRange { requested: size, size: self.size });
        }
        // The span has support beyond `size` exactly when its reduced rows have.
        let last_used = (size..self.size).rev().find(|&symbol| {
            self.rows.chunks_exact(self.stride).take(self.rank).any(|row| row[symbol] != 0)
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
    /// `None`, with `out` untouched, unless [`Elimination::is_decoded`], and always without
    /// tracking.
    ///
    /// # Panics
    /// When `out` is shorter than [`Elimination::rank`].
    pub fn solution(&self, symbol: usize, out: &mut [u8]) -> Option<()> {
        if !self.track {
            return None;
        }
        let start = self.decoding_row(symbol)? * self.stride + self.width;
        out[..self.rank].copy_from_slice(&self.rows[start..start + self.rank]);
        Some(())
    }

    /// The row that has become the unit vector of `symbol`.
    fn decoding_row(&self, symbol: usize) -> Option<usize> {
        if symbol >= self.size {
            return None;
        }
        self.pivot_row[symbol].map(usize::from).filter(|&row| self.is_unit[row])
    }

    /// Bytes of a row in use.
    const fn used(&self) -> usize {
        if self.track { 2 * self.width } else { self.width }
    }

    /// Bytes of a row that can be other than zero so far.
    const fn live(&self) -> usize {
        if self.track { self.width + self.rank } else { self.width }
    }

    /// Subtracts stored rows from `fresh` until its pivot columns are zero. Pivot columns are zero
    /// in all other rows, so the factors are all known at the start and the sum is one product.
    fn reduce_fresh(&mut self) {
        let live = self.first_free..self.live();
        let (done, rest) = self.fresh.split_at_mut(live.start);
        let rest = &mut rest[..live.len()];
        let mut factors = [0; FUSED_ROWS];
        let mut sources: [&[u8]; FUSED_ROWS] = [&[]; FUSED_ROWS];
        let mut count = 0;
        for (symbol, pivot_row) in self.pivot_row[..self.size].iter().enumerate() {
            let Some(row) = *pivot_row else { continue };
            let factor = match symbol.checked_sub(live.start) {
                None => std::mem::take(&mut done[symbol]),
                Some(index) => rest[index],
            };
            if factor == 0 {
                continue;
            }
            let start = usize::from(row) * self.stride;
            (factors[count], sources[count]) =
                (factor, &self.rows[start + live.start..start + live.end]);
            count += 1;
            if count == FUSED_ROWS {
                self.kernel.matmul_accumulate(&factors, &sources, &mut [&mut *rest]);
                count = 0;
            }
        }
        if count > 0 {
            self.kernel.matmul_accumulate(&factors[..count], &sources[..count], &mut [rest]);
        }
    }

    /// Stores the reduced `fresh` as the next row unless it is zero, and clears its leading
    /// column in the other rows.
    fn admit_fresh(&mut self) -> Outcome {
        let candidates = &self.fresh[self.first_free..self.size];
        let Some(leading) = candidates.iter().position(|&element| element != 0) else {
            return Outcome::Redundant;
        };
        let (pivot, slot) = (self.first_free + leading, self.rank);
        if self.track {
            self.fresh[self.width + slot] = 1;
        }
        self.lead(pivot, slot);
        let (live, used) = (pivot..self.live(), self.used());
        let fresh = &mut self.fresh[..used];
        if let Some(factor) = inverse(fresh[pivot]).filter(|&factor| factor != 1) {
            self.kernel.mul(&mut fresh[live.clone()], factor);
        }
        let (stored, free) = self.rows.split_at_mut(slot * self.stride);
        free[..used].copy_from_slice(fresh);
        self.is_unit[slot] = is_zero(&fresh[self.first_free.max(pivot + 1)..self.size]);
        let all_units = self.decoded == slot;
        self.decoded += usize::from(self.is_unit[slot]);
        if all_units {
            // No stored row has a coefficient outside its own column.
            return Outcome::Innovative { rank: self.rank, slot };
        }
        for (number, row) in stored.chunks_exact_mut(self.stride).enumerate() {
            if self.is_unit[number] || row[pivot] == 0 {
                continue;
            }
            let factor = row[pivot];
            self.kernel.madd(&mut row[live.clone()], factor, &fresh[live.clone()]);
            let next_free = self.first_free.max(usize::from(self.pivot[number]) + 1);
            self.is_unit[number] = is_zero(&row[next_free..self.size]);
            self.decoded += usize::from(self.is_unit[number]);
        }
        Outcome::Innovative { rank: self.rank, slot }
    }

    /// Records that the row of `slot` leads symbol `pivot`.
    fn lead(&mut self, pivot: usize, slot: usize) {
        self.pivot_row[pivot] = Some(byte(slot));
        self.pivot[slot] = byte(pivot);
        self.rank += 1;
        while self.first_free < self.size && self.pivot_row[self.first_free].is_some() {
            self.first_free += 1;
        }
    }
}

/// Symbols and rows are numbered below 256.
fn byte(number: usize) -> u8 {
    u8::try_from(number).expect("generations have at most 256 symbols")
}

/// Whether a part of a vector holds no coefficient.
fn is_zero(elements: &[u8]) -> bool {
    let (chunks, rest) = elements.as_chunks::<16>();
    chunks.iter().all(|&chunk| u128::from_ne_bytes(chunk) == 0) && rest.iter().all(|&e| e == 0)
}
