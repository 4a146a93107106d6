//! AVX-512 with GFNI: one `vgf2p8affineqb` multiplies 64 bytes by a coefficient.
//!
//! The matrix product keeps a block of destinations in registers: `D` destinations of `V` vectors
//! each accumulate over all sources before anything is stored, so every loaded source vector is
//! used `D` times and the multiplier, one per cycle, is what limits the rate.
//!
//! ```text
//!            one 64-byte vector of two sources       accumulators, D x V zmm registers
//!  source i   : s0 ---- affine by c[j][i]   --\
//!                                               xor three ways --> acc[j][v]
//!  source i+1 : s1 ---- affine by c[j][i+1] --/
//! ```
//!
//! What remains beyond the last whole vector goes through a byte mask; masked-off bytes are neither
//! read nor written, so lengths need not be multiples of 64.
//!
//! Multiply-add of a single source is bound by loads and stores instead, and uses ymm registers,
//! which are faster there (Zen 4: 113 against 94 GB/s at 1500 bytes).

use core::arch::x86_64::{
    __m256i, __m512i, _mm256_gf2p8affine_epi64_epi8, _mm256_loadu_si256, _mm256_set1_epi64x,
    _mm256_storeu_si256, _mm256_xor_si256, _mm512_gf2p8affine_epi64_epi8, _mm512_loadu_si512,
    _mm512_mask_storeu_epi8, _mm512_maskz_loadu_epi8, _mm512_set1_epi64, _mm512_setzero_si512,
    _mm512_storeu_si512, _mm512_ternarylogic_epi64, _mm512_xor_si512,
};

use core::ops::Range;

use crate::arch::Level;
use crate::table::AFFINE;

pub(in crate::arch) const LEVEL: Level =
    Level { name: "avx512-gfni", is_available, add, mul, madd, matmul };

/// Bytes of a zmm register.
const WIDE: usize = 64;

/// Bytes of a ymm register.
const HALF: usize = 32;

/// Truth table of a ^ b ^ c.
const XOR3: i32 = 0x96;

fn is_available() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("gfni")
        && is_x86_feature_detected!("avx2")
}

#[target_feature(enable = "avx512f,avx512bw,gfni,avx2")]
fn add(dst: &mut [u8], src: &[u8]) {
    let (dst_chunks, dst_rest) = dst.as_chunks_mut::<HALF>();
    let (src_chunks, src_rest) = src.as_chunks::<HALF>();
    for (d, s) in dst_chunks.iter_mut().zip(src_chunks) {
        store_half(d, _mm256_xor_si256(load_half(d), load_half(s)));
    }
    if !dst_rest.is_empty() {
        store_part(dst_rest, _mm512_xor_si512(load_part(dst_rest), load_part(src_rest)));
    }
}

#[target_feature(enable = "avx512f,avx512bw,gfni,avx2")]
fn mul(dst: &mut [u8], c: u8) {
    let factor = half_matrix(c);
    let (chunks, rest) = dst.as_chunks_mut::<HALF>();
    for d in chunks {
        store_half(d, _mm256_gf2p8affine_epi64_epi8::<0>(load_half(d), factor));
    }
    if !rest.is_empty() {
        store_part(rest, _mm512_gf2p8affine_epi64_epi8::<0>(load_part(rest), matrix(c)));
    }
}

#[target_feature(enable = "avx512f,avx512bw,gfni,avx2")]
fn madd(dst: &mut [u8], c: u8, src: &[u8]) {
    let factor = half_matrix(c);
    let (dst_chunks, dst_rest) = dst.as_chunks_mut::<HALF>();
    let (src_chunks, src_rest) = src.as_chunks::<HALF>();
    for (d, s) in dst_chunks.iter_mut().zip(src_chunks) {
        let product = _mm256_gf2p8affine_epi64_epi8::<0>(load_half(s), factor);
        store_half(d, _mm256_xor_si256(load_half(d), product));
    }
    if !dst_rest.is_empty() {
        let product = _mm512_gf2p8affine_epi64_epi8::<0>(load_part(src_rest), matrix(c));
        store_part(dst_rest, _mm512_xor_si512(load_part(dst_rest), product));
    }
}

