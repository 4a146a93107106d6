//! The registry of codes: [`FlowCode`], and every property of a code besides its arithmetic.
//!
//! Other files ask these methods. The few that match on the code itself are listed in the README of
//! this crate, and `cargo xtask tidy` checks the list.

#[cfg(feature = "bats")]
mod bats;

#[cfg(feature = "bats")]
pub use bats::{BatsParams, Interleave, Profile};

use crate::base::layout::LENGTH_BYTES;
pub use recoded_code::theory::stream::StreamProfile;
use recoded_gf::FieldOrder;
use recoded_wire::announcement::code_name;
use recoded_wire::coded::{Block, INDEX_BYTES, coding_offset, vector_bytes};
use recoded_wire::header::PacketType;
use recoded_wire::stream::STREAM_OVERHEAD_BYTES;

/// Code of a flow.
#[derive(Copy, Clone, PartialEq, Debug)]
pub enum FlowCode {
    /// Random linear network coding over generations.
    Rlnc,
    /// BATS: an outer code over a block of source symbols, recoded within batches.
    #[cfg(feature = "bats")]
    Bats(BatsParams),
    /// Sliding window with per-hop retransmission.
    Stream(StreamParams),
}

/// Code and sizes, as announced by packets.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Sizes {
    /// The code, with the size of its window or blocks.
    pub code: FlowCode,
    /// Field of the coefficients.
    pub field: FieldOrder,
    /// Generation or batch size.
    pub generation_size: usize,
    /// Bytes of the longest symbol.
    pub symbol_bytes: usize,
}

/// A stream. A symbol holds one IP packet.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct StreamParams {
    /// Source: symbols that every node keeps, 64 to 32768, rounded up to a power of two. It must
    /// cover the symbols in flight on the longest hop, plus some headroom.
    pub window_symbols: usize,
    /// Source: how much redundancy each hop sends proactively. Relays learn that from packets.
    pub profile: StreamProfile,
}

impl StreamParams {
    /// A window of `window_symbols`, with the daemon's defaults for the rest.
    pub const fn new(window_symbols: usize) -> Self {
        Self { window_symbols, profile: StreamProfile::Balanced }
    }

    /// The largest window, a power of two, for symbols of `symbol_bytes`.
    pub fn window_for(symbol_bytes: usize) -> usize {
        let symbols = STREAM_MEMORY_BYTES / symbol_bytes.max(STREAM_SYMBOL_BYTES);
        1 << symbols.max(1).ilog2()
    }
}

/// Memory for the symbols of a stream. Packets announce the window and not the length of symbols,
/// so this is how each node derives one from the other: 32768 symbols of 2560 bytes, 8192 of a
/// jumbo frame. At half of this a jumbo path of 10 Gbit/s and 60 ms does not fit; at twice, a
/// source and a sink exceed the default `memory` of a daemon.
const STREAM_MEMORY_BYTES: usize = 80 << 20;

/// Any window allows symbols of this length.
const STREAM_SYMBOL_BYTES: usize = 1778;

impl FlowCode {
    /// Types of the packets of all codes that this program was built with.
    pub const PACKET_TYPES: &[PacketType] = &[
        PacketType::Generation,
        #[cfg(feature = "bats")]
        PacketType::Bats,
        PacketType::Stream,
    ];

    /// Type of its packets.
    pub const fn packet_type(&self) -> PacketType {
        match self {
            FlowCode::Rlnc => PacketType::Generation,
            #[cfg(feature = "bats")]
            FlowCode::Bats(_) => PacketType::Bats,
            FlowCode::Stream(_) => PacketType::Stream,
        }
    }

    /// The code of packets of this type that announce a block or window of `symbols`, with defaults
    /// for all other parameters; `None` if it is not built in.
    pub fn of_type(packet_type: PacketType, symbols: usize) -> Option<FlowCode> {
        match packet_type {
            PacketType::Generation => Some(FlowCode::Rlnc),
            #[cfg(feature = "bats")]
            PacketType::Bats => Some(FlowCode::Bats(BatsParams::new(symbols))),
            PacketType::Stream => Some(FlowCode::Stream(StreamParams::new(symbols))),
            _ => None,
        }
    }

    /// The code of coded packets with this block word. Without BATS those that have one are dropped
    /// earlier.
    #[cfg_attr(not(feature = "bats"), allow(unused_variables, reason = "there is one code"))]
    pub(crate) fn of_block(block: Option<&Block>) -> FlowCode {
        #[cfg(feature = "bats")]
        if let Some(block) = block {
            return FlowCode::Bats(BatsParams::announced(block));
        }
        FlowCode::Rlnc
    }

    /// Name in configurations and reports.
    pub const fn name(&self) -> &'static str {
        code_name(self.packet_type())
    }

    /// Whether it is a stream, which has neither generations nor batches: each symbol is
    /// independent, and follows the MTU of the path.
    pub const fn is_stream(&self) -> bool {
        matches!(self, FlowCode::Stream(_))
    }

    /// Symbols of its block or window; 1 for generations, which have a size of their own.
    pub const fn unit_symbols(&self) -> usize {
        match self {
            FlowCode::Rlnc => 1,
            #[cfg(feature = "bats")]
            FlowCode::Bats(code) => code.source_symbols,
            FlowCode::Stream(code) => code.window_symbols,
        }
    }

    /// This code with the larger of both blocks or windows, if `other` is the same code.
    pub(crate) fn larger(self, other: FlowCode) -> FlowCode {
        match (self, other) {
            #[cfg(feature = "bats")]
            (FlowCode::Bats(new), FlowCode::Bats(old)) => {
                let source_symbols = new.source_symbols.max(old.source_symbols);
                FlowCode::Bats(BatsParams { source_symbols, ..new })
            }
            (FlowCode::Stream(new), FlowCode::Stream(old)) => {
                let window_symbols = new.window_symbols.max(old.window_symbols);
                FlowCode::Stream(StreamParams { window_symbols, ..new })
            }
            (code, _) => code,
        }
    }

    /// Longest symbol, independent of a node's limits.
    pub fn symbol_bytes_max(&self) -> usize {
        match self {
            FlowCode::Stream(code) => {
                let share = STREAM_MEMORY_BYTES / code.window_symbols.next_power_of_two();
                share.max(STREAM_SYMBOL_BYTES)
            }
            _ => usize::MAX,
        }
    }

    /// Maximum bytes of a packet in front of its symbol.
    pub fn header_bytes(&self, generation_size: usize, field: FieldOrder) -> usize {
        let vector = vector_bytes(generation_size, field.code()).max(INDEX_BYTES);
        match self {
            FlowCode::Rlnc => coding_offset(false) + vector,
            #[cfg(feature = "bats")]
            FlowCode::Bats(_) => coding_offset(true) + vector,
            FlowCode::Stream(_) => STREAM_OVERHEAD_BYTES,
        }
    }

    /// Framing bytes per IP packet in the symbols of a source, sealed or not.
    pub(crate) fn framing_bytes(&self) -> usize {
        if self.is_stream() { 0 } else { LENGTH_BYTES }
    }

    /// Symbols that a source sends at once when a unit closes: a generation of `generation_size`,
    /// or a block. A stream has no units.
    pub(crate) fn closing_symbols(&self, generation_size: usize) -> usize {
        match self {
            FlowCode::Rlnc => generation_size,
            #[cfg(feature = "bats")]
            FlowCode::Bats(code) => code.source_symbols,
            FlowCode::Stream(_) => 0,
        }
    }
}
