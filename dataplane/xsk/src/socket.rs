//! One AF_XDP socket: receive, transmit, flush, complete.
//!
//! A worker's round is `complete`, `receive`, (pipeline), `transmit`..., `flush`. Frames are staged by
//! `transmit` and reach the ring in `flush`, with one publication and at most a few system calls.
//!
//! Bounds: rings of 2048 entries; [`BURST_FRAMES_MAX`] packets per `receive`. Everything is allocated
//! in `open`. A socket sees one UMEM in its life, the one it was opened with; every call takes it
//! again, since sockets of one worker share it.
//!
//! Does not: attach XDP, enter the socket into the XSKMAP, resolve neighbours, compute checksums.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
    thread,
    time::{Duration, Instant},
};

use recoded_wire::frames::{FrameId, Frames};
use xsk_rs::{
    CompQueue, FillQueue, FrameDesc, RxQueue, TxQueue,
    config::{BindFlags, Interface, LibxdpFlags, QueueSize, SocketConfig},
};

use crate::{
    error::{XskError, os_error},
    mode::{ModePreference, SocketMode, XdpMode, rungs},
    umem::{FRAME_BYTES, RING_ENTRIES, Umem},
};

/// Most packets that one [`Socket::receive`] returns.
///
/// Enough to spread the cost of a ring poll over many packets, few enough that the first of a burst
/// does not wait long for the last and that headers of the whole burst stay in the first-level cache.
pub const BURST_FRAMES_MAX: usize = 256;

/// How long a queue that is still busy is tried again. Linux tears sockets down asynchronously, so
/// the queue of a process that just ended stays busy for a moment (tens of milliseconds under load).
const BUSY_RETRY: Duration = Duration::from_millis(500);

/// Pause between two tries.
const BUSY_PAUSE: Duration = Duration::from_millis(5);

/// The part of all frames that primes a fill ring in `open`. Small, because sockets that are opened
/// later take their share from the same frames; `receive` lends the rest of it.
const PRIME_PART: u32 = 16;

/// Packets that Linux sends per system call in copy mode where it lets us choose. Its default of 32
/// costs ten times as many system calls.
const TX_BUDGET: u32 = 512;

/// `XDP_MAX_TX_SKB_BUDGET` of `linux/if_xdp.h`, newer than the libc crate's list.
const XDP_MAX_TX_SKB_BUDGET: libc::c_int = 9;

/// System calls that one `flush` makes at most: a full ring at Linux's default of 32 per call.
const KICKS_MAX: u32 = RING_ENTRIES / 32;

/// Bytes of an Ethernet header, less than which is not a packet.
const ETHERNET_BYTES: usize = 14;

/// A received packet; whoever takes it holds one reference to its frame.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Received {
    /// The frame.
    pub frame: FrameId,
    /// Where the Ethernet header begins, counted from the start of the frame.
    pub offset: u16,
    /// Bytes of the packet, Ethernet header included.
    pub len: u16,
}

/// What Linux counted on a socket since it was opened.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct SocketStatistics {
    /// Packets dropped for other reasons than the two below: longer than
    /// [`crate::RECEIVE_BYTES_MAX`], mostly.
    pub rx_dropped: u64,
    /// Packets dropped because the receive ring was full: the worker was too slow.
    pub rx_ring_full: u64,
    /// Packets that found the fill ring empty: too few frames.
    pub rx_fill_ring_empty: u64,
    /// Descriptors in the fill ring that Linux refused; a fault of ours if not zero.
    pub rx_invalid_descriptors: u64,
    /// Descriptors in the transmit ring that Linux refused; a fault of ours if not zero.
    pub tx_invalid_descriptors: u64,
    /// Times Linux looked for packets to send and found none.
    pub tx_ring_empty: u64,
}

