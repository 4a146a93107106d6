//! `recodectl top` in a build without it.

use std::path::Path;

/// Why there is no live view.
#[derive(Debug, thiserror::Error)]
#[allow(dead_code, reason = "as in the build with it")]
pub enum TopError {
    /// Output or input is a file or a pipe.
    #[error("top needs a terminal")]
    NoTerminal,
    /// JSON is not supported.
    #[error("top is for people")]
    Json,
    /// This build has none.
    #[error("this build of recodectl has no top: use recodectl show --watch 1s")]
    NotBuilt,
}

/// Shows nothing.
///
/// # Errors
/// Always.
pub fn run(_: &Path, _: bool) -> Result<(), TopError> {
    Err(TopError::NotBuilt)
}
