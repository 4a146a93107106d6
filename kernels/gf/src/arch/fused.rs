//! The routines of a vector level, written once, over the few primitives that a level's module
//! defines. A macro and not generic functions, because each level compiles them for its own CPU
//! features and Rust ties those to functions.
//!
//! A level's module defines, all `#[target_feature] #[inline]` functions:
//!
//! | primitive | meaning |
//! |---|---|
//! | `Vector`, `VECTOR` | a register, and its bytes |
//! | `load`, `store` | exactly `VECTOR` bytes at any alignment |
//! | `load_short`, `store_short` | fewer bytes than `VECTOR`; loads give zeroes behind them |
//! | `zero`, `xor`, `xor3`, `and` | as named |
//! | `Factor`, `factor(tables, c)` | a coefficient, ready to multiply |
//! | `Split`, `split(vector)` | a source vector, ready to be multiplied (nibbles, bits) |
//! | `product(factor, split)` | one vector of products |
//! | `Sum`, `empty`, `accumulate`, `accumulate_two`, `finish` | a sum of products |
//!
//! A sum need not be reduced until `finish`. `plain_sums!` defines it if it is just a vector. `W`
//! is the number of bits of a field element, which `imul` (whose work grows with it) and `pmull`
//! levels use.
//!
//! **Lengths.** Bytes beyond the last whole vector are computed from the last `VECTOR` bytes of
//! each slice, which overlap finished bytes; if that matters (accumulation), a byte mask excludes
//! those. Only slices shorter than one vector go through `load_short`.
//!
//! **Matrix product.** A block of `D` destinations by `V` vectors stays in registers while all
//! sources pass by, so that each loaded vector is used `D` times and nothing is stored twice:
//!
//! ```text
//!               sources, up to SOURCES of them       sums, D x V registers
//!  source i   :  V vectors --split--\
//!                                    products by c[j][i], j < D  --xor-->  sum[j][v]
//!  source i+1 :  V vectors --split--/
//! ```
//!
//! A tile of `V` vectors is finished for all destinations before the next one is begun, so its
//! sources stay in the L1 cache. With many destinations, the first block also copies the tile into
//! a packed buffer for the others: symbols that lie a multiple of 4096 bytes apart, as frames of a
//! UMEM do, would evict each other. The copy costs stores, whose units are idle there.
//!
//! **Ready factors.** A level whose loop waits for the processor's front end (`ready: true`)
//! processes long symbols the other way round: a block's factors are computed once, for all tiles,
//! which leaves one instruction for a factor instead of two.

/// Sources of one pass: bounds the packed tile (16 KiB with 64-byte vectors, half of an L1 cache).
pub const SOURCES: usize = 64;

/// Terms of one pass if a single destination is formed.
pub const TERMS: usize = 32;

/// Destinations of a block of single vectors.
pub const WIDE_STRIP: usize = 8;

/// Place of a block: whole vectors from a given offset.
pub const WHOLE: u8 = 0;
/// Place of a block: the same, except for the last vector, which is the last of the slice.
pub const LAST: u8 = 1;
/// Place of a block: the whole slice, shorter than a vector.
pub const SHORT: u8 = 2;

/// Sources of a block: the slices.
pub const SLICES: u8 = 0;
/// Sources of a block: the slices, copied for the following blocks.
pub const PACKING: u8 = 1;
/// Sources of a block: the copy.
pub const PACKED: u8 = 2;

/// Imports that the macros need in a level's module.
pub mod prelude {
    pub use core::mem::MaybeUninit;

    pub use crate::arch::pass::{Pass, STRIP, Tiles};

    pub use super::{
        LAST, PACKED, PACKING, SHORT, SLICES, SOURCES, TERMS, WHOLE, WIDE_STRIP, WINDOW,
    };
}

/// Bytes whose last `fresh` are 0xFF, for `fresh` up to 64; see `fresh`.
pub static WINDOW: [u8; 128] = {
    let mut window = [0; 128];
    let mut i = 64;
    while i < 128 {
        window[i] = 0xFF;
        i += 1;
    }
    window
};

