//! Tags of symbols: the context they are bound to, and where they are written and verified. Keys
//! are behind [`Egress`]; recoding carries tags along as a part of the symbol.
//!
//! ```text
//!  symbol on the wire:  | tag 8 or 16 | payload |        a sink holds payloads only
//!
//!  context: | epoch | field | full_log2 | batch size | symbol bytes 2 |
//!           | block 2 | batch 2 | source symbols 2 | full_log2 | profile | bits | interleave |
//! ```
//!
//! A symbol of a stream has its tag at its end, because intermediate nodes read the start of its
//! packet. It has a context of its own, which is combined with it:
//!
//! ```text
//!           | number 4 | predecessor 2 | bytes, tag included 2 | 0 |
//! ```
//!
//! For a generation, the fields of a batch are zero. Its size is not in the context, since symbols
//! are sent before it is known. Nor are flags, the plan and numbers of the hop. A unit is numbered
//! by generation number and epoch; these do not repeat within the life of a key. A combination of a
//! stream is not verified; the symbols solved from it are.

use crate::config::params::{FlowParams, Role, ShardId};
use crate::config::report::DropReason;
use crate::env::egress::{
    CONTEXT_BYTES, Egress, Formed, KeySerial, Keys, STREAM_UNIT, Space, TaggedUnit, UnitKind,
    Untagged,
};
use crate::env::io::Io;
use crate::packet::arrival::{Arrival, Data};
use crate::packet::collected::{PacketCoding, PacketView};
use crate::unit::context::Context;
use recoded_wire::coded::{Block, CodedHeader};
use recoded_wire::frames::{Frames, Span};
use recoded_wire::header::Header;
use recoded_wire::stream::{
    STREAM_BYTES, SYMBOL_HEADER_BYTES, StreamBody, StreamSymbol, write_symbol_header,
};

/// The unit of a packet with this header, and with symbols of `symbol_bytes`.
fn unit_of(header: &CodedHeader, block: Option<&Block>, symbol_bytes: u16) -> TaggedUnit {
    let CodedHeader { common, full_log2, generation, size, .. } = header;
    let mut context = [0; CONTEXT_BYTES];
    context[..3].copy_from_slice(&[common.epoch, common.flags.field_code(), *full_log2]);
    context[4..6].copy_from_slice(&symbol_bytes.to_be_bytes());
    if let Some(block) = block {
        // Batches have at most 128 symbols.
        context[3] = *size as u8;
        context[6..8].copy_from_slice(&block.number.to_be_bytes());
        context[8..10].copy_from_slice(&block.batch.to_be_bytes());
        context[10..12].copy_from_slice(&block.source_symbols.to_be_bytes());
        let Block { full_log2, profile, generator_bits, interleave, .. } = *block;
        context[12..].copy_from_slice(&[full_log2, profile, generator_bits, interleave]);
    }
    TaggedUnit {
        space: Space {
            flow: common.flow,
            shard: common.shard,
            kind: if block.is_some() { UnitKind::Batch } else { UnitKind::Generation },
        },
        number: u64::from(common.epoch) << 32 | u64::from(*generation),
        context,
    }
}

/// The unit of a symbol of a stream, and the symbol's index in it.
fn stream_unit(shard: ShardId, symbol: &StreamSymbol) -> (TaggedUnit, usize) {
    let mut context = [0; CONTEXT_BYTES];
    write_symbol_header(symbol, &mut context[..SYMBOL_HEADER_BYTES]);
    let number = u64::from(symbol.number / STREAM_UNIT);
    let space = Space { flow: shard.flow, shard: shard.shard, kind: UnitKind::Stream };
    let unit = TaggedUnit { space, number, context };
    (unit, (symbol.number % STREAM_UNIT) as usize)
}

/// Writes the tag of a symbol of a stream into the last bytes of `tagged`, after its packet.
/// Returns the key; `None` without keys: the symbol is sent without a tag, and is refused.
pub(crate) fn tag_stream(
    egress: &mut impl Egress,
    shard: ShardId,
    symbol: &StreamSymbol,
    tagged: &mut [u8],
) -> Option<u8> {
    let (unit, index) = stream_unit(shard, symbol);
    let keys = egress.keys()?;
    let key = keys.tag_key(shard)?;
    keys.tag(key, &unit, index, tagged).is_ok().then_some(key)
}

