//! The simulated engine's results equal this CPU's, bit for bit.

mod common;

use common::{Rig, Shape, below, random, within};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use recoded_fpga::DriverOptions;
use recoded_fpga::sim::MemoryModel;
use recoded_gf::Field;

fn rig(model: MemoryModel, random: ChaCha8Rng) -> Rig {
    Rig::new(model, DriverOptions::default(), random)
}

const PLAIN: Shape = Shape {
    field: Field::Gf256x11D,
    rows: 16,
    columns: 16,
    row_bytes: 1500,
    is_listed: false,
    is_unaligned: false,
};

fn any_shape(random: &mut ChaCha8Rng, rows_max: usize, bytes_max: usize) -> Shape {
    Shape {
        field: Field::ALL[below(random, Field::ALL.len())],
        rows: within(random, 1..rows_max + 1),
        columns: within(random, 1..rows_max + 1),
        row_bytes: within(random, 1..bytes_max + 1),
        is_listed: below(random, 2) == 1,
        is_unaligned: below(random, 4) > 0,
    }
}

/// Every product of a coefficient and a byte, in every field: 256 destinations of one source that
/// holds every byte.
#[test]
fn all_products_of_all_fields_are_right() {
    let mut rig = rig(MemoryModel::default(), ChaCha8Rng::seed_from_u64(1));
    let source: Vec<u8> = (0..=255).collect();
    for field in Field::ALL {
        rig.clear();
        let shape = Shape { field, rows: 256, columns: 1, row_bytes: 256, ..PLAIN };
        let job = rig.job_of(shape, &source, std::slice::from_ref(&source));
        rig.run(&[job]);
    }
}

#[test]
fn one_job_of_16_by_16_is_right() {
    let mut rig = rig(MemoryModel::default(), ChaCha8Rng::seed_from_u64(2));
    let job = rig.job(PLAIN);
    rig.run(&[job]);
}

#[test]
fn random_jobs_are_right() {
    let mut random = random(3);
    let mut rig = rig(MemoryModel::default(), random.clone());
    for _ in 0..15 {
        rig.clear();
        let jobs: Vec<_> = (0..20)
            .map(|number| {
                let bytes_max = [100, 1500, 3000, 9216][number % 4];
                let shape = any_shape(&mut random, 64, bytes_max);
                rig.job(shape)
            })
            .collect();
        rig.run(&jobs);
    }
}

#[test]
fn large_matrices_are_right() {
    let mut random = random(4);
    let mut rig = rig(MemoryModel::default(), random.clone());
    let shapes = [(256, 256, 300), (255, 17, 1025), (3, 256, 9216), (129, 200, 64), (1, 241, 1)];
    let jobs: Vec<_> = shapes
        .into_iter()
        .map(|(rows, columns, row_bytes)| {
            let shape = Shape { rows, columns, row_bytes, ..any_shape(&mut random, 1, 1) };
            rig.job(shape)
        })
        .collect();
    rig.run(&jobs);
    for _ in 0..6 {
        rig.clear();
        let shape = Shape {
            rows: within(&mut random, 1..257),
            columns: within(&mut random, 1..257),
            ..any_shape(&mut random, 1, 700)
        };
        let job = rig.job(shape);
        rig.run(&[job]);
    }
}

#[test]
fn short_jobs_fill_all_slots_and_are_right() {
    let mut random = random(5);
    let mut rig = rig(MemoryModel::default(), random.clone());
    let jobs: Vec<_> = (0..600)
        .map(|_| {
            let shape = any_shape(&mut random, 5, 40);
            rig.job(shape)
        })
        .collect();
    rig.run(&jobs);
}
