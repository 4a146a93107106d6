//! Inversion and the papers' decoders.

use recoded_cuda::{Job, TECHNIQUES};
use recoded_gf::{Field, Kernel};

use crate::card::{Card, Random};

fn kernel(field: Field) -> &'static Kernel {
    Kernel::best().over(field).expect("every level serves every field")
}

/// A random matrix; the CPU decides whether it is invertible. `dependent` makes that column depend
/// on those before it.
fn matrix(random: &mut Random, field: Field, size: usize, dependent: Option<usize>) -> Vec<u8> {
    let mask = (field.order() - 1) as u8;
    let mut bytes: Vec<u8> = random.bytes(size * size).iter().map(|byte| byte & mask).collect();
    // Zeros on the diagonal, so that rows must be exchanged.
    for row in (0..size).step_by(3) {
        bytes[row * size + row] = 0;
    }
    if let Some(column) = dependent {
        for row in bytes.chunks_exact_mut(size) {
            row[column] = row[..column].iter().fold(0, |sum, &x| sum ^ x);
        }
    }
    bytes
}

/// Inverts all matrices, in one launch and by several blocks each, and compares outcome and bytes
/// with the CPU's.
fn invert_matches_cpu(random: &mut Random, field: Field, matrices: &[(usize, Option<usize>)]) {
    let mut card = Card::new(24 << 20, random.next());
    // The search for races takes a minute, and smaller ones show them as well.
    card.finds_races = false;
    for invert in [invert_by_one_block, invert_by_several_blocks] {
        inverses_match_cpu(random, &mut card, field, matrices, invert);
        card.forget();
    }
}

fn invert_by_one_block(card: &mut Card, jobs: &[Job]) {
    card.run("invert", jobs);
}

fn invert_by_several_blocks(card: &mut Card, jobs: &[Job]) {
    let with_state = |job: &Job| Job { sources: card.allocate(Job::INVERSE_STATE_BYTES), ..*job };
    let jobs: Vec<Job> = jobs.iter().map(with_state).collect();
    card.run("invert_begin", &jobs);
    let largest = jobs.iter().map(|job| job.rows).max().unwrap_or(0);
    for _ in 0..largest.div_ceil(Job::INVERSE_PANEL) {
        card.run("invert_panel", &jobs);
        card.run("invert_update", &jobs);
    }
    card.run("invert_end", &jobs);
}

fn inverses_match_cpu(
    random: &mut Random,
    card: &mut Card,
    field: Field,
    matrices: &[(usize, Option<usize>)],
    invert: impl FnOnce(&mut Card, &[Job]),
) {
    let mut jobs = Vec::new();
    let mut inputs = Vec::new();
    for &(size, dependent) in matrices {
        let bytes = matrix(random, field, size, dependent);
        let rows: Vec<Vec<u8>> = bytes.chunks_exact(size).map(<[u8]>::to_vec).collect();
        let stride = (size as u32).next_multiple_of(16);
        let n = size as u32;
        jobs.push(Job {
            coefficients: card.upload(&rows, stride),
            coefficient_stride: stride,
            destinations: card.allocate(u64::from(stride) * size as u64),
            destination_stride: stride,
            rows: n,
            depth: n,
            symbol_bytes: n,
            field: Job::field_code(field),
            parameter: card.allocate(16),
            ..Job::default()
        });
        inputs.push(bytes);
    }
    invert(card, &jobs);
    for ((job, mut expected), &(size, dependent)) in jobs.iter().zip(inputs).zip(matrices) {
        let outcome = card.outcome(job.parameter) as usize;
        match kernel(field).invert(&mut expected, size) {
            Ok(()) => {
                assert_eq!(outcome, size, "{field}");
                let rows = card.download(job.destinations, size, size, job.destination_stride);
                assert!(rows.concat() == expected, "{field}: the inverse of {size} is another one");
            }
            Err(singular) => assert_eq!(outcome, singular.column, "{field} {size} {dependent:?}"),
        }
    }
}

#[test]
fn invert_matches_cpu_around_the_panel() {
    let mut random = Random::new();
    let sizes = [1, 2, 3, 5, 16, 31, 32, 33, 34, 63, 64, 65, 96, 100, 127, 128, 130];
    invert_matches_cpu(&mut random, Field::default(), &sizes.map(|size| (size, None)));
}

#[test]
fn invert_finds_the_dependent_column() {
    let mut random = Random::new();
    let singular = [(1, 0), (4, 0), (4, 3), (40, 31), (40, 32), (40, 39), (70, 1), (70, 64)];
    let matrices = singular.map(|(size, column)| (size, Some(column)));
    invert_matches_cpu(&mut random, Field::default(), &matrices);
}

