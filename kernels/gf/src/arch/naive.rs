//! The readable truth: one table look-up per byte. Every other level is tested against it.

use super::Level;
use crate::table::PRODUCTS;

pub(super) const LEVEL: Level =
    Level { name: "naive", is_available: || true, add, mul, madd, matmul };

fn add(dst: &mut [u8], src: &[u8]) {
    for (d, s) in dst.iter_mut().zip(src) {
        *d ^= s;
    }
}

fn mul(dst: &mut [u8], c: u8) {
    let products = &PRODUCTS[usize::from(c)];
    for d in dst {
        *d = products[usize::from(*d)];
    }
}

fn madd(dst: &mut [u8], c: u8, src: &[u8]) {
    let products = &PRODUCTS[usize::from(c)];
    for (d, s) in dst.iter_mut().zip(src) {
        *d ^= products[usize::from(*s)];
    }
}

fn matmul(
    coefficients: &[u8],
    sources: &[&[u8]],
    destinations: &mut [&mut [u8]],
    accumulate: bool,
) {
    for (row, destination) in destinations.iter_mut().enumerate() {
        if !accumulate {
            destination.fill(0);
        }
        for (column, source) in sources.iter().enumerate() {
            madd(destination, coefficients[row * sources.len() + column], source);
        }
    }
}
