//! Elimination against a slow reference, the published overhead of random coding, and whole
//! decodes. `SEED` is printed; every run is the same.

mod reference;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use recoded_code::{Elimination, Outcome, ShrinkError};
use recoded_gf::{FieldOrder, Kernel};
use reference::Reference;

const SEED: u64 = 0x8406_9426_8681;

fn seeded() -> ChaCha8Rng {
    println!("seed {SEED}");
    ChaCha8Rng::seed_from_u64(SEED)
}

fn random_vector(rng: &mut ChaCha8Rng, field: FieldOrder, size: usize) -> Vec<u8> {
    let mut vector = vec![0; size];
    rng.fill_bytes(&mut vector);
    vector.iter_mut().for_each(|element| *element = field.embed(*element));
    vector
}

fn below(rng: &mut ChaCha8Rng, limit: usize) -> usize {
    rng.next_u32() as usize % limit
}

/// A typical vector: random, sparse, unit, zero, or a combination of earlier ones.
fn any_vector(
    rng: &mut ChaCha8Rng,
    field: FieldOrder,
    size: usize,
    earlier: &[Vec<u8>],
) -> Vec<u8> {
    let mut vector = vec![0; size];
    match below(rng, 8) {
        0 => {}
        1 | 2 => vector[below(rng, size)] = 1,
        3 | 4 => {
            for _ in 0..3 {
                vector[below(rng, size)] = field.embed(rng.next_u32() as u8);
            }
        }
        5 => {
            for row in earlier {
                let c = field.embed(rng.next_u32() as u8);
                Kernel::best().madd(&mut vector, c, row);
            }
        }
        _ => return random_vector(rng, field, size),
    }
    vector
}

/// Compares every query result with the reference.
fn assert_same(elimination: &Elimination, reference: &Reference, innovative: &[Vec<u8>]) {
    let size = elimination.size();
    assert_eq!(elimination.rank(), reference.rank());
    assert_eq!(elimination.is_complete(), reference.rank() == size);
    let mut decoded = 0;
    for symbol in 0..size {
        let mut unit = vec![0; size];
        unit[symbol] = 1;
        let in_span = reference.contains(&unit);
        decoded += usize::from(in_span);
        assert_eq!(elimination.is_decoded(symbol), in_span, "symbol {symbol}");
        assert_eq!(elimination.is_seen(symbol), reference.is_seen(symbol), "symbol {symbol}");
        let mut solution = vec![0; elimination.rank()];
        assert_eq!(elimination.solution(symbol, &mut solution).is_some(), in_span);
        if in_span {
            let mut sum = vec![0; size];
            for (&c, vector) in solution.iter().zip(innovative) {
                Kernel::best().madd(&mut sum, c, vector);
            }
            assert_eq!(sum, unit, "the solution of symbol {symbol} combines arrivals into it");
        }
    }
    assert_eq!(elimination.decoded(), decoded);
    assert!(!elimination.is_decoded(size) && !elimination.is_seen(size));
}

#[test]
fn insert_of_any_vectors_matches_reference() {
    let mut rng = seeded();
    let mut elimination = Elimination::new(40);
    let mut larger = Elimination::new(256);
    for round in 0..160 {
        let field = FieldOrder::ALL[round % 4];
        let size = 1 + below(&mut rng, 40);
        elimination.reset(size);
        larger.reset(size);
        let mut reference = Reference::new(size);
        let mut innovative = Vec::new();
        for _ in 0..2 * size + 4 {
            let vector = any_vector(&mut rng, field, size, &innovative);
            let outcome = match reference::unit_index(&vector) {
                Some(index) if rng.next_u32() & 1 == 0 => elimination.insert_unit(index),
                _ => elimination.insert(&vector),
            };
            assert_eq!(larger.insert(&vector), outcome);
            assert_eq!(outcome.is_innovative(), reference.insert(&vector));
            if let Outcome::Innovative { rank, slot } = outcome {
                assert_eq!((rank, slot), (innovative.len() + 1, innovative.len()));
                innovative.push(vector);
            }
            assert_same(&elimination, &reference, &innovative);
            assert_eq!(larger.decoded(), elimination.decoded());
            assert!((0..size).all(|s| larger.is_decoded(s) == elimination.is_decoded(s)));
        }
    }
}

#[test]
fn insert_of_more_symbols_than_a_byte_numbers_matches_reference() {
    const SIZE: usize = 257;
    let mut rng = seeded();
    let mut elimination = Elimination::new(SIZE);
    let mut reference = Reference::new(SIZE);
    let mut innovative = Vec::new();
    while !elimination.is_complete() {
        let vector = any_vector(&mut rng, FieldOrder::Sixteen, SIZE, &innovative);
        let outcome = elimination.insert(&vector);
        assert_eq!(outcome.is_innovative(), reference.insert(&vector));
        if outcome.is_innovative() {
            innovative.push(vector);
        }
    }
    assert_same(&elimination, &reference, &innovative);
    let late = random_vector(&mut rng, FieldOrder::TwoFiftySix, SIZE);
    assert_eq!(elimination.insert(&late), Outcome::Redundant);
    assert_eq!(elimination.insert_unit(SIZE - 1), Outcome::Redundant);
}

