//! Jobs for an engine, and their layout in a bundle.

use recoded_gf::FieldOrder;

use super::arena::ALIGNMENT;

/// The most rows and columns of a matrix: the largest generation.
pub const SIZE_MAX: usize = recoded_gf::SIZE_MAX;

/// Bytes of the rank that each job of a bundle has at the start of the output arena.
pub const RANK_BYTES: usize = 16;

/// The computation of a job. Symbols are bytes of GF(256) modulo 0x11D; coefficients are elements
/// of it, or of one of its subfields.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Operation {
    /// `destinations = coefficients * sources`: encode with a generator, recode, apply an inverse.
    Multiply,
    /// `destinations = coefficients^-1 * sources`: decode a generation.
    Solve,
    /// `destinations = drawn * sources`, with the coefficients of [`Operation::Draw`]: encodes
    /// without transferring coefficients.
    Combine {
        /// The seed of row 0; row r has `seed + r`.
        seed: u32,
        /// The field of the coefficients.
        field: FieldOrder,
    },
    /// `destinations = coefficients^-1`.
    Invert,
    /// `destinations =` random coefficients: see [`draw`](super::draw).
    Draw {
        /// The seed of row 0; row r has `seed + r`.
        seed: u32,
        /// The field of the coefficients.
        field: FieldOrder,
    },
}

impl Operation {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Multiply => "multiply",
            Self::Solve => "solve",
            Self::Combine { .. } => "combine",
            Self::Invert => "invert",
            Self::Draw { .. } => "draw",
        }
    }

    /// Whether the job brings coefficients.
    #[must_use]
    pub const fn has_coefficients(self) -> bool {
        matches!(self, Self::Multiply | Self::Solve | Self::Invert)
    }

    /// Whether the job brings source rows.
    #[must_use]
    pub const fn has_sources(self) -> bool {
        matches!(self, Self::Multiply | Self::Solve | Self::Combine { .. })
    }

    /// Whether the coefficients have to be inverted.
    #[must_use]
    pub const fn inverts(self) -> bool {
        matches!(self, Self::Solve | Self::Invert)
    }
}

/// Far beyond any symbol or buffer, and within the 32-bit sizes of a device.
const ROW_BYTES_MAX: usize = 1 << 30;

const COEFFICIENT_ALIGNMENT: usize = 16;

/// One job: `rows` destinations of `row_bytes` bytes from `columns` sources.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Job {
    /// The operation.
    pub operation: Operation,
    /// Destinations, 1..=1024.
    pub rows: usize,
    /// Sources and coefficients of a row, 1..=1024.
    pub columns: usize,
    /// Bytes of a source and of a destination, 1..=2^30.
    pub row_bytes: usize,
}

impl Job {
    /// A product of `rows x columns` coefficients with rows of `row_bytes` bytes.
    #[must_use]
    pub const fn new(operation: Operation, rows: usize, columns: usize, row_bytes: usize) -> Self {
        Self { operation, rows, columns, row_bytes }
    }

    /// The inversion of a `size x size` matrix.
    #[must_use]
    pub const fn invert(size: usize) -> Self {
        Self::new(Operation::Invert, size, size, size)
    }

    /// `rows` rows of `columns` random coefficients.
    #[must_use]
    pub const fn draw(seed: u32, field: FieldOrder, rows: usize, columns: usize) -> Self {
        Self::new(Operation::Draw { seed, field }, rows, columns, columns)
    }

    /// Whether its numbers are consistent; inconsistent jobs are never placed.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        let size = 1..=SIZE_MAX;
        let is_square = !self.operation.inverts() || self.rows == self.columns;
        let has_bytes = self.operation.has_sources() || self.row_bytes == self.columns;
        let is_counted = (1..=ROW_BYTES_MAX).contains(&self.row_bytes);
        is_counted
            && size.contains(&self.rows)
            && size.contains(&self.columns)
            && is_square
            && has_bytes
    }

    /// Bytes from the start of a row to that of the next.
    #[must_use]
    pub const fn stride(&self) -> usize {
        self.row_bytes.next_multiple_of(ALIGNMENT)
    }

    /// Bytes from one row of coefficients to the next: a unit that GPUs load at once.
    #[must_use]
    pub const fn coefficient_stride(&self) -> usize {
        self.columns.next_multiple_of(COEFFICIENT_ALIGNMENT)
    }

    /// Bytes of the coefficients; 0 if the job brings none.
    #[must_use]
    pub const fn coefficient_bytes(&self) -> usize {
        if self.operation.has_coefficients() { self.rows * self.coefficient_stride() } else { 0 }
    }

    /// Bytes of the sources; 0 if the job brings none.
    #[must_use]
    pub const fn source_bytes(&self) -> usize {
        if self.operation.has_sources() { self.columns * self.stride() } else { 0 }
    }

    /// Bytes that it needs in the input arena.
    #[must_use]
    pub const fn input_bytes(&self) -> usize {
        self.source_bytes() + self.coefficient_bytes().next_multiple_of(ALIGNMENT)
    }

    /// Bytes that it needs in the output arena.
    #[must_use]
    pub const fn output_bytes(&self) -> usize {
        self.rows * self.stride()
    }

    /// Products of a coefficient and a byte: the measure of work.
    #[must_use]
    pub const fn products(&self) -> u64 {
        let payload = if self.operation.has_sources() { self.row_bytes } else { 0 };
        let inverse = if self.operation.inverts() { self.columns } else { 0 };
        (self.rows * self.columns) as u64 * (payload + inverse) as u64
    }
}

/// A job and where it lies in the arenas of its bundle, in bytes from their starts.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Placed {
    /// The job.
    pub job: Job,
    /// The caller's identifier.
    pub tag: u64,
    /// Coefficients, in the input arena.
    pub coefficients: usize,
    /// The first source, in the input arena.
    pub sources: usize,
    /// The first destination, in the output arena.
    pub destinations: usize,
}

/// A job's matrix has no inverse; its destinations are undefined.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the {size} x {size} matrix is singular: column {column} depends on those before it")]
pub struct Singular {
    /// The first column without a pivot.
    pub column: usize,
    /// Rows and columns of the matrix.
    pub size: usize,
}
