//! Source rows shared by many bundles: a segment of a streaming server.

use super::arena::{ALIGNMENT, Arena};
use super::job::{Job, Operation};

/// Source rows that outlive a bundle, so that a device does not need them with each one
/// ([`Engine::keep`](super::Engine::keep)): thousands of coded symbols are made of one segment
/// (Extreme NC §5.1.1). They stay in the host's memory too, so that they survive the loss of a
/// device.
#[derive(Debug)]
pub struct Segment {
    rows: usize,
    row_bytes: usize,
    arena: Arena,
}

impl Segment {
    /// `rows` rows of `row_bytes` zeros; `None` if no job supports that many (see
    /// [`Job::is_valid`]).
    #[must_use]
    pub fn new(rows: usize, row_bytes: usize) -> Option<Self> {
        let job = Job::new(Operation::Multiply, 1, rows, row_bytes);
        let arena = job.is_valid().then(|| Arena::new(job.source_bytes()))?;
        Some(Self { rows, row_bytes, arena })
    }

    /// Its rows.
    #[must_use]
    pub const fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes of a row.
    #[must_use]
    pub const fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    /// Bytes from the start of a row to that of the next.
    #[must_use]
    pub const fn stride(&self) -> usize {
        self.row_bytes.next_multiple_of(ALIGNMENT)
    }

    /// A row.
    ///
    /// # Panics
    /// When there is no such row.
    #[must_use]
    pub fn row(&self, row: usize) -> &[u8] {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        &self.arena[row * self.stride()..][..self.row_bytes]
    }

    /// A row, for writing.
    ///
    /// # Panics
    /// When there is no such row.
    pub fn row_mut(&mut self, row: usize) -> &mut [u8] {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        let (start, bytes) = (row * self.stride(), self.row_bytes);
        &mut self.arena[start..][..bytes]
    }

    /// All rows, n-major: the memory that a device reads.
    #[must_use]
    pub const fn arena(&self) -> &Arena {
        &self.arena
    }

    /// Bytes of all rows, with the gaps between them.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.rows * self.stride()
    }

    /// Whether a job can have these rows as its sources; one without sources always can.
    pub(super) fn suits(&self, job: &Job) -> bool {
        let is_same = job.columns == self.rows && job.row_bytes == self.row_bytes;
        !job.operation.has_sources() || is_same
    }
}
