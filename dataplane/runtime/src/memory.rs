//! Replay protection that survives a restart, for paths without a return path: the newest epoch of
//! each way, so that recorded packets are not accepted again.
//!
//! ```text
//!  thread of keys -> Memory -> Ways, in this process (alone) or in the supervisor -> a file
//! ```
//!
//! Holds no secrets. A stamp never decreases. An epoch that cannot be written is neither kept nor
//! trusted; so a broken file is left alone until an operator removes it.

use crate::privileged::Client;
use recoded_secure::{KeyDirection, Remembered};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;

mod sessions;

pub(crate) use sessions::SessionRecords;

/// Most known ways: neighbours and flows of a node that changes its keys every month for years.
const WAYS_MAX: usize = 1024;

/// Longest file: each way takes less than 200 bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Number of a way, see [`KeyDirection::id`].
pub(crate) type WayId = [u8; 16];

/// The newest epoch of a way.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Newest {
    salt: [u8; 16],
    stamp: u64,
}

/// The newest epochs of all ways, in a file where there is one.
#[derive(Debug)]
pub struct Ways {
    file: Option<PathBuf>,
    known: BTreeMap<u128, Newest>,
    /// The reason why nothing can be kept.
    trouble: Option<String>,
    /// Records of sessions, in a file of their own.
    pub(crate) sessions: SessionRecords,
}

impl Ways {
    /// Reads `file`; without one, records end with this process.
    pub fn open(file: Option<PathBuf>) -> Ways {
        let beside = file.as_ref().map(|file| file.with_file_name("sessions.json"));
        let sessions = SessionRecords::open(beside);
        let mut ways = Ways { file, known: BTreeMap::new(), trouble: None, sessions };
        let Some(path) = &ways.file else { return ways };
        match read(path) {
            Ok(known) => ways.known = known.into_iter().collect(),
            Err(error) => {
                let trouble = format!(
                    "{} cannot be read ({error}): neighbours and flows with one_way are not heard. \
                     Remove it, and the first keys that come are believed, be they recorded ones",
                    path.display()
                );
                tracing::error!("{trouble}");
                ways.trouble = Some(trouble);
            }
        }
        ways
    }

    pub(crate) fn recall(&self, way: WayId) -> Option<Newest> {
        self.known.get(&u128::from_be_bytes(way)).copied()
    }

    /// Keeps an epoch, or returns why not.
    pub(crate) fn keep(&mut self, way: WayId, newest: Newest) -> Result<(), String> {
        if let Some(trouble) = &self.trouble {
            return Err(trouble.clone());
        }
        let way = u128::from_be_bytes(way);
        match self.known.get(&way) {
            Some(known) if known.stamp > newest.stamp => return Err("it is of the past".into()),
            None if self.known.len() >= WAYS_MAX => {
                return Err(format!("{WAYS_MAX} ways are known: remove the file of old ones"));
            }
            _ => {}
        }
        let before = self.known.insert(way, newest);
        let written = self.write();
        if written.is_err() {
            match before {
                Some(before) => self.known.insert(way, before),
                None => self.known.remove(&way),
            };
        }
        let path = self.file.clone().unwrap_or_default();
        written.map_err(|error| format!("{} cannot be written ({error})", path.display()))
    }

    /// Replaces the file atomically: it is the old one or the new one.
    fn write(&self) -> io::Result<()> {
        let Some(path) = &self.file else { return Ok(()) };
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let draft = path.with_extension("new");
        let mut options = File::options();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
        let known: Vec<_> = self.known.iter().collect();
        file.write_all(&serde_json::to_vec(&known)?)?;
        file.sync_data()?;
        fs::rename(&draft, path)
    }
}

