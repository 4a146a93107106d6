//! NEON: carry-less multiplication of bytes by `pmull`. No look-ups and no tables, and sums of
//! products stay unreduced polynomials until the last one has been added:
//!
//! ```text
//!  GF(256)      each byte * c = 15 bits      sum.even  products of bytes 0 to 7, 16 bits each
//!                                            sum.odd   products of bytes 8 to 15
//!  GF(16)       each element * c = 7 bits    sum.even  products of the even elements, in the
//!  GF(4)                           3 bits              double width that an element and its odd
//!                                            sum.odd   neighbour share; those of the odd elements
//!  GF(2)        1 bit: nothing to reduce     sum.even
//! ```

use core::arch::aarch64::{
    poly16x8_t, vbslq_u8, vdupq_n_u8, vget_low_p8, vmull_high_p8, vmull_p8, vmulq_p8,
    vreinterpretq_p8_u8, vreinterpretq_u8_p8, vreinterpretq_u8_p16, vshlq_n_u8, vshrq_n_u8,
    vuzp1q_u8, vuzp2q_u8,
};
use std::arch::is_aarch64_feature_detected;

use crate::arch::Level;
use crate::arch::dots::{Rows, dots, keep};
use crate::arch::four_russians::four_russians;
use crate::arch::fused::{matrix_product, prelude::*};
use crate::arch::single::single_source;
use crate::table::Tables;

use super::register::register;

pub(in crate::arch) const LEVEL: Level = Level {
    name: "neon-pmull",
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
    dots,
    prepare: keep,
};

register!();
single_source!("neon", words: [1, 2, 4]);
matrix_product!(
    "neon", words: [1, 2, 4], widths: [3, 2, 1],
    alone: [8], paired: false, ready: true
);
four_russians!("neon");
dots!("neon");

/// A coefficient in every byte, and the field's polynomial without its leading term.
struct Factor {
    coefficient: Vector,
    polynomial: Vector,
}

/// Elements multiplied together: all of them, or the even and the odd ones separately if products
/// need the room in between.
#[derive(Copy, Clone)]
struct Split {
    even: Vector,
    odd: Vector,
}

/// Unreduced products, in the layout that the module's text shows.
#[derive(Copy, Clone)]
struct Sum {
    even: Vector,
    odd: Vector,
}

#[target_feature(enable = "neon")]
#[inline]
fn factor<const W: usize>(tables: &Tables, c: u8) -> Factor {
    // Not the field's order, which would be looked up for every coefficient.
    let elements = u8::MAX >> (8 - W);
    Factor { coefficient: vdupq_n_u8(c & elements), polynomial: polynomial(tables) }
}

#[target_feature(enable = "neon")]
#[inline]
fn polynomial(tables: &Tables) -> Vector {
    let low_terms = tables.field.polynomial() & (tables.field.order() - 1);
    vdupq_n_u8(low_terms as u8)
}

/// Selects the even elements of a byte.
#[target_feature(enable = "neon")]
#[inline]
fn even_elements<const W: usize>() -> Vector {
    vdupq_n_u8(if W == 4 { 0x0F } else { 0x33 })
}

#[target_feature(enable = "neon")]
#[inline]
fn split<const W: usize>(vector: Vector) -> Split {
    match W {
        4 => Split { even: and(vector, even_elements::<W>()), odd: vshrq_n_u8::<4>(vector) },
        2 => {
            let even = even_elements::<W>();
            Split { even: and(vector, even), odd: and(vshrq_n_u8::<2>(vector), even) }
        }
        _ => Split { even: vector, odd: vector },
    }
}

#[target_feature(enable = "neon")]
#[inline]
fn product<const W: usize>(factor: &Factor, split: &Split) -> Vector {
    reduced::<W>(factor.polynomial, accumulate::<W>(empty(), factor, split))
}

#[target_feature(enable = "neon")]
#[inline]
fn empty() -> Sum {
    Sum { even: zero(), odd: zero() }
}

#[target_feature(enable = "neon")]
#[inline]
fn accumulate<const W: usize>(sum: Sum, factor: &Factor, split: &Split) -> Sum {
    let (even, odd) = match W {
        8 => wide_products(factor.coefficient, split.even),
        1 => (narrow_product(factor.coefficient, split.even), zero()),
        _ => (
            narrow_product(factor.coefficient, split.even),
            narrow_product(factor.coefficient, split.odd),
        ),
    };
    Sum { even: xor(sum.even, even), odd: xor(sum.odd, odd) }
}

