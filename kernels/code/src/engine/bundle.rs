//! A bundle of jobs and the memory of their rows.

use std::sync::Arc;

use super::arena::{ALIGNMENT, Arena};
use super::job::{Job, Operation, Placed, RANK_BYTES, Singular};
use super::segment::Segment;

/// Jobs with their coefficients, sources and destinations; see the module's documentation for their
/// layout.
///
/// The input arena is shared: the caller can keep it ([`Bundle::retain`]) and recreate the bundle
/// if this one never returns. Inputs are writable only without another holder.
#[derive(Debug)]
pub struct Bundle {
    input: Arc<Arena>,
    /// Shared sources of all jobs, replacing those of the input arena.
    segment: Option<Arc<Segment>>,
    output: Arena,
    jobs: Vec<Placed>,
    jobs_max: usize,
    input_used: usize,
    output_used: usize,
    /// For the owner of the bundle; engines ignore it.
    pub tag: u64,
}

/// The reason why a bundle rejects a job.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Rejected {
    /// No room for its bytes, or too many jobs.
    #[error("no room for a job of {input} input and {output} output bytes")]
    NoRoom {
        /// Bytes of input that it needs.
        input: usize,
        /// Bytes of output that it needs.
        output: usize,
    },
    /// The job is invalid: see [`Job::is_valid`].
    #[error("the numbers of {job:?} contradict each other or are out of range")]
    Invalid {
        /// The job.
        job: Job,
    },
    /// Its sources do not match the rows of the bundle's segment.
    #[error("a job of {columns} sources of {row_bytes} bytes over a segment of other rows")]
    Segment {
        /// Sources of the job.
        columns: usize,
        /// Bytes of each.
        row_bytes: usize,
    },
}

impl Bundle {
    /// An empty bundle for up to `jobs_max` jobs, with room for `input_bytes` of coefficients and
    /// sources and `output_bytes` of destinations. Nothing is allocated later.
    #[must_use]
    pub fn new(input_bytes: usize, output_bytes: usize, jobs_max: usize) -> Self {
        let mut bundle = Self {
            input: Arc::new(Arena::new(input_bytes)),
            segment: None,
            output: Arena::new(ranks_bytes(jobs_max) + output_bytes),
            jobs: Vec::with_capacity(jobs_max),
            jobs_max,
            input_used: 0,
            output_used: 0,
            tag: 0,
        };
        bundle.clear();
        bundle
    }

    /// A bundle sized for exactly `job`, and containing it.
    ///
    /// # Errors
    /// The job's numbers contradict each other.
    pub fn of(job: Job) -> Result<Self, Rejected> {
        if !job.is_valid() {
            return Err(Rejected::Invalid { job });
        }
        let mut bundle = Self::new(job.input_bytes(), job.output_bytes(), 1);
        bundle.push(job, 0)?;
        Ok(bundle)
    }

    /// An empty bundle for up to `jobs_max` jobs whose sources are the rows of `segment`, with room
    /// for `rows_max` destinations in all and their coefficients.
    #[must_use]
    pub fn over(segment: Arc<Segment>, rows_max: usize, jobs_max: usize) -> Self {
        let row = Job::new(Operation::Multiply, 1, segment.rows(), segment.row_bytes());
        let input_bytes = rows_max * row.coefficient_stride() + jobs_max * ALIGNMENT;
        let bundle = Self::new(input_bytes, rows_max * row.stride(), jobs_max);
        Self { segment: Some(segment), ..bundle }
    }

    /// The rows that all jobs share as their sources, unless each brings its own.
    #[must_use]
    pub const fn segment(&self) -> Option<&Arc<Segment>> {
        self.segment.as_ref()
    }

    /// The same jobs on the same inputs, with separate outputs: to repeat the work. If `self` may
    /// be lost, call [`Bundle::retain`] beforehand.
    #[must_use]
    pub fn retain(&self) -> Retained {
        Retained {
            input: Arc::clone(&self.input),
            segment: self.segment.clone(),
            jobs: self.jobs.clone(),
            jobs_max: self.jobs_max,
            input_used: self.input_used,
            output_used: self.output_used,
            output_bytes: self.output.len(),
            tag: self.tag,
        }
    }

