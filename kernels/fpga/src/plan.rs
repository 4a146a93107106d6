//! The card's work for a bundle. Pure arithmetic: uses neither the card nor its memory.

use recoded_code::engine::{Bundle, Job, Operation, Placed, RANK_BYTES, draw};
use recoded_gf::{Field, Kernel};

use crate::driver::Shape;
use crate::layout::{Descriptor, field, flag, op};
use crate::tiles::{Matrix, append_tiles, tiled_bytes};

/// Places of a bundle's bytes in memory that the card reaches.
#[derive(Copy, Clone, Debug)]
pub struct BundleAddresses {
    /// Sources, at the same offsets as in the bundle.
    pub sources: u64,
    /// Coefficients in tile order.
    pub tiles: u64,
    /// Destinations that are copied: see [`Sum`].
    pub destinations: u64,
    /// The bundle's output, if the card writes directly to it.
    pub output: Option<u64>,
}

/// The jobs of a bundle as descriptors.
#[derive(Default)]
pub struct DescriptorPlan {
    /// The card's jobs.
    pub descriptors: Vec<Descriptor>,
    /// All coefficients in tile order.
    pub tiles: Vec<u8>,
    /// Destinations of each job that are not written in place.
    pub sums: Vec<Sum>,
    /// Bytes of these, all parts included.
    pub destination_bytes: usize,
}

/// A job's destinations as the sum of `parts` products, which lie one after another at `start`: a
/// job with more sources than the card takes at once has several, which are added up here.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Sum {
    pub job: usize,
    pub start: usize,
    pub parts: usize,
}

impl DescriptorPlan {
    /// Computes inverses and random coefficients, which the card does not do, and plans the rest.
    pub fn make(bundle: &mut Bundle, shape: &Shape, place: BundleAddresses) -> Self {
        let mut plan = Self::default();
        for number in 0..bundle.jobs().len() {
            if let Some(matrix) = factors(bundle, number) {
                plan.add(bundle.jobs()[number], number, &matrix, shape, place);
            }
        }
        plan
    }

    /// Most bytes of a bundle for each of sources, coefficients and destinations. Counts copied
    /// sources and destinations; `writes_output` as in [`BundleAddresses::output`].
    pub fn bytes(bundle: &Bundle, shape: &Shape, writes_output: bool) -> [usize; 3] {
        let of_segment = bundle.segment().map_or(0, |segment| segment.bytes());
        let mut bytes = [bundle.input_bytes().max(of_segment), 0, 0];
        for Placed { job, .. } in bundle.jobs().iter().filter(|p| p.job.operation.has_sources()) {
            bytes[1] += tiled_bytes(job.rows, job.columns, shape.tile());
            let parts = job.columns.div_ceil(shape.rows_max);
            if parts > 1 || !writes_output {
                bytes[2] += parts * job.output_bytes();
            }
        }
        bytes
    }

    fn add(
        &mut self,
        placed: Placed,
        number: usize,
        matrix: &[u8],
        shape: &Shape,
        place: BundleAddresses,
    ) {
        let Job { rows, columns, row_bytes, .. } = placed.job;
        let stride = placed.job.stride();
        let parts = columns.div_ceil(shape.rows_max);
        let (tile_rows, tile_columns) = shape.tile();
        let output = place.output.filter(|_| parts == 1).map(|at| at + placed.destinations as u64);
        if output.is_none() {
            self.sums.push(Sum { job: number, start: self.destination_bytes, parts });
        }
        for column in (0..columns).step_by(shape.rows_max) {
            for row in (0..rows).step_by(shape.rows_max) {
                let n = (rows - row).min(shape.rows_max);
                let k = (columns - column).min(shape.rows_max);
                let coefficients = place.tiles + self.tiles.len() as u64;
                let elements = &matrix[row * columns + column..];
                let part = Matrix { elements, rows: n, columns: k, stride: columns };
                append_tiles(&part, tile_rows, tile_columns, &mut self.tiles);
                for byte in (0..row_bytes).step_by(shape.row_bytes_max) {
                    let source = placed.sources + column * stride + byte;
                    let copied = place.destinations + self.destination_bytes as u64;
                    let destination = output.unwrap_or(copied) + (row * stride + byte) as u64;
                    self.descriptors.push(Descriptor {
                        op: op::MULTIPLY,
                        field: field::GF256,
                        polynomial: Field::Gf256x11D.polynomial() as u8,
                        flags: 1 << flag::SOURCE_STRIDE | 1 << flag::DESTINATION_STRIDE,
                        k: k as u16,
                        n: n as u16,
                        row_bytes: (row_bytes - byte).min(shape.row_bytes_max) as u32,
                        coefficients,
                        sources: place.sources + source as u64,
                        destinations: destination,
                        source_stride: stride as u32,
                        destination_stride: stride as u32,
                        ..Descriptor::default()
                    });
                }
            }
            if output.is_none() {
                self.destination_bytes += placed.job.output_bytes();
            }
        }
    }
}

