//! Peak throughput of a core, and rival libraries written in C.
//!
//! The one crate of the benchmarks with unsafe code: probes are loops of chosen instructions on
//! vector registers ([`limits`]), and C libraries are opened at run time and called through their
//! headers' signatures ([`Isal`], [`GfComplete`], [`Jerasure`]). Everything public is safe. Nothing
//! here reads a clock: `bench` does.

pub mod limits;

mod library;

mod registers;

mod gf_complete;
mod isal;
mod jerasure;

pub use gf_complete::GfComplete;
pub use isal::{Encode, Isal, Tables};
pub use jerasure::{Jerasure, VandermondeCode};
pub use library::LoadError;
pub use registers::forget_wide_registers;
