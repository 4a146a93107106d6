//! Storage of payloads: the caller owns the bytes.

use recoded_gf::Kernel;

/// A row of payload bytes that the caller holds.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Operand {
    /// The payload of an innovative packet, by slot.
    Received(u32),
    /// An intermediate symbol; source symbols are the first.
    Symbol(u16),
    /// An intermediate result, below the limit of inactive symbols.
    Spare(u16),
}

/// Rows of equal length, multiplied in place.
///
/// Every call has at most 64 sources and 128 destinations; no row is both.
pub trait Payloads {
    /// The error for an unavailable row, for example because frames ran out.
    type Error;

    /// Computes `destinations = coefficients * sources`; with `accumulate`, adds to the
    /// destinations. `coefficients` is row-major with one row per destination. A destination that
    /// is not accumulated to may be new.
    ///
    /// # Errors
    /// Any failure. Destinations are then unchanged or computed.
    fn combine(
        &mut self,
        coefficients: &[u8],
        sources: &[Operand],
        destinations: &[Operand],
        accumulate: bool,
    ) -> Result<(), Self::Error>;
}

/// Payload rows on the heap: for tests, benchmarks and programs without frames of their own.
pub struct Rows {
    kernel: &'static Kernel,
    symbol_bytes: usize,
    rows: [Vec<Vec<u8>>; 3],
}

impl Rows {
    /// No rows of `symbol_bytes` bytes.
    #[must_use]
    pub fn new(symbol_bytes: usize) -> Self {
        Self { kernel: Kernel::best(), symbol_bytes, rows: Default::default() }
    }

    /// The row of an operand, if it was ever written.
    #[must_use]
    pub fn get(&self, operand: Operand) -> Option<&[u8]> {
        let (kind, index) = place(operand);
        self.rows[kind].get(index).filter(|row| !row.is_empty()).map(Vec::as_slice)
    }

    /// Writes the row of an operand.
    ///
    /// # Panics
    /// When `bytes` has another length than the rows.
    pub fn set(&mut self, operand: Operand, bytes: &[u8]) {
        self.take(operand);
        self.put(operand, bytes.to_vec());
        assert_eq!(bytes.len(), self.symbol_bytes, "a row of another length");
    }

    /// Removes a row; returns zeros if there was none.
    fn take(&mut self, operand: Operand) -> Vec<u8> {
        let (kind, index) = place(operand);
        let rows = &mut self.rows[kind];
        if rows.len() <= index {
            rows.resize_with(index + 1, Vec::new);
        }
        let mut row = std::mem::take(&mut rows[index]);
        row.resize(self.symbol_bytes, 0);
        row
    }

    fn put(&mut self, operand: Operand, row: Vec<u8>) {
        let (kind, index) = place(operand);
        self.rows[kind][index] = row;
    }
}

impl Payloads for Rows {
    type Error = std::convert::Infallible;

    fn combine(
        &mut self,
        coefficients: &[u8],
        sources: &[Operand],
        destinations: &[Operand],
        accumulate: bool,
    ) -> Result<(), Self::Error> {
        let mut outputs: Vec<Vec<u8>> =
            destinations.iter().map(|&destination| self.take(destination)).collect();
        let empty = vec![0; self.symbol_bytes];
        let inputs: Vec<&[u8]> =
            sources.iter().map(|&source| self.get(source).unwrap_or(&empty)).collect();
        let mut views: Vec<&mut [u8]> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
        if accumulate {
            self.kernel.matmul_accumulate(coefficients, &inputs, &mut views);
        } else {
            self.kernel.matmul(coefficients, &inputs, &mut views);
        }
        for (&destination, row) in destinations.iter().zip(outputs) {
            self.put(destination, row);
        }
        Ok(())
    }
}

fn place(operand: Operand) -> (usize, usize) {
    match operand {
        Operand::Received(slot) => (0, slot as usize),
        Operand::Symbol(symbol) => (1, usize::from(symbol)),
        Operand::Spare(spare) => (2, usize::from(spare)),
    }
}
