//! Gibraltar's interface: Reed-Solomon stripes by a device, with the CPU behind it (Curry,
//! Skjellum, Ward, Brightwell: "Gibraltar: a Reed-Solomon coding library for storage applications
//! on programmable graphics processors", 2011, appendix A).
//!
//! | Gibraltar | here |
//! |---|---|
//! | `gib_init`, `gib_destroy` | [`Context::new`], [`Context::on`]; dropping it |
//! | `gib_alloc`, `gib_free` | [`Context::alloc`]; dropping [`Buffers`] |
//! | `gib_generate` | [`Context::generate`], [`Context::generate_all`] |
//! | `gib_recover` | [`Context::recover`], [`Context::recover_all`] |
//!
//! Buffers lie end to end, `ld` ([`Buffers::stride`]) bytes apart, in memory that a device pins
//! when it first sees it, so that nothing is copied on the host. The arithmetic is that of
//! [`recoded_code::reed_solomon`].
//!
//! ```
//! use recoded_offload::gibraltar::Context;
//!
//! let mut context = Context::new(3, 2)?;
//! let mut buffers = context.alloc(5)?;
//! for (row, bytes) in [b"first", b"other", b"third"].into_iter().enumerate() {
//!     buffers.row_mut(row).copy_from_slice(bytes);
//! }
//! context.generate(&mut buffers)?;
//!
//! // Data buffers 0 and 2 are lost. What is left goes to the first places, in any order: parity 4,
//! // data 1, parity 3. What is wanted goes behind: 2, then 0.
//! let mut rest = context.alloc(5)?;
//! for (place, id) in [4, 1, 3].into_iter().enumerate() {
//!     rest.row_mut(place).copy_from_slice(buffers.row(id));
//! }
//! context.recover(&mut rest, &[4, 1, 3, 2, 0])?;
//! assert_eq!((rest.row(3), rest.row(4)), (&b"third"[..], &b"first"[..]));
//! # Ok::<(), recoded_offload::gibraltar::Error>(())
//! ```

use recoded_code::engine::{self, Bundle, Cpu, Job, Operation, Partition, Rejected};
use recoded_code::reed_solomon::{self, ReedSolomon};

use crate::device::{By, Device};