/// Declares that sums of products are plain vectors.
#[cfg(any(target_arch = "x86_64", feature = "shuffle"))]
macro_rules! plain_sums {
    ($features:tt) => {
        type Sum = Vector;

        #[target_feature(enable = $features)]
        #[inline]
        fn empty() -> Sum {
            zero()
        }

        #[target_feature(enable = $features)]
        #[inline]
        fn accumulate<const W: usize>(sum: Sum, factor: &Factor, split: &Split) -> Sum {
            xor(sum, product::<W>(factor, split))
        }

        /// Two products at once, for levels with a three-way XOR.
        #[target_feature(enable = $features)]
        #[inline]
        fn accumulate_two<const W: usize>(
            sum: Sum,
            even: (&Factor, &Split),
            odd: (&Factor, &Split),
        ) -> Sum {
            xor3(sum, product::<W>(even.0, even.1), product::<W>(odd.0, odd.1))
        }

        #[target_feature(enable = $features)]
        #[inline]
        fn finish<const W: usize>(_: &Tables, sum: Sum) -> Vector {
            sum
        }
    };
}
#[cfg(any(target_arch = "x86_64", feature = "shuffle"))]
pub(super) use plain_sums;

/// `matmul` and `reduce`: many sources. `widths` lists the numbers of vectors of a destination that
/// a block may keep in registers, widest first, always for several destinations. A single one takes
/// the first number of vectors in `alone` that fits: `imul` broadcasts the constants of a source
/// again for each tile, so wide ones are faster, as long as sums and constants stay in registers.
/// `paired` takes two sources at a time, which needs registers for both, and adds their products
/// together. `ready` computes factors once for many tiles.
macro_rules! matrix_product {
    (
        $features:tt,
        words: [$($word:literal),*],
        widths: [$widest:literal $(, $width:literal)*],
        alone: [$($alone:literal),+],
        paired: $paired:literal,
        ready: $ready:literal
    ) => {
        #[target_feature(enable = $features)]
        pub fn matmul(
            tables: &'static Tables,
            coefficients: &[u8],
            sources: &[&[u8]],
            destinations: &mut [&mut [u8]],
            accumulate: bool,
        ) {
            if let [destination] = destinations
                && coefficients.iter().fold(false, |found, &c| found | (c == 0))
            {
                let terms = coefficients.iter().copied().zip(sources.iter().copied());
                return combine(tables, terms, destination, accumulate);
            }
            let columns = sources.len();
            if columns == 0 && !accumulate {
                return destinations.iter_mut().for_each(|destination| destination.fill(0));
            }
            let bytes = destinations.first().map_or(0, |destination| destination.len());
            for (number, sources) in sources.chunks(SOURCES).enumerate() {
                let first = number * SOURCES;
                let coefficients = coefficients.get(first..).unwrap_or_default();
                let accumulate = accumulate || first > 0;
                let pass = Pass { tables, coefficients, columns, sources, bytes, accumulate };
                fill(&pass, destinations);
            }
        }

        #[target_feature(enable = $features)]
        pub fn reduce(
            tables: &'static Tables,
            row: &mut [u8],
            factors: &[u8],
            matrix: &[u8],
            stride: usize,
        ) {
            if reduce_held(tables, row, factors, matrix, stride) {
                return;
            }
            let bytes = row.len();
            let rows = (0..factors.len()).map(|i| (factors[i], &matrix[i * stride..][..bytes]));
            combine(tables, rows, row, true);
        }

        /// One destination: sources with a coefficient of zero are not even read.
        #[target_feature(enable = $features)]
        #[inline]
        fn combine<'a>(
            tables: &'static Tables,
            terms: impl Iterator<Item = (u8, &'a [u8])>,
            destination: &mut [u8],
            mut accumulate: bool,
        ) {
            let (mut factors, mut sources, mut count) = ([0_u8; TERMS], [&[][..]; TERMS], 0);
            for (factor, source) in terms {
                (factors[count], sources[count]) = (factor, source);
                count += usize::from(factor != 0);
                if count == TERMS {
                    add_terms(tables, &factors, &sources, destination, accumulate);
                    (count, accumulate) = (0, true);
                }
            }
            if count > 0 {
                add_terms(tables, &factors[..count], &sources[..count], destination, accumulate);
            } else if !accumulate {
                destination.fill(0);
            }
        }

        #[target_feature(enable = $features)]
        fn add_terms(
            tables: &'static Tables,
            coefficients: &[u8],
            sources: &[&[u8]],
            destination: &mut [u8],
            accumulate: bool,
        ) {
            let (columns, bytes) = (sources.len(), destination.len());
            let pass = Pass { tables, coefficients, columns, sources, bytes, accumulate };
            fill(&pass, &mut [destination]);
        }

        #[target_feature(enable = $features)]
        fn fill(pass: &Pass<'_>, destinations: &mut [&mut [u8]]) {
            match pass.tables.field.element_bits() {
                $($word => fill_tiles::<$word>(pass, destinations),)*
                _ => fill_tiles::<8>(pass, destinations),
            }
        }

        /// Computes all of the destinations, tile by tile: the widest shape that the remaining
        /// bytes fill, counting a part of a vector as one.
        #[target_feature(enable = $features)]
        fn fill_tiles<const W: usize>(pass: &Pass<'_>, destinations: &mut [&mut [u8]]) {
            let bytes = pass.bytes;
            if bytes < VECTOR {
                if bytes > 0 {
                    tile::<W, 1, SHORT>(pass, destinations, 0);
                }
                return;
            }
            let pack = bytes >= 2 * $widest * VECTOR && pass.pays_to_pack(destinations.len());
            let mut start = 0;
            if $ready && pass.pays_to_make_ready(destinations.len(), $widest * VECTOR) {
                let whole = bytes / ($widest * VECTOR) * ($widest * VECTOR);
                while start < whole {
                    let end = whole.min(start + pass.ready_bytes($widest * VECTOR));
                    ready_tiles::<W>(pass, destinations, start, end);
                    start = end;
                }
            }
            while start < bytes {
                let left = (bytes - start).div_ceil(VECTOR);
                // A single destination is bound by loads: longer runs of each source are faster.
                $(if destinations.len() == 1 && bytes - start >= $alone * VECTOR {
                    tile::<W, $alone, WHOLE>(pass, destinations, start);
                    start += $alone * VECTOR;
                    continue;
                })+
                // Five vectors are three and two: a single one is slow, loading a factor for each
                // product.
                if left >= $widest && (left != 5 || $widest < 4) {
                    match (pack, start + $widest * VECTOR <= bytes) {
                        (false, true) => tile::<W, $widest, WHOLE>(pass, destinations, start),
                        (false, false) => tile::<W, $widest, LAST>(pass, destinations, start),
                        (true, true) => packed_tile::<W, $widest, WHOLE>(pass, destinations, start),
                        (true, false) => packed_tile::<W, $widest, LAST>(pass, destinations, start),
                    }
                    start += $widest * VECTOR;
                    continue;
                }
                $(if left >= $width {
                    if start + $width * VECTOR <= bytes {
                        tile::<W, $width, WHOLE>(pass, destinations, start);
                    } else {
                        tile::<W, $width, LAST>(pass, destinations, start);
                    }
                    start += $width * VECTOR;
                    continue;
                })*
            }
        }

        /// Computes `V` vectors of all destinations.
        #[target_feature(enable = $features)]
        #[inline]
        fn tile<const W: usize, const V: usize, const PLACE: u8>(
            pass: &Pass<'_>,
            destinations: &mut [&mut [u8]],
            start: usize,
        ) {
            let packed = &mut [];
            let mut row = 0;
            // With one vector each, there is room for more destinations to share a source.
            let wide = if V == 1 { destinations.len() / WIDE_STRIP * WIDE_STRIP } else { 0 };
            let (wide, rest) = destinations.split_at_mut(wide);
            for strip in wide.as_chunks_mut::<WIDE_STRIP>().0 {
                block::<W, V, WIDE_STRIP, PLACE, SLICES>(pass, row, strip, start, packed);
                row += WIDE_STRIP;
            }
            let (strips, rest) = rest.as_chunks_mut::<STRIP>();
            for strip in strips {
                block::<W, V, STRIP, PLACE, SLICES>(pass, row, strip, start, packed);
                row += STRIP;
            }
            let (twos, rest) = rest.as_chunks_mut::<2>();
            for strip in twos {
                block::<W, V, 2, PLACE, SLICES>(pass, row, strip, start, packed);
                row += 2;
            }
            for strip in rest.as_chunks_mut::<1>().0 {
                block::<W, V, 1, PLACE, SLICES>(pass, row, strip, start, packed);
            }
        }

        /// Computes the widest tiles from `start` to `end`, destination by destination instead of
        /// tile by tile, so that factors are computed only once.
        #[target_feature(enable = $features)]
        #[inline(never)]
        fn ready_tiles<const W: usize>(
            pass: &Pass<'_>,
            destinations: &mut [&mut [u8]],
            start: usize,
            end: usize,
        ) {
            let (strips, rest) = destinations.as_chunks_mut::<STRIP>();
            let mut row = 0;
            for strip in strips {
                ready_block::<W, $widest, STRIP>(pass, row, strip, start, end);
                row += STRIP;
            }
            for strip in rest.as_chunks_mut::<1>().0 {
                ready_block::<W, $widest, 1>(pass, row, strip, start, end);
                row += 1;
            }
        }

        /// Like `block`, for all tiles from `start` to `end`.
        #[target_feature(enable = $features)]
        #[inline]
        fn ready_block<const W: usize, const V: usize, const D: usize>(
            pass: &Pass<'_>,
            row: usize,
            strip: &mut [&mut [u8]; D],
            start: usize,
            end: usize,
        ) {
            let columns = pass.sources.len();
            let mut rows = [&[][..]; D];
            for d in 0..D {
                rows[d] = &pass.coefficients[(row + d) * pass.columns..][..columns];
            }
            let mut factors = [const { [const { MaybeUninit::uninit() }; D] }; SOURCES];
            let factors = &mut factors[..columns];
            for column in 0..columns {
                for d in 0..D {
                    factors[column][d].write(factor::<W>(pass.tables, rows[d][column]));
                }
            }
            let sources = Tiles::<VECTOR, V>::new(pass.sources, start, end);
            let count = (end - start) / (V * VECTOR);
            let mut tiles: [&mut [_]; D] = core::array::from_fn(|_| Default::default());
            for (tiles, destination) in tiles.iter_mut().zip(strip) {
                let vectors = destination[start..end].as_chunks_mut::<VECTOR>().0;
                *tiles = &mut vectors.as_chunks_mut::<V>().0[..count];
            }
            for number in 0..count {
                let mut sums = [[empty(); V]; D];
                let tile = sources.tile(number);
                for (column, factors) in factors.iter().enumerate() {
                    let source = tile.of(column);
                    let mut splits = [split::<W>(zero()); V];
                    for v in 0..V {
                        splits[v] = split::<W>(load(source[v]));
                    }
                    for d in 0..D {
                        // SAFETY: the loop above wrote a factor for each column and destination.
                        let factor = unsafe { factors[d].assume_init_ref() };
                        for v in 0..V {
                            sums[d][v] = accumulate::<W>(sums[d][v], factor, &splits[v]);
                        }
                    }
                }
                for d in 0..D {
                    let destination = &mut tiles[d][number];
                    for v in 0..V {
                        let mut vector = finish::<W>(pass.tables, sums[d][v]);
                        if pass.accumulate {
                            vector = xor(vector, load(&destination[v]));
                        }
                        store(&mut destination[v], vector);
                    }
                }
            }
        }

        /// Like `tile`, with a copy of the tile for all blocks but the first. Never inlined, so
        /// that only users of the copy pay for its stack space.
        #[target_feature(enable = $features)]
        #[inline(never)]
        fn packed_tile<const W: usize, const V: usize, const PLACE: u8>(
            pass: &Pass<'_>,
            destinations: &mut [&mut [u8]],
            start: usize,
        ) {
            let mut packed = [const { MaybeUninit::uninit() }; SOURCES];
            let (strips, rest) = destinations.as_chunks_mut::<STRIP>();
            let mut row = 0;
            for strip in strips {
                if row == 0 {
                    block::<W, V, STRIP, PLACE, PACKING>(pass, row, strip, start, &mut packed);
                } else {
                    block::<W, V, STRIP, PLACE, PACKED>(pass, row, strip, start, &mut packed);
                }
                row += STRIP;
            }
            // Tiles are packed for more than two strips, so the copy exists.
            for strip in rest.as_chunks_mut::<1>().0 {
                block::<W, V, 1, PLACE, PACKED>(pass, row, strip, start, &mut packed);
                row += 1;
            }
        }

        /// Computes `V` vectors of `D` destinations; the first belongs to `row`.
        #[target_feature(enable = $features)]
        #[inline]
        fn block<
            const W: usize,
            const V: usize,
            const D: usize,
            const PLACE: u8,
            const FROM: u8,
        >(
            pass: &Pass<'_>,
            row: usize,
            strip: &mut [&mut [u8]; D],
            start: usize,
            packed: &mut [MaybeUninit<[Vector; V]>],
        ) {
            let columns = pass.sources.len();
            // Cut to equal lengths here, so that the loop below needs no bounds checks.
            let mut rows = [&[][..]; D];
            for d in 0..D {
                rows[d] = &pass.coefficients[(row + d) * pass.columns..][..columns];
            }
            let packed = if FROM == SLICES { packed } else { &mut packed[..columns] };
            let mut sums = [[empty(); V]; D];
            let mut column = 0;
            while $paired && column + 1 < columns {
                let even = source::<V, PLACE, FROM>(pass, packed, column, start);
                let odd = source::<V, PLACE, FROM>(pass, packed, column + 1, start);
                let (even, odd) = (split_block::<W, V>(&even), split_block::<W, V>(&odd));
                for d in 0..D {
                    let even_factor = factor::<W>(pass.tables, rows[d][column]);
                    let odd_factor = factor::<W>(pass.tables, rows[d][column + 1]);
                    for v in 0..V {
                        sums[d][v] = accumulate_two::<W>(
                            sums[d][v],
                            (&even_factor, &even[v]),
                            (&odd_factor, &odd[v]),
                        );
                    }
                }
                column += 2;
            }
            while column < columns {
                let vectors = source::<V, PLACE, FROM>(pass, packed, column, start);
                let splits = split_block::<W, V>(&vectors);
                for d in 0..D {
                    let factor = factor::<W>(pass.tables, rows[d][column]);
                    for v in 0..V {
                        sums[d][v] = accumulate::<W>(sums[d][v], &factor, &splits[v]);
                    }
                }
                column += 1;
            }
            for d in 0..D {
                let mut vectors = [zero(); V];
                for v in 0..V {
                    vectors[v] = finish::<W>(pass.tables, sums[d][v]);
                }
                let bytes = if PLACE == SHORT { pass.bytes } else { strip[d].len() };
                put_block::<V, PLACE>(&mut strip[d][..bytes], start, vectors, pass.accumulate);
            }
        }

        /// Writes the vectors of a block, or adds them to the destinations.
        #[target_feature(enable = $features)]
        #[inline]
        fn put_block<const V: usize, const PLACE: u8>(
            destination: &mut [u8],
            start: usize,
            mut vectors: [Vector; V],
            accumulate: bool,
        ) {
            if accumulate {
                // Bytes that the last vector shares with an earlier tile hold their sum; those it
                // shares with this block do not yet.
                if PLACE == LAST && V == 1 {
                    vectors[0] = and(vectors[0], fresh(destination.len() - start));
                }
                let old = load_block::<V, PLACE>(destination, start);
                for v in 0..V {
                    vectors[v] = xor(vectors[v], old[v]);
                }
            }
            store_block::<V, PLACE>(destination, start, &vectors);
        }

        /// The vectors of one source.
        #[target_feature(enable = $features)]
        #[inline]
        fn source<const V: usize, const PLACE: u8, const FROM: u8>(
            pass: &Pass<'_>,
            packed: &mut [MaybeUninit<[Vector; V]>],
            number: usize,
            start: usize,
        ) -> [Vector; V] {
            if FROM == PACKED {
                // SAFETY: the tile's first block, with `FROM == PACKING`, wrote an entry for each
                // of the same sources.
                return unsafe { packed[number].assume_init() };
            }
            let source = pass.sources[number];
            // A common length makes one mask for all.
            let source = if PLACE == SHORT { &source[..pass.bytes] } else { source };
            let vectors = load_block::<V, PLACE>(source, start);
            if FROM == PACKING {
                packed[number].write(vectors);
            }
            vectors
        }

        #[target_feature(enable = $features)]
        #[inline]
        fn split_block<const W: usize, const V: usize>(vectors: &[Vector; V]) -> [Split; V] {
            let mut splits = [split::<W>(zero()); V];
            for v in 0..V {
                splits[v] = split::<W>(vectors[v]);
            }
            splits
        }

        #[target_feature(enable = $features)]
        #[inline]
        fn load_block<const V: usize, const PLACE: u8>(
            slice: &[u8],
            start: usize,
        ) -> [Vector; V] {
            let mut vectors = [zero(); V];
            if PLACE == SHORT {
                vectors[0] = load_short(slice);
                return vectors;
            }
            let whole = if PLACE == LAST { V - 1 } else { V };
            let chunks = slice[start..start + whole * VECTOR].as_chunks().0;
            for v in 0..whole {
                vectors[v] = load(&chunks[v]);
            }
            if PLACE == LAST {
                vectors[V - 1] = slice.last_chunk().map_or(zero(), |last| load(last));
            }
            vectors
        }

        #[target_feature(enable = $features)]
        #[inline]
        fn store_block<const V: usize, const PLACE: u8>(
            slice: &mut [u8],
            start: usize,
            vectors: &[Vector; V],
        ) {
            if PLACE == SHORT {
                return store_short(slice, vectors[0]);
            }
            let whole = if PLACE == LAST { V - 1 } else { V };
            let chunks = slice[start..start + whole * VECTOR].as_chunks_mut().0;
            for v in 0..whole {
                store(&mut chunks[v], vectors[v]);
            }
            if PLACE == LAST && let Some(last) = slice.last_chunk_mut() {
                store(last, vectors[V - 1]);
            }
        }

        /// Selects the last `bytes` of a vector.
        #[target_feature(enable = $features)]
        #[inline]
        fn fresh(bytes: usize) -> Vector {
            WINDOW[64 - VECTOR + bytes..].first_chunk().map_or(zero(), |mask| load(mask))
        }
    };
}
pub(super) use matrix_product;
