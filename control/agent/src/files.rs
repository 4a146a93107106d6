//! Atomic writes and bounded reads of files.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

/// Reads a file of at most `bytes_max` bytes, or one byte more of a larger one.
///
/// # Errors
///
/// The error from Linux.
pub fn read(path: &Path, bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(bytes_max as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The same, with `None` for a missing file.
///
/// # Errors
///
/// The error from Linux.
pub fn read_if_there(path: &Path, bytes_max: usize) -> io::Result<Option<Vec<u8>>> {
    match read(path, bytes_max) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes a draft next to `path`, syncs it to disk, and renames it. Mode and owner stay; a new file
/// has `mode`.
///
/// # Errors
///
/// The error from Linux; the file is unchanged then.
pub fn replace(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let draft = draft(path);
    let write = || {
        // A draft left by an interrupted write.
        let _ = fs::remove_file(&draft);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        file.write_all(bytes)?;
        let known = fs::metadata(path).ok();
        if let Some(known) = &known {
            // Only root may change the owner; the mode matters more.
            let _ = fchown(&file, Some(known.uid()), Some(known.gid()));
        }
        let mode = known.map_or(mode, |known| known.mode() & 0o7777);
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.sync_all()?;
        fs::rename(&draft, path)
    };
    write().inspect_err(|_| {
        let _ = fs::remove_file(&draft);
    })?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

fn draft(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".agent");
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaced_file_keeps_its_mode_and_a_failure_leaves_it_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("recoded.toml");
        assert_eq!(read_if_there(&path, 9).unwrap(), None);
        replace(&path, b"one", 0o644).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o644);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        replace(&path, b"two, longer", 0o644).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
        assert_eq!(read(&path, 99).unwrap(), b"two, longer");
        assert_eq!(read(&path, 3).unwrap(), b"two,", "one byte tells that it is longer");
        assert!(replace(&folder.path().join("none/file"), b"", 0o644).is_err());
        assert!(replace(folder.path(), b"", 0o644).is_err(), "a folder is not replaced");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no draft stays");
    }
}
