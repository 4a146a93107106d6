//! The C library `librecoded`: codes for programs in C, and in languages that call C.
//!
//! ```text
//!  C program --> abi: pointers become slices and references --> recoded-library, in safe Rust
//!            <-- status code: no panic leaves this crate  <--
//! ```
//!
//! [`abi`] is the boundary and holds all unsafe code. Its doc comments become those of
//! `include/recoded.h`, so they are written for C programmers.
#![deny(unsafe_code)]

pub mod abi;

mod abi_version;

mod status;

pub use abi_version::RECODED_ABI_VERSION;
pub use status::Status;
