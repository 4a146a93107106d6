//! Random linear network coding of one generation, as a library: encode, recode, decode.
//!
//! Payload bytes are not stored here ("shallow" storage): symbols stay with the caller and are
//! borrowed during a call. Only coding vectors are kept. One fused multiply per group of packets
//! touches payloads.
//!
//! ```text
//!  source                          relay                              sink
//!  Encoder::next  --vector-->  Recoder::insert   --vector-->  Decoder::insert  innovative or not,
//!  Encoder::encode --symbol--> Recoder::recode   --symbol-->  Decoder::next_decoded  which symbol
//!                                                             Decoder::restore       its bytes
//! ```
//!
//! Coefficients come from a [`Generator`]: [`Random`] (dense or sparse), [`Seeded`] (both ends
//! derive the vector from 32 bits), or a custom one. Any vector can also be given explicitly. They
//! lie in a subfield of GF(256) ([`FieldOrder`]), one element per byte;
//! [`vector::pack`](crate::vector::pack) compresses them.
//!
//! Every arrival ends in an [`Outcome`] or an [`Error`]; encoders, recoders and decoders allocate
//! all memory at creation.
//!
//! # Encode, recode twice, decode
//!
//! ```
//! use recoded_code::rlnc::{Coding, Decoder, Encoder, Error, Packet, Random, Recoder};
//! use recoded_gf::FieldOrder;
//!
//! # fn main() -> Result<(), Error> {
//! const SIZE: usize = 16; // symbols of the generation
//! const BYTES: usize = 100; // of a symbol
//! let field = FieldOrder::Sixteen;
//! let data: Vec<u8> = (0..SIZE * BYTES).map(|index| index as u8).collect();
//! let symbols: Vec<&[u8]> = data.chunks(BYTES).collect();
//! let mut random = Random::new(1);
//!
//! // The source sends every symbol as it is, then combinations; each link drops every fourth.
//! let mut encoder = Encoder::new(SIZE, field)?;
//! let mut sent = Vec::new();
//! for _ in 0..2 * SIZE {
//!     let (mut vector, mut symbol) = (vec![0; SIZE], vec![0; BYTES]);
//!     match encoder.next(SIZE, &mut random, &mut vector)? {
//!         Packet::Systematic(index) => {
//!             vector[index] = 1;
//!             symbol.copy_from_slice(symbols[index]);
//!         }
//!         Packet::Coded => encoder.encode(&symbols, &vector, &mut [&mut symbol])?,
//!     }
//!     sent.push((vector, symbol));
//! }
//!
//! // A relay keeps innovative packets, and sends combinations of them.
//! for _relay in 0..2 {
//!     let mut recoder = Recoder::new(SIZE)?;
//!     let mut held = Vec::new(); // payloads by slot
//!     let arrived = sent.iter().enumerate().filter(|(n, _)| n % 4 != 3);
//!     for (vector, symbol) in arrived.map(|(_, packet)| packet) {
//!         if recoder.insert(Coding::Vector(vector))?.is_innovative() {
//!             held.push(symbol.as_slice());
//!         }
//!     }
//!     let mut forwarded = Vec::new();
//!     for _ in 0..2 * SIZE {
//!         let (mut vector, mut symbol) = (vec![0; SIZE], vec![0; BYTES]);
//!         recoder.recode(field, &mut random, &held, &mut vector, &mut [&mut symbol])?;
//!         forwarded.push((vector, symbol));
//!     }
//!     sent = forwarded;
//! }
//!
//! let mut decoder = Decoder::new(SIZE)?;
//! let mut received = Vec::new(); // payloads by slot
//! for (vector, symbol) in &sent {
//!     if decoder.insert(Coding::Vector(vector))?.is_innovative() {
//!         received.push(symbol.as_slice());
//!     }
//! }
//! assert!(decoder.is_complete());
//! let all: Vec<usize> = (0..SIZE).collect();
//! let mut decoded = vec![0; SIZE * BYTES];
//! let mut places: Vec<&mut [u8]> = decoded.chunks_mut(BYTES).collect();
//! decoder.restore(&all, &received, &mut places)?;
//! assert_eq!(decoded, data);
//! # Ok(())
//! # }
//! ```
//!
//! # On the fly: a growing generation
//!
//! The source codes over its symbols so far. The sink delivers each symbol as soon as the packets
//! determine it, long before the generation is complete. Packets carry a seed and the number of
//! symbols present instead of a vector.
//!
//! ```
//! use recoded_code::rlnc::{Coding, Decoder, Density, Encoder, Error, Seeded, draw};
//! use recoded_gf::FieldOrder;
//!
//! # fn main() -> Result<(), Error> {
//! let (field, data) = (FieldOrder::TwoFiftySix, [*b"one", *b"two", *b"six", *b"ten"]);
//! let mut encoder = Encoder::new(4, field)?;
//! let mut decoder = Decoder::new(4)?;
//! let mut received: Vec<[u8; 3]> = Vec::new();
//! let mut delivered = Vec::new();
//! for present in 1..=4 {
//!     let symbols: Vec<&[u8]> = data[..present].iter().map(|symbol| symbol.as_slice()).collect();
//!     let (seed, mut vector, mut symbol) = (present as u32, [0; 4], [0; 3]);
//!     draw(&mut Seeded::new(seed, Density::UNIFORM), field, present, &mut vector)?;
//!     encoder.encode(&symbols, &vector, &mut [&mut symbol])?;
//!
//!     // The sink makes the same vector of the same seed.
//!     let mut vector = [0; 4];
//!     draw(&mut Seeded::new(seed, Density::UNIFORM), field, present, &mut vector)?;
//!     if decoder.insert(Coding::Vector(&vector))?.is_innovative() {
//!         received.push(symbol);
//!     }
//!     while let Some(index) = decoder.next_decoded() {
//!         let held: Vec<&[u8]> = received.iter().map(|symbol| symbol.as_slice()).collect();
//!         let mut symbol = [0; 3];
//!         decoder.restore(&[index], &held, &mut [&mut symbol])?;
//!         delivered.push(symbol);
//!     }
//!     assert_eq!(delivered, data[..present], "nothing was lost, so nothing waits");
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Sparse
//!
//! ```
//! use recoded_code::rlnc::{Coding, Decoder, Density, Error, Random, draw};
//! use recoded_gf::FieldOrder;
//!
//! # fn main() -> Result<(), Error> {
//! let mut random = Random::new(7);
//! random.set_density(Density::share(0.05)?); // one coefficient in twenty, at any time another
//! let mut decoder = Decoder::new(200)?;
//! let mut vector = vec![0; 200];
//! while !decoder.is_complete() {
//!     draw(&mut random, FieldOrder::Two, 200, &mut vector)?; // never the zero vector
//!     decoder.insert(Coding::Vector(&vector))?;
//! }
//! # Ok(())
//! # }
//! ```

