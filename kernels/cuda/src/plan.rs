//! The card's work for a bundle: tables of jobs, launches, and the layout of the arena.
//!
//! Pure: no device, no `unsafe`. All of a bundle lies in one allocation on the device:
//!
//! ```text
//!   arena  [ tables of jobs | input of the bundle | output of the bundle | scratch ]
//!            copied          copied               copied back         rows of a segment, inverses,
//!                                                          drawn coefficients, other forms
//! ```
//!
//! Launches of one bundle follow each other on one stream: draw, invert, prepare, multiply. If
//! there are too few large matrices to fill the card, several blocks invert each, in several
//! launches.

use std::ops::Range;

use recoded_code::engine::{self, Bundle, Error, Operation, Placed, RANK_BYTES};
use recoded_gf::{Field, FieldOrder};

use crate::job::{Form, Geometry, Job, Technique};

mod inverses;

/// One launch: the kernel and its jobs in the table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Launch {
    /// The kernel, without `recoded_`: several compiled for one matrix each share a geometry.
    pub kernel: &'static str,
    /// Its launch parameters.
    pub geometry: &'static Geometry,
    /// Its jobs, by their numbers in [`LaunchPlan::table`].
    pub jobs: Range<usize>,
    /// Blocks of the grid.
    pub blocks: u32,
}

/// The plan of one bundle; reused for the next.
#[derive(Default, Debug)]
pub struct LaunchPlan {
    /// Jobs of all launches, as the device reads them.
    pub table: Vec<Job>,
    /// The launches, in this order.
    pub launches: Vec<Launch>,
    /// Destination of the bundle's input.
    pub input: u64,
    /// Source of the bundle's output.
    pub output: u64,
    /// Place of the jobs' sources; those of a segment are copied there from the kept rows.
    pub sources: u64,
    /// Bytes of the arena.
    pub bytes: u64,
}

impl LaunchPlan {
    /// Plans `bundle` for a card with this number of multiprocessors, with the technique that
    /// `choose` names for each of its products, by the number of the job.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if a job exceeds the numbering of a grid.
    pub fn make(
        &mut self,
        bundle: &Bundle,
        multiprocessors: u32,
        choose: impl Fn(usize, &engine::Job) -> Technique,
    ) -> Result<(), Error> {
        self.table.clear();
        self.launches.clear();
        let room = (bundle.jobs().len() * LAUNCHES_MAX * size_of::<Job>()) as u64;
        self.input = room.next_multiple_of(ALIGNMENT);
        self.output = self.input + (bundle.input_bytes() as u64).next_multiple_of(ALIGNMENT);
        self.bytes = self.output + (bundle.output_bytes() as u64).next_multiple_of(ALIGNMENT);
        self.sources = self.input;
        if let Some(segment) = bundle.segment() {
            self.sources = self.scratch(segment.bytes() as u64);
        }
        let mut works: Vec<PlacedJob> = Vec::with_capacity(bundle.jobs().len());
        for (number, placed) in bundle.jobs().iter().enumerate() {
            works.push(self.work(placed, number, choose(number, &placed.job)));
        }
        self.stage("random_coefficients", &works, PlacedJob::draw)?;
        self.stage_inverses(&works, multiprocessors)?;
        for form in FORMS {
            let Some(kernel) = form.kernel() else { continue };
            self.prepare_coefficients(form, kernel, &mut works)?;
            self.prepare_sources(form, kernel, &mut works)?;
        }
        let mut multiplied: Vec<&'static str> = Vec::new();
        for index in 0..works.len() {
            let kernel = works[index].technique.kernel;
            if !multiplied.contains(&kernel) {
                multiplied.push(kernel);
                self.stage(kernel, &works, |work| work.multiply(kernel))?;
            }
        }
        Ok(())
    }

    /// Bytes at the start of the arena for one copy: the tables, followed by an input that this CPU
    /// copies there faster than it starts a second copy.
    #[must_use]
    pub const fn staged_bytes(&self, input_bytes: usize) -> usize {
        if input_bytes <= STAGED_INPUT_MAX {
            self.input as usize + input_bytes
        } else {
            self.table.len() * size_of::<Job>()
        }
    }

