//! What the supervisor and the dataplane process say to each other, beside what
//! `recoded_runtime::Privileged` answers.
//!
//! ```text
//!  supervisor -- Frames: to be mapped at once --------------------------------------> dataplane
//!             <- Ready --------------------------------------------------------------------
//!             -- Start: configuration, control socket, channels to what is privileged and to who
//!                keeps configurations, and to who hears of events ------------------------>
//!             <- Started, Beat (four a second) --------------------------------------------
//!             <- Stuck: a thread does not answer ------------------------------------------
//!             -- Looked: what threads do is in the log, or they wait for a core --------->
//! ```
//!
//! Between `Ready` and `Start` a process may wait for long, to take over from another one.
//!
//! A configuration may be longer than a message, so it travels as a file in memory.

use rustix::fs::{MemfdFlags, memfd_create};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::time::Duration;

use crate::config::document::FILE_BYTES_MAX;
use crate::config::names::Names;

/// How often the dataplane process says that it is well.
pub const BEAT_INTERVAL: Duration = Duration::from_millis(250);

/// How long a process may take to end that leaves what waits in tunnels to the next one (SIGUSR1):
/// it goes on for 0.2 s with what it has read, and Linux ends it within some tens of milliseconds.
pub const LEAVE_PATIENCE: Duration = Duration::from_millis(500);

/// Exit code by which the dataplane process asks for another in its place.
pub const EXIT_AGAIN: u8 = 75;

/// The first message: frames that the process maps before it knows its configuration. None of them,
/// where there is nothing to wait for.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Frames {
    /// Workers that it will have.
    pub workers: usize,
    /// Frames of each.
    pub per_worker: u32,
    /// Largest MTU that they are for.
    pub mtu: usize,
}

/// The second message; a configuration, a listening socket and three channels come along.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Start {
    /// Name of the configuration in messages.
    pub file: String,
    /// MTUs of interfaces as last seen, for those that are gone.
    pub mtus: BTreeMap<String, u32>,
    /// Addresses of the host names in the configuration.
    pub names: Names,
    /// Whether another process ran before this one: then it starts without metrics if need be.
    pub is_again: bool,
    /// Whether the configuration before is back where this one does not start.
    pub is_trial: bool,
}

/// What the dataplane process reports.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum News {
    /// Its frames are mapped; it waits for what to do.
    Ready,
    /// Packets flow.
    Started,
    /// All threads run.
    Beat,
    /// One of them ended or does not answer, and this process is about to end, unless they wait for
    /// a core.
    Stuck,
}

/// What the supervisor says to [`News::Stuck`].
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Looked {
    /// Whether the machine is too busy for the threads of the process.
    pub is_starved: bool,
}

/// A text as a file in memory.
///
/// # Errors
///
/// Linux has no memory or descriptors.
pub fn written(text: &str) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create("configuration", MemfdFlags::CLOEXEC)?);
    file.write_all(text.as_bytes())?;
    Ok(file.into())
}

/// The text in a file in memory, of at most the size of a configuration.
///
/// # Errors
///
/// It is no text, too long, or not readable.
pub fn read(file: OwnedFd) -> io::Result<String> {
    let mut file = File::from(file);
    // Another kind of file could make the reader wait without end.
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
