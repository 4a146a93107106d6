//! One suite for every level: each operation over each field against the `naive` kernel, and that
//! one against the scalar product.
//!
//! Every length in 0..=300 is tried and random ones up to 9216, at random alignments, with random
//! coefficients that are often 0 or 1. Each slice lies between guard bytes that must survive.
//! `RECODED_SEED` repeats a run; the seed is printed.

#![cfg_attr(miri, allow(dead_code, reason = "Miri runs a part of the suite"))]

mod common;
#[path = "common/seed.rs"]
mod seed;

use common::{Arena, coefficients};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::Rng;
use recoded_gf::{Field, Kernel, mul};
use seed::seeded;

/// Longest slice tried: a jumbo frame.
const BYTES_MAX: usize = 9216;

/// Random lengths tried beyond the exhaustive ones.
const RANDOM_LENGTHS: usize = 60;

fn lengths(rng: &mut ChaCha8Rng) -> Vec<usize> {
    if cfg!(miri) {
        // Miri is some thousand times slower: one length for each path through the routines.
        return vec![0, 1, 17, 33, 65, 100, 160];
    }
    let random = (0..RANDOM_LENGTHS).map(|_| rng.next_u32() as usize % (BYTES_MAX + 1));
    (0..=300).chain(random).chain([1400, 1428, 1500, 9000, BYTES_MAX]).collect()
}

/// Destinations and sources of a product.
fn shape(rng: &mut ChaCha8Rng, bytes: usize) -> (usize, usize) {
    let [rows, columns] = if cfg!(miri) { [6, 4] } else { [14, 20] };
    match bytes {
        // Enough of both for tiles to be packed.
        160 if cfg!(miri) => (9, 17),
        // Strips of eight single-register symbols have their own routine, up to some size.
        33 if cfg!(miri) => (8, 5),
        33..=64 if bytes.is_multiple_of(3) => {
            (8 * (1 + rng.next_u32() as usize % 3), rng.next_u32() as usize % 70)
        }
        _ => (rng.next_u32() as usize % rows, rng.next_u32() as usize % columns),
    }
}

/// The level under test over each field it serves; none (with a message) if this CPU lacks its
/// instructions.
fn kernels(name: &str) -> impl Iterator<Item = &'static Kernel> {
    let level = Kernel::by_name(name);
    if level.is_none() {
        println!("skipped: this CPU cannot run kernel {name}");
    }
    // Under Miri, which checks accesses, one field is enough.
    let fields = if cfg!(miri) { &Field::ALL[..1] } else { &Field::ALL };
    fields.iter().filter_map(move |&field| level?.over(field))
}

fn naive(field: Field) -> &'static Kernel {
    let level = Kernel::by_name("naive").expect("every CPU runs the naive kernel");
    level.over(field).expect("the naive kernel serves every field")
}

fn check_add(kernel: &Kernel) {
    let mut rng = seeded();
    for bytes in lengths(&mut rng) {
        let src = Arena::random(&mut rng, 1, bytes);
        let mut dst = Arena::random(&mut rng, 1, bytes);
        let mut expected = dst.clone();
        naive(kernel.field()).add(expected.slices_mut()[0], src.slices()[0]);
        kernel.add(dst.slices_mut()[0], src.slices()[0]);
        assert!(dst == expected, "add of {bytes} bytes");
    }
}

fn check_mul(kernel: &Kernel) {
    let mut rng = seeded();
    for bytes in lengths(&mut rng) {
        for c in coefficients(&mut rng, 3) {
            let mut dst = Arena::random(&mut rng, 1, bytes);
            let mut expected = dst.clone();
            naive(kernel.field()).mul(expected.slices_mut()[0], c);
            kernel.mul(dst.slices_mut()[0], c);
            assert!(dst == expected, "{kernel:?}: mul of {bytes} bytes by {c}");
        }
    }
}

fn check_madd(kernel: &Kernel) {
    let mut rng = seeded();
    for bytes in lengths(&mut rng) {
        for c in coefficients(&mut rng, 3) {
            let src = Arena::random(&mut rng, 1, bytes);
            let mut dst = Arena::random(&mut rng, 1, bytes);
            let mut expected = dst.clone();
            naive(kernel.field()).madd(expected.slices_mut()[0], c, src.slices()[0]);
            kernel.madd(dst.slices_mut()[0], c, src.slices()[0]);
            assert!(dst == expected, "{kernel:?}: madd of {bytes} bytes times {c}");
        }
    }
}