/// The reason why a stripe was not coded; its buffers are unchanged.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// There is no such code, or the ids contradict it.
    #[error(transparent)]
    Code(#[from] reed_solomon::Error),
    /// The buffers have a size that no bundle supports, or belong to another code.
    #[error(transparent)]
    Buffers(#[from] Rejected),
    /// The buffers were allocated for another code.
    #[error("buffers of a code {data}+{parity}")]
    OtherCode {
        /// Their data buffers.
        data: usize,
        /// Their parity buffers.
        parity: usize,
    },
    /// No threads for the CPU's part.
    #[error(transparent)]
    Cpu(#[from] engine::Error),
}

/// One code k+m, for any number of stripes.
pub struct Context {
    code: ReedSolomon,
    cpu: Cpu,
    device: Option<Device>,
}

/// The k + m buffers of one stripe.
#[derive(Debug)]
pub struct Buffers {
    bundle: Bundle,
    data: usize,
    parity: usize,
    bytes: usize,
}

impl Context {
    /// The code of `data` data and `parity` parity buffers, on all cores of this CPU.
    ///
    /// # Errors
    /// There is no such code, or there are no threads.
    pub fn new(data: usize, parity: usize) -> Result<Self, Error> {
        let (code, cpu) =
            (ReedSolomon::new(data, parity)?, Cpu::new(0, Partition::PartitionedBlock)?);
        Ok(Self { code, cpu, device: None })
    }

    /// The same on a device, which may compile code for just this one, and on the CPU if the device
    /// does not work or is slower.
    ///
    /// # Errors
    /// As [`Context::new`].
    pub fn on(device: Device, data: usize, parity: usize) -> Result<Self, Error> {
        let context = Self::new(data, parity)?;
        device.expect(context.code.generator(), data);
        Ok(Self { device: Some(device), ..context })
    }

    /// k + m buffers of `bytes` bytes each.
    ///
    /// # Errors
    /// `bytes` is zero or above 2^30.
    pub fn alloc(&self, bytes: usize) -> Result<Buffers, Error> {
        let (data, parity) = (self.code.data(), self.code.parity());
        let bundle = Bundle::of(Job::new(Operation::Multiply, parity, data, bytes))?;
        Ok(Buffers { bundle, data, parity, bytes })
    }

    /// Computes the m parity buffers from the k data buffers before them.
    ///
    /// # Errors
    /// The buffers belong to another code.
    pub fn generate(&mut self, buffers: &mut Buffers) -> Result<By, Error> {
        let all = std::slice::from_mut(buffers);
        Ok(self.generate_all(all)?.first().copied().unwrap_or(By::Cpu))
    }

    /// The same for many stripes: copies of one overlap the work on another.
    ///
    /// # Errors
    /// Some buffers belong to another code; none were changed.
    pub fn generate_all(&mut self, stripes: &mut [Buffers]) -> Result<Vec<By>, Error> {
        stripes.iter().try_for_each(|buffers| self.check(buffers))?;
        for buffers in stripes.iter_mut() {
            buffers.fit(self.code.parity(), self.code.generator())?;
        }
        Ok(self.run(stripes))
    }

    /// Computes lost buffers. The first k places hold intact ones, data or parity, in any order;
    /// the `ids` of those come first, then those of the lost ones, which are computed into the
    /// places from k on. At most m can be named, and fewer may be; places behind those may hold
    /// anything afterwards.
    ///
    /// # Errors
    /// Ids contradict each other or the code; nothing was changed.
    pub fn recover(&mut self, buffers: &mut Buffers, ids: &[usize]) -> Result<By, Error> {
        let all = std::slice::from_mut(buffers);
        Ok(self.recover_all(all, ids)?.first().copied().unwrap_or(By::Cpu))
    }

    /// The same for many stripes that lost the same buffers, as after a disk failure: copies of one
    /// overlap the work on another.
    ///
    /// # Errors
    /// As [`Context::recover`], or some buffers belong to another code; none were changed.
    pub fn recover_all(
        &mut self,
        stripes: &mut [Buffers],
        ids: &[usize],
    ) -> Result<Vec<By>, Error> {
        stripes.iter().try_for_each(|buffers| self.check(buffers))?;
        let (data, parity) = (self.code.data(), self.code.parity());
        let (intact, lost) = ids.split_at(data.min(ids.len()));
        if lost.len() > parity {
            let buffers = data + parity;
            return Err(reed_solomon::Error::Ids { ids: ids.len(), buffers }.into());
        }
        let recovery = self.code.recovery(intact, lost)?;
        if lost.is_empty() {
            return Ok(vec![By::Cpu; stripes.len()]);
        }
        for buffers in stripes.iter_mut() {
            buffers.fit(lost.len(), recovery)?;
        }
        Ok(self.run(stripes))
    }

    fn check(&self, buffers: &Buffers) -> Result<(), Error> {
        let &Buffers { data, parity, .. } = buffers;
        let is_same = data == self.code.data() && parity == self.code.parity();
        if is_same { Ok(()) } else { Err(Error::OtherCode { data, parity }) }
    }

    fn run(&self, stripes: &mut [Buffers]) -> Vec<By> {
        let Some(device) = &self.device else {
            stripes.iter_mut().for_each(|buffers| self.cpu.run(&mut buffers.bundle));
            return vec![By::Cpu; stripes.len()];
        };
        let lend =
            |buffers: &mut Buffers| std::mem::replace(&mut buffers.bundle, Bundle::new(0, 0, 0));
        let bundles = stripes.iter_mut().map(lend).collect();
        let done = device.run(bundles, &self.cpu).into_iter().zip(stripes);
        done.map(|((bundle, by), buffers)| {
            buffers.bundle = bundle;
            by
        })
        .collect()
    }
}

impl Buffers {
    /// A buffer by its place: data first, then parity, except as rearranged for
    /// [`Context::recover`].
    ///
    /// # Panics
    /// When there is no such place.
    #[must_use]
    pub fn row(&self, place: usize) -> &[u8] {
        match place.checked_sub(self.data) {
            None => self.bundle.source(0, place),
            Some(row) => &self.bundle.output()[self.parity_start(row)..][..self.bytes],
        }
    }

    /// A buffer by its place, for writing.
    ///
    /// # Panics
    /// When there is no such place.
    pub fn row_mut(&mut self, place: usize) -> &mut [u8] {
        match place.checked_sub(self.data) {
            None => self.bundle.source_mut(0, place),
            Some(row) => {
                let (start, bytes) = (self.parity_start(row), self.bytes);
                &mut self.bundle.output_mut()[start..][..bytes]
            }
        }
    }

    /// Bytes of a buffer.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes from the start of a buffer to that of the next, Gibraltar's `ld`.
    #[must_use]
    pub fn stride(&self) -> usize {
        self.bundle.jobs()[0].job.stride()
    }

    fn parity_start(&self, row: usize) -> usize {
        let placed = &self.bundle.jobs()[0];
        assert!(row < self.parity, "buffer {} of {}", self.data + row, self.data + self.parity);
        placed.destinations + row * placed.job.stride()
    }

    /// Prepares a product of `rows` rows with these coefficients. Data stays in place.
    fn fit(&mut self, rows: usize, coefficients: &[u8]) -> Result<(), Rejected> {
        self.bundle.refit(Job::new(Operation::Multiply, rows, self.data, self.bytes), 0)?;
        self.bundle.set_coefficients(0, coefficients);
        Ok(())
    }
}
