//! Frames: the memory contract between the rings and the pipeline.
//!
//! A frame is one slot of a worker's UMEM. It is reference counted: one received frame may wait in
//! a transmit ring (forwarded as it came) and at the same time lie in the batch table (to be
//! combined later). A holder of a reference may read; only a holder of a frame that is in no
//! transmit ring may write. Memory only: nothing here sends or receives.

/// Bytes that are free in front of every UDP payload the pipeline sees or emits.
///
/// Ethernet 14 + a tag 4 + IPv6 40 + UDP 8 = 66, rounded up to two cache lines. A received frame
/// has Linux's 256 bytes of XDP headroom in front, so this only costs room in frames filled here.
pub const HEADROOM_BYTES: usize = 128;

/// Upper bound of sources or destinations of one combination, the largest generation.
pub const GATHER_MAX: usize = 256;

/// Index of a frame within its worker's UMEM.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct FrameId(pub u32);

/// A run of bytes within one frame.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Span {
    /// The frame.
    pub frame: FrameId,
    /// First byte, counted from the start of the frame.
    pub offset: u16,
    /// Length in bytes.
    pub len: u16,
}

impl Span {
    /// The part of this span that begins `skip` bytes in and is `len` bytes long; `None` when it
    /// would reach past the end.
    pub fn slice(self, skip: usize, len: usize) -> Option<Span> {
        let end = skip.checked_add(len)?;
        if end > usize::from(self.len) {
            return None;
        }
        let offset = self.offset.checked_add(u16::try_from(skip).ok()?)?;
        Some(Span { frame: self.frame, offset, len: u16::try_from(len).ok()? })
    }
}

/// Reference-counted frames.
pub trait Frames {
    /// Capacity of each frame in bytes.
    fn frame_bytes(&self) -> usize;

    /// A free frame carrying one reference, or `None` when all are in use.
    fn take(&mut self) -> Option<FrameId>;

    /// Whether free frames run low, so that holders of many should release some. A store that is
    /// never short may leave this as it is.
    fn scarce(&self) -> bool {
        false
    }

    /// Adds a reference.
    fn retain(&mut self, frame: FrameId);

    /// Drops a reference; the frame is free again when the last one is dropped.
    fn release(&mut self, frame: FrameId);

    /// The bytes of `span`.
    ///
    /// # Panics
    /// When the span leaves the frame: a broken invariant, since spans are made from checked
    /// lengths.
    fn bytes(&self, span: Span) -> &[u8];

    /// The bytes of `span`, for writing.
    ///
    /// # Panics
    /// Like [`Frames::bytes`].
    fn bytes_mut(&mut self, span: Span) -> &mut [u8];

    /// Runs `work` on shared views of `sources` and exclusive views of `destinations`.
    ///
    /// # Panics
    /// Unless every destination frame is distinct from all sources and all other destinations, and
    /// there are at most [`GATHER_MAX`] of each.
    fn with_disjoint<R>(
        &mut self,
        sources: &[Span],
        destinations: &[Span],
        work: impl FnOnce(&[&[u8]], &mut [&mut [u8]]) -> R,
    ) -> R;
}
