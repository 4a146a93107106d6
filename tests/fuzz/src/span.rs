//! The slow truth about linear dependence: scalar elimination.

use recoded_gf::{inverse, mul};

/// The span of vectors over GF(256), as rows in echelon form.
#[derive(Default)]
pub struct Span {
    /// Leading column, and a row that is 1 there and 0 before.
    rows: Vec<(usize, Vec<u8>)>,
}

impl Span {
    /// Remainder of a vector modulo the span: zeros if it lies in it.
    fn reduced(&self, vector: &[u8]) -> Vec<u8> {
        let mut rest = vector.to_vec();
        for (leading, row) in &self.rows {
            let factor = rest[*leading];
            add_multiple(&mut rest, factor, row);
        }
        rest
    }

    /// Adds a vector; whether that raised the rank.
    pub fn insert(&mut self, vector: &[u8]) -> bool {
        let mut rest = self.reduced(vector);
        let Some(leading) = rest.iter().position(|&element| element != 0) else {
            return false;
        };
        let scale = inverse(rest[leading]).expect("it is not zero");
        rest.iter_mut().for_each(|element| *element = mul(*element, scale));
        for (_, row) in &mut self.rows {
            let factor = row[leading];
            add_multiple(row, factor, &rest);
        }
        self.rows.push((leading, rest));
        true
    }

    /// Dimensions.
    pub fn rank(&self) -> usize {
        self.rows.len()
    }

    /// Whether a vector is determined: whether a row is its unit vector.
    pub fn determines(&self, symbol: usize) -> bool {
        let found = self.rows.iter().find(|row| row.0 == symbol);
        found.is_some_and(|(_, row)| row.iter().filter(|&&element| element != 0).count() == 1)
    }
}

/// `row += factor * other`.
pub fn add_multiple(row: &mut [u8], factor: u8, other: &[u8]) {
    for (element, &addend) in row.iter_mut().zip(other) {
        *element ^= mul(factor, addend);
    }
}
