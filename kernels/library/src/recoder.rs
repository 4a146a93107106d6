//! The relay of a generation, with the payloads of its packets.

use recoded_code::rlnc::{self, Outcome, Random};
use recoded_gf::FieldOrder;

use crate::Error;
use crate::payloads::{Payloads, check_vector, coding};

/// Recodes one generation from the packets received so far, coded or not.
pub struct Recoder {
    coder: rlnc::Recoder,
    random: Random,
    /// Payloads of innovative packets, by slot.
    held: Payloads,
}

impl Recoder {
    /// A recoder of generations of `size` symbols of `symbol_bytes` bytes. Equal seeds give equal
    /// coefficients: use another one for each relay.
    ///
    /// # Errors
    /// `size` is not in 1..=1024, symbols have no bytes, or memory is short.
    pub fn new(size: usize, symbol_bytes: usize, seed: u64) -> Result<Self, Error> {
        let coder = rlnc::Recoder::new(size)?;
        let held = Payloads::new(size, symbol_bytes)?;
        Ok(Self { coder, random: Random::new(seed), held })
    }

    /// Begins the next generation: packets are forgotten.
    ///
    /// # Errors
    /// None in practice: the size was checked at creation.
    pub fn reset(&mut self) -> Result<(), Error> {
        self.coder.reset(self.size())?;
        self.held.clear();
        Ok(())
    }

    /// Symbols of a generation.
    #[must_use]
    pub fn size(&self) -> usize {
        self.coder.size()
    }

    /// Bytes of a symbol.
    #[must_use]
    pub const fn symbol_bytes(&self) -> usize {
        self.held.symbol_bytes()
    }

    /// Innovative packets held.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.coder.rank()
    }

    /// Takes a packet; it is copied if it is innovative. Returns whether it is.
    ///
    /// # Errors
    /// A buffer has the wrong length.
    pub fn add(&mut self, vector: &[u8], symbol: &[u8]) -> Result<bool, Error> {
        check_vector(vector, self.size())?;
        self.held.check(symbol)?;
        match self.coder.insert(coding(vector))? {
            Outcome::Innovative { .. } => self.held.push(symbol),
            Outcome::Redundant => return Ok(false),
        }
        Ok(true)
    }

    /// Writes a random combination of all packets held: its coding vector and its symbol.
    ///
    /// # Errors
    /// A buffer has the wrong length, or no packet is held.
    pub fn take(&mut self, vector: &mut [u8], symbol: &mut [u8]) -> Result<(), Error> {
        check_vector(vector, self.size())?;
        self.held.check(symbol)?;
        let (held, field) = (self.held.rows(), FieldOrder::TwoFiftySix);
        self.coder.recode(field, &mut self.random, &held, vector, &mut [symbol])?;
        Ok(())
    }
}