/// An AF_XDP socket on one queue of an interface.
#[derive(Debug)]
pub struct Socket {
    interface: String,
    queue: u32,
    /// Identity of the UMEM the socket was opened with.
    home: usize,
    rx: RxQueue,
    tx: TxQueue,
    fill: FillQueue,
    completion: CompQueue,
    /// Frames lent to Linux through this socket and not received yet.
    lent: u32,
    /// Descriptors taken over by `transmit` that `flush` will put into the ring.
    staged: Vec<FrameDesc>,
    /// Ring entries known to be free, those promised to `staged` not counted.
    room: u32,
    /// Frames in `staged`, in the ring or on the way out.
    pending: u32,
    /// Where descriptors of the other three rings are copied.
    scratch: Vec<FrameDesc>,
}

type Queues = (TxQueue, RxQueue, FillQueue, CompQueue);

impl Socket {
    /// Binds a socket to `queue` of `interface` in the best mode that `preference` and the way the
    /// program is attached (`xdp`) allow, and primes its fill ring.
    ///
    /// Returns the mode that Linux says is active, and why a better one is not (empty if it is best).
    /// All sockets on one UMEM run in the mode of the first: Linux decides so. A busy queue is tried
    /// again for half a second. Once a socket was dropped its queue stays taken until the UMEM goes,
    /// if it was the UMEM's first (libxdp keeps that descriptor to register further sockets).
    ///
    /// # Errors
    /// Any [`XskError`] but [`XskError::FrameCount`] and [`XskError::MemoryLimit`].
    pub fn open(
        umem: &mut Umem,
        interface: &str,
        queue: u32,
        preference: ModePreference,
        xdp: XdpMode,
    ) -> Result<(Socket, SocketMode, String), XskError> {
        let (queues, reason) = bind_best(umem, interface, queue, preference, xdp)?;
        let (tx, rx, fill, completion) = queues;
        raise_tx_budget(rx.fd().as_raw_fd());
        let mode = active_mode(rx.fd().as_raw_fd(), interface)?;
        let reason = if mode == SocketMode::ZeroCopy {
            String::new()
        } else {
            reason
        };
        let mut socket = Socket {
            interface: interface.to_owned(),
            queue,
            home: umem.identity(),
            rx,
            tx,
            fill,
            completion,
            lent: 0,
            staged: Vec::with_capacity(RING_ENTRIES as usize),
            room: RING_ENTRIES,
            pending: 0,
            scratch: vec![FrameDesc::default(); BURST_FRAMES_MAX],
        };
        umem.sockets += 1;
        umem.mode = Some(mode);
        let prime = umem
            .fill_share()
            .min(umem.gauge().total.div_ceil(PRIME_PART));
        socket.refill(umem, prime);
        if socket.lent == 0 {
            return Err(XskError::NoFrames {
                interface: interface.to_owned(),
            });
        }
        Ok((socket, mode, reason))
    }