#[target_feature(enable = "neon")]
#[inline]
fn accumulate_two<const W: usize>(
    sum: Sum,
    even: (&Factor, &Split),
    odd: (&Factor, &Split),
) -> Sum {
    accumulate::<W>(accumulate::<W>(sum, even.0, even.1), odd.0, odd.1)
}

#[target_feature(enable = "neon")]
#[inline]
fn finish<const W: usize>(tables: &Tables, sum: Sum) -> Vector {
    reduced::<W>(polynomial(tables), sum)
}

/// Reduces the products modulo the field's polynomial.
#[target_feature(enable = "neon")]
#[inline]
fn reduced<const W: usize>(polynomial: Vector, sum: Sum) -> Vector {
    match W {
        8 => {
            // Of 15 bits the upper 7, times a polynomial of degree 4, leave 11 bits, and those 8.
            let (low, high) = (vuzp1q_u8(sum.even, sum.odd), vuzp2q_u8(sum.even, sum.odd));
            let (even, odd) = wide_products(polynomial, high);
            let (next_low, next_high) = (vuzp1q_u8(even, odd), vuzp2q_u8(even, odd));
            xor3(low, next_low, narrow_product(polynomial, next_high))
        }
        1 => sum.even,
        _ => {
            // The upper parts are small enough for one step: x^4 and x^2 are x + 1.
            let even = even_elements::<W>();
            let (low, high) = if W == 4 {
                (vshlq_n_u8::<4>(sum.odd), vshrq_n_u8::<4>(sum.even))
            } else {
                (vshlq_n_u8::<2>(sum.odd), vshrq_n_u8::<2>(sum.even))
            };
            let (low, high) = (vbslq_u8(even, sum.even, low), vbslq_u8(even, high, sum.odd));
            xor(low, narrow_product(polynomial, high))
        }
    }
}

/// Products of 16 bits of the lower and of the upper eight bytes.
#[target_feature(enable = "neon")]
#[inline]
fn wide_products(a: Vector, b: Vector) -> (Vector, Vector) {
    let (a, b) = (vreinterpretq_p8_u8(a), vreinterpretq_p8_u8(b));
    let low: poly16x8_t = vmull_p8(vget_low_p8(a), vget_low_p8(b));
    (vreinterpretq_u8_p16(low), vreinterpretq_u8_p16(vmull_high_p8(a, b)))
}

/// The lower eight bits of the product of each byte.
#[target_feature(enable = "neon")]
#[inline]
fn narrow_product(a: Vector, b: Vector) -> Vector {
    vreinterpretq_u8_p8(vmulq_p8(vreinterpretq_p8_u8(a), vreinterpretq_p8_u8(b)))
}

/// The sums of `dots`, as polynomials of 15 bits until the end.
#[target_feature(enable = "neon")]
#[inline]
fn sums_of<const C: usize>(tables: &'static Tables, rows: &Rows<'_, C>, vector: &[u8]) -> [u8; C] {
    let (whole, rest) = vector.as_chunks::<VECTOR>();
    let mut sums = [zero(); C];
    for (i, vector) in whole.iter().enumerate() {
        let x = load(vector);
        for (c, sum) in sums.iter_mut().enumerate() {
            *sum = xor(*sum, products(x, load_row(rows, c, i)));
        }
    }
    if !rest.is_empty() {
        let x = load_fresh(vector);
        for (c, sum) in sums.iter_mut().enumerate() {
            *sum = xor(*sum, products(x, load_last(rows, c, vector.len())));
        }
    }
    let mut folded = [0; C];
    for (element, sum) in folded.iter_mut().zip(sums) {
        *element = reduced_sum(tables, sum);
    }
    folded
}

/// The products of the lower and of the upper eight bytes, 16 bits each, added.
#[target_feature(enable = "neon")]
#[inline]
fn products(a: Vector, b: Vector) -> Vector {
    let (low, high) = wide_products(a, b);
    xor(low, high)
}

/// The sum of the eight polynomials of a register, modulo that of the field.
#[target_feature(enable = "neon")]
#[inline]
fn reduced_sum(tables: &Tables, sum: Vector) -> u8 {
    let mut bytes = [0; VECTOR];
    store(&mut bytes, sum);
    let halves = bytes.as_chunks::<2>().0.iter().map(|half| u16::from_le_bytes(*half));
    let sum = halves.fold(0, |sum, half| sum ^ half);
    (8..15).rev().fold(sum, |sum, bit| {
        let overflow = (sum >> bit & 1).wrapping_neg();
        sum ^ (tables.field.polynomial() << (bit - 8) & overflow)
    }) as u8
}
