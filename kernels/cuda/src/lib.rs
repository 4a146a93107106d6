//! Engine on CUDA cards: what the device code computes and how it is launched.

mod job;

pub use job::{Form, Geometry, Job, KERNELS, Outcome, TABLES_BYTES, TECHNIQUES, Technique};
