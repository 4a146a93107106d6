//! Reed-Solomon codes that several threads share.

use std::sync::{Mutex, PoisonError};

use recoded_code::reed_solomon::{Error as CodeError, ReedSolomon as Code};
use recoded_gf::Kernel;

use crate::Error;
use crate::payloads::check_length;

/// One code k+m for any number of stripes, on any number of threads at once.
pub struct ReedSolomon {
    encoding: Code,
    /// Held while coefficients are computed, not while buffers are multiplied.
    recovery: Mutex<Code>,
}

impl ReedSolomon {
    /// The code of `data` data and `parity` parity buffers. Takes up to 256 kB.
    ///
    /// # Errors
    /// Either number is zero or their sum exceeds 256.
    pub fn new(data: usize, parity: usize) -> Result<Self, Error> {
        let encoding = Code::new(data, parity)?;
        Ok(Self { encoding, recovery: Mutex::new(Code::new(data, parity)?) })
    }

    /// Data buffers: k.
    #[must_use]
    pub const fn data(&self) -> usize {
        self.encoding.data()
    }

    /// Parity buffers: m.
    #[must_use]
    pub const fn parity(&self) -> usize {
        self.encoding.parity()
    }

    /// Computes all m parity buffers from all k data buffers, both in the order of their ids.
    ///
    /// # Errors
    /// The number of buffers is wrong or their lengths differ.
    pub fn encode(&self, data: &[&[u8]], parity: &mut [&mut [u8]]) -> Result<(), Error> {
        Ok(self.encoding.generate(data, parity)?)
    }

    /// Computes the buffers `lost` from k buffers `intact`, data and parity alike. `ids` lists
    /// those of the intact ones, then those of the lost ones, each in the order given: data buffers
    /// are 0 to k - 1, parity buffers k to k + m - 1.
    ///
    /// # Errors
    /// Ids or lengths contradict each other or the code.
    pub fn recover(
        &self,
        ids: &[usize],
        intact: &[&[u8]],
        lost: &mut [&mut [u8]],
    ) -> Result<(), Error> {
        let (data, buffers) = (self.data(), intact.len() + lost.len());
        if ids.len() != buffers {
            return Err(CodeError::Ids { ids: ids.len(), buffers }.into());
        }
        let (intact_ids, lost_ids) = ids.split_at(intact.len());
        let coefficients = {
            // A panic leaves no state behind: every call overwrites it before it reads it.
            let mut code = self.recovery.lock().unwrap_or_else(PoisonError::into_inner);
            code.recovery(intact_ids, lost_ids)?.to_vec()
        };
        let expected = intact.first().map_or(0, |buffer| buffer.len());
        let lengths = intact.iter().map(|it| it.len()).chain(lost.iter().map(|it| it.len()));
        for found in lengths {
            check_length(found, expected)?;
        }
        if !lost.is_empty() {
            Kernel::best().matmul(&coefficients, &intact[..data], lost);
        }
        Ok(())
    }
}
