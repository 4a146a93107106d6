//! AVX2: a product is two byte shuffles, one table for the low nibbles, one for the high (the
//! paper's algorithm `shuffle`).

use core::arch::x86_64::{
    __m256i, _mm256_and_si256, _mm256_broadcastsi128_si256, _mm256_cmpgt_epi8, _mm256_loadu_si256,
    _mm256_set1_epi8, _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_sll_epi16,
    _mm256_srli_epi64, _mm256_storeu_si256, _mm256_xor_si256,
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
    dots,
    prepare: keep,
};

register!(
    "avx2", __m256i, 32, load: _mm256_loadu_si256, store: _mm256_storeu_si256,
    zero: _mm256_setzero_si256, xor: _mm256_xor_si256, and: _mm256_and_si256
);
shuffle!(
    "avx2", splat: _mm256_set1_epi8, shift: _mm256_srli_epi64, shuffle: _mm256_shuffle_epi8,
    lanes: _mm256_broadcastsi128_si256
);
xor3_by_two!("avx2");
short_by_buffer!("avx2");
plain_sums!("avx2");
single_source!("avx2", words: []);
matrix_product!("avx2", words: [], widths: [2, 1], alone: [8], paired: false, ready: false);
four_russians!("avx2");
dots!("avx2");
fold_vector!("avx2");
sums_by_bits!("avx2", shift: _mm256_sll_epi16, greater: _mm256_cmpgt_epi8);
