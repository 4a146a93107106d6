//! The codes: the products of bytes and coefficients, and their expected results.
//!
//! On the path this crate sits between the pipeline, which owns packets and frames, and
//! `recoded_gf`, which multiplies. It performs no I/O and reads no clock; payloads stay with the
//! caller, except in [`window`], whose RFC codes their lengths too.
//!
//! ```text
//!  vector, elimination    coding vectors on the wire; rank, innovation, decoded symbols per packet
//!  rlnc                   generations: encoder, recoder, decoder as a library
//!  bats                   blocks of batches over a sparse outer code (feature `bats`)
//!  window                 the sliding window of RFC 8681
//!  reed_solomon           k + m stored buffers
//!  engine                 bulk work in bundles of jobs, on the CPU or a device (feature `engine`)
//!  theory, degrees        exact expectations; degree distributions
//! ```
//!
//! A received packet of a generation passes through it like this:
//!
//! ```text
//!  packed coding vector --vector::unpack--> elements --Elimination::insert--> innovative or not
//!                                                              |
//!  payloads of innovative packets --Kernel::matmul <-- Elimination::solution, once per generation
//! ```

#![forbid(unsafe_code)]

pub mod vector;

mod elimination;

pub mod rlnc;

#[cfg(feature = "bats")]
pub mod bats;

#[cfg(feature = "bats")]
pub mod degrees;

pub mod reed_solomon;

#[cfg(feature = "engine")]
pub mod engine;

pub mod theory;

mod tinymt32;

pub mod window;

pub use elimination::{Elimination, Outcome, ShrinkError};
pub use tinymt32::TinyMt32;
