//! Symbols of one length in one allocation, by slot.

use recoded_gf::Kernel;

/// Sources of one multiply, so that their list lives on the stack.
const SOURCES: usize = 32;

/// A ring's worth of symbols. Its memory never changes.
pub(super) struct Slab {
    symbol_bytes: usize,
    bytes: Box<[u8]>,
}

impl Slab {
    pub fn new(slots: usize, symbol_bytes: usize) -> Self {
        Self { symbol_bytes, bytes: vec![0; slots * symbol_bytes].into_boxed_slice() }
    }

    /// Changes the symbol length, up to that of `new`; all symbols are cleared.
    pub fn reshape(&mut self, symbol_bytes: usize) {
        self.symbol_bytes = symbol_bytes;
    }

    pub fn symbol(&self, slot: usize) -> &[u8] {
        &self.bytes[slot * self.symbol_bytes..][..self.symbol_bytes]
    }

    pub fn symbol_mut(&mut self, slot: usize) -> &mut [u8] {
        &mut self.bytes[slot * self.symbol_bytes..][..self.symbol_bytes]
    }

    /// `destination += factor * source`, two different slots.
    pub fn madd(&mut self, kernel: &Kernel, destination: usize, factor: u8, source: usize) {
        let length = self.symbol_bytes;
        let (low, high) = self.bytes.split_at_mut(destination.max(source) * length);
        let low = &mut low[destination.min(source) * length..][..length];
        let high = &mut high[..length];
        let (to, from) = if destination < source { (low, &*high) } else { (high, &*low) };
        kernel.madd(to, factor, from);
    }

    /// `out +=` the sum of factor times symbol over `terms`.
    pub fn accumulate(
        &self,
        kernel: &Kernel,
        terms: impl Iterator<Item = (u8, usize)>,
        out: &mut [u8],
    ) {
        let mut factors = [0; SOURCES];
        let mut sources: [&[u8]; SOURCES] = [&[]; SOURCES];
        let mut held = 0;
        for (factor, slot) in terms.filter(|term| term.0 != 0) {
            (factors[held], sources[held]) = (factor, self.symbol(slot));
            held += 1;
            if held == SOURCES {
                kernel.matmul_accumulate(&factors, &sources, &mut [&mut *out]);
                held = 0;
            }
        }
        kernel.matmul_accumulate(&factors[..held], &sources[..held], &mut [out]);
    }
}
