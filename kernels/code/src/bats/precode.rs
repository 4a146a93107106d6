//! The precode: parity symbols, which are known combinations of the source symbols.
//!
//! Batches sampled at random leave a few symbols uncovered. Intermediate symbols obey a number of
//! equations that cost no packets and determine those few, as in RaptorQ:
//!
//! ```text
//!  intermediate symbols   | source 0..K | LDPC, S of them | HDPC, H of them |
//!  LDPC symbol  = sum of the source symbols of its row: each is in three rows
//!  HDPC symbol  = random combination of all source and LDPC symbols
//! ```
//!
//! LDPC rows are sparse and often yield a symbol while decoding; HDPC rows are dense and make up
//! for ranks missing at the very end. Unlike in RFC 6330, parity symbols are computed forward,
//! since batches need not contain uncoded source symbols.

use crate::bats::payloads::{Operand, Payloads};
use crate::tinymt32::TinyMt32;

/// LDPC rows that each source symbol takes part in.
const LDPC_DEGREE: usize = 3;

/// Seeds the HDPC coefficients. Any value works; it is part of the code.
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

    /// Forms the equations of a block. Allocates only to grow beyond its largest size so far.
    pub(super) fn reset(&mut self, source_symbols: usize) {
        if self.source_symbols == source_symbols {
            return;
        }
        let symbols = source_symbols as f64;
        self.source_symbols = source_symbols;
        self.ldpc = next_prime((0.01 * symbols + (2.0 * symbols).sqrt()).ceil() as usize);
        self.hdpc = (symbols.ln().ceil() as usize).max(5) + 2;
        self.place_members();
        // Rows of any block are a prefix of the same sequence, so a shorter block needs no new
        // ones.
        let count = self.hdpc * (source_symbols + self.ldpc);
        if self.dense.len() < count {
            let mut random = TinyMt32::new(HDPC_SEED);
            self.dense.clear();
            self.dense.extend((0..count).map(|_| random.next_u32() as u8));
        }
    }

    /// Lists the members of all LDPC rows, in time proportional to their number: consecutive blocks
    /// may differ in size.
    fn place_members(&mut self) {
        self.starts.clear();
        self.starts.resize(self.ldpc + 1, 0);
        for symbol in 0..self.source_symbols {
            for row in self.rows_of(symbol) {
                self.starts[row] += 1;
            }
        }
        // The present end of each row: starts at its beginning and advances with each member.
        let mut end = 0;
        for start in &mut self.starts {
            let members = *start + 1;
            *start = end;
            end += members;
        }
        self.members.clear();
        self.members.resize(end as usize - 1, 0);
        for symbol in 0..self.source_symbols {
            for row in self.rows_of(symbol) {
                self.members[self.starts[row] as usize] = symbol as u16;
                self.starts[row] += 1;
            }
        }
        let mut first = 0;
        for row in 0..self.ldpc {
            let last = self.starts[row];
            self.members[last as usize] = (self.source_symbols + row) as u16;
            self.starts[row] = first;
            first = last + 1;
        }
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

    /// Steps that compute the parity symbols: one for each LDPC row, then one for every
    /// [`SOURCES_MAX`] columns of all HDPC rows.
    pub(super) fn steps(&self) -> usize {
        self.ldpc + (self.source_symbols + self.ldpc).div_ceil(SOURCES_MAX)
    }

    /// Does one step after all earlier ones. Returns the number of symbol products.
    pub(super) fn encode<P: Payloads>(
        &self,
        step: usize,
        payloads: &mut P,
    ) -> Result<usize, P::Error> {
        match step.checked_sub(self.ldpc) {
            None => self.encode_sparse(step, payloads),
            Some(group) => self.encode_dense(group * SOURCES_MAX, payloads),
        }
    }

    fn encode_sparse<P: Payloads>(&self, row: usize, payloads: &mut P) -> Result<usize, P::Error> {
        let mut sources = [Operand::Symbol(0); SOURCES_MAX];
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
        Ok(members.len())
    }

    /// The products of one combination's columns, from `first` on.
    fn encode_dense<P: Payloads>(&self, first: usize, payloads: &mut P) -> Result<usize, P::Error> {
        let columns = self.source_symbols + self.ldpc;
        let mut coefficients = [0; HDPC_MAX * SOURCES_MAX];
        let mut sources = [Operand::Symbol(0); SOURCES_MAX];
        let mut outputs = [Operand::Symbol(0); HDPC_MAX];
        for (row, output) in outputs[..self.hdpc].iter_mut().enumerate() {
            *output = Operand::Symbol((columns + row) as u16);
        }
        let count = SOURCES_MAX.min(columns - first);
        for (offset, source) in sources[..count].iter_mut().enumerate() {
            *source = Operand::Symbol((first + offset) as u16);
        }
        for (row, out) in coefficients.chunks_exact_mut(count).take(self.hdpc).enumerate() {
            out.copy_from_slice(&self.hdpc_row(row)[first..first + count]);
        }
        let coefficients = &coefficients[..self.hdpc * count];
        payloads.combine(coefficients, &sources[..count], &outputs[..self.hdpc], first > 0)?;
        Ok(count * self.hdpc)
    }

    /// The LDPC rows of a source symbol, all different because their number is prime.
    fn rows_of(&self, symbol: usize) -> [usize; LDPC_DEGREE] {
        let step = 1 + symbol / self.ldpc % (self.ldpc - 1);
        std::array::from_fn(|nth| (symbol + nth * step) % self.ldpc)
    }
}

/// Most HDPC rows: for the largest block.
pub(super) const HDPC_MAX: usize = 16;

/// The smallest prime that is at least `number` and at least 5, so that three rows exist.
fn next_prime(number: usize) -> usize {
    let is_prime = |n: &usize| (2..).take_while(|d| d * d <= *n).all(|d| !n.is_multiple_of(d));
    (number.max(5)..).find(is_prime).unwrap_or(5)
}
