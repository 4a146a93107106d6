//! Records the packets received on an interface, for replay.

use std::io::IoSliceMut;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use nix::sys::socket::{MsgFlags, recvmsg, send};

use crate::clear::open;
use crate::{BedError, Namespace};

/// Ethernet, IPv4 without options, UDP.
const HEADER_BYTES: usize = 14 + 20 + 8;

/// Longest frame.
const FRAME_BYTES: usize = 2048;

/// Most packets that are kept.
const PACKETS_MAX: usize = 100_000;

/// Records UDP payloads over IPv4 to one port, in both directions. An interface with AF_XDP sockets
/// shows none: its link must have UDP sockets.
#[derive(Debug)]
pub struct Capture {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Vec<u8>>>,
}

impl Capture {
    /// Starts recording packets to `port` on `interface`, in both directions.
    ///
    /// # Errors
    /// When the interface does not exist or Linux gives no packet socket.
    pub fn start(host: &Namespace, interface: &str, port: u16) -> Result<Capture, BedError> {
        let opened = host.inside(|| open(interface))?;
        let socket = opened.map_err(BedError::system(format!("packets of {interface}")))?;
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let (mut packets, mut frame) = (Vec::new(), [0; FRAME_BYTES]);
            while !flag.load(Ordering::Relaxed) && packets.len() < PACKETS_MAX {
                let mut parts = [IoSliceMut::new(&mut frame)];
                let flags = MsgFlags::empty();
                let received = recvmsg::<()>(socket.as_raw_fd(), &mut parts, None, flags);
                let Ok(bytes) = received.map(|message| message.bytes) else { continue };
                packets.extend(payload(&frame[..bytes], port).map(<[u8]>::to_vec));
            }
            packets
        });
        Ok(Capture { stop, thread })
    }

    /// Ends the capture; returns the payloads in order of arrival.
    ///
    /// # Panics
    /// When its thread did.
    pub fn finish(self) -> Vec<Vec<u8>> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Sends a raw frame on an interface of a host, as an attacker on its link would.
///
/// # Errors
/// When the interface does not exist or Linux refuses.
pub fn send_frame(host: &Namespace, interface: &str, frame: &[u8]) -> Result<(), BedError> {
    let sent = host.inside(|| {
        let socket = open(interface)?;
        Ok(send(socket.as_raw_fd(), frame, MsgFlags::empty()).map(drop)?)
    })?;
    sent.map_err(BedError::system(format!("a frame by {interface}")))
}

/// The payload of a frame, where it is UDP over IPv4 to this port.
fn payload(frame: &[u8], port: u16) -> Option<&[u8]> {
    let (header, payload) = frame.split_at_checked(HEADER_BYTES)?;
    let is_udp = header[12..15] == [8, 0, 0x45] && header[23] == 17;
    let is_ours = is_udp && header[36..38] == port.to_be_bytes();
    let bytes = usize::from(u16::from_be_bytes([header[38], header[39]]));
    payload.get(..bytes.checked_sub(8)?).filter(|_| is_ours)
}
