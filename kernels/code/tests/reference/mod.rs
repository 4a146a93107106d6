//! The slow reference: plain elimination from scratch for each query, scalar arithmetic.

use recoded_gf::{inverse, mul};

pub struct Reference {
    size: usize,
    vectors: Vec<Vec<u8>>,
}

impl Reference {
    pub fn new(size: usize) -> Self {
        Self { size, vectors: Vec::new() }
    }

    /// Keeps the vector if it is innovative, and returns whether it is.
    pub fn insert(&mut self, vector: &[u8]) -> bool {
        let innovative = !self.contains(vector);
        if innovative {
            self.vectors.push(vector.to_vec());
        }
        innovative
    }

    pub fn rank(&self) -> usize {
        self.vectors.len()
    }

    /// Whether the vector is a combination of those held.
    pub fn contains(&self, vector: &[u8]) -> bool {
        let mut rows = self.vectors.clone();
        rows.push(vector.to_vec());
        echelon(rows, self.size).len() == self.vectors.len()
    }

    /// Whether a combination of the vectors held starts with this symbol.
    pub fn is_seen(&self, symbol: usize) -> bool {
        echelon(self.vectors.clone(), self.size).contains(&symbol)
    }
}

/// The index of a unit vector.
pub fn unit_index(vector: &[u8]) -> Option<usize> {
    let index = vector.iter().position(|&element| element != 0)?;
    let others = vector[index + 1..].iter().all(|&element| element == 0);
    (others && vector[index] == 1).then_some(index)
}

/// Columns of the pivots of the row echelon form; their number is the rank.
fn echelon(mut rows: Vec<Vec<u8>>, size: usize) -> Vec<usize> {
    let mut pivots = Vec::new();
    for column in 0..size {
        let top = pivots.len();
        let Some(found) = (top..rows.len()).find(|&row| rows[row][column] != 0) else {
            continue;
        };
        rows.swap(top, found);
        let (upper, lower) = rows.split_at_mut(top + 1);
        let pivot = &upper[top];
        let scale = inverse(pivot[column]).expect("a pivot is not zero");
        for row in lower {
            let factor = mul(row[column], scale);
            for (element, &above) in row.iter_mut().zip(pivot) {
                *element ^= mul(factor, above);
            }
        }
        pivots.push(column);
    }
    pivots
}
