//! Frames that detect use after release: a free frame is overwritten at once, so that a late reader
//! gets invalid bytes.

use recoded_pipeline::memory::{HeapFrames, Probe};
use recoded_wire::frames::{Frames, HEADROOM_BYTES, Span};

/// Content of a free frame.
const POISON: u8 = 0xDD;

/// Written over the headroom of a packet handed over for transmission.
const SCRIBBLE: u8 = 0xEE;

/// Room for the longest header and coding vector, the alignment of symbols, and the offset of
/// received payloads.
const OVERHEAD_BYTES: usize = 640;

/// Room for the longest packet of an Ethernet frame, after the headroom of a received one.
const FRAME_BYTES_MIN: usize = 1792;

/// Frames of a node.
pub(crate) type WatchedFrames = HeapFrames<Poison>;

/// Overwrites frames as soon as they are free.
#[derive(Debug)]
pub(crate) struct Poison;

impl Probe for Poison {
    fn freed(&mut self, content: &mut [u8]) {
        content.fill(POISON);
    }
}

/// `count` frames that hold packets of `symbol_bytes`.
pub(crate) fn watched(count: usize, symbol_bytes: usize) -> WatchedFrames {
    HeapFrames::probed(count, FRAME_BYTES_MIN.max(symbol_bytes + OVERHEAD_BYTES), Poison)
}

/// Overwrites the headroom of a packet, as lower headers would.
pub(crate) fn scribble(frames: &mut WatchedFrames, payload: Span) {
    let offset = payload.offset - HEADROOM_BYTES as u16;
    let headroom = Span { frame: payload.frame, offset, len: HEADROOM_BYTES as u16 };
    frames.bytes_mut(headroom).fill(SCRIBBLE);
}
