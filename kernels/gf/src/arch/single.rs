//! The routines of a vector level that take one source, bound by loads and stores: `add`, `mul`,
//! `madd`; and those on rows of coefficients, `eliminate` and `reduce_held`. Built on the
//! primitives that `fused.rs` lists, as macros for the same reason.
//!
//! Coding vectors of one, two or four registers stay in them, so that a row costs one load and one
//! store, which the next step can take from the store buffer.

/// `add`, `mul`, `madd` and `eliminate`: one source, bound by loads and stores.
macro_rules! single_source {
    ($features:tt, words: [$($word:literal),*]) => {
        #[target_feature(enable = $features)]
        pub fn add(dst: &mut [u8], src: &[u8]) {
            // One length for both, so that the loops below count once.
            let src = &src[..dst.len()];
            if dst.len() < VECTOR {
                return store_short(dst, xor(load_short(dst), load_short(src)));
            }
            // Loaded before the loop, since it overlaps bytes that the loop changes.
            let mut last = zero();
            if let (Some(d), Some(s)) = (dst.last_chunk(), src.last_chunk()) {
                last = xor(load(d), load(s));
            }
            let (dst_fours, dst_rest) = dst.as_chunks_mut().0.as_chunks_mut::<4>();
            let (src_fours, src_rest) = src.as_chunks().0.as_chunks::<4>();
            for (ds, ss) in dst_fours.iter_mut().zip(src_fours) {
                for i in 0..4 {
                    let sums = xor(load(&ds[i]), load(&ss[i]));
                    store(&mut ds[i], sums);
                }
            }
            for (d, s) in dst_rest.iter_mut().zip(src_rest) {
                store(d, xor(load(d), load(s)));
            }
            if let Some(d) = dst.last_chunk_mut() {
                store(d, last);
            }
        }

        #[target_feature(enable = $features)]
        pub fn mul(tables: &'static Tables, dst: &mut [u8], c: u8) {
            match tables.field.element_bits() {
                $($word => scale_slice::<$word>(tables, dst, c),)*
                _ => scale_slice::<8>(tables, dst, c),
            }
        }

        #[target_feature(enable = $features)]
        pub fn madd(tables: &'static Tables, dst: &mut [u8], c: u8, src: &[u8]) {
            match tables.field.element_bits() {
                $($word => madd_slice::<$word>(dst, &factor::<$word>(tables, c), src),)*
                _ => madd_slice::<8>(dst, &factor::<8>(tables, c), src),
            }
        }

        #[target_feature(enable = $features)]
        pub fn eliminate(
            tables: &'static Tables,
            matrix: &mut [u8],
            stride: usize,
            column: usize,
            row: &[u8],
        ) {
            match tables.field.element_bits() {
                $($word => eliminate_rows::<$word>(tables, matrix, stride, column, row),)*
                _ => eliminate_rows::<8>(tables, matrix, stride, column, row),
            }
        }

        #[target_feature(enable = $features)]
        fn eliminate_rows<const W: usize>(
            tables: &'static Tables,
            matrix: &mut [u8],
            stride: usize,
            column: usize,
            row: &[u8],
        ) {
            // Coding vectors of the usual sizes stay in registers.
            match row.as_chunks() {
                ([a], []) => eliminate_held::<W, 1>(tables, matrix, stride, column, [a]),
                ([a, b], []) => eliminate_held::<W, 2>(tables, matrix, stride, column, [a, b]),
                ([a, b, c, d], []) => {
                    eliminate_held::<W, 4>(tables, matrix, stride, column, [a, b, c, d]);
                }
                _ => {
                    for other in matrix.chunks_mut(stride) {
                        let factor = factor::<W>(tables, other[column]);
                        madd_slice::<W>(&mut other[..row.len()], &factor, row);
                    }
                }
            }
        }

        #[target_feature(enable = $features)]
        #[inline]
        fn eliminate_held<const W: usize, const V: usize>(
            tables: &'static Tables,
            matrix: &mut [u8],
            stride: usize,
            column: usize,
            row: [&[u8; VECTOR]; V],
        ) {
            let mut splits = [split::<W>(load(row[0])); V];
            for v in 1..V {
                splits[v] = split::<W>(load(row[v]));
            }
            for other in matrix.chunks_mut(stride) {
                let factor = factor::<W>(tables, other[column]);
                let chunks = &mut other.as_chunks_mut().0[..V];
                for v in 0..V {
                    let sum = xor(load(&chunks[v]), product::<W>(&factor, &splits[v]));
                    store(&mut chunks[v], sum);
                }
            }
        }

        /// `reduce` for rows that stay in registers; does nothing and returns false for others.
        #[target_feature(enable = $features)]
        pub fn reduce_held(
            tables: &'static Tables,
            row: &mut [u8],
            factors: &[u8],
            matrix: &[u8],
            stride: usize,
        ) -> bool {
            match tables.field.element_bits() {
                $($word => reduce_rows::<$word>(tables, row, factors, matrix, stride),)*
                _ => reduce_rows::<8>(tables, row, factors, matrix, stride),
            }
        }

        #[target_feature(enable = $features)]
        #[inline]
        fn reduce_rows<const W: usize>(
            tables: &'static Tables,
            row: &mut [u8],
            factors: &[u8],
            matrix: &[u8],
            stride: usize,
        ) -> bool {
            match row.as_chunks_mut() {
                ([a], []) => sum_rows::<W, 1>(tables, [a], factors, matrix, stride),
                ([a, b], []) => sum_rows::<W, 2>(tables, [a, b], factors, matrix, stride),
                ([a, b, c, d], []) => {
                    sum_rows::<W, 4>(tables, [a, b, c, d], factors, matrix, stride);
                }
                _ => return false,
            }
            true
        }

        #[target_feature(enable = $features)]
        #[inline]
        fn sum_rows<const W: usize, const V: usize>(
            tables: &'static Tables,
            row: [&mut [u8; VECTOR]; V],
            factors: &[u8],
            matrix: &[u8],
            stride: usize,
        ) {
            let mut sums = [load(row[0]); V];
            for v in 1..V {
                sums[v] = load(row[v]);
            }
            for (&c, other) in factors.iter().zip(matrix.chunks(stride)) {
                let factor = factor::<W>(tables, c);
                let chunks = &other.as_chunks().0[..V];
                for v in 0..V {
                    let products = product::<W>(&factor, &split::<W>(load(&chunks[v])));
                    sums[v] = xor(sums[v], products);
                }
            }
            for (row, sum) in row.into_iter().zip(sums) {
                store(row, sum);
            }
        }

        #[target_feature(enable = $features)]
        #[inline]
        fn scale_slice<const W: usize>(tables: &'static Tables, dst: &mut [u8], c: u8) {
            let factor = factor::<W>(tables, c);
            let Some(last) = dst.last_chunk() else {
                let products = product::<W>(&factor, &split::<W>(load_short(dst)));
                return store_short(dst, products);
            };
            let last = product::<W>(&factor, &split::<W>(load(last)));
            for d in dst.as_chunks_mut().0 {
                store(d, product::<W>(&factor, &split::<W>(load(d))));
            }
            if let Some(d) = dst.last_chunk_mut() {
                store(d, last);
            }
        }

        #[target_feature(enable = $features)]
        #[inline]
        fn madd_slice<const W: usize>(dst: &mut [u8], factor: &Factor, src: &[u8]) {
            // As in `add`.
            let src = &src[..dst.len()];
            if dst.len() < VECTOR {
                let products = product::<W>(factor, &split::<W>(load_short(src)));
                return store_short(dst, xor(load_short(dst), products));
            }
            let ragged = dst.len() % VECTOR != 0;
            let mut last = zero();
            if ragged && let (Some(d), Some(s)) = (dst.last_chunk(), src.last_chunk()) {
                last = xor(load(d), product::<W>(factor, &split::<W>(load(s))));
            }
            let (dst_fours, dst_rest) = dst.as_chunks_mut().0.as_chunks_mut::<4>();
            let (src_fours, src_rest) = src.as_chunks().0.as_chunks::<4>();
            for (ds, ss) in dst_fours.iter_mut().zip(src_fours) {
                for i in 0..4 {
                    let products = product::<W>(factor, &split::<W>(load(&ss[i])));
                    let sums = xor(load(&ds[i]), products);
                    store(&mut ds[i], sums);
                }
            }
            for (d, s) in dst_rest.iter_mut().zip(src_rest) {
                store(d, xor(load(d), product::<W>(factor, &split::<W>(load(s)))));
            }
            if ragged && let Some(d) = dst.last_chunk_mut() {
                store(d, last);
            }
        }
    };
}
pub(super) use single_source;