#[test]
fn decode_by_solution_and_one_product_restores_every_symbol() {
    let mut rng = seeded();
    let kernel = Kernel::best();
    let mut elimination = Elimination::new(256);
    for (field, size, bytes) in [
        (FieldOrder::Two, 64, 300),
        (FieldOrder::Four, 64, 301),
        (FieldOrder::Sixteen, 16, 1428),
        (FieldOrder::TwoFiftySix, 8, 1500),
        (FieldOrder::TwoFiftySix, 256, 64),
    ] {
        let symbols: Vec<Vec<u8>> =
            (0..size).map(|_| random_vector(&mut rng, FieldOrder::TwoFiftySix, bytes)).collect();
        let sources: Vec<&[u8]> = symbols.iter().map(Vec::as_slice).collect();
        elimination.reset(size);
        let mut payloads: Vec<Vec<u8>> = Vec::new();
        // A systematic packet of every second symbol, then random combinations.
        for index in (0..size).step_by(2) {
            assert!(elimination.insert_unit(index).is_innovative());
            payloads.push(symbols[index].clone());
        }
        while !elimination.is_complete() {
            let vector = random_vector(&mut rng, field, size);
            let mut payload = vec![0; bytes];
            kernel.matmul(&vector, &sources, &mut [&mut payload]);
            if elimination.insert(&vector).is_innovative() {
                payloads.push(payload);
            }
        }
        let mut coefficients = vec![0; size * size];
        for (symbol, row) in coefficients.chunks_exact_mut(size).enumerate() {
            assert_eq!(elimination.solution(symbol, row), Some(()), "symbol {symbol}");
        }
        let arrivals: Vec<&[u8]> = payloads.iter().map(Vec::as_slice).collect();
        let mut decoded = vec![vec![0; bytes]; size];
        let mut destinations: Vec<&mut [u8]> = decoded.iter_mut().map(Vec::as_mut_slice).collect();
        kernel.matmul(&coefficients, &arrivals, &mut destinations);
        assert!(decoded == symbols, "GF({field}), {size} symbols");
    }
}

#[test]
fn shrink_below_a_used_symbol_is_refused_and_changes_nothing() {
    let mut elimination = Elimination::new(8);
    assert_eq!(elimination.insert_unit(1), Outcome::Innovative { rank: 1, slot: 0 });
    assert!(elimination.insert(&[1, 0, 0, 3, 0, 0, 0, 0]).is_innovative());
    let refused = ShrinkError::InUse { requested: 3, symbol: 3 };
    assert_eq!(elimination.shrink(3), Err(refused));
    let out_of_range = |requested| Err(ShrinkError::OutOfRange { requested, size: 8 });
    assert_eq!(elimination.shrink(0), out_of_range(0));
    assert_eq!(elimination.shrink(9), out_of_range(9));
    assert_eq!((elimination.size(), elimination.rank()), (8, 2));
    assert_eq!(elimination.shrink(8), Ok(()));
    assert_eq!(elimination.shrink(4), Ok(()));
    assert_eq!(elimination.size(), 4);
    assert!(elimination.is_decoded(1) && !elimination.is_decoded(0) && elimination.is_seen(0));
}

#[test]
fn shrink_to_what_is_held_completes_the_generation() {
    let mut rng = seeded();
    let mut elimination = Elimination::new(16);
    elimination.reset(12);
    let mut vectors = Vec::new();
    while elimination.rank() < 5 {
        let mut vector = random_vector(&mut rng, FieldOrder::Four, 5);
        vector.resize(12, 0);
        if elimination.insert(&vector).is_innovative() {
            vectors.push(vector);
        }
    }
    assert!(!elimination.is_complete());
    assert_eq!(elimination.decoded(), 5, "the five symbols are determined already");
    assert_eq!(elimination.shrink(5), Ok(()));
    assert!(elimination.is_complete());
    let mut reference = Reference::new(5);
    vectors.iter_mut().for_each(|vector| vector.truncate(5));
    vectors.iter().for_each(|vector| assert!(reference.insert(vector)));
    assert_same(&elimination, &reference, &vectors);
}

#[test]
fn insert_after_shrink_matches_reference() {
    let mut rng = seeded();
    let mut elimination = Elimination::new(24);
    for round in 0..100 {
        let (before, after) = (24, 9);
        elimination.reset(before);
        let field = FieldOrder::ALL[round % 4];
        let mut reference = Reference::new(after);
        let mut innovative = Vec::new();
        for arrival in 0..20 {
            if arrival == 4 {
                assert_eq!(elimination.shrink(after), Ok(()));
            }
            let vector = any_vector(&mut rng, field, after, &innovative);
            let mut padded = vector.clone();
            padded.resize(elimination.size(), 0);
            let outcome = elimination.insert(&padded);
            assert_eq!(outcome.is_innovative(), reference.insert(&vector));
            if outcome.is_innovative() {
                innovative.push(vector);
            }
        }
        assert_same(&elimination, &reference, &innovative);
    }
}

#[test]
fn reset_forgets_the_previous_generation() {
    let mut rng = seeded();
    let mut elimination = Elimination::new(16);
    for size in [16, 3, 16, 1, 9] {
        elimination.reset(size);
        assert_eq!((elimination.rank(), elimination.decoded()), (0, 0));
        assert!(!elimination.is_complete());
        let mut reference = Reference::new(size);
        let mut innovative = Vec::new();
        while !elimination.is_complete() {
            let vector = random_vector(&mut rng, FieldOrder::Two, size);
            assert_eq!(elimination.insert(&vector).is_innovative(), reference.insert(&vector));
            if elimination.rank() > innovative.len() {
                innovative.push(vector);
            }
        }
        assert_same(&elimination, &reference, &innovative);
    }
}

#[test]
#[should_panic(expected = "wrong size")]
fn insert_of_a_vector_of_another_size_panics() {
    Elimination::new(8).insert(&[1; 7]);
}

#[test]
#[should_panic(expected = "symbol 8 of a generation of 8")]
fn insert_unit_beyond_the_generation_panics() {
    Elimination::new(8).insert_unit(8);
}
