//! AVX-512F: integer multiplication of the bits of an element by the products of the coefficient
//! with each of them (the paper's algorithm `imul`). It needs no byte shuffles; its work grows with
//! the bits of an element.

use core::arch::x86_64::{
    __m512i, _mm512_and_si512, _mm512_loadu_si512, _mm512_mullo_epi32, _mm512_set1_epi8,
    _mm512_set1_epi32, _mm512_setzero_si512, _mm512_srl_epi32, _mm512_storeu_si512,
    _mm512_ternarylogic_epi64, _mm512_xor_si512,
};

use crate::arch::Level;
use crate::arch::dots::keep;
use crate::arch::four_russians::four_russians;
use crate::arch::fused::{matrix_product, plain_sums, prelude::*};
use crate::arch::single::single_source;
use crate::table::Tables;

use super::avx2_imul;
use super::product::imul;
use super::register::{register, short_by_buffer, xor3_ternary};

pub(in crate::arch) const LEVEL: Level = Level {
    name: "avx512-imul",
    needs: "AVX-512F",
    is_available: || is_x86_feature_detected!("avx512f"),
    serves: |_| true,
    add,
    mul,
    madd,
    matmul,
    matmul_binary: Some(matmul_binary),
    binary_rows_min: 8,
    reduce,
    eliminate,
    dots: avx2_imul::dots,
    prepare: keep,
};

register!(
    "avx512f", __m512i, 64, load: _mm512_loadu_si512, store: _mm512_storeu_si512,
    zero: _mm512_setzero_si512, xor: _mm512_xor_si512, and: _mm512_and_si512
);
imul!(
    "avx512f", i32, bytes: _mm512_set1_epi8, shift: _mm512_srl_epi32, splat: _mm512_set1_epi32,
    multiply: _mm512_mullo_epi32
);
xor3_ternary!("avx512f", _mm512_ternarylogic_epi64);
short_by_buffer!("avx512f");
plain_sums!("avx512f");
single_source!("avx512f", words: [1, 2, 4]);
matrix_product!("avx512f", words: [1, 2, 4], widths: [1], alone: [4], paired: true, ready: false);
four_russians!("avx512f");
