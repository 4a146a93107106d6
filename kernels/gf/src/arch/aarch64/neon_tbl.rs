//! NEON: a product is two look-ups by `tbl`, one table for the low nibbles, one for the high.

use core::arch::aarch64::{vdupq_n_u8, vqtbl1q_u8, vshrq_n_u8};
use std::arch::is_aarch64_feature_detected;

use crate::arch::Level;
use crate::arch::dots::keep;
use crate::arch::four_russians::four_russians;
use crate::arch::fused::{matrix_product, plain_sums, prelude::*};
use crate::arch::single::single_source;
use crate::table::Tables;

use super::neon_pmull;
use super::register::register;

pub(in crate::arch) const LEVEL: Level = Level {
    name: "neon-tbl",
    needs: "NEON",
    is_available: || is_aarch64_feature_detected!("neon"),
    serves: |_| true,
    add,
    mul,
    madd,
    matmul,
    matmul_binary: Some(matmul_binary),
    binary_rows_min: 8,
    reduce,
    eliminate,
    dots: neon_pmull::dots,
    prepare: keep,
};

register!();
plain_sums!("neon");
single_source!("neon", words: []);
matrix_product!("neon", words: [], widths: [4, 3, 2, 1], alone: [8], paired: false, ready: false);
four_russians!("neon");

/// The tables of a coefficient.
struct Factor {
    low: Vector,
    high: Vector,
}

/// A vector split into the low and the high half of each byte.
#[derive(Copy, Clone)]
struct Split {
    low: Vector,
    high: Vector,
}

#[target_feature(enable = "neon")]
#[inline]
fn factor<const W: usize>(tables: &Tables, c: u8) -> Factor {
    let pair = &tables.nibbles[usize::from(c)];
    Factor { low: load(&pair.low), high: load(&pair.high) }
}

#[target_feature(enable = "neon")]
#[inline]
fn split<const W: usize>(vector: Vector) -> Split {
    Split { low: and(vector, vdupq_n_u8(0x0F)), high: vshrq_n_u8::<4>(vector) }
}

#[target_feature(enable = "neon")]
#[inline]
fn product<const W: usize>(factor: &Factor, split: &Split) -> Vector {
    xor(vqtbl1q_u8(factor.low, split.low), vqtbl1q_u8(factor.high, split.high))
}
