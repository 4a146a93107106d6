//! Files that hold one secret key, as printed by `recodectl genkey`. For the start of a program;
//! the only I/O of this crate.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::str::FromStr;

use zeroize::Zeroizing;

use crate::error::KeyError;

/// Bytes read from a file: a key has 44.
const FILE_BYTES_MAX: u64 = 256;

/// Permissions of group and others, which a key file must not have.
const OTHERS: u32 = 0o077;

/// Reads a [`PrivateKey`](crate::PrivateKey) or [`PresharedKey`](crate::PresharedKey).
///
/// # Errors
/// Users other than the owner may read or write the file, the owner is neither root nor the user of
/// this process, or it holds no key.
pub fn read<Key: FromStr<Err = KeyError>>(path: &Path) -> Result<Key, KeyError> {
    let unreadable = |source| KeyError::File { path: path.into(), source };
    let file = File::open(path).map_err(unreadable)?;
    // Of the open file, so that it cannot be replaced between the check and the read.
    let metadata = file.metadata().map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(KeyError::NotAFile { path: path.into() });
    }
    check_owner(path, metadata.uid())?;
    let mode = metadata.permissions().mode() & 0o7777;
    if mode & OTHERS != 0 {
        return Err(KeyError::Mode { path: path.into(), mode });
    }
    let mut text = Zeroizing::new(String::with_capacity(FILE_BYTES_MAX as usize));
    file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(unreadable)?;
    text.parse().map_err(|source| KeyError::Content { path: path.into(), source: Box::new(source) })
}

/// Another owner knows the key, and may replace it at any time.
fn check_owner(path: &Path, owner: u32) -> Result<(), KeyError> {
    let own = rustix::process::geteuid().as_raw();
    if owner == 0 || owner == own {
        Ok(())
    } else {
        Err(KeyError::Owner { path: path.into(), owner })
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions, write};

    use super::*;
    use crate::{Entropy, PrivateKey};

    #[test]
    fn key_files_that_others_may_open_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("key");
        let key = PrivateKey::generate(&Entropy::new([3; 64]));
        write(&path, format!("{}\n", *key.to_text())).expect("a file");
        for mode in [0o600, 0o400] {
            set_permissions(&path, Permissions::from_mode(mode)).expect("permissions");
            assert_eq!(read::<PrivateKey>(&path).expect("a key"), key, "{mode:o}");
        }
        for mode in [0o640, 0o604, 0o620, 0o601] {
            set_permissions(&path, Permissions::from_mode(mode)).expect("permissions");
            let refused = read::<PrivateKey>(&path);
            assert!(
                matches!(refused, Err(KeyError::Mode { mode: m, .. }) if m == mode),
                "{mode:o}"
            );
        }
    }

    #[test]
    fn key_files_of_other_users_are_refused() {
        let path = Path::new("/key");
        let own = rustix::process::geteuid().as_raw();
        assert!([0, own].iter().all(|owner| check_owner(path, *owner).is_ok()));
        let refused = check_owner(path, own + 7).expect_err("of another user");
        assert!(refused.to_string().ends_with("do: chown root /key"), "{refused}");
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("key");
        let key = PrivateKey::generate(&Entropy::new([3; 64]));
        write(&path, key.to_text().as_bytes()).expect("a file");
        set_permissions(&path, Permissions::from_mode(0o600)).expect("permissions");
        // Only root gives files away.
        if std::os::unix::fs::chown(&path, Some(own + 7), None).is_ok() {
            let refused = read::<PrivateKey>(&path);
            assert!(matches!(refused, Err(KeyError::Owner { owner, .. }) if owner == own + 7));
        }
    }

    #[test]
    fn folders_missing_files_and_other_content_are_typed_errors() {
        let folder = tempfile::tempdir().expect("a folder");
        let read_at = |path: &Path| read::<PrivateKey>(path).expect_err("no key");
        assert!(matches!(read_at(folder.path()), KeyError::NotAFile { .. }));
        assert!(matches!(read_at(&folder.path().join("none")), KeyError::File { .. }));
        let path = folder.path().join("long");
        write(&path, "A".repeat(5000)).expect("a file");
        set_permissions(&path, Permissions::from_mode(0o600)).expect("permissions");
        assert!(matches!(read_at(&path), KeyError::Content { .. }));
    }
}
