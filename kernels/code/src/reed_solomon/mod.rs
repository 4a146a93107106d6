//! Systematic Reed-Solomon codes k+m over GF(256): any k of k + m buffers recover all others.
//!
//! The shape is Gibraltar's (Curry, Skjellum, Ward, Brightwell: "Gibraltar: a Reed-Solomon coding
//! library for storage applications on programmable graphics processors", 2011, appendix A): a
//! context per (k, m), `generate` and `recover`, with buffers in any order, and a replaceable
//! multiplier. Relays cannot recode it; it is for stored data and single hops.
//!
//! ```text
//!  ids      0 .. k-1          k .. k+m-1
//!        [ data buffers ]  [ parity buffers ]        parity = generator * data
//! ```
//!
//! ```
//! use recoded_code::reed_solomon::ReedSolomon;
//!
//! let mut code = ReedSolomon::new(3, 2)?;
//! let data = [&b"abcd"[..], b"efgh", b"ijkl"];
//! let (mut p, mut q) = ([0; 4], [0; 4]);
//! code.generate(&data, &mut [&mut p, &mut q])?;
//!
//! // Buffers 0 and 2 are lost; 4, 1 and 3 are left, in whatever order.
//! let (mut first, mut third) = ([0; 4], [0; 4]);
//! code.recover(&[4, 1, 3, 2, 0], &[&q, data[1], &p], &mut [&mut third, &mut first])?;
//! assert_eq!((&first, &third), (b"abcd", b"ijkl"));
//! # Ok::<(), recoded_code::reed_solomon::Error>(())
//! ```
//!
//! The proof that any k suffice: see [`ReedSolomon::generator`].

use recoded_gf::{Kernel, inverse, mul};

/// Points of the field; each buffer takes one.
const BUFFERS_MAX: usize = 256;

/// Multiplies buffers by a matrix: a kernel, or an accelerator in its place.
pub trait Multiply {
    /// `destinations = coefficients * sources` over GF(256) modulo 0x11D, with the coefficients
    /// row-major, a row per destination and a column per source. All buffers are of one length.
    fn matmul(&self, coefficients: &[u8], sources: &[&[u8]], destinations: &mut [&mut [u8]]);
}

impl Multiply for &Kernel {
    fn matmul(&self, coefficients: &[u8], sources: &[&[u8]], destinations: &mut [&mut [u8]]) {
        Kernel::matmul(self, coefficients, sources, destinations);
    }
}

/// The reason why a code cannot be created or buffers cannot be coded; no buffer has changed.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// There is no such code.
    #[error("{data}+{parity}: both must be at least 1, their sum at most 256")]
    Shape {
        /// Data buffers, k.
        data: usize,
        /// Parity buffers, m.
        parity: usize,
    },
    /// [`ReedSolomon::generate`] got another number of buffers than the code has.
    #[error("{data} data and {parity} parity buffers for another code")]
    Buffers {
        /// Given data buffers.
        data: usize,
        /// Given parity buffers.
        parity: usize,
    },
    /// Buffers differ in length.
    #[error("a buffer of {bytes} bytes among buffers of {expected}")]
    Length {
        /// Its length.
        bytes: usize,
        /// The length of the first one.
        expected: usize,
    },
    /// There are not as many ids as buffers.
    #[error("{ids} ids for {buffers} buffers")]
    Ids {
        /// Ids.
        ids: usize,
        /// Intact and lost buffers together.
        buffers: usize,
    },
    /// An id beyond the last parity buffer.
    #[error("buffer {id} of {buffers}")]
    UnknownId {
        /// The id.
        id: usize,
        /// Data and parity buffers of the code.
        buffers: usize,
    },
    /// An id occurs twice.
    #[error("buffer {id} is named twice")]
    Repeated {
        /// The id.
        id: usize,
    },
    /// Fewer intact buffers than data buffers: nothing can be recovered.
    #[error("{intact} intact buffers, {needed} are needed")]
    TooFew {
        /// Intact buffers.
        intact: usize,
        /// Data buffers of the code, k.
        needed: usize,
    },
}