#[test]
fn invert_serves_all_fields() {
    let mut random = Random::new();
    for field in Field::ALL {
        // Over GF(2), most random matrices are singular: some are not.
        let sizes = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 33, 37, 40, 41, 50, 67];
        invert_matches_cpu(&mut random, field, &sizes.map(|size| (size, None)));
    }
}

/// Sizes that cover all cases: whole and partial panels, exchanges within them and beyond; the shim
/// checks for races.
#[test]
fn blocks_that_share_a_matrix_do_not_race() {
    let mut random = Random::new();
    let mut card = Card::new(1 << 20, random.next());
    let matrices = [(70, None), (33, None), (64, Some(40))];
    let field = Field::default();
    inverses_match_cpu(&mut random, &mut card, field, &matrices, invert_by_several_blocks);
    // Over GF(2) hardly a row is in its final place.
    card.forget();
    let matrices = [(65, None), (66, None), (67, None), (68, None), (69, None)];
    let field = Field::PackedGf2;
    inverses_match_cpu(&mut random, &mut card, field, &matrices, invert_by_several_blocks);
}

#[test]
fn invert_serves_large_generations() {
    let mut random = Random::new();
    invert_matches_cpu(
        &mut random,
        Field::default(),
        &[(257, None), (300, Some(299)), (1024, None)],
    );
}

/// Coded symbols of a generation, and their sources.
struct Generation {
    sources: Vec<Vec<u8>>,
    vectors: Vec<Vec<u8>>,
    payloads: Vec<Vec<u8>>,
}

impl Generation {
    /// `size` symbols of `bytes` bytes and `coded` coded ones, some of them dependent.
    fn random(random: &mut Random, size: usize, bytes: usize, coded: usize) -> Self {
        let sources: Vec<Vec<u8>> = (0..size).map(|_| random.bytes(bytes)).collect();
        let mut vectors: Vec<Vec<u8>> = (0..coded).map(|_| random.bytes(size)).collect();
        for index in (3..coded).step_by(5) {
            vectors[index] =
                vectors[index - 1].iter().zip(&vectors[0]).map(|(a, b)| a ^ b).collect();
        }
        vectors[1] = vec![0; size];
        let rows: Vec<&[u8]> = sources.iter().map(Vec::as_slice).collect();
        let mut payloads = vec![vec![0; bytes]; coded];
        let mut destinations: Vec<&mut [u8]> = payloads.iter_mut().map(Vec::as_mut_slice).collect();
        kernel(Field::default()).matmul(&vectors.concat(), &rows, &mut destinations);
        Self { sources, vectors, payloads }
    }
}

/// `rows_a_launch` received rows at a time, until all are inserted.
fn card_alone_decodes(rows_a_launch: usize) {
    let mut random = Random::new();
    // Two blocks; the second is not full.
    let (size, bytes) = (23, 1024 + 48);
    let coded = size + 12;
    let generation = Generation::random(&mut random, size, bytes, coded);
    let mut card = Card::new(1 << 20, random.next());
    let stride = 32;
    let coefficients = card.upload(&generation.vectors, stride);
    let sources = card.upload(&generation.payloads, bytes as u32);
    let destinations = card.allocate((size * bytes) as u64);
    let state_bytes = 2 * Job::progressive_state_bytes(size as u32) as usize;
    let state = card.allocate(state_bytes as u64);
    card.write(state, &vec![0; state_bytes]);
    for first in (0..coded).step_by(rows_a_launch) {
        let job = Job {
            coefficients: coefficients + (first * stride as usize) as u64,
            coefficient_stride: stride,
            sources: sources + (first * bytes) as u64,
            source_stride: bytes as u32,
            destinations,
            destination_stride: bytes as u32,
            symbol_bytes: bytes as u32,
            rows: size as u32,
            depth: rows_a_launch.min(coded - first) as u32,
            parameter: state,
            ..Job::default()
        };
        card.run("decode_progressive", &[job]);
        let seen = (first + rows_a_launch).min(coded);
        let rank = kernel(Field::default()).rank(&mut generation.vectors[..seen].concat(), size);
        assert_eq!(card.outcome(state) as usize, rank, "after {seen} rows");
    }
    assert!(card.download(destinations, size, bytes, bytes as u32) == generation.sources);
}

#[test]
fn card_alone_decodes_row_by_row() {
    card_alone_decodes(1);
}

#[test]
fn card_alone_decodes_buffered_rows() {
    card_alone_decodes(1000);
}

#[test]
fn card_alone_decodes_in_parts() {
    card_alone_decodes(4);
}

