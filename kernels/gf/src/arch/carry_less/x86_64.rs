//! `pclmulqdq`: one product at a time, or four with AVX-512.

use core::arch::x86_64::{
    __m128i, __m512i, _mm_clmulepi64_si128, _mm_loadu_si128, _mm_setzero_si128, _mm_storeu_si128,
    _mm_xor_si128, _mm512_clmulepi64_epi128, _mm512_extracti32x4_epi32, _mm512_loadu_si512,
    _mm512_mask_loadu_epi8, _mm512_setzero_si512, _mm512_xor_si512,
};
use std::arch::is_x86_feature_detected;

use super::{CarryLessMethod, padded};

pub(super) const SSE: CarryLessMethod = CarryLessMethod {
    name: "pclmulqdq",
    is_available: || is_x86_feature_detected!("pclmulqdq") && is_x86_feature_detected!("sse2"),
    sum,
};

pub(super) const AVX512: CarryLessMethod = CarryLessMethod {
    name: "avx512-vpclmulqdq",
    is_available: || {
        is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("vpclmulqdq")
            && is_x86_feature_detected!("pclmulqdq")
    },
    sum: sum_of_fours,
};

/// The lower word of a pair times its upper one.
const LOWER_BY_UPPER: i32 = 0x10;

#[target_feature(enable = "sse2,pclmulqdq")]
fn sum(key: &[u8], message: &[u8]) -> u128 {
    let (keys, _) = key.as_chunks::<16>();
    let (blocks, rest) = message.as_chunks::<16>();
    let mut sums = [_mm_setzero_si128(); 2];
    let (pairs, single) = blocks.as_chunks::<2>();
    let (key_pairs, _) = keys.as_chunks::<2>();
    for (block, key) in pairs.iter().zip(key_pairs) {
        sums[0] = _mm_xor_si128(sums[0], term(&key[0], &block[0]));
        sums[1] = _mm_xor_si128(sums[1], term(&key[1], &block[1]));
    }
    // At most one whole block is left, and a part of one.
    let ends = single.iter().copied().chain((!rest.is_empty()).then(|| padded(rest)));
    for (key, block) in keys[2 * pairs.len()..].iter().zip(ends) {
        sums[0] = _mm_xor_si128(sums[0], term(key, &block));
    }
    number(_mm_xor_si128(sums[0], sums[1]))
}

#[target_feature(enable = "sse2,pclmulqdq")]
#[inline]
fn term(key: &[u8; 16], block: &[u8; 16]) -> __m128i {
    let pair = _mm_xor_si128(load(key), load(block));
    _mm_clmulepi64_si128::<LOWER_BY_UPPER>(pair, pair)
}

#[target_feature(enable = "sse2")]
#[inline]
fn load(bytes: &[u8; 16]) -> __m128i {
    // SAFETY: the pointer is to an array as long as the register.
    unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
}

#[target_feature(enable = "sse2")]
#[inline]
fn number(vector: __m128i) -> u128 {
    let mut bytes = [0; 16];
    // SAFETY: as in `load`.
    unsafe { _mm_storeu_si128(bytes.as_mut_ptr().cast(), vector) };
    u128::from_le_bytes(bytes)
}

#[target_feature(enable = "avx512f,avx512bw,vpclmulqdq,pclmulqdq")]
fn sum_of_fours(key: &[u8], message: &[u8]) -> u128 {
    let (keys, last_key) = key.as_chunks::<64>();
    let (blocks, last) = message.as_chunks::<64>();
    let mut sums = [_mm512_setzero_si512(); 2];
    let (pairs, single) = blocks.as_chunks::<2>();
    let (key_pairs, _) = keys.as_chunks::<2>();
    for (block, key) in pairs.iter().zip(key_pairs) {
        sums[0] = _mm512_xor_si512(sums[0], terms(load_four(&key[0]), load_four(&block[0])));
        sums[1] = _mm512_xor_si512(sums[1], terms(load_four(&key[1]), load_four(&block[1])));
    }
    for (block, key) in single.iter().zip(&keys[2 * pairs.len()..]) {
        sums[0] = _mm512_xor_si512(sums[0], terms(load_four(key), load_four(block)));
    }
    if !last.is_empty() {
        // The key has whole blocks: it ends within the last one, or with it.
        let key = if blocks.len() == keys.len() { last_key } else { &keys[blocks.len()] };
        sums[1] = _mm512_xor_si512(sums[1], terms(load_part(key), load_part(last)));
    }
    let sum = _mm512_xor_si512(sums[0], sums[1]);
    number(_mm512_extracti32x4_epi32::<0>(sum))
        ^ number(_mm512_extracti32x4_epi32::<1>(sum))
        ^ number(_mm512_extracti32x4_epi32::<2>(sum))
        ^ number(_mm512_extracti32x4_epi32::<3>(sum))
}

#[target_feature(enable = "avx512f,vpclmulqdq")]
#[inline]
fn terms(key: __m512i, blocks: __m512i) -> __m512i {
    let pairs = _mm512_xor_si512(key, blocks);
    _mm512_clmulepi64_epi128::<LOWER_BY_UPPER>(pairs, pairs)
}

#[target_feature(enable = "avx512f")]
#[inline]
fn load_four(bytes: &[u8; 64]) -> __m512i {
    // SAFETY: the pointer is to an array as long as the register.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

/// At most 64 bytes, with zeros behind them.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn load_part(bytes: &[u8]) -> __m512i {
    let mask = u64::MAX >> (64 - bytes.len().min(64) as u32).min(63);
    // SAFETY: only bytes of the slice are loaded; it is not empty.
    unsafe { _mm512_mask_loadu_epi8(_mm512_setzero_si512(), mask, bytes.as_ptr().cast()) }
}
