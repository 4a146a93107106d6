//! Servers and clients on sockets, threads and a clock.

mod get;
mod serve;
mod socket;

pub(crate) use socket::{Buffers, Socket};

pub use get::{GetOptions, Got, get};
pub use serve::{ServeOptions, Serving};

use crate::error::Error;

/// Unpredictable bytes.
///
/// # Errors
/// The system has no random generator.
pub fn unpredictable() -> Result<[u8; 32], Error> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(Error::Random)?;
    Ok(bytes)
}
