//! `web` in a build without it.

use super::Boxes;
use std::net::SocketAddr;

/// The page cannot be served.
#[derive(Debug, thiserror::Error)]
#[allow(dead_code, reason = "as in the build with it")]
pub enum WebError {
    /// The address is not of loopback.
    #[error("--listen {0}: the page is for this machine alone")]
    NotLoopback(SocketAddr),
    /// This build has none.
    #[error(
        "this build of recodectl has no web: use recodectl -f net.toml status, or run web on a \
         computer with the Debian package"
    )]
    NotBuilt,
}

/// Serves nothing.
///
/// # Errors
/// Always.
pub fn run(_: Boxes, _: SocketAddr, _: bool) -> Result<(), crate::Failure> {
    Err(WebError::NotBuilt.into())
}
