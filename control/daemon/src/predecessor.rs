//! State that a supervisor leaves to its successor, however it ends: a lock that shows whether it
//! is alive, and a record of the process and tunnels left running.
//!
//! ```text
//!  recoded.sock         clients
//!  recoded.sock.lock    locked (flock) by the supervisor; its process id, and the process that
//!                       handles packets: one block, rewritten in place
//!  recoded.sock.state   Record, replaced whole; removed at an orderly end
//!  recoded.sock.events  events, from one that becomes the next; removed when they are read
//! ```
//!
//! On a full disk the previous record remains, and the new one is written as soon as there is room.
//! The process that handles packets is still known: writing its process id takes no new block.

use crate::config::names::Names;
use crate::keeper::Handover;
use crate::lifecycle::LEAVE_PATIENCE;
use recoded_api::v1::Events;
use recoded_runtime::Left;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpid, pidfd_open, pidfd_send_signal, waitpid,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A record holds two configurations and some names; a longer file is invalid.
const RECORD_BYTES_MAX: u64 = 8 << 20;

/// Bytes of the lock file: three numbers, each in a line of 20 digits at most.
const LOCK_BYTES: usize = 64;

/// Pause before a failed write of the record is retried.
const RETRY: Duration = Duration::from_secs(1);

/// Linux frees the memory and the sockets of a killed process in less, under any load.
const END_PATIENCE: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };

/// Why this daemon cannot own its control socket.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another daemon is alive.
    #[error(
        "process {pid} is the daemon of {path}: stop it, have it replaced by SIGUSR2, or configure \
         another path with `socket` in [daemon]"
    )]
    Held {
        /// Its process id; 0 if it has not written it yet.
        pid: u32,
        /// The control socket.
        path: PathBuf,
    },
    /// Linux refuses.
    #[error("cannot lock or write {path} ({source}): run as root, and free space if it is full")]
    Io {
        /// The file.
        path: PathBuf,
        /// The error from Linux.
        source: io::Error,
    },
}

/// Ownership of a control socket; held until dropped.
#[derive(Debug)]
pub struct Lock {
    file: File,
    /// The process that the previous supervisor left, according to the lock file.
    left: Option<Process>,
    state: PathBuf,
    events: PathBuf,
    /// When to retry a failed write of the record.
    due: Cell<Option<Instant>>,
}

/// State left behind when a supervisor is killed.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Record {
    /// The process that handles packets.
    pub dataplane: Option<Process>,
    /// Its tunnels.
    pub tunnels: Left,
    /// The configuration as read from the file.
    pub file: String,
    /// The active configuration.
    pub text: String,
    /// Addresses of the host names in it.
    #[serde(default)]
    pub names: Names,
    /// Set if the next supervisor takes over with a configuration that was read.
    #[serde(default)]
    pub handover: Option<Handover>,
}

/// A process, distinguished from a later one with the same process id.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Process {
    pid: i32,
    /// Start time, in ticks since boot.
    started: u64,
}

/// A process that was killed, and may not have ended yet.
#[derive(Debug)]
pub struct Killed {
    pid: Pid,
    handle: OwnedFd,
}