fn read(path: &PathBuf) -> io::Result<Vec<(u128, Newest)>> {
    match fs::metadata(path) {
        Ok(found) if found.len() > FILE_BYTES_MAX => Err(ErrorKind::FileTooLarge.into()),
        Ok(_) => Ok(serde_json::from_slice(&fs::read(path)?)?),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// The same as seen by the key thread.
#[derive(Debug)]
pub(crate) enum Memory {
    /// In this process.
    Own(Ways),
    /// In the privileged half.
    Beside(Arc<Client>),
}

impl Memory {
    /// The kept record of a way.
    pub(crate) fn recall(&self, way: &KeyDirection) -> Option<Remembered> {
        let newest = match self {
            Memory::Own(ways) => ways.recall(way.id()),
            Memory::Beside(client) => match client.recall(way.id()) {
                Ok(newest) => newest,
                Err(error) => {
                    tracing::error!(%error, "what one-way paths remember is not known");
                    None
                }
            },
        }?;
        Some(Remembered { salt: newest.salt, stamp: newest.stamp })
    }

    /// No handshake of an earlier process has a newer stamp.
    pub(crate) fn stamp(&self) -> u64 {
        match self {
            Memory::Own(ways) => ways.sessions.stamp(),
            Memory::Beside(client) => client.recall_stamp().unwrap_or_else(|error| {
                tracing::warn!(%error, "stamps of earlier handshakes are not known");
                0
            }),
        }
    }

    /// Keeps a stamp that handshakes may reach.
    pub(crate) fn keep_stamp(&mut self, stamp: u64) {
        let kept = match self {
            Memory::Own(ways) => ways.sessions.keep_stamp(stamp),
            Memory::Beside(client) => client.keep_stamp(stamp).map_err(|error| error.to_string()),
        };
        if let Err(error) = kept {
            tracing::debug!("stamps of handshakes are not kept: {error}");
        }
    }

    /// The last address of a neighbour.
    pub(crate) fn place(&self, name: &str) -> Option<SocketAddr> {
        match self {
            Memory::Own(ways) => ways.sessions.place(name),
            Memory::Beside(client) => client.recall_place(name).unwrap_or_default(),
        }
    }

    /// Keeps the address of a neighbour.
    pub(crate) fn keep_place(&mut self, name: &str, at: SocketAddr) {
        let kept = match self {
            Memory::Own(ways) => ways.sessions.keep_place(name, at),
            Memory::Beside(client) => {
                client.keep_place(name, at).map_err(|error| error.to_string())
            }
        };
        if let Err(error) = kept {
            tracing::debug!("the address of a neighbour is not kept: {error}");
        }
    }

    /// Keeps the newest epoch of a way. Returns whether it could.
    pub(crate) fn keep(&mut self, way: &KeyDirection, newest: Remembered) -> bool {
        let newest = Newest { salt: newest.salt, stamp: newest.stamp };
        let kept = match self {
            Memory::Own(ways) => ways.keep(way.id(), newest),
            Memory::Beside(client) => {
                client.keep(way.id(), newest).map_err(|error| error.to_string())
            }
        };
        if let Err(error) = &kept {
            tracing::warn!("keys of a one-way path cannot be kept: {error}");
        }
        kept.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn newest(stamp: u64) -> Newest {
        Newest { salt: [stamp as u8; 16], stamp }
    }

    #[test]
    fn what_is_kept_outlives_the_process_and_never_goes_back() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("state").join("ways.json");
        let mut ways = Ways::open(Some(file.clone()));
        assert_eq!(ways.recall([1; 16]), None);
        ways.keep([1; 16], newest(5)).unwrap();
        ways.keep([2; 16], newest(7)).unwrap();
        ways.keep([1; 16], newest(6)).unwrap();
        assert!(ways.keep([1; 16], newest(5)).is_err(), "it is older");
        let again = Ways::open(Some(file));
        assert_eq!(again.recall([1; 16]), Some(newest(6)));
        assert_eq!(again.recall([2; 16]), Some(newest(7)));
    }

    #[test]
    fn nothing_is_kept_where_it_cannot_be_written_or_was_broken() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ways.json");
        fs::create_dir(folder.path().join("ways.new")).unwrap();
        let mut ways = Ways::open(Some(file.clone()));
        let said = ways.keep([1; 16], newest(5)).unwrap_err();
        assert!(said.contains("ways.json cannot be written"), "{said}");
        assert_eq!(ways.recall([1; 16]), None);
        for broken in [&b"[[1"[..], b"{}", &[b'1'; 2 << 20]] {
            fs::write(&file, broken).unwrap();
            let mut ways = Ways::open(Some(file.clone()));
            let said = ways.keep([1; 16], newest(5)).unwrap_err();
            assert!(said.contains("Remove it"), "{said}");
            assert_eq!(fs::read(&file).unwrap(), broken, "it is left alone");
        }
    }

    #[test]
    fn number_of_ways_is_bounded() {
        let mut ways = Ways::open(None);
        let id = |way: usize| (way as u128).to_be_bytes();
        (0..WAYS_MAX).for_each(|way| ways.keep(id(way), newest(1)).unwrap());
        assert!(ways.keep(id(WAYS_MAX), newest(1)).is_err());
        ways.keep(id(3), newest(2)).unwrap();
    }
}
