//! AVX2 with GFNI: one `vgf2p8affineqb` multiplies 32 bytes by a coefficient, in any field.

use core::arch::x86_64::{
    __m256i, _mm256_and_si256, _mm256_gf2p8affine_epi64_epi8, _mm256_gf2p8mul_epi8,
    _mm256_loadu_si256, _mm256_set1_epi64x, _mm256_setzero_si256, _mm256_storeu_si256,
    _mm256_xor_si256,
};

use crate::arch::Level;
use crate::arch::dots::{dots, prepare_11b, sums_by_products};
use crate::arch::four_russians::four_russians;
use crate::arch::fused::{matrix_product, plain_sums, prelude::*};
use crate::arch::single::single_source;
use crate::table::Tables;

use super::fold::halve_ymm;
use super::product::gfni;
use super::register::{register, short_by_buffer, xor3_by_two};

pub(in crate::arch) const LEVEL: Level = Level {
    name: "avx2-gfni",
    needs: "AVX2 and GFNI",
    is_available: || is_x86_feature_detected!("avx2") && is_x86_feature_detected!("gfni"),
    serves: |_| true,
    add,
    mul,
    madd,
    matmul,
    matmul_binary: Some(matmul_binary),
    binary_rows_min: 24,
    reduce,
    eliminate,
    dots,
    prepare: prepare_11b,
};

register!(
    "avx2,gfni", __m256i, 32, load: _mm256_loadu_si256, store: _mm256_storeu_si256,
    zero: _mm256_setzero_si256, xor: _mm256_xor_si256, and: _mm256_and_si256
);
gfni!("avx2,gfni", splat: _mm256_set1_epi64x, affine: _mm256_gf2p8affine_epi64_epi8);
xor3_by_two!("avx2,gfni");
short_by_buffer!("avx2,gfni");
plain_sums!("avx2,gfni");
single_source!("avx2,gfni", words: []);
matrix_product!("avx2,gfni", words: [], widths: [2, 1], alone: [8], paired: false, ready: true);
four_russians!("avx2,gfni");
dots!("avx2,gfni");
sums_by_products!(
    "avx2,gfni", splat: _mm256_set1_epi64x, affine: _mm256_gf2p8affine_epi64_epi8,
    multiply: _mm256_gf2p8mul_epi8, halve: halve_ymm
);
