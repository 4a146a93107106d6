//! The UMEM: a worker's frames, memory and accounting together.
//!
//! Ownership: the memory is mapped by xsk-rs and stays mapped until the [`Umem`] and every socket
//! that shares it are dropped, in any order. Frames that Linux holds when a socket is dropped stay
//! counted where they were, because Linux may still write to them; they return with the next UMEM.
//! Frames without AF_XDP sockets ([`Umem::unshared`]) are private memory of this process, and need
//! no privilege.
//!
//! Units: [`FrameId`] is the index of a chunk, [`Span::offset`] counts bytes from the chunk's
//! start. Linux places received packets at byte 256 (the headroom XDP programs may use); a frame
//! from [`Frames::take`] may be written anywhere.
//!
//! Safety model: Linux only ever writes to frames that are lent (fill) and only reads frames that
//! are in a transmit ring. So a frame may be read while the worker refers to it, and written if in
//! addition no transmit ring does. Both are checked on every access against the ledger: one load
//! from a table that the operation touches anyway.

use std::{
    alloc::{Layout, alloc_zeroed, dealloc},
    mem::MaybeUninit,
    num::NonZeroU32,
    ptr::NonNull,
    slice,
};

use recoded_wire::frames::{FrameId, Frames, GATHER_MAX, Span};

use crate::{
    af_xdp::Shared,
    error::XskError,
    ledger::{FrameGauge, Ledger},
    registry::Registry,
};

/// Bytes that XDP programs may use in front of a received packet.
const XDP_HEADROOM_BYTES: usize = 256;

/// Size of the frames of a UMEM.
///
/// Small frames are the smallest chunks that Linux accepts. Page-sized ones put all packets at the
/// same position of a page and thereby into the same cache sets, which halves the speed of field
/// arithmetic: they are for links whose MTU needs them. Linux has no larger chunks without huge
/// pages; frames that no AF_XDP socket uses may have any size.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FrameSize(u16);

impl Default for FrameSize {
    fn default() -> FrameSize {
        FrameSize::SMALL
    }
}

impl FrameSize {
    /// 2048 bytes.
    pub const SMALL: FrameSize = FrameSize(2048);

    /// A page: the largest that AF_XDP sockets can use.
    pub const PAGE: FrameSize = FrameSize(4096);

    /// For packets of 9216 bytes, the largest MTU of common NICs.
    pub const LARGEST: FrameSize = FrameSize(9536);

    /// The smallest size that receives packets of `packet_bytes`, Ethernet header included, up to
    /// the largest one.
    pub fn receiving(packet_bytes: usize) -> FrameSize {
        let bytes = packet_bytes.saturating_add(XDP_HEADROOM_BYTES).min(FrameSize::LARGEST.bytes());
        let fixed = [FrameSize::SMALL, FrameSize::PAGE];
        let fitting = fixed.into_iter().find(|size| size.bytes() >= bytes);
        // An odd number of cache lines spreads the frames over all cache sets.
        let lines = bytes.div_ceil(CACHE_LINE_BYTES) | 1;
        fitting.unwrap_or(FrameSize((lines * CACHE_LINE_BYTES) as u16))
    }

    /// Bytes of a frame.
    pub const fn bytes(self) -> usize {
        self.0 as usize
    }

    /// Largest packet, Ethernet header included, that fits a frame after the headroom of XDP. Linux
    /// drops longer ones and counts them as [`crate::SocketStatistics::rx_dropped`].
    pub const fn receive_bytes_max(self) -> usize {
        self.bytes() - XDP_HEADROOM_BYTES
    }

    /// Whether AF_XDP sockets can use such frames.
    pub fn suits_af_xdp(self) -> bool {
        self <= FrameSize::PAGE
    }
}

/// Bytes of a cache line.
const CACHE_LINE_BYTES: usize = 64;

/// Entries of each ring. A worker that is away for a millisecond at two million packets a second
/// finds 2000 waiting; twice as many would leave too few of the default 8192 frames for batches.
pub(crate) const RING_ENTRIES: u32 = 2048;

/// Metadata per frame: its references, a place in the list of free ones, a mark, a place in the
/// queue of its sender, and its descriptor while the UMEM is made.
const BOOKKEEPING_BYTES: usize = 64;

/// Fewest frames: a fill ring of eight for each of two sockets, as many for batches, and a reserve.
const FRAMES_MIN: u32 = 64;

