//! SSSE3: a product is two byte shuffles, one table for the low nibbles, one for the high (the
//! paper's algorithm `shuffle`).

use core::arch::x86_64::{
    __m128i, _mm_and_si128, _mm_cmpgt_epi8, _mm_loadu_si128, _mm_set1_epi8, _mm_setzero_si128,
    _mm_shuffle_epi8, _mm_sll_epi16, _mm_srli_epi64, _mm_storeu_si128, _mm_xor_si128,
};

use crate::arch::Level;
use crate::arch::dots::{dots, fold_vector, keep, sums_by_bits};
use crate::arch::four_russians::four_russians;
use crate::arch::fused::{matrix_product, plain_sums, prelude::*};
use crate::arch::single::single_source;
use crate::table::Tables;

use super::product::shuffle;
use super::register::{register, short_by_buffer, xor3_by_two};

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
    dots,
    prepare: keep,
};

register!(
    "ssse3", __m128i, 16, load: _mm_loadu_si128, store: _mm_storeu_si128,
    zero: _mm_setzero_si128, xor: _mm_xor_si128, and: _mm_and_si128
);
shuffle!(
    "ssse3", splat: _mm_set1_epi8, shift: _mm_srli_epi64, shuffle: _mm_shuffle_epi8,
    lanes: every_lane
);
xor3_by_two!("ssse3");
short_by_buffer!("ssse3");
plain_sums!("ssse3");
single_source!("ssse3", words: []);
matrix_product!("ssse3", words: [], widths: [2, 1], alone: [8], paired: false, ready: false);
four_russians!("ssse3");
dots!("ssse3");
fold_vector!("ssse3");
sums_by_bits!("ssse3", shift: _mm_sll_epi16, greater: _mm_cmpgt_epi8);

/// A register is one lane.
#[target_feature(enable = "ssse3")]
#[inline]
fn every_lane(lane: __m128i) -> __m128i {
    lane
}
