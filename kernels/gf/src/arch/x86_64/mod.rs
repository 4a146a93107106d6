//! Levels of x86-64 processors. Unaligned loads and stores throughout: packets start at arbitrary
//! addresses.

mod product;
mod register;

mod short;

mod fold;

pub(super) use fold::fold_products;

pub(super) mod sse2_imul;

pub(super) mod avx2_imul;

pub(super) mod avx512_imul;

#[cfg(feature = "shuffle")]
pub(super) mod ssse3_shuffle;

#[cfg(feature = "shuffle")]
pub(super) mod avx2_shuffle;

#[cfg(feature = "shuffle")]
pub(super) mod avx512_shuffle;

pub(super) mod avx2_gfni;

pub(super) mod avx512_gfni;
