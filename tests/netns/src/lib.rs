//! A test bed in network namespaces: hosts with lossy links in a line or a graph, the programs and
//! daemons that run on the hosts, and the clean-up.
//!
//! Not on the packet path, so it may use anything. Needs root; without it, building a bed fails
//! with a [`BedError`] that reports this.

#![forbid(unsafe_code)]

mod config;

mod bed;
mod counters;
mod daemon;
mod emulator;
mod namespace;
mod plan;

mod capture;
pub mod clear;
pub mod mesh;
pub mod mptcp;
pub mod probe;
pub mod process;
pub mod soak;
pub mod stream;
pub mod sweep;
pub mod topology;
pub mod traffic;

mod error;

pub use bed::{Bed, MTU_BYTES};
pub use capture::{Capture, send_frame};
pub use config::{BedConfig, DirectionConfig, HOPS_MAX, LINKS_MAX, LinkConfig, Loss};
pub use counters::{DirectionCounters, LinkCounters};
pub use daemon::{BIN_DIR_ENV, Daemon, binary};
pub use error::BedError;
pub use namespace::Namespace;
pub use plan::{AuthPlan, CodePlan, FlowPlan, LinePlan, Towards, TunnelPlan};
