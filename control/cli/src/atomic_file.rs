//! Files that are replaced as a whole, or not at all.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

/// Writes a draft next to `path` and renames it.
pub fn replace(path: &Path, text: &str) -> io::Result<()> {
    draft(path, text)?.persist(path)?;
    Ok(())
}

/// Writes a draft next to `path`, which is removed unless it is persisted. A device or a folder is
/// refused, since a rename would replace it: root could lose `/dev/null`.
pub fn draft(path: &Path, text: &str) -> io::Result<tempfile::NamedTempFile> {
    let metadata = fs::metadata(path);
    if metadata.as_ref().is_ok_and(|found| !found.is_file()) {
        return Err(io::Error::other("not a regular file"));
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let mut draft = tempfile::NamedTempFile::new_in(folder.unwrap_or(Path::new(".")))?;
    draft.write_all(text.as_bytes())?;
    let mode = metadata.map(|found| found.permissions());
    let readable = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    draft.as_file().set_permissions(mode.unwrap_or(readable))?;
    draft.as_file().sync_all()?;
    Ok(draft)
}

#[cfg(test)]
mod tests {
    use super::replace;
    use std::os::unix::net::UnixListener;

    #[test]
    fn only_regular_files_are_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        replace(&file, "one").unwrap();
        replace(&file, "two").unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "two");
        // As a device is: other programs have it open.
        let socket = folder.path().join("socket");
        let _listener = UnixListener::bind(&socket).unwrap();
        for path in [&socket, folder.path()] {
            let refused = replace(path, "three").unwrap_err();
            assert_eq!(refused.to_string(), "not a regular file");
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "a draft is left");
        }
    }
}
