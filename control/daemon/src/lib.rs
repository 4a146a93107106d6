//! The daemon's inside: configuration, live changes, the control socket, and the dataplane behind
//! one small door.
//!
//! Place: beside the packet path. Workers know nothing of this crate: they get snapshots and leave
//! counters.

#![forbid(unsafe_code)]

pub mod config;

pub mod keys;

pub mod check;

pub mod live;

pub mod state;

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

pub mod kept;

pub mod sandbox;

pub mod control;

pub mod http;
pub mod metrics;

pub mod log_limit;
