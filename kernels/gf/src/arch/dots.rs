//! Sums of products of one vector with several columns, where both factors vary from byte to byte:
//! `sums[c] += column[c][0] * vector[0] + column[c][1] * vector[1] + ...`, in GF(256).
//!
//! Columns lie `stride` bytes apart. They are fixed and vectors are many, so columns may be
//! prepared: converted to the form that a level multiplies fastest.
//!
//! | level | a product |
//! |---|---|
//! | GFNI | `vgf2p8mulb`, which is modulo 0x11B (below) |
//! | NEON | `pmull`: polynomials of 15 bits, reduced once, at the end |
//! | other vector levels | the column where a bit of the vector is set, bit after bit |
//! | portable | likewise, on words of eight bytes |
//!
//! **GFNI in another field.** Elements are mapped to the field modulo 0x11B by an isomorphism
//! (`Tables::to_11b`): columns when they are prepared, vectors by one `vgf2p8affineqb` a register,
//! and sums are mapped back. The result is that of the kernel's own field.
//!
//! Only the naive level looks products up, at addresses that depend on the columns, which are keys;
//! all others take the same time for any bytes.

use crate::table::Tables;

/// Columns that share one pass over the vector: their sums fit into 16 registers with the other
/// operands, and 8 are the columns of a tag.
pub const TOGETHER: usize = 8;

/// Leaves columns unchanged: the level multiplies in the field itself.
pub fn keep(_: &'static Tables, _: &mut [u8]) {}

/// Maps columns to the isomorphic field that `vgf2p8mulb` multiplies in.
#[cfg(target_arch = "x86_64")]
pub fn prepare_11b(tables: &'static Tables, columns: &mut [u8]) {
    for element in columns {
        *element = linear(&tables.to_11b_columns, *element);
    }
}

/// The sum of those columns of a bit matrix that the bits of `element` select, without a look-up.
#[cfg(target_arch = "x86_64")]
#[inline]
pub fn linear(columns: &[u8; 8], element: u8) -> u8 {
    let term = |bit: usize| columns[bit] & (element >> bit & 1).wrapping_neg();
    (0..8).fold(0, |sum, bit| sum ^ term(bit))
}

/// Twice an element of GF(256).
#[inline]
pub fn double(tables: &Tables, element: u8) -> u8 {
    let low_terms = (tables.field.polynomial() & 0xFF) as u8;
    element << 1 ^ (low_terms & (element >> 7).wrapping_neg())
}

/// The portable routine: bits of the vector select words of the columns.
pub fn portable(
    tables: &'static Tables,
    columns: &[u8],
    stride: usize,
    vector: &[u8],
    sums: &mut [u8],
) {
    for (column, sum) in sums.iter_mut().enumerate() {
        let column = &columns[column * stride..][..vector.len()];
        let (words, rest) = vector.as_chunks::<8>();
        let (column_words, column_rest) = column.as_chunks::<8>();
        let mut bits = [0_u64; 8];
        for (x, key) in words.iter().zip(column_words) {
            select(&mut bits, u64::from_le_bytes(*x), u64::from_le_bytes(*key));
        }
        for (&x, &key) in rest.iter().zip(column_rest) {
            select(&mut bits, u64::from(x), u64::from(key));
        }
        *sum ^= bits.iter().rev().fold(0, |sum, &word| double(tables, sum) ^ fold(word));
    }
}

/// Adds the bytes of `key` to `bits[b]` if bit `b` of the byte of `x` is set.
#[inline]
fn select(bits: &mut [u64; 8], x: u64, key: u64) {
    for (bit, sum) in bits.iter_mut().enumerate() {
        *sum ^= key & ((x >> bit & 0x0101_0101_0101_0101) * 0xFF);
    }
}

/// The sum of the eight bytes of a word.
#[inline]
pub fn fold(word: u64) -> u8 {
    let word = word ^ word >> 32;
    let word = word ^ word >> 16;
    (word ^ word >> 8) as u8
}

/// `C` columns, whose first bytes are read; checked once, so that the loops over whole vectors need
/// no check per column, nor a pointer and a length for each.
#[derive(Copy, Clone)]
pub struct Rows<'a, const C: usize> {
    columns: &'a [u8],
    stride: usize,
    bytes: usize,
}

