//! Sliding window RLC of RFC 8681, byte for byte: FEC Encoding IDs 9 (GF(2)) and 10 (GF(2^8)).
//!
//! An ADU (application data unit: a packet to be protected) becomes one or more *source symbols* of
//! E bytes, numbered by a 32-bit *ESI* that wraps. The encoder keeps the newest of them and creates
//! repair symbols from that window on request; the decoder keeps a longer window and one linear
//! system over its missing symbols. There are no generations, and relays forward: the RFC defines
//! no recoding.
//!
//! ```text
//!  ADU --Encoder::push--> ESI       source packet: ADU | ESI (32)
//!          |                        repair packet: key (16) DT (4) NSS (12) first ESI (32) | sym.
//!          `--Encoder::repair-->
//!
//!  source packet --Decoder::add_source--> the ADU, if it was not there yet
//!  repair packet --Decoder::add_repair--> Decoder::next_recovered: ADUs that were lost
//! ```
//!
//! Flow IDs and lengths are not sent with a source packet; they are coded with the ADU, so that a
//! recovered one has them (RFC 8681 section 3.2, figure 1):
//!
//! ```text
//!  symbol of E bytes      symbol of E bytes      symbol of E bytes
//! +-----+-------+------------------------------------------+-----------+
//! | F 8 | L 16  |                   ADU                    |  zeros    |   "ADUI"
//! +-----+-------+------------------------------------------+-----------+
//! ```
//!
//! ```
//! use recoded_code::window::{Decoder, Density, Encoder, Parameters, REPAIR_ID_BYTES, Scheme};
//!
//! let sending = Parameters { scheme: Scheme::Gf256, symbol_bytes: 1400, window_symbols: 32 };
//! let receiving = Parameters { window_symbols: 64, ..sending };
//! let (mut encoder, mut decoder) = (Encoder::new(sending)?, Decoder::new(receiving)?);
//!
//! encoder.push(7, b"this source packet is lost")?;
//! let mut repair = vec![0; REPAIR_ID_BYTES + 1400];
//! encoder.repair(Density::FULL, &mut repair)?;
//! decoder.add_repair(&repair)?;
//! let adu = decoder.next_recovered().expect("one loss, one repair symbol");
//! let mut bytes = [0; 26];
//! adu.copy_to(&mut bytes).expect("26 bytes are enough");
//! assert_eq!((adu.flow, &bytes), (7, b"this source packet is lost"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Encoder and decoder allocate all memory at creation. Packets cause typed errors, never panics.
//! Nothing here authenticates: RFC 8681 section 7.2 lists the effects of a forged payload ID.

mod coefficients;
mod columns;
mod decoder;
mod effort;
mod encoder;
mod equations;
mod payload_id;
mod slab;
mod system;

pub use coefficients::{Density, DensityError, coding_coefficients};
pub use decoder::{Adu, Counts, Decoder, Received, Rejected};
pub use effort::{WORK_PER_PACKET, WORK_SAVED};
pub use encoder::{AduError, Encoder, RepairError};
pub use equations::{COMBINED_MAX, Equations, combination};
pub use payload_id::{
    ParseInformationError, REPAIR_ID_BYTES, RepairId, SOURCE_ID_BYTES, SchemeInformation,
};

/// The longest encoding window: NSS has 12 bits (RFC 8681 section 4.1.3).
pub const ENCODING_WINDOW_MAX: usize = 4095;

/// The longest decoding window. Longer than any encoding window, as appendix D advises; the linear
/// system grows with its square, to 64 MiB.
pub const DECODING_WINDOW_MAX: usize = 8192;

/// Flow ID and length in front of each ADU (RFC 8681 section 3.2).
const ADUI_HEADER_BYTES: usize = 3;

/// The FEC scheme: its field.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Scheme {
    /// RLC over GF(2): repair symbols are XOR sums (RFC 8681 section 5).
    Gf2,
    /// RLC over GF(2^8) modulo 0x11D (RFC 8681 section 4).
    Gf256,
}

impl Scheme {
    /// The FEC Encoding ID that IANA assigned (RFC 8681 section 9).
    #[must_use]
    pub const fn encoding_id(self) -> u8 {
        match self {
            Self::Gf2 => 9,
            Self::Gf256 => 10,
        }
    }

    /// The scheme of an FEC Encoding ID; `None` for IDs of other codes.
    #[must_use]
    pub const fn from_encoding_id(id: u8) -> Option<Self> {
        match id {
            9 => Some(Self::Gf2),
            10 => Some(Self::Gf256),
            _ => None,
        }
    }
}

/// Parameters of both ends of a flow.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Parameters {
    /// The FEC scheme; the same at both ends.
    pub scheme: Scheme,
    /// E, bytes of a symbol; the same at both ends. An ADU of up to E - 3 bytes is one symbol.
    pub symbol_bytes: u16,
    /// Symbols of the window. At the encoder `ew_max_size`, 1 to [`ENCODING_WINDOW_MAX`]; at the
    /// decoder `ls_max_size`, up to [`DECODING_WINDOW_MAX`] and best twice the encoder's
    /// (RFC 8681 section 3.1, appendix D).
    pub window_symbols: usize,
}

/// The reason why a window cannot be created.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ParametersError {
    /// A symbol is too short for the header of an ADUI, or too long for the memory.
    #[error("symbols of {symbol_bytes} bytes: less than the 3 of flow ID and length, or too long")]
    SymbolBytes {
        /// The given length.
        symbol_bytes: u16,
    },
    /// The window is empty or too long.
    #[error("window of {window_symbols} symbols: not in 1..={max}")]
    Window {
        /// The given length.
        window_symbols: usize,
        /// The longest window of this end.
        max: usize,
    },
}

impl Parameters {
    fn check(&self, max: usize) -> Result<(), ParametersError> {
        let Self { symbol_bytes, window_symbols, .. } = *self;
        if usize::from(symbol_bytes) < ADUI_HEADER_BYTES {
            return Err(ParametersError::SymbolBytes { symbol_bytes });
        }
        if !(1..=max).contains(&window_symbols) {
            return Err(ParametersError::Window { window_symbols, max });
        }
        Ok(())
    }

    /// Slots of a ring that holds the window. A power of two, so that an ESI keeps its slot while
    /// the 32-bit counter wraps.
    const fn slots(&self) -> usize {
        self.window_symbols.next_power_of_two()
    }
}

/// Source symbols of an ADU of `adu_bytes` (RFC 8681 section 3.2).
fn adui_symbols(adu_bytes: usize, symbol_bytes: usize) -> usize {
    (ADUI_HEADER_BYTES + adu_bytes).div_ceil(symbol_bytes)
}

/// Writes the source symbol `index` of the ADUI of `adu`: header, then ADU, then zeros.
fn write_adui_symbol(flow: u8, adu: &[u8], index: usize, symbol: &mut [u8]) {
    let (mut at, mut from) = (0, (index * symbol.len()).saturating_sub(ADUI_HEADER_BYTES));
    if index == 0 {
        let [high, low] = (adu.len() as u16).to_be_bytes();
        symbol[..ADUI_HEADER_BYTES].copy_from_slice(&[flow, high, low]);
        (at, from) = (ADUI_HEADER_BYTES, 0);
    }
    let rest = adu.get(from..).unwrap_or_default();
    let taken = rest.len().min(symbol.len() - at);
    symbol[at..at + taken].copy_from_slice(&rest[..taken]);
    symbol[at + taken..].fill(0);
}
