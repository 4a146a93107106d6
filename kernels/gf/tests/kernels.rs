//! One suite for every kernel: each operation against the `naive` kernel, and that one against
//! the scalar product.
//!
//! Every length in 0..=300 is tried and random ones up to 9216, at random alignments, with random
//! coefficients in which 0 and 1 are frequent. Each slice lies between guard bytes that must
//! survive. `RECODED_SEED` repeats a run; the seed is printed.

mod common;

use std::time::{SystemTime, UNIX_EPOCH};

use common::{Arena, coefficients};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use recoded_gf::{Kernel, mul};

/// Longest slice tried: a jumbo frame.
const BYTES_MAX: usize = 9216;

/// Random lengths tried beyond the exhaustive ones.
const RANDOM_LENGTHS: usize = 60;

fn seeded() -> ChaCha8Rng {
    let from_clock = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |d| d.as_nanos());
    let given = std::env::var("RECODED_SEED").ok().and_then(|text| text.parse().ok());
    let seed = given.unwrap_or_else(|| from_clock() as u64);
    println!("RECODED_SEED={seed}");
    ChaCha8Rng::seed_from_u64(seed)
}

fn lengths(rng: &mut ChaCha8Rng) -> Vec<usize> {
    let random = (0..RANDOM_LENGTHS).map(|_| rng.next_u32() as usize % (BYTES_MAX + 1));
    (0..=300).chain(random).chain([1400, 1428, 1500, 9000, BYTES_MAX]).collect()
}

/// The kernel under test, or `None` (said aloud) where this CPU lacks its instructions.
fn kernel(name: &str) -> Option<&'static Kernel> {
    let kernel = Kernel::by_name(name);
    if kernel.is_none() {
        println!("skipped: this CPU cannot run kernel {name}");
    }
    kernel
}

fn naive() -> &'static Kernel {
    Kernel::by_name("naive").expect("every CPU runs the naive kernel")
}

fn check_add(kernel: &Kernel) {
    let mut rng = seeded();
    for bytes in lengths(&mut rng) {
        let src = Arena::random(&mut rng, 1, bytes);
        let mut dst = Arena::random(&mut rng, 1, bytes);
        let mut expected = dst.clone();
        naive().add(expected.slices_mut()[0], src.slices()[0]);
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
            naive().mul(expected.slices_mut()[0], c);
            kernel.mul(dst.slices_mut()[0], c);
            assert!(dst == expected, "mul of {bytes} bytes by {c}");
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
            naive().madd(expected.slices_mut()[0], c, src.slices()[0]);
            kernel.madd(dst.slices_mut()[0], c, src.slices()[0]);
            assert!(dst == expected, "madd of {bytes} bytes times {c}");
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
        let (rows, columns) = (rng.next_u32() as usize % 11, rng.next_u32() as usize % 20);
        let coefficients = coefficients(&mut rng, rows * columns);
        let sources = Arena::random(&mut rng, columns, bytes);
        let mut destinations = Arena::random(&mut rng, rows, bytes);
        let mut expected = destinations.clone();
        multiply(naive(), &coefficients, &sources, &mut expected);
        multiply(kernel, &coefficients, &sources, &mut destinations);
        assert!(destinations == expected, "{rows} x {columns} product of {bytes} bytes");
    }
}

fn check_every_product(kernel: &Kernel) {
    let every: Vec<u8> = (0..=255).collect();
    for c in 0..=255 {
        let expected: Vec<u8> = every.iter().map(|&x| mul(c, x)).collect();
        let mut dst = every.clone();
        kernel.mul(&mut dst, c);
        assert_eq!(dst, expected, "mul by {c}");
        dst.fill(0);
        kernel.madd(&mut dst, c, &every);
        assert_eq!(dst, expected, "madd times {c}");
        kernel.matmul(&[c], &[&every], &mut [&mut dst]);
        assert_eq!(dst, expected, "matmul by {c}");
    }
}

fn check_large_generation(kernel: &Kernel) {
    let mut rng = seeded();
    let (sources, mut dst) = (Arena::random(&mut rng, 256, 333), Arena::random(&mut rng, 256, 333));
    let coefficients = coefficients(&mut rng, 256 * 256);
    let mut expected = dst.clone();
    naive().matmul(&coefficients, &sources.slices(), &mut expected.slices_mut());
    kernel.matmul(&coefficients, &sources.slices(), &mut dst.slices_mut());
    assert!(dst == expected);
}

macro_rules! suite {
    ($($module:ident = $name:literal),+) => {
        /// Kernels that have a suite below.
        const SUITES: &[&str] = &[$($name),+];

        $(mod $module {
            use super::*;

            fn run(check: impl Fn(&Kernel)) {
                if let Some(kernel) = kernel($name) {
                    check(kernel);
                }
            }

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

            #[test]
            fn matmul_of_the_largest_generation_matches_naive() {
                run(check_large_generation);
            }

            #[cfg(unix)]
            #[test]
            fn slices_beside_an_unmapped_page_do_not_fault() {
                run(common::edge::check);
            }
        })+
    };
}

suite!(naive_level = "naive", avx2 = "avx2", avx512_gfni = "avx512-gfni");

#[test]
fn every_available_kernel_has_a_suite() {
    for kernel in Kernel::all_available() {
        assert!(SUITES.contains(&kernel.name()), "{} is not tested", kernel.name());
    }
}

#[test]
fn naive_products_match_scalar_on_random_shapes() {
    let mut rng = seeded();
    for _ in 0..200 {
        let [rows, columns, bytes] = [7, 7, 50].map(|limit| rng.next_u32() as usize % limit);
        let factors = coefficients(&mut rng, rows * columns);
        let sources = Arena::random(&mut rng, columns, bytes);
        let mut destinations = Arena::random(&mut rng, rows, bytes);
        naive().matmul(&factors, &sources.slices(), &mut destinations.slices_mut());
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
