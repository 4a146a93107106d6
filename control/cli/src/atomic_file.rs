//! Files that are replaced as a whole, or not at all.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

/// Writes a draft next to `path` and renames it.
pub fn replace(path: &Path, text: &str) -> io::Result<()> {
    draft(path, text)?.persist(path)?;
    Ok(())
}

/// Writes a draft next to `path`, which is removed unless it is persisted.
pub fn draft(path: &Path, text: &str) -> io::Result<tempfile::NamedTempFile> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let mut draft = tempfile::NamedTempFile::new_in(folder.unwrap_or(Path::new(".")))?;
    draft.write_all(text.as_bytes())?;
    let mode = fs::metadata(path).map(|metadata| metadata.permissions());
    let readable = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    draft.as_file().set_permissions(mode.unwrap_or(readable))?;
    draft.as_file().sync_all()?;
    Ok(draft)
}
