//! Frames that detect use after release: a free frame is overwritten at once, so that a late reader
//! gets invalid bytes.

use recoded_pipeline::memory::HeapFrames;
use recoded_wire::frames::{FrameId, Frames, HEADROOM_BYTES, Span};

/// Content of a free frame.
const POISON: u8 = 0xDD;

/// Written over the headroom of a packet handed over for transmission.
const SCRIBBLE: u8 = 0xEE;

/// Room for the longest header and coding vector, the alignment of symbols, and the offset of
/// received payloads.
const OVERHEAD_BYTES: usize = 640;

/// Room for the longest packet of an Ethernet frame, after the headroom of a received one.
const FRAME_BYTES_MIN: usize = 1792;

#[derive(Debug)]
pub(crate) struct WatchedFrames {
    inner: HeapFrames,
    count: usize,
}

impl WatchedFrames {
    /// `count` frames that hold packets of `symbol_bytes`.
    pub(crate) fn new(count: usize, symbol_bytes: usize) -> WatchedFrames {
        let bytes = FRAME_BYTES_MIN.max(symbol_bytes + OVERHEAD_BYTES);
        WatchedFrames { inner: HeapFrames::new(count, bytes), count }
    }

    pub(crate) fn receive(&mut self, payload: &[u8]) -> Option<Span> {
        self.inner.receive(payload)
    }

    /// Frames with a reference.
    pub(crate) fn held(&self) -> usize {
        self.count - self.inner.free()
    }

    /// Overwrites the headroom of a packet, as lower headers would.
    pub(crate) fn scribble(&mut self, payload: Span) {
        let offset = payload.offset - HEADROOM_BYTES as u16;
        let headroom = Span { frame: payload.frame, offset, len: HEADROOM_BYTES as u16 };
        self.inner.bytes_mut(headroom).fill(SCRIBBLE);
    }
}

impl Frames for WatchedFrames {
    fn frame_bytes(&self) -> usize {
        self.inner.frame_bytes()
    }

    fn take(&mut self) -> Option<FrameId> {
        self.inner.take()
    }

    fn scarce(&self) -> bool {
        self.inner.scarce()
    }

    fn retain(&mut self, frame: FrameId) {
        self.inner.retain(frame);
    }

    fn release(&mut self, frame: FrameId) {
        let free = self.inner.free();
        self.inner.release(frame);
        if self.inner.free() > free {
            let whole = Span { frame, offset: 0, len: self.frame_bytes() as u16 };
            self.inner.bytes_mut(whole).fill(POISON);
        }
    }

    fn bytes(&self, span: Span) -> &[u8] {
        self.inner.bytes(span)
    }

    fn bytes_mut(&mut self, span: Span) -> &mut [u8] {
        self.inner.bytes_mut(span)
    }

    fn with_disjoint<R>(
        &mut self,
        sources: &[Span],
        destinations: &[Span],
        work: impl FnOnce(&[&[u8]], &mut [&mut [u8]]) -> R,
    ) -> R {
        self.inner.with_disjoint(sources, destinations, work)
    }
}
