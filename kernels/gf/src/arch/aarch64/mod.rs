//! Levels of 64-bit ARM processors, which all have NEON. Unaligned loads and stores throughout:
//! packets start at arbitrary addresses.

mod register;

#[cfg(feature = "shuffle")]
pub(super) mod neon_tbl;

pub(super) mod neon_pmull;
