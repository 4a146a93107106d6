//! Levels of x86-64 processors. Unaligned loads and stores throughout: packets start where packets
//! start.

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

/// The lowest bit of each `bits`-bit element of a byte, for the integer multiplication levels.
const fn lowest_bits(bits: usize) -> i8 {
    match bits {
        1 => 0xFF_u8.cast_signed(),
        2 => 0x55,
        4 => 0x11,
        _ => 0x01,
    }
}

/// Selects the first `bytes` of a 64-byte vector, all of it from 64 on.
#[inline]
const fn mask64(bytes: usize) -> u64 {
    if bytes >= 64 { u64::MAX } else { (1 << bytes) - 1 }
}
