//! The chosen compute routine: detection, forcing, shape checks.
//!
//! Shapes are checked here, once, for every level; the levels in `arch` rely on it.

use std::env;
use std::fmt;
use std::sync::OnceLock;

use crate::arch::{Available, LEVELS, Level};
use crate::field::Field;
use crate::table::Tables;

/// Environment variable that forces a kernel by name.
pub const KERNEL_VARIABLE: &str = "RECODED_KERNEL";

/// One level (instruction set and algorithm) that this CPU can run, over one field.
///
/// All levels compute the same bytes. Slices may have any length (0 included) and any alignment;
/// no byte outside them is read or written. Nothing here allocates.
pub struct Kernel {
    name: &'static str,
    level: Available,
    tables: &'static Tables,
    /// Least number of destinations for products by 0 and 1 by the four Russians.
    binary_rows_min: usize,
}

impl Kernel {
    /// The fastest kernel of this CPU over [`Field::Gf256x11D`], or the one that `RECODED_KERNEL`
    /// names. An invalid name is ignored here; programs report it at start through
    /// [`Kernel::forced`]. Detection and the variable are read once per process.
    #[must_use]
    pub fn best() -> &'static Self {
        static BEST: OnceLock<&'static Kernel> = OnceLock::new();
        BEST.get_or_init(|| Self::forced().ok().flatten().unwrap_or_else(Self::fastest))
    }

    /// The kernel that `RECODED_KERNEL` names; `Ok(None)` when the variable is unset or empty.
    ///
    /// # Errors
    /// The name is unknown, or this CPU cannot run that kernel.
    pub fn forced() -> Result<Option<&'static Self>, ForceError> {
        match env::var_os(KERNEL_VARIABLE) {
            Some(name) if !name.is_empty() => Self::require(&name.to_string_lossy()).map(Some),
            _ => Ok(None),
        }
    }

    /// The kernel called `name`, with the reason when there is none.
    ///
    /// # Errors
    /// The name is unknown, or this CPU cannot run that kernel.
    pub fn require(name: &str) -> Result<&'static Self, ForceError> {
        if let Some(kernel) = Self::by_name(name) {
            return Ok(kernel);
        }
        let name = name.to_owned();
        match LEVELS.iter().find(|level| level.name == name) {
            Some(level) => Err(ForceError::Unavailable { name, needs: level.needs }),
            None => Err(ForceError::Unknown { name }),
        }
    }

    /// Every kernel that this CPU can run over [`Field::Gf256x11D`], slowest (`naive`) first.
    pub fn all_available() -> impl Iterator<Item = &'static Self> {
        available().iter().filter(|kernel| kernel.field() == Field::default())
    }

    /// The kernel called `name` over [`Field::Gf256x11D`], if this CPU can run it.
    #[must_use]
    pub fn by_name(name: &str) -> Option<&'static Self> {
        Self::all_available().find(|kernel| kernel.name() == name)
    }

    /// Every level of this build, including those that this CPU lacks, slowest first.
    pub fn levels() -> impl Iterator<Item = LevelInfo> {
        let info = |level: &'static Level| LevelInfo {
            name: level.name,
            needs: level.needs,
            available: level.detect().is_some(),
        };
        let four_russians = LevelInfo {
            name: FOUR_RUSSIANS,
            needs: "nothing; it uses the fastest other level",
            available: true,
        };
        [four_russians].into_iter().chain(LEVELS.iter().map(info))
    }

    /// The same level over another field; `None` if the level does not serve it.
    #[must_use]
    pub fn over(&self, field: Field) -> Option<&'static Self> {
        available().iter().find(|kernel| kernel.name() == self.name() && kernel.field() == field)
    }

    /// The level's name, for example `avx512-gfni`; [`Kernel::levels`] lists the names.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The field it computes over.
    #[must_use]
    pub fn field(&self) -> Field {
        self.tables.field
    }

    /// `dst += src`: the sum in any of the fields is XOR.
    ///
    /// # Panics
    /// When the lengths differ.
    #[inline]
    pub fn add(&self, dst: &mut [u8], src: &[u8]) {
        assert_eq!(dst.len(), src.len(), "add: destination and source differ in length");
        self.level.add(dst, src);
    }

    /// `dst *= c`, element by element. Bits of `c` beyond the field's elements are ignored here
    /// and below.
    #[inline]
    pub fn mul(&self, dst: &mut [u8], c: u8) {
        self.level.mul(self.tables, dst, c);
    }

    /// `dst += c * src`.
    ///
    /// # Panics
    /// When the lengths differ.
    #[inline]
    pub fn madd(&self, dst: &mut [u8], c: u8, src: &[u8]) {
        assert_eq!(dst.len(), src.len(), "madd: destination and source differ in length");
        self.level.madd(self.tables, dst, c, src);
    }

    /// `destinations = coefficients * sources`, overwriting the destinations.
    ///
    /// `coefficients` is row-major, one row per destination and one column per source. With no
    /// sources the destinations become zero.
    ///
    /// # Panics
    /// When the slices differ in length or the number of coefficients is not
    /// `destinations.len() * sources.len()`.
    #[inline]
    pub fn matmul(&self, coefficients: &[u8], sources: &[&[u8]], destinations: &mut [&mut [u8]]) {
        self.multiply(coefficients, sources, destinations, false);
    }

    /// `destinations += coefficients * sources`; otherwise like [`Kernel::matmul`].
    ///
    /// # Panics
    /// Like [`Kernel::matmul`].
    #[inline]
    pub fn matmul_accumulate(
        &self,
        coefficients: &[u8],
        sources: &[&[u8]],
        destinations: &mut [&mut [u8]],
    ) {
        self.multiply(coefficients, sources, destinations, true);
    }

    /// `row += factors * matrix`: adds to `row` the sum over i of `factors[i]` times row i of a
    /// row-major matrix whose rows lie `stride` bytes apart. Only the first `row.len()` bytes of a
    /// matrix row take part. Rows with a factor of zero are not read.
    ///
    /// # Panics
    /// When the matrix has fewer rows than there are factors.
    #[inline]
    pub fn reduce(&self, row: &mut [u8], factors: &[u8], matrix: &[u8], stride: usize) {
        let rows = complete_rows(matrix.len(), stride, row.len());
        assert!(rows >= factors.len(), "reduce: {} factors, {rows} rows", factors.len());
        self.level.reduce(self.tables, row, factors, matrix, stride);
    }

    /// Adds to every row of a matrix its own element at `column` times `row`: where `row` has a 1
    /// there, this clears the column. Rows lie `stride` bytes apart; their first `row.len()` bytes
    /// take part. Meant for fields of one element per byte.
    ///
    /// # Panics
    /// When `column` is beyond `row`, or the matrix ends within the last row.
    #[inline]
    pub fn eliminate(&self, matrix: &mut [u8], stride: usize, column: usize, row: &[u8]) {
        assert!(column < row.len(), "eliminate: column {column} of {}", row.len());
        let rows = complete_rows(matrix.len(), stride, row.len());
        assert_eq!(rows, matrix.len().div_ceil(stride), "eliminate: the last row is incomplete");
        self.level.eliminate(self.tables, matrix, stride, column, row);
    }

    /// Converts columns to the form that [`Kernel::dots`] of this kernel expects. Linear, so
    /// columns may be prepared in parts; must be done once.
    ///
    /// # Panics
    /// When the elements of the field are smaller than a byte.
    #[inline]
    pub fn prepare(&self, columns: &mut [u8]) {
        assert_eq!(self.field().order(), 256, "prepare: elements are not bytes");
        self.level.prepare(self.tables, columns);
    }

    /// `sums += columns * vector`: adds to `sums[c]` the sum over i of
    /// `columns[c * stride + i] * vector[i]`. The columns must have been prepared by this kernel.
    ///
    /// # Panics
    /// When the columns end before the last product, or the elements of the field are smaller than
    /// a byte.
    #[inline]
    pub fn dots(&self, columns: &[u8], stride: usize, vector: &[u8], sums: &mut [u8]) {
        assert_eq!(self.field().order(), 256, "dots: elements are not bytes");
        let whole = complete_rows(columns.len(), stride, vector.len());
        assert!(whole >= sums.len(), "dots: {} sums, {whole} columns", sums.len());
        self.level.dots(self.tables, columns, stride, vector, sums);
    }

    fn multiply(
        &self,
        coefficients: &[u8],
        sources: &[&[u8]],
        destinations: &mut [&mut [u8]],
        accumulate: bool,
    ) {
        check_shape(coefficients, sources, destinations);
        let (level, tables) = (self.level, self.tables);
        let by_subsets = destinations.len() >= self.binary_rows_min
            && (self.field().order() == 2 || coefficients.iter().all(|&c| c <= 1))
            && level.matmul_binary(tables, coefficients, sources, destinations, accumulate);
        if !by_subsets {
            level.matmul(tables, coefficients, sources, destinations, accumulate);
        }
    }

    fn fastest() -> &'static Self {
        let last = Self::all_available().last();
        last.expect("the naive level runs on every CPU")
    }
}