    /// The socket's descriptor, for the XSKMAP and for polling. Readable: packets wait.
    pub fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open as long as the queues are, and they live as long as `self`.
        unsafe { BorrowedFd::borrow_raw(self.rx.fd().as_raw_fd()) }
    }

    /// Name of the interface.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// Number of the queue.
    pub fn queue(&self) -> u32 {
        self.queue
    }

    /// Takes up to [`BURST_FRAMES_MAX`] packets (or `out`'s capacity, if less) out of the ring, and
    /// lends Linux free frames for those to come. Returns how many.
    pub fn receive(&mut self, umem: &mut Umem, out: &mut Vec<Received>) -> usize {
        self.check_home(umem);
        out.clear();
        let burst = out.capacity().min(BURST_FRAMES_MAX);
        // SAFETY: the descriptors are only read as addresses within the UMEM the socket belongs to.
        let count = unsafe { self.rx.consume(&mut self.scratch[..burst]) };
        for desc in &self.scratch[..count] {
            let (frame, offset) = Umem::locate(desc.addr());
            umem.ledger.receive(frame.0);
            out.push(Received {
                frame,
                offset,
                len: desc.lengths().data() as u16,
            });
        }
        self.lent -= count as u32;
        self.refill(umem, umem.fill_share());
        count
    }

    /// Takes over one reference to `frame` and queues `len` bytes of it, from `offset`, for sending.
    /// False when the ring is full: the reference is released and the packet is lost.
    ///
    /// Nothing is sent before [`Socket::flush`].
    ///
    /// # Panics
    /// When the bytes leave the frame or are fewer than an Ethernet header, when the caller holds no
    /// reference, or when `umem` is not the socket's (this one goes for every call): broken invariants.
    pub fn transmit(&mut self, umem: &mut Umem, frame: FrameId, offset: u16, len: u16) -> bool {
        self.check_home(umem);
        let (start, bytes) = (usize::from(offset), usize::from(len));
        // Linux would skip a descriptor that it finds invalid without ever completing it.
        assert!(
            bytes >= ETHERNET_BYTES && start + bytes <= FRAME_BYTES,
            "not a packet"
        );
        if self.room == 0 {
            self.room = self.tx.nb_free_exact() - self.staged.len() as u32;
            if self.room == 0 {
                umem.release(frame);
                return false;
            }
        }
        umem.ledger.begin_transmit(frame.0);
        self.staged
            .push(umem.descriptors.at(Umem::address(frame) + start, bytes));
        self.room -= 1;
        self.pending += 1;
        true
    }

    /// Puts staged packets into the ring and tells Linux, if it wants to be told.
    ///
    /// What Linux has no room for at the moment (EAGAIN, EBUSY, ENOBUFS) stays in the ring and is
    /// tried again by the next call; [`Socket::unsent`] says whether there is a reason to call again.
    pub fn flush(&mut self) {
        if !self.staged.is_empty() {
            // SAFETY: the frames belong to the socket's UMEM; the ledger counts them as transmitting,
            // so nobody writes to them until they are completed.
            let produced = unsafe { self.tx.produce(&self.staged) };
            debug_assert_eq!(produced, self.staged.len(), "`room` promised these entries");
            self.staged.clear();
        }
        let mut waiting = self.unsent();
        for _ in 0..KICKS_MAX {
            if waiting == 0 || !self.tx.needs_wakeup() {
                break;
            }
            let again = kick(self.rx.fd().as_raw_fd());
            let left = self.unsent();
            if !again || left >= waiting {
                break;
            }
            waiting = left;
        }
    }

    /// Packets in the ring that Linux has not taken yet. Not zero after [`Socket::flush`] means: flush
    /// again soon, do not sleep until the next packet.
    pub fn unsent(&mut self) -> usize {
        if self.pending == 0 {
            return 0;
        }
        (RING_ENTRIES - self.tx.nb_free_exact()) as usize
    }

    /// Takes back the frames that were sent.
    pub fn complete(&mut self, umem: &mut Umem) {
        self.check_home(umem);
        while self.pending > 0 {
            // SAFETY: the descriptors are only read as addresses within the socket's UMEM.
            let count = unsafe { self.completion.consume(&mut self.scratch) };
            for desc in &self.scratch[..count] {
                umem.ledger.end_transmit(Umem::locate(desc.addr()).0.0);
            }
            self.pending -= count as u32;
            if count < self.scratch.len() {
                break;
            }
        }
    }

    /// Frames taken over by [`Socket::transmit`] and not completed yet.
    pub fn pending(&self) -> usize {
        self.pending as usize
    }

    /// Linux's counters; zeros where it does not keep them (before 5.9).
    pub fn statistics(&self) -> SocketStatistics {
        let counted = self.rx.fd().xdp_statistics().unwrap_or_default();
        SocketStatistics {
            rx_dropped: counted.rx_dropped(),
            rx_ring_full: counted.rx_ring_full(),
            rx_fill_ring_empty: counted.rx_fill_ring_empty_descs(),
            rx_invalid_descriptors: counted.rx_invalid_descs(),
            tx_invalid_descriptors: counted.tx_invalid_descs(),
            tx_ring_empty: counted.tx_ring_empty_descs(),
        }
    }

    /// Soundness rests on the ledger being the one of the memory that Linux reads and writes.
    #[inline]
    fn check_home(&self, umem: &Umem) {
        assert_eq!(
            self.home,
            umem.identity(),
            "a socket was used with another UMEM"
        );
    }

    /// Lends free frames to Linux until this socket has `share` or too few are free.
    fn refill(&mut self, umem: &mut Umem, share: u32) {
        let wanted = share.saturating_sub(self.lent).min(umem.lendable());
        let mut left = wanted as usize;
        while left > 0 {
            let burst = left.min(self.scratch.len());
            for place in &mut self.scratch[..burst] {
                let Some(frame) = umem.ledger.lend() else {
                    unreachable!("`lendable` are free")
                };
                *place = umem.descriptors.at(Umem::address(FrameId(frame)), 0);
            }
            // SAFETY: the frames belong to the socket's UMEM and the ledger counts them as lent, so
            // nobody touches them until they are received.
            let produced = unsafe { self.fill.produce(&self.scratch[..burst]) };
            self.lent += produced as u32;
            if produced < burst {
                self.reclaim(umem, produced, burst);
                break;
            }
            left -= burst;
        }
        if self.fill.needs_wakeup() {
            // A failed wakeup is repeated by the next call.
            let _ = self.fill.wakeup(self.rx.fd_mut(), 0);
        }
    }

    /// Undoes the lending of frames that found no place in the ring.
    fn reclaim(&mut self, umem: &mut Umem, from: usize, to: usize) {
        for desc in &self.scratch[from..to] {
            umem.ledger.reclaim(Umem::locate(desc.addr()).0.0);
        }
    }
}

