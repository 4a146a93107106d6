//! Detects traffic in the clear: IP packets between protected addresses on a link that should carry
//! only coded packets.

use std::io::IoSliceMut;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{MsgFlags, bind, recvmsg, setsockopt, sockopt};
use nix::sys::time::TimeVal;
use rustix::net::{AddressFamily, SocketFlags, SocketType, eth, socket_with};

use crate::{BedError, Namespace};

/// How often the thread checks whether it may end.
const LOOK: Duration = Duration::from_millis(50);

/// Room in Linux for packets that wait for the thread: a quarter of a second at 100 Mbit/s.
const SOCKET_BYTES: usize = 8 << 20;

/// An Ethernet and an IPv4 header.
const HEADER_BYTES: usize = 14 + 20;

/// EtherType.
const IPV4: [u8; 2] = [8, 0];

/// Counts packets on one interface that are from or to a protected prefix.
#[derive(Debug)]
pub struct ClearText {
    stop: Arc<AtomicBool>,
    bytes: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl ClearText {
    /// Watches `interface`; addresses whose first two bytes are among `prefixes`
    /// are protected.
    ///
    /// # Errors
    /// When the interface does not exist or Linux gives no packet socket.
    pub fn watch(
        host: &Namespace,
        interface: &str,
        prefixes: &'static [[u8; 2]],
    ) -> Result<ClearText, BedError> {
        let opened = host.inside(|| open(interface))?;
        let socket = opened.map_err(BedError::system(format!("packets of {interface}")))?;
        let (stop, bytes) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (flag, sum) = (Arc::clone(&stop), Arc::clone(&bytes));
        let thread = std::thread::spawn(move || count(&socket, prefixes, &flag, &sum));
        Ok(ClearText { stop, bytes, thread: Some(thread) })
    }

    /// Bytes in the clear so far.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl Drop for ClearText {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A socket that receives all packets of an interface.
pub(crate) fn open(interface: &str) -> std::io::Result<OwnedFd> {
    let address = getifaddrs()?
        .filter(|address| address.interface_name == interface)
        .find_map(|address| address.address?.as_link_addr().copied())
        .ok_or_else(|| std::io::Error::other(format!("there is no interface {interface}")))?;
    let flags = SocketFlags::CLOEXEC;
    // A socket for IP only would miss packets that a link's program redirects.
    let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, Some(eth::ALL))?;
    setsockopt(&socket, sockopt::RcvBufForce, &SOCKET_BYTES)?;
    let patience = TimeVal::new(0, LOOK.subsec_micros().into());
    setsockopt(&socket, sockopt::ReceiveTimeout, &patience)?;
    bind(socket.as_raw_fd(), &address)?;
    Ok(socket)
}

fn count(socket: &OwnedFd, prefixes: &[[u8; 2]], stop: &AtomicBool, sum: &AtomicU64) {
    let mut packet = [0; HEADER_BYTES];
    while !stop.load(Ordering::Relaxed) {
        let mut parts = [IoSliceMut::new(&mut packet)];
        let flags = MsgFlags::MSG_TRUNC;
        let received = recvmsg::<()>(socket.as_raw_fd(), &mut parts, None, flags);
        let Ok(bytes) = received.map(|message| message.bytes) else { continue };
        if bytes >= HEADER_BYTES && is_protected(&packet, prefixes) {
            sum.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }
}

fn is_protected(packet: &[u8; HEADER_BYTES], prefixes: &[[u8; 2]]) -> bool {
    // Source and destination.
    packet[12..14] == IPV4
        && [26, 30].iter().any(|at| prefixes.contains(&[packet[*at], packet[at + 1]]))
}