/// The context of one code k+m, reusable for any number of stripes.
pub struct ReedSolomon<M = &'static Kernel> {
    multiply: M,
    /// For coefficients, which stay on this CPU.
    kernel: &'static Kernel,
    data: usize,
    parity: usize,
    /// `parity` rows of `data` coefficients.
    generator: Box<[u8]>,
    /// The rows of the intact buffers, then their inverse.
    inverse: Box<[u8]>,
    /// Coefficients of lost buffers over intact ones, up to `data + parity` rows.
    recovery: Box<[u8]>,
}

impl ReedSolomon {
    /// The code of `data` data and `parity` parity buffers, computed by this CPU.
    ///
    /// # Errors
    /// Either is zero or their sum exceeds 256.
    pub fn new(data: usize, parity: usize) -> Result<Self, Error> {
        Self::with(Kernel::best(), data, parity)
    }
}

impl<M: Multiply> ReedSolomon<M> {
    /// The same code, with buffers multiplied by `multiply`. Takes `k * (2 k + 2 m)` bytes; nothing
    /// is allocated later.
    ///
    /// # Errors
    /// Either number is zero or their sum exceeds 256.
    pub fn with(multiply: M, data: usize, parity: usize) -> Result<Self, Error> {
        if data == 0 || parity == 0 || data.saturating_add(parity) > BUFFERS_MAX {
            return Err(Error::Shape { data, parity });
        }
        Ok(Self {
            multiply,
            kernel: Kernel::best(),
            data,
            parity,
            generator: generator(data, parity),
            inverse: vec![0; data * data].into_boxed_slice(),
            recovery: vec![0; data * (data + parity)].into_boxed_slice(),
        })
    }

    /// Data buffers: k.
    #[must_use]
    pub const fn data(&self) -> usize {
        self.data
    }

    /// Parity buffers: m.
    #[must_use]
    pub const fn parity(&self) -> usize {
        self.parity
    }

    /// The coefficients of parity over data: row-major, a row per parity buffer.
    ///
    /// It is a Cauchy matrix, `1 / (x_j + y_i)` with all of the x and y different, whose columns
    /// are scaled so that the first row is all ones: one parity buffer is the XOR of the data.
    ///
    /// Any k buffers determine the others, because any k rows of the identity over this matrix are
    /// independent. Those from the identity reduce the question to inverting a square submatrix of
    /// this matrix. A square submatrix of a Cauchy matrix is again a Cauchy matrix, and its
    /// determinant, the product of all `(x_i + x_j)(y_i + y_j)`, i < j, over the product of all
    /// `x_i + y_j`, is not zero as no factor is. Scaling columns by nonzero factors preserves that.
    #[must_use]
    pub fn generator(&self) -> &[u8] {
        &self.generator
    }

    /// Computes all parity buffers from all data buffers, both in the order of their ids.
    ///
    /// # Errors
    /// The number of buffers is wrong or their lengths differ.
    pub fn generate(&self, data: &[&[u8]], parity: &mut [&mut [u8]]) -> Result<(), Error> {
        if data.len() != self.data || parity.len() != self.parity {
            return Err(Error::Buffers { data: data.len(), parity: parity.len() });
        }
        check_lengths(data, parity)?;
        self.multiply.matmul(&self.generator, data, parity);
        Ok(())
    }