    /// Removes all jobs. Other holders keep the inputs, and this bundle then gets fresh memory.
    pub fn clear(&mut self) {
        if Arc::get_mut(&mut self.input).is_none() {
            self.input = Arc::new(Arena::new(self.input.len()));
        }
        self.jobs.clear();
        self.input_used = 0;
        self.output_used = ranks_bytes(self.jobs_max);
    }

    /// Whether [`Bundle::push`] would accept the job.
    #[must_use]
    pub fn has_room(&self, job: &Job) -> bool {
        self.jobs.len() < self.jobs_max
            && job.is_valid()
            && self.segment.as_ref().is_none_or(|segment| segment.suits(job))
            && self.input_bytes_of(job) <= self.input.len() - self.input_used
            && job.output_bytes() <= self.output.len() - self.output_used
    }

    /// Adds a job and returns its number; the caller then writes its coefficients and sources.
    /// `tag` identifies it to the caller.
    ///
    /// # Errors
    /// The bundle has no room for it; nothing changed.
    pub fn push(&mut self, job: Job, tag: u64) -> Result<usize, Rejected> {
        if !job.is_valid() {
            return Err(Rejected::Invalid { job });
        }
        if self.segment.as_ref().is_some_and(|segment| !segment.suits(&job)) {
            let Job { columns, row_bytes, .. } = job;
            return Err(Rejected::Segment { columns, row_bytes });
        }
        let input_bytes = self.input_bytes_of(&job);
        if !self.has_room(&job) {
            return Err(Rejected::NoRoom { input: input_bytes, output: job.output_bytes() });
        }
        // Sources first: their place does not depend on the number of rows (see `refit`).
        let is_over = self.segment.is_some();
        let sources = if is_over { 0 } else { self.input_used };
        let coefficients = if is_over { self.input_used } else { sources + job.source_bytes() };
        let destinations = self.output_used;
        self.jobs.push(Placed { job, tag, coefficients, sources, destinations });
        self.input_used += input_bytes;
        self.output_used += job.output_bytes();
        Ok(self.jobs.len() - 1)
    }

    /// Bytes of a job in the input arena: no sources if they are the segment's.
    fn input_bytes_of(&self, job: &Job) -> usize {
        job.input_bytes() - if self.segment.is_some() { job.source_bytes() } else { 0 }
    }

    /// Replaces all jobs by one with the first job's sources in place: for another product of the
    /// same rows. The caller writes its coefficients.
    ///
    /// # Errors
    /// The bundle has no room for it; it is empty then.
    pub fn refit(&mut self, job: Job, tag: u64) -> Result<(), Rejected> {
        self.jobs.clear();
        (self.input_used, self.output_used) = (0, ranks_bytes(self.jobs_max));
        self.push(job, tag).map(|_| ())
    }

    /// Makes the inputs exclusive, so that they can be written: copies them if another holder
    /// remains.
    pub fn own_inputs(&mut self) {
        if Arc::get_mut(&mut self.input).is_none() {
            let mut input = Arena::new(self.input.len());
            input.copy_from_slice(&self.input);
            self.input = Arc::new(input);
        }
    }

    /// Removes the last job.
    pub fn pop(&mut self) {
        if let Some(Placed { job, .. }) = self.jobs.pop() {
            self.input_used -= self.input_bytes_of(&job);
            self.output_used -= job.output_bytes();
        }
    }

    /// The jobs, by their numbers.
    #[must_use]
    pub fn jobs(&self) -> &[Placed] {
        &self.jobs
    }

    /// The most jobs it takes.
    #[must_use]
    pub const fn jobs_max(&self) -> usize {
        self.jobs_max
    }

    /// Bytes of input in use.
    #[must_use]
    pub const fn input_bytes(&self) -> usize {
        self.input_used
    }

    /// Bytes of output in use, ranks included.
    #[must_use]
    pub const fn output_bytes(&self) -> usize {
        self.output_used
    }