/// Verifies a symbol of a stream of a flow with these `settings`: packet and tag are in `tagged`.
/// Returns the key, if it could be verified.
///
/// # Errors
/// The symbol must be dropped.
pub(crate) fn verify_stream(
    egress: &mut impl Egress,
    shard: ShardId,
    settings: &FlowParams,
    symbol: &StreamSymbol,
    tagged: &[u8],
) -> Result<Option<KeySerial>, DropReason> {
    if !settings.tagged {
        return Ok(None);
    }
    if tagged.len() <= settings.tag_bytes() {
        return Err(DropReason::WrongSymbolTag);
    }
    let (unit, index) = stream_unit(shard, symbol);
    let keys = egress.keys().ok_or(Untagged::NoKeys);
    match keys.and_then(|keys| keys.verify(&unit, Formed::Source(index), tagged)) {
        Ok(key) => Ok(Some(key)),
        Err(Untagged::Refused) => Err(DropReason::WrongSymbolTag),
        // Tags stay in place for nodes with keys.
        Err(Untagged::NoKeys) if matches!(settings.role, Role::Relay { .. }) => Ok(None),
        Err(Untagged::NoKeys) => Err(DropReason::NoSymbolKeys),
    }
}

/// Writes the tag of symbol `index`, which is sent under `header`.
pub(crate) fn tag<F: Frames, E: Egress>(
    cx: &mut Context<'_, '_, F, E>,
    key: u8,
    header: &CodedHeader,
    block: Option<&Block>,
    index: usize,
    symbol: Span,
) {
    let unit = unit_of(header, block, symbol.len);
    let Io { frames, egress, .. } = &mut *cx.io;
    let keys = egress.keys().ok_or(Untagged::NoKeys);
    if keys.and_then(|keys| keys.tag(key, &unit, index, frames.bytes_mut(symbol))).is_err() {
        leave_out(cx, symbol);
    }
}

/// Leaves a symbol without a tag: it is sent, since others wait for its number, and is refused.
pub(crate) fn leave_out<F: Frames, E>(cx: &mut Context<'_, '_, F, E>, symbol: Span) {
    cx.counters.tag_failed += 1;
    // Clears stale bytes of the frame.
    cx.io.frames.bytes_mut(symbol)[..cx.params.tag_bytes()].fill(0);
}

/// Verifies the symbol of a packet of a flow with these `settings`, before it can change any state.
/// Returns the packet with its key; a sink sees no tag of a generation or batch. `None` if there
/// was nothing to verify here.
///
/// # Errors
/// The packet must be dropped.
pub(crate) fn verify<'a>(
    io: &mut Io<'_, impl Frames, impl Egress>,
    settings: &FlowParams,
    arrival: &Arrival<'a>,
) -> Result<Option<Arrival<'a>>, DropReason> {
    if let Data::Stream(packet) = &arrival.data
        && let StreamBody::Symbol(symbol) = &packet.body
    {
        let Header { flow, shard, .. } = packet.header.common;
        let tagged = &io.frames.bytes(arrival.payload)[STREAM_BYTES..];
        let shard = ShardId { flow, shard };
        let key = verify_stream(io.egress, shard, settings, symbol, tagged)?;
        return Ok(key.map(|_| Arrival { data: Data::Stream(*packet), key, ..*arrival }));
    }
    let Data::Coded { header, view } = &arrival.data else { return Ok(None) };
    if !settings.tagged {
        return Ok(None);
    }
    let unit = unit_of(header, view.block.as_ref(), view.symbol_bytes);
    let formed = match view.coding {
        PacketCoding::Systematic(index) => Formed::Source(index),
        PacketCoding::Vector(elements) => Formed::Combination(elements),
    };
    let is_sink = matches!(settings.role, Role::Sink { .. });
    let keys = io.egress.keys().ok_or(Untagged::NoKeys);
    let symbol = io.frames.bytes(view.symbol);
    let key = match keys.and_then(|keys| keys.verify(&unit, formed, symbol)) {
        Ok(key) => Some(key),
        // Tags stay in place for nodes with keys.
        Err(Untagged::NoKeys) if !is_sink => return Ok(None),
        Err(Untagged::NoKeys) => return Err(DropReason::NoSymbolKeys),
        Err(Untagged::Refused) => return Err(DropReason::WrongSymbolTag),
    };
    if !is_sink {
        let data = Data::Coded { header: *header, view: *view };
        return Ok(Some(Arrival { data, key, ..*arrival }));
    }
    let tag_bytes = settings.tag_bytes();
    let bytes = usize::from(view.symbol_bytes).saturating_sub(tag_bytes);
    let payload = view.symbol.slice(tag_bytes, bytes).filter(|_| bytes > 0);
    let symbol = payload.ok_or(DropReason::WrongSymbolTag)?;
    let view = PacketView { symbol, symbol_bytes: symbol.len, ..*view };
    Ok(Some(Arrival { data: Data::Coded { header: *header, view }, key, ..*arrival }))
}