/// One level of this build.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct LevelInfo {
    /// Its name.
    pub name: &'static str,
    /// The CPU features it needs, as text.
    pub needs: &'static str,
    /// Whether this CPU has them.
    pub available: bool,
}

impl fmt::Debug for Kernel {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Kernel").field(&self.name()).field(&self.field()).finish()
    }
}

/// The reason why a kernel cannot be used by name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ForceError {
    /// No kernel of this build has that name.
    #[error("unknown kernel `{name}`; this build has: {}", names())]
    Unknown {
        /// The requested name.
        name: String,
    },
    /// The kernel exists, but this CPU lacks its instructions.
    #[error("kernel `{name}` needs {needs}, which this CPU lacks or hides")]
    Unavailable {
        /// The requested name.
        name: String,
        /// The instructions it needs.
        needs: &'static str,
    },
}

fn names() -> String {
    Kernel::levels().map(|level| level.name).collect::<Vec<_>>().join(", ")
}

/// Every level that this CPU can run, over every field that it serves.
fn available() -> &'static [Kernel] {
    static AVAILABLE: OnceLock<Box<[Kernel]>> = OnceLock::new();
    AVAILABLE.get_or_init(|| {
        let levels: Vec<Available> = LEVELS.iter().filter_map(|level| level.detect()).collect();
        let fastest = levels.iter().rev().take(1).map(|&level| (FOUR_RUSSIANS, level, 1));
        let named =
            levels.iter().map(|&level| (level.level().name, level, level.level().binary_rows_min));
        // Not a separate level and not the fastest for all coefficients, hence first.
        let over_all_fields = |(name, level, rows)| over_all_fields(name, level, rows);
        fastest.chain(named).flat_map(over_all_fields).collect()
    })
}

