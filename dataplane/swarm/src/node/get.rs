//! Fetches a content: sockets to peers, segments in order to a writer, and threads that serve them.

use std::io::Write;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use sha2::{Digest, Sha256};

use crate::client::{Client, ClientLimits, PeerState, Progress};
use crate::error::Error;
use crate::keys::DatagramKey;
use crate::manifest::ContentId;
use crate::node::serve::{ServeOptions, Serving, wait_for};
use crate::node::socket::{Buffers, Socket};
use crate::node::unpredictable;

/// Interval of the client's timers.
const TICK: Duration = Duration::from_millis(2);

/// Segments that fail their SHA-256 though checks verified every block, after which the content is
/// abandoned. A forged block passes checks with probability 2^-64, so one is no accident of peers.
const CONTRADICTIONS_MAX: u32 = 3;

/// What to fetch, and how.
#[derive(Clone)]
pub struct GetOptions {
    /// Content id.
    pub content: ContentId,
    /// Addresses of peers.
    pub peers: Vec<SocketAddr>,
    /// Pre-shared key.
    pub key: Option<DatagramKey>,
    /// Most kbit/s in all.
    pub rate_kbit: u32,
    /// Segments decoded at the same time.
    pub window: usize,
    /// Serve others meanwhile.
    pub serve: Option<ServeOptions>,
    /// Most bytes of content in memory.
    pub memory_bytes: u64,
    /// Stop after this long without a part of the manifest or a higher rank of a segment.
    pub patience: Duration,
}

/// A finished transfer.
pub struct Got {
    /// Bytes of the content.
    pub bytes: u64,
    /// The state at the end.
    pub progress: Progress,
    /// Peers that were banned.
    pub banned: usize,
    /// Threads that still serve.
    pub serving: Option<Serving>,
}

/// Fetches the content, and writes it in order.
///
/// # Errors
/// No peer serves it, it does not match its hash, the writer fails, or `is_stopping` was set.
pub fn get(
    options: &GetOptions,
    writer: &mut dyn Write,
    is_stopping: &AtomicBool,
) -> Result<Got, Error> {
    let limits = ClientLimits {
        rate_kbit: options.rate_kbit,
        window: options.window,
        is_sharing: options.serve.is_some(),
    };
    let count = options.peers.len();
    let seed = unpredictable()?;
    let mut transfer = Transfer {
        client: Client::new(options.content, options.key.clone(), limits, count, &seed),
        sockets: connect(&options.peers)?,
        written: 0,
        bytes: 0,
        hash: Sha256::new(),
        serving: None,
    };
    let (start, mut buffers) = (Instant::now(), Buffers::new());
    let (mut moved_at, mut moved) = (start, 0);
    while !transfer.client.is_finished() || !transfer.is_written() {
        if is_stopping.load(Ordering::Relaxed) {
            transfer.leave();
            return Err(Error::Interrupted);
        }
        transfer.exchange(start, &mut buffers);
        if let Some(fault) = transfer.client.fault() {
            return Err(Error::Content(fault.clone()));
        }
        transfer.serve(options)?;
        transfer.write(writer)?;
        let Progress { advance, contradictions, .. } = *transfer.client.progress();
        if contradictions >= CONTRADICTIONS_MAX {
            transfer.leave();
            return Err(Error::Contradiction { segments: contradictions });
        }
        if advance != moved {
            (moved, moved_at) = (advance, Instant::now());
        }
        if moved_at.elapsed() > options.patience {
            transfer.leave();
            return Err(transfer.no_peer(options));
        }
    }
    writer.flush().map_err(|error| Error::io("write", "the content", error))?;
    transfer.leave();
    transfer.finish()
}

