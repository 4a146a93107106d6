//! NEON: sums of products of a vector with columns by `pmull`, for all levels. A sum stays a sum of
//! polynomials of 15 bits, two registers of eight, and is reduced once, at the end.

use core::arch::aarch64::{
    vget_low_p8, vmull_high_p8, vmull_p8, vreinterpretq_p8_u8, vreinterpretq_u8_p16,
};

use crate::arch::dots::dots;
use crate::table::Tables;

use super::register::register;

register!();
dots!("neon");

#[target_feature(enable = "neon")]
#[inline]
fn sums_of<const C: usize>(tables: &'static Tables, rows: [&[u8]; C], vector: &[u8]) -> [u8; C] {
    let (whole, rest) = vector.as_chunks::<VECTOR>();
    let whole_rows = rows.map(|row| &row.as_chunks::<VECTOR>().0[..whole.len()]);
    let mut sums = [zero(); C];
    for (i, vector) in whole.iter().enumerate() {
        let x = load(vector);
        for c in 0..C {
            sums[c] = xor(sums[c], products(x, load(&whole_rows[c][i])));
        }
    }
    if !rest.is_empty() {
        let x = load_fresh(vector);
        for c in 0..C {
            sums[c] = xor(sums[c], products(x, load_last(rows[c])));
        }
    }
    let mut folded = [0; C];
    for c in 0..C {
        folded[c] = reduced(tables, sums[c]);
    }
    folded
}

/// The products of the lower and of the upper eight bytes, 16 bits each, added.
#[target_feature(enable = "neon")]
#[inline]
fn products(a: Vector, b: Vector) -> Vector {
    let (a, b) = (vreinterpretq_p8_u8(a), vreinterpretq_p8_u8(b));
    let low = vmull_p8(vget_low_p8(a), vget_low_p8(b));
    xor(vreinterpretq_u8_p16(low), vreinterpretq_u8_p16(vmull_high_p8(a, b)))
}

/// The sum of the eight polynomials of a register, modulo that of the field.
#[target_feature(enable = "neon")]
#[inline]
fn reduced(tables: &Tables, sum: Vector) -> u8 {
    let mut bytes = [0; VECTOR];
    store(&mut bytes, sum);
    let halves = bytes.as_chunks::<2>().0.iter().map(|half| u16::from_le_bytes(*half));
    let sum = halves.fold(0, |sum, half| sum ^ half);
    (8..15).rev().fold(sum, |sum, bit| {
        let overflow = (sum >> bit & 1).wrapping_neg();
        sum ^ (tables.field.polynomial() << (bit - 8) & overflow)
    }) as u8
}
