//! Limits around zlink's transport: connections, bytes of a request, seconds of silence.
//!
//! zlink serves all connections from one task, accepts without limit and buffers messages of up to
//! 100 MB, so one client could starve the daemon or exhaust its memory. Here, excess connections
//! are closed at once. A request that is too large or too slow ends its connection, and so does a
//! client that does not read its replies. A client's input can cost no more than its own
//! connection.
//!
//! Idle clients cannot lock others out: one slot is reserved for root, and while every other slot
//! is taken, a connection ends after [`IDLE_TIMEOUT_FULL`] of silence.

pub use recoded_api::REQUEST_BYTES_MAX;
use recoded_api::service::Service;
use std::io;
use std::os::fd::AsFd;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};
use zlink::Connection;
use zlink::connection::PassedCredentials;
use zlink::connection::socket::{ReadHalf, ReadResult, Socket, WriteHalf};
use zlink::tokio::unix::Stream;

/// Connections served at once. Operators and scripts need one each, for milliseconds.
pub const CONNECTIONS_MAX: usize = 16;

/// Additional connections reserved for root, so that no other user can lock an operator out.
pub const CONNECTIONS_ROOT: usize = 1;

/// Longest silence between requests, and longest time for one to arrive.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Longest silence while [`CONNECTIONS_MAX`] connections are open: longer than a client needs
/// between two requests of one task, shorter than an operator waits.
pub const IDLE_TIMEOUT_FULL: Duration = Duration::from_secs(1);

/// Longest time for a client to take a reply. All connections wait meanwhile.
const REPLY_TIMEOUT: Duration = Duration::from_millis(500);

/// Pause after Linux refuses to accept, for example when descriptors run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves `service` on `listener` until dropped.
///
/// # Errors
///
/// Only when the listener cannot be registered with the runtime.
pub async fn serve(
    listener: std::os::unix::net::UnixListener,
    service: Service,
) -> Result<(), zlink::Error> {
    let listener = UnixListener::from_std(listener)?;
    zlink::Server::new(Listener { listener, slots: Rc::default() }, service).run().await
}

/// Accepts up to [`CONNECTIONS_MAX`] connections at a time, and [`CONNECTIONS_ROOT`] more from
/// root.
#[derive(Debug)]
struct Listener {
    listener: UnixListener,
    slots: Rc<Slots>,
}

/// Counts open connections. Each holds one reference, the listener another.
#[derive(Debug, Default)]
struct Slots {
    /// Notifies connections that the idle timeout is now shorter.
    filled: Notify,
}

impl Slots {
    fn open(self: &Rc<Slots>) -> usize {
        Rc::strong_count(self) - 1
    }

    /// The idle timeout of a connection.
    fn patience(self: &Rc<Slots>) -> Duration {
        if self.open() >= CONNECTIONS_MAX { IDLE_TIMEOUT_FULL } else { IDLE_TIMEOUT }
    }
}

/// Connection limit that applies to the user at the other end.
fn connections_max(stream: &UnixStream) -> usize {
    let is_root = stream.peer_cred().is_ok_and(|peer| peer.uid() == 0);
    if is_root { CONNECTIONS_MAX + CONNECTIONS_ROOT } else { CONNECTIONS_MAX }
}

impl zlink::Listener for Listener {
    type Socket = Bounded;

    async fn accept(&mut self) -> zlink::Result<Option<Connection<Bounded>>> {
        loop {
            let stream = match self.listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a control connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let open = self.slots.open();
            if open >= connections_max(&stream) {
                tracing::warn!("refused a control connection: {open} are open");
                continue;
            }
            match bounded(stream, self.slots.clone()) {
                Ok(socket) => {
                    if self.slots.open() >= CONNECTIONS_MAX {
                        self.slots.filled.notify_waiters();
                    }
                    return Ok(Some(Connection::new(socket)));
                }
                Err(error) => tracing::warn!(%error, "cannot set up a control connection"),
            }
        }
    }
}

fn bounded(stream: UnixStream, slot: Rc<Slots>) -> Result<Bounded, zlink::Error> {
    Ok(Bounded { stream: Stream::try_from(stream)?, slot })
}

/// A Unix stream with bounds.
#[derive(Debug)]
struct Bounded {
    stream: Stream,
    slot: Rc<Slots>,
}

impl Socket for Bounded {
    type ReadHalf = BoundedRead;
    type WriteHalf = BoundedWrite;

    fn split(self) -> (BoundedRead, BoundedWrite) {
        let (read, write) = self.stream.split();
        let since = Instant::now();
        (BoundedRead { read, slot: self.slot, unfinished: 0, since }, BoundedWrite { write })
    }
}

#[derive(Debug)]
struct BoundedRead {
    read: <Stream as Socket>::ReadHalf,
    slot: Rc<Slots>,
    /// Bytes of a request whose end has not arrived.
    unfinished: usize,
    /// When the last request ended.
    since: Instant,
}

impl BoundedRead {
    /// Reads until the client has been silent for too long.
    async fn read_in_time(&mut self, buffer: &mut [u8]) -> zlink::Result<ReadResult> {
        let mut reading = pin!(self.read.read(buffer));
        loop {
            tokio::select! {
                biased;
                read = &mut reading => return read,
                () = self.slot.filled.notified() => {}
                () = sleep_until(self.since + self.slot.patience()) => {
                    // A slot may have become free meanwhile.
                    if self.since + self.slot.patience() <= Instant::now() {
                        return Err(io::Error::from(io::ErrorKind::TimedOut).into());
                    }
                }
            }
        }
    }
}

impl ReadHalf for BoundedRead {
    async fn read(&mut self, buffer: &mut [u8]) -> zlink::Result<ReadResult> {
        let read = self.read_in_time(buffer).await?;
        // No request carries descriptors. Holding them would let a client exhaust the daemon's.
        if !read.fds().is_empty() {
            return Err(zlink::Error::SocketRead);
        }
        let bytes = &buffer[..read.bytes_read().min(buffer.len())];
        match bytes.iter().rposition(|byte| *byte == 0) {
            Some(end) => {
                self.unfinished = bytes.len() - end - 1;
                self.since = Instant::now();
            }
            None => self.unfinished += bytes.len(),
        }
        if self.unfinished > REQUEST_BYTES_MAX {
            return Err(zlink::Error::BufferOverflow);
        }
        Ok(read)
    }
}

#[derive(Debug)]
struct BoundedWrite {
    write: <Stream as Socket>::WriteHalf,
}

impl WriteHalf for BoundedWrite {
    async fn write(
        &mut self,
        bytes: &[u8],
        fds: &[impl AsFd],
        credentials: Option<&PassedCredentials>,
    ) -> zlink::Result<()> {
        let written = timeout(REPLY_TIMEOUT, self.write.write(bytes, fds, credentials)).await;
        written.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
    }
}
