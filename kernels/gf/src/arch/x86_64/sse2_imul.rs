//! SSE2: integer multiplication of the bits of an element by the products of the coefficient with
//! each of them (the paper's algorithm `imul`). It needs no byte shuffles; its work grows with the
//! bits of an element.

use core::arch::x86_64::{
    __m128i, _mm_and_si128, _mm_cmpgt_epi8, _mm_loadu_si128, _mm_mullo_epi16, _mm_set1_epi8,
    _mm_set1_epi16, _mm_setzero_si128, _mm_sll_epi16, _mm_srl_epi16, _mm_storeu_si128,
    _mm_xor_si128,
};

use crate::arch::Level;
use crate::arch::dots::{dots, fold_vector, keep, sums_by_bits};
use crate::arch::four_russians::four_russians;
use crate::arch::fused::{matrix_product, plain_sums, prelude::*};
use crate::arch::single::single_source;
use crate::table::Tables;

use super::product::imul;
use super::register::{register, short_by_buffer, xor3_by_two};

pub(in crate::arch) const LEVEL: Level = Level {
    name: "sse2-imul",
    needs: "SSE2",
    is_available: || is_x86_feature_detected!("sse2"),
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
    "sse2", __m128i, 16, load: _mm_loadu_si128, store: _mm_storeu_si128,
    zero: _mm_setzero_si128, xor: _mm_xor_si128, and: _mm_and_si128
);
imul!(
    "sse2", i16, bytes: _mm_set1_epi8, shift: _mm_srl_epi16, splat: _mm_set1_epi16,
    multiply: _mm_mullo_epi16
);
xor3_by_two!("sse2");
short_by_buffer!("sse2");
plain_sums!("sse2");
single_source!("sse2", words: [1, 2, 4]);
matrix_product!("sse2", words: [1, 2, 4], widths: [1], alone: [8, 4], paired: false, ready: false);
four_russians!("sse2");
dots!("sse2");
fold_vector!("sse2");
sums_by_bits!("sse2", shift: _mm_sll_epi16, greater: _mm_cmpgt_epi8);
