//! An FPGA card that multiplies matrices over small fields by rows of bytes: the host's side of the
//! engine in `rtl`, and, with the feature `fpga-sim`, the engine itself, simulated clock by clock.
//!
//! ```text
//!  Card        which card, and opening it
//!  FpgaEngine  bundles in, bundles out: an engine for `recoded-offload`
//!    plan        the commands to a card for a bundle; no card
//!    tiles       coefficients in the card's order
//!  Driver      rings, doorbells, completions, resets; bounded in time
//!    layout      registers, descriptors, completions: the one table, also of `rtl/layout_pkg.sv`
//!  Transport   the way to the card
//!    xdma, vfio  real cards; not yet run on any
//!    sim         Simulation: the RTL and a model of its memory, in this process
//! ```

#![deny(unsafe_code)]

pub mod layout;
mod tiles;

pub mod transport;

mod driver;

mod plan;

mod engine;

mod card;

#[cfg(feature = "fpga-sim")]
pub mod sim;

pub use card::{CARD_RULE, Card, NoCard};
pub use driver::{Counters, Driver, DriverError, DriverOptions, Shape, SubmitError};
pub use engine::{Copied, EngineOptions, FpgaEngine};
pub use tiles::{Matrix, append_tiles, tiled_bytes};
pub use transport::{MemoryError, Transport};