impl Lock {
    /// Takes the lock of the control socket at `path`.
    ///
    /// # Errors
    /// [`LockError`]: another daemon lives, or Linux refuses.
    pub fn take(path: &Path) -> Result<Lock, LockError> {
        let name = beside(path, "lock");
        let failed = |source| LockError::Io { path: name.clone(), source };
        if let Some(folder) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o755).create(folder).map_err(failed)?;
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(&name).map_err(failed)?;
        let (holder, left) = numbers(&file);
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => {
                return Err(LockError::Held { pid: holder, path: path.to_owned() });
            }
            locked => locked.map_err(|error| failed(error.into()))?,
        }
        let [state, events] = ["state", "events"].map(|of| beside(path, of));
        let lock = Lock { file, left, state, events, due: Cell::new(None) };
        if let Err(error) = lock.write_numbers(left) {
            tracing::warn!(%error, path = %name.display(), "cannot write the lock file");
        }
        Ok(lock)
    }

    /// Writes the process ids of the supervisor and of the process that handles packets, in place
    /// and in one block.
    fn write_numbers(&self, dataplane: Option<Process>) -> io::Result<()> {
        let own = getpid().as_raw_nonzero();
        let dataplane = dataplane.map(|it| format!("{} {}", it.pid, it.started));
        let text = format!("{own}\n{}\n", dataplane.unwrap_or_default());
        self.file.write_all_at(format!("{text:<LOCK_BYTES$}").as_bytes(), 0)
    }

    /// The record that the previous daemon left; `None` if it shut down cleanly.
    pub fn record(&self) -> Option<Record> {
        let record: Option<Record> = read(&self.state);
        match self.left.filter(|process| process.runs()) {
            // The process id is newer than a record that could not be written.
            Some(left) => Some(Record { dataplane: Some(left), ..record.unwrap_or_default() }),
            None => record,
        }
    }

    /// The events of the supervisor that became this one; none if it ended in any other way.
    pub fn events(&self) -> Option<Events> {
        let events = read(&self.events);
        let _ = fs::remove_file(&self.events);
        events
    }

    /// Saves the events of this supervisor for the one that it becomes.
    pub fn leave(&self, events: &Events) {
        if let Err(error) = write(&self.events, events) {
            tracing::warn!(%error, "events before the takeover are in the log only");
        }
    }

    /// Records the state left behind if this process is killed.
    pub fn note(&self, record: &Record) {
        let noted = self.write_numbers(record.dataplane).and(write(&self.state, record));
        let was_due = self.due.take().is_some();
        let path = self.state.display();
        match noted {
            Ok(()) if was_due => tracing::info!(%path, "what runs is on record again"),
            Ok(()) => {}
            Err(error) => {
                self.due.set(Some(Instant::now() + RETRY));
                if !was_due {
                    tracing::error!(
                        %error,
                        %path,
                        "what runs is not on record, and is written once there is room: free \
                         space there"
                    );
                }
            }
        }
    }

    /// Whether a failed write of the record is due for a retry.
    pub fn is_due(&self) -> bool {
        self.due.get().is_some_and(|at| Instant::now() >= at)
    }

    /// Removes the saved state.
    pub fn clear(&self) {
        let _ = fs::remove_file(&self.events);
        let _ = self.write_numbers(None);
        match fs::remove_file(&self.state) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, path = %self.state.display(), "it stays behind");
            }
            _ => {}
        }
    }
}

impl Record {
    /// Tunnels left behind: those on record and, if the record may be older than a running process,
    /// those of the configuration.
    pub fn left(before: Option<&Record>, configured: Option<Left>) -> Left {
        let mut left = before.map(|before| before.tunnels.clone()).unwrap_or_default();
        for (name, addresses) in configured.into_iter().flatten() {
            left.entry(name).or_insert(addresses);
        }
        left
    }
}

impl Process {
    /// The process with this id, if there is one.
    pub fn find(pid: u32) -> Option<Process> {
        let pid = i32::try_from(pid).ok()?;
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name, in parentheses, may contain any characters, so fields are counted after it
        // (proc(5)).
        let mut fields = stat.rsplit_once(") ")?.1.split(' ');
        let is_over = fields.next()? == "Z";
        let started = fields.nth(18)?.parse().ok()?;
        (!is_over).then_some(Process { pid, started })
    }

    /// Whether it still runs.
    pub fn runs(self) -> bool {
        u32::try_from(self.pid).ok().and_then(Process::find) == Some(self)
    }

    /// Kills it, unless it has ended.
    pub fn kill(self) -> Option<Killed> {
        self.signal(Signal::KILL)
    }

    /// Has it end once packets read from tunnels have been delivered, and waits for that; kills it
    /// on timeout. A version without this signal ends at once.
    pub fn leave(self) -> Option<Killed> {
        let left = self.signal(Signal::USR1)?;
        let patience = Timespec::try_from(LEAVE_PATIENCE).unwrap_or(END_PATIENCE);
        match poll(&mut [PollFd::new(&left.handle, PollFlags::IN)], Some(&patience)) {
            Ok(1..) => {}
            _ => {
                tracing::warn!(
                    pid = %left.pid,
                    "the previous dataplane process does not end in time: killing it"
                );
            }
        }
        let _ = pidfd_send_signal(&left.handle, Signal::KILL);
        Some(left)
    }

    fn signal(self, signal: Signal) -> Option<Killed> {
        let pid = Pid::from_raw(self.pid)?;
        let handle = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        // From here on the process id cannot be reused.
        if !self.runs() {
            return None;
        }
        let _ = pidfd_send_signal(&handle, signal);
        Some(Killed { pid, handle })
    }
}

