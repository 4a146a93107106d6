//! Logarithms: a product is the generator to the power of the sum of two logarithms. One byte at a
//! time, from 768 bytes of tables instead of the 65,536 of `naive`; GF(256) only.

use super::Level;
use super::dots::{keep, portable};
use crate::table::Tables;

pub(super) const LEVEL: Level = Level {
    name: "table",
    needs: "nothing",
    is_available: || true,
    serves: |field| field.order() == 256,
    add,
    mul,
    madd,
    matmul,
    matmul_binary: None,
    binary_rows_min: usize::MAX,
    reduce,
    eliminate,
    dots: portable,
    prepare: keep,
};

/// A coefficient by its logarithm, `None` for zero, which has none.
#[derive(Copy, Clone)]
struct Factor {
    tables: &'static Tables,
    logarithm: Option<usize>,
}

impl Factor {
    fn new(tables: &'static Tables, c: u8) -> Self {
        let logarithm = (c != 0).then(|| usize::from(tables.logarithms[usize::from(c)]));
        Self { tables, logarithm }
    }

    fn times(self, x: u8) -> u8 {
        match self.logarithm {
            Some(logarithm) if x != 0 => {
                self.tables.powers[logarithm + usize::from(self.tables.logarithms[usize::from(x)])]
            }
            _ => 0,
        }
    }
}

fn add(dst: &mut [u8], src: &[u8]) {
    for (d, s) in dst.iter_mut().zip(src) {
        *d ^= s;
    }
}

fn mul(tables: &'static Tables, dst: &mut [u8], c: u8) {
    let factor = Factor::new(tables, c);
    for d in dst {
        *d = factor.times(*d);
    }
}

fn madd(tables: &'static Tables, dst: &mut [u8], c: u8, src: &[u8]) {
    let factor = Factor::new(tables, c);
    for (d, s) in dst.iter_mut().zip(src) {
        *d ^= factor.times(*s);
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
