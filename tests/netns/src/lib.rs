//! A test bed in network namespaces: a line of hosts with lossy links between them, the programs
//! and daemons that run on the hosts, and the clean-up.
//!
//! Stands outside the path of a packet and may use anything. Needs root; building a bed
//! without it fails with a [`BedError`] that says so.

#![forbid(unsafe_code)]

mod config;

mod bed;
mod counters;
mod daemon;
mod emulator;
mod namespace;
mod plan;

pub mod clear;
pub mod probe;
pub mod process;
pub mod soak;
pub mod stream;
pub mod sweep;
pub mod traffic;

mod error;

pub use bed::{Bed, MTU_BYTES};
pub use config::{BedConfig, DirectionConfig, HOPS_MAX, LinkConfig, Loss};
pub use counters::{DirectionCounters, LinkCounters};
pub use daemon::{BIN_DIR_ENV, Daemon, binary};
pub use error::BedError;
pub use namespace::Namespace;
pub use plan::{AuthPlan, CodePlan, FlowPlan, LinePlan, Towards, TunnelPlan};