impl Killed {
    /// Waits until its sockets and tunnel queues are free, or nearly: Linux frees some of them a
    /// moment later.
    pub fn wait(self) {
        let Killed { pid, handle } = self;
        match poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&END_PATIENCE)) {
            Ok(1..) => {}
            _ => tracing::error!(%pid, "the dataplane process before this does not end"),
        }
        // After an upgrade it is a child of this process.
        let _ = waitpid(Some(pid), WaitOptions::NOHANG);
    }
}

/// Addresses of host names from the record of the daemon of the control socket at `path`, if it did
/// not shut down cleanly.
pub fn names(path: &Path) -> Names {
    read(&beside(path, "state")).map(|record: Record| record.names).unwrap_or_default()
}

/// Replaces the file atomically.
fn write(path: &Path, what: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_vec(what)?;
    let draft = beside(path, "new");
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
    file.write_all(&text)?;
    fs::rename(&draft, path)
}

fn read<T: DeserializeOwned>(path: &Path) -> Option<T> {
    let file = File::open(path).ok()?;
    let read = serde_json::from_reader(file.take(RECORD_BYTES_MAX));
    read.inspect_err(|error| {
        tracing::warn!(%error, path = %path.display(), "what it left is not known");
    })
    .ok()
}

/// Process ids of the supervisor and of the process that handles packets, from a lock file; 0 and
/// none if missing.
fn numbers(file: &File) -> (u32, Option<Process>) {
    let mut bytes = [0; LOCK_BYTES];
    let length = file.read_at(&mut bytes, 0).unwrap_or(0);
    let text = String::from_utf8_lossy(&bytes[..length]);
    let mut lines = text.lines();
    let holder = lines.next().and_then(|line| line.trim().parse().ok()).unwrap_or(0);
    let process = lines.next().and_then(|line| {
        let (pid, started) = line.trim().split_once(' ')?;
        Some(Process { pid: pid.parse().ok()?, started: started.parse().ok()? })
    });
    (holder, process)
}

