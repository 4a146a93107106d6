//! x86-64 levels. Unaligned loads and stores throughout: packets start where packets start.

pub(super) mod avx2;
pub(super) mod gfni512;