fn check_matmul(kernel: &Kernel, accumulate: bool) {
    let mut rng = seeded();
    let multiply = |kernel: &Kernel, coefficients: &[u8], sources: &Arena, into: &mut Arena| {
        let (sources, mut destinations) = (sources.slices(), into.slices_mut());
        if accumulate {
            kernel.matmul_accumulate(coefficients, &sources, &mut destinations);
        } else {
            kernel.matmul(coefficients, &sources, &mut destinations);
        }
    };
    for bytes in lengths(&mut rng) {
        let (rows, columns) = shape(&mut rng, bytes);
        let mut coefficients = coefficients(&mut rng, rows * columns);
        if bytes % 4 == 0 {
            // Products by 0 and 1 have their own routine.
            coefficients.iter_mut().for_each(|c| *c &= 1);
        }
        let sources = Arena::random(&mut rng, columns, bytes);
        let mut destinations = Arena::random(&mut rng, rows, bytes);
        let mut expected = destinations.clone();
        multiply(naive(kernel.field()), &coefficients, &sources, &mut expected);
        multiply(kernel, &coefficients, &sources, &mut destinations);
        let equal = destinations == expected;
        assert!(equal, "{kernel:?}: {rows} x {columns} product of {bytes} bytes");
    }
}

fn check_reduce_and_eliminate(kernel: &Kernel) {
    let mut rng = seeded();
    for bytes in lengths(&mut rng).into_iter().filter(|bytes| (1..=300).contains(bytes)) {
        let (rows, padding) = (shape(&mut rng, 0).0 * 3, rng.next_u32() as usize % 5);
        let stride = bytes + padding;
        let matrix = Arena::random(&mut rng, 1, (rows * stride).max(bytes));
        let factors = coefficients(&mut rng, rows);
        let row = Arena::random(&mut rng, 1, bytes);
        let (mut reduced, mut expected) = (row.clone(), row.clone());
        let naive = naive(kernel.field());
        naive.reduce(expected.slices_mut()[0], &factors, matrix.slices()[0], stride);
        kernel.reduce(reduced.slices_mut()[0], &factors, matrix.slices()[0], stride);
        assert!(reduced == expected, "{kernel:?}: reduce of {rows} rows of {bytes} bytes");
        let (mut cleared, mut expected) = (matrix.clone(), matrix);
        let column = rng.next_u32() as usize % bytes;
        // The last row ends where its elements do.
        let end = (rows * stride).saturating_sub(padding);
        naive.eliminate(&mut expected.slices_mut()[0][..end], stride, column, row.slices()[0]);
        kernel.eliminate(&mut cleared.slices_mut()[0][..end], stride, column, row.slices()[0]);
        assert!(cleared == expected, "{kernel:?}: eliminate in {rows} rows of {bytes} bytes");
    }
}

fn check_dots(kernel: &Kernel) {
    if kernel.field().order() != 256 {
        return;
    }
    let mut rng = seeded();
    for bytes in lengths(&mut rng) {
        let (count, padding) = (1 + shape(&mut rng, bytes).0, rng.next_u32() as usize % 5);
        let stride = (bytes + padding).max(1);
        let columns = Arena::random(&mut rng, 1, (count - 1) * stride + bytes);
        let vector = Arena::random(&mut rng, 1, bytes);
        let mut sums = Arena::random(&mut rng, 1, count);
        let (mut expected, naive) = (sums.clone(), naive(kernel.field()));
        let (vector, key) = (vector.slices()[0], columns.slices()[0]);
        naive.dots(key, stride, vector, expected.slices_mut()[0]);
        let mut prepared = columns.clone();
        kernel.prepare(prepared.slices_mut()[0]);
        kernel.dots(prepared.slices()[0], stride, vector, sums.slices_mut()[0]);
        assert!(sums == expected, "{kernel:?}: {count} columns of {bytes} bytes");
    }
}

fn check_inverse(kernel: &Kernel) {
    let mut rng = seeded();
    let elements = (kernel.field().order() - 1) as u8;
    for size in (0..=40).chain([63, 64, 65, 100, 128, 200, 256]) {
        let mut matrix = vec![0; size * size];
        let mut inverse = loop {
            rng.fill_bytes(&mut matrix);
            matrix.iter_mut().for_each(|element| *element &= elements);
            let mut candidate = matrix.clone();
            if kernel.invert(&mut candidate, size).is_ok() {
                break candidate;
            }
            assert!(
                kernel.rank(&mut matrix, size) < size,
                "{kernel:?}: a singular matrix of full rank"
            );
        };
        assert_eq!(kernel.rank(&mut matrix.clone(), size), size, "{kernel:?}");
        assert!(
            product(kernel.field(), &matrix, &inverse, size) == identity(size),
            "{kernel:?}: size {size}"
        );
        if size > 1 {
            // A row that depends on the others.
            let (first, rest) = inverse.split_at_mut(size);
            first.copy_from_slice(&rest[..size]);
            kernel.mul(first, 7);
            assert_eq!(kernel.rank(&mut inverse.clone(), size), size - 1, "{kernel:?}");
            assert!(kernel.invert(&mut inverse, size).is_err(), "{kernel:?}");
        }
    }
}

