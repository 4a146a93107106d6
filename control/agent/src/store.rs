//! Persistent state of an agent: the last good bundle, the newest verified version, and the change
//! in progress.
//!
//! ```text
//!  STATE/good.bundle   active, or it was when the agent confirmed it
//!  STATE/memory.json   newest version and its digest; what is half done
//!  STATE/before.toml   the daemon's file before what is half done
//! ```
//!
//! Each file is written atomically. A full disk leaves the box unchanged: no change starts before
//! it is recorded.

use crate::bundle::{BUNDLE_BYTES_MAX, Bundle, CONFIGURATION_BYTES_MAX};
use crate::files;
use crate::key::Verifier;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Longest `memory.json`, in bytes.
const MEMORY_BYTES_MAX: usize = 4096;

/// State that survives the agent.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Memory {
    /// Newest version verified for this node, applied or not.
    pub version: u64,
    /// SHA-256 of that bundle.
    pub digest: String,
    /// The change in progress at the daemon.
    pub doing: Doing,
}

/// The unfinished change.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Doing {
    /// Nothing.
    #[default]
    Nothing,
    /// The daemon's file is being replaced, by a reload or a restart.
    Changing,
}

/// Why a bundle is not newer.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StaleError {
    /// An older one.
    #[error(
        "version {found} is older than version {known}, the newest of this box: sign a newer one"
    )]
    Older {
        /// Its version.
        found: u64,
        /// The newest one.
        known: u64,
    },
    /// Another one with the same version.
    #[error("version {version} was another configuration: sign it with a higher version")]
    Other {
        /// The version of both.
        version: u64,
    },
}

/// The folder.
pub struct Store {
    folder: PathBuf,
    /// The recorded state.
    pub memory: Memory,
}

impl Store {
    /// Opens the folder, and creates it if it is missing.
    ///
    /// # Errors
    ///
    /// It cannot be read, or `memory.json` is not an agent's: without it, old versions could not be
    /// recognised.
    pub fn open(folder: &Path) -> io::Result<Store> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let memory = match files::read_if_there(&folder.join("memory.json"), MEMORY_BYTES_MAX)? {
            None => Memory::default(),
            Some(bytes) => serde_json::from_slice(&bytes)?,
        };
        Ok(Store { folder: folder.into(), memory })
    }

    /// Checks that a bundle may follow the recorded versions, and records it.
    ///
    /// # Errors
    ///
    /// [`StaleError`], or the record cannot be written.
    pub fn admit(&mut self, bundle: &Bundle, bytes: &[u8]) -> io::Result<Result<(), StaleError>> {
        let (version, digest) = (bundle.version(), digest(bytes));
        let known = self.memory.version;
        if version < known {
            return Ok(Err(StaleError::Older { found: version, known }));
        }
        if version == known && !self.memory.digest.is_empty() && digest != self.memory.digest {
            return Ok(Err(StaleError::Other { version }));
        }
        if self.memory.digest != digest {
            self.remember(Memory { version, digest, ..self.memory.clone() })?;
        }
        Ok(Ok(()))
    }

    /// The last good bundle and its bytes, if it still verifies.
    pub fn good(&self, node: &str, verifier: &Verifier) -> Option<(Bundle, Vec<u8>)> {
        let bytes = files::read(&self.folder.join("good.bundle"), BUNDLE_BYTES_MAX).ok()?;
        Some((Bundle::open(&bytes, node, verifier).ok()?, bytes))
    }

    /// Records the daemon's file before it changes.
    ///
    /// # Errors
    ///
    /// The error from Linux; the file must not be changed then.
    pub fn begin(&mut self, before: Option<&str>) -> io::Result<()> {
        let path = self.folder.join("before.toml");
        match before {
            Some(before) => files::replace(&path, before.as_bytes(), 0o600)?,
            None => match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            },
        }
        self.remember(Memory { doing: Doing::Changing, ..self.memory.clone() })
    }

    /// The daemon's file before the unfinished change.
    ///
    /// # Errors
    ///
    /// The error from Linux.
    pub fn before(&self) -> io::Result<Option<String>> {
        let path = self.folder.join("before.toml");
        let bytes = files::read_if_there(&path, CONFIGURATION_BYTES_MAX)?;
        Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// Records the end of the change, with `good` active, or rolled back.
    ///
    /// # Errors
    ///
    /// The error from Linux.
    pub fn end(&mut self, good: Option<&[u8]>) -> io::Result<()> {
        if let Some(good) = good {
            files::replace(&self.folder.join("good.bundle"), good, 0o600)?;
        }
        self.remember(Memory { doing: Doing::Nothing, ..self.memory.clone() })
    }

    fn remember(&mut self, memory: Memory) -> io::Result<()> {
        if memory != self.memory {
            let text = serde_json::to_vec(&memory)?;
            files::replace(&self.folder.join("memory.json"), &text, 0o600)?;
            self.memory = memory;
        }
        Ok(())
    }
}

/// SHA-256 of a bundle, in hexadecimal.
pub fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Signer;

    fn admitted(store: &mut Store, version: u64, text: &str) -> Result<(), StaleError> {
        let bundle = Bundle::new("a", version, text).unwrap();
        let signed = bundle.sign(&Signer::from_seed(&[1; 32]));
        store.admit(&bundle, signed.as_bytes()).unwrap()
    }

    #[test]
    fn versions_never_go_back_not_even_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::open(folder.path()).unwrap();
        assert_eq!(admitted(&mut store, 0, "zero"), Ok(()));
        assert_eq!(admitted(&mut store, 7, "seven"), Ok(()));
        let mut store = Store::open(folder.path()).unwrap();
        assert_eq!(admitted(&mut store, 6, "x"), Err(StaleError::Older { found: 6, known: 7 }));
        assert_eq!(admitted(&mut store, 7, "other"), Err(StaleError::Other { version: 7 }));
        assert_eq!(admitted(&mut store, 7, "seven"), Ok(()), "that very one again");
        assert_eq!(admitted(&mut store, 8, "eight"), Ok(()));
    }

    #[test]
    fn what_is_half_done_survives_and_broken_memory_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::open(folder.path()).unwrap();
        store.begin(Some("old")).unwrap();
        let mut store = Store::open(folder.path()).unwrap();
        assert_eq!(store.memory.doing, Doing::Changing);
        assert_eq!(store.before().unwrap().as_deref(), Some("old"));
        store.end(None).unwrap();
        store.begin(None).unwrap();
        assert_eq!(Store::open(folder.path()).unwrap().before().unwrap(), None);
        fs::write(folder.path().join("memory.json"), "{").unwrap();
        assert!(Store::open(folder.path()).is_err());
    }
}
