//! AF_XDP: packets between a NIC queue and the worker's frames.
//!
//! Place on the path: first and last. The XDP program redirects coded packets to a [`Socket`]; the
//! worker takes them out with [`Socket::receive`], the pipeline reads and combines the frames
//! through [`recoded_wire::frames::Frames`], which [`Umem`] implements, and [`Socket::transmit`]
//! sends them.
//!
//! ```text
//!             fill ring          rx ring
//!   free ---------------> Linux -----------> held -----------+
//!    ^                                        |  transmit    | release (last reference)
//!    |     completion ring          tx ring   v              |
//!    +------------------- Linux <----------- tx              |
//!    +-------------------------------------------------------+
//! ```
//!
//! Ownership: one worker owns one [`Umem`] and the sockets that share it, one per (interface,
//! queue); a frame received on one of them may be sent through another. [`ledger`] always knows the
//! place of each frame, one of four; [`FrameGauge`] counts them. All memory is allocated at
//! opening: receiving, transmitting and completing never allocate and never lock.
//!
//! Not here: attaching the XDP program and putting sockets into its map (`dataplane/runtime`); only
//! [`replace_program`], which aya lacks a call for, and [`end_with_descriptors`], which tun-rs
//! lacks. The only crate that uses xsk-rs, and the only one on the path with `unsafe`.
//!
//! Without the feature `xdp`, [`af_xdp`] is a stand-in that opens nothing and needs no C library.

#![cfg_attr(not(feature = "xdp"), allow(dead_code, reason = "for AF_XDP alone"))]

pub mod error;

pub mod mode;

pub mod ledger;

pub mod umem;

mod registry;

mod burst;

#[cfg_attr(not(feature = "xdp"), path = "absent.rs")]
mod af_xdp;

mod queues;

mod tun;

pub use af_xdp::{HAS_AF_XDP, Socket, replace_program};
pub use burst::{BURST_FRAMES_MAX, Received};
pub use error::{NO_AF_XDP, NO_AF_XDP_CURE, XskError};
pub use ledger::FrameGauge;
pub use mode::{ActiveMode, ModePreference, SocketMode, XdpMode};
pub use queues::{Ethtool, Queues};
pub use recoded_counters::link::SocketStatistics;
pub use tun::end_with_descriptors;
pub use umem::{FrameSize, Umem};
