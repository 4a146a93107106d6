//! Codes together with their payloads, for bindings to other languages: what C and Python call.
//!
//! `recoded-code` computes coefficients and borrows payloads during a call. Callers in other
//! languages want to hand in a packet and take one out, so this crate holds the payloads.
//!
//! ```text
//!  source: Encoder::add (symbol) ----> Encoder::take (vector, symbol)
//!  relay:  Recoder::add (vector, symbol) --> Recoder::take (vector, symbol)
//!  sink:   Decoder::add (vector, symbol) --> Decoder::next (index, symbol), Decoder::decode
//! ```
//!
//! Coding vectors have one byte per source symbol, elements of GF(2^8) modulo 0x11D. All memory is
//! reserved at creation, and a reservation that fails is an [`Error`]. Wrong arguments are errors
//! too, after which nothing has changed.
#![forbid(unsafe_code)]

mod error;

pub mod overlap;

mod payloads;

mod encoder;

mod recoder;

mod decoder;

mod stripes;

pub use decoder::Decoder;
pub use encoder::Encoder;
pub use error::Error;
pub use recoder::Recoder;
pub use stripes::ReedSolomon;
