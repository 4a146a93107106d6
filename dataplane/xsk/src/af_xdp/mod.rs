//! AF_XDP by xsk-rs and libbpf: everything in this crate that needs a C library. A build without
//! the feature `xdp` has `absent.rs` instead, with the same names.

mod bind;

mod descriptor;

mod program;

mod shared;

mod socket;

pub use program::replace_program;
pub(crate) use shared::Shared;
pub use socket::Socket;

/// Whether this build has AF_XDP sockets.
pub const HAS_AF_XDP: bool = true;
