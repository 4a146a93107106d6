//! AVX-512 with GFNI: one `vgf2p8affineqb` multiplies 64 bytes by a coefficient, in any field.
//!
//! The multiplier takes one vector a cycle, which is the ceiling of the matrix product. A block of
//! 4 destinations by 4 vectors fills the register file: 16 sums, 8 sources, 2 factors and their
//! products of 32.
//!
//! A single source is bound by loads and stores instead, and uses ymm registers, which are faster
//! there (Zen 4: 113 against 94 GB/s at 1500 bytes).

use core::arch::x86_64::{
    __m512i, _mm512_and_si512, _mm512_gf2p8affine_epi64_epi8, _mm512_loadu_si512,
    _mm512_mask_storeu_epi8, _mm512_maskz_loadu_epi8, _mm512_set1_epi64, _mm512_setzero_si512,
    _mm512_storeu_si512, _mm512_ternarylogic_epi64, _mm512_xor_si512,
};

use crate::arch::Level;
use crate::arch::four_russians::four_russians;
use crate::arch::fused::{matrix_product, plain_sums, prelude::*};
use crate::table::Tables;

use super::mask64;

pub(in crate::arch) const LEVEL: Level = Level {
    name: "avx512-gfni",
    needs: "AVX-512F, AVX-512BW, AVX-512VL and GFNI",
    is_available,
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

fn is_available() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("gfni")
}

type Vector = __m512i;
const VECTOR: usize = 64;
type Factor = __m512i;
type Split = __m512i;

plain_sums!("avx512f,avx512bw,avx512vl,gfni");
matrix_product!("avx512f,avx512bw,avx512vl,gfni", words: [], widths: [4, 3, 2, 1], alone: 8, paired: true);
four_russians!("avx512f,avx512bw,avx512vl,gfni");

#[target_feature(enable = "avx512f,avx512bw,avx512vl,gfni")]
fn add(dst: &mut [u8], src: &[u8]) {
    if dst.len() <= 16 {
        quarter::add(dst, src);
    } else {
        half::add(dst, src);
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,gfni")]
fn mul(tables: &'static Tables, dst: &mut [u8], c: u8) {
    if dst.len() <= 16 {
        quarter::mul(tables, dst, c);
    } else {
        half::mul(tables, dst, c);
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,gfni")]
fn madd(tables: &'static Tables, dst: &mut [u8], c: u8, src: &[u8]) {
    if dst.len() <= 16 {
        quarter::madd(tables, dst, c, src);
    } else {
        half::madd(tables, dst, c, src);
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,gfni")]
fn reduce_held(
    tables: &'static Tables,
    row: &mut [u8],
    factors: &[u8],
    matrix: &[u8],
    stride: usize,
) -> bool {
    if row.len() <= 16 {
        quarter::reduce_held(tables, row, factors, matrix, stride)
    } else {
        half::reduce_held(tables, row, factors, matrix, stride)
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,gfni")]
fn eliminate(tables: &'static Tables, matrix: &mut [u8], stride: usize, column: usize, row: &[u8]) {
    if row.len() <= 16 {
        quarter::eliminate(tables, matrix, stride, column, row);
    } else {
        half::eliminate(tables, matrix, stride, column, row);
    }
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
    unsafe { _mm512_maskz_loadu_epi8(mask64(bytes.len()), bytes.as_ptr().cast()) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,gfni")]
#[inline]
fn store_short(bytes: &mut [u8], vector: Vector) {
    // SAFETY: as in `load_short`, for writes.
    unsafe { _mm512_mask_storeu_epi8(bytes.as_mut_ptr().cast(), mask64(bytes.len()), vector) };
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,gfni")]
#[inline]
fn xor(a: Vector, b: Vector) -> Vector {
    _mm512_xor_si512(a, b)
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

#[target_feature(enable = "avx512f,avx512bw,avx512vl,gfni")]
#[inline]
fn zero() -> Vector {
    _mm512_setzero_si512()
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,gfni")]
#[inline]
fn and(a: Vector, b: Vector) -> Vector {
    _mm512_and_si512(a, b)
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,gfni")]
#[inline]
fn xor3(a: Vector, b: Vector, c: Vector) -> Vector {
    // The truth table of a ^ b ^ c.
    _mm512_ternarylogic_epi64::<0x96>(a, b, c)
}

/// A single source, in ymm registers.
mod half {
    use core::arch::x86_64::{
        __m256i, _mm256_gf2p8affine_epi64_epi8, _mm256_loadu_si256, _mm256_mask_storeu_epi8,
        _mm256_maskz_loadu_epi8, _mm256_set1_epi64x, _mm256_storeu_si256, _mm256_xor_si256,
    };

    use crate::arch::fused::single_source;
    use crate::table::Tables;

    type Vector = __m256i;
    const VECTOR: usize = 32;
    type Factor = __m256i;
    type Split = __m256i;

    single_source!("avx512f,avx512bw,avx512vl,gfni", words: []);

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
        unsafe { _mm256_maskz_loadu_epi8(mask(bytes.len()), bytes.as_ptr().cast()) }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,gfni")]
    #[inline]
    fn store_short(bytes: &mut [u8], vector: Vector) {
        // SAFETY: as in `load_short`, for writes.
        unsafe { _mm256_mask_storeu_epi8(bytes.as_mut_ptr().cast(), mask(bytes.len()), vector) };
    }

    /// Selects the first `bytes` of a vector, all of it from 32 on.
    #[inline]
    const fn mask(bytes: usize) -> u32 {
        if bytes >= 32 { u32::MAX } else { (1 << bytes) - 1 }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,gfni")]
    #[inline]
    fn xor(a: Vector, b: Vector) -> Vector {
        _mm256_xor_si256(a, b)
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
}

/// A single source of no more than 16 bytes, in xmm registers: a masked store of part of a wider
/// one could not be forwarded to the load that follows.
mod quarter {
    use core::arch::x86_64::{
        __m128i, _mm_gf2p8affine_epi64_epi8, _mm_loadu_si128, _mm_mask_storeu_epi8,
        _mm_maskz_loadu_epi8, _mm_set1_epi64x, _mm_storeu_si128, _mm_xor_si128,
    };

    use crate::arch::fused::single_source;
    use crate::table::Tables;

    type Vector = __m128i;
    const VECTOR: usize = 16;
    type Factor = __m128i;
    type Split = __m128i;

    single_source!("avx512f,avx512bw,avx512vl,gfni", words: []);

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
        unsafe { _mm_maskz_loadu_epi8(mask(bytes.len()), bytes.as_ptr().cast()) }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,gfni")]
    #[inline]
    fn store_short(bytes: &mut [u8], vector: Vector) {
        // SAFETY: as in `load_short`, for writes.
        unsafe { _mm_mask_storeu_epi8(bytes.as_mut_ptr().cast(), mask(bytes.len()), vector) };
    }

    /// Selects the first `bytes` of a vector, all of it from 16 on.
    #[inline]
    const fn mask(bytes: usize) -> u16 {
        if bytes >= 16 { u16::MAX } else { (1 << bytes) - 1 }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,gfni")]
    #[inline]
    fn xor(a: Vector, b: Vector) -> Vector {
        _mm_xor_si128(a, b)
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
}
