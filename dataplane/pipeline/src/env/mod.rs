//! What the runtime gives to each call: frames, outputs, keys, randomness, time, and memory that
//! was allocated elsewhere.

pub mod egress;
pub mod recorder;

pub mod memory;

pub(crate) mod io;

pub(crate) mod combine;

pub(crate) mod plan_schedule;

pub(crate) mod stage_memory;
