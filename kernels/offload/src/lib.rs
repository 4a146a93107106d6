//! Bulk work for the workers: on a device when, and only when, that is faster, on the CPU
//! otherwise, with the same bytes either way.
//!
//! On the path this crate runs alongside the workers of the dataplane; any program that codes in
//! bulk can use it. It knows engines ([`recoded_code::engine`]) and no device in particular, so all
//! of it is tested with an engine that fails, stalls and lies.
//!
//! ```text
//!  worker 0   Port::offer --.  slots: each belongs to one thread  .-- Runner: the only thread that
//!  worker 1   Port::offer ---> SPSC rings --> dispatcher --------'    calls the device
//!             Port::poll <--- SPSC rings <--- dispatcher <-- bundles done; or done on the CPU
//! ```
//!
//! - A worker never waits: an offer is taken or declined at once, and a declined job is the
//!   worker's.
//! - A job that was taken comes back exactly once: its inputs are retained
//!   ([`recoded_code::engine::Retained`]) until its outputs are there, and the CPU uses them when
//!   the device fails, hangs, or returns bytes that a check finds wrong (`lifecycle.rs`).
//! - A device is used while it is measured to be faster ([`Model`]). After a failure it is opened
//!   again, with growing pauses.

#![forbid(unsafe_code)]

mod config;
mod slot;

mod port;

mod dispatcher;

mod lifecycle;
mod runner;

mod model;

mod device;
pub mod gibraltar;

pub mod measure;
mod metrics;

mod choice;

mod offload;

mod together;

pub use choice::faster;
pub use config::{Config, Mode, SpotCheck};
pub use device::{By, Device};
pub use model::{Class, Model, Rates};
pub use offload::{Offload, StartError};
pub use port::{Delivered, Inputs, Port};
pub use runner::OpenEngine;
pub use together::{Shares, Together};

pub use recoded_counters::engine::{Close, Declined, EngineCounters, Fault};
