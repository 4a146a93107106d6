//! One AF_XDP socket: receive, transmit, flush, complete.
//!
//! A worker's round is `complete`, `receive`, (pipeline), `transmit`..., `flush`. Frames are staged
//! by `transmit` and reach the ring in `flush`, with one publication and at most a few system
//! calls.
//!
//! Bounds: rings of 2048 entries, or of as many as there may be packets in them;
//! [`BURST_FRAMES_MAX`] packets per `receive`. All memory is allocated in `open`. A socket uses one
//! UMEM, the one it was opened with; every call takes it again, since sockets of one worker share
//! it.
//!
//! Not here: attaching XDP, entering the socket into the XSKMAP, resolving neighbours, computing
//! checksums.

use std::{
    fmt, io,
    os::fd::{AsRawFd, BorrowedFd},
    sync::Arc,
};

use recoded_counters::link::SocketStatistics;
use recoded_wire::frames::{FrameId, Frames};
use xsk_rs::{CompQueue, FillQueue, FrameDesc, RxQueue, TxQueue};

use super::{
    bind::{QueueBinding, active_mode, bind_best, raise_tx_budget},
    descriptor::Descriptors,
};
use crate::{
    burst::{BURST_FRAMES_MAX, Received},
    error::XskError,
    mode::{ModePreference, SocketMode, XdpMode},
    umem::{RING_ENTRIES, Umem},
};

/// The part of all frames that primes a fill ring in `open`. Small, because sockets that are opened
/// later take their share from the same frames; `receive` lends the rest of it.
const PRIME_PART: u32 = 16;

/// Entries of the transmit ring of a socket that does not send: libxdp requires one.
const IDLE_RING_ENTRIES: u32 = 64;

/// Maximum system calls of one `flush`: a full ring at Linux's default of 32 per call.
const KICKS_MAX: u32 = RING_ENTRIES / 32;

/// Bytes of an Ethernet header, the minimum of a packet.
const ETHERNET_BYTES: usize = 14;

/// An AF_XDP socket on one queue of an interface.
pub struct Socket {
    interface: String,
    queue: u32,
    /// Identity of the UMEM the socket was opened with.
    home: usize,
    rx: RxQueue,
    tx: TxQueue,
    fill: FillQueue,
    completion: CompQueue,
    mode: SocketMode,
    descriptors: Descriptors,
    /// Frames lent to Linux through this socket and not received yet.
    lent: u32,
    /// Entries of the transmit ring.
    transmit_entries: u32,
    /// Whether Linux ran out of frames, or was short of them, since the last check of its counters.
    is_starved: bool,
    starvation: Starvation,
    /// Descriptors taken over by `transmit` that `flush` will put into the ring.
    staged: Vec<FrameDesc>,
    /// Ring entries known to be free, those promised to `staged` not counted.
    room: u32,
    /// Frames in `staged`, in the ring or being sent.
    pending: u32,
    /// Buffer for descriptors copied from or to the other three rings.
    scratch: Vec<FrameDesc>,
    /// Keeps this socket registered with the UMEM.
    _token: Arc<()>,
}

/// Packets that found no frame.
#[derive(Copy, Clone, Default, Debug)]
struct Starvation {
    /// Linux's counter when it was last read.
    seen: u64,
    /// The part of it that is not a false alarm.
    counted: u64,
}

