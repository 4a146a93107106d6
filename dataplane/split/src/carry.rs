//! The bytes of one connection, between the socket of this side and the stream to the other edge.
//!
//! ```text
//!  socket          stream
//!  bytes      <->  bytes
//!  FIN        <->  its end: the other direction stays open
//!  RST, error  ->  reset, in both directions
//!  RST        <-   reset, or the connection to the other edge ended
//! ```
//! Nothing is buffered here: a socket is read when the stream has taken the bytes before, so a slow
//! end slows the other one down. A host that reads nothing stalls only its own connection.

use crate::connections::Connections;
use crate::turns::Turns;
use bytes::Bytes;
use quinn::{RecvStream, SendStream, VarInt};
use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Most bytes read at once, on the stack.
const READ_BYTES: usize = 64 << 10;

/// Code of a stream whose connection was reset.
pub(crate) const RESET: VarInt = VarInt::from_u32(1);

/// A host that is silent for this long gets a probe, this often; if it does not answer, or does not
/// acknowledge bytes for the last time, the connection is reset.
const IDLE: Duration = Duration::from_secs(60);
const ASK: Duration = Duration::from_secs(10);
const GIVE_UP: Duration = Duration::from_secs(120);

/// A host that takes nothing for this long has stalled.
const SLOW: Duration = Duration::from_millis(500);

/// Of those that have stalled for this long, more than the bytes in flight have room for are reset:
/// otherwise no connection would have any left.
const STALLED: Duration = Duration::from_secs(30);

/// Sets what both sockets of a connection have in common.
pub(crate) fn prepare(socket: &SockRef<'_>) -> io::Result<()> {
    socket.set_tcp_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(IDLE).with_interval(ASK).with_retries(6);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_user_timeout(Some(GIVE_UP))
}

/// Resets a connection.
pub(crate) fn reset(socket: TcpStream) {
    // The socket is closed with RST instead of FIN.
    let _ = SockRef::from(&socket).set_linger(Some(Duration::ZERO));
}

/// Carries a connection to its end.
pub(crate) async fn carry(
    socket: TcpStream,
    mut out: SendStream,
    mut back: RecvStream,
    turns: &Turns,
    connections: &Connections,
) {
    let mut waiting = [Waiting::none(connections), Waiting::none(connections)];
    let [there, here] = &mut waiting;
    let both = async {
        tokio::try_join!(send(&socket, &mut out, turns, there), receive(&socket, &mut back, here))
    };
    let ended = tokio::select! {
        ended = both => ended.map(drop),
        error = fault(&socket) => Err(error),
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection was reset");
        connections.count().counters.reset += 1;
        // Streams that have ended have no more to reset.
        let _ = out.reset(RESET);
        let _ = back.stop(RESET);
        reset(socket);
    }
}

/// Bytes of one direction that were read and not taken yet, as part of those of all connections.
struct Waiting<'a> {
    connections: &'a Connections,
    bytes: usize,
}

impl Waiting<'_> {
    fn none(connections: &Connections) -> Waiting<'_> {
        Waiting { connections, bytes: 0 }
    }

    fn are(&mut self, bytes: usize) {
        let mut report = self.connections.count();
        report.waiting_bytes = report.waiting_bytes + bytes as u64 - self.bytes as u64;
        self.bytes = bytes;
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.are(0);
    }
}

/// From the socket to the stream.
async fn send(
    socket: &TcpStream,
    stream: &mut SendStream,
    turns: &Turns,
    waiting: &mut Waiting<'_>,
) -> io::Result<()> {
    loop {
        socket.readable().await?;
        match read(socket) {
            Ok(bytes) if bytes.is_empty() => {
                stream.finish().map_err(io::Error::other)?;
                return Ok(());
            }
            Ok(bytes) => {
                waiting.are(bytes.len());
                turns.write(stream, bytes).await?;
                waiting.are(0);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

fn read(socket: &TcpStream) -> io::Result<Bytes> {
    let mut buffer = [0; READ_BYTES];
    let count = socket.try_read(&mut buffer)?;
    Ok(Bytes::copy_from_slice(&buffer[..count]))
}

/// From the stream to the socket.
async fn receive(
    socket: &TcpStream,
    stream: &mut RecvStream,
    waiting: &mut Waiting<'_>,
) -> io::Result<()> {
    while let Some(chunk) = stream.read_chunk(READ_BYTES, true).await? {
        let mut left: &[u8] = &chunk.bytes;
        while !left.is_empty() {
            waiting.are(left.len());
            match socket.try_write(left) {
                Ok(count) => left = &left[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    writable(socket, waiting.connections).await?;
                }
                Err(error) => return Err(error),
            }
        }
        waiting.are(0);
    }
    SockRef::from(socket).shutdown(std::net::Shutdown::Write)
}

/// Waits until the socket takes more.
async fn writable(socket: &TcpStream, connections: &Connections) -> io::Result<()> {
    if let Ok(ready) = timeout(SLOW, socket.writable()).await {
        return ready;
    }
    let _stalled = connections.stalled();
    loop {
        match timeout(STALLED, socket.writable()).await {
            Ok(ready) => return ready,
            Err(_) if connections.are_many_stalled() => return Err(io::ErrorKind::TimedOut.into()),
            Err(_) => {}
        }
    }
}

/// Waits until the socket is broken: its host may reset a connection that is not read.
async fn fault(socket: &TcpStream) -> io::Error {
    let ready = socket.ready(Interest::ERROR).await;
    let error = SockRef::from(socket).take_error();
    ready.err().or(error.ok().flatten()).unwrap_or_else(|| io::ErrorKind::ConnectionReset.into())
}