#[target_feature(enable = "avx512f,avx512bw,gfni,avx2")]
fn matmul(
    coefficients: &[u8],
    sources: &[&[u8]],
    destinations: &mut [&mut [u8]],
    accumulate: bool,
) {
    let columns = sources.len();
    let mut done = 0;
    while done < destinations.len() {
        let rows = (destinations.len() - done).min(4);
        let strip = &mut destinations[done..done + rows];
        let factors = &coefficients[done * columns..(done + rows) * columns];
        match rows {
            4 => fill_strip::<4>(factors, sources, strip, accumulate),
            3 => fill_strip::<3>(factors, sources, strip, accumulate),
            2 => fill_strip::<2>(factors, sources, strip, accumulate),
            _ => fill_strip::<1>(factors, sources, strip, accumulate),
        }
        done += rows;
    }
}

/// Computes `D` whole destinations: four vectors at a time, which with four destinations fills the
/// register file (16 sums, 8 sources, 2 factors and their products of 32), then two, one, a part.
#[target_feature(enable = "avx512f,avx512bw,gfni,avx2")]
#[inline]
fn fill_strip<const D: usize>(
    factors: &[u8],
    sources: &[&[u8]],
    strip: &mut [&mut [u8]],
    accumulate: bool,
) {
    let Some(strip) = strip.first_chunk_mut::<D>() else {
        return;
    };
    let bytes = strip[0].len();
    let mut start = 0;
    while bytes - start >= 4 * WIDE {
        fill_block::<D, 4, false>(factors, sources, strip, start..start + 4 * WIDE, accumulate);
        start += 4 * WIDE;
    }
    if bytes - start >= 2 * WIDE {
        fill_block::<D, 2, false>(factors, sources, strip, start..start + 2 * WIDE, accumulate);
        start += 2 * WIDE;
    }
    if bytes - start >= WIDE {
        fill_block::<D, 1, false>(factors, sources, strip, start..start + WIDE, accumulate);
        start += WIDE;
    }
    if start < bytes {
        fill_block::<D, 1, true>(factors, sources, strip, start..bytes, accumulate);
    }
}

/// Computes the bytes of `range` in `D` destinations: `V` whole vectors, or with `PART` (and
/// `V` = 1) less than one.
#[target_feature(enable = "avx512f,avx512bw,gfni,avx2")]
#[inline]
fn fill_block<const D: usize, const V: usize, const PART: bool>(
    factors: &[u8],
    sources: &[&[u8]],
    strip: &mut [&mut [u8]; D],
    range: Range<usize>,
    accumulate: bool,
) {
    let mut sums = [[_mm512_setzero_si512(); V]; D];
    if accumulate {
        for (sum, destination) in sums.iter_mut().zip(strip.iter()) {
            *sum = load::<V, PART>(&destination[range.clone()]);
        }
    }
    let columns = sources.len();
    let (pairs, single) = sources.as_chunks::<2>();
    for (pair, [even, odd]) in pairs.iter().enumerate() {
        let even = load::<V, PART>(&even[range.clone()]);
        let odd = load::<V, PART>(&odd[range.clone()]);
        for (row, sum) in sums.iter_mut().enumerate() {
            let column = row * columns + 2 * pair;
            let (even_factor, odd_factor) = (matrix(factors[column]), matrix(factors[column + 1]));
            for v in 0..V {
                let even_product = _mm512_gf2p8affine_epi64_epi8::<0>(even[v], even_factor);
                let odd_product = _mm512_gf2p8affine_epi64_epi8::<0>(odd[v], odd_factor);
                sum[v] = _mm512_ternarylogic_epi64::<XOR3>(sum[v], even_product, odd_product);
            }
        }
    }
    if let [last] = single {
        let last = load::<V, PART>(&last[range.clone()]);
        for (row, sum) in sums.iter_mut().enumerate() {
            let factor = matrix(factors[(row + 1) * columns - 1]);
            for v in 0..V {
                let product = _mm512_gf2p8affine_epi64_epi8::<0>(last[v], factor);
                sum[v] = _mm512_xor_si512(sum[v], product);
            }
        }
    }
    for (sum, destination) in sums.iter().zip(strip) {
        store::<V, PART>(&mut destination[range.clone()], sum);
    }
}

