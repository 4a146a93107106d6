//! The library of `recoded-agent`, which follows the signed configuration of one box.
//!
//! Place: off the packet path, in its own process; no daemon needs it to start or to forward. It
//! owns a folder with the last good bundle, and writes the daemon's configuration file.
//!
//! ```text
//!  operator: recoded.toml of each node -> sign -> folder, HTTPS or etcd
//!  box:      source -> bundle (key, node, version) -> agent -> daemon: check, reload, confirm
//!                                                       `-> store: last good one; status
//! ```

#![forbid(unsafe_code)]

pub mod key;

pub mod bundle;

pub mod settings;

pub mod source;

pub mod daemon;

pub mod files;

pub mod store;

pub mod agent;

pub mod status;

pub mod sign;
