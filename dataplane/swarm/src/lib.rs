//! A streaming server with network coding: a file goes to many receivers as random linear
//! combinations over UDP, and receivers recode their blocks for others.
//!
//! The server is that of the papers Nuclei and Extreme Network Coding, which measured its encoding.
//!
//! ```text
//!  file --Manifest--> Store --Server--> UDP --Client--> Store --> file
//!                                         ^               |
//!                                         `--- Server <---'      recodes what checks have verified
//! ```
//!
//! `Server` and `Client` have no socket and no clock; `node` runs them on sockets and threads. All
//! bytes from the network are untrusted. Field arithmetic and elimination are those of
//! [`recoded_gf`] and [`recoded_code`].

#![forbid(unsafe_code)]

mod bounds;
mod error;
mod random;

mod manifest;

mod wire;

mod keys;

mod checks;

mod store;

mod server;

mod client;

mod node;

mod measure;

pub use bounds::{BLOCK_BYTES_MAX, BLOCKS_MAX, VERSION};
pub use client::{Client, ClientLimits, PeerState, Progress};
pub use error::{Drop, Error, ManifestError};
pub use keys::{DatagramKey, KeyPair, MAC_BYTES};
pub use manifest::{ContentId, Layout, MANIFEST_BYTES_MAX, Manifest};
pub use measure::{Encoding, Load, LoadOptions, encoding, load};
pub use node::{GetOptions, Got, ServeOptions, Serving, get, unpredictable};
pub use server::{Counters, Limits, Outbox, Path, Server, ServerKeys};
pub use store::Store;
pub use wire::{
    Block, Coding, DATAGRAM_BYTES_MAX, GRANTS_MAX, Grant, HELLO_BYTES, Hello, Malformed, Message,
    Refusal, Request, Welcome,
};

/// The seed of a test's random numbers, printed; `RECODED_SEED` repeats a run.
#[cfg(test)]
pub(crate) fn tests_seed() -> [u8; 32] {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let given = std::env::var("RECODED_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = given.unwrap_or_else(|| now.map_or(1, |now| now.as_nanos() as u64));
    eprintln!("RECODED_SEED={seed}");
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_be_bytes());
    bytes
}
