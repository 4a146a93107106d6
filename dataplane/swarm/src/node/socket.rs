//! UDP sockets with batches: segmentation offload to send, several datagrams at once to receive.

use std::cell::{Cell, RefCell};
use std::io::{self, ErrorKind, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};

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
    state: RefCell<UdpSocketState>,
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
        Ok(Self { io, state: RefCell::new(state), unsent: Cell::new(0) })
    }

    /// Datagrams that Linux did not take.
    pub(crate) fn unsent(&self) -> u64 {
        self.unsent.get()
    }

    /// Calls `handle` with each datagram that has arrived, and its path, for a bounded number of
    /// operations. Returns how many datagrams there were. Errors other than an empty queue report
    /// ICMP messages about earlier datagrams; any host or firewall can cause them, so they are not
    /// fatal.
    pub(crate) fn receive(
        &self,
        buffers: &mut Buffers,
        mut handle: impl FnMut(Path, &[u8]),
    ) -> usize {
        /// Operations in a row, so that sending is not delayed for long.
        const OPERATIONS: usize = 8;
        let mut count = 0;
        for _ in 0..OPERATIONS {
            let mut meta = [RecvMeta::default(); BATCH_SIZE];
            let mut slices: Vec<IoSliceMut<'_>> =
                buffers.0.iter_mut().map(|buffer| IoSliceMut::new(buffer)).collect();
            let received = self.state.borrow().recv((&self.io).into(), &mut slices, &mut meta);
            let received = match received {
                Ok(received) => received,
                Err(error) if is_empty(&error) => break,
                Err(_) => continue,
            };
            for (meta, buffer) in meta[..received].iter().zip(&buffers.0) {
                // Nothing can be sent to port 0: sendmsg fails with EINVAL.
                if meta.addr.port() == 0 {
                    continue;
                }
                let local = meta.dst_ip.filter(is_source_address);
                let path = Path { remote: meta.addr, local };
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
        count
    }

    /// Sends one run of datagrams. False if Linux does not take it.
    fn try_send(&self, transmit: &Transmit<'_>) -> bool {
        let mut state = self.state.borrow_mut();
        let segments_max = state.max_gso_segments();
        let is_sent = state.try_send((&self.io).into(), transmit).is_ok();
        // `quinn_udp` turns segmentation off after EINVAL, whatever caused it. A single datagram is
        // not segmented, so its address caused the error.
        if transmit.segment_size.is_none()
            && state.max_gso_segments() < segments_max
            && let Ok(fresh) = UdpSocketState::new((&self.io).into())
        {
            *state = fresh;
        }
        is_sent
    }
}

/// Whether a receive error reports an empty queue.
fn is_empty(error: &io::Error) -> bool {
    error.kind() == ErrorKind::WouldBlock
}

/// Whether datagrams can be sent from this address, which received one.
fn is_source_address(address: &IpAddr) -> bool {
    let is_broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    !is_broadcast && !address.is_multicast() && !address.is_unspecified()
}

impl Outbox for &Socket {
    fn send(&mut self, path: &Path, bytes: &[u8], datagram_bytes: usize) {
        let segments_max = self.state.borrow().max_gso_segments();
        let run_bytes = datagram_bytes * segments_max.max(1);
        for run in bytes.chunks(run_bytes) {
            let transmit = Transmit {
                destination: path.remote,
                ecn: None,
                contents: run,
                segment_size: (run.len() > datagram_bytes).then_some(datagram_bytes),
                src_ip: path.local,
            };
            if !self.try_send(&transmit) {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn bound() -> Socket {
        Socket::bind(SocketAddr::from(([127, 0, 0, 1], 0)), false).expect("a free port")
    }

    /// EHOSTUNREACH from one peer's firewall must not end a transfer from others.
    #[test]
    fn receive_errors_of_icmp_do_not_end_reception() {
        for code in [101, 111, 113, 13] {
            assert!(!is_empty(&io::Error::from_raw_os_error(code)), "{code}");
        }
        assert!(is_empty(&ErrorKind::WouldBlock.into()));
    }

    /// One datagram to port 0 must not turn segmentation off for all peers.
    #[test]
    fn unsendable_datagram_leaves_segmentation_on() {
        let socket = bound();
        let before = socket.state.borrow().max_gso_segments();
        let remote = SocketAddr::from(([127, 0, 0, 1], 0));
        (&mut &socket).send(&Path { remote, local: None }, b"lost", 4);
        assert_eq!(socket.unsent(), 1);
        assert_eq!(socket.state.borrow().max_gso_segments(), before);
    }

    #[test]
    fn addresses_of_groups_are_no_source_addresses() {
        for (address, expected) in [
            ("255.255.255.255", false),
            ("224.0.0.1", false),
            ("ff02::1", false),
            ("0.0.0.0", false),
            ("192.0.2.1", true),
            ("2001:db8::1", true),
        ] {
            let address = address.parse().expect("an address");
            assert_eq!(is_source_address(&address), expected, "{address}");
        }
    }
}
