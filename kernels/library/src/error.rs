//! The reason why a call was refused.

use recoded_code::{reed_solomon, rlnc};

/// The reason why a call was refused; nothing has changed then.
#[derive(Copy, Clone, PartialEq, Debug, thiserror::Error)]
pub enum Error {
    /// Reed-Solomon: there is no such code, or ids or buffers contradict it.
    #[error(transparent)]
    ReedSolomon(#[from] reed_solomon::Error),
    /// RLNC: there is no such generation, a vector has the wrong length, nothing is held yet, or a
    /// symbol is not decoded yet.
    #[error(transparent)]
    Rlnc(#[from] rlnc::Error),
    /// Symbols have at least one byte.
    #[error("symbols of zero bytes")]
    NoBytes,
    /// A buffer for symbols has the wrong length.
    #[error("a buffer of {found} bytes, {expected} needed")]
    Length {
        /// Given bytes.
        found: usize,
        /// Needed bytes.
        expected: usize,
    },
    /// An output overlaps another buffer of the call.
    #[error("an output overlaps another buffer")]
    Overlap,
    /// The encoder has all source symbols of its generation.
    #[error("the generation has all of its {size} symbols")]
    Full {
        /// Symbols of the generation.
        size: usize,
    },
    /// There is not enough memory for the symbols of a generation.
    #[error("no memory for {symbols} symbols of {symbol_bytes} bytes")]
    Memory {
        /// Symbols of the generation.
        symbols: usize,
        /// Bytes of a symbol.
        symbol_bytes: usize,
    },
}
