//! Conformance vectors: the generators of the documents of `json/`, and the meaning of their
//! fields.
//!
//! The structs are the schema: a document is the JSON form of the struct that its function returns.
//! Bytes are strings of hexadecimal digits ([`Hex`]). Inputs that could be anything (source
//! symbols, coefficients) are drawn from TinyMT32 (RFC 8682) and written out, so that readers need
//! not implement it.

#![forbid(unsafe_code)]

mod hex;

pub mod field;

mod common_header;

pub mod wire;

pub mod hops;

pub mod rlnc;

pub mod window;

pub mod bats;

pub mod reed_solomon;

pub mod secure;

pub use hex::Hex;

use recoded_code::TinyMt32;

/// Symbols of random bytes, the same for the same seed.
fn symbols(seed: u32, count: usize, bytes: usize) -> Vec<Hex> {
    let mut generator = TinyMt32::new(seed);
    (0..count).map(|_| Hex((0..bytes).map(|_| generator.rand256()).collect())).collect()
}

/// Views of the bytes.
fn views(rows: &[Hex]) -> Vec<&[u8]> {
    rows.iter().map(|row| row.0.as_slice()).collect()
}
