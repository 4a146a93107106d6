//! The sending end: a sliding encoding window (RFC 8681 sections 3.3 and 6.1).

use recoded_gf::Kernel;

use super::slab::Slab;
use super::{
    Density, ENCODING_WINDOW_MAX, Parameters, ParametersError, REPAIR_ID_BYTES, RepairId, Scheme,
    adui_symbols, coding_coefficients, write_adui_symbol,
};

/// The reason why an ADU cannot be protected; the window is unchanged.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AduError {
    /// Its length does not fit into 16 bits (RFC 8681 section 3.2).
    #[error("ADU of {bytes} bytes: at most 65535 can be described")]
    TooLong {
        /// Bytes of the ADU.
        bytes: usize,
    },
    /// Its own symbols would push each other out of the window.
    #[error("ADU of {symbols} symbols in a window of {window_symbols}")]
    Window {
        /// Symbols of the ADU.
        symbols: usize,
        /// Symbols of the window.
        window_symbols: usize,
    },
}

/// The reason why no repair packet was created.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RepairError {
    /// No source symbol is in the window.
    #[error("no source symbol is in the window")]
    Empty,
    /// The buffer does not hold the payload ID and at least one whole symbol, or ends within one.
    #[error("buffer of {bytes} bytes: it takes 8 and a multiple of {symbol_bytes}")]
    Buffer {
        /// Bytes of the buffer.
        bytes: usize,
        /// Bytes of a symbol.
        symbol_bytes: usize,
    },
}

/// The encoding window of one flow.
pub struct Encoder {
    kernel: &'static Kernel,
    parameters: Parameters,
    /// A ring; an ESI has the slot of its low bits.
    slab: Slab,
    /// The ESI that the next source symbol gets.
    next: u32,
    /// Symbols in the window, those before `next`.
    held: usize,
    next_key: u16,
    coefficients: Box<[u8]>,
}

impl Encoder {
    /// An empty window that starts with ESI 0. Takes memory for `window_symbols` symbols, rounded
    /// up to a power of two; nothing is allocated later.
    ///
    /// # Errors
    /// The parameters are out of range.
    pub fn new(parameters: Parameters) -> Result<Self, ParametersError> {
        parameters.check(ENCODING_WINDOW_MAX)?;
        Ok(Self {
            kernel: Kernel::best(),
            parameters,
            slab: Slab::new(parameters.slots(), usize::from(parameters.symbol_bytes)),
            next: 0,
            held: 0,
            next_key: 0,
            coefficients: vec![0; parameters.window_symbols].into_boxed_slice(),
        })
    }

    /// Empties the window and gives the next source symbol the ESI `esi`. RFC 8681 section 3.4
    /// starts with 0; another number continues a session.
    pub fn reset(&mut self, esi: u32) {
        self.next = esi;
        self.held = 0;
    }

    /// Adds an ADU of the flow `flow` to the window, dropping the oldest symbols if necessary.
    /// Returns the ESI of its first symbol: the source packet is the ADU and these four bytes, most
    /// significant first.
    ///
    /// # Errors
    /// The ADU is too long.
    pub fn push(&mut self, flow: u8, adu: &[u8]) -> Result<u32, AduError> {
        if adu.len() > usize::from(u16::MAX) {
            return Err(AduError::TooLong { bytes: adu.len() });
        }
        let window_symbols = self.parameters.window_symbols;
        let symbols = adui_symbols(adu.len(), usize::from(self.parameters.symbol_bytes));
        if symbols > window_symbols {
            return Err(AduError::Window { symbols, window_symbols });
        }
        let first = self.next;
        for index in 0..symbols {
            let slot = self.slot(first.wrapping_add(index as u32));
            write_adui_symbol(flow, adu, index, self.slab.symbol_mut(slot));
        }
        self.next = first.wrapping_add(symbols as u32);
        self.held = (self.held + symbols).min(window_symbols);
        Ok(first)
    }

    /// Drops the oldest `symbols`, because their ADU is no longer of use (RFC 8681 section 3.3).
    pub fn retire(&mut self, symbols: usize) {
        self.held = self.held.saturating_sub(symbols);
    }

    /// Source symbols in the window: `ew_size`.
    #[must_use]
    pub const fn held(&self) -> usize {
        self.held
    }

    /// Writes a repair packet over the whole window into `out`. The length of `out` is
    /// [`REPAIR_ID_BYTES`] and a whole number of symbols, the repair symbols to create. Keys
    /// increase by one per repair symbol.
    ///
    /// # Errors
    /// The window is empty or `out` has another length; nothing changes then.
    pub fn repair(&mut self, density: Density, out: &mut [u8]) -> Result<RepairId, RepairError> {
        let symbol_bytes = usize::from(self.parameters.symbol_bytes);
        let bytes = out.len();
        if self.held == 0 {
            return Err(RepairError::Empty);
        }
        if bytes <= REPAIR_ID_BYTES || !(bytes - REPAIR_ID_BYTES).is_multiple_of(symbol_bytes) {
            return Err(RepairError::Buffer { bytes, symbol_bytes });
        }
        // RFC 8681 section 5.1.3: without coefficients to draw, the key is zero.
        let is_keyless = self.parameters.scheme == Scheme::Gf2 && density == Density::FULL;
        let id = RepairId {
            key: if is_keyless { 0 } else { self.next_key },
            density,
            source_symbols: self.held as u16,
            first: self.next.wrapping_sub(self.held as u32),
        };
        let (id_bytes, symbols) = out.split_at_mut(REPAIR_ID_BYTES);
        id_bytes.copy_from_slice(&id.to_bytes());
        for symbol in symbols.chunks_exact_mut(symbol_bytes) {
            self.combine(id.first, density, symbol);
            self.next_key = self.next_key.wrapping_add(1);
        }
        Ok(id)
    }

    /// The repair symbol of the next key (RFC 8681 section 3.7.2).
    fn combine(&mut self, first: u32, density: Density, symbol: &mut [u8]) {
        let coefficients = &mut self.coefficients[..self.held];
        coding_coefficients(self.parameters.scheme, self.next_key, density, coefficients);
        symbol.fill(0);
        let mask = self.parameters.slots() - 1;
        let slots = (0..self.held).map(|index| first.wrapping_add(index as u32) as usize & mask);
        let terms = self.coefficients.iter().copied().zip(slots);
        self.slab.accumulate(self.kernel, terms, symbol);
    }

    const fn slot(&self, esi: u32) -> usize {
        esi as usize & (self.parameters.slots() - 1)
    }
}