    /// Products of a coefficient and a byte in all jobs.
    #[must_use]
    pub fn products(&self) -> u64 {
        self.jobs.iter().map(|placed| placed.job.products()).sum()
    }

    /// A row of coefficients.
    ///
    /// # Panics
    /// When there is no such job or row.
    #[must_use]
    pub fn coefficients(&self, job: usize, row: usize) -> &[u8] {
        coefficients(&self.input, &self.jobs[job], row)
    }

    /// A row of coefficients, for writing.
    ///
    /// # Panics
    /// When there is no such job or row, or the inputs have another holder.
    pub fn coefficients_mut(&mut self, job: usize, row: usize) -> &mut [u8] {
        let Placed { job, coefficients, .. } = self.jobs[job];
        assert!(
            job.operation.has_coefficients() && row < job.rows,
            "coefficients {row} of {job:?}"
        );
        let start = coefficients + row * job.coefficient_stride();
        &mut self.input_mut()[start..][..job.columns]
    }

    /// Writes all coefficients of a job from a row-major matrix without gaps.
    ///
    /// # Panics
    /// When there is no such job, the matrix has another size, or the inputs have another holder.
    pub fn set_coefficients(&mut self, job: usize, matrix: &[u8]) {
        let Job { rows, columns, .. } = self.jobs[job].job;
        assert_eq!(matrix.len(), rows * columns, "{rows} x {columns} coefficients");
        for (row, coefficients) in matrix.chunks_exact(columns).enumerate() {
            self.coefficients_mut(job, row).copy_from_slice(coefficients);
        }
    }

    /// A source row.
    ///
    /// # Panics
    /// When there is no such job or row.
    #[must_use]
    pub fn source(&self, job: usize, row: usize) -> &[u8] {
        source(self.sources(), &self.jobs[job], row)
    }

    /// The arena of the sources: the segment's rows or the input arena.
    #[must_use]
    pub fn sources(&self) -> &Arena {
        self.segment.as_ref().map_or(&self.input, |segment| segment.arena())
    }

    /// A source row, for writing.
    ///
    /// # Panics
    /// When there is no such job or row, the inputs have another holder, or the bundle is over a
    /// segment.
    pub fn source_mut(&mut self, job: usize, row: usize) -> &mut [u8] {
        assert!(self.segment.is_none(), "sources of a segment are written before bundles over it");
        let Placed { job, sources, .. } = self.jobs[job];
        assert!(job.operation.has_sources() && row < job.columns, "source {row} of {job:?}");
        &mut self.input_mut()[sources + row * job.stride()..][..job.row_bytes]
    }

    /// All sources of a job, for writing.
    ///
    /// # Panics
    /// As [`Self::source_mut`].
    pub fn sources_mut(&mut self, job: usize) -> Vec<&mut [u8]> {
        assert!(self.segment.is_none(), "sources of a segment are written before bundles over it");
        let Placed { job, sources, .. } = self.jobs[job];
        assert!(job.operation.has_sources(), "sources of {job:?}");
        let rows = self.input_mut()[sources..].chunks_mut(job.stride()).take(job.columns);
        rows.map(|row| &mut row[..job.row_bytes]).collect()
    }

    /// A destination row of a successfully returned bundle.
    ///
    /// # Errors
    /// The job had to invert a matrix that has no inverse.
    ///
    /// # Panics
    /// When there is no such job or row.
    pub fn destination(&self, job: usize, row: usize) -> Result<&[u8], Singular> {
        self.outcome(job)?;
        let Placed { job, destinations, .. } = self.jobs[job];
        assert!(row < job.rows, "destination {row} of {job:?}");
        Ok(&self.output[destinations + row * job.stride()..][..job.row_bytes])
    }

    /// Whether a job of a successfully returned bundle has a result.
    ///
    /// # Errors
    /// The job had to invert a matrix that has no inverse.
    ///
    /// # Panics
    /// When there is no such job.
    pub fn outcome(&self, job: usize) -> Result<(), Singular> {
        let Job { operation, columns: size, .. } = self.jobs[job].job;
        let rank = u32::from_le_bytes(self.output[job * RANK_BYTES..].as_chunks().0[0]) as usize;
        if !operation.inverts() || rank >= size {
            return Ok(());
        }
        Err(Singular { column: rank, size })
    }

