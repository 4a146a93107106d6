//! `pmull`: on 64-bit words, for CPUs with the AES instructions, or on bytes, for all.

use core::arch::aarch64::{
    poly8x8_t, uint8x16_t, vand_u8, vcombine_u8, vcreate_p8, vcreate_u8, vdupq_n_u8, veor_u8,
    veorq_u8, vext_p8, vextq_u8, vget_high_u8, vget_low_u8, vgetq_lane_u64, vmull_p8, vmull_p64,
    vreinterpretq_u8_p16, vreinterpretq_u64_u8,
};
use std::arch::is_aarch64_feature_detected;

use super::{CarryLessMethod, padded};

pub(super) const BYTES: CarryLessMethod = CarryLessMethod {
    name: "pmull-bytes",
    is_available: || is_aarch64_feature_detected!("neon"),
    sum: sum_by_bytes,
};

pub(super) const PMULL: CarryLessMethod = CarryLessMethod {
    name: "pmull",
    is_available: || is_aarch64_feature_detected!("neon") && is_aarch64_feature_detected!("aes"),
    sum,
};

#[target_feature(enable = "neon,aes")]
fn sum(key: &[u8], message: &[u8]) -> u128 {
    let (keys, _) = key.as_chunks::<16>();
    let (blocks, rest) = message.as_chunks::<16>();
    let mut sums = [0_u128; 2];
    let (pairs, single) = blocks.as_chunks::<2>();
    let (key_pairs, _) = keys.as_chunks::<2>();
    for (block, key) in pairs.iter().zip(key_pairs) {
        sums[0] ^= term(&key[0], &block[0]);
        sums[1] ^= term(&key[1], &block[1]);
    }
    // At most one whole block is left, and a part of one.
    let ends = single.iter().copied().chain((!rest.is_empty()).then(|| padded(rest)));
    for (key, block) in keys[2 * pairs.len()..].iter().zip(ends) {
        sums[0] ^= term(key, &block);
    }
    sums[0] ^ sums[1]
}

#[target_feature(enable = "neon,aes")]
#[inline]
fn term(key: &[u8; 16], block: &[u8; 16]) -> u128 {
    let pair = u128::from_le_bytes(*key) ^ u128::from_le_bytes(*block);
    vmull_p64(pair as u64, (pair >> 64) as u64)
}

#[target_feature(enable = "neon")]
fn sum_by_bytes(key: &[u8], message: &[u8]) -> u128 {
    let (keys, _) = key.as_chunks::<16>();
    let (blocks, rest) = message.as_chunks::<16>();
    let mut sum = vdupq_n_u8(0);
    let ends = (!rest.is_empty()).then(|| padded(rest));
    for (key, block) in keys.iter().zip(blocks.iter().copied().chain(ends)) {
        let pair = u128::from_le_bytes(*key) ^ u128::from_le_bytes(block);
        sum = veorq_u8(sum, product(pair as u64, (pair >> 64) as u64));
    }
    let words = vreinterpretq_u64_u8(sum);
    u128::from(vgetq_lane_u64::<1>(words)) << 64 | u128::from(vgetq_lane_u64::<0>(words))
}

/// Products of bytes at the same places, and of bytes that lie 1 to 4 places apart, each moved to
/// its place (Câmara, Gouvêa, López and Dahab, *Fast software polynomial multiplication on ARM
/// processors using the NEON engine*, 2013).
#[target_feature(enable = "neon")]
#[inline]
fn product(a: u64, b: u64) -> uint8x16_t {
    let (a, b) = (vcreate_p8(a), vcreate_p8(b));
    let one = veorq_u8(times(vext_p8::<1>(a, a), b), times(a, vext_p8::<1>(b, b)));
    let two = veorq_u8(times(vext_p8::<2>(a, a), b), times(a, vext_p8::<2>(b, b)));
    let three = veorq_u8(times(vext_p8::<3>(a, a), b), times(a, vext_p8::<3>(b, b)));
    let four = times(a, vext_p8::<4>(b, b));
    let (one, two) = (apart(one, u64::MAX >> 16), apart(two, u64::MAX >> 32));
    let (three, four) = (apart(three, u64::MAX >> 48), apart(four, 0));
    let (one, two) = (vextq_u8::<15>(one, one), vextq_u8::<14>(two, two));
    let (three, four) = (vextq_u8::<13>(three, three), vextq_u8::<12>(four, four));
    veorq_u8(times(a, b), veorq_u8(veorq_u8(one, two), veorq_u8(three, four)))
}

/// Eight products of bytes, of 16 bits each.
#[target_feature(enable = "neon")]
#[inline]
fn times(a: poly8x8_t, b: poly8x8_t) -> uint8x16_t {
    vreinterpretq_u8_p16(vmull_p8(a, b))
}

/// Products that wrapped around within words belong to the upper half: those that `kept` does not
/// keep there go to the lower one.
#[target_feature(enable = "neon")]
#[inline]
fn apart(products: uint8x16_t, kept: u64) -> uint8x16_t {
    let both = veor_u8(vget_low_u8(products), vget_high_u8(products));
    let high = vand_u8(vget_high_u8(products), vcreate_u8(kept));
    vcombine_u8(veor_u8(both, high), high)
}