mod generator;

mod encoder;

mod recoder;

mod decoder;

pub use decoder::Decoder;
pub use encoder::{Encoder, Packet};
pub use generator::{Density, Generator, Random, Seeded, draw};
pub use recoder::Recoder;

use recoded_gf::{FieldOrder, Kernel};

use crate::Elimination;
pub use crate::elimination::Outcome;
use crate::elimination::SIZE_LIMIT;

/// Packets formed by one fused multiply: in groups of 16, the setup cost of a product shows.
const GROUP: usize = 64;

/// How an arriving symbol was formed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Coding<'a> {
    /// It is the source symbol of this index.
    Systematic(usize),
    /// It is the combination with these coefficients, elements of GF(256), one per source symbol.
    Vector(&'a [u8]),
}

/// The reason why a call was refused; nothing has changed then.
#[derive(Copy, Clone, PartialEq, Debug, thiserror::Error)]
pub enum Error {
    /// No such generation.
    #[error("generation size {size} is not in 1..={size_max}")]
    Size {
        /// The requested size.
        size: usize,
        /// The largest supported.
        size_max: usize,
    },
    /// No such source symbol.
    #[error("symbol {index} of a generation of {size}")]
    Index {
        /// The given index.
        index: usize,
        /// Symbols of the generation.
        size: usize,
    },
    /// A coding vector, or rows of them, of the wrong length.
    #[error("coding vectors of {found} elements in all, {expected} needed")]
    VectorLength {
        /// Given elements.
        found: usize,
        /// Needed elements.
        expected: usize,
    },
    /// The number of present symbols is zero or exceeds the generation.
    #[error("{present} symbols present, not 1..={size}")]
    Present {
        /// The given number.
        present: usize,
        /// Symbols of the generation.
        size: usize,
    },
    /// A coding vector has a coefficient for a symbol that is not present.
    #[error("the vector has a coefficient for symbol {symbol}, but only {present} are present")]
    Absent {
        /// The first such symbol.
        symbol: usize,
        /// Present symbols.
        present: usize,
    },
    /// A coefficient lies outside the field.
    #[error("coefficient {element} lies outside GF({field})")]
    OutsideField {
        /// The coefficient, an element of GF(256).
        element: u8,
        /// The field that it should lie in.
        field: FieldOrder,
    },
    /// All coefficients are zero: the packet would carry no information.
    #[error("the coding vector is zero")]
    ZeroVector,
    /// Not as many payloads as innovative packets.
    #[error("{found} payloads, {expected} needed")]
    Payloads {
        /// Given payloads.
        found: usize,
        /// Needed payloads.
        expected: usize,
    },
    /// Payloads differ in length.
    #[error("a payload of {found} bytes among others of {expected}")]
    SymbolBytes {
        /// Length of the first that differs.
        found: usize,
        /// Length of the others.
        expected: usize,
    },
    /// The packets held do not determine the symbol yet.
    #[error("symbol {symbol} is not decoded")]
    NotDecoded {
        /// The symbol.
        symbol: usize,
    },
    /// Not a valid share of nonzero coefficients.
    #[error("density {share} is not above 0 and at most 1")]
    Density {
        /// The given share.
        share: f64,
    },
}