impl<'a, const C: usize> Rows<'a, C> {
    /// # Panics
    /// When the last column ends before `bytes`.
    #[inline]
    pub fn new(columns: &'a [u8], stride: usize, bytes: usize) -> Self {
        let end = (C - 1).checked_mul(stride).and_then(|start| start.checked_add(bytes));
        assert!(end.is_some_and(|end| end <= columns.len()), "columns end too early");
        Self { columns, stride, bytes }
    }

    /// `N` bytes of a column. Bytes beyond the columns are never read.
    #[inline(always)]
    pub fn chunk<const N: usize>(&self, column: usize, at: usize) -> &'a [u8; N] {
        debug_assert!(column < C && at + N <= self.bytes);
        let start = column * self.stride + at;
        // SAFETY: private to the routines of this module, which request columns below `C` and whole
        // vectors within the first `bytes` bytes of them; `new` has checked that the last column
        // has these, so all have.
        unsafe { &*self.columns.as_ptr().add(start).cast() }
    }

    /// `N` bytes from the beginning of a column on, if the last column ends after them.
    #[inline]
    pub fn beyond<const N: usize>(&self, column: usize) -> Option<&'a [u8; N]> {
        self.columns[column * self.stride..].first_chunk()
    }

    /// The bytes of a column.
    #[inline]
    pub fn short(&self, column: usize) -> &'a [u8] {
        &self.columns[column * self.stride..][..self.bytes]
    }
}

/// Defines `dots` over `sums_of`, which a level defines for a number of columns.
macro_rules! dots {
    ($features:tt) => {
        #[target_feature(enable = $features)]
        pub(in crate::arch) fn dots(
            tables: &'static Tables,
            columns: &[u8],
            stride: usize,
            vector: &[u8],
            sums: &mut [u8],
        ) {
            let mut first = 0;
            while first < sums.len() {
                let (columns, sums) = (&columns[first * stride..], &mut sums[first..]);
                first += match sums.len() {
                    $crate::arch::dots::TOGETHER.. => {
                        add_sums::<8>(tables, columns, stride, vector, sums)
                    }
                    4.. => add_sums::<4>(tables, columns, stride, vector, sums),
                    _ => add_sums::<1>(tables, columns, stride, vector, sums),
                };
            }
        }

        /// Adds the sums of `C` columns; returns their number.
        #[target_feature(enable = $features)]
        #[inline]
        fn add_sums<const C: usize>(
            tables: &'static Tables,
            columns: &[u8],
            stride: usize,
            vector: &[u8],
            sums: &mut [u8],
        ) -> usize {
            let rows = $crate::arch::dots::Rows::new(columns, stride, vector.len());
            let added = sums_of::<C>(tables, &rows, vector);
            // As one word, if there are eight.
            if let Some(sums) = sums.first_chunk_mut::<C>() {
                for c in 0..C {
                    sums[c] ^= added[c];
                }
            }
            C
        }

        /// A whole vector of a column.
        #[target_feature(enable = $features)]
        #[inline]
        fn load_row<const C: usize>(
            rows: &$crate::arch::dots::Rows<'_, C>,
            column: usize,
            number: usize,
        ) -> Vector {
            load(rows.chunk(column, number * VECTOR))
        }

        /// The last, incomplete vector of a column: the end of the whole one that overlaps finished
        /// bytes, or all of a shorter column.
        #[target_feature(enable = $features)]
        #[inline]
        fn load_last<const C: usize>(
            rows: &$crate::arch::dots::Rows<'_, C>,
            column: usize,
            bytes: usize,
        ) -> Vector {
            match bytes.checked_sub(VECTOR) {
                Some(at) => load(rows.chunk(column, at)),
                // The following bytes are multiplied by zeros.
                None => match rows.beyond(column) {
                    Some(vector) => load(vector),
                    None => load_short(rows.short(column)),
                },
            }
        }

        /// The same for the other vector, with zeros for finished bytes.
        #[target_feature(enable = $features)]
        #[inline]
        fn load_fresh(bytes: &[u8]) -> Vector {
            let Some(last) = bytes.last_chunk() else { return load_short(bytes) };
            let fresh = bytes.len() % VECTOR;
            let mask = $crate::arch::fused::prelude::WINDOW[64 - VECTOR + fresh..].first_chunk();
            mask.map_or(zero(), |mask| and(load(last), load(mask)))
        }
    };
}
pub(super) use dots;

