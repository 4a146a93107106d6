//! Bounds around zlink's transport: connections, bytes of a request, seconds of silence.
//!
//! zlink serves all connections from one task, accepts without end and buffers messages of up to
//! 100 MB, so one client could starve or swell the daemon. Here a connection too many is closed at
//! once, a request too large or too slow ends its connection, and so does a client that does not
//! read its replies. Nothing that a client sends can do more than lose that client.

use recoded_api::service::Service;
use std::io;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};
use tokio::time::{Instant, timeout, timeout_at};
use zlink::Connection;
use zlink::connection::PassedCredentials;
use zlink::connection::socket::{ReadHalf, ReadResult, Socket, WriteHalf};
use zlink::tokio::unix::Stream;

/// Connections served at once. Operators and scripts need one each, for milliseconds.
pub const CONNECTIONS_MAX: usize = 16;

/// Longest request. The longest sensible one, a `SetFlow` with every key, is under 1 KiB.
pub const REQUEST_BYTES_MAX: usize = 64 * 1024;

/// Longest silence between requests, and longest time for one to arrive.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Longest time for a reply to be taken. All connections wait meanwhile.
const REPLY_TIMEOUT: Duration = Duration::from_millis(500);

/// Pause after Linux refused to accept, such as when descriptors have run out.
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
    zlink::Server::new(Listener { listener, slots: Rc::new(()) }, service).run().await
}

/// Accepts up to [`CONNECTIONS_MAX`] connections at a time.
#[derive(Debug)]
struct Listener {
    listener: UnixListener,
    /// One more reference than there are connections.
    slots: Rc<()>,
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
            if Rc::strong_count(&self.slots) > CONNECTIONS_MAX {
                tracing::warn!("refused a control connection: {CONNECTIONS_MAX} are open");
                continue;
            }
            match bounded(stream, self.slots.clone()) {
                Ok(socket) => return Ok(Some(Connection::new(socket))),
                Err(error) => tracing::warn!(%error, "cannot set up a control connection"),
            }
        }
    }
}

fn bounded(stream: UnixStream, slot: Rc<()>) -> Result<Bounded, zlink::Error> {
    Ok(Bounded { stream: Stream::try_from(stream)?, slot })
}

/// A Unix stream with bounds.
#[derive(Debug)]
struct Bounded {
    stream: Stream,
    slot: Rc<()>,
}

impl Socket for Bounded {
    type ReadHalf = BoundedRead;
    type WriteHalf = BoundedWrite;

    fn split(self) -> (BoundedRead, BoundedWrite) {
        let (read, write) = self.stream.split();
        let deadline = Instant::now() + IDLE_TIMEOUT;
        (BoundedRead { read, _slot: self.slot, unfinished: 0, deadline }, BoundedWrite { write })
    }
}

#[derive(Debug)]
struct BoundedRead {
    read: <Stream as Socket>::ReadHalf,
    _slot: Rc<()>,
    /// Bytes of a request whose end has not arrived.
    unfinished: usize,
    deadline: Instant,
}

impl ReadHalf for BoundedRead {
    async fn read(&mut self, buffer: &mut [u8]) -> zlink::Result<ReadResult> {
        let read = timeout_at(self.deadline, self.read.read(buffer)).await;
        let read = read.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        // No request carries descriptors. Holding them would let a client use up ours.
        if !read.fds().is_empty() {
            return Err(zlink::Error::SocketRead);
        }
        let bytes = &buffer[..read.bytes_read().min(buffer.len())];
        match bytes.iter().rposition(|byte| *byte == 0) {
            Some(end) => {
                self.unfinished = bytes.len() - end - 1;
                self.deadline = Instant::now() + IDLE_TIMEOUT;
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