    /// A job with the places of its parts in the arena.
    fn work(&mut self, placed: &Placed, number: usize, technique: Technique) -> PlacedJob {
        let job = placed.job;
        let coefficient_stride = job.coefficient_stride() as u32;
        let mut work = PlacedJob {
            job,
            technique,
            given: self.input + placed.coefficients as u64,
            coefficients: self.input + placed.coefficients as u64,
            coefficient_stride,
            sources: self.sources + placed.sources as u64,
            source_stride: job.stride() as u32,
            destinations: self.output + placed.destinations as u64,
            rank: self.output + (number * RANK_BYTES) as u64,
        };
        if matches!(job.operation, Operation::Solve | Operation::Combine { .. }) {
            work.coefficients = self.scratch(job.rows as u64 * u64::from(coefficient_stride));
        }
        work
    }

    fn scratch(&mut self, bytes: u64) -> u64 {
        let at = self.bytes;
        self.bytes += bytes.next_multiple_of(ALIGNMENT);
        at
    }

    fn prepare_coefficients(
        &mut self,
        form: Form,
        kernel: &'static str,
        works: &mut [PlacedJob],
    ) -> Result<(), Error> {
        let wants = |work: &PlacedJob| work.has_product() && work.technique.coefficients == form;
        let mut plain = Vec::with_capacity(works.len());
        for work in works.iter_mut().filter(|work| wants(work)) {
            let (rows, columns) = (work.job.rows as u32, work.job.columns as u32);
            let stride = form.stride(columns, work.coefficient_stride);
            let prepared = self.scratch(form.bytes(rows, stride));
            plain.push(Prepare {
                job: work.job,
                sources: std::mem::replace(&mut work.coefficients, prepared),
                source_stride: std::mem::replace(&mut work.coefficient_stride, stride),
                destinations: prepared,
                destination_stride: stride,
                rows,
                bytes: columns,
            });
        }
        self.stage(kernel, &plain, Prepare::job)
    }

    fn prepare_sources(
        &mut self,
        form: Form,
        kernel: &'static str,
        works: &mut [PlacedJob],
    ) -> Result<(), Error> {
        let wants = |work: &PlacedJob| work.has_product() && work.technique.sources == form;
        let mut plain = Vec::with_capacity(works.len());
        for work in works.iter_mut().filter(|work| wants(work)) {
            let (rows, bytes) = (work.job.columns as u32, work.symbol_bytes());
            let stride = form.stride(bytes, work.source_stride);
            let prepared = self.scratch(form.bytes(rows, stride));
            plain.push(Prepare {
                job: work.job,
                sources: std::mem::replace(&mut work.sources, prepared),
                source_stride: std::mem::replace(&mut work.source_stride, stride),
                destinations: prepared,
                destination_stride: stride,
                rows,
                bytes,
            });
        }
        self.stage(kernel, &plain, Prepare::job)
    }

    /// Adds a launch of `kernel` with the jobs that `entry` makes of `items`, if there are any.
    fn stage<T: Described>(
        &mut self,
        kernel: &'static str,
        items: &[T],
        entry: impl Fn(&T) -> Option<Job>,
    ) -> Result<(), Error> {
        let Some(geometry) = geometry_of(kernel) else {
            return Ok(());
        };
        let first = self.table.len();
        let mut blocks = 0_u32;
        for item in items {
            let Some(mut job) = entry(item) else { continue };
            job.first_block = blocks;
            let own = blocks_of(geometry, &job);
            blocks = own.and_then(|own| blocks.checked_add(own)).ok_or_else(|| item.too_large())?;
            self.table.push(job);
        }
        if blocks > GRID_MAX {
            return Err(items.first().map_or(Error::Memory { bytes: 0 }, Described::too_large));
        }
        if blocks > 0 {
            self.launches.push(Launch { kernel, geometry, jobs: first..self.table.len(), blocks });
        }
        Ok(())
    }
}

/// An item that names its job.
trait Described {
    fn described(&self) -> &engine::Job;

    fn too_large(&self) -> Error {
        let engine::Job { operation, rows, columns, .. } = *self.described();
        Error::Unsupported { operation: operation.name(), rows, columns }
    }
}

/// A job of a bundle and the present places of its parts in the arena.
struct PlacedJob {
    job: engine::Job,
    technique: Technique,
    given: u64,
    coefficients: u64,
    coefficient_stride: u32,
    sources: u64,
    source_stride: u32,
    destinations: u64,
    rank: u64,
}

impl Described for PlacedJob {
    fn described(&self) -> &engine::Job {
        &self.job
    }
}

