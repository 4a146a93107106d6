//! 16 bytes at a time: coding vectors of up to 16 bytes. A masked store of part of a wider register
//! could not be forwarded to the load that follows.

use core::arch::x86_64::{
    __m128i, _mm_and_si128, _mm_gf2p8affine_epi64_epi8, _mm_loadu_si128, _mm_mask_storeu_epi8,
    _mm_maskz_loadu_epi8, _mm_set1_epi64x, _mm_setzero_si128, _mm_storeu_si128,
    _mm_ternarylogic_epi64, _mm_xor_si128,
};

use crate::arch::fused::{matrix_product, plain_sums, prelude::*};
use crate::arch::single::single_source;
use crate::table::Tables;

use super::super::mask64;

type Vector = __m128i;
const VECTOR: usize = 16;
type Factor = Vector;
type Split = Vector;

plain_sums!("avx512f,avx512bw,avx512vl,gfni");
single_source!("avx512f,avx512bw,avx512vl,gfni", words: []);
matrix_product!("avx512f,avx512bw,avx512vl,gfni", words: [], widths: [1], alone: 1, paired: true);

#[target_feature(enable = "avx512f,avx512bw,avx512vl,gfni")]
#[inline]
fn zero() -> Vector {
    _mm_setzero_si128()
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,gfni")]
#[inline]
fn load(bytes: &[u8; VECTOR]) -> Vector {
    // SAFETY: the pointer is to an array of 16 bytes.
    unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,gfni")]
#[inline]
fn store(bytes: &mut [u8; VECTOR], vector: Vector) {
    // SAFETY: the pointer is to an array of 16 bytes.
    unsafe { _mm_storeu_si128(bytes.as_mut_ptr().cast(), vector) };
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,gfni")]
#[inline]
fn load_short(bytes: &[u8]) -> Vector {
    // SAFETY: the mask admits no byte beyond the slice; masked-off bytes are not accessed and
    // cannot fault.
    unsafe { _mm_maskz_loadu_epi8(mask64(bytes.len()) as u16, bytes.as_ptr().cast()) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,gfni")]
#[inline]
fn store_short(bytes: &mut [u8], vector: Vector) {
    // SAFETY: as in `load_short`, for writes.
    unsafe { _mm_mask_storeu_epi8(bytes.as_mut_ptr().cast(), mask64(bytes.len()) as u16, vector) };
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,gfni")]
#[inline]
fn xor(a: Vector, b: Vector) -> Vector {
    _mm_xor_si128(a, b)
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,gfni")]
#[inline]
fn xor3(a: Vector, b: Vector, c: Vector) -> Vector {
    // The truth table of a ^ b ^ c.
    _mm_ternarylogic_epi64::<0x96>(a, b, c)
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,gfni")]
#[inline]
fn and(a: Vector, b: Vector) -> Vector {
    _mm_and_si128(a, b)
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,gfni")]
#[inline]
fn factor<const W: usize>(tables: &Tables, c: u8) -> Factor {
    _mm_set1_epi64x(tables.affine[usize::from(c)].cast_signed())
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,gfni")]
#[inline]
fn split<const W: usize>(vector: Vector) -> Split {
    vector
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,gfni")]
#[inline]
fn product<const W: usize>(factor: &Factor, split: &Split) -> Vector {
    _mm_gf2p8affine_epi64_epi8::<0>(*split, *factor)
}
