//! Symbols of a sliding window and equations between them: the linear system of the decoder of RFC
//! 8681, for codes with their own framing and numbering of symbols.

use recoded_gf::Kernel;

use super::coefficients::{Density, coding_coefficients};
use super::system::{Insertion, System};
use super::{DECODING_WINDOW_MAX, Parameters, ParametersError, Scheme};

/// The newest symbols of a stream, known and missing, over GF(2^8).
///
/// A combination is the sum of coefficient times symbol over consecutive numbers; its coefficients
/// are those that RFC 8681 section 3.6 draws for a repair key, at full density.
pub struct Equations {
    system: System,
    coefficients: Box<[u8]>,
    sum: Box<[u8]>,
}

impl Equations {
    /// An empty window. Takes [`Equations::memory_bytes`]; nothing is allocated later.
    ///
    /// # Errors
    /// The sizes are out of range.
    pub fn new(window_symbols: usize, symbol_bytes: u16) -> Result<Self, ParametersError> {
        let parameters = Parameters { scheme: Scheme::Gf256, symbol_bytes, window_symbols };
        parameters.check(DECODING_WINDOW_MAX)?;
        Ok(Self {
            system: System::new(&parameters),
            coefficients: vec![0; window_symbols].into_boxed_slice(),
            sum: vec![0; usize::from(symbol_bytes)].into_boxed_slice(),
        })
    }

    /// Memory of a window, within some bytes per symbol.
    #[must_use]
    pub const fn memory_bytes(window_symbols: usize, symbol_bytes: u16) -> usize {
        let slots = window_symbols.next_power_of_two();
        slots * (symbol_bytes as usize + slots)
    }

    /// Clears the window; the first symbol is `next`.
    pub fn begin(&mut self, next: u32) {
        self.system.reset(next);
    }

    /// The number after the newest announced symbol.
    #[must_use]
    pub const fn end(&self) -> u32 {
        self.system.end()
    }

    /// Announces all symbols before `end`, if that is ahead; the oldest leave the window.
    pub fn hear(&mut self, end: u32) {
        if end.wrapping_sub(self.system.end()).cast_signed() > 0 {
            self.system.advance(end);
        }
    }

    /// The bytes of a symbol, if it is known.
    #[must_use]
    pub fn symbol(&self, number: u32) -> Option<&[u8]> {
        self.system.is_known(number).then(|| self.system.symbol(number))
    }

    /// Inserts an announced symbol: `write` gets all its bytes. Ignored if it is known or has left
    /// the window.
    pub fn insert(&mut self, number: u32, write: impl FnOnce(&mut [u8])) {
        self.system.note_packet();
        if self.system.is_in_window(number) {
            self.system.insert_symbol(number, write);
        }
    }

    /// Inserts the combination by `key` of `count` announced symbols from `first` on; bytes missing
    /// at the end of `sum` are zero. Returns whether it was innovative.
    ///
    /// # Panics
    /// When `count` is longer than the window, or `sum` than a symbol.
    pub fn combine(&mut self, first: u32, count: usize, key: u16, sum: &[u8]) -> bool {
        self.system.note_packet();
        let coefficients = &mut self.coefficients[..count];
        coding_coefficients(Scheme::Gf256, key, Density::FULL, coefficients);
        self.sum[..sum.len()].copy_from_slice(sum);
        self.sum[sum.len()..].fill(0);
        let brought = self.system.insert_equation(first, coefficients, &self.sum);
        brought == Insertion::Innovative
    }

    /// Takes the number of a symbol solved by combinations since the last call.
    pub fn next_solved(&mut self) -> Option<u32> {
        self.system.next_solved()
    }
}

/// Forms the combination by `key` of symbols of one length.
///
/// # Panics
/// When the symbols and `out` are not of one length, or there are more than 512 of them.
pub fn combination(kernel: &Kernel, key: u16, symbols: &[&[u8]], out: &mut [u8]) {
    let mut coefficients = [0; COMBINED_MAX];
    let coefficients = &mut coefficients[..symbols.len()];
    coding_coefficients(Scheme::Gf256, key, Density::FULL, coefficients);
    kernel.matmul(coefficients, symbols, &mut [out]);
}

/// Most symbols of one combination.
pub const COMBINED_MAX: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn symbol(number: u32) -> Vec<u8> {
        (0..40u32).map(|at| (number.wrapping_mul(0x9E37_79B1) >> (at % 24)) as u8).collect()
    }

    proptest! {
        #[test]
        fn what_is_lost_comes_back_from_as_many_combinations(
            first: u32, lost in prop::collection::btree_set(0u32..50, 1..12),
        ) {
            let symbols: Vec<Vec<u8>> = (0..50).map(|at| symbol(first.wrapping_add(at))).collect();
            let views: Vec<&[u8]> = symbols.iter().map(Vec::as_slice).collect();
            let mut window = Equations::new(128, 48).unwrap();
            window.begin(first);
            window.hear(first.wrapping_add(50));
            for (at, bytes) in (0..50).zip(&symbols).filter(|(at, _)| !lost.contains(at)) {
                window.insert(first.wrapping_add(at), |out| {
                    out[..40].copy_from_slice(bytes);
                    out[40..].fill(0);
                });
            }
            let mut key = 0;
            let mut solved = Vec::new();
            while solved.len() < lost.len() {
                prop_assert!(usize::from(key) < lost.len() + 3);
                let mut sum = [0; 40];
                combination(Kernel::best(), key, &views, &mut sum);
                window.combine(first, 50, key, &sum);
                key += 1;
                solved.extend(std::iter::from_fn(|| window.next_solved()));
            }
            for number in solved {
                prop_assert!(lost.contains(&number.wrapping_sub(first)));
                prop_assert_eq!(&window.symbol(number).unwrap()[..40], &symbol(number)[..]);
            }
        }
    }

    #[test]
    fn sizes_out_of_range_are_refused() {
        assert!(Equations::new(0, 100).is_err());
        assert!(Equations::new(DECODING_WINDOW_MAX + 1, 100).is_err());
    }
}
