//! The sink of a generation.

use crate::Elimination;
use crate::rlnc::{
    Coding, Error, GROUP, Outcome, SIZE_LIMIT, check_lengths, check_payloads, check_size, insert,
    multiply,
};

/// Decodes one generation, symbol by symbol as packets determine them. It keeps coefficients; the
/// caller keeps the payloads of innovative packets by slot.
pub struct Decoder {
    size_max: usize,
    elimination: Elimination,
    /// Coefficients over slots, one group of rows.
    rows: Box<[u8]>,
    /// Per symbol: the slot of its uncoded packet, or [`NO_SLOT`].
    arrived: Box<[u16]>,
    /// Per symbol: whether [`Decoder::next_decoded`] has returned it.
    is_named: Box<[bool]>,
    named: usize,
    /// Symbols before this one are returned or were not decoded when it was set.
    scan: usize,
    redundant: u64,
}

impl Decoder {
    /// A decoder of generations of up to `size_max` symbols, reset to that size. Takes about
    /// `size_max^2` bytes.
    ///
    /// # Errors
    /// [`Error::Size`] unless `size_max` is in 1..=1024.
    pub fn new(size_max: usize) -> Result<Self, Error> {
        check_size(size_max, SIZE_LIMIT)?;
        Ok(Self {
            size_max,
            elimination: Elimination::new(size_max),
            rows: vec![0; GROUP * size_max].into_boxed_slice(),
            arrived: vec![NO_SLOT; size_max].into_boxed_slice(),
            is_named: vec![false; size_max].into_boxed_slice(),
            named: 0,
            scan: 0,
            redundant: 0,
        })
    }

    /// Clears the state and starts a generation of `size` symbols.
    ///
    /// # Errors
    /// [`Error::Size`] unless there is room for it.
    pub fn reset(&mut self, size: usize) -> Result<(), Error> {
        check_size(size, self.size_max)?;
        self.elimination.reset(size);
        self.arrived.fill(NO_SLOT);
        self.is_named.fill(false);
        (self.named, self.scan, self.redundant) = (0, 0, 0);
        Ok(())
    }

    /// Processes a packet's coding. If it is innovative, the caller keeps the payload at the slot
    /// in the outcome, and may query [`Decoder::next_decoded`] for newly determined symbols.
    ///
    /// # Errors
    /// [`Error::Index`] and [`Error::VectorLength`].
    pub fn insert(&mut self, coding: Coding<'_>) -> Result<Outcome, Error> {
        let outcome = insert(&mut self.elimination, coding)?;
        match (outcome, coding) {
            (Outcome::Redundant, _) => self.redundant += 1,
            (Outcome::Innovative { slot, .. }, Coding::Systematic(index)) => {
                self.arrived[index] = slot as u16;
                self.scan = 0;
            }
            (Outcome::Innovative { .. }, Coding::Vector(_)) => self.scan = 0,
        }
        Ok(outcome)
    }

    /// Symbols of the generation.
    #[must_use]
    pub fn size(&self) -> usize {
        self.elimination.size()
    }

    /// Innovative packets held: degrees of freedom.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.elimination.rank()
    }

    /// Packets of this generation that were not innovative.
    #[must_use]
    pub fn redundant(&self) -> u64 {
        self.redundant
    }

    /// Degrees of freedom still needed.
    #[must_use]
    pub fn missing(&self) -> usize {
        self.size() - self.rank()
    }

    /// Decoded symbols.
    #[must_use]
    pub fn decoded(&self) -> usize {
        self.elimination.decoded()
    }

    /// Partially decoded symbols: seen, yet mixed with others.
    #[must_use]
    pub fn partially_decoded(&self) -> usize {
        self.rank() - self.decoded()
    }

    /// Whether every symbol is decoded.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.elimination.is_complete()
    }

    /// Whether the packets held determine `symbol`. False beyond the generation.
    #[must_use]
    pub fn is_decoded(&self, symbol: usize) -> bool {
        self.elimination.is_decoded(symbol)
    }

    /// Whether `symbol` is seen: the packets held give it as a combination of later symbols
    /// (RFC 8406). False beyond the generation.
    #[must_use]
    pub fn is_seen(&self, symbol: usize) -> bool {
        self.elimination.is_seen(symbol)
    }

    /// The next newly decoded symbol: each is returned once.
    pub fn next_decoded(&mut self) -> Option<usize> {
        if self.named == self.elimination.decoded() {
            return None;
        }
        let waiting = |&symbol: &usize| !self.is_named[symbol] && self.is_decoded(symbol);
        let symbol = (self.scan..self.size()).find(waiting)?;
        self.is_named[symbol] = true;
        self.named += 1;
        self.scan = symbol + 1;
        Some(symbol)
    }

    /// The slot whose payload is `symbol` itself, because the packet was systematic: no need to
    /// restore it.
    #[must_use]
    pub fn arrived(&self, symbol: usize) -> Option<usize> {
        let slot = *self.arrived.get(symbol)?;
        (slot != NO_SLOT).then_some(usize::from(slot))
    }

    /// Computes decoded `symbols` from the payloads of innovative packets (by slot,
    /// [`Decoder::rank`] of them) into `destinations`.
    ///
    /// # Errors
    /// [`Error::Payloads`], [`Error::SymbolBytes`]; [`Error::NotDecoded`] of a symbol. No
    /// destination is written then.
    pub fn restore(
        &mut self,
        symbols: &[usize],
        payloads: &[&[u8]],
        destinations: &mut [&mut [u8]],
    ) -> Result<(), Error> {
        let rank = self.rank();
        check_payloads(payloads.len(), rank)?;
        check_payloads(destinations.len(), symbols.len())?;
        check_lengths(payloads, destinations)?;
        if let Some(&symbol) = symbols.iter().find(|&&symbol| !self.is_decoded(symbol)) {
            return Err(Error::NotDecoded { symbol });
        }
        for (symbols, destinations) in symbols.chunks(GROUP).zip(destinations.chunks_mut(GROUP)) {
            let rows = &mut self.rows[..symbols.len() * rank];
            for (&symbol, row) in symbols.iter().zip(rows.chunks_exact_mut(rank)) {
                let solved = self.elimination.solution(symbol, row);
                solved.ok_or(Error::NotDecoded { symbol })?;
            }
            multiply(rows, payloads, destinations);
        }
        Ok(())
    }
}

/// In `arrived`: no uncoded packet of the symbol arrived.
const NO_SLOT: u16 = u16::MAX;
