//! AVX-512BW: a product is two byte shuffles, one table for the low nibbles, one for the high (the
//! paper's algorithm `shuffle`).

use core::arch::x86_64::{
    __m512i, _mm512_and_si512, _mm512_broadcast_i32x4, _mm512_loadu_si512, _mm512_mask_storeu_epi8,
    _mm512_maskz_loadu_epi8, _mm512_set1_epi8, _mm512_setzero_si512, _mm512_shuffle_epi8,
    _mm512_srli_epi64, _mm512_storeu_si512, _mm512_ternarylogic_epi64, _mm512_xor_si512,
};

use crate::arch::Level;
use crate::arch::dots::keep;
use crate::arch::four_russians::four_russians;
use crate::arch::fused::{matrix_product, plain_sums, prelude::*};
use crate::arch::single::single_source;
use crate::table::Tables;

use super::avx2_shuffle;
use super::product::shuffle;
use super::register::{register, short_by_mask, xor3_ternary};

pub(in crate::arch) const LEVEL: Level = Level {
    name: "avx512-shuffle",
    needs: "AVX-512F/BW",
    is_available: || is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw"),
    serves: |_| true,
    add,
    mul,
    madd,
    matmul,
    matmul_binary: Some(matmul_binary),
    binary_rows_min: 8,
    reduce,
    eliminate,
    dots: avx2_shuffle::dots,
    prepare: keep,
};

register!(
    "avx512f,avx512bw", __m512i, 64, load: _mm512_loadu_si512, store: _mm512_storeu_si512,
    zero: _mm512_setzero_si512, xor: _mm512_xor_si512, and: _mm512_and_si512
);
shuffle!(
    "avx512f,avx512bw", splat: _mm512_set1_epi8, shift: _mm512_srli_epi64, shuffle: _mm512_shuffle_epi8,
    lanes: _mm512_broadcast_i32x4
);
xor3_ternary!("avx512f,avx512bw", _mm512_ternarylogic_epi64);
short_by_mask!(
    "avx512f,avx512bw", u64, load: _mm512_maskz_loadu_epi8, store: _mm512_mask_storeu_epi8
);
plain_sums!("avx512f,avx512bw");
single_source!("avx512f,avx512bw", words: []);
matrix_product!(
    "avx512f,avx512bw", words: [], widths: [2, 1],
    alone: [8], paired: true, ready: false
);
four_russians!("avx512f,avx512bw");
