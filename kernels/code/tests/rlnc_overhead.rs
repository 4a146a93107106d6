//! The overhead of random coding, compared with the closed forms. `RECODED_SEED` repeats a run; the
//! seed is printed.

use recoded_code::rlnc::{Coding, Decoder, Density, Generator, Random, Seeded, draw};
use recoded_gf::FieldOrder;

/// Symbols of the generation in the table.
const SIZE: usize = 64;

/// Expected extra packets, then the probability of full rank with 0 to 3 more packets than symbols:
/// dense random coding of 64 symbols, orders 2, 4, 16, 256.
const TABLE: [[f64; 5]; 4] = [
    [1.6067, 0.2888, 0.5776, 0.7701, 0.8801],
    [0.4211, 0.6885, 0.9180, 0.9793, 0.9948],
    [0.0708, 0.9336, 0.9958, 0.9997, 1.000],
    [0.00394, 0.9961, 1.000, 1.000, 1.000],
];

fn seed() -> u64 {
    let given = std::env::var("RECODED_SEED").ok().and_then(|text| text.parse().ok());
    let seed = given.unwrap_or(0x8406);
    println!("RECODED_SEED={seed}");
    seed
}

/// Redundant packets until `size` symbols are decoded.
fn extra(
    decoder: &mut Decoder,
    field: FieldOrder,
    size: usize,
    mut generator: impl FnMut(&mut [u8]),
) -> usize {
    decoder.reset(size).expect("there is room");
    let mut vector = vec![0; size];
    while !decoder.is_complete() {
        generator(&mut vector);
        decoder.insert(Coding::Vector(&vector)).expect("a vector of the right size");
        assert!(decoder.redundant() < 1000, "GF({field}): stuck at rank {}", decoder.rank());
    }
    decoder.redundant() as usize
}

/// Compares `trials` drawn generations with the closed forms, and those with the table.
fn check(field: FieldOrder, trials: usize, mut generator: impl FnMut(&mut [u8])) {
    let mut decoder = Decoder::new(SIZE).expect("a valid size");
    let extras: Vec<usize> =
        (0..trials).map(|_| extra(&mut decoder, field, SIZE, &mut generator)).collect();
    let q = f64::from(field.order());
    let powers = || (1..=SIZE as i32).map(|i| q.powi(i));
    let row = TABLE[usize::from(field.code())];

    let mean = extras.iter().sum::<usize>() as f64 / trials as f64;
    let expected: f64 = powers().map(|power| 1.0 / (power - 1.0)).sum();
    // Each missing degree of freedom waits geometrically: variance p / (1 - p)^2.
    let variance: f64 = powers().map(|power| (1.0 / power) / (1.0 - 1.0 / power).powi(2)).sum();
    let sigma = (variance / trials as f64).sqrt();
    println!("GF({field}): {mean:.4} extra, theory {expected:.4}, standard error {sigma:.4}");
    assert!((expected - row[0]).abs() < 1e-4, "GF({field}): the table is the closed form");
    assert!((mean - expected).abs() <= 3.0 * sigma, "GF({field}): {mean} != {expected}");

    for delta in 0..=3 {
        let share = extras.iter().filter(|&&extra| extra <= delta).count() as f64 / trials as f64;
        let tail = powers().skip(delta).chain((1..=delta as i32).map(|i| q.powi(SIZE as i32 + i)));
        let expected: f64 = tail.map(|power| 1.0 - 1.0 / power).product();
        // At least the resolution of the trials, since the probability may be all but 1.
        let sigma = (expected * (1.0 - expected) / trials as f64).sqrt().max(1.0 / trials as f64);
        println!("GF({field}): full rank with {delta} more: {share:.4}, theory {expected:.4}");
        assert!((expected - row[1 + delta]).abs() < 1e-4, "GF({field}), {delta}: the table");
        assert!((share - expected).abs() <= 3.0 * sigma, "GF({field}), {delta}: {share}");
    }
}

#[test]
fn dense_coding_costs_what_theory_says_within_three_standard_errors() {
    let mut random = Random::new(seed());
    for field in FieldOrder::ALL {
        check(field, 10_000, |vector| {
            draw(&mut random, field, SIZE, vector).expect("a drawn vector is valid");
        });
    }
}

#[test]
fn seeded_coding_costs_what_theory_says_within_three_standard_errors() {
    // Consecutive seeds, as from a counter.
    let mut seed = seed() as u32;
    for field in FieldOrder::ALL {
        check(field, 2_000, |vector| {
            seed = seed.wrapping_add(1);
            Seeded::new(seed, Density::UNIFORM).fill(field, vector);
        });
    }
}

#[test]
fn seeds_reach_full_rank_beyond_the_state_of_their_generator() {
    // TinyMT32 has 127 bits of state and its lowest bit is linear in them.
    let mut seed = seed() as u32;
    let mut decoder = Decoder::new(1024).expect("a valid size");
    for (field, density) in [
        (FieldOrder::Two, Density::UNIFORM),
        (FieldOrder::TwoFiftySix, Density::UNIFORM),
        (FieldOrder::Two, Density::share(0.03).expect("a share")),
    ] {
        let extra = extra(&mut decoder, field, 1024, |vector| {
            seed = seed.wrapping_add(1);
            Seeded::new(seed, density).fill(field, vector);
        });
        println!("GF({field}), {density:?}: {extra} extra");
        assert!(extra <= 20, "GF({field}): {extra} extra packets");
    }
}

#[test]
fn sparse_vectors_reach_full_rank_at_the_density_asked_for() {
    let mut random = Random::new(seed());
    let mut decoder = Decoder::new(256).expect("a valid size");
    for field in FieldOrder::ALL {
        for (size, share) in [(64, 0.2), (64, 0.5), (64, 0.9), (256, 0.05), (5, 0.001)] {
            random.set_density(Density::share(share).expect("a share"));
            let (mut packets, mut non_zero) = (0, 0);
            let extra = extra(&mut decoder, field, size, |vector| {
                draw(&mut random, field, size, vector).expect("never the zero vector");
                packets += 1;
                non_zero += vector.iter().filter(|&&element| element != 0).count();
            });
            let drawn = (packets * size) as f64;
            let sigma = (share * (1.0 - share) / drawn).sqrt();
            let measured = non_zero as f64 / drawn;
            println!("GF({field}), {size} symbols, share {share}: {measured:.4}, {extra} extra");
            // A zero vector gets one coefficient: nearly all of the sparsest do.
            let expected = share + (1.0 - share).powi(size as i32) / size as f64;
            assert!((measured - expected).abs() <= 4.0 * sigma, "{measured}, not {expected}");
        }
    }
}
