//! 64 bytes at a time: the matrix product.

use core::arch::x86_64::{
    __m512i, _mm512_and_si512, _mm512_gf2p8affine_epi64_epi8, _mm512_gf2p8mul_epi8,
    _mm512_loadu_si512, _mm512_mask_storeu_epi8, _mm512_maskz_loadu_epi8, _mm512_set1_epi8,
    _mm512_set1_epi64, _mm512_setzero_si512, _mm512_storeu_si512, _mm512_ternarylogic_epi64,
    _mm512_xor_si512,
};

use crate::arch::dots::{dots, sums_by_products};
use crate::arch::four_russians::four_russians;
use crate::arch::fused::{matrix_product, plain_sums, prelude::*};
use crate::arch::x86_64::fold::halve_zmm;
use crate::arch::x86_64::product::gfni;
use crate::arch::x86_64::register::{register, short_by_mask, xor3_ternary};
use crate::arch::x86_64::short::short_symbols;
use crate::table::Tables;

use super::ymm::reduce_held;

register!(
    "avx512f,avx512bw,avx512vl,gfni", __m512i, 64, load: _mm512_loadu_si512, store: _mm512_storeu_si512,
    zero: _mm512_setzero_si512, xor: _mm512_xor_si512, and: _mm512_and_si512
);
gfni!(
    "avx512f,avx512bw,avx512vl,gfni", splat: _mm512_set1_epi64, affine: _mm512_gf2p8affine_epi64_epi8
);
xor3_ternary!("avx512f,avx512bw,avx512vl,gfni", _mm512_ternarylogic_epi64);
short_by_mask!(
    "avx512f,avx512bw,avx512vl,gfni", u64, load: _mm512_maskz_loadu_epi8,
    store: _mm512_mask_storeu_epi8
);
plain_sums!("avx512f,avx512bw,avx512vl,gfni");
matrix_product!(
    "avx512f,avx512bw,avx512vl,gfni",
    words: [],
    widths: [4, 3, 2, 1],
    alone: [8],
    paired: true,
    ready: false
);
four_russians!("avx512f,avx512bw,avx512vl,gfni");
dots!("avx512f,avx512bw,avx512vl,gfni");
sums_by_products!(
    "avx512f,avx512bw,avx512vl,gfni", splat: _mm512_set1_epi64,
    affine: _mm512_gf2p8affine_epi64_epi8, multiply: _mm512_gf2p8mul_epi8, halve: halve_zmm
);
short_symbols!(
    "avx512f,avx512bw,avx512vl,gfni", splat: _mm512_set1_epi64, byte: _mm512_set1_epi8,
    affine: _mm512_gf2p8affine_epi64_epi8, multiply: _mm512_gf2p8mul_epi8
);