impl PlacedJob {
    const fn inverts(&self) -> bool {
        matches!(self.job.operation, Operation::Invert | Operation::Solve)
    }

    const fn has_product(&self) -> bool {
        self.job.operation.has_sources()
    }

    const fn symbol_bytes(&self) -> u32 {
        self.job.row_bytes.next_multiple_of(SYMBOL_MULTIPLE) as u32
    }

    fn draw(&self) -> Option<Job> {
        let (destinations, destination_stride) = match self.job.operation {
            Operation::Draw { .. } => (self.destinations, self.job.stride() as u32),
            _ => (self.coefficients, self.coefficient_stride),
        };
        let (seed, field) = seeded(self.job.operation)?;
        Some(Job {
            destinations,
            destination_stride,
            symbol_bytes: self.job.columns as u32,
            rows: self.job.rows as u32,
            field: Job::field_code(Field::Gf256x11D),
            order: Job::order_code(field),
            parameter: u64::from(seed),
            ..Job::default()
        })
    }

    fn invert(&self) -> Option<Job> {
        let (destinations, destination_stride) = match self.job.operation {
            Operation::Invert => (self.destinations, self.job.stride() as u32),
            Operation::Solve => (self.coefficients, self.coefficient_stride),
            _ => return None,
        };
        let size = self.job.columns as u32;
        Some(Job {
            coefficients: self.given,
            coefficient_stride: self.job.coefficient_stride() as u32,
            destinations,
            destination_stride,
            symbol_bytes: size,
            rows: size,
            depth: size,
            field: Job::field_code(Field::Gf256x11D),
            parameter: self.rank,
            ..Job::default()
        })
    }

    fn multiply(&self, kernel: &str) -> Option<Job> {
        let is_mine = self.has_product() && self.technique.kernel == kernel;
        is_mine.then(|| Job {
            coefficients: self.coefficients,
            sources: self.sources,
            destinations: self.destinations,
            coefficient_stride: self.coefficient_stride,
            source_stride: self.source_stride,
            destination_stride: self.job.stride() as u32,
            symbol_bytes: self.symbol_bytes(),
            rows: self.job.rows as u32,
            depth: self.job.columns as u32,
            field: Job::field_code(Field::Gf256x11D),
            ..Job::default()
        })
    }
}

/// Rows to convert to another form.
struct Prepare {
    job: engine::Job,
    sources: u64,
    source_stride: u32,
    destinations: u64,
    destination_stride: u32,
    rows: u32,
    bytes: u32,
}

impl Described for Prepare {
    fn described(&self) -> &engine::Job {
        &self.job
    }
}

impl Prepare {
    fn job(&self) -> Option<Job> {
        Some(Job {
            sources: self.sources,
            source_stride: self.source_stride,
            destinations: self.destinations,
            destination_stride: self.destination_stride,
            symbol_bytes: self.bytes,
            rows: self.rows,
            field: Job::field_code(Field::Gf256x11D),
            ..Job::default()
        })
    }
}

impl Job {
    /// The device's format.
    pub(crate) fn to_bytes(self) -> [u8; size_of::<Self>()] {
        let words = [self.coefficients, self.sources, self.destinations].map(u64::to_le_bytes);
        let strides = [self.coefficient_stride, self.source_stride, self.destination_stride];
        let counts = [self.symbol_bytes, self.rows, self.depth, self.first_block];
        let flags = [self.field, self.flags, self.order, self.reserved];
        let mut bytes = [0; size_of::<Self>()];
        let numbers = strides.into_iter().chain(counts).flat_map(u32::to_le_bytes);
        let all = words.into_iter().flatten().chain(numbers).chain(flags);
        for (to, from) in bytes.iter_mut().zip(all.chain(self.parameter.to_le_bytes())) {
            *to = from;
        }
        bytes
    }
}

const fn seeded(operation: Operation) -> Option<(u32, FieldOrder)> {
    match operation {
        Operation::Combine { seed, field } | Operation::Draw { seed, field } => Some((seed, field)),
        _ => None,
    }
}

/// Geometry of a kernel; those compiled for a matrix all share one.
fn geometry_of(kernel: &str) -> Option<&'static Geometry> {
    let is_compiled = kernel.starts_with(COMPILED_PREFIX);
    Geometry::of(if is_compiled { COMPILED_GEOMETRY } else { kernel })
}

