//! Reed-Solomon: any k of k + m buffers suffice, exhaustively for small codes, by sampling for
//! larger ones, and by the minors of the generator. `RECODED_SEED` repeats a run; it is printed.

use std::cell::Cell;
use std::time::{SystemTime, UNIX_EPOCH};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use recoded_code::reed_solomon::{Error, Multiply, ReedSolomon};
use recoded_gf::Kernel;

fn seeded() -> ChaCha8Rng {
    let from_clock = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |d| d.as_nanos());
    let given = std::env::var("RECODED_SEED").ok().and_then(|text| text.parse().ok());
    let seed = given.unwrap_or_else(|| from_clock() as u64);
    println!("RECODED_SEED={seed}");
    ChaCha8Rng::seed_from_u64(seed)
}

fn below(rng: &mut ChaCha8Rng, limit: usize) -> usize {
    rng.next_u32() as usize % limit
}

fn shuffle<T>(rng: &mut ChaCha8Rng, items: &mut [T]) {
    for last in (1..items.len()).rev() {
        items.swap(last, below(rng, last + 1));
    }
}

/// Data and parity buffers of random data, by id.
fn stripe(rng: &mut ChaCha8Rng, code: &ReedSolomon, length: usize) -> Vec<Vec<u8>> {
    let mut buffers = vec![vec![0; length]; code.data() + code.parity()];
    let (data, parity) = buffers.split_at_mut(code.data());
    data.iter_mut().for_each(|buffer| rng.fill_bytes(buffer));
    let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    let mut parity: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
    code.generate(&data, &mut parity).expect("buffers of the code");
    buffers
}

/// Recovers the buffers `lost` from those `intact`, in these orders, and compares.
fn assert_recovers(code: &mut ReedSolomon, buffers: &[Vec<u8>], intact: &[usize], lost: &[usize]) {
    let ids = [intact, lost].concat();
    let sources: Vec<&[u8]> = intact.iter().map(|&id| buffers[id].as_slice()).collect();
    let mut recovered = vec![vec![0xAA; buffers[0].len()]; lost.len()];
    let mut views: Vec<&mut [u8]> = recovered.iter_mut().map(Vec::as_mut_slice).collect();
    code.recover(&ids, &sources, &mut views).expect("k intact buffers");
    for (bytes, &id) in recovered.iter().zip(lost) {
        assert_eq!(bytes, &buffers[id], "buffer {id} of {intact:?} -> {lost:?}");
    }
}

#[test]
fn every_erasure_pattern_of_small_codes_is_recovered() {
    let mut rng = seeded();
    for total in 2..=12 {
        for parity in 1..total {
            let mut code = ReedSolomon::new(total - parity, parity).expect("a small code");
            let buffers = stripe(&mut rng, &code, 3);
            for pattern in 1_u32..1 << total {
                if pattern.count_ones() as usize > parity {
                    continue;
                }
                let is_lost = |id: &usize| pattern >> id & 1 == 1;
                let (mut lost, mut intact): (Vec<_>, Vec<_>) = (0..total).partition(is_lost);
                shuffle(&mut rng, &mut lost);
                shuffle(&mut rng, &mut intact);
                assert_recovers(&mut code, &buffers, &intact, &lost);
            }
        }
    }
}

#[test]
fn random_erasures_of_codes_up_to_40_buffers_are_recovered() {
    let mut rng = seeded();
    for total in 2..=40 {
        for parity in 1..total {
            random_erasures(&mut rng, total - parity, parity, 6);
        }
    }
}

#[test]
fn random_erasures_of_the_largest_codes_are_recovered() {
    let mut rng = seeded();
    for (data, parity) in [(255, 1), (1, 255), (128, 128), (200, 56), (223, 32)] {
        random_erasures(&mut rng, data, parity, 2);
    }
}

fn random_erasures(rng: &mut ChaCha8Rng, data: usize, parity: usize, patterns: usize) {
    let mut code = ReedSolomon::new(data, parity).expect("a code of up to 256 buffers");
    let length = 1 + below(rng, 40);
    let buffers = stripe(rng, &code, length);
    for _ in 0..patterns {
        let mut ids: Vec<usize> = (0..data + parity).collect();
        shuffle(rng, &mut ids);
        // Some intact buffers may be unnecessary, some lost ones not requested.
        let (intact, lost) = ids.split_at(data + below(rng, parity));
        let wanted = &lost[..1 + below(rng, lost.len())];
        assert_recovers(&mut code, &buffers, intact, wanted);
    }
}

