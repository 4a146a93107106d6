//! Memory of a flow: an estimate from its parameters only, so that a configuration can be refused
//! before anything is allocated.
//!
//! Tables are allocated when a flow is created, for the largest generations, blocks or streams that
//! it accepts, and never grow. So the estimate is the sum of their sizes: never below the allocated
//! memory, and at most half as much again. Frames are not included: they belong to a worker,
//! whatever its flows hold.

#[cfg(feature = "bats")]
use crate::bats::{received, sent_batches::SentBatches};
#[cfg(feature = "bats")]
use crate::config::params::BatsParams;
use crate::config::params::{FlowCode, FlowParams, Role};
use crate::hop::send::mender::Mender;
use crate::packet::collected::Collected;
use crate::unit::relay::hop_repair::mended_packets;

use crate::stream::relay::StreamRelay;
use crate::stream::sink::StreamSink;
use crate::stream::source::StreamSource;
#[cfg(feature = "bats")]
use crate::unit::sink::unit::Progress;
#[cfg(feature = "bats")]
use recoded_code::bats::Decoder;
use recoded_wire::coded::SIZE_MAX;
use recoded_wire::frames::Span;

impl FlowParams {
    /// Maximum bytes that one worker allocates for this flow.
    pub fn memory_bytes(&self) -> usize {
        let tables = match (&self.role, &self.code) {
            (Role::Relay { .. }, FlowCode::Stream(code)) => StreamRelay::memory_bytes(self, code),
            (Role::Relay { .. }, _) => relay(self),
            (Role::Source { .. }, FlowCode::Rlnc) => source(self),
            (Role::Sink { .. }, FlowCode::Rlnc) => sink(self),
            #[cfg(feature = "bats")]
            (Role::Source { .. }, FlowCode::Bats(bats)) => bats_source(self, bats),
            #[cfg(feature = "bats")]
            (Role::Sink { .. }, FlowCode::Bats(bats)) => bats_sink(self, bats),
            (Role::Source { .. }, FlowCode::Stream(code)) => StreamSource::memory_bytes(self, code),
            (Role::Sink { .. }, FlowCode::Stream(code)) => StreamSink::memory_bytes(self, code),
        };
        FIXED_BYTES + self.next_hops.len() * HOP_BYTES + tables
    }
}

fn source(params: &FlowParams) -> usize {
    let mender = Mender::memory_bytes(mended_packets(params));
    params.generations.max(2) * (ENTRY_BYTES + SIZE_MAX * size_of::<Span>()) + mender
}

fn relay(params: &FlowParams) -> usize {
    let size = params.generation_size;
    let generation = collected(size) + size * size;
    let mender = Mender::memory_bytes(mended_packets(params));
    params.generations.max(1) * (generation + size_of::<usize>()) + ADAPTIVE_BYTES + mender
}

fn sink(params: &FlowParams) -> usize {
    let size = params.generation_size;
    let generation = collected(size) + ENTRY_BYTES + size * size_of::<Option<Span>>();
    (params.sink_generations() + TRIAL) * generation + DELIVERY_BYTES
}

/// A [`Collected`] without vectors: spans, and the elimination.
fn collected(size: usize) -> usize {
    size_of::<Collected>() + size * size_of::<Span>() + elimination(size)
}

/// Rows of a whole number of registers, one spare, and some bytes per row.
fn elimination(size: usize) -> usize {
    let stride =
        if size <= 128 { size.next_power_of_two().max(16) } else { size.next_multiple_of(32) };
    (size + 1) * stride + 10 * size + 3 * ALIGN_BYTES
}

#[cfg(feature = "bats")]
fn bats_source(params: &FlowParams, bats: &BatsParams) -> usize {
    // A precode adds at most a fifth, plus a constant.
    let symbols = bats.source_symbols + bats.source_symbols / 4 + 256;
    let former = FORMER_BYTES + params.generation_size * FORMER_COLUMN_BYTES;
    let mended = Mender::memory_bytes(mended_packets(params))
        + SentBatches::memory_bytes(params.generations, params.generation_size);
    params.blocks(bats) * (ENTRY_BYTES + symbols * size_of::<Span>()) + former + mended
}

#[cfg(feature = "bats")]
fn bats_sink(params: &FlowParams, bats: &BatsParams) -> usize {
    let limits = received::limits(params, bats);
    let spans = limits.batches_max * limits.batch_size_max * size_of::<Span>()
        + (limits.intermediate_symbols_max() + limits.inactive_max) * size_of::<Option<Span>>();
    // It leaves out tables that grow with the block: a twentieth at most, as measured.
    let decoder = Decoder::memory_bytes(limits) / 8 * 9;
    let block = size_of::<Progress>() + decoder + spans + DECODER_BYTES;
    (params.blocks(bats) + TRIAL) * block + DELIVERY_BYTES
}

/// Any flow: counters, histograms, plans, reports. Measured: 10 to 20 KiB.
const FIXED_BYTES: usize = 24 << 10;
/// A next hop: its numbers, and those of its feedback.
const HOP_BYTES: usize = 4 << 10;
/// A sink tries one unit in addition to those of its table.
const TRIAL: usize = 1;
/// An entry of a table, without its lists.
const ENTRY_BYTES: usize = 96;
/// Alignment overhead per allocation.
const ALIGN_BYTES: usize = 64;
/// A sink collects packets of up to 64 KiB that span symbols.
const DELIVERY_BYTES: usize = 64 << 10;
/// A recoding table of batches of 128, made when hops report.
const ADAPTIVE_BYTES: usize = 128 << 10;
/// Memory for forming batches: a generator, coefficients of a product, and plans; plus an amount
/// for each packet of a batch.
#[cfg(feature = "bats")]
const FORMER_BYTES: usize = 320 << 10;
#[cfg(feature = "bats")]
const FORMER_COLUMN_BYTES: usize = 4096;
/// Scratch of a decoder that [`Decoder::memory_bytes`] leaves out.
#[cfg(feature = "bats")]
const DECODER_BYTES: usize = 256 << 10;
