//! AVX-512F: integer multiplication of the bits of an element by the products of the coefficient with
//! each of them (the paper's algorithm `imul`). It needs no byte shuffles; its work grows with the
//! bits of an element.

use core::arch::x86_64::{
    __m512i, _mm_cvtsi32_si128, _mm512_and_si512, _mm512_loadu_si512, _mm512_mullo_epi32,
    _mm512_set1_epi8, _mm512_set1_epi32, _mm512_setzero_si512, _mm512_srl_epi32,
    _mm512_storeu_si512, _mm512_ternarylogic_epi64, _mm512_xor_si512,
};

use crate::arch::Level;
use crate::arch::four_russians::four_russians;
use crate::arch::fused::{matrix_product, plain_sums, prelude::*};
use crate::arch::single::single_source;
use crate::table::Tables;

use super::lowest_bits;

pub(in crate::arch) const LEVEL: Level = Level {
    name: "avx512-imul",
    needs: "AVX-512F",
    is_available: || is_x86_feature_detected!("avx512f"),
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

plain_sums!("avx512f");
single_source!("avx512f", words: [1, 2, 4]);
matrix_product!("avx512f", words: [1, 2, 4], widths: [1], alone: 4, paired: true);
four_russians!("avx512f");

/// The products of a coefficient with each bit of an element.
type Factor = [u8; 8];

/// The bits of each element, `W` vectors of them, in the lowest bit of its place.
type Split = [Vector; 8];

#[target_feature(enable = "avx512f")]
#[inline]
fn factor<const W: usize>(tables: &Tables, c: u8) -> Factor {
    tables.columns[usize::from(c)]
}

#[target_feature(enable = "avx512f")]
#[inline]
fn split<const W: usize>(vector: Vector) -> Split {
    let mask = _mm512_set1_epi8(lowest_bits(W));
    let mut bits = [vector; 8];
    for (i, bits) in bits.iter_mut().enumerate().take(W) {
        *bits = and(_mm512_srl_epi32(vector, _mm_cvtsi32_si128(i as i32)), mask);
    }
    bits
}

#[target_feature(enable = "avx512f")]
#[inline]
fn product<const W: usize>(factor: &Factor, split: &Split) -> Vector {
    let mut sum = zero();
    for i in 0..W {
        let column = _mm512_set1_epi32(i32::from(factor[i]));
        sum = xor(sum, _mm512_mullo_epi32(split[i], column));
    }
    sum
}

#[target_feature(enable = "avx512f")]
#[inline]
fn load(bytes: &[u8; VECTOR]) -> Vector {
    // SAFETY: the pointer is to an array of 64 bytes.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

#[target_feature(enable = "avx512f")]
#[inline]
fn store(bytes: &mut [u8; VECTOR], vector: Vector) {
    // SAFETY: the pointer is to an array of 64 bytes.
    unsafe { _mm512_storeu_si512(bytes.as_mut_ptr().cast(), vector) };
}

#[target_feature(enable = "avx512f")]
#[inline]
fn load_short(bytes: &[u8]) -> Vector {
    let mut buffer = [0; VECTOR];
    buffer[..bytes.len()].copy_from_slice(bytes);
    load(&buffer)
}

#[target_feature(enable = "avx512f")]
#[inline]
fn store_short(bytes: &mut [u8], vector: Vector) {
    let mut buffer = [0; VECTOR];
    store(&mut buffer, vector);
    bytes.copy_from_slice(&buffer[..bytes.len()]);
}

#[target_feature(enable = "avx512f")]
#[inline]
fn zero() -> Vector {
    _mm512_setzero_si512()
}

#[target_feature(enable = "avx512f")]
#[inline]
fn xor(a: Vector, b: Vector) -> Vector {
    _mm512_xor_si512(a, b)
}

#[target_feature(enable = "avx512f")]
#[inline]
fn xor3(a: Vector, b: Vector, c: Vector) -> Vector {
    // The truth table of a ^ b ^ c.
    _mm512_ternarylogic_epi64::<0x96>(a, b, c)
}

#[target_feature(enable = "avx512f")]
#[inline]
fn and(a: Vector, b: Vector) -> Vector {
    _mm512_and_si512(a, b)
}