fn beside(path: &Path, extension: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(extension);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keeper::Cause;
    use crate::keeper::history::Entry;
    use std::process::Command;

    #[test]
    fn second_lock_is_refused_with_the_holder_and_free_when_it_ends() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.sock");
        let lock = Lock::take(&path).unwrap();
        let refused = Lock::take(&path).unwrap_err();
        assert!(matches!(refused, LockError::Held { pid, .. } if pid == std::process::id()));
        drop(lock);
        assert!(Lock::take(&path).is_ok());
    }

    #[test]
    fn record_is_read_back_and_garbage_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.sock");
        let lock = Lock::take(&path).unwrap();
        assert_eq!(lock.record(), None);
        let addresses = vec![("10.99.0.1".parse().unwrap(), 24)];
        let record = Record {
            dataplane: Process::find(std::process::id()),
            tunnels: Left::from([("rec0".to_owned(), addresses)]),
            file: "one".into(),
            text: "other".into(),
            names: Names::ask(["localhost"]),
            handover: Some(Handover {
                before: "third".into(),
                number: 7,
                past: vec![Entry { number: 6, at: 1, cause: Cause::Set, text: "fourth".into() }],
                deadline_millis: Some(1),
            }),
        };
        assert!(record.dataplane.is_some_and(Process::runs));
        lock.note(&record);
        assert_eq!(lock.record(), Some(record));
        for garbage in ["", "{", "[]", "{\"dataplane\": {\"pid\": -1}}"] {
            fs::write(beside(&path, "state"), garbage).unwrap();
            assert_eq!(lock.record(), None, "{garbage}");
        }
        lock.clear();
        assert_eq!(lock.record(), None);
    }

    #[test]
    fn events_are_read_once_and_garbage_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.sock");
        let lock = Lock::take(&path).unwrap();
        assert_eq!(lock.events(), None);
        let events = Events { newest: 3, began_ms: 1, ..Events::default() };
        lock.leave(&events);
        assert_eq!((lock.events(), lock.events()), (Some(events.clone()), None));
        fs::write(beside(&path, "events"), "{\"events\": 7}").unwrap();
        assert_eq!((lock.events(), lock.events()), (None, None));
        lock.leave(&events);
        lock.clear();
        assert_eq!(lock.events(), None, "it ended in order");
    }

    /// A full disk: Linux reports no space left for writes to the draft.
    #[test]
    fn record_that_a_full_disk_refuses_leaves_the_one_before_and_is_written_later() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.sock");
        let lock = Lock::take(&path).unwrap();
        let [before, after] =
            ["before", "after"].map(|text| Record { text: text.into(), ..Record::default() });
        lock.note(&before);
        let draft = beside(&path, "state.new");
        std::os::unix::fs::symlink("/dev/full", &draft).unwrap();
        let refused = write(&lock.state, &after).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::StorageFull);
        lock.note(&after);
        assert_eq!(lock.record(), Some(before));
        fs::remove_file(&draft).unwrap();
        lock.note(&after);
        assert_eq!(lock.record(), Some(after));
    }

    /// A child process of another test may hold the lock a moment longer.
    fn take_again(path: &Path) -> Lock {
        let end = Instant::now() + Duration::from_secs(10);
        loop {
            match Lock::take(path) {
                Ok(lock) => return lock,
                Err(error) => assert!(Instant::now() < end, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The disk is full while the process that handles packets is replaced, and still full when
    /// this one is killed: the previous record names a dead process.
    #[test]
    fn process_is_known_after_a_full_disk_and_the_record_is_due_until_it_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.sock");
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let running = Process::find(child.id());
        let dead = Some(Process { pid: 1, started: 77 });
        let of = |dataplane| Record { dataplane, text: "text".into(), ..Record::default() };
        let lock = Lock::take(&path).unwrap();
        lock.note(&of(dead));
        assert!(!lock.is_due());
        let draft = beside(&path, "state.new");
        std::os::unix::fs::symlink("/dev/full", &draft).unwrap();
        lock.note(&of(running));
        std::thread::sleep(RETRY);
        assert!(lock.is_due());
        drop(lock);
        let next = take_again(&path);
        assert_eq!(next.record(), Some(of(running)));
        next.note(&of(running));
        fs::remove_file(&draft).unwrap();
        next.note(&of(running));
        std::thread::sleep(RETRY);
        assert!(!next.is_due(), "it is written");
        // The same without any record.
        fs::remove_file(&next.state).unwrap();
        drop(next);
        let next = take_again(&path);
        assert_eq!(next.record().and_then(|record| record.dataplane), running);
        child.kill().unwrap();
        let _ = child.wait();
        assert_eq!(next.record(), None, "nothing runs, and nothing is on record");
        next.clear();
        drop(next);
        assert_eq!(take_again(&path).left, None);
    }

    #[test]
    fn lock_file_of_a_version_before_or_of_garbage_is_read_as_far_as_it_goes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r");
        for (text, wanted) in [
            ("", (0, None)),
            ("4711\n", (4711, None)),
            ("4711\n12 34\n", (4711, Some(Process { pid: 12, started: 34 }))),
            ("x\n12 y\n", (0, None)),
            ("1\n12\n3 4\n", (1, None)),
        ] {
            fs::write(&path, text).unwrap();
            assert_eq!(numbers(&File::open(&path).unwrap()), wanted, "{text}");
        }
    }

    /// A kill or a power cut at each byte of a write leaves only the draft incomplete.
    #[test]
    fn draft_cut_off_at_any_byte_leaves_the_record_before_and_the_next_one_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.sock");
        let [before, after] =
            ["before", "after"].map(|text| Record { text: text.into(), ..Record::default() });
        let whole = serde_json::to_vec(&after).unwrap();
        // One lock for all, since a child process of another test may hold it a moment longer.
        let lock = Lock::take(&path).unwrap();
        for length in 0..=whole.len() {
            lock.note(&before);
            fs::write(beside(&path, "state.new"), &whole[..length]).unwrap();
            assert_eq!(lock.record().as_ref(), Some(&before), "{length} bytes");
            lock.note(&after);
            assert_eq!(lock.record().as_ref(), Some(&after), "{length} bytes");
        }
    }

    #[test]
    fn process_is_ended_and_a_later_one_of_its_number_is_not() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let process = Process::find(child.id()).unwrap();
        let later = Process { started: process.started + 1, ..process };
        assert!(later.kill().is_none());
        assert!(process.runs() && !later.runs());
        process.kill().unwrap().wait();
        assert!(!process.runs());
        let _ = child.wait();
    }
}
