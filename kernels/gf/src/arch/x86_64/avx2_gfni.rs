//! AVX2 with GFNI: one `vgf2p8affineqb` multiplies 32 bytes by a coefficient, in any field.

use core::arch::x86_64::{
    __m256i, _mm256_and_si256, _mm256_gf2p8affine_epi64_epi8, _mm256_loadu_si256,
    _mm256_set1_epi64x, _mm256_setzero_si256, _mm256_storeu_si256, _mm256_xor_si256,
};

use crate::arch::Level;
use crate::arch::four_russians::four_russians;
use crate::arch::fused::{matrix_product, plain_sums, prelude::*};
use crate::arch::single::single_source;
use crate::table::Tables;

pub(in crate::arch) const LEVEL: Level = Level {
    name: "avx2-gfni",
    needs: "AVX2 and GFNI",
    is_available: || is_x86_feature_detected!("avx2") && is_x86_feature_detected!("gfni"),
    serves: |_| true,
    add,
    mul,
    madd,
    matmul,
    matmul_binary: Some(matmul_binary),
    binary_rows_min: 24,
    reduce,
    eliminate,
};

type Vector = __m256i;
const VECTOR: usize = 32;

plain_sums!("avx2,gfni");
single_source!("avx2,gfni", words: []);
matrix_product!("avx2,gfni", words: [], widths: [2, 1], alone: 8, paired: false);
four_russians!("avx2,gfni");

type Factor = Vector;
type Split = Vector;

#[target_feature(enable = "avx2,gfni")]
#[inline]
fn factor<const W: usize>(tables: &Tables, c: u8) -> Factor {
    _mm256_set1_epi64x(tables.affine[usize::from(c)].cast_signed())
}

#[target_feature(enable = "avx2,gfni")]
#[inline]
fn split<const W: usize>(vector: Vector) -> Split {
    vector
}

#[target_feature(enable = "avx2,gfni")]
#[inline]
fn product<const W: usize>(factor: &Factor, split: &Split) -> Vector {
    _mm256_gf2p8affine_epi64_epi8::<0>(*split, *factor)
}

#[target_feature(enable = "avx2,gfni")]
#[inline]
fn load(bytes: &[u8; VECTOR]) -> Vector {
    // SAFETY: the pointer is to an array of 32 bytes.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

#[target_feature(enable = "avx2,gfni")]
#[inline]
fn store(bytes: &mut [u8; VECTOR], vector: Vector) {
    // SAFETY: the pointer is to an array of 32 bytes.
    unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), vector) };
}

#[target_feature(enable = "avx2,gfni")]
#[inline]
fn load_short(bytes: &[u8]) -> Vector {
    let mut buffer = [0; VECTOR];
    buffer[..bytes.len()].copy_from_slice(bytes);
    load(&buffer)
}

#[target_feature(enable = "avx2,gfni")]
#[inline]
fn store_short(bytes: &mut [u8], vector: Vector) {
    let mut buffer = [0; VECTOR];
    store(&mut buffer, vector);
    bytes.copy_from_slice(&buffer[..bytes.len()]);
}

#[target_feature(enable = "avx2,gfni")]
#[inline]
fn zero() -> Vector {
    _mm256_setzero_si256()
}

#[target_feature(enable = "avx2,gfni")]
#[inline]
fn xor(a: Vector, b: Vector) -> Vector {
    _mm256_xor_si256(a, b)
}

#[target_feature(enable = "avx2,gfni")]
#[inline]
fn xor3(a: Vector, b: Vector, c: Vector) -> Vector {
    xor(a, xor(b, c))
}

#[target_feature(enable = "avx2,gfni")]
#[inline]
fn and(a: Vector, b: Vector) -> Vector {
    _mm256_and_si256(a, b)
}