/// Defines `fold_vector`.
#[cfg(target_arch = "x86_64")]
macro_rules! fold_vector {
    ($features:tt) => {
        /// The sum of the bytes of a register.
        #[target_feature(enable = $features)]
        #[inline]
        fn fold_vector(sum: Vector) -> u8 {
            let mut bytes = [0; VECTOR];
            store(&mut bytes, sum);
            let words = bytes.as_chunks::<8>().0.iter();
            $crate::arch::dots::fold(words.fold(0, |sum, word| sum ^ u64::from_le_bytes(*word)))
        }
    };
}
#[cfg(target_arch = "x86_64")]
pub(super) use fold_vector;

/// `sums_of` by products of registers, in the field modulo 0x11B; `halve` makes 16 bytes of one.
#[cfg(target_arch = "x86_64")]
macro_rules! sums_by_products {
    (
        $features:tt, splat: $splat:ident, affine: $affine:ident, multiply: $multiply:ident,
        halve: $halve:path
    ) => {
        #[target_feature(enable = $features)]
        #[inline]
        fn sums_of<const C: usize>(
            tables: &'static Tables,
            rows: &$crate::arch::dots::Rows<'_, C>,
            vector: &[u8],
        ) -> [u8; C] {
            let to_11b = $splat(tables.to_11b.cast_signed());
            let (whole, rest) = vector.as_chunks::<VECTOR>();
            let mut sums = [zero(); C];
            for (i, vector) in whole.iter().enumerate() {
                let x = $affine::<0>(load(vector), to_11b);
                for c in 0..C {
                    sums[c] = xor(sums[c], $multiply(x, load_row(rows, c, i)));
                }
            }
            if !rest.is_empty() {
                let x = $affine::<0>(load_fresh(vector), to_11b);
                for c in 0..C {
                    sums[c] = xor(sums[c], $multiply(x, load_last(rows, c, vector.len())));
                }
            }
            let mut halves = [core::arch::x86_64::_mm_setzero_si128(); C];
            for c in 0..C {
                halves[c] = $halve(sums[c]);
            }
            $crate::arch::x86_64::fold_products(tables, halves)
        }
    };
}
#[cfg(target_arch = "x86_64")]
pub(super) use sums_by_products;

/// `sums_of` by bits of the vector, from the highest; sums are doubled between bits.
#[cfg(target_arch = "x86_64")]
macro_rules! sums_by_bits {
    ($features:tt, shift: $shift:ident, greater: $greater:ident) => {
        /// Bytes of 0xFF where a byte has the bit set that is `below` places below the highest.
        #[target_feature(enable = $features)]
        #[inline]
        fn mask(vector: Vector, below: usize) -> Vector {
            // Bits that cross into the next byte reach its lower bits only.
            let below = core::arch::x86_64::_mm_cvtsi32_si128(below as i32);
            $greater(zero(), $shift(vector, below))
        }

        #[target_feature(enable = $features)]
        #[inline]
        fn sums_of<const C: usize>(
            tables: &'static Tables,
            rows: &$crate::arch::dots::Rows<'_, C>,
            vector: &[u8],
        ) -> [u8; C] {
            let (whole, rest) = vector.as_chunks::<VECTOR>();
            let mut folded = [0; C];
            for below in 0..8 {
                let mut sums = [zero(); C];
                for (i, vector) in whole.iter().enumerate() {
                    let mask = mask(load(vector), below);
                    for c in 0..C {
                        sums[c] = xor(sums[c], and(mask, load_row(rows, c, i)));
                    }
                }
                if !rest.is_empty() {
                    let mask = mask(load_fresh(vector), below);
                    for c in 0..C {
                        sums[c] = xor(sums[c], and(mask, load_last(rows, c, vector.len())));
                    }
                }
                for c in 0..C {
                    let doubled = $crate::arch::dots::double(tables, folded[c]);
                    folded[c] = doubled ^ fold_vector(sums[c]);
                }
            }
            folded
        }
    };
}
#[cfg(target_arch = "x86_64")]
pub(super) use sums_by_bits;