fn check_rank(kernel: &Kernel) {
    let mut rng = seeded();
    for round in 0..200 {
        let [rows, columns] = [40, 70].map(|limit| 1 + rng.next_u32() as usize % limit);
        let mut matrix = vec![0; rows * columns];
        rng.fill_bytes(&mut matrix);
        // Few different elements, so that every rank occurs.
        let mask = [1, 3, 15, 255][round % 4].min((kernel.field().order() - 1) as u8);
        let sparse = |element: &mut u8| *element &= if *element < 150 { 0 } else { mask };
        matrix.iter_mut().for_each(sparse);
        let expected = rank_by_scalars(kernel.field(), matrix.clone(), columns);
        let rank = kernel.rank(&mut matrix, columns);
        assert_eq!(rank, expected, "{kernel:?}: {rows} x {columns}");
    }
}

/// Rank by row echelon form, one element at a time.
fn rank_by_scalars(field: Field, matrix: Vec<u8>, columns: usize) -> usize {
    let mut rows: Vec<Vec<u8>> = matrix.chunks(columns).map(<[u8]>::to_vec).collect();
    let mut rank = 0;
    for column in 0..columns {
        let Some(found) = (rank..rows.len()).find(|&row| rows[row][column] != 0) else { continue };
        rows.swap(rank, found);
        let (done, below) = rows.split_at_mut(rank + 1);
        let pivot = &done[rank];
        let inverse = field.inverse(pivot[column]).expect("a pivot is not zero");
        for row in below {
            let factor = field.mul(row[column], inverse);
            for (element, &above) in row.iter_mut().zip(pivot) {
                *element ^= field.mul(factor, above);
            }
        }
        rank += 1;
    }
    rank
}

fn product(field: Field, a: &[u8], b: &[u8], size: usize) -> Vec<u8> {
    let element = |i: usize| {
        let terms = (0..size).map(|k| field.mul(a[i / size * size + k], b[k * size + i % size]));
        terms.fold(0, |sum, term| sum ^ term)
    };
    (0..size * size).map(element).collect()
}

fn identity(size: usize) -> Vec<u8> {
    (0..size * size).map(|i| u8::from(i / size == i % size)).collect()
}

fn check_every_product(kernel: &Kernel) {
    let every: Vec<u8> = (0..=255).collect();
    for c in 0..=255 {
        let expected: Vec<u8> = every.iter().map(|&x| kernel.field().mul(c, x)).collect();
        let mut dst = every.clone();
        kernel.mul(&mut dst, c);
        assert_eq!(dst, expected, "{kernel:?}: mul by {c}");
        dst.fill(0);
        kernel.madd(&mut dst, c, &every);
        assert_eq!(dst, expected, "{kernel:?}: madd times {c}");
        kernel.matmul(&[c], &[&every], &mut [&mut dst]);
        assert_eq!(dst, expected, "{kernel:?}: matmul by {c}");
    }
}

fn check_large_generation(kernel: &Kernel) {
    let mut rng = seeded();
    for mask in [0xFF, 1] {
        let sources = Arena::random(&mut rng, 256, 333);
        let mut dst = Arena::random(&mut rng, 256, 333);
        let mut coefficients = coefficients(&mut rng, 256 * 256);
        coefficients.iter_mut().for_each(|c| *c &= mask);
        let mut expected = dst.clone();
        naive(kernel.field()).matmul(&coefficients, &sources.slices(), &mut expected.slices_mut());
        kernel.matmul(&coefficients, &sources.slices(), &mut dst.slices_mut());
        assert!(dst == expected, "{kernel:?}: coefficients & {mask}");
    }
}

