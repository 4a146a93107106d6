//! Messages between the supervisor and the dataplane process, in addition to those of
//! `recoded_runtime::Privileged`.
//!
//! ```text
//!  supervisor -- Frames: to be mapped at once --------------------------------------> dataplane
//!             <- Ready --------------------------------------------------------------------
//!             -- Start: configuration, control socket, channels to the privileged service, the
//!                keeper of configurations and the log of events ------------------------->
//!             <- Started, Beat (four a second) --------------------------------------------
//!             <- Stuck: a thread does not answer ------------------------------------------
//!             -- Looked: what threads do is in the log, or they wait for a core --------->
//! ```
//!
//! Between `Ready` and `Start` a standby process may wait for long, until it takes over.
//!
//! A configuration may exceed a message, so it travels as a file in memory.

use rustix::fs::{MemfdFlags, memfd_create};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::time::Duration;

use crate::config::document::FILE_BYTES_MAX;
use crate::config::names::Names;

/// Interval of the dataplane process's health reports.
pub const BEAT_INTERVAL: Duration = Duration::from_millis(250);

/// Time limit for a process to end after SIGUSR1, when it leaves packets queued in tunnels to its
/// successor. It continues for 0.2 s with packets already read, and Linux ends it within some tens
/// of milliseconds.
pub const LEAVE_PATIENCE: Duration = Duration::from_millis(500);

/// Exit code that requests another dataplane process.
pub const EXIT_AGAIN: u8 = 75;

/// Exit code of a dataplane process that was set back to a snapshot, or runs twice.
pub const EXIT_SET_BACK: u8 = 76;

/// The first message: frames that the process maps before it knows its configuration. Zero frames
/// for a process that starts at once.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Frames {
    /// Number of workers.
    pub workers: usize,
    /// Frames per worker.
    pub per_worker: u32,
    /// Largest MTU that they fit.
    pub mtu: usize,
}

/// The second message, with a configuration, a listening socket and three channels attached.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Start {
    /// Name of the configuration in messages.
    pub file: String,
    /// MTUs of interfaces as last seen, for missing interfaces.
    pub mtus: BTreeMap<String, u32>,
    /// Addresses of the host names in the configuration.
    pub names: Names,
    /// Whether another process ran before this one. If so, it may start without metrics.
    pub is_again: bool,
    /// Whether the previous configuration returns if this one fails to start.
    pub is_trial: bool,
}

/// Reports of the dataplane process.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum News {
    /// Its frames are mapped; it waits for orders.
    Ready,
    /// Packets flow.
    Started,
    /// All threads run.
    Beat,
    /// A thread ended or does not respond. This process will end, unless the threads only wait for
    /// a core.
    Stuck,
}

/// The supervisor's reply to [`News::Stuck`].
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Looked {
    /// Whether the machine is too busy to run the threads of the process.
    pub is_starved: bool,
}

/// Writes a text to a file in memory.
///
/// # Errors
///
/// Linux has no memory or descriptors.
pub fn written(text: &str) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create("configuration", MemfdFlags::CLOEXEC)?);
    file.write_all(text.as_bytes())?;
    Ok(file.into())
}

/// Reads the text of a file in memory, of at most the size of a configuration.
///
/// # Errors
///
/// It is not text, too long, or not readable.
pub fn read(file: OwnedFd) -> io::Result<String> {
    let mut file = File::from(file);
    // A read from another kind of file could block indefinitely.
    if !file.metadata()?.is_file() {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    file.rewind()?;
    let mut text = String::new();
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::from(io::ErrorKind::FileTooLarge));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn text_survives_the_way_and_what_is_no_file_is_refused() {
        let text = "[daemon]\n".repeat(10_000);
        assert_eq!(read(written(&text).unwrap()).unwrap(), text);
        let (socket, _other) = UnixStream::pair().unwrap();
        assert!(read(socket.into()).is_err());
        let long = " ".repeat(usize::try_from(FILE_BYTES_MAX).unwrap() + 1);
        assert_eq!(read(written(&long).unwrap()).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }
}
