//! The sink of a generation, with the payloads of its packets.

use recoded_code::rlnc::{self, Outcome};

use crate::Error;
use crate::payloads::{Payloads, check_length, check_vector, coding};

/// Decodes one generation, symbol by symbol as packets determine them.
pub struct Decoder {
    coder: rlnc::Decoder,
    /// Payloads of innovative packets, by slot.
    received: Payloads,
}

impl Decoder {
    /// A decoder of generations of `size` symbols of `symbol_bytes` bytes.
    ///
    /// # Errors
    /// `size` is not in 1..=1024, symbols have no bytes, or memory is short.
    pub fn new(size: usize, symbol_bytes: usize) -> Result<Self, Error> {
        let coder = rlnc::Decoder::new(size)?;
        Ok(Self { coder, received: Payloads::new(size, symbol_bytes)? })
    }

    /// Begins the next generation: packets are forgotten.
    ///
    /// # Errors
    /// None in practice: the size was checked at creation.
    pub fn reset(&mut self) -> Result<(), Error> {
        self.coder.reset(self.size())?;
        self.received.clear();
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
        self.received.symbol_bytes()
    }

    /// Innovative packets received.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.coder.rank()
    }

    /// Decoded symbols.
    #[must_use]
    pub fn decoded(&self) -> usize {
        self.coder.decoded()
    }

    /// Whether all symbols are decoded.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.coder.is_complete()
    }

    /// Whether one symbol is decoded. False beyond the generation.
    #[must_use]
    pub fn is_decoded(&self, symbol: usize) -> bool {
        self.coder.is_decoded(symbol)
    }

    /// Takes a packet; it is copied if it is innovative. Returns whether it is.
    ///
    /// # Errors
    /// A buffer has the wrong length.
    pub fn add(&mut self, vector: &[u8], symbol: &[u8]) -> Result<bool, Error> {
        check_vector(vector, self.size())?;
        self.received.check(symbol)?;
        match self.coder.insert(coding(vector))? {
            Outcome::Innovative { .. } => self.received.push(symbol),
            Outcome::Redundant => return Ok(false),
        }
        Ok(true)
    }

    /// Writes a newly decoded symbol and returns its index, each symbol once; `None` if there is no
    /// other one.
    ///
    /// # Errors
    /// [`Error::Length`].
    pub fn next(&mut self, symbol: &mut [u8]) -> Result<Option<usize>, Error> {
        self.received.check(symbol)?;
        let Some(index) = self.coder.next_decoded() else { return Ok(None) };
        self.restore(&[index], &mut [symbol])?;
        Ok(Some(index))
    }

    /// Writes the symbol of this index.
    ///
    /// # Errors
    /// [`Error::Length`], or the symbol is unknown or not decoded yet.
    pub fn symbol(&mut self, index: usize, symbol: &mut [u8]) -> Result<(), Error> {
        self.received.check(symbol)?;
        let size = self.size();
        if index >= size {
            return Err(rlnc::Error::Index { index, size }.into());
        }
        if !self.is_decoded(index) {
            return Err(rlnc::Error::NotDecoded { symbol: index }.into());
        }
        self.restore(&[index], &mut [symbol])
    }

    /// Writes all source symbols one after another: [`Decoder::size`] times
    /// [`Decoder::symbol_bytes`] bytes.
    ///
    /// # Errors
    /// [`Error::Length`], or a symbol is not decoded yet.
    pub fn decode(&mut self, data: &mut [u8]) -> Result<(), Error> {
        let (size, symbol_bytes) = (self.size(), self.symbol_bytes());
        check_length(data.len(), size * symbol_bytes)?;
        if let Some(symbol) = (0..size).find(|&symbol| !self.is_decoded(symbol)) {
            return Err(rlnc::Error::NotDecoded { symbol }.into());
        }
        let all: Vec<usize> = (0..size).collect();
        let mut places: Vec<&mut [u8]> = data.chunks_exact_mut(symbol_bytes).collect();
        self.restore(&all, &mut places)
    }

    /// Copies symbols that arrived as they are, and computes the others; all are decoded.
    fn restore(&mut self, symbols: &[usize], places: &mut [&mut [u8]]) -> Result<(), Error> {
        let (mut missing, mut destinations) = (Vec::new(), Vec::new());
        for (&symbol, place) in symbols.iter().zip(places) {
            match self.coder.arrived(symbol) {
                Some(slot) => place.copy_from_slice(self.received.row(slot)),
                None => {
                    missing.push(symbol);
                    destinations.push(&mut **place);
                }
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        self.coder.restore(&missing, &self.received.rows(), &mut destinations)?;
        Ok(())
    }
}
