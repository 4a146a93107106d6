//! 32 bytes at a time: a single source of any length, and coding vectors of up to 32 bytes.

use core::arch::x86_64::{
    __m256i, _mm256_and_si256, _mm256_gf2p8affine_epi64_epi8, _mm256_gf2p8mul_epi8,
    _mm256_loadu_si256, _mm256_mask_storeu_epi8, _mm256_maskz_loadu_epi8, _mm256_set1_epi64x,
    _mm256_setzero_si256, _mm256_storeu_si256, _mm256_ternarylogic_epi64, _mm256_xor_si256,
};

use crate::arch::dots::{dots, sums_by_products};
use crate::arch::fused::{matrix_product, plain_sums, prelude::*};
use crate::arch::single::single_source;
use crate::arch::x86_64::fold::halve_ymm;
use crate::arch::x86_64::product::gfni;
use crate::arch::x86_64::register::{register, short_by_mask, xor3_ternary};
use crate::table::Tables;

register!(
    "avx512f,avx512bw,avx512vl,gfni", __m256i, 32, load: _mm256_loadu_si256, store: _mm256_storeu_si256,
    zero: _mm256_setzero_si256, xor: _mm256_xor_si256, and: _mm256_and_si256
);
gfni!(
    "avx512f,avx512bw,avx512vl,gfni", splat: _mm256_set1_epi64x, affine: _mm256_gf2p8affine_epi64_epi8
);
xor3_ternary!("avx512f,avx512bw,avx512vl,gfni", _mm256_ternarylogic_epi64);
short_by_mask!(
    "avx512f,avx512bw,avx512vl,gfni", u32, load: _mm256_maskz_loadu_epi8,
    store: _mm256_mask_storeu_epi8
);
plain_sums!("avx512f,avx512bw,avx512vl,gfni");
single_source!("avx512f,avx512bw,avx512vl,gfni", words: []);
matrix_product!("avx512f,avx512bw,avx512vl,gfni", words: [], widths: [1], alone: [1], paired: true, ready: false);
dots!("avx512f,avx512bw,avx512vl,gfni");
sums_by_products!(
    "avx512f,avx512bw,avx512vl,gfni", splat: _mm256_set1_epi64x, affine: _mm256_gf2p8affine_epi64_epi8,
    multiply: _mm256_gf2p8mul_epi8, halve: halve_ymm
);
