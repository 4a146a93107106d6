//! Does an engine compute what this CPU computes? Asked before a device is used, and while it is.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use recoded_gf::{FieldOrder, Kernel};

use super::bundle::coefficients;
use super::{Bundle, Cpu, Job, Operation, Partition, draw};

/// A bundle with one job of each kind, for trying an engine. Takes about 100 KiB.
#[must_use]
pub fn sample(seed: u64) -> Bundle {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let (word, field) = (random.next_u32(), FieldOrder::Sixteen);
    let jobs = [
        Job::new(Operation::Multiply, 19, 37, 1400),
        Job::new(Operation::Multiply, 2, 10, 100),
        Job::new(Operation::Solve, 16, 16, 333),
        Job::new(Operation::Combine { seed: word, field }, 5, 33, 64),
        Job::invert(21),
        Job::draw(word, field, 3, 100),
    ];
    let bytes = |of: fn(&Job) -> usize| jobs.iter().map(of).sum();
    let (input, output) = (bytes(Job::input_bytes), bytes(Job::output_bytes));
    let mut bundle = Bundle::new(input, output, jobs.len());
    for job in jobs {
        let Ok(number) = bundle.push(job, 0) else { continue };
        if job.operation.has_coefficients() {
            (0..job.rows).for_each(|row| random.fill_bytes(bundle.coefficients_mut(number, row)));
        }
        if job.operation.has_sources() {
            (0..job.columns).for_each(|row| random.fill_bytes(bundle.source_mut(number, row)));
        }
    }
    bundle
}

/// Whether a bundle that came back has what this CPU makes of its inputs, every byte of it.
#[must_use]
pub fn agrees(bundle: &Bundle) -> bool {
    let mut again = bundle.retain().restore();
    let Ok(cpu) = Cpu::new(1, Partition::FullBlock) else { return false };
    cpu.run(&mut again);
    (0..bundle.jobs().len()).all(|job| {
        let rows = 0..bundle.jobs()[job].job.rows;
        let is_same = |row| bundle.destination(job, row) == again.destination(job, row);
        bundle.outcome(job) == again.outcome(job)
            && (bundle.outcome(job).is_err() || rows.clone().all(is_same))
    })
}

/// Whether one job of a bundle that came back is right, all of it, but for a chance of one in 256
/// (Freivalds 1977): the job that `choice`, which should be random, names is multiplied by a random
/// vector from the left, results and inputs alike. Takes as long as two of the job's rows. A matrix
/// that is said to be singular is eliminated again.
#[must_use]
pub fn spot_check(bundle: &Bundle, choice: u64) -> bool {
    let jobs = bundle.jobs().len() as u64;
    if jobs == 0 {
        return true;
    }
    let number = (choice % jobs) as usize;
    let placed = &bundle.jobs()[number];
    let Job { operation, rows, columns, .. } = placed.job;
    let factors = matrix(bundle, number);
    if let Err(singular) = bundle.outcome(number) {
        let inverted = Kernel::best().invert(&mut factors.concat(), columns);
        return inverted.is_err_and(|found| found.column == singular.column);
    }
    let made: Result<Vec<&[u8]>, _> =
        (0..rows).map(|row| bundle.destination(number, row)).collect();
    let Ok(made) = made else { return false };
    let sources = || (0..columns).map(|row| bundle.source(number, row)).collect::<Vec<_>>();
    let mut left = vec![0; rows];
    ChaCha8Rng::seed_from_u64(choice).fill_bytes(&mut left);
    let factors: Vec<&[u8]> = factors.iter().map(Vec::as_slice).collect();
    match operation {
        Operation::Multiply | Operation::Combine { .. } => {
            product(&product(&left, &factors), &sources()) == product(&left, &made)
        }
        // Multiplied back: the matrix times the solution, or times its inverse.
        Operation::Solve => product(&product(&left, &factors), &made) == product(&left, &sources()),
        Operation::Invert => product(&product(&left, &factors), &made) == left,
        Operation::Draw { .. } => factors == made,
    }
}

/// The coefficients of a job, brought or drawn.
fn matrix(bundle: &Bundle, number: usize) -> Vec<Vec<u8>> {
    let placed = &bundle.jobs()[number];
    let row = |index| match placed.job.operation {
        Operation::Combine { seed, field } | Operation::Draw { seed, field } => {
            let mut vector = vec![0; placed.job.columns];
            draw(seed, index, field, &mut vector);
            vector
        }
        Operation::Multiply | Operation::Solve | Operation::Invert => {
            coefficients(bundle.input(), placed, index).to_vec()
        }
    };
    (0..placed.job.rows).map(row).collect()
}

/// A row times a matrix.
fn product(factors: &[u8], rows: &[&[u8]]) -> Vec<u8> {
    let mut row = vec![0; rows.first().map_or(0, |row| row.len())];
    Kernel::best().matmul(factors, rows, &mut [&mut row]);
    row
}
