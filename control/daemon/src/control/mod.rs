//! The control socket: access, size limits and timeouts.

pub mod socket;

pub mod bounded;
