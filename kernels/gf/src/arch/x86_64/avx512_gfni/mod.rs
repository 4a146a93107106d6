//! AVX-512 with GFNI: one `vgf2p8affineqb` multiplies 64 bytes by a coefficient, in any field.
//!
//! The multiplier takes one such vector a cycle, which is the ceiling of the matrix product. A
//! block of 4 destinations by 4 vectors fills the register file: 16 sums, 8 sources, 2 factors and
//! their products of 32.
//!
//! A single source is bound by loads and stores instead and uses ymm registers, which are faster
//! there (Zen 4: 113 against 94 GB/s at 1500 bytes). So are narrow registers for short coding
//! vectors. Each width has its file.

mod xmm;
mod ymm;
mod zmm;

use crate::arch::Level;
use crate::arch::dots::prepare_11b;
use crate::table::Tables;

pub(in crate::arch) const LEVEL: Level = Level {
    name: "avx512-gfni",
    needs: "AVX-512F/BW/VL and GFNI",
    is_available,
    serves: |_| true,
    add,
    mul,
    madd,
    matmul,
    matmul_binary: Some(zmm::matmul_binary),
    binary_rows_min: 24,
    reduce,
    eliminate,
    dots,
    prepare: prepare_11b,
};

fn is_available() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("gfni")
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,gfni")]
fn add(dst: &mut [u8], src: &[u8]) {
    match dst.len() {
        0..=16 => xmm::add(dst, src),
        _ => ymm::add(dst, src),
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,gfni")]
fn mul(tables: &'static Tables, dst: &mut [u8], c: u8) {
    match dst.len() {
        0..=16 => xmm::mul(tables, dst, c),
        _ => ymm::mul(tables, dst, c),
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,gfni")]
fn madd(tables: &'static Tables, dst: &mut [u8], c: u8, src: &[u8]) {
    match dst.len() {
        0..=16 => xmm::madd(tables, dst, c, src),
        _ => ymm::madd(tables, dst, c, src),
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,gfni")]
fn matmul(
    tables: &'static Tables,
    coefficients: &[u8],
    sources: &[&[u8]],
    destinations: &mut [&mut [u8]],
    accumulate: bool,
) {
    match destinations.first().map_or(0, |destination| destination.len()) {
        0..=16 => xmm::matmul(tables, coefficients, sources, destinations, accumulate),
        17..=32 => ymm::matmul(tables, coefficients, sources, destinations, accumulate),
        33..=64 if zmm::matmul_short(tables, coefficients, sources, destinations, accumulate) => {}
        _ => zmm::matmul(tables, coefficients, sources, destinations, accumulate),
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,gfni")]
fn reduce(tables: &'static Tables, row: &mut [u8], factors: &[u8], matrix: &[u8], stride: usize) {
    match row.len() {
        0..=16 => xmm::reduce(tables, row, factors, matrix, stride),
        17..=128 => ymm::reduce(tables, row, factors, matrix, stride),
        _ => zmm::reduce(tables, row, factors, matrix, stride),
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,gfni")]
fn eliminate(tables: &'static Tables, matrix: &mut [u8], stride: usize, column: usize, row: &[u8]) {
    match row.len() {
        0..=16 => xmm::eliminate(tables, matrix, stride, column, row),
        _ => ymm::eliminate(tables, matrix, stride, column, row),
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,gfni")]
fn dots(tables: &'static Tables, columns: &[u8], stride: usize, vector: &[u8], sums: &mut [u8]) {
    match vector.len() {
        0..=16 => xmm::dots(tables, columns, stride, vector, sums),
        17..=32 => ymm::dots(tables, columns, stride, vector, sums),
        _ => zmm::dots(tables, columns, stride, vector, sums),
    }
}