/// Most frames: 8 GiB, so that an absurd configuration ends in an error message and not in
/// swapping.
const FRAMES_MAX: u32 = 1 << 22;

/// A worker's frames.
#[derive(Debug)]
pub struct Umem {
    memory: Memory,
    pub(crate) ledger: Ledger,
    /// Sockets opened so far.
    pub(crate) registry: Registry,
    base: NonNull<u8>,
    size: FrameSize,
    /// Stamp per frame, equal to `epoch` for the destinations of the gathering in progress.
    marks: Vec<u32>,
    epoch: u32,
}

/// Memory of the frames.
#[derive(Debug)]
enum Memory {
    /// Mapped and registered with Linux by xsk-rs.
    Shared(Shared),
    /// Private memory; freed with this value.
    Unshared(#[allow(dead_code, reason = "held until the end")] Unshared),
}

/// Memory of a [`Umem::unshared`], starting at `base`.
#[derive(Debug)]
struct Unshared {
    base: NonNull<u8>,
    layout: Layout,
}

impl Drop for Unshared {
    fn drop(&mut self) {
        // SAFETY: `Unshared::new` allocated it with this layout, and nothing else frees it.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}

impl Unshared {
    fn new(frames: u32, size: FrameSize) -> Result<Unshared, XskError> {
        let bytes = frames as usize * size.bytes();
        let none = || XskError::MemoryLimit { frames, bytes: bytes as u64 };
        let layout = Layout::from_size_align(bytes, FrameSize::PAGE.bytes()).map_err(|_| none())?;
        // SAFETY: the size is not zero, since there are at least `FRAMES_MIN` frames.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(none)?;
        Ok(Unshared { base, layout })
    }
}

// SAFETY: `base` points into the memory that `memory` owns: a mapping of xsk-rs, which is `Send`,
// or an allocation without another owner. It is only dereferenced through `&self` and `&mut self`,
// so it moves between threads together with its memory.
unsafe impl Send for Umem {}

impl Umem {
    /// Maps, locks and registers `frames` small frames.
    ///
    /// # Errors
    /// As for [`Umem::of`].
    pub fn new(frames: u32) -> Result<Umem, XskError> {
        Umem::of(frames, FrameSize::SMALL)
    }

    /// Maps, locks and registers `frames` frames of a size.
    ///
    /// # Errors
    /// [`XskError::NotPermitted`], [`XskError::NoAfXdp`], [`XskError::MemoryLimit`],
    /// [`XskError::FrameCount`], or [`XskError::Os`]. [`XskError::FrameSize`] if AF_XDP does not
    /// support such frames.
    pub fn of(frames: u32, size: FrameSize) -> Result<Umem, XskError> {
        if !size.suits_af_xdp() {
            return Err(XskError::FrameSize(size.bytes()));
        }
        let count = check_count(frames)?;
        let shared = Shared::map(count, size)?;
        Ok(Umem::over(shared.base, Memory::Shared(shared), frames, size))
    }

    /// Allocates `frames` frames for sockets of other kinds; no AF_XDP socket can be opened on
    /// them. Needs no privilege, and locks no memory.
    ///
    /// # Errors
    /// [`XskError::MemoryLimit`] or [`XskError::FrameCount`].
    pub fn unshared(frames: u32, size: FrameSize) -> Result<Umem, XskError> {
        check_count(frames)?;
        let memory = Unshared::new(frames, size)?;
        Ok(Umem::over(memory.base, Memory::Unshared(memory), frames, size))
    }

    fn over(base: NonNull<u8>, memory: Memory, frames: u32, size: FrameSize) -> Umem {
        Umem {
            memory,
            ledger: Ledger::new(frames),
            registry: Registry::default(),
            base,
            size,
            marks: vec![0; frames as usize],
            epoch: 0,
        }
    }

    /// The memory that AF_XDP sockets share; `None` if there can be none.
    pub(crate) fn shared(&self) -> Option<&Shared> {
        match &self.memory {
            Memory::Shared(shared) => Some(shared),
            Memory::Unshared(_) => None,
        }
    }

    /// Bytes that a UMEM of `frames` frames takes, metadata included.
    pub fn memory_bytes(frames: u32, size: FrameSize) -> usize {
        frames as usize * (size.bytes() + BOOKKEEPING_BYTES)
    }

    /// Size of its frames.
    pub fn frame_size(&self) -> FrameSize {
        self.size
    }

    /// Frames in each place; they sum to the total.
    pub fn gauge(&self) -> FrameGauge {
        self.ledger.gauge()
    }

    /// Whether the frame is in a transmit ring (of any socket), so that it must not be written.
    pub fn is_transmitting(&self, frame: FrameId) -> bool {
        self.ledger.is_transmitting(frame.0)
    }

    /// One of the caller's references becomes that of a socket of another kind, which will send the
    /// frame: until [`Umem::end_transmit`] it is not written to.
    ///
    /// # Panics
    /// When the caller holds no reference.
    #[inline]
    pub fn begin_transmit(&mut self, frame: FrameId) {
        self.ledger.begin_transmit(frame.0);
    }

    /// A socket of another kind returns its reference.
    ///
    /// # Panics
    /// When the frame is not being sent.
    #[inline]
    pub fn end_transmit(&mut self, frame: FrameId) {
        self.ledger.end_transmit(frame.0);
    }

    /// Frees every frame that neither Linux nor a socket has: for a worker whose state is dropped
    /// without releasing its frames. Earlier spans are invalid then.
    pub fn abandon(&mut self) {
        self.ledger.abandon();
    }

    /// A free frame with one reference, for a packet that a socket of another kind received. `None`
    /// when too few are free for AF_XDP sockets to get one.
    #[inline]
    pub fn take_for_receiving(&mut self) -> Option<FrameId> {
        if self.lendable() == 0 {
            return None;
        }
        self.take()
    }

    /// Announces how many AF_XDP sockets will be opened on these frames, so that the first ones
    /// leave the others their share.
    pub fn expect_sockets(&mut self, sockets: u32) {
        self.registry.expect(sockets);
    }

    /// Identifies this UMEM.
    #[inline]
    pub(crate) fn identity(&self) -> usize {
        self.base.as_ptr().addr()
    }

    /// Frames that one socket may have lent to Linux at once.
    ///
    /// All sockets together get half of the frames, in equal shares: the other half is for batches
    /// and transmission, which would otherwise starve exactly when traffic is heaviest.
    pub(crate) fn fill_share(&self) -> u32 {
        (self.ledger.total() / 2 / self.registry.sockets().max(1)).clamp(1, RING_ENTRIES)
    }

    /// Frames that may be lent to Linux at this moment: lending stops when fewer than a quarter of
    /// all frames are free, so that sending and decoding, which release frames, still find some.
    pub(crate) fn lendable(&self) -> u32 {
        self.ledger.free().saturating_sub(self.ledger.total() / 4)
    }

    /// The frame and offset of an address that Linux reported.
    #[inline]
    pub(crate) fn locate(&self, address: usize) -> (FrameId, u16) {
        // Sizes for AF_XDP are powers of two.
        let bytes = self.size.bytes();
        let frame = address >> bytes.trailing_zeros();
        (FrameId(frame as u32), (address & (bytes - 1)) as u16)
    }

    /// Asks the processor to fetch the headers that begin at `address`.
    ///
    /// Another core, or the device, has just written them; without this, the first access to each
    /// packet of a burst waits for its cache line, one after the other.
    #[inline]
    pub(crate) fn prefetch(&self, address: usize) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let start = self.base.as_ptr().cast_const().wrapping_add(address).cast::<i8>();
            // SAFETY: a hint that never faults, at any address.
            unsafe {
                _mm_prefetch::<_MM_HINT_T0>(start);
                _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(64));
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = address;
    }

    /// The address of a frame's first byte.
    #[inline]
    pub(crate) fn address(&self, frame: FrameId) -> usize {
        frame.0 as usize * self.size.bytes()
    }

    /// First byte of `span`, which is checked to lie within its frame.
    #[inline]
    fn pointer(&self, span: Span) -> *mut u8 {
        let (offset, len) = (usize::from(span.offset), usize::from(span.len));
        assert!(offset + len <= self.size.bytes(), "{span:?} leaves its frame");
        assert!(span.frame.0 < self.ledger.total(), "{span:?} is outside the UMEM");
        // SAFETY: the frame index is below the number of frames and the offset within the frame,
        // both checked above, so the result stays inside the mapping `base` points to.
        unsafe { self.base.as_ptr().add(self.address(span.frame) + offset) }
    }

    /// Stamps the destinations; panics when one occurs twice or is also a source.
    fn check_disjoint(&mut self, sources: &[Span], destinations: &[Span]) {
        assert!(sources.len() <= GATHER_MAX && destinations.len() <= GATHER_MAX, "too many spans");
        self.epoch = self.epoch.wrapping_add(1);
        if self.epoch == 0 {
            self.marks.fill(0);
            self.epoch = 1;
        }
        for span in destinations {
            let mark = &mut self.marks[span.frame.0 as usize];
            assert!(*mark != self.epoch, "{span:?} is a destination twice");
            *mark = self.epoch;
        }
        for span in sources {
            let mark = self.marks[span.frame.0 as usize];
            assert!(mark != self.epoch, "{span:?} is source and destination");
        }
    }
}

impl Frames for Umem {
    fn frame_bytes(&self) -> usize {
        self.size.bytes()
    }

