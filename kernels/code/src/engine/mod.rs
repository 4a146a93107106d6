//! Bulk work for whichever engine is fastest: jobs of one kind, bundles of jobs that own their
//! memory, engines. (A batch is a unit of BATS codes; a bundle is the unit of an engine's work.)
//!
//! A [`Bundle`] is filled with jobs (encode, recode, decode: all of them products of a matrix and
//! rows), submitted to an [`Engine`], and returned with results. It owns its bytes and shares its
//! sealed inputs with the caller, which can recompute it when a device fails, hangs or vanishes.
//!
//! ```text
//!   Bundle: input arena   [ sources, coefficients | sources, coefficients | ... ]
//!           output arena [ rank per job | destinations | destinations | ... ]
//!                           rows lie n-major, their starts a multiple of 128 bytes apart
//! ```
//!
//! If many bundles have the same sources, these can lie in a [`Segment`] instead, which an engine
//! can keep: [`Bundle::over`].
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
    /// Its name: `cpu`, `cuda`, ...
    fn name(&self) -> &str;

    /// Bundles that it accepts before it has returned one.
    fn depth(&self) -> usize;

    /// Submits a bundle. Does not wait for the result.
    ///
    /// # Errors
    /// Returns the unchanged bundle with [`Error::Busy`] when [`Engine::depth`] of them are in
    /// flight, or with the reason why this or any other bundle cannot be computed here.
    fn submit(&mut self, bundle: Bundle) -> Result<(), Refused>;

    /// Announces many products with this matrix, row-major with `columns` columns and no gaps, so
    /// that the engine may prepare for them in its own time. A hint: nothing else changes.
    fn expect(&mut self, matrix: &[u8], columns: usize) {
        let _ = (matrix, columns);
    }

    /// Keeps a copy of `segment` on the device while anybody else holds the segment: a
    /// [`Bundle::over`] it then brings no sources along. A bundle over a segment that is not kept,
    /// or no longer since the device was lost, is still computed. May wait for a copy.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the engine cannot keep any; [`Error::Memory`] without room for
    /// more segments; or the reason why the engine is unusable.
    fn keep(&mut self, segment: &Arc<Segment>) -> Result<(), Error> {
        let (rows, columns) = (segment.rows(), segment.row_bytes());
        Err(Error::Unsupported { operation: "keep", rows, columns })
    }

    /// A finished bundle, successful or not, if there is one. Never blocks. Bundles may return in
    /// another order than that of their submission.
    fn poll(&mut self) -> Option<Completed>;
}

/// A returned bundle.
#[derive(Debug)]
pub struct Completed {
    /// The bundle. Its outputs are undefined unless the result is `Ok`.
    pub bundle: Bundle,
    /// Whether the work is done.
    pub result: Result<(), Error>,
}

/// A refused bundle.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Refused {
    /// The reason.
    #[source]
    pub error: Error,
    /// The bundle, unchanged.
    pub bundle: Box<Bundle>,
}

/// The reason why an engine did not compute a bundle.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// It holds its maximum number of bundles.
    #[error("{depth} bundles are in flight already")]
    Busy {
        /// [`Engine::depth`].
        depth: usize,
    },
    /// It cannot compute such a job at all; another engine can.
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
    /// This bundle failed; the engine remains usable.
    #[error("{call} failed: {reason} ({code})")]
    Failed {
        /// The failed call.
        call: &'static str,
        /// The device's error number.
        code: u32,
        /// The device's name for it.
        reason: String,
    },
    /// There is no device, or its use is disabled.
    #[error("{reason}")]
    Absent {
        /// The reason.
        reason: String,
    },
    /// The device is gone; every bundle in flight returns with this, and so does every later one.
    #[error("device lost: {call} failed: {reason} ({code})")]
    Lost {
        /// The failed call.
        call: &'static str,
        /// The device's error number.
        code: u32,
        /// The device's name for it.
        reason: String,
    },
    /// The device is gone for the lifetime of this process.
    #[error("restart this program to use the device again: {call} failed: {reason} ({code})")]
    RestartNeeded {
        /// The failed call.
        call: &'static str,
        /// The device's error number.
        code: u32,
        /// The device's name for it.
        reason: String,
    },
    /// The engine's threads could not be started.
    #[error("cannot start {threads} threads")]
    Threads {
        /// The requested number of threads.
        threads: usize,
    },
}

impl Error {
    /// Whether the engine is unusable.
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
