//! Virtual machines with real kernels and NIC drivers, and the cases that run in them.
//!
//! ```text
//!  host: cache of packages -> kernel, initramfs -> QEMU --+-- console: log
//!                                                         +-- shared folder: results, logs
//!  guest: initramfs -> root of the host (9p, read-only, below an overlay) -> cases
//! ```
//! The same program runs on both sides, so a case is one function. It needs no privilege on the
//! host: packages are unpacked into a cache, and all interfaces and namespaces are the guest's.
#![forbid(unsafe_code)]

pub mod host;

pub mod cases;
pub mod first_process;
pub mod guest;
pub mod nic;

mod error;

pub use error::LabError;