    fn take(&mut self) -> Option<FrameId> {
        self.ledger.take().map(FrameId)
    }

    /// Too few are free for [`Umem::lendable`] to continue lending, although the worker holds at
    /// least an eighth. Frames that wait in a transmit ring do not count: releasing others would
    /// not return them.
    fn scarce(&self) -> bool {
        let FrameGauge { total, free, held, .. } = self.gauge();
        free < total / 4 + total / 16 && held >= total / 8
    }

    fn retain(&mut self, frame: FrameId) {
        self.ledger.retain(frame.0);
    }

    fn release(&mut self, frame: FrameId) {
        self.ledger.release(frame.0);
    }

    #[inline]
    fn bytes(&self, span: Span) -> &[u8] {
        let start = self.pointer(span);
        assert!(self.ledger.is_readable(span.frame.0), "{span:?} is read but not held");
        // SAFETY: `start` is valid for `len` bytes (see `pointer`). The worker has a reference to
        // the frame, so Linux does not write to it, and nor does this process while `self` is
        // borrowed.
        unsafe { slice::from_raw_parts(start, usize::from(span.len)) }
    }

    #[inline]
    fn bytes_mut(&mut self, span: Span) -> &mut [u8] {
        let start = self.pointer(span);
        assert!(self.ledger.is_writable(span.frame.0), "{span:?} is written but shared");
        // SAFETY: as in `bytes`; moreover the frame is in no transmit ring, so Linux does not read
        // it either, and `self` is borrowed exclusively.
        unsafe { slice::from_raw_parts_mut(start, usize::from(span.len)) }
    }

