//! 16 bytes at a time: coding vectors of up to 16 bytes. A masked store of part of a wider register
//! could not be forwarded to the load that follows.

use core::arch::x86_64::{
    __m128i, _mm_and_si128, _mm_gf2p8affine_epi64_epi8, _mm_gf2p8mul_epi8, _mm_loadu_si128,
    _mm_mask_storeu_epi8, _mm_maskz_loadu_epi8, _mm_set1_epi64x, _mm_setzero_si128,
    _mm_storeu_si128, _mm_ternarylogic_epi64, _mm_xor_si128,
};

use crate::arch::dots::{dots, sums_by_products};
use crate::arch::fused::{matrix_product, plain_sums, prelude::*};
use crate::arch::single::single_source;
use crate::arch::x86_64::product::gfni;
use crate::arch::x86_64::register::{register, short_by_mask, xor3_ternary};
use crate::table::Tables;

register!(
    "avx512f,avx512bw,avx512vl,gfni", __m128i, 16, load: _mm_loadu_si128, store: _mm_storeu_si128,
    zero: _mm_setzero_si128, xor: _mm_xor_si128, and: _mm_and_si128
);
gfni!(
    "avx512f,avx512bw,avx512vl,gfni", splat: _mm_set1_epi64x, affine: _mm_gf2p8affine_epi64_epi8
);
xor3_ternary!("avx512f,avx512bw,avx512vl,gfni", _mm_ternarylogic_epi64);
short_by_mask!(
    "avx512f,avx512bw,avx512vl,gfni", u16, load: _mm_maskz_loadu_epi8,
    store: _mm_mask_storeu_epi8
);
plain_sums!("avx512f,avx512bw,avx512vl,gfni");
single_source!("avx512f,avx512bw,avx512vl,gfni", words: []);
matrix_product!("avx512f,avx512bw,avx512vl,gfni", words: [], widths: [1], alone: [1], paired: true, ready: false);
dots!("avx512f,avx512bw,avx512vl,gfni");
sums_by_products!(
    "avx512f,avx512bw,avx512vl,gfni", splat: _mm_set1_epi64x, affine: _mm_gf2p8affine_epi64_epi8,
    multiply: _mm_gf2p8mul_epi8, halve: core::convert::identity
);
