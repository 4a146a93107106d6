//! AVX2: a product is two byte shuffles, one table for the low nibbles, one for the high (the
//! paper's algorithm `shuffle`).

use core::arch::x86_64::{
    __m256i, _mm_loadu_si128, _mm256_and_si256, _mm256_broadcastsi128_si256, _mm256_loadu_si256,
    _mm256_set1_epi8, _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_srli_epi64,
    _mm256_storeu_si256, _mm256_xor_si256,
};

use crate::arch::Level;
use crate::arch::four_russians::four_russians;
use crate::arch::fused::{matrix_product, plain_sums, prelude::*};
use crate::arch::single::single_source;
use crate::table::Tables;

pub(in crate::arch) const LEVEL: Level = Level {
    name: "avx2-shuffle",
    needs: "AVX2",
    is_available: || is_x86_feature_detected!("avx2"),
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

type Vector = __m256i;
const VECTOR: usize = 32;

plain_sums!("avx2");
single_source!("avx2", words: []);
matrix_product!("avx2", words: [], widths: [2, 1], alone: 8, paired: false);
four_russians!("avx2");

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

#[target_feature(enable = "avx2")]
#[inline]
fn factor<const W: usize>(tables: &Tables, c: u8) -> Factor {
    let pair = &tables.nibbles[usize::from(c)];
    // SAFETY: both pointers are to arrays of 16 bytes.
    let (low, high) = unsafe {
        (_mm_loadu_si128(pair.low.as_ptr().cast()), _mm_loadu_si128(pair.high.as_ptr().cast()))
    };
    Factor { low: _mm256_broadcastsi128_si256(low), high: _mm256_broadcastsi128_si256(high) }
}

#[target_feature(enable = "avx2")]
#[inline]
fn split<const W: usize>(vector: Vector) -> Split {
    let mask = _mm256_set1_epi8(0x0F);
    Split { low: and(vector, mask), high: and(_mm256_srli_epi64::<4>(vector), mask) }
}

#[target_feature(enable = "avx2")]
#[inline]
fn product<const W: usize>(factor: &Factor, split: &Split) -> Vector {
    xor(_mm256_shuffle_epi8(factor.low, split.low), _mm256_shuffle_epi8(factor.high, split.high))
}

#[target_feature(enable = "avx2")]
#[inline]
fn load(bytes: &[u8; VECTOR]) -> Vector {
    // SAFETY: the pointer is to an array of 32 bytes.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

#[target_feature(enable = "avx2")]
#[inline]
fn store(bytes: &mut [u8; VECTOR], vector: Vector) {
    // SAFETY: the pointer is to an array of 32 bytes.
    unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), vector) };
}

#[target_feature(enable = "avx2")]
#[inline]
fn load_short(bytes: &[u8]) -> Vector {
    let mut buffer = [0; VECTOR];
    buffer[..bytes.len()].copy_from_slice(bytes);
    load(&buffer)
}

#[target_feature(enable = "avx2")]
#[inline]
fn store_short(bytes: &mut [u8], vector: Vector) {
    let mut buffer = [0; VECTOR];
    store(&mut buffer, vector);
    bytes.copy_from_slice(&buffer[..bytes.len()]);
}

#[target_feature(enable = "avx2")]
#[inline]
fn zero() -> Vector {
    _mm256_setzero_si256()
}

#[target_feature(enable = "avx2")]
#[inline]
fn xor(a: Vector, b: Vector) -> Vector {
    _mm256_xor_si256(a, b)
}

#[target_feature(enable = "avx2")]
#[inline]
fn xor3(a: Vector, b: Vector, c: Vector) -> Vector {
    xor(a, xor(b, c))
}

#[target_feature(enable = "avx2")]
#[inline]
fn and(a: Vector, b: Vector) -> Vector {
    _mm256_and_si256(a, b)
}