/// Blocks of a job, unless they or its units are too many for 32 bits.
fn blocks_of(geometry: &Geometry, job: &Job) -> Option<u32> {
    let rows = job.rows.div_ceil(geometry.unit_rows);
    rows.checked_mul(job.symbol_bytes.div_ceil(geometry.unit_bytes))?;
    Some(geometry.blocks(job.rows, job.symbol_bytes))
}

/// Name prefix of kernels for one matrix, and the name of their geometry in `job.h`.
pub const COMPILED_PREFIX: &str = "reed_solomon_";
const COMPILED_GEOMETRY: &str = "reed_solomon";

const FORMS: [Form; 5] = [Form::LogFf, Form::Log00, Form::Planes, Form::Bits, Form::Tiles];

/// Most table jobs of one job of a bundle: draw, or invert in four kernels, two preparations, the
/// product.
const LAUNCHES_MAX: usize = 7;

/// Inputs up to this size are staged: a copy takes 2 us of the driver's time, as does moving about
/// this much.
const STAGED_INPUT_MAX: usize = 32 << 10;

/// Regions of the arena begin at multiples of this: twice the size of a warp's load.
const ALIGNMENT: u64 = 256;

/// `job.h`: lengths of symbols are multiples of this. Rows lie further apart than that.
const SYMBOL_MULTIPLE: usize = 16;

/// The largest grid (x dimension) of every card.
const GRID_MAX: u32 = i32::MAX as u32;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::TECHNIQUES;

    fn technique(name: &str) -> Technique {
        *TECHNIQUES.iter().find(|technique| technique.name == name).expect("a technique")
    }

    fn bundle() -> Bundle {
        let field = FieldOrder::Sixteen;
        let mut bundle = Bundle::new(1 << 20, 1 << 20, 5);
        for job in [
            engine::Job::new(Operation::Multiply, 5, 33, 1000),
            engine::Job::new(Operation::Solve, 20, 20, 77),
            engine::Job::new(Operation::Combine { seed: 3, field }, 9, 40, 128),
            engine::Job::invert(17),
            engine::Job::draw(4, field, 3, 50),
        ] {
            bundle.push(job, 0).expect("room");
        }
        bundle
    }

    #[test]
    fn plan_launches_in_order_and_counts_blocks() {
        for name in TECHNIQUES.iter().map(|technique| technique.name) {
            let mut plan = LaunchPlan::default();
            plan.make(&bundle(), 132, |_, _| technique(name)).expect("a plan");
            let names: Vec<_> = plan.launches.iter().map(|launch| launch.geometry.name).collect();
            assert_eq!(names[..2], ["random_coefficients", "invert"], "{name}");
            assert_eq!(names[names.len() - 1], technique(name).kernel);
            for launch in &plan.launches {
                let mut blocks = 0;
                for job in &plan.table[launch.jobs.clone()] {
                    assert_eq!(job.first_block, blocks);
                    blocks += launch.geometry.blocks(job.rows, job.symbol_bytes);
                }
                assert_eq!(launch.blocks, blocks);
            }
        }
    }

    #[test]
    fn plan_keeps_everything_apart_and_aligned() {
        for name in TECHNIQUES.iter().map(|technique| technique.name) {
            let mut plan = LaunchPlan::default();
            let bundle = bundle();
            plan.make(&bundle, 132, |_, _| technique(name)).expect("a plan");
            assert!(plan.table.len() * size_of::<Job>() <= plan.input as usize);
            assert!(plan.input as usize + bundle.input_bytes() <= plan.output as usize);
            for job in &plan.table {
                for place in [job.coefficients, job.sources, job.destinations] {
                    assert!(place % 16 == 0 && place < plan.bytes, "{name}: {job:?}");
                }
                assert_eq!(job.destination_stride % 16, 0);
                let inputs = plan.input..plan.output;
                assert!(!inputs.contains(&job.destinations), "{name}: inputs are only read");
            }
        }
    }

    #[test]
    fn plan_of_more_blocks_than_a_grid_has_is_unsupported() {
        // Never allocated: a plan needs only the numbers.
        let job = engine::Job::new(Operation::Multiply, 1024, 1, 1 << 30);
        let geometry = Geometry::of("matmul_loop").expect("a kernel");
        let entry = Job { rows: 1024, symbol_bytes: 1 << 30, ..Job::default() };
        assert_eq!(blocks_of(geometry, &entry), None);
        assert!(job.is_valid());
    }
}
