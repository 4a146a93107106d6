//! Records of sessions that outlive a restart: the newest stamp of this node's handshakes, and the
//! addresses at which roaming neighbours were last authenticated.
//!
//! Holds no secrets and needs no trust: a stamp keeps this node's handshakes newer than its earlier
//! ones whatever its clock says, and an address is one of two destinations of the first handshake.
//! A lost or broken record costs some seconds, so a broken file is replaced.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Neighbours whose addresses are kept: five times as many as any hub in the tests has.
const PLACES_MAX: usize = 1024;

/// Longest name of a neighbour: link, configured address, and public key.
const NAME_BYTES_MAX: usize = 192;

/// Longest file: each neighbour takes less than 300 bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// How far a stamp may exceed both its record and the wall clock: a compromised process cannot
/// exhaust all stamps at once.
const AHEAD_NANOS: u64 = 120_000_000_000;

/// The records, in a file where there is one.
#[derive(Debug, Default)]
pub(crate) struct SessionRecords {
    file: Option<PathBuf>,
    records: Records,
    is_warned: bool,
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Records {
    /// No earlier handshake has a newer stamp.
    stamp: u64,
    /// By name.
    places: BTreeMap<String, SocketAddr>,
}

impl SessionRecords {
    /// The content of `file`; without one, records end with this process.
    pub(crate) fn open(file: Option<PathBuf>) -> SessionRecords {
        let read = file.as_deref().map_or_else(|| Ok(Records::default()), read);
        let records = read.unwrap_or_else(|error| {
            let path = file.as_deref().unwrap_or(Path::new("")).display();
            tracing::warn!(
                "{path} cannot be read ({error}): sessions begin without records, and it is replaced"
            );
            Records::default()
        });
        SessionRecords { file, records, is_warned: false }
    }

    /// No handshake of an earlier process has a newer stamp.
    pub(crate) fn stamp(&self) -> u64 {
        self.records.stamp
    }

    /// Keeps a stamp that handshakes may reach; it never decreases.
    pub(crate) fn keep_stamp(&mut self, stamp: u64) -> Result<(), String> {
        if stamp > self.records.stamp.max(wall_clock()).saturating_add(AHEAD_NANOS) {
            return Err("the stamp is too far ahead".into());
        }
        if stamp > self.records.stamp {
            self.records.stamp = stamp;
            self.write();
        }
        Ok(())
    }

    /// The last address of a neighbour.
    pub(crate) fn place(&self, name: &str) -> Option<SocketAddr> {
        self.records.places.get(name).copied()
    }

    /// Keeps the address of a neighbour.
    pub(crate) fn keep_place(&mut self, name: &str, at: SocketAddr) -> Result<(), String> {
        if name.len() > NAME_BYTES_MAX {
            return Err("the name is too long".into());
        }
        if self.records.places.get(name) == Some(&at) {
            return Ok(());
        }
        if self.records.places.len() >= PLACES_MAX && !self.records.places.contains_key(name) {
            self.records.places.pop_first();
        }
        self.records.places.insert(name.to_owned(), at);
        self.write();
        Ok(())
    }

    /// Replaces the file. If that fails, the records still outlive the dataplane process.
    fn write(&mut self) {
        let Some(path) = &self.file else { return };
        if let Err(error) = replace(path, &self.records)
            && !std::mem::replace(&mut self.is_warned, true)
        {
            tracing::warn!(
                "{} cannot be written ({error}): after a restart of recoded, sessions with roaming \
                 neighbours or with a wrong clock take some seconds longer",
                path.display()
            );
        }
    }
}

/// Replaces the file atomically. It is not synced: after a power failure it may be empty.
fn replace(path: &Path, records: &Records) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let draft = path.with_extension("new");
    fs::write(&draft, serde_json::to_vec(records)?)?;
    fs::rename(&draft, path)
}

fn read(path: &Path) -> io::Result<Records> {
    match fs::metadata(path) {
        Ok(found) if found.len() > FILE_BYTES_MAX => Err(ErrorKind::FileTooLarge.into()),
        Ok(_) => {
            let records: Records = serde_json::from_slice(&fs::read(path)?)?;
            let is_bounded = records.places.len() <= PLACES_MAX
                && records.places.keys().all(|name| name.len() <= NAME_BYTES_MAX);
            if is_bounded { Ok(records) } else { Err(ErrorKind::InvalidData.into()) }
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Records::default()),
        Err(error) => Err(error),
    }
}

/// Nanoseconds since 1970.
fn wall_clock() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], port))
    }

    #[test]
    fn records_outlive_the_process_and_stamps_never_go_back() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("state").join("sessions.json");
        let mut records = SessionRecords::open(Some(file.clone()));
        assert_eq!((records.stamp(), records.place("a")), (0, None));
        records.keep_stamp(70).unwrap();
        records.keep_stamp(60).unwrap();
        records.keep_place("a", at(1)).unwrap();
        records.keep_place("a", at(2)).unwrap();
        let again = SessionRecords::open(Some(file));
        assert_eq!((again.stamp(), again.place("a")), (70, Some(at(2))));
    }

    #[test]
    fn broken_files_are_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("sessions.json");
        for broken in [&b""[..], b"{}", b"{\"stamp\": -1, \"places\": {}}", &[b'1'; 2 << 20]] {
            fs::write(&file, broken).unwrap();
            let mut records = SessionRecords::open(Some(file.clone()));
            assert_eq!(records.stamp(), 0);
            records.keep_stamp(5).unwrap();
            assert_eq!(SessionRecords::open(Some(file.clone())).stamp(), 5);
        }
    }

    /// A full or read-only disk: the supervisor still has them.
    #[test]
    fn records_that_cannot_be_written_are_kept_in_memory() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("sessions.json");
        fs::create_dir(folder.path().join("sessions.new")).unwrap();
        let mut records = SessionRecords::open(Some(file));
        records.keep_stamp(5).unwrap();
        records.keep_place("a", at(1)).unwrap();
        assert_eq!((records.stamp(), records.place("a")), (5, Some(at(1))));
    }

    #[test]
    fn a_process_that_was_taken_over_neither_fills_the_records_nor_uses_up_stamps() {
        let mut records = SessionRecords::open(None);
        for number in 0..2 * PLACES_MAX {
            records.keep_place(&number.to_string(), at(1)).unwrap();
        }
        assert_eq!(records.records.places.len(), PLACES_MAX);
        assert!(records.keep_place(&"x".repeat(NAME_BYTES_MAX + 1), at(1)).is_err());
        assert!(records.keep_stamp(u64::MAX).is_err());
        assert!(records.keep_stamp(wall_clock() + 2 * AHEAD_NANOS).is_err());
        records.keep_stamp(wall_clock() + AHEAD_NANOS / 2).unwrap();
    }
}
