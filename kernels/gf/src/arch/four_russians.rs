//! Products by coefficients 0 and 1, by the method of the four Russians: sums of every subset of
//! [`GROUP`] sources are made once, and each destination then adds one sum for each group instead
//! of one product for each source.
//!
//! ```text
//!  s0 s1 s2 s3 --> 0, s0, s1, s0+s1, ... s0+s1+s2+s3     16 sums, `TILE` vectors each
//!                        |
//!  destination j:  coefficients 1,1,0,0 --> index 3 --> one load and XOR
//! ```
//!
//! Sums of [`GROUPS`] groups fill half of an L1 cache of 32 KiB with 64-byte vectors. A look-up is
//! a load, of which a core does one 64-byte vector a cycle: four products a cycle, less the work of
//! making sums, against one by multiplication. See `fused.rs` for the primitives.

/// Sources of a group: 16 sums. Five would take longer to make than they save.
pub const GROUP: usize = 4;
/// Groups of one pass.
pub const GROUPS: usize = 8;
/// Vectors of a tile, which share the look-up of an index.
pub const TILE: usize = 2;
/// Destinations of one pass: bounds the table of indices.
pub const ROWS: usize = 256;

/// For each of up to [`ROWS`] destinations, which sum of each group it wants.
pub struct Indices([[u8; GROUPS]; ROWS]);

impl Indices {
    /// Indices of the coefficients of up to `GROUP * GROUPS` sources, from `first` on, in each of
    /// the rows of `columns` coefficients.
    #[inline]
    pub fn new(coefficients: &[u8], columns: usize, first: usize) -> Self {
        let mut indices = [[0; GROUPS]; ROWS];
        for (row, indices) in coefficients.chunks_exact(columns).zip(&mut indices) {
            let last = columns.min(first + GROUP * GROUPS);
            for (group, index) in row[first..last].chunks(GROUP).zip(indices) {
                *index = group.iter().rev().fold(0, |index, &c| index << 1 | (c & 1));
            }
        }
        Self(indices)
    }

    #[inline]
    pub fn row(&self, row: usize) -> &[u8; GROUPS] {
        &self.0[row]
    }
}

/// `matmul_binary`, which looks at the lowest bit of each coefficient only.
macro_rules! four_russians {
    ($features:tt) => {
        #[target_feature(enable = $features)]
        pub(in crate::arch) fn matmul_binary(
            _: &'static Tables,
            coefficients: &[u8],
            sources: &[&[u8]],
            destinations: &mut [&mut [u8]],
            accumulate: bool,
        ) {
            use $crate::arch::four_russians::{GROUP, GROUPS, Indices, ROWS};

            let columns = sources.len();
            if columns == 0 && !accumulate {
                return destinations.iter_mut().for_each(|destination| destination.fill(0));
            }
            for (number, destinations) in destinations.chunks_mut(ROWS).enumerate() {
                let coefficients = &coefficients[number * ROWS * columns..];
                for first in (0..columns).step_by(GROUP * GROUPS) {
                    let indices = Indices::new(coefficients, columns, first);
                    let sources = &sources[first..columns.min(first + GROUP * GROUPS)];
                    add_subsets(&indices, sources, destinations, accumulate || first > 0);
                }
            }
        }

        #[target_feature(enable = $features)]
        fn add_subsets(
            indices: &$crate::arch::four_russians::Indices,
            sources: &[&[u8]],
            destinations: &mut [&mut [u8]],
            accumulate: bool,
        ) {
            use $crate::arch::four_russians::TILE;

            let bytes = destinations.first().map_or(0, |destination| destination.len());
            if bytes < VECTOR {
                if bytes > 0 {
                    subset_tile::<1, SHORT>(indices, sources, destinations, 0, accumulate);
                }
                return;
            }
            let mut start = 0;
            while start < bytes {
                match (bytes - start).div_ceil(VECTOR) {
                    1 if bytes - start == VECTOR => {
                        subset_tile::<1, WHOLE>(indices, sources, destinations, start, accumulate);
                    }
                    1 => subset_tile::<1, LAST>(indices, sources, destinations, start, accumulate),
                    _ if bytes - start >= TILE * VECTOR => {
                        subset_tile::<TILE, WHOLE>(
                            indices,
                            sources,
                            destinations,
                            start,
                            accumulate,
                        );
                    }
                    _ => {
                        subset_tile::<TILE, LAST>(indices, sources, destinations, start, accumulate)
                    }
                }
                start += TILE * VECTOR;
            }
        }

        #[target_feature(enable = $features)]
        fn subset_tile<const V: usize, const PLACE: u8>(
            indices: &$crate::arch::four_russians::Indices,
            sources: &[&[u8]],
            destinations: &mut [&mut [u8]],
            start: usize,
            accumulate: bool,
        ) {
            use $crate::arch::four_russians::{GROUP, GROUPS};

            let mut sums = [[[zero(); V]; 1 << GROUP]; GROUPS];
            for (group, sums) in sources.chunks(GROUP).zip(&mut sums) {
                for (bit, source) in group.iter().enumerate() {
                    let vectors = load_block::<V, PLACE>(source, start);
                    let (known, fresh) = sums.split_at_mut(1 << bit);
                    for (fresh, known) in fresh.iter_mut().zip(known) {
                        for v in 0..V {
                            fresh[v] = xor(known[v], vectors[v]);
                        }
                    }
                }
            }
            for (row, destination) in destinations.iter_mut().enumerate() {
                let mut vectors = [zero(); V];
                for (sums, &index) in sums.iter().zip(indices.row(row)) {
                    let subset = &sums[usize::from(index) % (1 << GROUP)];
                    for v in 0..V {
                        vectors[v] = xor(vectors[v], subset[v]);
                    }
                }
                put_block::<V, PLACE>(destination, start, vectors, accumulate);
            }
        }
    };
}
pub(super) use four_russians;
