//! Coded-packet wire format v3: the bytes that hops exchange.
//!
//! Place on the path: everywhere. The XDP program walks [`packet`] and looks at the first words of
//! [`header`]; the pipeline uses [`parse`] to read a packet once, into a type of its kind;
//! [`frames`] is the contract for passing bytes from `xsk` to `pipeline` and back without copying
//! them.
//!
//! `no_std`, no allocation, no dependency, no unsafe. All multi-byte fields are big-endian and lie
//! at fixed offsets. `docs/protocol/packets.md` draws the layout.

#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod packet;

pub mod other_version;
pub mod steer;

pub mod header;

pub mod coded;

pub mod stream;

pub mod feedback;

pub mod link;

pub mod announcement;
pub mod handshake;

pub mod parse;

pub mod shard;
pub mod unit;

pub mod frames;

/// UDP destination port of coded packets unless configured otherwise.
///
/// RFC 9426 registers no port; this one merely echoes its number.
pub const DEFAULT_PORT: u16 = 9426;
