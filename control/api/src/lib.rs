//! The contract between `recoded` and everything that controls it.
//!
//! Place: off the packet path. This leaf crate holds the keys of the configuration,
//! the types that cross the control socket, the errors and exit codes that scripts may rely on, the
//! service that a daemon implements and the client that talks to it. On the wire it is Varlink:
//! JSON objects, each ended by a NUL byte, over a Unix stream socket; `org.recoded.control.varlink`
//! in this folder is the contract, and a test compares it with the service's own description.

#![forbid(unsafe_code)]

pub mod keys;

pub mod spelling;

pub mod units;

pub mod v1;

pub mod error;

mod parts;

pub mod service;

pub mod client;

/// Name of the interface this crate speaks. Version 1: fields may be added, never taken away.
pub const INTERFACE: &str = "org.recoded.Control1";

/// The interface in Varlink's description language.
pub const IDL: &str = include_str!("../org.recoded.control.varlink");

/// Where the daemon listens unless configured otherwise.
pub const SOCKET_DEFAULT: &str = "/run/recoded/recoded.sock";

/// Longest request. Only `Compare` comes near it, with a file: 256 KiB is a network of a thousand
/// boxes. Each of 17 connections may hold as much in the daemon.
pub const REQUEST_BYTES_MAX: usize = 256 * 1024;

/// Environment variable that names the socket for clients.
pub const SOCKET_ENV: &str = "RECODED_SOCKET";

/// Exit codes of `recodectl`. Scripts rely on them: they never change their meaning.
pub mod exit {
    /// Done.
    pub const OK: u8 = 0;
    /// The daemon answered, and it failed.
    pub const FAILED: u8 = 1;
    /// The command line is wrong.
    pub const USAGE: u8 = 2;
    /// No daemon answers at the socket.
    pub const NOT_RUNNING: u8 = 3;
    /// The daemon refused: a rule forbids it, or the caller may not.
    pub const REFUSED: u8 = 4;
    /// Everything was looked at, and something is wrong.
    pub const UNHEALTHY: u8 = 5;
}
