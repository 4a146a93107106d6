//! The chosen compute routine: detection, forcing, shape checks.
//!
//! Shapes are checked here, once, for every level; the levels in `arch` rely on it.

use std::env;
use std::fmt;
use std::sync::OnceLock;

use crate::arch::{Available, LEVELS};

/// Environment variable that forces a kernel by name.
pub const KERNEL_VARIABLE: &str = "RECODED_KERNEL";

/// One SIMD level that this CPU can run.
///
/// All levels compute the same bytes. Slices may have any length (0 included) and any alignment;
/// no byte outside them is read or written. Nothing here allocates.
pub struct Kernel {
    level: Available,
}

impl Kernel {
    /// The fastest kernel of this CPU, or the one that `RECODED_KERNEL` names. A name that cannot
    /// be honoured is ignored here; programs report it at start through [`Kernel::forced`].
    /// Detection and the variable are read once per process.
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
        if LEVELS.iter().any(|level| level.name == name) {
            Err(ForceError::Unavailable { name })
        } else {
            Err(ForceError::Unknown { name })
        }
    }

    /// Every kernel that this CPU can run, slowest (`naive`) first.
    pub fn all_available() -> impl Iterator<Item = &'static Self> {
        available().iter()
    }

    /// The kernel called `name`, if this CPU can run it.
    #[must_use]
    pub fn by_name(name: &str) -> Option<&'static Self> {
        Self::all_available().find(|kernel| kernel.name() == name)
    }

    /// `naive`, `avx2` or `avx512-gfni`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.level.name()
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

    /// `dst *= c`, byte by byte.
    #[inline]
    pub fn mul(&self, dst: &mut [u8], c: u8) {
        self.level.mul(dst, c);
    }

    /// `dst += c * src`.
    ///
    /// # Panics
    /// When the lengths differ.
    #[inline]
    pub fn madd(&self, dst: &mut [u8], c: u8, src: &[u8]) {
        assert_eq!(dst.len(), src.len(), "madd: destination and source differ in length");
        self.level.madd(dst, c, src);
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
        check_shape(coefficients, sources, destinations);
        self.level.matmul(coefficients, sources, destinations, false);
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
        check_shape(coefficients, sources, destinations);
        self.level.matmul(coefficients, sources, destinations, true);
    }

    fn fastest() -> &'static Self {
        let last = available().last();
        last.expect("the naive level runs on every CPU")
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Kernel").field(&self.name()).finish()
    }
}

/// Why a kernel cannot be used by name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ForceError {
    /// No kernel of this build has that name.
    #[error("unknown kernel `{name}`; this build has: {}", names())]
    Unknown {
        /// What was asked for.
        name: String,
    },
    /// The kernel exists, but this CPU lacks its instructions.
    #[error("kernel `{name}` needs instructions that this CPU lacks")]
    Unavailable {
        /// What was asked for.
        name: String,
    },
}

fn names() -> String {
    LEVELS.iter().map(|level| level.name).collect::<Vec<_>>().join(", ")
}

fn available() -> &'static [Kernel] {
    static AVAILABLE: OnceLock<Box<[Kernel]>> = OnceLock::new();
    AVAILABLE.get_or_init(|| {
        LEVELS.iter().filter_map(|level| level.detect()).map(|level| Kernel { level }).collect()
    })
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
    let equal = sources.iter().all(|source| source.len() == bytes)
        && destinations.iter().all(|destination| destination.len() == bytes);
    assert!(equal, "matmul: sources and destinations differ in length");
}
