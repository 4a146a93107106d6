//! BATS codes: batches of coded symbols over a sparse outer code, recoded on the path (RFC 9426).
//!
//! ```text
//!  source        block of K symbols --Code--> batches of M coded symbols
//!  relays        a batch is a small generation: packets of it are recombined, never across batches
//!  sink          packets --Decoder--> rank per batch, peeling, inactivation --> K symbols
//! ```
//!
//! Packets are combinations within one batch, so coding vectors have M elements however large the
//! block is, and relays hold M packets. The outer code makes up for incomplete batches.
//!
//! Coefficients of the outer code lie in GF(256); those of recoding in it or a subfield.

mod batch;
mod code;
mod cyclic;
mod decoder;
mod params;
mod payloads;
mod precode;
mod sampler;
mod tables;

pub use batch::{Batch, DEGREE_MAX};
pub use code::Code;
pub use cyclic::{BaseGraph, PAPER_ROW_DEGREES};
pub use decoder::{Decoder, Effort, Gain, Rejected};
pub use params::{
    BATCH_SIZE_MAX, INACTIVE_MAX, Limits, Params, ParamsError, Profile, SOURCE_SYMBOLS_MAX,
    SYMBOLS_MAX,
};
pub use payloads::{Operand, Payloads, Rows};
pub use sampler::{Rfc9426, Sampler, SamplerSizes};