macro_rules! suite {
    ($names:ident: $($(#[$condition:meta])* $module:ident = $name:literal),+) => {
        /// Levels that have a suite below.
        const $names: &[&str] = &[$($(#[$condition])* $name),+];

        $($(#[$condition])* mod $module {
            use super::*;

            fn run(check: impl Fn(&Kernel)) {
                kernels($name).for_each(check);
            }

            #[cfg(not(miri))]
            #[test]
            fn every_product_matches_scalar() {
                run(check_every_product);
            }

            #[test]
            fn add_of_any_length_matches_naive() {
                run(check_add);
            }

            #[test]
            fn mul_of_any_length_matches_naive() {
                run(check_mul);
            }

            #[test]
            fn madd_of_any_length_matches_naive() {
                run(check_madd);
            }

            #[test]
            fn matmul_of_any_shape_matches_naive() {
                run(|kernel| check_matmul(kernel, false));
            }

            #[test]
            fn matmul_accumulate_of_any_shape_matches_naive() {
                run(|kernel| check_matmul(kernel, true));
            }

            #[cfg(not(miri))]
            #[test]
            fn matmul_of_the_largest_generation_matches_naive() {
                run(check_large_generation);
            }

            #[test]
            fn reduce_and_eliminate_of_any_shape_match_naive() {
                run(check_reduce_and_eliminate);
            }

            #[test]
            fn dots_of_any_shape_match_naive() {
                run(check_dots);
            }

            #[cfg(not(miri))]
            #[test]
            fn rank_of_any_matrix_matches_scalar_elimination() {
                run(check_rank);
            }

            #[cfg(not(miri))]
            #[test]
            fn inverse_times_matrix_is_the_identity() {
                run(check_inverse);
            }

            #[cfg(all(unix, not(miri)))]
            #[test]
            fn slices_beside_an_unmapped_page_do_not_fault() {
                run(common::edge::check);
            }
        })+
    };
}

suite!(PORTABLE: naive_level = "naive", table = "table", four_russians = "four-russians");

#[cfg(target_arch = "x86_64")]
suite!(
    VECTOR:
    sse2_imul = "sse2-imul",
    avx2_imul = "avx2-imul",
    avx512_imul = "avx512-imul",
    #[cfg(feature = "shuffle")]
    ssse3_shuffle = "ssse3-shuffle",
    #[cfg(feature = "shuffle")]
    avx2_shuffle = "avx2-shuffle",
    #[cfg(feature = "shuffle")]
    avx512_shuffle = "avx512-shuffle",
    avx2_gfni = "avx2-gfni",
    avx512_gfni = "avx512-gfni"
);

#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
suite!(
    VECTOR:
    neon_pmull = "neon-pmull",
    #[cfg(feature = "shuffle")]
    neon_tbl = "neon-tbl"
);

#[cfg(not(any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little"))))]
const VECTOR: &[&str] = &[];

/// Every level of this build, in the order of their tests.
#[test]
fn levels_are_those_with_a_suite() {
    let tested = |name| PORTABLE.contains(&name) || VECTOR.contains(&name);
    for level in Kernel::levels() {
        assert!(tested(level.name), "{} is not tested", level.name);
        let available = Kernel::by_name(level.name).is_some();
        assert_eq!(available, level.available, "{}", level.name);
    }
}

#[test]
fn naive_dots_match_scalar() {
    let (columns, vector) = ([3, 5, 7, 0, 9, 11], [2, 0x80, 0xFF]);
    let mut sums = [1, 0];
    naive(Field::Gf256x11D).dots(&columns[..5], 3, &vector[..2], &mut sums);
    assert_eq!(sums, [1 ^ mul(3, 2) ^ mul(5, 0x80), mul(9, 0x80)]);
}

#[test]
fn naive_products_match_scalar_on_random_shapes() {
    let mut rng = seeded();
    for _ in 0..200 {
        let [rows, columns, bytes] = [7, 7, 50].map(|limit| rng.next_u32() as usize % limit);
        let factors = coefficients(&mut rng, rows * columns);
        let sources = Arena::random(&mut rng, columns, bytes);
        let mut destinations = Arena::random(&mut rng, rows, bytes);
        naive(Field::Gf256x11D).matmul(&factors, &sources.slices(), &mut destinations.slices_mut());
        for (row, destination) in destinations.slices().iter().enumerate() {
            for (byte, &value) in destination.iter().enumerate() {
                let products = sources.slices().into_iter().enumerate();
                let sum = products.fold(0, |sum, (column, source)| {
                    sum ^ mul(factors[row * columns + column], source[byte])
                });
                assert_eq!(value, sum, "row {row}, byte {byte}");
            }
        }
    }
}

#[test]
fn matmul_without_sources_zeroes_and_accumulate_keeps() {
    for kernel in Kernel::all_available() {
        let mut destination = [7; 70];
        kernel.matmul_accumulate(&[], &[], &mut [&mut destination]);
        assert_eq!(destination, [7; 70], "{kernel:?}");
        kernel.matmul(&[], &[], &mut [&mut destination]);
        assert_eq!(destination, [0; 70], "{kernel:?}");
        kernel.matmul(&[], &[&[1, 2, 3]], &mut []);
    }
}

#[test]
#[should_panic(expected = "one coefficient per destination and source")]
fn matmul_with_too_few_coefficients_panics() {
    Kernel::best().matmul(&[1], &[&[1], &[2]], &mut [&mut [0]]);
}

#[test]
#[should_panic(expected = "differ in length")]
fn matmul_of_unequal_slices_panics() {
    Kernel::best().matmul(&[1, 1], &[&[1, 2], &[2]], &mut [&mut [0, 0]]);
}

#[test]
#[should_panic(expected = "differ in length")]
fn madd_of_unequal_slices_panics() {
    Kernel::best().madd(&mut [0, 0], 3, &[1]);
}
