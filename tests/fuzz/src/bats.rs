//! BATS: any packets of any batches, in any order, with payload operations that sometimes fail.

use recoded_code::bats::{
    Batch, Code, Decoder, Gain, Limits, Operand, Params, Payloads, Profile, Rejected, Rows,
};
use recoded_gf::Kernel;

use crate::Input;

const SYMBOL_BYTES: usize = 4;
const SOURCE_SYMBOLS_MAX: usize = 80;
const BATCH_SIZE_MAX: usize = 20;

/// Rows that fail to be written when the script decides.
struct Flaky<'a> {
    rows: &'a mut Rows,
    left: u32,
}

impl Payloads for Flaky<'_> {
    type Error = ();

    fn combine(
        &mut self,
        coefficients: &[u8],
        sources: &[Operand],
        destinations: &[Operand],
        accumulate: bool,
    ) -> Result<(), ()> {
        // A row that exists already can always be written.
        if destinations.iter().any(|&row| self.rows.get(row).is_none()) {
            self.left = self.left.checked_sub(1).ok_or(())?;
        }
        let Ok(()) = self.rows.combine(coefficients, sources, destinations, accumulate);
        Ok(())
    }
}

struct Run {
    code: Code,
    decoder: Decoder,
    /// Intermediate symbols, as the source has them.
    source: Rows,
    /// Rows held by the sink.
    sink: Rows,
    known: Vec<bool>,
    batch: Batch,
}

/// Limits and parameters, then operations.
pub fn target(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let limits = Limits {
        source_symbols_max: 1 + input.below(SOURCE_SYMBOLS_MAX),
        batch_size_max: 1 + input.below(BATCH_SIZE_MAX),
        batches_max: 1 + input.below(40),
        inactive_max: input.below(100),
    };
    let Ok(mut run) = Run::new(limits, &mut input) else {
        return;
    };
    while !input.is_empty() {
        run.step(&mut input);
    }
    run.advance(u32::MAX);
}

fn params(input: &mut Input<'_>) -> Params {
    Params {
        source_symbols: input.below(SOURCE_SYMBOLS_MAX + 2),
        batch_size: input.below(BATCH_SIZE_MAX + 2),
        profile: Profile::from_code(input.byte() % 3).expect("three profiles"),
        generator_bits: [1, 2, 3, 4, 8, 5][input.below(6)],
    }
}

/// Distinguishable symbols, and the parity that a precode adds.
fn source(code: &Code) -> Rows {
    let mut rows = Rows::new(SYMBOL_BYTES);
    for symbol in 0..code.params().source_symbols as u16 {
        let word = (u32::from(symbol) + 1).wrapping_mul(0x9E37_79B1);
        rows.set(Operand::Symbol(symbol), &word.to_be_bytes());
    }
    let Ok(()) = code.precode_symbols(&mut rows);
    rows
}

impl Run {
    fn new(limits: Limits, input: &mut Input<'_>) -> Result<Self, ()> {
        let params = params(input);
        let mut decoder = Decoder::new(limits);
        decoder.reset(params).map_err(drop)?;
        let code = Code::new(params).expect("parameters that a decoder took");
        Ok(Self {
            source: source(&code),
            sink: Rows::new(SYMBOL_BYTES),
            known: vec![false; params.source_symbols],
            batch: Batch::new(),
            code,
            decoder,
        })
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let size = self.code.params().batch_size;
        match input.below(8) {
            0..=2 => {
                let id = u16::from(input.byte() % 32);
                for row in (0..size).take(1 + input.below(size)) {
                    let mut vector = vec![0; size];
                    vector[row] = 1;
                    self.insert(id, &vector);
                }
            }
            3 | 4 => {
                let id = u16::from(input.byte() % 32);
                self.insert(id, &input.filled(size));
            }
            5 => {
                let (id, length) = (input.u16(), input.below(BATCH_SIZE_MAX + 2));
                self.insert(id, &input.filled(length));
            }
            6 => self.advance(u32::from(input.byte())),
            _ => self.restart(input),
        }
    }

    /// Another block, which reuses batch ids with arbitrary parameters.
    fn restart(&mut self, input: &mut Input<'_>) {
        if input.byte() & 7 != 0 {
            return;
        }
        let params = params(input);
        if self.decoder.reset(params).is_ok() {
            self.code = Code::new(params).expect("parameters that a decoder took");
            self.source = source(&self.code);
            self.sink = Rows::new(SYMBOL_BYTES);
            self.known = vec![false; params.source_symbols];
        }
    }

    fn insert(&mut self, id: u16, vector: &[u8]) {
        let (rank, missing) = (self.decoder.rank(), self.decoder.missing());
        match self.decoder.insert(id, vector) {
            Ok(Gain::Innovative { slot }) => {
                assert_eq!(slot as usize, rank);
                let payload = self.payload(id, vector);
                self.sink.set(Operand::Received(slot), &payload);
            }
            Ok(Gain::Redundant) => assert_eq!(self.decoder.rank(), rank),
            Err(Rejected::VectorLength { elements, batch_size }) => {
                assert!(elements == vector.len() && elements != batch_size);
            }
            Err(Rejected::TooManyBatches { max }) => {
                assert_eq!((self.decoder.batches(), self.decoder.missing()), (max, missing));
            }
        }
    }

    /// Payload of a packet with this coding vector.
    fn payload(&mut self, id: u16, vector: &[u8]) -> Vec<u8> {
        self.code.batch(id, &mut self.batch);
        let degree = self.batch.degree();
        let mut factors = vec![0; degree];
        Kernel::best().reduce(&mut factors, vector, self.batch.generator(), degree);
        let mut payload = vec![0; SYMBOL_BYTES];
        for (&factor, &symbol) in factors.iter().zip(self.batch.indices()) {
            let row = self.source.get(Operand::Symbol(symbol)).expect("a symbol of the block");
            Kernel::best().madd(&mut payload, factor, row);
        }
        payload
    }

    /// Decodes, with room for `left` rows; every result must equal the source.
    fn advance(&mut self, left: u32) {
        let Self { decoder, sink, known, .. } = self;
        let mut payloads = Flaky { rows: sink, left };
        let result = decoder.advance(&mut payloads, |symbol| {
            assert!(!std::mem::replace(&mut known[usize::from(symbol)], true), "{symbol} twice");
        });
        assert!(result.is_ok() || left != u32::MAX);
        for (symbol, &is_known) in self.known.iter().enumerate() {
            let operand = Operand::Symbol(symbol as u16);
            if is_known {
                assert_eq!(self.sink.get(operand), self.source.get(operand), "symbol {symbol}");
            }
            assert!(is_known || result.is_err() || !self.decoder.is_decoded(symbol));
        }
        if self.decoder.is_complete() {
            assert!(self.known.iter().all(|&known| known));
            assert_eq!(self.decoder.missing(), 0);
        }
    }
}
