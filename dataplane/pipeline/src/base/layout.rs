//! Layout of packets formed here: headroom, header, coding vector, symbol, and the bytes that
//! entries, seals and tags take in symbols.

use recoded_wire::frames::{HEADROOM_BYTES, Span};

/// Bytes of the length in front of each packet in a generation.
pub(crate) const LENGTH_BYTES: usize = 2;

/// Bytes that sealing adds to an IP packet.
pub const ENVELOPE_BYTES: usize = 25;

/// First byte of a sealed packet in a symbol: no IP packet begins with it.
pub(crate) const MARKER: u8 = 0;

/// Bytes in front of an envelope.
pub(crate) const HEAD_BYTES: usize = 2;

/// Bytes added by a sealed packet in a symbol.
pub(crate) const SEALING_BYTES: usize = HEAD_BYTES + ENVELOPE_BYTES;

/// The shortest sealed packet: one with an IPv4 header only.
pub(crate) const SEALED_BYTES_MIN: usize = SEALING_BYTES + 20;

/// Bytes of the tag in front of the payload of a symbol of a tagged flow; in a stream, after it.
pub const TAG_BYTES: usize = 8;

/// The same for a strict flow.
pub const STRICT_TAG_BYTES: usize = 16;

/// Symbols start on a cache line, so that the kernels load aligned.
const SYMBOL_ALIGN_BYTES: usize = 64;

/// Offset of a symbol within a frame filled here: headroom and `before` bytes of headers precede
/// it. [`crate::config::params::FlowParams::frame_bytes_min`] gives the bound of that offset.
pub(crate) fn symbol_offset(before: usize) -> usize {
    (HEADROOM_BYTES + before).next_multiple_of(SYMBOL_ALIGN_BYTES)
}

/// The UDP payload that ends with `symbol` and has `before` bytes in front of it.
pub(crate) fn payload_of(symbol: Span, before: usize) -> Span {
    let before = before as u16;
    Span { offset: symbol.offset - before, len: symbol.len + before, ..symbol }
}
