//! Code and sizes that packets announce, and the sizes of a stage that accepts them.

use crate::config::params::{FlowCode, FlowParams, Role, Sizes, StreamParams};
use crate::packet::arrival::Data;
use crate::packet::collected::PacketView;
#[cfg(feature = "bats")]
use crate::plan::recode::BATCH_SIZE_MAX;
#[cfg(feature = "bats")]
use recoded_code::bats::SOURCE_SYMBOLS_MAX;
use recoded_gf::FieldOrder;
#[cfg(feature = "bats")]
use recoded_wire::coded::Block;
use recoded_wire::frames::Frames;

/// Smallest size that tables are allocated for, in symbols of a generation. Batches have no
/// minimum: the smaller they are, the more of them a block has.
pub const SIZE_MIN: usize = 16;

/// Logarithm of the largest size.
const FULL_LOG2_MAX: u8 = 8;

impl FlowParams {
    /// Sizes of a stage of this relay or sink that accepts a packet, and everything that one of the
    /// `present` sizes accepts if it has the same code. Its symbols are as long as this flow
    /// accepts and as frames can hold after such vectors. `None` when no source sends such a
    /// packet, or its symbol is longer.
    pub(crate) fn that_take(
        &self,
        data: &Data<'_>,
        present: Option<Sizes>,
        frames: &impl Frames,
    ) -> Option<Sizes> {
        let announced = announced(data);
        let is_relay = matches!(self.role, Role::Relay { .. });
        let is_alike = |present: &Sizes| {
            // One table of a relay serves all codes except streams.
            is_relay && !present.code.is_stream() && !announced.code.is_stream()
                || std::mem::discriminant(&present.code) == std::mem::discriminant(&announced.code)
        };
        let within_frames = |sizes: Sizes| {
            let room = frames.frame_bytes().saturating_sub(self.frame_bytes_around(&sizes));
            let room = room.min(sizes.code.symbol_bytes_max());
            Sizes { symbol_bytes: self.symbol_bytes.min(room), ..sizes }
        };
        let is_possible =
            |sizes: &Sizes| announced.symbol_bytes <= sizes.symbol_bytes && is_sent(sizes);
        // Longer vectors leave less room for a symbol; then it does not accept everything that the
        // present stage does.
        let both = present.filter(is_alike).map(|present| larger(announced, present));
        let mut sizes = both.into_iter().chain([announced]).map(within_frames);
        sizes.find(is_possible)
    }
}

/// Whether any source sends such sizes.
fn is_sent(sizes: &Sizes) -> bool {
    match sizes.code {
        #[cfg(feature = "bats")]
        FlowCode::Bats(code) => {
            code.source_symbols <= SOURCE_SYMBOLS_MAX && sizes.generation_size <= BATCH_SIZE_MAX
        }
        _ => true,
    }
}

/// Bytes of a packet's symbol.
pub(crate) fn symbol_bytes(data: &Data<'_>) -> usize {
    usize::from(match data {
        Data::Coded { view, .. } => view.symbol_bytes,
        Data::Stream(packet) => packet.symbol().map_or(0, |symbol| symbol.bytes),
    })
}

/// Size of full generations or batches of the epoch of a packet.
pub(crate) fn full_size(view: &PacketView) -> usize {
    (1 << view.full_log2.min(FULL_LOG2_MAX)).max(view.size)
}

/// Source symbols of full blocks of the epoch of a packet.
#[cfg(feature = "bats")]
pub(crate) fn full_symbols(block: &Block) -> usize {
    (1 << block.full_log2).max(usize::from(block.source_symbols))
}

/// Sizes that a packet announces, rounded up.
pub(crate) fn announced(data: &Data<'_>) -> Sizes {
    match data {
        Data::Coded { view, .. } => Sizes {
            code: FlowCode::of_block(view.block.as_ref()),
            field: view.field,
            generation_size: full_size(view).max(match view.block {
                Some(_) => 1,
                None => SIZE_MIN,
            }),
            symbol_bytes: symbol_bytes(data),
        },
        Data::Stream(packet) => Sizes {
            code: FlowCode::Stream(StreamParams::announced(&packet.header)),
            field: FieldOrder::TwoFiftySix,
            generation_size: SIZE_MIN,
            symbol_bytes: symbol_bytes(data),
        },
    }
}

/// The larger of each size; the code is that of the first.
fn larger(sizes: Sizes, other: Sizes) -> Sizes {
    let generation_size = sizes.generation_size.max(other.generation_size);
    Sizes { code: sizes.code.larger(other.code), generation_size, ..sizes }
}