/// A numeric check that any k buffers suffice: square submatrices of the generator are regular.
#[test]
fn minors_of_the_generator_are_not_zero() {
    let mut rng = seeded();
    let code = ReedSolomon::new(6, 6).expect("a small code");
    for rows in 1_u32..1 << 6 {
        for columns in (1_u32..1 << 6).filter(|columns| columns.count_ones() == rows.count_ones()) {
            let select =
                |set: u32| -> Vec<usize> { (0..6).filter(|index| set >> index & 1 == 1).collect() };
            assert_regular(&code, &select(rows), &select(columns));
        }
    }
    let code = ReedSolomon::new(200, 56).expect("256 buffers");
    for _ in 0..100 {
        let size = 1 + below(&mut rng, 56);
        let mut rows: Vec<usize> = (0..56).collect();
        let mut columns: Vec<usize> = (0..200).collect();
        shuffle(&mut rng, &mut rows);
        shuffle(&mut rng, &mut columns);
        assert_regular(&code, &rows[..size], &columns[..size]);
    }
}

fn assert_regular(code: &ReedSolomon, rows: &[usize], columns: &[usize]) {
    let element = |&row: &usize, &column: &usize| code.generator()[row * code.data() + column];
    let mut minor: Vec<u8> = rows
        .iter()
        .flat_map(|row| columns.iter().map(move |column| element(row, column)))
        .collect();
    let rank = Kernel::best().rank(&mut minor, columns.len());
    assert_eq!(rank, columns.len(), "rows {rows:?}, columns {columns:?}");
}

#[test]
fn first_parity_is_the_sum_of_the_data() {
    for (data, parity) in [(1, 1), (10, 4), (200, 56)] {
        let code = ReedSolomon::new(data, parity).expect("a code");
        assert!(code.generator()[..data].iter().all(|&coefficient| coefficient == 1));
    }
}

#[test]
fn wrong_buffers_are_errors() {
    for (data, parity) in [(0, 1), (1, 0), (200, 57), (usize::MAX, 2)] {
        assert_eq!(ReedSolomon::new(data, parity).err(), Some(Error::Shape { data, parity }));
    }
    let mut code = ReedSolomon::new(2, 2).expect("a small code");
    let (a, b) = ([1; 4], [2; 4]);
    let (mut p, mut q, mut short) = ([0; 4], [0; 4], [0; 3]);
    let wrong = code.generate(&[&a], &mut [&mut p, &mut q]);
    assert_eq!(wrong, Err(Error::Buffers { data: 1, parity: 2 }));
    let wrong = code.generate(&[&a, &b], &mut [&mut p, &mut short]);
    assert_eq!(wrong, Err(Error::Length { bytes: 3, expected: 4 }));
    assert_eq!((p, q), ([0; 4], [0; 4]), "an error leaves buffers alone");
    let mut recover =
        |ids: &[usize], intact: &[&[u8]]| code.recover(ids, intact, &mut [p.as_mut_slice()]);
    assert_eq!(recover(&[0, 1], &[&a, &b]), Err(Error::Ids { ids: 2, buffers: 3 }));
    assert_eq!(recover(&[0, 4, 1], &[&a, &b]), Err(Error::UnknownId { id: 4, buffers: 4 }));
    assert_eq!(recover(&[0, 2, 0], &[&a, &b]), Err(Error::Repeated { id: 0 }));
    assert_eq!(recover(&[0, 1], &[&a]), Err(Error::TooFew { intact: 1, needed: 2 }));
    assert_eq!(recover(&[0, 1, 2], &[&a, &short]), Err(Error::Length { bytes: 3, expected: 4 }));
    assert_eq!(recover(&[0, 1, 2], &[&a, &b]), Ok(()));
    assert_eq!(p, [3; 4]);
}

/// Counts requests, like an accelerator.
struct Counting<'a> {
    jobs: &'a Cell<usize>,
}

impl Multiply for Counting<'_> {
    fn matmul(&self, coefficients: &[u8], sources: &[&[u8]], destinations: &mut [&mut [u8]]) {
        self.jobs.set(self.jobs.get() + 1);
        Kernel::best().matmul(coefficients, sources, destinations);
    }
}

#[test]
fn each_call_is_one_multiply_and_no_allocation() {
    let jobs = Cell::new(0);
    let mut code = ReedSolomon::with(Counting { jobs: &jobs }, 10, 4).expect("a small code");
    let data = [[7; 100]; 10];
    let views = data.each_ref().map(<[u8; 100]>::as_slice);
    let (mut parity, mut lost) = ([[0; 100]; 4], [[0; 100]; 4]);
    let ids = [4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 3, 2, 1, 0];
    let allocations = allocation_counter::measure(|| {
        code.generate(&views, &mut parity.each_mut().map(<[u8; 100]>::as_mut_slice))
            .expect("buffers of the code");
        let parity = parity.each_ref().map(<[u8; 100]>::as_slice);
        let mut intact = [views[0]; 10];
        intact[..6].copy_from_slice(&views[4..]);
        intact[6..].copy_from_slice(&parity);
        code.recover(&ids, &intact, &mut lost.each_mut().map(<[u8; 100]>::as_mut_slice))
            .expect("ten intact buffers");
    });
    assert_eq!(allocations.count_total, 0, "{allocations:?}");
    assert_eq!((jobs.get(), lost), (2, [[7; 100]; 4]));
}
