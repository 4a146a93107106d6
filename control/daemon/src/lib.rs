//! The daemon's library: configuration, live changes, the control socket, and a small interface to
//! the dataplane.
//!
//! Place: off the packet path. Workers do not depend on this crate: they receive snapshots and
//! publish counters.

#![forbid(unsafe_code)]

pub mod config;

pub mod network;

pub mod keys;

pub mod check;

pub mod memory;

pub mod live;

pub mod state;

mod awaited;
mod branches;
pub mod rates;

pub mod theory;

pub mod accelerator;

pub mod dataplane;

pub mod node;

pub mod lifecycle;

pub mod events;

pub mod keeper;
pub mod predecessor;

pub mod control_service;

pub mod sandbox;

pub mod split;

pub mod control;

pub mod http;
pub mod metrics;

pub mod log_limit;

pub mod usage;
