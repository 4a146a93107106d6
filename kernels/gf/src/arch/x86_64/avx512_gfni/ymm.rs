//! 32 bytes at a time: a single source of any length, and coding vectors of up to 32 bytes.

use core::arch::x86_64::{
    __m256i, _mm256_and_si256, _mm256_gf2p8affine_epi64_epi8, _mm256_loadu_si256,
    _mm256_mask_storeu_epi8, _mm256_maskz_loadu_epi8, _mm256_set1_epi64x, _mm256_setzero_si256,
    _mm256_storeu_si256, _mm256_ternarylogic_epi64, _mm256_xor_si256,
};

use crate::arch::fused::{matrix_product, plain_sums, prelude::*};
use crate::arch::single::single_source;
use crate::table::Tables;

use super::super::mask64;

type Vector = __m256i;
const VECTOR: usize = 32;
type Factor = Vector;
type Split = Vector;

plain_sums!("avx512f,avx512bw,avx512vl,gfni");
single_source!("avx512f,avx512bw,avx512vl,gfni", words: []);
matrix_product!("avx512f,avx512bw,avx512vl,gfni", words: [], widths: [1], alone: 1, paired: true);

#[target_feature(enable = "avx512f,avx512bw,avx512vl,gfni")]
#[inline]
fn zero() -> Vector {
    _mm256_setzero_si256()
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,gfni")]
#[inline]
fn load(bytes: &[u8; VECTOR]) -> Vector {
    // SAFETY: the pointer is to an array of 32 bytes.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,gfni")]
#[inline]
fn store(bytes: &mut [u8; VECTOR], vector: Vector) {
    // SAFETY: the pointer is to an array of 32 bytes.
    unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), vector) };
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,gfni")]
#[inline]
fn load_short(bytes: &[u8]) -> Vector {
    // SAFETY: the mask admits no byte beyond the slice; masked-off bytes are not accessed and
    // cannot fault.
    unsafe { _mm256_maskz_loadu_epi8(mask64(bytes.len()) as u32, bytes.as_ptr().cast()) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,gfni")]
#[inline]
fn store_short(bytes: &mut [u8], vector: Vector) {
    // SAFETY: as in `load_short`, for writes.
    unsafe {
        _mm256_mask_storeu_epi8(bytes.as_mut_ptr().cast(), mask64(bytes.len()) as u32, vector)
    };
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,gfni")]
#[inline]
fn xor(a: Vector, b: Vector) -> Vector {
    _mm256_xor_si256(a, b)
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,gfni")]
#[inline]
fn xor3(a: Vector, b: Vector, c: Vector) -> Vector {
    // The truth table of a ^ b ^ c.
    _mm256_ternarylogic_epi64::<0x96>(a, b, c)
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,gfni")]
#[inline]
fn and(a: Vector, b: Vector) -> Vector {
    _mm256_and_si256(a, b)
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,gfni")]
#[inline]
fn factor<const W: usize>(tables: &Tables, c: u8) -> Factor {
    _mm256_set1_epi64x(tables.affine[usize::from(c)].cast_signed())
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,gfni")]
#[inline]
fn split<const W: usize>(vector: Vector) -> Split {
    vector
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,gfni")]
#[inline]
fn product<const W: usize>(factor: &Factor, split: &Split) -> Vector {
    _mm256_gf2p8affine_epi64_epi8::<0>(*split, *factor)
}
