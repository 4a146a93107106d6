//! Products by coefficients 0 and 1, by the method of the four Russians: sums of every subset of
//! [`GROUP`] sources are computed once, and each destination then adds one sum for each group
//! instead of one product for each source.
//!
//! ```text
//!  s0 s1 s2 s3 --> 0, s0, s1, s0+s1, ... s0+s1+s2+s3     16 sums, `TILE` vectors each
//!                        |
//!  destination j:  coefficients 1,1,0,0 --> index 3 --> one load and XOR
//! ```
//!
//! Sums of [`GROUPS`] groups fill half of an L1 cache of 32 KiB with 64-byte vectors. A look-up is
//! a load, and a core loads one 64-byte vector a cycle: four products a cycle, less the work of
//! computing sums, against one by multiplication. See `fused.rs` for the primitives.

/// Sources of a group: 16 sums. Five would take longer to sum than they save.
pub const GROUP: usize = 4;
/// Groups of one pass.
pub const GROUPS: usize = 8;
/// Vectors of a tile, which share the look-up of an index.
pub const TILE: usize = 2;
/// Destinations of one pass: bounds the table of indices.
pub const ROWS: usize = 256;

/// Sums of the subsets of each group, `TILE` vectors each.
pub type Subsets<Vector> = [[[Vector; TILE]; 1 << GROUP]; GROUPS];

/// The sum of each group that each of up to [`ROWS`] destinations needs.
pub struct Indices([[u8; GROUPS]; ROWS]);

impl Indices {
    /// Indices of the coefficients of up to `GROUP * GROUPS` sources, from `first` on, in each of
    /// the rows of `columns` coefficients.
    #[inline]
    pub fn new(coefficients: &[u8], columns: usize, first: usize) -> Self {
        let mut indices = [[0; GROUPS]; ROWS];
        for (row, indices) in coefficients.chunks_exact(columns).zip(&mut indices) {
            let last = columns.min(first + GROUP * GROUPS);
            let (groups, rest) = row[first..last].as_chunks::<GROUP>();
            let (whole, part) = indices.split_at_mut(groups.len());
            for (index, &group) in whole.iter_mut().zip(groups) {
                *index = subset(group);
            }
            if let Some(index) = part.first_mut() {
                let mut group = [0; GROUP];
                group[..rest.len()].copy_from_slice(rest);
                *index = subset(group);
            }
        }
        Self(indices)
    }

    #[inline]
    pub fn row(&self, row: usize) -> &[u8; GROUPS] {
        &self.0[row]
    }
}

/// Gathers the lowest bits of four coefficients, the first one lowest.
#[inline]
const fn subset(group: [u8; GROUP]) -> u8 {
    let bits = u32::from_le_bytes(group) & 0x0101_0101;
    // Moves bit 8 i to bit 24 + i; no two products meet.
    (bits.wrapping_mul(0x0102_0408) >> 24) as u8 & 15
}

/// `matmul_binary`, which reads only the lowest bit of each coefficient.
macro_rules! four_russians {
    ($features:tt) => {
        #[target_feature(enable = $features)]
        pub fn matmul_binary(
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
            use $crate::arch::four_russians::{Subsets, TILE};

            // The empty subset of each group stays zero; others are written before they are read.
            let sums: &mut Subsets<Vector> = &mut [[[zero(); TILE]; 16]; 8];
            let bytes = destinations.first().map_or(0, |destination| destination.len());
            if bytes < VECTOR {
                if bytes > 0 {
                    subset_tile::<1, SHORT>(indices, sources, destinations, 0, accumulate, sums);
                }
                return;
            }
            let mut start = 0;
            while start < bytes {
                let left = bytes - start;
                let tile = match (left > VECTOR, left % VECTOR == 0 || left > TILE * VECTOR) {
                    (true, true) => subset_tile::<TILE, WHOLE>,
                    (true, false) => subset_tile::<TILE, LAST>,
                    (false, true) => subset_tile::<1, WHOLE>,
                    (false, false) => subset_tile::<1, LAST>,
                };
                tile(indices, sources, destinations, start, accumulate, sums);
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
            sums: &mut $crate::arch::four_russians::Subsets<Vector>,
        ) {
            use $crate::arch::four_russians::GROUP;

            for (group, sums) in sources.chunks(GROUP).zip(sums.iter_mut()) {
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
                let (pairs, _) = indices.row(row).as_chunks::<2>();
                for (sums, indices) in sums.as_chunks::<2>().0.iter().zip(pairs) {
                    let even = &sums[0][usize::from(indices[0]) % 16];
                    let odd = &sums[1][usize::from(indices[1]) % 16];
                    for v in 0..V {
                        vectors[v] = xor3(vectors[v], even[v], odd[v]);
                    }
                }
                put_block::<V, PLACE>(destination, start, vectors, accumulate);
            }
        }
    };
}
pub(super) use four_russians;
