//! Coefficients in tile order: the card's reading order.

/// Bytes of a matrix in tile order.
#[must_use]
pub const fn tiled_bytes(rows: usize, columns: usize, tile: (usize, usize)) -> usize {
    rows.next_multiple_of(tile.0) * columns.next_multiple_of(tile.1)
}

/// A row-major matrix, or a part of one.
#[derive(Copy, Clone, Debug)]
pub struct Matrix<'a> {
    /// The elements from the first one on.
    pub elements: &'a [u8],
    /// Number of rows.
    pub rows: usize,
    /// Number of columns.
    pub columns: usize,
    /// Bytes from one row to the next.
    pub stride: usize,
}

/// Appends a matrix to `tiles`: for each tile of destinations, for each tile of sources, column by
/// column. Elements beyond the matrix are zero.
///
/// # Panics
/// When the matrix has fewer elements than its rows, columns and stride need.
pub fn append_tiles(
    matrix: &Matrix<'_>,
    tile_rows: usize,
    tile_columns: usize,
    tiles: &mut Vec<u8>,
) {
    let &Matrix { elements, rows, columns, stride } = matrix;
    for first_row in (0..rows).step_by(tile_rows) {
        for column in 0..columns.next_multiple_of(tile_columns) {
            for row in first_row..first_row + tile_rows {
                let is_inside = row < rows && column < columns;
                tiles.push(if is_inside { elements[row * stride + column] } else { 0 });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn append_tiles_goes_column_by_column_and_fills_with_zeros() {
        // Three rows and three columns in tiles of two by two, with a gap after each row.
        let elements = &[11, 12, 13, 99, 21, 22, 23, 99, 31, 32, 33];
        let mut tiles = Vec::new();
        let matrix = Matrix { elements, rows: 3, columns: 3, stride: 4 };
        append_tiles(&matrix, 2, 2, &mut tiles);
        let expected = [11, 21, 12, 22, 13, 23, 0, 0, 31, 0, 32, 0, 33, 0, 0, 0];
        assert_eq!(tiles, expected);
        assert_eq!(tiles.len(), tiled_bytes(3, 3, (2, 2)));
    }
}