/// Nuclei, section IV-F.1: the card reduces a row, the CPU finds its pivot, the card eliminates.
#[test]
fn card_decodes_with_pivots_of_the_cpu() {
    let mut random = Random::new();
    let (size, bytes) = (21, 1200);
    let generation = Generation::random(&mut random, size, bytes, size + 10);
    // Vector and payload are one row.
    let vector_bytes = 32;
    let row_bytes = (vector_bytes + bytes) as u32;
    let mut card = Card::new(1 << 20, random.next());
    let rows = card.upload(&vec![vec![0; row_bytes as usize]; size], row_bytes);
    let (incoming, factors, held) = (card.allocate(2000), card.allocate(32), card.allocate(32));
    let mut present = vec![0_u8; size];
    for (vector, payload) in generation.vectors.iter().zip(&generation.payloads) {
        let mut row = vec![0; vector_bytes];
        row[..size].copy_from_slice(vector);
        row.extend(payload);
        card.write(incoming, &row);
        let known: Vec<u8> = vector.iter().zip(&present).map(|(c, held)| c * held).collect();
        card.write(factors, &known);
        let reduce = Job {
            coefficients: factors,
            coefficient_stride: 32,
            sources: rows,
            source_stride: row_bytes,
            destinations: incoming,
            destination_stride: row_bytes,
            symbol_bytes: row_bytes,
            rows: 1,
            depth: size as u32,
            flags: Job::ACCUMULATE,
            ..Job::default()
        };
        card.run("matmul_loop", &[reduce]);
        let reduced = card.read(incoming, size);
        let Some(pivot) = (0..size).find(|&c| present[c] == 0 && reduced[c] != 0) else {
            continue;
        };
        card.write(held, &present);
        let eliminate = Job {
            coefficients: held,
            sources: incoming,
            destinations: rows,
            destination_stride: row_bytes,
            symbol_bytes: row_bytes,
            rows: size as u32,
            parameter: pivot as u64,
            ..Job::default()
        };
        // One block stores words with an unchanged byte that all others read.
        card.finds_races = false;
        card.run("eliminate_row", &[eliminate]);
        card.finds_races = true;
        present[pivot] = 1;
    }
    assert!(present.iter().all(|&held| held == 1), "the generation is not complete");
    let decoded = card.download(rows + vector_bytes as u64, size, bytes, row_bytes);
    assert!(decoded == generation.sources);
}

/// Extreme network coding, section 5.2: all inverses in one launch, all products in another one.
#[test]
fn many_segments_decode_in_two_launches() {
    let mut random = Random::new();
    let (segments, size, bytes) = (12, 20, 336);
    let mut card = Card::new(4 << 20, random.next());
    let (mut inversions, mut products, mut originals) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..segments {
        let sources: Vec<Vec<u8>> = (0..size).map(|_| random.bytes(bytes)).collect();
        let vectors = loop {
            let vectors = matrix(&mut random, Field::default(), size, None);
            if kernel(Field::default()).rank(&mut vectors.clone(), size) == size {
                break vectors;
            }
        };
        let rows: Vec<&[u8]> = sources.iter().map(Vec::as_slice).collect();
        let mut payloads = vec![vec![0; bytes]; size];
        let mut destinations: Vec<&mut [u8]> = payloads.iter_mut().map(Vec::as_mut_slice).collect();
        kernel(Field::default()).matmul(&vectors, &rows, &mut destinations);
        let vectors: Vec<Vec<u8>> = vectors.chunks_exact(size).map(<[u8]>::to_vec).collect();
        let (n, stride) = (size as u32, 32);
        let inversion = Job {
            coefficients: card.upload(&vectors, stride),
            coefficient_stride: stride,
            destinations: card.allocate(u64::from(n * stride)),
            destination_stride: stride,
            rows: n,
            depth: n,
            symbol_bytes: n,
            parameter: card.allocate(16),
            ..Job::default()
        };
        products.push(Job {
            coefficients: inversion.destinations,
            coefficient_stride: stride,
            sources: card.upload(&payloads, bytes as u32),
            source_stride: bytes as u32,
            destinations: card.allocate((size * bytes) as u64),
            destination_stride: bytes as u32,
            symbol_bytes: bytes as u32,
            rows: n,
            depth: n,
            ..Job::default()
        });
        inversions.push(inversion);
        originals.push(sources);
    }
    card.run("invert", &inversions);
    let technique = TECHNIQUES.iter().find(|known| known.name == "permute").expect("a technique");
    card.run(technique.kernel, &products);
    for (job, original) in products.iter().zip(&originals) {
        assert!(card.download(job.destinations, size, bytes, bytes as u32) == *original);
    }
}
