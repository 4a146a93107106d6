//! Claims the path of the control socket, and releases it.

use rustix::fs::Mode;
use rustix::process::umask;
use std::fs::{self, DirBuilder, Metadata, remove_file, symlink_metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Permissions withheld from the socket: only owner and group read and write.
const SOCKET_UMASK: Mode = Mode::from_raw_mode(0o117);

/// Flags of a socket that accepts connections, in `/proc/net/unix` (`__SO_ACCEPTCON`).
const LISTENS: &str = "00010000";

/// Linux ends a process within some tens of milliseconds, more under load.
const RELEASE_TIMEOUT: Duration = Duration::from_millis(500);
const RELEASE_PAUSE: Duration = Duration::from_millis(20);

/// Why the socket is unavailable.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// A daemon answers there.
    #[error(
        "the control socket {path} is in use by {holder}: stop it, or configure another path with \
         `socket` in [daemon]"
    )]
    InUse {
        /// The path.
        path: PathBuf,
        /// The daemon that answers there, in words.
        holder: String,
    },
    /// The path holds something other than a socket.
    #[error(
        "{path} exists and is not a socket: remove it, or configure another path with `socket` in \
         [daemon]"
    )]
    NotSocket {
        /// The path.
        path: PathBuf,
    },
    /// Linux refuses permission.
    #[error(
        "cannot {action} the control socket {path} ({source}): run as root, or configure a path in \
         a folder you own with `socket` in [daemon]"
    )]
    Io {
        /// The path.
        path: PathBuf,
        /// The attempted action.
        action: &'static str,
        /// The error from Linux.
        source: io::Error,
    },
}

/// A claimed path. Dropping it removes the socket, unless another daemon has replaced it.
#[derive(Debug)]
pub struct Claim {
    path: PathBuf,
    identity: (u64, u64),
}

impl Drop for Claim {
    fn drop(&mut self) {
        if symlink_metadata(&self.path).is_ok_and(|meta| identity(&meta) == self.identity)
            && let Err(error) = remove_file(&self.path)
        {
            tracing::warn!(%error, path = %self.path.display(), "the control socket stays behind");
        }
    }
}

/// Binds the control socket. Replaces a socket left by a dead daemon; with `is_left`, also one that
/// its dataplane process still serves.
///
/// # Errors
///
/// [`SocketError`], each with its fix.
pub fn claim(path: &Path, is_left: bool) -> Result<(UnixListener, Claim), SocketError> {
    let failed = |action| move |source| SocketError::Io { path: path.to_owned(), action, source };
    if let Some(folder) = path.parent() {
        let made = DirBuilder::new().recursive(true).mode(0o755).create(folder);
        made.map_err(failed("create the folder of"))?;
    }
    match symlink_metadata(path) {
        Ok(meta) if meta.file_type().is_socket() && is_left => {
            remove_file(path).map_err(failed("replace"))?;
        }
        Ok(meta) if meta.file_type().is_socket() => remove_patiently(path)?,
        Ok(_) => return Err(SocketError::NotSocket { path: path.to_owned() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed("look at")(error)),
    }
    // The permissions must hold from the start, so they cannot be set afterwards.
    let before = umask(SOCKET_UMASK);
    let bound = UnixListener::bind(path);
    umask(before);
    let listener = bound.map_err(|source| match source.kind() {
        // Another daemon was faster.
        io::ErrorKind::AddrInUse => in_use(path),
        _ => failed("bind")(source),
    })?;
    let meta = symlink_metadata(path).map_err(failed("look at"))?;
    listener.set_nonblocking(true).map_err(failed("set up"))?;
    Ok((listener, Claim { path: path.to_owned(), identity: identity(&meta) }))
}

/// Waits for a daemon that has just been killed: its dataplane process ends shortly after its
/// supervisor.
fn remove_patiently(path: &Path) -> Result<(), SocketError> {
    let end = Instant::now() + RELEASE_TIMEOUT;
    loop {
        match remove_stale(path) {
            Err(SocketError::InUse { .. }) if Instant::now() < end => {
                std::thread::sleep(RELEASE_PAUSE);
            }
            outcome => return outcome,
        }
    }
}

fn remove_stale(path: &Path) -> Result<(), SocketError> {
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            tracing::info!(path = %path.display(), "replacing the socket of a daemon that died");
            remove_file(path).map_err(|source| SocketError::Io {
                path: path.to_owned(),
                action: "replace",
                source,
            })
        }
        // Accepted, or the backlog is full: a process listens there.
        Ok(_) => Err(in_use(path)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(in_use(path)),
        Err(source) => Err(SocketError::Io { path: path.to_owned(), action: "connect to", source }),
    }
}

/// A daemon answers; its process is named if this user may see it.
fn in_use(path: &Path) -> SocketError {
    let kill = listener(path).map(|pid| format!(" (`kill {pid}`)")).unwrap_or_default();
    SocketError::InUse { path: path.to_owned(), holder: format!("a running daemon{kill}") }
}

/// Finds the process that listens at a path, from the tables of sockets and descriptors. The socket
/// itself names its creator, which may have exited.
fn listener(path: &Path) -> Option<u32> {
    let table = fs::read_to_string("/proc/net/unix").ok()?;
    let name = path.to_str()?;
    // Connections that it accepted have the same path.
    let listens = |line: &&str| line.split_whitespace().nth(3) == Some(LISTENS);
    let mut lines = table.lines().filter_map(|line| line.strip_suffix(name)).filter(listens);
    let inode = lines.find_map(|line| line.split_whitespace().nth(6).map(str::to_owned))?;
    let wanted = format!("socket:[{inode}]");
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let pids = processes.filter_map(|it| it.file_name().to_str()?.parse::<u32>().ok());
    let has_it = |pid: &u32| {
        let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        let mut targets = files.filter_map(|file| fs::read_link(file.path()).ok());
        targets.any(|target| target.to_str() == Some(&wanted))
    };
    pids.filter(has_it).min()
}

fn identity(meta: &Metadata) -> (u64, u64) {
    (meta.dev(), meta.ino())
}
