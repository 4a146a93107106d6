//! UDP sockets with batches: segmentation offload to send, several datagrams at once to receive.

use std::cell::Cell;
use std::io::{self, ErrorKind, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};

use quinn_udp::{BATCH_SIZE, RecvMeta, Transmit, UdpSocketState};
use socket2::{Domain, Protocol, SockAddr, Type};

use crate::error::Error;
use crate::server::{Outbox, Path};

/// Bytes that one receive operation can merge.
const MERGED_BYTES: usize = 64 << 10;

/// Buffer of a socket in Linux. Ten milliseconds at 1 Gbit/s are 1.2 MB; a shorter one drops
/// bursts, and a longer one is refused by default limits of Linux.
const BUFFER_BYTES: usize = 4 << 20;

/// A socket.
pub(crate) struct Socket {
    pub(crate) io: UdpSocket,
    state: UdpSocketState,
    unsent: Cell<u64>,
}

impl Socket {
    /// Binds an address. Several sockets may share it: Linux spreads peers over them.
    pub(crate) fn bind(address: SocketAddr, is_shared: bool) -> Result<Self, Error> {
        let open = || -> io::Result<UdpSocket> {
            let domain = Domain::for_address(address);
            let socket = socket2::Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
            socket.set_reuse_port(is_shared)?;
            if address.is_ipv6() {
                socket.set_only_v6(true)?;
            }
            // Linux shortens it to its limit.
            socket.set_recv_buffer_size(BUFFER_BYTES)?;
            socket.set_send_buffer_size(BUFFER_BYTES)?;
            socket.bind(&SockAddr::from(address))?;
            socket.set_nonblocking(true)?;
            Ok(socket.into())
        };
        Self::of(open().map_err(|error| Error::io("listen on", address, error))?)
    }

    /// A socket whose only peer has this address: Linux drops datagrams of others.
    pub(crate) fn connect(peer: SocketAddr) -> Result<Self, Error> {
        let any = if peer.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let open = || -> io::Result<UdpSocket> {
            let socket = UdpSocket::bind(any)?;
            socket.connect(peer)?;
            socket.set_nonblocking(true)?;
            let reference = socket2::SockRef::from(&socket);
            reference.set_recv_buffer_size(BUFFER_BYTES)?;
            Ok(socket)
        };
        Self::of(open().map_err(|error| Error::io("connect to", peer, error))?)
    }

    fn of(io: UdpSocket) -> Result<Self, Error> {
        let state = UdpSocketState::new((&io).into());
        let state = state.map_err(|error| Error::io("configure", "a UDP socket", error))?;
        Ok(Self { io, state, unsent: Cell::new(0) })
    }

    /// Datagrams that Linux did not take.
    pub(crate) fn unsent(&self) -> u64 {
        self.unsent.get()
    }

    /// Calls `handle` with each datagram that has arrived, and its path, for a bounded number of
    /// operations. Returns how many datagrams there were.
    pub(crate) fn receive(
        &self,
        buffers: &mut Buffers,
        mut handle: impl FnMut(Path, &[u8]),
    ) -> io::Result<usize> {
        /// Operations in a row, so that sending is not delayed for long.
        const OPERATIONS: usize = 8;
        let mut count = 0;
        for _ in 0..OPERATIONS {
            let mut meta = [RecvMeta::default(); BATCH_SIZE];
            let mut slices: Vec<IoSliceMut<'_>> =
                buffers.0.iter_mut().map(|buffer| IoSliceMut::new(buffer)).collect();
            let received = match self.state.recv((&self.io).into(), &mut slices, &mut meta) {
                Ok(received) => received,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // An ICMP message for an earlier datagram.
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => continue,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            for (meta, buffer) in meta[..received].iter().zip(&buffers.0) {
                let path = Path { remote: meta.addr, local: meta.dst_ip };
                let bytes = &buffer[..meta.len.min(buffer.len())];
                for datagram in bytes.chunks(meta.stride.max(1)) {
                    handle(path, datagram);
                    count += 1;
                }
            }
            if received < BATCH_SIZE {
                break;
            }
        }
        Ok(count)
    }
}

impl Outbox for &Socket {
    fn send(&mut self, path: &Path, bytes: &[u8], datagram_bytes: usize) {
        let run_bytes = datagram_bytes * self.state.max_gso_segments().max(1);
        for run in bytes.chunks(run_bytes) {
            let transmit = Transmit {
                destination: path.remote,
                ecn: None,
                contents: run,
                segment_size: (run.len() > datagram_bytes).then_some(datagram_bytes),
                src_ip: path.local,
            };
            if self.state.try_send((&self.io).into(), &transmit).is_err() {
                // As if the network had lost them.
                let count = run.len().div_ceil(datagram_bytes) as u64;
                self.unsent.set(self.unsent.get() + count);
            }
        }
    }
}

/// Memory for datagrams that arrive.
pub(crate) struct Buffers(Vec<Vec<u8>>);

impl Buffers {
    pub(crate) fn new() -> Self {
        Self(vec![vec![0; MERGED_BYTES]; BATCH_SIZE])
    }
}
