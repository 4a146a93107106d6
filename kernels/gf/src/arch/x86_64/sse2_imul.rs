//! SSE2: integer multiplication of the bits of an element by the products of the coefficient with
//! each of them (the paper's algorithm `imul`). It needs no byte shuffles; its work grows with the
//! bits of an element.

use core::arch::x86_64::{
    __m128i, _mm_and_si128, _mm_cvtsi32_si128, _mm_loadu_si128, _mm_mullo_epi16, _mm_set1_epi8,
    _mm_set1_epi16, _mm_setzero_si128, _mm_srl_epi16, _mm_storeu_si128, _mm_xor_si128,
};

use crate::arch::Level;
use crate::arch::four_russians::four_russians;
use crate::arch::fused::{matrix_product, plain_sums, prelude::*};
use crate::arch::single::single_source;
use crate::table::Tables;

use super::lowest_bits;

pub(in crate::arch) const LEVEL: Level = Level {
    name: "sse2-imul",
    needs: "SSE2",
    is_available: || is_x86_feature_detected!("sse2"),
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

type Vector = __m128i;
const VECTOR: usize = 16;

plain_sums!("sse2");
single_source!("sse2", words: [1, 2, 4]);
matrix_product!("sse2", words: [1, 2, 4], widths: [1], alone: 4, paired: false);
four_russians!("sse2");

/// The products of a coefficient with each bit of an element.
type Factor = [u8; 8];

/// The bits of each element, `W` vectors of them, in the lowest bit of its place.
type Split = [Vector; 8];

#[target_feature(enable = "sse2")]
#[inline]
fn factor<const W: usize>(tables: &Tables, c: u8) -> Factor {
    tables.columns[usize::from(c)]
}

#[target_feature(enable = "sse2")]
#[inline]
fn split<const W: usize>(vector: Vector) -> Split {
    let mask = _mm_set1_epi8(lowest_bits(W));
    let mut bits = [vector; 8];
    for (i, bits) in bits.iter_mut().enumerate().take(W) {
        *bits = and(_mm_srl_epi16(vector, _mm_cvtsi32_si128(i as i32)), mask);
    }
    bits
}

#[target_feature(enable = "sse2")]
#[inline]
fn product<const W: usize>(factor: &Factor, split: &Split) -> Vector {
    let mut sum = zero();
    for i in 0..W {
        let column = _mm_set1_epi16(i16::from(factor[i]));
        sum = xor(sum, _mm_mullo_epi16(split[i], column));
    }
    sum
}

#[target_feature(enable = "sse2")]
#[inline]
fn load(bytes: &[u8; VECTOR]) -> Vector {
    // SAFETY: the pointer is to an array of 16 bytes.
    unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
}

#[target_feature(enable = "sse2")]
#[inline]
fn store(bytes: &mut [u8; VECTOR], vector: Vector) {
    // SAFETY: the pointer is to an array of 16 bytes.
    unsafe { _mm_storeu_si128(bytes.as_mut_ptr().cast(), vector) };
}

#[target_feature(enable = "sse2")]
#[inline]
fn load_short(bytes: &[u8]) -> Vector {
    let mut buffer = [0; VECTOR];
    buffer[..bytes.len()].copy_from_slice(bytes);
    load(&buffer)
}

#[target_feature(enable = "sse2")]
#[inline]
fn store_short(bytes: &mut [u8], vector: Vector) {
    let mut buffer = [0; VECTOR];
    store(&mut buffer, vector);
    bytes.copy_from_slice(&buffer[..bytes.len()]);
}

#[target_feature(enable = "sse2")]
#[inline]
fn zero() -> Vector {
    _mm_setzero_si128()
}

#[target_feature(enable = "sse2")]
#[inline]
fn xor(a: Vector, b: Vector) -> Vector {
    _mm_xor_si128(a, b)
}

#[target_feature(enable = "sse2")]
#[inline]
fn xor3(a: Vector, b: Vector, c: Vector) -> Vector {
    xor(a, xor(b, c))
}

#[target_feature(enable = "sse2")]
#[inline]
fn and(a: Vector, b: Vector) -> Vector {
    _mm_and_si128(a, b)
}
