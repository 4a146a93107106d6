//! Filling of symbols with bytes, back to back: how both kinds of source pack IP packets.

use recoded_wire::frames::{Frames, Span};

/// Source symbols being filled.
#[derive(Debug, Default)]
pub(crate) struct Packer {
    /// Bytes written.
    pub written: usize,
    /// Bytes in front of the written content of a symbol: those of its tag.
    pub skipped: usize,
}

/// Offset of symbols within their frames, and their length.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Layout {
    pub offset: u16,
    pub symbol_bytes: usize,
}

impl Packer {
    /// Makes sure that there are frames for the first `bytes`. On failure `symbols` remain
    /// unchanged.
    pub(crate) fn reserve(
        &self,
        frames: &mut impl Frames,
        symbols: &mut Vec<Span>,
        Layout { offset, symbol_bytes }: Layout,
        bytes: usize,
    ) -> bool {
        let had = symbols.len();
        while symbols.len() < bytes.div_ceil(symbol_bytes - self.skipped) {
            let Some(frame) = frames.take() else {
                for symbol in symbols.drain(had..) {
                    frames.release(symbol.frame);
                }
                return false;
            };
            symbols.push(Span { frame, offset, len: symbol_bytes as u16 });
        }
        true
    }

    /// Appends `bytes`; room for them must have been reserved.
    pub(crate) fn write(&mut self, frames: &mut impl Frames, symbols: &[Span], mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let symbol_bytes = usize::from(symbols[0].len) - self.skipped;
            let (symbol, at) = (self.written / symbol_bytes, self.written % symbol_bytes);
            let room = (symbol_bytes - at).min(bytes.len());
            let target = &mut frames.bytes_mut(symbols[symbol])[self.skipped + at..][..room];
            target.copy_from_slice(&bytes[..room]);
            bytes = &bytes[room..];
            self.written += room;
        }
    }

    /// Fills the rest of the last symbol with zeros, which end the packets.
    pub(crate) fn pad(&self, frames: &mut impl Frames, symbols: &[Span]) {
        let Some(last) = symbols.last() else { return };
        let payload = &mut frames.bytes_mut(*last)[self.skipped..];
        let filled = self.written % payload.len();
        if filled > 0 {
            payload[filled..].fill(0);
        }
    }
}