/// # Errors
/// [`Error::Size`] unless `size` is in 1..=`size_max`.
fn check_size(size: usize, size_max: usize) -> Result<usize, Error> {
    let fits = (1..=size_max).contains(&size);
    fits.then_some(size).ok_or(Error::Size { size, size_max })
}

/// # Errors
/// [`Error::Payloads`] unless there are as many payloads as needed.
fn check_payloads(found: usize, expected: usize) -> Result<(), Error> {
    if found == expected { Ok(()) } else { Err(Error::Payloads { found, expected }) }
}

/// # Errors
/// [`Error::SymbolBytes`] unless all have one length.
fn check_lengths(sources: &[&[u8]], destinations: &[&mut [u8]]) -> Result<(), Error> {
    let source_lengths = sources.iter().map(|source| source.len());
    let mut lengths = source_lengths.chain(destinations.iter().map(|made| made.len()));
    let expected = lengths.next().unwrap_or_default();
    match lengths.find(|&length| length != expected) {
        Some(found) => Err(Error::SymbolBytes { found, expected }),
        None => Ok(()),
    }
}

/// Inserts a [`Coding`].
///
/// # Errors
/// [`Error::Index`] and [`Error::VectorLength`].
fn insert(elimination: &mut Elimination, coding: Coding<'_>) -> Result<Outcome, Error> {
    let size = elimination.size();
    match coding {
        Coding::Systematic(index) if index >= size => Err(Error::Index { index, size }),
        Coding::Systematic(index) => Ok(elimination.insert_unit(index)),
        Coding::Vector(vector) if vector.len() != size => {
            Err(Error::VectorLength { found: vector.len(), expected: size })
        }
        Coding::Vector(vector) => Ok(elimination.insert(vector)),
    }
}

/// One product; shapes have been checked.
fn multiply(coefficients: &[u8], sources: &[&[u8]], destinations: &mut [&mut [u8]]) {
    Kernel::best().matmul(coefficients, sources, destinations);
}