/// The multiplier of a coefficient, in every 64-bit lane.
#[target_feature(enable = "avx512f,avx512bw,gfni,avx2")]
#[inline]
fn matrix(c: u8) -> __m512i {
    _mm512_set1_epi64(AFFINE[usize::from(c)].cast_signed())
}

#[target_feature(enable = "avx512f,avx512bw,gfni,avx2")]
#[inline]
fn half_matrix(c: u8) -> __m256i {
    _mm256_set1_epi64x(AFFINE[usize::from(c)].cast_signed())
}

/// Loads `V` whole vectors, or with `PART` the first bytes of one, zeroes behind them.
#[target_feature(enable = "avx512f,avx512bw,gfni,avx2")]
#[inline]
fn load<const V: usize, const PART: bool>(bytes: &[u8]) -> [__m512i; V] {
    let mut vectors = [_mm512_setzero_si512(); V];
    if PART {
        vectors[0] = load_part(bytes);
    } else {
        let (chunks, _) = bytes[..V * WIDE].as_chunks::<WIDE>();
        for v in 0..V {
            // SAFETY: the pointer is to an array of 64 bytes.
            vectors[v] = unsafe { _mm512_loadu_si512(chunks[v].as_ptr().cast()) };
        }
    }
    vectors
}

/// Stores `V` whole vectors, or with `PART` as many bytes of the first as there is room for.
#[target_feature(enable = "avx512f,avx512bw,gfni,avx2")]
#[inline]
fn store<const V: usize, const PART: bool>(bytes: &mut [u8], vectors: &[__m512i; V]) {
    if PART {
        store_part(bytes, vectors[0]);
    } else {
        let (chunks, _) = bytes[..V * WIDE].as_chunks_mut::<WIDE>();
        for v in 0..V {
            // SAFETY: the pointer is to an array of 64 bytes.
            unsafe { _mm512_storeu_si512(chunks[v].as_mut_ptr().cast(), vectors[v]) };
        }
    }
}

/// Selects the first `bytes` of a vector, `bytes` <= 64.
#[inline]
fn mask(bytes: usize) -> u64 {
    u64::MAX.checked_shr(64 - bytes as u32).unwrap_or(0)
}

/// Loads up to 64 bytes, zeroes behind them.
#[target_feature(enable = "avx512f,avx512bw,gfni,avx2")]
#[inline]
fn load_part(bytes: &[u8]) -> __m512i {
    let bytes = &bytes[..bytes.len().min(WIDE)];
    // SAFETY: the mask admits the first `bytes.len()` bytes only; masked-off bytes are not
    // accessed and cannot fault.
    unsafe { _mm512_maskz_loadu_epi8(mask(bytes.len()), bytes.as_ptr().cast()) }
}

/// Stores the first `bytes.len()` bytes of a vector, 64 at most.
#[target_feature(enable = "avx512f,avx512bw,gfni,avx2")]
#[inline]
fn store_part(bytes: &mut [u8], vector: __m512i) {
    let count = bytes.len().min(WIDE);
    let bytes = &mut bytes[..count];
    // SAFETY: as in `load_part`, for writes.
    unsafe { _mm512_mask_storeu_epi8(bytes.as_mut_ptr().cast(), mask(bytes.len()), vector) };
}

#[target_feature(enable = "avx2")]
#[inline]
fn load_half(bytes: &[u8; HALF]) -> __m256i {
    // SAFETY: the pointer is to an array of 32 bytes.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

#[target_feature(enable = "avx2")]
#[inline]
fn store_half(bytes: &mut [u8; HALF], vector: __m256i) {
    // SAFETY: the pointer is to an array of 32 bytes.
    unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), vector) };
}
