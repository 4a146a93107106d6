//! An FPGA card that multiplies matrices over small fields by rows of bytes: the host's side of the
//! engine in `rtl`, and, with the feature `fpga-sim`, the engine itself, simulated clock by clock.
//!
//! ```text
//!   FpgaEngine (bundles) -> Driver (rings) -> Transport -> Simulation
//! ```

#![deny(unsafe_op_in_unsafe_fn)]

pub mod layout;
mod tiles;

mod transport;

mod driver;

mod plan;

mod engine;

#[cfg(feature = "fpga-sim")]
pub mod sim;

pub use driver::{Counters, Driver, DriverError, Full, Options, Shape};
pub use engine::{EngineOptions, FpgaEngine};
pub use tiles::{append_tiles, tiled_bytes};
pub use transport::{MemoryError, Transport};