/// Sockets of the peers. Fails only if none of them can be reached.
fn connect(peers: &[SocketAddr]) -> Result<Vec<Option<Socket>>, Error> {
    let mut failed = None;
    let sockets: Vec<Option<Socket>> = (peers.iter())
        .map(|&peer| Socket::connect(peer).map_err(|error| failed = Some(error)).ok())
        .collect();
    match failed {
        Some(error) if sockets.iter().all(Option::is_none) => Err(error),
        _ => Ok(sockets),
    }
}

/// Sends a datagram. One that Linux refuses is lost like any other.
fn send(socket: &Option<Socket>, bytes: &[u8]) {
    if let Some(socket) = socket {
        let _ = socket.io.send(bytes);
    }
}

struct Transfer {
    client: Client,
    /// `None` for peers that no route leads to. Those never answer.
    sockets: Vec<Option<Socket>>,
    /// Segments that were written.
    written: u32,
    bytes: u64,
    hash: Sha256,
    serving: Option<Serving>,
}

impl Transfer {
    fn is_written(&self) -> bool {
        let segments = self.client.store().map(|store| store.layout().segments());
        segments.is_some_and(|segments| self.written == segments)
    }

    /// Receives and sends.
    fn exchange(&mut self, start: Instant, buffers: &mut Buffers) {
        let mut descriptors: Vec<PollFd<'_>> = (self.sockets.iter().flatten())
            .map(|socket| PollFd::from_borrowed_fd(socket.io.as_fd(), PollFlags::IN))
            .collect();
        wait_for(&mut descriptors, TICK);
        let now = start.elapsed().as_nanos() as u64;
        for (number, socket) in self.sockets.iter().enumerate() {
            let Some(socket) = socket else { continue };
            let client = &mut self.client;
            socket.receive(buffers, |_, datagram| client.handle(now, number, datagram));
        }
        let sockets = &self.sockets;
        self.client.poll(now, |number, bytes| send(&sockets[number], bytes));
    }

    /// Starts to serve once the manifest is known.
    fn serve(&mut self, options: &GetOptions) -> Result<(), Error> {
        let Some(store) = self.client.store() else { return Ok(()) };
        let total_bytes = store.layout().total_bytes;
        if let (Some(serve), None) = (&options.serve, &self.serving) {
            if total_bytes > options.memory_bytes {
                return Err(Error::Memory { bytes: total_bytes });
            }
            self.serving = Some(Serving::start(&Arc::clone(store), serve)?);
        }
        Ok(())
    }

    /// Writes the segments that are next.
    fn write(&mut self, writer: &mut dyn Write) -> Result<(), Error> {
        while let Some(bytes) = self.client.take(self.written) {
            writer.write_all(&bytes).map_err(|error| Error::io("write", "the content", error))?;
            self.hash.update(&bytes);
            self.bytes += bytes.len() as u64;
            self.written += 1;
        }
        Ok(())
    }

    fn leave(&self) {
        self.client.leave(|number, bytes| send(&self.sockets[number], bytes));
    }

    fn no_peer(&self, options: &GetOptions) -> Error {
        let states: Vec<String> = (options.peers.iter().zip(self.client.peers()))
            .map(|(address, (state, _))| {
                let state = match state {
                    PeerState::Connecting => "no answer",
                    PeerState::Open => "no new blocks",
                    PeerState::Full => "its table of peers is full",
                    PeerState::OtherContent => "serves another content",
                    PeerState::Banned => "sent forged blocks and was banned",
                };
                format!("{address} {state}")
            })
            .collect();
        Error::NoPeer { seconds: options.patience.as_secs(), state: states.join(", ") }
    }

    fn finish(self) -> Result<Got, Error> {
        let hash: [u8; 32] = self.hash.finalize().into();
        let expected = self.client.store().map(|store| store.manifest().content_hash);
        if expected != Some(hash) {
            return Err(Error::ContentHash);
        }
        let banned = self.client.peers().filter(|(state, _)| *state == PeerState::Banned).count();
        let progress = *self.client.progress();
        Ok(Got { bytes: self.bytes, progress, banned, serving: self.serving })
    }
}