/// Tries the rungs of the ladder; returns the queues and why better rungs were not taken.
fn bind_best(
    umem: &Umem,
    interface: &str,
    queue: u32,
    preference: ModePreference,
    xdp: XdpMode,
) -> Result<(Queues, String), XskError> {
    let (allowed, left_out) = rungs(preference, xdp);
    let mut reason = left_out.to_owned();
    if let Some(mode) = umem.mode {
        if !allowed.contains(&mode) {
            let reason = "the configured mode differs".to_owned();
            return Err(XskError::MixedModes {
                interface: interface.to_owned(),
                mode,
                reason,
            });
        }
        if reason.is_empty() {
            reason = "zero copy: the worker's first interface copies".to_owned();
        }
        return match bind_patiently(umem, interface, queue, mode) {
            Ok(queues) => Ok((queues, reason)),
            Err(error) if mode == SocketMode::ZeroCopy && is_mode_refusal(&error) => {
                let (interface, reason) = (interface.to_owned(), error.to_string());
                Err(XskError::MixedModes {
                    interface,
                    mode,
                    reason,
                })
            }
            Err(error) => Err(XskError::from_bind(error, interface, queue)),
        };
    }
    for (index, &mode) in allowed.iter().enumerate() {
        match bind_patiently(umem, interface, queue, mode) {
            Ok(queues) => return Ok((queues, reason)),
            Err(error) if mode == SocketMode::ZeroCopy && is_mode_refusal(&error) => {
                if index + 1 == allowed.len() {
                    let (interface, reason) = (interface.to_owned(), error.to_string());
                    return Err(XskError::NoZeroCopy { interface, reason });
                }
                reason = format!("zero copy: the driver refused it ({error})");
            }
            Err(error) => return Err(XskError::from_bind(error, interface, queue)),
        }
    }
    unreachable!("every preference allows at least one mode")
}

/// Whether another mode may succeed where zero copy failed like this.
fn is_mode_refusal(error: &io::Error) -> bool {
    !matches!(
        error.raw_os_error(),
        Some(
            libc::EBUSY
                | libc::EPERM
                | libc::EACCES
                | libc::ENODEV
                | libc::ENXIO
                | libc::ENETDOWN
                | libc::EAFNOSUPPORT
        )
    )
}