fn over_all_fields(
    name: &'static str,
    level: Available,
    binary_rows_min: usize,
) -> impl Iterator<Item = Kernel> {
    let fields = Field::ALL.into_iter().filter(move |&field| (level.level().serves)(field));
    fields.map(move |field| Kernel { name, level, tables: Tables::of(field), binary_rows_min })
}

/// The fastest level, with products by 0 and 1 always by the method of the four Russians, however
/// few.
const FOUR_RUSSIANS: &str = "four-russians";

/// Rows of `bytes` bytes that a matrix holds completely, `stride` bytes apart.
///
/// # Panics
/// When rows overlap.
#[inline]
fn complete_rows(matrix_bytes: usize, stride: usize, bytes: usize) -> usize {
    assert!(stride >= bytes && stride > 0, "rows of {bytes} bytes, {stride} apart, overlap");
    matrix_bytes.checked_sub(bytes).map_or(0, |room| room / stride + 1)
}

#[inline]
fn check_shape(coefficients: &[u8], sources: &[&[u8]], destinations: &[&mut [u8]]) {
    let Some(bytes) = destinations.first().map(|destination| destination.len()) else {
        return assert!(coefficients.is_empty(), "matmul: coefficients without destinations");
    };
    assert_eq!(
        Some(coefficients.len()),
        sources.len().checked_mul(destinations.len()),
        "matmul: one coefficient per destination and source"
    );
    // No early exit: a short generation is multiplied in less time than mispredicted branches take.
    let differing = |bits, length: usize| bits | (length ^ bytes);
    let bits = sources.iter().map(|source| source.len()).fold(0, differing);
    let bits = destinations.iter().map(|destination| destination.len()).fold(bits, differing);
    assert!(bits == 0, "matmul: sources and destinations differ in length");
}
