//! The readable reference: one table look-up per byte. Every other level is tested against it.

use super::Level;
use super::dots::keep;
use crate::table::Tables;

pub(super) const LEVEL: Level = Level {
    name: "naive",
    needs: "nothing",
    is_available: || true,
    serves: |_| true,
    add,
    mul,
    madd,
    matmul,
    matmul_binary: None,
    binary_rows_min: usize::MAX,
    reduce,
    eliminate,
    dots,
    prepare: keep,
};

fn add(dst: &mut [u8], src: &[u8]) {
    for (d, s) in dst.iter_mut().zip(src) {
        *d ^= s;
    }
}

fn mul(tables: &'static Tables, dst: &mut [u8], c: u8) {
    let products = &tables.products[usize::from(c)];
    for d in dst {
        *d = products[usize::from(*d)];
    }
}

fn madd(tables: &'static Tables, dst: &mut [u8], c: u8, src: &[u8]) {
    let products = &tables.products[usize::from(c)];
    for (d, s) in dst.iter_mut().zip(src) {
        *d ^= products[usize::from(*s)];
    }
}

fn matmul(
    tables: &'static Tables,
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
            madd(tables, destination, coefficients[row * sources.len() + column], source);
        }
    }
}

fn reduce(tables: &'static Tables, row: &mut [u8], factors: &[u8], matrix: &[u8], stride: usize) {
    let bytes = row.len();
    for (number, &factor) in factors.iter().enumerate() {
        madd(tables, row, factor, &matrix[number * stride..][..bytes]);
    }
}

fn eliminate(tables: &'static Tables, matrix: &mut [u8], stride: usize, column: usize, row: &[u8]) {
    for other in matrix.chunks_mut(stride) {
        let factor = other[column];
        madd(tables, &mut other[..row.len()], factor, row);
    }
}

fn dots(tables: &'static Tables, columns: &[u8], stride: usize, vector: &[u8], sums: &mut [u8]) {
    for (column, sum) in sums.iter_mut().enumerate() {
        for (&key, &x) in columns[column * stride..].iter().zip(vector) {
            *sum ^= tables.products[usize::from(key)][usize::from(x)];
        }
    }
}