/// The matrix without gaps that the sources of a job are multiplied by; `None` if the job needs no
/// product, or has no result. Writes the rank of the job.
fn factors(bundle: &mut Bundle, number: usize) -> Option<Vec<u8>> {
    let placed = bundle.jobs()[number];
    let Job { operation, rows, columns, .. } = placed.job;
    let mut matrix = vec![0; rows * columns];
    for (row, coefficients) in matrix.chunks_exact_mut(columns).enumerate() {
        match operation {
            Operation::Combine { seed, field } | Operation::Draw { seed, field } => {
                draw(seed, row, field, coefficients);
            }
            _ => coefficients.copy_from_slice(bundle.coefficients(number, row)),
        }
    }
    let mut rank = columns;
    if operation.inverts()
        && let Err(singular) = Kernel::best().invert(&mut matrix, columns)
    {
        rank = singular.column;
    }
    let output = bundle.output_mut();
    output[number * RANK_BYTES..][..4].copy_from_slice(&(rank as u32).to_le_bytes());
    if rank < columns {
        return None;
    }
    if operation.has_sources() {
        return Some(matrix);
    }
    for (row, made) in matrix.chunks_exact(columns).enumerate() {
        let start = placed.destinations + row * placed.job.stride();
        output[start..][..columns].copy_from_slice(made);
    }
    None
}

#[cfg(test)]
mod tests {
    use recoded_code::engine::check;

    use super::*;

    const SHAPE: Shape = Shape {
        lanes: 4,
        tile_sources: 16,
        tile_destinations: 16,
        columns_at_once: 4,
        rows_max: 256,
        row_bytes_max: 9216,
        clock_khz: 300_000,
    };

    const PLACE: BundleAddresses =
        BundleAddresses { sources: 1 << 32, tiles: 2 << 32, destinations: 3 << 32, output: None };

    #[test]
    fn large_jobs_are_cut_to_what_the_card_takes() {
        let job = Job::new(Operation::Multiply, 300, 600, 20_000);
        let mut bundle = Bundle::of(job).expect("a job");
        let plan = DescriptorPlan::make(&mut bundle, &SHAPE, PLACE);
        // Three parts of the sources, two of the destinations, three of the bytes.
        assert_eq!(plan.descriptors.len(), 18);
        assert_eq!(plan.sums, [Sum { job: 0, start: 0, parts: 3 }]);
        let cut = |d: &Descriptor| d.k <= 256 && d.n <= 256 && d.row_bytes <= 9216;
        assert!(plan.descriptors.iter().all(cut));
        let work = |d: &Descriptor| u64::from(d.k) * u64::from(d.n) * u64::from(d.row_bytes);
        assert_eq!(plan.descriptors.iter().map(work).sum::<u64>(), job.products());
        let last = plan.descriptors.last().expect("there are 18");
        let stride = job.stride() as u64;
        assert_eq!(last.sources, PLACE.sources + 512 * stride + 2 * 9216);
        assert_eq!(last.destinations, PLACE.destinations + (2 * 300 + 256) * stride + 2 * 9216);
    }

    #[test]
    fn bytes_are_those_of_the_plan() {
        let mut bundle = check::sample(1);
        let [_, tiles, destinations] = DescriptorPlan::bytes(&bundle, &SHAPE, false);
        let plan = DescriptorPlan::make(&mut bundle, &SHAPE, PLACE);
        assert_eq!((plan.tiles.len(), plan.destination_bytes), (tiles, destinations));
        // The card does no inversions and draws no random coefficients.
        assert_eq!(plan.sums.len(), 4);
    }

    /// Only summands are copied.
    #[test]
    fn output_is_written_where_it_lies() {
        let jobs = [(5, 20, 1000), (2, 257, 64), (3, 256, 100)];
        let jobs = jobs.map(|(n, k, bytes)| Job::new(Operation::Multiply, n, k, bytes));
        let mut bundle = Bundle::new(1 << 20, 1 << 20, jobs.len());
        jobs.iter().for_each(|job| assert!(bundle.push(*job, 0).is_ok()));
        let place = BundleAddresses { output: Some(4 << 32), ..PLACE };
        let plan = DescriptorPlan::make(&mut bundle, &SHAPE, place);
        assert_eq!(plan.sums, [Sum { job: 1, start: 0, parts: 2 }]);
        let copied = 2 * jobs[1].output_bytes();
        assert_eq!(plan.destination_bytes, copied);
        assert_eq!(DescriptorPlan::bytes(&bundle, &SHAPE, true)[2], copied);
        let at = |job: usize| (4 << 32) + bundle.jobs()[job].destinations as u64;
        let parts = [0, 1].map(|part| (3 << 32) + (part * jobs[1].output_bytes()) as u64);
        let places: Vec<u64> = plan.descriptors.iter().map(|d| d.destinations).collect();
        assert_eq!(places, [at(0), parts[0], parts[1], at(2)]);
    }

    #[test]
    fn a_singular_matrix_is_not_sent_to_the_card() {
        let mut bundle = Bundle::of(Job::new(Operation::Solve, 4, 4, 10)).expect("a job");
        let plan = DescriptorPlan::make(&mut bundle, &SHAPE, PLACE);
        assert!(plan.descriptors.is_empty());
        assert_eq!(bundle.outcome(0).map_err(|singular| singular.column), Err(0));
    }
}
