//! SSSE3: a product is two byte shuffles, one table for the low nibbles, one for the high (the
//! paper's algorithm `shuffle`).

use core::arch::x86_64::{
    __m128i, _mm_and_si128, _mm_loadu_si128, _mm_set1_epi8, _mm_setzero_si128, _mm_shuffle_epi8,
    _mm_srli_epi64, _mm_storeu_si128, _mm_xor_si128,
};

use crate::arch::Level;
use crate::arch::four_russians::four_russians;
use crate::arch::fused::{matrix_product, plain_sums, prelude::*};
use crate::arch::single::single_source;
use crate::table::Tables;

pub(in crate::arch) const LEVEL: Level = Level {
    name: "ssse3-shuffle",
    needs: "SSSE3",
    is_available: || is_x86_feature_detected!("ssse3"),
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

plain_sums!("ssse3");
single_source!("ssse3", words: []);
matrix_product!("ssse3", words: [], widths: [2, 1], alone: 8, paired: false);
four_russians!("ssse3");

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

#[target_feature(enable = "ssse3")]
#[inline]
fn factor<const W: usize>(tables: &Tables, c: u8) -> Factor {
    let pair = &tables.nibbles[usize::from(c)];
    // SAFETY: both pointers are to arrays of 16 bytes.
    let (low, high) = unsafe {
        (_mm_loadu_si128(pair.low.as_ptr().cast()), _mm_loadu_si128(pair.high.as_ptr().cast()))
    };
    Factor { low, high }
}

#[target_feature(enable = "ssse3")]
#[inline]
fn split<const W: usize>(vector: Vector) -> Split {
    let mask = _mm_set1_epi8(0x0F);
    Split { low: and(vector, mask), high: and(_mm_srli_epi64::<4>(vector), mask) }
}

#[target_feature(enable = "ssse3")]
#[inline]
fn product<const W: usize>(factor: &Factor, split: &Split) -> Vector {
    xor(_mm_shuffle_epi8(factor.low, split.low), _mm_shuffle_epi8(factor.high, split.high))
}

#[target_feature(enable = "ssse3")]
#[inline]
fn load(bytes: &[u8; VECTOR]) -> Vector {
    // SAFETY: the pointer is to an array of 16 bytes.
    unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
}

#[target_feature(enable = "ssse3")]
#[inline]
fn store(bytes: &mut [u8; VECTOR], vector: Vector) {
    // SAFETY: the pointer is to an array of 16 bytes.
    unsafe { _mm_storeu_si128(bytes.as_mut_ptr().cast(), vector) };
}

#[target_feature(enable = "ssse3")]
#[inline]
fn load_short(bytes: &[u8]) -> Vector {
    let mut buffer = [0; VECTOR];
    buffer[..bytes.len()].copy_from_slice(bytes);
    load(&buffer)
}

#[target_feature(enable = "ssse3")]
#[inline]
fn store_short(bytes: &mut [u8], vector: Vector) {
    let mut buffer = [0; VECTOR];
    store(&mut buffer, vector);
    bytes.copy_from_slice(&buffer[..bytes.len()]);
}

#[target_feature(enable = "ssse3")]
#[inline]
fn zero() -> Vector {
    _mm_setzero_si128()
}

#[target_feature(enable = "ssse3")]
#[inline]
fn xor(a: Vector, b: Vector) -> Vector {
    _mm_xor_si128(a, b)
}

#[target_feature(enable = "ssse3")]
#[inline]
fn xor3(a: Vector, b: Vector, c: Vector) -> Vector {
    xor(a, xor(b, c))
}

#[target_feature(enable = "ssse3")]
#[inline]
fn and(a: Vector, b: Vector) -> Vector {
    _mm_and_si128(a, b)
}
