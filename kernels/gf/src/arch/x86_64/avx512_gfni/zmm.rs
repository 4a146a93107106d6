//! 64 bytes at a time: the matrix product.

use core::arch::x86_64::{
    __m512i, _mm512_and_si512, _mm512_gf2p8affine_epi64_epi8, _mm512_loadu_si512,
    _mm512_mask_storeu_epi8, _mm512_maskz_loadu_epi8, _mm512_set1_epi64, _mm512_setzero_si512,
    _mm512_storeu_si512, _mm512_ternarylogic_epi64, _mm512_xor_si512,
};

use crate::arch::four_russians::four_russians;
use crate::arch::fused::{matrix_product, plain_sums, prelude::*};
use crate::table::Tables;

use super::super::mask64 as mask;
use super::ymm::reduce_held;

type Vector = __m512i;
const VECTOR: usize = 64;
type Factor = Vector;
type Split = Vector;

plain_sums!("avx512f,avx512bw,avx512vl,gfni");
matrix_product!(
    "avx512f,avx512bw,avx512vl,gfni",
    words: [],
    widths: [4, 3, 2, 1],
    alone: 8,
    paired: true
);
four_russians!("avx512f,avx512bw,avx512vl,gfni");

#[target_feature(enable = "avx512f,avx512bw,avx512vl,gfni")]
#[inline]
fn zero() -> Vector {
    _mm512_setzero_si512()
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,gfni")]
#[inline]
fn load(bytes: &[u8; VECTOR]) -> Vector {
    // SAFETY: the pointer is to an array of 64 bytes.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,gfni")]
#[inline]
fn store(bytes: &mut [u8; VECTOR], vector: Vector) {
    // SAFETY: the pointer is to an array of 64 bytes.
    unsafe { _mm512_storeu_si512(bytes.as_mut_ptr().cast(), vector) };
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,gfni")]
#[inline]
fn load_short(bytes: &[u8]) -> Vector {
    // SAFETY: the mask admits no byte beyond the slice; masked-off bytes are not accessed and
    // cannot fault.
    unsafe { _mm512_maskz_loadu_epi8(mask(bytes.len()), bytes.as_ptr().cast()) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,gfni")]
#[inline]
fn store_short(bytes: &mut [u8], vector: Vector) {
    // SAFETY: as in `load_short`, for writes.
    unsafe { _mm512_mask_storeu_epi8(bytes.as_mut_ptr().cast(), mask(bytes.len()), vector) };
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,gfni")]
#[inline]
fn xor(a: Vector, b: Vector) -> Vector {
    _mm512_xor_si512(a, b)
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,gfni")]
#[inline]
fn xor3(a: Vector, b: Vector, c: Vector) -> Vector {
    // The truth table of a ^ b ^ c.
    _mm512_ternarylogic_epi64::<0x96>(a, b, c)
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,gfni")]
#[inline]
fn and(a: Vector, b: Vector) -> Vector {
    _mm512_and_si512(a, b)
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,gfni")]
#[inline]
fn factor<const W: usize>(tables: &Tables, c: u8) -> Factor {
    _mm512_set1_epi64(tables.affine[usize::from(c)].cast_signed())
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,gfni")]
#[inline]
fn split<const W: usize>(vector: Vector) -> Split {
    vector
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,gfni")]
#[inline]
fn product<const W: usize>(factor: &Factor, split: &Split) -> Vector {
    _mm512_gf2p8affine_epi64_epi8::<0>(*split, *factor)
}
