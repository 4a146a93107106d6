//! Engine on CUDA cards: the host side of the device code and its launches.
//!
//! ```text
//!  probe    is there a card that works? asked in a child process
//!  image    the compiled kernels, found at run time
//!  engine   CudaEngine: bundles in flight on streams
//!   segments  rows that stay on the card
//!   measure, progressive  for benchmarks: parts of a bundle, the card itself, the papers' decoders
//!   compiler  kernels for single matrices, by NVRTC
//!  bare     a card without an engine, for tests and first runs
//!   choice    which technique does a bundle
//!   plan      the commands to a card for a bundle; no device, no unsafe
//!   driver    the driver's objects; everything unsafe
//!  job      the mirror of job.h
//!  limits   what a technique can reach on a card
//! ```
//!
//! Nothing here crashes without a card: call [`probe`] first, and do the work with
//! [`recoded_code::engine::Cpu`] if it reports a reason against the card.

mod image;
mod probe;

mod engine;

mod bare;

mod choice;
mod plan;

mod compiler;

mod driver;

mod job;
mod limits;
pub mod reed_solomon_source;

pub use bare::{BareCard, FirstUse};
pub use compiler::CompileError;
pub use driver::{CallError, DeviceInfo};
pub use engine::{CudaEngine, Direction, LaunchCost, OpenError, Options, Progressive, Timings};
pub use image::{IMAGE_NAME, IMAGE_VARIABLE, Image, ImageError};
pub use job::{
    Form, Geometry, Job, KERNELS, PROBE_OPERATIONS, Returned, TABLES_BYTES, TECHNIQUES, Technique,
};
pub use limits::IssueRates;
pub use plan::{Launch, LaunchPlan};
pub use probe::{Unusable, opener, probe, self_test};
