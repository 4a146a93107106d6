//! Levels and the call through their function pointers.
//!
//! A [`Level`] is a row of function pointers that may need CPU features; [`Available`] is the
//! proof that this CPU has them, so its methods are safe. Callers (`kernel.rs`) have checked the
//! shapes: equal lengths, one coefficient per destination and source, matrices large enough.
//! Levels rely on that for results only, never for memory safety.

pub(crate) mod carry_less;

mod naive;

mod table;

mod dots;
mod four_russians;
mod fused;
mod pass;
mod single;

#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
mod aarch64;

#[cfg(target_arch = "x86_64")]
mod x86_64;

use crate::field::Field;
use crate::table::Tables;

/// Levels compiled into this build, slowest first.
pub(crate) static LEVELS: &[Level] = &[
    naive::LEVEL,
    table::LEVEL,
    #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
    aarch64::neon_pmull::LEVEL,
    #[cfg(all(target_arch = "aarch64", target_endian = "little", feature = "shuffle"))]
    aarch64::neon_tbl::LEVEL,
    #[cfg(target_arch = "x86_64")]
    x86_64::sse2_imul::LEVEL,
    #[cfg(target_arch = "x86_64")]
    x86_64::avx2_imul::LEVEL,
    #[cfg(target_arch = "x86_64")]
    x86_64::avx512_imul::LEVEL,
    #[cfg(all(target_arch = "x86_64", feature = "shuffle"))]
    x86_64::ssse3_shuffle::LEVEL,
    #[cfg(all(target_arch = "x86_64", feature = "shuffle"))]
    x86_64::avx2_shuffle::LEVEL,
    #[cfg(all(target_arch = "x86_64", feature = "shuffle"))]
    x86_64::avx512_shuffle::LEVEL,
    #[cfg(target_arch = "x86_64")]
    x86_64::avx2_gfni::LEVEL,
    #[cfg(target_arch = "x86_64")]
    x86_64::avx512_gfni::LEVEL,
];

type Matmul = unsafe fn(
    tables: &'static Tables,
    coefficients: &[u8],
    sources: &[&[u8]],
    destinations: &mut [&mut [u8]],
    accumulate: bool,
);

/// One level: its name, whether this CPU has it, and its routines.
///
/// The routines may only be called when `is_available` has returned true.
pub(crate) struct Level {
    pub name: &'static str,
    /// CPU features, as text.
    pub needs: &'static str,
    is_available: fn() -> bool,
    /// Whether the level computes over a field.
    pub serves: fn(Field) -> bool,
    add: unsafe fn(dst: &mut [u8], src: &[u8]),
    mul: unsafe fn(tables: &'static Tables, dst: &mut [u8], c: u8),
    madd: unsafe fn(tables: &'static Tables, dst: &mut [u8], c: u8, src: &[u8]),
    matmul: Matmul,
    /// `matmul` where every coefficient is 0 or 1, by the method of the four Russians.
    matmul_binary: Option<Matmul>,
    /// Least number of destinations that makes it faster. Computing 16 sums for 4 sources costs as
    /// many products as it saves for about 20 destinations by GFNI, for fewer by slower products.
    /// products.
    pub binary_rows_min: usize,
    /// `row += sum of factors[i] * matrix row i`.
    reduce: unsafe fn(
        tables: &'static Tables,
        row: &mut [u8],
        factors: &[u8],
        matrix: &[u8],
        stride: usize,
    ),
    /// `matrix row i += its own element at column * row`.
    eliminate: unsafe fn(
        tables: &'static Tables,
        matrix: &mut [u8],
        stride: usize,
        column: usize,
        row: &[u8],
    ),
    /// `sums[c] += sum over i of columns[c * stride + i] * vector[i]`, on prepared columns.
    dots: unsafe fn(
        tables: &'static Tables,
        columns: &[u8],
        stride: usize,
        vector: &[u8],
        sums: &mut [u8],
    ),
    /// Prepares columns for `dots`.
    prepare: fn(tables: &'static Tables, columns: &mut [u8]),
}

impl Level {
    /// The level, if this CPU can run it.
    pub fn detect(&'static self) -> Option<Available> {
        (self.is_available)().then_some(Available(self))
    }
}

/// A level that was detected on this CPU.
#[derive(Copy, Clone)]
pub(crate) struct Available(&'static Level);

impl Available {
    pub fn level(self) -> &'static Level {
        self.0
    }

    #[inline]
    pub fn add(self, dst: &mut [u8], src: &[u8]) {
        // SAFETY: `Available` exists only for a level whose CPU features were detected.
        unsafe { (self.0.add)(dst, src) }
    }

    #[inline]
    pub fn mul(self, tables: &'static Tables, dst: &mut [u8], c: u8) {
        // SAFETY: as in `add`.
        unsafe { (self.0.mul)(tables, dst, c) }
    }

    #[inline]
    pub fn madd(self, tables: &'static Tables, dst: &mut [u8], c: u8, src: &[u8]) {
        // SAFETY: as in `add`.
        unsafe { (self.0.madd)(tables, dst, c, src) }
    }

    #[inline]
    pub fn matmul(
        self,
        tables: &'static Tables,
        coefficients: &[u8],
        sources: &[&[u8]],
        destinations: &mut [&mut [u8]],
        accumulate: bool,
    ) {
        // SAFETY: as in `add`.
        unsafe { (self.0.matmul)(tables, coefficients, sources, destinations, accumulate) }
    }

    /// Like `matmul` with coefficients 0 and 1; does nothing and returns false if the level has no
    /// special routine.
    #[inline]
    pub fn matmul_binary(
        self,
        tables: &'static Tables,
        coefficients: &[u8],
        sources: &[&[u8]],
        destinations: &mut [&mut [u8]],
        accumulate: bool,
    ) -> bool {
        let Some(matmul) = self.0.matmul_binary else { return false };
        // SAFETY: as in `add`.
        unsafe { matmul(tables, coefficients, sources, destinations, accumulate) };
        true
    }

    #[inline]
    pub fn reduce(
        self,
        tables: &'static Tables,
        row: &mut [u8],
        factors: &[u8],
        matrix: &[u8],
        stride: usize,
    ) {
        // SAFETY: as in `add`.
        unsafe { (self.0.reduce)(tables, row, factors, matrix, stride) }
    }

    #[inline]
    pub fn eliminate(
        self,
        tables: &'static Tables,
        matrix: &mut [u8],
        stride: usize,
        column: usize,
        row: &[u8],
    ) {
        // SAFETY: as in `add`.
        unsafe { (self.0.eliminate)(tables, matrix, stride, column, row) }
    }
    #[inline]
    pub fn dots(
        self,
        tables: &'static Tables,
        columns: &[u8],
        stride: usize,
        vector: &[u8],
        sums: &mut [u8],
    ) {
        // SAFETY: as in `add`.
        unsafe { (self.0.dots)(tables, columns, stride, vector, sums) }
    }

    #[inline]
    pub fn prepare(self, tables: &'static Tables, columns: &mut [u8]) {
        (self.0.prepare)(tables, columns);
    }
}
