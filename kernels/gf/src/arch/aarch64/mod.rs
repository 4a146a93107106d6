//! Levels of 64-bit ARM processors, all of which have NEON. Unaligned loads and stores throughout:
//! packets start where packets start.

mod register;

#[cfg(feature = "shuffle")]
pub(super) mod neon_tbl;

pub(super) mod neon_pmull;
