//! Bulk work for whichever engine is fastest: jobs of one kind, bundles of jobs that own their
//! memory, engines. (A batch is a unit of BATS codes; a bundle is what an engine takes at once.)
//!
//! A [`Bundle`] is filled with jobs (encode, recode, decode: all of them products of a matrix and
//! rows), submitted to an [`Engine`], and comes back with results. It owns its bytes and shares its
//! sealed inputs with the caller, who can compute it again when a device fails, hangs or vanishes.
//!
//! ```text
//!   Bundle: input arena   [ sources, coefficients | sources, coefficients | ... ]
//!           output arena [ rank per job | destinations | destinations | ... ]
//!                           rows lie n-major, their starts a multiple of 128 bytes apart
//! ```
//!
//! Where many bundles have the same sources, these can lie in a [`Segment`] instead, which an
//! engine can keep: [`Bundle::over`].
//!
//! | engine | job |
//! |---|---|
//! | [`Cpu`], [`CpuEngine`] | the reference: both partitionings (Extreme NC §5.3) |
//! | [`Chaos`] | wraps another engine; refuses, fails, loses, stalls and lies, by probability |
//! | `recoded-cuda` | a crate of its own, since it needs `unsafe` |
//!
//! ```
//! use recoded_code::engine::{Bundle, Cpu, Job, Operation, Partition};
//!
//! // Two coded symbols of three source symbols of five bytes.
//! let mut bundle = Bundle::new(4096, 4096, 1);
//! let job = bundle.push(Job::new(Operation::Multiply, 2, 3, 5), 0)?;
//! bundle.set_coefficients(job, &[1, 1, 1, 1, 2, 4]);
//! for (row, bytes) in [b"first", b"other", b"third"].into_iter().enumerate() {
//!     bundle.source_mut(job, row).copy_from_slice(bytes);
//! }
//! Cpu::new(1, Partition::FullBlock)?.run(&mut bundle);
//! assert_eq!(bundle.destination(job, 0)?[0], b'f' ^ b'o' ^ b't');
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod arena;
mod job;
mod segment;

mod bundle;

mod cpu;
mod draw;

mod chaos;
pub mod check;

pub use arena::{ALIGNMENT, Arena, Guard};
pub use bundle::{Bundle, Rejected, Retained};
pub use chaos::{Chaos, Faults};
pub use cpu::{Cpu, CpuEngine, Partition};
pub use draw::draw;
pub use job::{Job, Operation, Placed, RANK_BYTES, SIZE_MAX, Singular};
pub use segment::Segment;

use std::sync::Arc;

/// Computes bundles, at once or later.
pub trait Engine: Send {
    /// What it is called: `cpu`, `cuda`, ...
    fn name(&self) -> &str;

    /// Bundles that it takes before it has given one back.
    fn depth(&self) -> usize;

    /// Takes a bundle. Does not wait for the work to be done.
    ///
    /// # Errors
    /// With the bundle, unchanged: [`Error::Busy`] when it holds [`Engine::depth`] of them, or why
    /// this one or any other cannot be done here.
    fn submit(&mut self, bundle: Bundle) -> Result<(), Refused>;

    /// Learns that many products with this matrix are going to come, row-major with `columns`
    /// columns and no gaps, so that it may prepare for them in its own time. A hint: nothing else
    /// changes.
    fn expect(&mut self, matrix: &[u8], columns: usize) {
        let _ = (matrix, columns);
    }

    /// Keeps a copy of `segment` where it computes, as long as anybody else holds the segment: a
    /// [`Bundle::over`] it then brings no sources along. A bundle over a segment that is not kept,
    /// or no longer, as the device was lost, is done all the same. May wait for a copy.
    ///
    /// # Errors
    /// [`Error::Unsupported`] unless the engine can; [`Error::Memory`] when it has no room for more
    /// segments; or why nothing can be done here any more.
    fn keep(&mut self, segment: &Arc<Segment>) -> Result<(), Error> {
        let (rows, columns) = (segment.rows(), segment.row_bytes());
        Err(Error::Unsupported { operation: "keep", rows, columns })
    }

    /// A bundle that is finished, well or not, if there is one. Never waits. Bundles may come back
    /// in another order than they were submitted in.
    fn poll(&mut self) -> Option<Completed>;
}

/// A bundle that came back.
#[derive(Debug)]
pub struct Completed {
    /// The bundle. Its outputs are undefined unless the result is `Ok`.
    pub bundle: Bundle,
    /// Whether the work is done.
    pub result: Result<(), Error>,
}

/// A bundle that was not taken.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Refused {
    /// Why.
    #[source]
    pub error: Error,
    /// The bundle, unchanged.
    pub bundle: Box<Bundle>,
}

/// Why an engine did not do a bundle.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// It holds as many bundles as it can.
    #[error("{depth} bundles are in flight already")]
    Busy {
        /// [`Engine::depth`].
        depth: usize,
    },
    /// It cannot do such a job at all; another engine can.
    #[error("{operation} of {rows} x {columns} is beyond this engine")]
    Unsupported {
        /// The job's operation.
        operation: &'static str,
        /// The job's rows.
        rows: usize,
        /// The job's columns.
        columns: usize,
    },
    /// No memory on the device for this bundle.
    #[error("no device memory for {bytes} bytes")]
    Memory {
        /// Bytes of the bundle.
        bytes: usize,
    },
    /// This bundle failed; the engine goes on.
    #[error("{call} failed: {reason} ({code})")]
    Failed {
        /// What was attempted.
        call: &'static str,
        /// The device's error number.
        code: u32,
        /// The device's name for it.
        reason: String,
    },
    /// There is no device, or none that is to be used.
    #[error("{reason}")]
    Absent {
        /// Why.
        reason: String,
    },
    /// The device is gone; every bundle in flight comes back with this, and so does every later
    /// one.
    #[error("device lost: {call} failed: {reason} ({code})")]
    Lost {
        /// What was attempted.
        call: &'static str,
        /// The device's error number.
        code: u32,
        /// The device's name for it.
        reason: String,
    },
    /// The device is gone for as long as this process lives.
    #[error("restart this program to use the device again: {call} failed: {reason} ({code})")]
    RestartNeeded {
        /// What was attempted.
        call: &'static str,
        /// The device's error number.
        code: u32,
        /// The device's name for it.
        reason: String,
    },
    /// The engine's threads could not be started.
    #[error("cannot start {threads} threads")]
    Threads {
        /// Threads that were asked for.
        threads: usize,
    },
}

impl Error {
    /// Whether the engine is of no more use.
    #[must_use]
    pub const fn is_fatal(&self) -> bool {
        !matches!(
            self,
            Self::Busy { .. }
                | Self::Unsupported { .. }
                | Self::Memory { .. }
                | Self::Failed { .. }
        )
    }

    /// Whether no later attempt of this process can succeed.
    #[must_use]
    pub const fn needs_restart(&self) -> bool {
        matches!(self, Self::RestartNeeded { .. })
    }
}