/// Binds, and tries again while the queue is busy.
fn bind_patiently(
    umem: &Umem,
    interface: &str,
    queue: u32,
    mode: SocketMode,
) -> Result<Queues, io::Error> {
    let deadline = Instant::now() + BUSY_RETRY;
    loop {
        match bind(umem, interface, queue, mode) {
            Err(error) if is_busy(&error) && Instant::now() < deadline => thread::sleep(BUSY_PAUSE),
            outcome => return outcome,
        }
    }
}

fn is_busy(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EBUSY)
}

fn bind(umem: &Umem, interface: &str, queue: u32, mode: SocketMode) -> Result<Queues, io::Error> {
    let name: Interface = interface
        .parse()
        .map_err(|_| io::Error::from_raw_os_error(libc::ENODEV))?;
    let entries = QueueSize::new(RING_ENTRIES).map_err(io::Error::other)?;
    let copying = match mode {
        SocketMode::ZeroCopy => BindFlags::XDP_ZEROCOPY,
        SocketMode::Copy => BindFlags::XDP_COPY,
    };
    let config = SocketConfig::builder()
        .rx_queue_size(entries)
        .tx_queue_size(entries)
        .libxdp_flags(LibxdpFlags::XSK_LIBXDP_FLAGS_INHIBIT_PROG_LOAD)
        .bind_flags(copying | BindFlags::XDP_USE_NEED_WAKEUP)
        .build();
    // SAFETY: the one condition, that libxdp be inhibited from loading a program, is met.
    let (tx, rx, shared) = unsafe { xsk_rs::Socket::new(config, &umem.xsk, &name, queue) }
        .map_err(|error| os_error(&error))?;
    // No rings of its own: this UMEM already has a socket on the same queue.
    let (fill, completion) = shared.ok_or_else(|| io::Error::from_raw_os_error(libc::EBUSY))?;
    Ok((tx, rx, fill, completion))
}

/// Asks Linux which mode the socket runs in.
fn active_mode(fd: libc::c_int, interface: &str) -> Result<SocketMode, XskError> {
    let mut options = libc::xdp_options { flags: 0 };
    let mut length = size_of::<libc::xdp_options>() as libc::socklen_t;
    // SAFETY: `options` and `length` are valid for writing and `length` states the size of `options`.
    let status = unsafe {
        libc::getsockopt(
            fd,
            libc::SOL_XDP,
            libc::XDP_OPTIONS,
            (&raw mut options).cast(),
            &raw mut length,
        )
    };
    if status != 0 {
        return Err(XskError::Os {
            action: "asking for the socket's mode",
            subject: interface.to_owned(),
            source: io::Error::last_os_error(),
        });
    }
    Ok(match options.flags & libc::XDP_OPTIONS_ZEROCOPY {
        0 => SocketMode::Copy,
        _ => SocketMode::ZeroCopy,
    })
}

/// Lets Linux send more packets per system call, where it can.
fn raise_tx_budget(fd: libc::c_int) {
    let budget = TX_BUDGET;
    // SAFETY: the value is valid for reading and its size is stated. Older versions refuse the option,
    // which only costs system calls.
    unsafe {
        libc::setsockopt(
            fd,
            libc::SOL_XDP,
            XDP_MAX_TX_SKB_BUDGET,
            (&raw const budget).cast(),
            size_of_val(&budget) as libc::socklen_t,
        );
    }
}

/// Tells Linux to send; true when it stopped early and would do more if told again.
fn kick(fd: libc::c_int) -> bool {
    // SAFETY: no buffer is passed.
    let sent = unsafe {
        libc::sendto(
            fd,
            std::ptr::null(),
            0,
            libc::MSG_DONTWAIT,
            std::ptr::null(),
            0,
        )
    };
    sent < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EAGAIN)
}