    fn with_disjoint<R>(
        &mut self,
        sources: &[Span],
        destinations: &[Span],
        work: impl FnOnce(&[&[u8]], &mut [&mut [u8]]) -> R,
    ) -> R {
        self.check_disjoint(sources, destinations);
        let mut shared = [const { MaybeUninit::<&[u8]>::uninit() }; GATHER_MAX];
        for (place, &span) in shared.iter_mut().zip(sources) {
            place.write(self.bytes(span));
        }
        let mut exclusive = [const { MaybeUninit::<&mut [u8]>::uninit() }; GATHER_MAX];
        for (place, &span) in exclusive.iter_mut().zip(destinations) {
            let start = self.pointer(span);
            assert!(self.ledger.is_writable(span.frame.0), "{span:?} is written but shared");
            // SAFETY: as in `bytes_mut`. `check_disjoint` made sure that no two of these views and
            // none of the shared ones lie in one frame, and `self` is borrowed exclusively by the
            // caller.
            place.write(unsafe { slice::from_raw_parts_mut(start, usize::from(span.len)) });
        }
        // SAFETY: the loops above wrote as many elements as there are spans; `check_disjoint` made
        // sure that those are at most `GATHER_MAX`.
        let (shared, exclusive) = unsafe {
            (
                shared[..sources.len()].assume_init_ref(),
                exclusive[..destinations.len()].assume_init_mut(),
            )
        };
        work(shared, exclusive)
    }
}

fn check_count(frames: u32) -> Result<NonZeroU32, XskError> {
    NonZeroU32::new(frames)
        .filter(|_| (FRAMES_MIN..=FRAMES_MAX).contains(&frames))
        .ok_or(XskError::FrameCount { frames, min: FRAMES_MIN, max: FRAMES_MAX })
}
