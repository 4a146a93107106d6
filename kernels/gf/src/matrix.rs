//! Inversion and rank of coefficient matrices: one element per byte, row-major.
//!
//! Both eliminate a column at a time with [`Kernel::eliminate`]; payloads never pass through here.

use crate::kernel::Kernel;

/// The largest matrix side: the largest bulk generation.
pub const SIZE_MAX: usize = 1024;

/// A matrix that has no inverse.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the matrix is singular: column {column} depends on those before it")]
pub struct Singular {
    /// The first column without a pivot, which is also the rank of the columns before it.
    pub column: usize,
}

impl Kernel {
    /// Inverts a `size` x `size` matrix in place, by Gauss-Jordan elimination with row exchanges.
    /// `size^3` products, no allocation. The field must have one element per byte, or coefficients
    /// below its order.
    ///
    /// # Errors
    /// The matrix is singular; its contents are then undefined.
    ///
    /// # Panics
    /// When `matrix` is not `size * size` bytes long or `size` exceeds [`SIZE_MAX`].
    pub fn invert(&self, matrix: &mut [u8], size: usize) -> Result<(), Singular> {
        assert!(size <= SIZE_MAX, "invert: size {size} exceeds {SIZE_MAX}");
        assert_eq!(matrix.len(), size * size, "invert: the matrix is not {size} x {size}");
        let mut exchanged = [0_u16; SIZE_MAX];
        let mut pivot = [0_u8; SIZE_MAX];
        for column in 0..size {
            let found = (column..size).find(|row| matrix[row * size + column] != 0);
            let row = found.ok_or(Singular { column })?;
            exchanged[column] = row as u16;
            exchange_rows(matrix, size, column, row);
            let pivot = &mut pivot[..size];
            let own = &mut matrix[column * size..][..size];
            let inverse = self.field().inverse(own[column]).unwrap_or_default();
            own[column] = 1;
            pivot.copy_from_slice(own);
            self.mul(pivot, inverse);
            own.copy_from_slice(pivot);
            // Eliminating adds f * pivot[column] to the f in that column. The inverse needs f *
            // inverse in its place, hence the pivot row is used with inverse + 1.
            pivot[column] = inverse ^ 1;
            let (above, rest) = matrix.split_at_mut(column * size);
            self.eliminate(above, size, column, pivot);
            self.eliminate(&mut rest[size..], size, column, pivot);
        }
        for column in (0..size).rev() {
            exchange_columns(matrix, size, column, usize::from(exchanged[column]));
        }
        Ok(())
    }

    /// The rank of a matrix with rows of `columns` elements. Destroys the matrix.
    ///
    /// # Panics
    /// When `matrix` is not a whole number of rows or `columns` exceeds [`SIZE_MAX`].
    pub fn rank(&self, matrix: &mut [u8], columns: usize) -> usize {
        if matrix.is_empty() {
            return 0;
        }
        assert!((1..=SIZE_MAX).contains(&columns), "rank: {columns} columns, not 1..={SIZE_MAX}");
        assert_eq!(matrix.len() % columns, 0, "rank: the last row is incomplete");
        let rows = matrix.len() / columns;
        let mut rank = 0;
        for column in 0..columns {
            let Some(row) = (rank..rows).find(|row| matrix[row * columns + column] != 0) else {
                continue;
            };
            exchange_rows(matrix, columns, rank, row);
            let (done, below) = matrix.split_at_mut((rank + 1) * columns);
            let pivot = &mut done[rank * columns + column..];
            let inverse = self.field().inverse(pivot[0]).unwrap_or_default();
            self.mul(pivot, inverse);
            if !below.is_empty() {
                self.eliminate(&mut below[column..], columns, 0, pivot);
            }
            rank += 1;
            if rank == rows {
                break;
            }
        }
        rank
    }
}

fn exchange_rows(matrix: &mut [u8], columns: usize, a: usize, b: usize) {
    if a != b {
        let (front, back) = matrix.split_at_mut(a.max(b) * columns);
        front[a.min(b) * columns..][..columns].swap_with_slice(&mut back[..columns]);
    }
}

fn exchange_columns(matrix: &mut [u8], columns: usize, a: usize, b: usize) {
    if a != b {
        matrix.chunks_exact_mut(columns).for_each(|row| row.swap(a, b));
    }
}
