//! Where a packet that we form lies in its frame: headroom, header, coding vector, symbol.

use recoded_wire::frames::{HEADROOM_BYTES, Span};

/// Symbols start on a cache line, so that the kernels load aligned.
const SYMBOL_ALIGN_BYTES: usize = 64;

/// Offset of a symbol within a frame we fill: headroom and `before` bytes of headers precede it.
/// [`crate::params::FlowParams::frame_bytes_min`] says how far that may reach.
pub(crate) fn symbol_offset(before: usize) -> usize {
    (HEADROOM_BYTES + before).next_multiple_of(SYMBOL_ALIGN_BYTES)
}

/// The UDP payload that ends with `symbol` and has `before` bytes in front of it.
pub(crate) fn payload_of(symbol: Span, before: usize) -> Span {
    let before = before as u16;
    Span { offset: symbol.offset - before, len: symbol.len + before, ..symbol }
}