    /// The input arena. A device reads [`Bundle::input_bytes`] of it.
    #[must_use]
    pub fn input(&self) -> &Arena {
        &self.input
    }

    /// The output arena. A device writes [`Bundle::output_bytes`] of it, beginning with the rank of
    /// every job that inverts: a little-endian 32-bit number of the columns that have pivots, in
    /// [`RANK_BYTES`] each.
    pub fn output_mut(&mut self) -> &mut Arena {
        &mut self.output
    }

    /// The output arena.
    #[must_use]
    pub const fn output(&self) -> &Arena {
        &self.output
    }

    /// All memory that the jobs use: inputs, and per job its rank and its destinations, `rows` of
    /// them, a stride apart.
    pub(super) fn parts(&mut self) -> (Given<'_>, impl Iterator<Item = JobOutput<'_>>) {
        let (ranks, mut rest) = self.output.split_at_mut(ranks_bytes(self.jobs_max));
        let ranks = ranks.as_chunks_mut::<RANK_BYTES>().0.iter_mut();
        let parts = self.jobs.iter().zip(ranks).map(move |(placed, rank)| {
            let bytes = placed.job.output_bytes();
            let (rows, after) = std::mem::take(&mut rest).split_at_mut(bytes);
            rest = after;
            JobOutput { placed, rank: &mut rank.as_chunks_mut().0[0], rows }
        });
        let sources = self.segment.as_ref().map_or(&*self.input, |segment| segment.arena());
        (Given { input: &self.input, sources }, parts)
    }

    fn input_mut(&mut self) -> &mut Arena {
        Arc::get_mut(&mut self.input).expect("inputs are written before the bundle is handed over")
    }
}

/// The part of a bundle that the caller keeps while an engine has it.
#[derive(Clone, Debug)]
pub struct Retained {
    input: Arc<Arena>,
    segment: Option<Arc<Segment>>,
    jobs: Vec<Placed>,
    jobs_max: usize,
    input_used: usize,
    output_used: usize,
    output_bytes: usize,
    tag: u64,
}

impl Retained {
    /// Restores the bundle, with fresh memory for its outputs, as the lost one's may still be
    /// written.
    #[must_use]
    pub fn restore(self) -> Bundle {
        Bundle {
            input: self.input,
            segment: self.segment,
            output: Arena::new(self.output_bytes),
            jobs: self.jobs,
            jobs_max: self.jobs_max,
            input_used: self.input_used,
            output_used: self.output_used,
            tag: self.tag,
        }
    }
}

/// Inputs of the jobs of a bundle.
#[derive(Copy, Clone)]
pub(super) struct Given<'a> {
    /// Coefficients.
    pub input: &'a Arena,
    /// Source rows.
    pub sources: &'a Arena,
}

/// A job with its outputs.
pub(super) struct JobOutput<'a> {
    pub placed: &'a Placed,
    pub rank: &'a mut [u8; 4],
    pub rows: &'a mut [u8],
}

pub(super) fn coefficients<'a>(input: &'a Arena, placed: &Placed, row: usize) -> &'a [u8] {
    let job = &placed.job;
    assert!(job.operation.has_coefficients() && row < job.rows, "coefficients {row} of {job:?}");
    &input[placed.coefficients + row * job.coefficient_stride()..][..job.columns]
}

pub(super) fn source<'a>(sources: &'a Arena, placed: &Placed, row: usize) -> &'a [u8] {
    let job = &placed.job;
    assert!(job.operation.has_sources() && row < job.columns, "source {row} of {job:?}");
    &sources[placed.sources + row * job.stride()..][..job.row_bytes]
}

const fn ranks_bytes(jobs_max: usize) -> usize {
    (jobs_max * RANK_BYTES).next_multiple_of(ALIGNMENT)
}
