//! Bundles on this CPU: the reference and the fallback of every other engine.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender, TryRecvError};
use std::thread;

use rayon::prelude::*;
use recoded_gf::Kernel;

use super::bundle::{Given, JobOutput, coefficients, source};
use super::draw::draw;
use super::job::{Operation, Placed};
use super::{Arena, Bundle, Completed, Engine, Error, Refused, Segment};

/// Division of a product among threads (Extreme NC §5.3).
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Partition {
    /// Each thread computes whole destinations: sources are read in long runs, for large amounts of
    /// work.
    #[default]
    FullBlock,
    /// Each thread computes its part of the bytes of every destination: a single destination is
    /// ready as soon as possible, and a thread's part of the sources stays in its cache.
    PartitionedBlock,
}

/// Computes bundles with a given number of threads, while the caller waits.
pub struct Cpu {
    kernel: &'static Kernel,
    /// `None`: on the caller's thread.
    pool: Option<rayon::ThreadPool>,
    threads: usize,
    partition: Partition,
}

impl Cpu {
    /// With `threads` threads; 0 means one per core.
    ///
    /// # Errors
    /// [`Error::Threads`] if Linux refuses the threads.
    pub fn new(threads: usize, partition: Partition) -> Result<Self, Error> {
        let cores = || thread::available_parallelism().map_or(1, usize::from);
        let threads = if threads == 0 { cores() } else { threads };
        let start = || {
            let builder = rayon::ThreadPoolBuilder::new().num_threads(threads);
            let named = builder.thread_name(|index| format!("recoded-cpu{index}"));
            named.build().map_err(|_| Error::Threads { threads })
        };
        let pool = if threads == 1 { None } else { Some(start()?) };
        Ok(Self { kernel: Kernel::best(), pool, threads, partition })
    }

    /// Number of its threads.
    #[must_use]
    pub const fn threads(&self) -> usize {
        self.threads
    }

    /// Computes all jobs of the bundle.
    pub fn run(&self, bundle: &mut Bundle) {
        match &self.pool {
            None => self.run_here(bundle),
            Some(pool) => pool.install(|| self.run_on_all(bundle)),
        }
    }

    /// `destinations = coefficients * sources` as [`Kernel::matmul`], divided among the threads.
    ///
    /// # Panics
    /// As [`Kernel::matmul`] does.
    pub fn matmul(&self, coefficients: &[u8], sources: &[&[u8]], destinations: &mut [&mut [u8]]) {
        let Some(pool) = &self.pool else {
            return self.kernel.matmul(coefficients, sources, destinations);
        };
        let rows = destinations.iter_mut().map(|row| &mut **row).collect();
        let product =
            Product { coefficients: coefficients.into(), sources: sources.to_vec(), rows };
        pool.install(|| {
            self.divide(product).into_par_iter().for_each(|part| part.run(self.kernel))
        });
    }

    /// Copies each row to the one at the same index, divided among the threads.
    ///
    /// # Panics
    /// When rows differ in length.
    pub fn copy(&self, from: &[&[u8]], to: &mut [&mut [u8]]) {
        match &self.pool {
            None => to.iter_mut().zip(from).for_each(|(to, from)| to.copy_from_slice(from)),
            Some(pool) => pool.install(|| {
                to.par_iter_mut().zip(from).for_each(|(to, from)| to.copy_from_slice(from));
            }),
        }
    }

    fn run_here(&self, bundle: &mut Bundle) {
        let (given, parts) = bundle.parts();
        for part in parts {
            if let Some(product) = self.prepare(given, part) {
                product.run(self.kernel);
            }
        }
    }

    fn run_on_all(&self, bundle: &mut Bundle) {
        let (given, parts) = bundle.parts();
        let parts: Vec<JobOutput> = parts.collect();
        // Inverses first, one matrix a thread, then payloads in shares of about the same size.
        let products: Vec<Product> =
            parts.into_par_iter().filter_map(|part| self.prepare(given, part)).collect();
        let shares = products.into_par_iter().flat_map(|product| self.divide(product));
        shares.for_each(|share| share.run(self.kernel));
    }

