//! Compares an engine's results with this CPU's, before a device is used and during its use.

use std::borrow::Cow;
use std::ops::Range;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use recoded_gf::{FieldOrder, Kernel};

use super::bundle::coefficients;
use super::{Bundle, Cpu, Job, Operation, Partition, draw};

/// A bundle with one job of each kind, to test an engine. Takes about 100 KiB.
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

/// Whether every byte of a returned bundle equals this CPU's result for its inputs.
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

/// Checks one job of a returned bundle, with an error probability of one in 256 (Freivalds 1977):
/// the job that `choice`, which should be random, names is multiplied by a random vector from the
/// left, results and inputs alike. Takes as long as two of the job's rows. A device computes a
/// large job faster than one core reads it, so only some rows and a window of bytes are checked,
/// [`CHECKED_MAX`] in all, and errors elsewhere in it go unnoticed. A matrix reported as singular
/// is eliminated again.
#[must_use]
pub fn spot_check(bundle: &Bundle, choice: u64) -> bool {
    let jobs = bundle.jobs().len() as u64;
    if jobs == 0 {
        return true;
    }
    let number = (choice % jobs) as usize;
    let job = bundle.jobs()[number].job;
    if let Err(singular) = bundle.outcome(number) {
        let mut factors = matrix(bundle, number, 0..job.rows).concat();
        let inverted = Kernel::best().invert(&mut factors, job.columns);
        return inverted.is_err_and(|found| found.column == singular.column);
    }
    let made: Result<Vec<&[u8]>, _> =
        (0..job.rows).map(|row| bundle.destination(number, row)).collect();
    let Ok(mut made) = made else { return false };
    let mut random = ChaCha8Rng::seed_from_u64(choice);
    // Rows of the matrix: those of the results, or those that the results solve.
    let checked = part(job.rows, (CHECKED_MAX / job.columns.max(1)).max(PART_MIN), &mut random);
    let mut left = vec![0; checked.len()];
    random.fill_bytes(&mut left);
    if job.operation.has_sources() {
        let window = CHECKED_MAX / (checked.len() + job.columns).max(1);
        let window = part(job.row_bytes, window.max(PART_MIN), &mut random);
        made.iter_mut().for_each(|row| *row = &row[window.clone()]);
        let sources: Vec<&[u8]> =
            (0..job.columns).map(|row| &bundle.source(number, row)[window.clone()]).collect();
        let combined = product(&left, &rows(&matrix(bundle, number, checked.clone())));
        return match job.operation {
            // Multiplied back.
            Operation::Solve => product(&combined, &made) == product(&left, &sources[checked]),
            _ => product(&combined, &sources) == product(&left, &made[checked]),
        };
    }
    let factors = matrix(bundle, number, checked.clone());
    if job.operation != Operation::Invert {
        return rows(&factors) == made[checked];
    }
    let mut expected = vec![0; job.columns];
    expected[checked].copy_from_slice(&left);
    product(&product(&left, &rows(&factors)), &made) == expected
}

/// At least one and at most `most` of `count` adjacent places. All places are equally likely: at
/// either end there are fewer.
fn part(count: usize, most: usize, random: &mut ChaCha8Rng) -> Range<usize> {
    if count <= most {
        return 0..count;
    }
    let last = (random.next_u64() % (count + most - 1) as u64) as usize;
    (last + 1).saturating_sub(most)..(last + 1).min(count)
}

/// Rows of the coefficients of a job, given or drawn.
fn matrix(bundle: &Bundle, number: usize, wanted: Range<usize>) -> Vec<Cow<'_, [u8]>> {
    let placed = &bundle.jobs()[number];
    let row = |index| match placed.job.operation {
        Operation::Combine { seed, field } | Operation::Draw { seed, field } => {
            let mut vector = vec![0; placed.job.columns];
            draw(seed, index, field, &mut vector);
            Cow::Owned(vector)
        }
        Operation::Multiply | Operation::Solve | Operation::Invert => {
            Cow::Borrowed(coefficients(bundle.input(), placed, index))
        }
    };
    wanted.map(row).collect()
}

fn rows<'a>(matrix: &'a [Cow<'_, [u8]>]) -> Vec<&'a [u8]> {
    matrix.iter().map(AsRef::as_ref).collect()
}

/// A row times a matrix.
fn product(factors: &[u8], rows: &[&[u8]]) -> Vec<u8> {
    let mut row = vec![0; rows.first().map_or(0, |row| row.len())];
    Kernel::best().matmul(factors, rows, &mut [&mut row]);
    row
}

/// Bytes of matrices, inputs and results that [`spot_check`] reads: 10 to 30 us of a core, as a
/// device's output comes from memory. With four times as many, one core could not check bundles of
/// 512 sources as fast as a card computes them.
pub const CHECKED_MAX: usize = 64 << 10;

/// Least number of rows, and of bytes of each, to choose from.
const PART_MIN: usize = 64;
