//! Does an engine compute what this CPU computes? Asked before a device is used, and while it is.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use recoded_gf::{FieldOrder, Kernel, mul};

use super::batch::{coefficients, source};
use super::{Batch, Cpu, Job, Operation, Partition, draw};

/// A batch with one job of each kind, for trying an engine. Takes about 100 KiB.
#[must_use]
pub fn sample(seed: u64) -> Batch {
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
    let mut batch = Batch::new(input, output, jobs.len());
    for job in jobs {
        let Ok(number) = batch.push(job, 0) else { continue };
        if job.operation.has_coefficients() {
            (0..job.rows).for_each(|row| random.fill_bytes(batch.coefficients_mut(number, row)));
        }
        if job.operation.has_sources() {
            (0..job.columns).for_each(|row| random.fill_bytes(batch.source_mut(number, row)));
        }
    }
    batch
}

/// Whether a batch that came back has what this CPU makes of its inputs, every byte of it.
#[must_use]
pub fn agrees(batch: &Batch) -> bool {
    let mut again = batch.retain().restore();
    let Ok(cpu) = Cpu::new(1, Partition::FullBlock) else { return false };
    cpu.run(&mut again);
    (0..batch.jobs().len()).all(|job| {
        let rows = 0..batch.jobs()[job].job.rows;
        let is_same = |row| batch.destination(job, row) == again.destination(job, row);
        batch.outcome(job) == again.outcome(job)
            && (batch.outcome(job).is_err() || rows.clone().all(is_same))
    })
}

/// Whether one column of bytes of one job of a batch that came back is right: the job and the column
/// that `choice` names, which should be random. About a thousandth of the work of the job. A matrix
/// that is said to be singular is eliminated again.
#[must_use]
pub fn spot_check(batch: &Batch, choice: u64) -> bool {
    let jobs = batch.jobs().len() as u64;
    if jobs == 0 {
        return true;
    }
    let number = (choice % jobs) as usize;
    let placed = &batch.jobs()[number];
    let at = (choice / jobs % placed.job.row_bytes as u64) as usize;
    let input = batch.input();
    let row = |row| coefficients(input, placed, row);
    if let Err(singular) = batch.outcome(number) {
        let mut matrix = (0..placed.job.rows).map(row).collect::<Vec<_>>().concat();
        let inverted = Kernel::best().invert(&mut matrix, placed.job.columns);
        return inverted.is_err_and(|found| found.column == singular.column);
    }
    let bytes = |index| batch.destination(number, index).ok().map(|row| row[at]);
    let column: Option<Vec<u8>> = (0..placed.job.rows).map(bytes).collect();
    let Some(column) = column else { return false };
    let has_sources = placed.job.operation.has_sources();
    let columns = if has_sources { 0..placed.job.columns } else { 0..0 };
    let sources: Vec<u8> = columns.map(|index| source(input, placed, index)[at]).collect();
    let mut rows = 0..placed.job.rows;
    match placed.job.operation {
        Operation::Multiply => rows.all(|index| dot(row(index), &sources) == column[index]),
        // Multiplied back: the matrix times the solution, or times a column of its inverse.
        Operation::Solve => rows.all(|index| dot(row(index), &column) == sources[index]),
        Operation::Invert => rows.all(|index| dot(row(index), &column) == u8::from(index == at)),
        Operation::Combine { seed, field } | Operation::Draw { seed, field } => {
            let mut vector = vec![0; placed.job.columns];
            rows.all(|index| {
                draw(seed, index, field, &mut vector);
                column[index] == if has_sources { dot(&vector, &sources) } else { vector[at] }
            })
        }
    }
}

fn dot(factors: &[u8], bytes: &[u8]) -> u8 {
    factors.iter().zip(bytes).fold(0, |sum, (&factor, &byte)| sum ^ mul(factor, byte))
}
