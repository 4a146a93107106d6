//! The source of a generation, with its symbols.

use recoded_code::rlnc::{self, Packet, Random};
use recoded_gf::FieldOrder;

use crate::Error;
use crate::payloads::{Payloads, check_vector};

/// Encodes one generation over GF(2^8). Packets may be taken while symbols are still being added;
/// they then combine the symbols present.
pub struct Encoder {
    coder: rlnc::Encoder,
    random: Random,
    symbols: Payloads,
}

impl Encoder {
    /// An encoder of generations of `size` symbols of `symbol_bytes` bytes, initially systematic.
    /// Equal seeds give equal coefficients: use another one for each source.
    ///
    /// # Errors
    /// `size` is not in 1..=1024, symbols have no bytes, or memory is short.
    pub fn new(size: usize, symbol_bytes: usize, seed: u64) -> Result<Self, Error> {
        let coder = rlnc::Encoder::new(size, FieldOrder::TwoFiftySix)?;
        let symbols = Payloads::new(size, symbol_bytes)?;
        Ok(Self { coder, random: Random::new(seed), symbols })
    }

    /// Begins the next generation: symbols are forgotten.
    pub fn reset(&mut self) {
        self.coder.reset();
        self.symbols.clear();
    }

    /// Symbols of a generation.
    #[must_use]
    pub fn size(&self) -> usize {
        self.coder.size()
    }

    /// Bytes of a symbol.
    #[must_use]
    pub const fn symbol_bytes(&self) -> usize {
        self.symbols.symbol_bytes()
    }

    /// Symbols added so far.
    #[must_use]
    pub const fn present(&self) -> usize {
        self.symbols.len()
    }

    /// Sets whether each symbol is first sent uncoded; at any time.
    pub fn set_systematic(&mut self, is_systematic: bool) {
        self.coder.set_systematic(is_systematic);
    }

    /// Copies the next source symbol.
    ///
    /// # Errors
    /// [`Error::Length`], or [`Error::Full`] with all symbols present.
    pub fn add(&mut self, symbol: &[u8]) -> Result<(), Error> {
        self.symbols.check(symbol)?;
        if self.present() == self.size() {
            return Err(Error::Full { size: self.size() });
        }
        self.symbols.push(symbol);
        Ok(())
    }

    /// Writes the next packet: its coding vector of [`Encoder::size`] elements, and its symbol.
    ///
    /// # Errors
    /// A buffer has the wrong length, or no symbol is present.
    pub fn take(&mut self, vector: &mut [u8], symbol: &mut [u8]) -> Result<(), Error> {
        check_vector(vector, self.size())?;
        self.symbols.check(symbol)?;
        match self.coder.next(self.present(), &mut self.random, vector)? {
            Packet::Systematic(index) => {
                vector.fill(0);
                vector[index] = 1;
                symbol.copy_from_slice(self.symbols.row(index));
            }
            Packet::Coded => self.coder.encode(&self.symbols.rows(), vector, &mut [symbol])?,
        }
        Ok(())
    }
}