    /// All parts of a job except the multiplication of payloads; `None` if there is none.
    fn prepare<'a>(&self, given: Given<'a>, part: JobOutput<'a>) -> Option<Product<'a>> {
        let Given { input, sources } = given;
        let JobOutput { placed, rank, rows } = part;
        let job = placed.job;
        *rank = (job.columns as u32).to_le_bytes();
        let factors = match job.operation {
            Operation::Multiply => Cow::Borrowed(multiplied(input, placed)),
            Operation::Combine { seed, field } => {
                let mut drawn = vec![0; job.rows * job.columns];
                for (index, row) in drawn.chunks_exact_mut(job.columns).enumerate() {
                    draw(seed, index, field, row);
                }
                Cow::Owned(drawn)
            }
            Operation::Solve | Operation::Invert => match self.inverse(input, placed) {
                Ok(inverse) => Cow::Owned(inverse),
                Err(column) => {
                    *rank = column.to_le_bytes();
                    return None;
                }
            },
            Operation::Draw { seed, field } => {
                for (index, row) in rows.chunks_exact_mut(job.stride()).enumerate() {
                    draw(seed, index, field, &mut row[..job.columns]);
                }
                return None;
            }
        };
        let mut rows: Vec<&mut [u8]> =
            rows.chunks_exact_mut(job.stride()).map(|row| &mut row[..job.row_bytes]).collect();
        if job.operation == Operation::Invert {
            for (row, inverse) in rows.iter_mut().zip(factors.chunks_exact(job.columns)) {
                row.copy_from_slice(inverse);
            }
            return None;
        }
        let sources = (0..job.columns).map(|row| source(sources, placed, row)).collect();
        let coefficients = without_gaps(factors, placed);
        Some(Product { coefficients, sources, rows })
    }

    /// The inverse without gaps, or the first column that has no pivot.
    fn inverse(&self, input: &Arena, placed: &Placed) -> Result<Vec<u8>, u32> {
        let size = placed.job.columns;
        let mut matrix = Vec::with_capacity(size * size);
        (0..size).for_each(|row| matrix.extend_from_slice(coefficients(input, placed, row)));
        self.kernel.invert(&mut matrix, size).map_err(|singular| singular.column as u32)?;
        Ok(matrix)
    }

    /// Shares of a product, one or more per thread unless it is too small for that.
    fn divide<'a>(&self, product: Product<'a>) -> Vec<Product<'a>> {
        let bytes = product.rows.first().map_or(0, |row| row.len());
        let products = product.coefficients.len() * bytes;
        let shares = (products / SHARE_PRODUCTS_MIN).clamp(1, self.threads);
        match self.partition {
            _ if shares == 1 => vec![product],
            Partition::FullBlock => {
                let rows = product.rows.len().div_ceil(shares);
                product.by_rows(rows)
            }
            Partition::PartitionedBlock => {
                product.by_bytes(bytes.div_ceil(shares).next_multiple_of(SHARE_BYTES_MULTIPLE))
            }
        }
    }
}

/// A product of payloads for one thread.
struct Product<'a> {
    coefficients: Cow<'a, [u8]>,
    sources: Vec<&'a [u8]>,
    rows: Vec<&'a mut [u8]>,
}

impl<'a> Product<'a> {
    fn run(mut self, kernel: &Kernel) {
        kernel.matmul(&self.coefficients, &self.sources, &mut self.rows);
    }

    fn by_rows(self, count: usize) -> Vec<Self> {
        let (depth, mut rows) = (self.sources.len(), self.rows);
        let mut shares = Vec::with_capacity(rows.len().div_ceil(count));
        for coefficients in self.coefficients.chunks(count * depth) {
            let after = rows.split_off(coefficients.len() / depth);
            let coefficients = Cow::Owned(coefficients.to_vec());
            shares.push(Product { coefficients, sources: self.sources.clone(), rows });
            rows = after;
        }
        shares
    }