    /// Computes the buffers `lost` from the buffers `intact`, data and parity alike. `ids` lists
    /// first the intact ones, then the lost ones, each in the order given: data buffers are 0 to
    /// k - 1, parity buffers k to k + m - 1. With more than k intact ones, the first k are read;
    /// buffers that are neither intact nor needed are not listed.
    ///
    /// # Errors
    /// Ids or lengths contradict each other or the code, or too few buffers are intact.
    pub fn recover(
        &mut self,
        ids: &[usize],
        intact: &[&[u8]],
        lost: &mut [&mut [u8]],
    ) -> Result<(), Error> {
        let buffers = intact.len() + lost.len();
        if ids.len() != buffers {
            return Err(Error::Ids { ids: ids.len(), buffers });
        }
        check_lengths(intact, lost)?;
        let (intact_ids, lost_ids) = ids.split_at(intact.len());
        self.prepare(intact_ids, lost_ids)?;
        let coefficients = &self.recovery[..lost.len() * self.data];
        self.multiply.matmul(coefficients, &intact[..self.data], lost);
        Ok(())
    }

    /// Coefficients for computing the lost buffers from the first k intact ones
    /// ([`ReedSolomon::recover`]): row-major, a row per lost buffer. For many stripes with the same
    /// losses.
    ///
    /// # Errors
    /// As for [`ReedSolomon::recover`].
    pub fn recovery(&mut self, intact: &[usize], lost: &[usize]) -> Result<&[u8], Error> {
        self.prepare(intact, lost)?;
        Ok(&self.recovery[..lost.len() * self.data])
    }

    fn prepare(&mut self, intact: &[usize], lost: &[usize]) -> Result<(), Error> {
        self.check_ids(intact, lost)?;
        let columns = self.data;
        for (row, &id) in self.inverse.chunks_exact_mut(columns).zip(intact) {
            match id.checked_sub(columns) {
                Some(parity) => {
                    row.copy_from_slice(&self.generator[parity * columns..][..columns]);
                }
                None => set_unit(row, id),
            }
        }
        let inverted = self.kernel.invert(&mut self.inverse, columns);
        // Any k different rows are independent: see `generator`.
        assert!(inverted.is_ok(), "the rows of {intact:?} depend on each other");
        for (row, &id) in self.recovery.chunks_exact_mut(columns).zip(lost) {
            match id.checked_sub(columns) {
                Some(parity) => {
                    let factors = &self.generator[parity * columns..][..columns];
                    row.fill(0);
                    self.kernel.reduce(row, factors, &self.inverse, columns);
                }
                None => row.copy_from_slice(&self.inverse[id * columns..][..columns]),
            }
        }
        Ok(())
    }

    fn check_ids(&self, intact: &[usize], lost: &[usize]) -> Result<(), Error> {
        let buffers = self.data + self.parity;
        let mut is_named = [false; BUFFERS_MAX];
        for &id in intact.iter().chain(lost) {
            if id >= buffers {
                return Err(Error::UnknownId { id, buffers });
            }
            if std::mem::replace(&mut is_named[id], true) {
                return Err(Error::Repeated { id });
            }
        }
        if intact.len() < self.data {
            return Err(Error::TooFew { intact: intact.len(), needed: self.data });
        }
        Ok(())
    }
}

/// A Cauchy matrix on the points 0..data and data..data + parity, its first row scaled to ones.
fn generator(data: usize, parity: usize) -> Box<[u8]> {
    // Sums of two different points, so that an inverse exists.
    let cauchy = |row: usize, column: usize| inverse((data + row) as u8 ^ column as u8);
    let element = |index: usize| {
        let (row, column) = (index / data, index % data);
        // Divided by the first row's element, whose inverse is the sum of its points.
        mul(cauchy(row, column).unwrap_or_default(), data as u8 ^ column as u8)
    };
    (0..data * parity).map(element).collect()
}

fn set_unit(row: &mut [u8], index: usize) {
    row.fill(0);
    row[index] = 1;
}

fn check_lengths(sources: &[&[u8]], destinations: &[&mut [u8]]) -> Result<(), Error> {
    let mut lengths = sources.iter().map(|b| b.len()).chain(destinations.iter().map(|b| b.len()));
    let expected = lengths.next().unwrap_or_default();
    let odd = lengths.find(|&bytes| bytes != expected);
    odd.map_or(Ok(()), |bytes| Err(Error::Length { bytes, expected }))
}
