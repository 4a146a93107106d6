//! AVX-512BW: a product is two byte shuffles, one table for the low nibbles, one for the high (the
//! paper's algorithm `shuffle`).

use core::arch::x86_64::{
    __m512i, _mm_loadu_si128, _mm512_and_si512, _mm512_broadcast_i32x4, _mm512_loadu_si512,
    _mm512_mask_storeu_epi8, _mm512_maskz_loadu_epi8, _mm512_set1_epi8, _mm512_setzero_si512,
    _mm512_shuffle_epi8, _mm512_srli_epi64, _mm512_storeu_si512, _mm512_ternarylogic_epi64,
    _mm512_xor_si512,
};

use crate::arch::Level;
use crate::arch::four_russians::four_russians;
use crate::arch::fused::{matrix_product, plain_sums, prelude::*};
use crate::arch::single::single_source;
use crate::table::Tables;

use super::mask64;

pub(in crate::arch) const LEVEL: Level = Level {
    name: "avx512-shuffle",
    needs: "AVX-512F and AVX-512BW",
    is_available: || is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw"),
    serves: |_| true,
    add,
    mul,
    madd,
    matmul,
    matmul_binary: Some(matmul_binary),
    binary_rows_min: 8,
    reduce,
    eliminate,
};

type Vector = __m512i;
const VECTOR: usize = 64;

plain_sums!("avx512f,avx512bw");
single_source!("avx512f,avx512bw", words: []);
matrix_product!("avx512f,avx512bw", words: [], widths: [2, 1], alone: 8, paired: true);
four_russians!("avx512f,avx512bw");

/// The shuffle tables of a coefficient, in every 128-bit lane.
struct Factor {
    low: Vector,
    high: Vector,
}

/// A vector split into the low and the high half of each byte.
#[derive(Copy, Clone)]
struct Split {
    low: Vector,
    high: Vector,
}

#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn factor<const W: usize>(tables: &Tables, c: u8) -> Factor {
    let pair = &tables.nibbles[usize::from(c)];
    // SAFETY: both pointers are to arrays of 16 bytes.
    let (low, high) = unsafe {
        (_mm_loadu_si128(pair.low.as_ptr().cast()), _mm_loadu_si128(pair.high.as_ptr().cast()))
    };
    Factor { low: _mm512_broadcast_i32x4(low), high: _mm512_broadcast_i32x4(high) }
}

#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn split<const W: usize>(vector: Vector) -> Split {
    let mask = _mm512_set1_epi8(0x0F);
    Split { low: and(vector, mask), high: and(_mm512_srli_epi64::<4>(vector), mask) }
}

#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn product<const W: usize>(factor: &Factor, split: &Split) -> Vector {
    xor(_mm512_shuffle_epi8(factor.low, split.low), _mm512_shuffle_epi8(factor.high, split.high))
}

#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn load(bytes: &[u8; VECTOR]) -> Vector {
    // SAFETY: the pointer is to an array of 64 bytes.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn store(bytes: &mut [u8; VECTOR], vector: Vector) {
    // SAFETY: the pointer is to an array of 64 bytes.
    unsafe { _mm512_storeu_si512(bytes.as_mut_ptr().cast(), vector) };
}

#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn load_short(bytes: &[u8]) -> Vector {
    // SAFETY: the mask admits no byte beyond the slice; masked-off bytes are not accessed and
    // cannot fault.
    unsafe { _mm512_maskz_loadu_epi8(mask64(bytes.len()), bytes.as_ptr().cast()) }
}

#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn store_short(bytes: &mut [u8], vector: Vector) {
    // SAFETY: as in `load_short`, for writes.
    unsafe { _mm512_mask_storeu_epi8(bytes.as_mut_ptr().cast(), mask64(bytes.len()), vector) };
}

#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn zero() -> Vector {
    _mm512_setzero_si512()
}

#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn xor(a: Vector, b: Vector) -> Vector {
    _mm512_xor_si512(a, b)
}

#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn xor3(a: Vector, b: Vector, c: Vector) -> Vector {
    // The truth table of a ^ b ^ c.
    _mm512_ternarylogic_epi64::<0x96>(a, b, c)
}

#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn and(a: Vector, b: Vector) -> Vector {
    _mm512_and_si512(a, b)
}