impl Socket {
    /// Binds a socket to `queue` of `interface` in the best mode that `preference` and the way the
    /// program is attached (`xdp`) allow, and primes its fill ring.
    ///
    /// Returns the mode that Linux reports as active, and the fallback reason (empty if it is
    /// best). All sockets on one UMEM run in the mode of the first: Linux imposes that. A busy
    /// queue is retried for half a second. Once a socket was dropped its queue stays taken until
    /// the UMEM is dropped, if it was the UMEM's first (libxdp keeps that descriptor to register
    /// further sockets).
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
        let place = QueueBinding::new(umem, interface, queue).sending(RING_ENTRIES);
        Socket::open_at(umem, place, preference, xdp)
    }

    /// The same for a socket that will not send, with less memory.
    ///
    /// # Errors
    /// Like [`Socket::open`].
    pub fn open_for_receiving(
        umem: &mut Umem,
        interface: &str,
        queue: u32,
        preference: ModePreference,
        xdp: XdpMode,
    ) -> Result<(Socket, SocketMode, String), XskError> {
        let place = QueueBinding::new(umem, interface, queue).sending(IDLE_RING_ENTRIES);
        Socket::open_at(umem, place, preference, xdp)
    }

    fn open_at(
        umem: &mut Umem,
        place: QueueBinding<'_>,
        preference: ModePreference,
        xdp: XdpMode,
    ) -> Result<(Socket, SocketMode, String), XskError> {
        let QueueBinding { interface, queue, transmit_entries, .. } = place;
        let descriptors = Descriptors::probe().ok_or(XskError::UnknownDescriptor)?;
        let (rings, reason) = bind_best(umem, place, preference, xdp)?;
        let (tx, rx, fill, completion) = rings;
        raise_tx_budget(rx.fd().as_raw_fd());
        let mode = active_mode(rx.fd().as_raw_fd(), interface)?;
        let reason = if mode == SocketMode::ZeroCopy { String::new() } else { reason };
        let mut socket = Socket {
            interface: interface.to_owned(),
            queue,
            home: umem.identity(),
            rx,
            tx,
            fill,
            completion,
            mode,
            descriptors,
            lent: 0,
            transmit_entries,
            is_starved: false,
            starvation: Starvation::default(),
            staged: Vec::with_capacity(transmit_entries as usize),
            room: transmit_entries,
            pending: 0,
            scratch: vec![FrameDesc::default(); BURST_FRAMES_MAX],
            _token: umem.registry.add(interface, queue, mode),
        };
        let part = umem.gauge().total.div_ceil(PRIME_PART);
        socket.refill(umem, part.min(umem.fill_share()).min(umem.lendable().div_ceil(2)));
        if socket.lent == 0 {
            return Err(XskError::NoFrames { interface: interface.to_owned() });
        }
        // Drivers in zero-copy mode look for frames when the socket is bound, before it can have
        // any.
        socket.starvation.seen = socket.found_empty();
        Ok((socket, mode, reason))
    }

    /// The socket's descriptor, for the XSKMAP and for polling. Readable: packets wait.
    pub fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open as long as the queues are, and they live as long as
        // `self`.
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
    /// lends Linux free frames for later ones. Returns how many.
    pub fn receive(&mut self, umem: &mut Umem, out: &mut Vec<Received>) -> usize {
        self.receive_at_most(umem, out, BURST_FRAMES_MAX)
    }

    /// The same for at most `most` packets.
    pub fn receive_at_most(
        &mut self,
        umem: &mut Umem,
        out: &mut Vec<Received>,
        most: usize,
    ) -> usize {
        self.check_home(umem);
        out.clear();
        let burst = out.capacity().min(BURST_FRAMES_MAX).min(most);
        // SAFETY: the descriptors are only read as addresses within the UMEM the socket belongs to.
        let count = unsafe { self.rx.consume(&mut self.scratch[..burst]) };
        for desc in &self.scratch[..count] {
            let (frame, offset) = umem.locate(desc.addr());
            umem.prefetch(desc.addr());
            umem.ledger.receive(frame.0);
            out.push(Received { frame, offset, len: desc.lengths().data() as u16 });
        }
        self.lent -= count as u32;
        let share = umem.fill_share();
        // All lent frames came back: the driver has none left.
        self.is_starved |= count == burst && count > 0 && self.rx.nb_avail_exact() >= self.lent;
        self.is_starved |= count > 0 && self.lent == 0;
        self.refill(umem, share);
        self.is_starved |= self.lent < share;
        count
    }

    /// Takes over one reference to `frame` and queues `len` bytes of it, from `offset`, for
    /// sending. Returns false when the ring is full: the reference is released and the packet is
    /// lost.
    ///
    /// Nothing is sent before [`Socket::flush`].
    ///
    /// # Panics
    /// When the bytes leave the frame or are fewer than an Ethernet header, when the caller holds
    /// no reference, or when `umem` is not the socket's (the last applies to every call): broken
    /// invariants.
    pub fn transmit(&mut self, umem: &mut Umem, frame: FrameId, offset: u16, len: u16) -> bool {
        self.check_home(umem);
        let (start, bytes) = (usize::from(offset), usize::from(len));
        // Linux would skip an invalid descriptor without ever completing it.
        assert!(
            bytes >= ETHERNET_BYTES && start + bytes <= umem.frame_size().bytes(),
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
        self.staged.push(self.descriptors.at(umem.address(frame) + start, bytes));
        self.room -= 1;
        self.pending += 1;
        true
    }

    /// Puts staged packets into the ring and notifies Linux, if it requested that.
    ///
    /// Packets that Linux has no room for at the moment (EAGAIN, EBUSY, ENOBUFS) stay in the ring
    /// and are retried by the next call; [`Socket::unsent`] returns whether there is a reason to
    /// call again.
    pub fn flush(&mut self) {
        if !self.staged.is_empty() {
            // SAFETY: the frames belong to the socket's UMEM; the ledger counts them as
            // transmitting, so they are not written to until they are completed.
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

    /// Packets in the ring that Linux has not taken yet. If this is not zero after
    /// [`Socket::flush`], flush again soon instead of sleeping until the next packet.
    pub fn unsent(&mut self) -> usize {
        if self.pending == 0 {
            return 0;
        }
        (self.transmit_entries - self.tx.nb_free_exact()) as usize
    }

    /// Takes back the frames that were sent.
    pub fn complete(&mut self, umem: &mut Umem) {
        self.check_home(umem);
        while self.pending > 0 {
            // SAFETY: the descriptors are only read as addresses within the socket's UMEM.
            let count = unsafe { self.completion.consume(&mut self.scratch) };
            for desc in &self.scratch[..count] {
                let (frame, _) = umem.locate(desc.addr());
                umem.ledger.end_transmit(frame.0);
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

    /// Linux's counters; zeros if it does not keep them (before 5.9).
    ///
    /// In zero-copy mode, drivers fill their own ring whenever they have received something, and an
    /// empty fill ring costs no packet while theirs has frames. So there this counts only while
    /// frames were short.
    pub fn statistics(&mut self) -> SocketStatistics {
        let counted = self.rx.fd().xdp_statistics().unwrap_or_default();
        let seen = counted.rx_fill_ring_empty_descs();
        let risen = seen.saturating_sub(self.starvation.seen);
        let is_starved = std::mem::take(&mut self.is_starved) || self.mode == SocketMode::Copy;
        self.starvation.seen = seen;
        self.starvation.counted += if is_starved { risen } else { 0 };
        SocketStatistics {
            rx_dropped: counted.rx_dropped(),
            rx_ring_full: counted.rx_ring_full(),
            rx_fill_ring_empty: self.starvation.counted,
            rx_invalid_descriptors: counted.rx_invalid_descs(),
            tx_invalid_descriptors: counted.tx_invalid_descs(),
            tx_ring_empty: counted.tx_ring_empty_descs(),
        }
    }

    fn found_empty(&self) -> u64 {
        self.rx.fd().xdp_statistics().unwrap_or_default().rx_fill_ring_empty_descs()
    }

    /// Soundness requires that the ledger belongs to the memory that Linux reads and writes.
    #[inline]
    fn check_home(&self, umem: &Umem) {
        assert_eq!(self.home, umem.identity(), "a socket was used with another UMEM");
    }

    /// Lends free frames to Linux until this socket has `share` or too few are free.
    fn refill(&mut self, umem: &mut Umem, share: u32) {
        let wanted = share.saturating_sub(self.lent).min(umem.lendable());
        let mut left = wanted as usize;
        while left > 0 {
            let burst = left.min(self.scratch.len());
            for place in &mut self.scratch[..burst] {
                let Some(frame) = umem.ledger.lend() else { unreachable!("`lendable` are free") };
                *place = self.descriptors.at(umem.address(FrameId(frame)), 0);
            }
            // SAFETY: the frames belong to the socket's UMEM and the ledger counts them as lent, so
            // they are not accessed until they are received.
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
            let (frame, _) = umem.locate(desc.addr());
            umem.ledger.reclaim(frame.0);
        }
    }
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Socket { interface, queue, lent, pending, .. } = self;
        write!(f, "Socket({interface} queue {queue}, {lent} lent, {pending} pending)")
    }
}

/// Notifies Linux to send; true when it stopped early and another call would send more.
fn kick(fd: libc::c_int) -> bool {
    // SAFETY: no buffer is passed.
    let sent =
        unsafe { libc::sendto(fd, std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0) };
    sent < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EAGAIN)
}