    fn by_bytes(self, count: usize) -> Vec<Self> {
        let bytes = self.rows.first().map_or(0, |row| row.len());
        let mut rows: Vec<_> = self.rows.into_iter().map(|row| row.chunks_mut(count)).collect();
        let share = |start: usize| {
            let end = bytes.min(start + count);
            Product {
                coefficients: self.coefficients.clone(),
                sources: self.sources.iter().map(|source| &source[start..end]).collect(),
                rows: rows.iter_mut().filter_map(Iterator::next).collect(),
            }
        };
        (0..bytes).step_by(count).map(share).collect()
    }
}

/// The coefficients of a job that multiplies, with the gaps between rows.
fn multiplied<'a>(input: &'a Arena, placed: &Placed) -> &'a [u8] {
    &input[placed.coefficients..][..placed.job.coefficient_bytes()]
}

/// Coefficients in the layout that kernels expect.
fn without_gaps<'a>(factors: Cow<'a, [u8]>, placed: &Placed) -> Cow<'a, [u8]> {
    let (columns, stride) = (placed.job.columns, placed.job.coefficient_stride());
    if placed.job.operation != Operation::Multiply || columns == stride {
        return factors;
    }
    let rows = factors.chunks_exact(stride).map(|row| &row[..columns]);
    Cow::Owned(rows.collect::<Vec<_>>().concat())
}

/// [`Cpu`] as an engine: bundles are computed in the background, one after another.
pub struct CpuEngine {
    submitted: SyncSender<Bundle>,
    completed: Receiver<Bundle>,
    in_flight: usize,
}

impl CpuEngine {
    /// An engine with `threads` threads; 0 means one per core.
    ///
    /// # Errors
    /// [`Error::Threads`] if Linux refuses the threads.
    pub fn new(threads: usize, partition: Partition) -> Result<Self, Error> {
        Self::of(Arc::new(Cpu::new(threads, partition)?))
    }

    /// The same with shared threads.
    ///
    /// # Errors
    /// [`Error::Threads`] if Linux refuses a thread.
    pub fn of(cpu: Arc<Cpu>) -> Result<Self, Error> {
        let (submitted, bundles) = mpsc::sync_channel::<Bundle>(DEPTH);
        let (done, completed) = mpsc::sync_channel(DEPTH);
        let work = move || {
            for mut bundle in bundles {
                cpu.run(&mut bundle);
                if done.send(bundle).is_err() {
                    return;
                }
            }
        };
        let named = thread::Builder::new().name("recoded-cpu".into());
        named.spawn(work).map_err(|_| Error::Threads { threads: 1 })?;
        Ok(Self { submitted, completed, in_flight: 0 })
    }

    fn lost() -> Error {
        Error::Lost { call: "cpu", code: 0, reason: "its thread has ended".into() }
    }
}

impl Engine for CpuEngine {
    fn name(&self) -> &str {
        "cpu"
    }

    fn depth(&self) -> usize {
        DEPTH
    }

    fn submit(&mut self, bundle: Bundle) -> Result<(), Refused> {
        if self.in_flight == DEPTH {
            return Err(Refused { error: Error::Busy { depth: DEPTH }, bundle: Box::new(bundle) });
        }
        let refused = |bundle| Refused { error: Self::lost(), bundle: Box::new(bundle) };
        self.submitted.send(bundle).map_err(|unsent| refused(unsent.0))?;
        self.in_flight += 1;
        Ok(())
    }

    fn keep(&mut self, _: &Arc<Segment>) -> Result<(), Error> {
        // This engine computes on the caller's rows directly.
        Ok(())
    }

    fn poll(&mut self) -> Option<Completed> {
        match self.completed.try_recv() {
            Ok(bundle) => {
                self.in_flight -= 1;
                Some(Completed { bundle, result: Ok(()) })
            }
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => None,
        }
    }
}

/// Bundles of [`CpuEngine`]: one in progress and one waiting, so that it never runs dry.
const DEPTH: usize = 2;

/// A share below this many products costs more to pass to another thread than to compute: about
/// 3 us.
const SHARE_PRODUCTS_MIN: usize = 1 << 19;

/// Shares of the bytes end at cache lines, so that no two threads write the same.
const SHARE_BYTES_MULTIPLE: usize = 128;
