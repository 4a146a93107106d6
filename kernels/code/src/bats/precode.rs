//! The precode: parity symbols that every sink knows to be combinations of the source symbols.
//!
//! Batches sampled at random leave a few symbols uncovered. Intermediate symbols obey a number of
//! equations that cost no packets, and those few are then solved from them, as in RaptorQ:
//!
//! ```text
//!  intermediate symbols   | source 0..K | LDPC, S of them | HDPC, H of them |
//!  LDPC symbol  = sum of the source symbols of its row: each is in three rows
//!  HDPC symbol  = random combination of all source and LDPC symbols
//! ```
//!
//! LDPC rows are sparse and often give a symbol away while decoding; HDPC rows are dense and make
//! up for ranks that are missing at the very end. Other than in RFC 6330 parity symbols are
//! computed forward, since batches need not contain source symbols as they are.

use crate::bats::payloads::{Operand, Payloads};
use crate::tinymt32::TinyMt32;

/// LDPC rows that each source symbol takes part in.
const LDPC_DEGREE: usize = 3;

/// Starts the HDPC coefficients. Any value does; it is part of the code.
const HDPC_SEED: u32 = 0x5EED_4D9C;

/// Sources of one call to [`Payloads::combine`].
const SOURCES_MAX: usize = 64;

/// The equations that intermediate symbols obey.
#[derive(Debug, Default)]
pub struct Precode {
    source_symbols: usize,
    ldpc: usize,
    hdpc: usize,
    /// LDPC rows one after the other: source symbols, then the LDPC symbol itself.
    members: Vec<u16>,
    /// Per LDPC row: where its members begin. One more entry than rows.
    starts: Vec<u32>,
    /// HDPC coefficients of source and LDPC symbols, `hdpc` rows.
    dense: Vec<u8>,
}

impl Precode {
    /// The equations of a block.
    pub(super) fn of(source_symbols: usize) -> Self {
        let mut precode = Self::default();
        precode.reset(source_symbols);
        precode
    }

    /// Forms the equations of a block. Allocates only when it grows beyond what it has been before.
    pub(super) fn reset(&mut self, source_symbols: usize) {
        if self.source_symbols == source_symbols {
            return;
        }
        let symbols = source_symbols as f64;
        self.source_symbols = source_symbols;
        self.ldpc = next_prime((0.01 * symbols + (2.0 * symbols).sqrt()).ceil() as usize);
        self.hdpc = (symbols.ln().ceil() as usize).max(5) + 2;
        self.members.clear();
        self.starts.clear();
        self.starts.push(0);
        for row in 0..self.ldpc {
            for symbol in 0..source_symbols {
                if self.rows_of(symbol).contains(&row) {
                    self.members.push(symbol as u16);
                }
            }
            self.members.push((source_symbols + row) as u16);
            self.starts.push(self.members.len() as u32);
        }
        let mut random = TinyMt32::new(HDPC_SEED);
        let count = self.hdpc * (source_symbols + self.ldpc);
        self.dense.clear();
        self.dense.extend((0..count).map(|_| random.next_u32() as u8));
    }

    /// Symbols of the precode.
    pub(super) fn parity_symbols(&self) -> usize {
        self.ldpc + self.hdpc
    }

    /// Symbols in all LDPC rows.
    pub(super) fn members(&self) -> usize {
        self.members.len()
    }

    /// LDPC rows.
    pub(super) fn ldpc(&self) -> usize {
        self.ldpc
    }

    /// HDPC rows.
    pub(super) fn hdpc(&self) -> usize {
        self.hdpc
    }

    /// Intermediate symbols of LDPC row `row`; their sum is zero.
    pub(super) fn ldpc_row(&self, row: usize) -> &[u16] {
        &self.members[self.starts[row] as usize..self.starts[row + 1] as usize]
    }

    /// Coefficients of HDPC row `row`, one for each source and LDPC symbol; their combination is
    /// the HDPC symbol of that row.
    pub(super) fn hdpc_row(&self, row: usize) -> &[u8] {
        let columns = self.source_symbols + self.ldpc;
        &self.dense[row * columns..(row + 1) * columns]
    }

    /// Computes the parity symbols from the source symbols.
    pub(super) fn encode<P: Payloads>(&self, payloads: &mut P) -> Result<(), P::Error> {
        let mut sources = [Operand::Symbol(0); SOURCES_MAX];
        for row in 0..self.ldpc {
            let (own, members) = self.ldpc_row(row).split_last().unwrap_or((&0, &[]));
            // A row of a tiny block may be empty: its symbol is zero.
            let nothing = members.is_empty().then_some(members);
            for (number, group) in members.chunks(SOURCES_MAX).chain(nothing).enumerate() {
                for (source, member) in sources.iter_mut().zip(group) {
                    *source = Operand::Symbol(*member);
                }
                let (sources, out) = (&sources[..group.len()], [Operand::Symbol(*own)]);
                payloads.combine(&[1; SOURCES_MAX][..group.len()], sources, &out, number > 0)?;
            }
        }
        self.encode_dense(payloads)
    }

    fn encode_dense<P: Payloads>(&self, payloads: &mut P) -> Result<(), P::Error> {
        let columns = self.source_symbols + self.ldpc;
        let mut coefficients = [0; HDPC_MAX * SOURCES_MAX];
        let mut sources = [Operand::Symbol(0); SOURCES_MAX];
        let mut outputs = [Operand::Symbol(0); HDPC_MAX];
        for (row, output) in outputs[..self.hdpc].iter_mut().enumerate() {
            *output = Operand::Symbol((columns + row) as u16);
        }
        for first in (0..columns).step_by(SOURCES_MAX) {
            let count = SOURCES_MAX.min(columns - first);
            for (offset, source) in sources[..count].iter_mut().enumerate() {
                *source = Operand::Symbol((first + offset) as u16);
            }
            for (row, out) in coefficients.chunks_exact_mut(count).take(self.hdpc).enumerate() {
                out.copy_from_slice(&self.hdpc_row(row)[first..first + count]);
            }
            let coefficients = &coefficients[..self.hdpc * count];
            let (sources, outputs) = (&sources[..count], &outputs[..self.hdpc]);
            payloads.combine(coefficients, sources, outputs, first > 0)?;
        }
        Ok(())
    }

    /// The LDPC rows of a source symbol, all different because their number is prime.
    fn rows_of(&self, symbol: usize) -> [usize; LDPC_DEGREE] {
        let step = 1 + symbol / self.ldpc % (self.ldpc - 1);
        std::array::from_fn(|nth| (symbol + nth * step) % self.ldpc)
    }
}

/// Most HDPC rows: for the largest block.
pub(super) const HDPC_MAX: usize = 16;

/// The smallest prime from `number` on, and from 5 on, so that three rows exist.
fn next_prime(number: usize) -> usize {
    let is_prime = |n: &usize| (2..).take_while(|d| d * d <= *n).all(|d| !n.is_multiple_of(d));
    (number.max(5)..).find(is_prime).unwrap_or(5)
}
