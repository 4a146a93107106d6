//! Sums of the bytes of registers, of several at once: each step halves the remaining width of all
//! of them, so that few steps serve many, and nothing goes through memory.
//!
//! ```text
//!  8 registers -> 16 bytes each -> 8 bytes, 4 registers -> 4 bytes, 2 registers -> 1 byte each
//! ```

use core::arch::x86_64::{
    __m128i, __m256i, __m512i, _mm_and_si128, _mm_castps_si128, _mm_castsi128_ps,
    _mm_gf2p8affine_epi64_epi8, _mm_packs_epi32, _mm_packus_epi16, _mm_set1_epi32, _mm_set1_epi64x,
    _mm_setzero_si128, _mm_shuffle_ps, _mm_srli_epi32, _mm_storel_epi64, _mm_unpackhi_epi64,
    _mm_unpacklo_epi64, _mm_xor_si128, _mm256_castsi256_si128, _mm256_extracti128_si256,
    _mm256_xor_si256, _mm512_castsi512_si256, _mm512_extracti64x4_epi64,
};

use crate::table::Tables;

/// Most registers that are folded at once.
const AT_ONCE: usize = 8;

/// Both halves of a register, added.
#[target_feature(enable = "avx2")]
#[inline]
pub fn halve_ymm(sum: __m256i) -> __m128i {
    _mm_xor_si128(_mm256_castsi256_si128(sum), _mm256_extracti128_si256::<1>(sum))
}

/// All quarters of a register, added.
#[target_feature(enable = "avx512f")]
#[inline]
pub fn halve_zmm(sum: __m512i) -> __m128i {
    let high = _mm512_extracti64x4_epi64::<1>(sum);
    halve_ymm(_mm256_xor_si256(_mm512_castsi512_si256(sum), high))
}

/// The sums of the bytes of `C` registers, at most eight, back from the field modulo 0x11B.
#[target_feature(enable = "gfni")]
#[inline]
pub fn fold_products<const C: usize>(tables: &'static Tables, sums: [__m128i; C]) -> [u8; C] {
    const { assert!(C <= AT_ONCE) };
    let sum = |c: usize| if c < C { sums[c] } else { _mm_setzero_si128() };
    let fours = |c: usize| fours(eights(sum(c), sum(c + 1)), eights(sum(c + 2), sum(c + 3)));
    let words = _mm_packs_epi32(ones(fours(0)), ones(fours(4)));
    let bytes = _mm_packus_epi16(words, words);
    let back = _mm_set1_epi64x(tables.from_11b.cast_signed());
    let bytes = _mm_gf2p8affine_epi64_epi8::<0>(bytes, back);
    let mut all = [0; AT_ONCE];
    // SAFETY: eight bytes are written, the size of the array.
    unsafe { _mm_storel_epi64(all.as_mut_ptr().cast(), bytes) };
    core::array::from_fn(|c| all[c])
}

/// The halves of each of two registers, added.
#[target_feature(enable = "sse2")]
#[inline]
fn eights(a: __m128i, b: __m128i) -> __m128i {
    _mm_xor_si128(_mm_unpacklo_epi64(a, b), _mm_unpackhi_epi64(a, b))
}

/// The same of two registers of two halves each.
#[target_feature(enable = "sse2")]
#[inline]
fn fours(a: __m128i, b: __m128i) -> __m128i {
    let (a, b) = (_mm_castsi128_ps(a), _mm_castsi128_ps(b));
    let low = _mm_castps_si128(_mm_shuffle_ps::<0b10_00_10_00>(a, b));
    let high = _mm_castps_si128(_mm_shuffle_ps::<0b11_01_11_01>(a, b));
    _mm_xor_si128(low, high)
}

/// The sum of the bytes of each word of four.
#[target_feature(enable = "sse2")]
#[inline]
fn ones(sums: __m128i) -> __m128i {
    let sums = _mm_xor_si128(sums, _mm_srli_epi32::<16>(sums));
    let sums = _mm_xor_si128(sums, _mm_srli_epi32::<8>(sums));
    _mm_and_si128(sums, _mm_set1_epi32(0xFF))
}
