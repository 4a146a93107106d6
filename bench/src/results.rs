//! Files of a benchmark: JSON with one sample a line, and figures.

use std::path::Path;
use std::{fs, io};

use serde::Serialize;

use crate::error::BenchError;

/// Writes a file.
///
/// # Errors
/// [`BenchError::Os`].
pub fn write(path: &Path, text: impl AsRef<[u8]>) -> Result<(), BenchError> {
    fs::write(path, text).map_err(BenchError::os(format!("writing {}", path.display())))
}

/// Writes `value` as JSON.
///
/// # Errors
/// [`BenchError::Os`].
pub fn write_json(path: &Path, value: &impl Serialize) -> Result<(), BenchError> {
    let text = bench_json::to_string(value).map_err(io::Error::other);
    write(path, text.map_err(BenchError::os("forming JSON"))?)
}
