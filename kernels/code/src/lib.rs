//! Coding vectors, progressive elimination and exact theory: everything about a generation except
//! its payload bytes.
//!
//! On the path this crate sits between the pipeline, which owns packets and frames, and
//! `recoded_gf`, which multiplies. It performs no I/O, reads no clock, holds no payload.
//!
//! A received packet passes through it like this:
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

pub mod degrees;

pub mod reed_solomon;

pub mod theory;

mod tinymt32;

pub mod window;

pub use elimination::{Elimination, Outcome, ShrinkError};
pub use tinymt32::TinyMt32;
