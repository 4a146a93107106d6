//! A block at the sink of a BATS flow: its decoder, and the frames of its symbols. Symbols stay
//! where they arrived; most of them become known at once, when the rank suffices.

use crate::bats::rows::{Rows, Workbench};
use crate::config::params::{BatsParams, FlowCode, FlowParams, ShardId};
use crate::config::report::DropReason;
use crate::env::egress::Egress;
use crate::env::io::Io;
use crate::packet::collected::{PacketCoding, PacketView};
use crate::packet::incoming::Incoming;
use crate::unit::sink::unit::{Progress, Unit};
use recoded_code::bats::{Decoder, Effort, Gain, Limits, Params, Profile};
use recoded_gf::FieldOrder;
use recoded_wire::coded::{CodedHeader, SIZE_MAX};
use recoded_wire::feedback::{Item, Nack};
use recoded_wire::frames::{Frames, Span};

/// Batches beyond the redundancy of a block: even a short one gets a few.
const BATCHES_SPARE: usize = 16;

/// Blocks this far from the held ones belong to a source that restarted.
const RESTART_BLOCKS: u32 = 1 << 10;

/// Decoding work per call: some tens of microseconds of multiplications. The rest follows in later
/// calls, which lets other flows take their turns.
const DECODE_BYTES: usize = 3 << 17;

/// Packet fields that describe its block.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Told {
    batch: u16,
    agreed: Agreed,
}

/// Fields that all packets of a block must share.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Agreed {
    params: Params,
    depth: u16,
    epoch: u8,
    field: FieldOrder,
    symbol_bytes: u16,
}

/// A block at the sink.
pub(crate) struct ReceivedBlock {
    progress: Progress,
    agreed: Option<Agreed>,
    decoder: Decoder,
    rows: Rows,
    /// Upper limit of the batch ids of a block, exclusive.
    batches_max: usize,
    /// Largest batch id seen.
    newest_batch: u16,
    /// Newest batch when a round was first requested: newer batches answer it.
    asked_after: u16,
    /// The same, of the first round.
    first_asked_after: Option<u16>,
}

impl ReceivedBlock {
    /// Unused entries, as many as the sink of a flow holds, and one for trials.
    pub(crate) fn table(params: &FlowParams, code: &BatsParams) -> (Vec<Self>, Self) {
        let entry = || Self::new(limits(params, code));
        ((0..params.blocks(code)).map(|_| entry()).collect(), entry())
    }

    fn new(limits: Limits) -> Self {
        let slots = limits.batches_max * limits.batch_size_max;
        Self {
            progress: Progress::default(),
            agreed: None,
            decoder: Decoder::new(limits),
            rows: Rows::new(slots, limits.intermediate_symbols_max(), limits.inactive_max),
            batches_max: limits.batches_max,
            newest_batch: 0,
            asked_after: 0,
            first_asked_after: None,
        }
    }

    /// Adopts the shape that the first packet of the block announces. Returns false if a later one
    /// differs.
    fn agree(&mut self, agreed: Agreed) -> bool {
        if self.agreed.is_none() {
            if self.decoder.reset(agreed.params).is_err() {
                return false;
            }
            self.rows.begin(agreed.symbol_bytes);
            self.agreed = Some(agreed);
        }
        self.agreed == Some(agreed)
    }
}

impl Unit for ReceivedBlock {
    type Told = Told;

    const STEP: u32 = 1 << 16;

    const RESTART: u32 = RESTART_BLOCKS * Self::STEP;

    fn told(
        params: &FlowParams,
        _header: &CodedHeader,
        view: &PacketView,
    ) -> Result<(u32, Told), DropReason> {
        let (FlowCode::Bats(code), Some(block)) = (&params.code, view.block) else {
            return Err(DropReason::WrongCode);
        };
        let source_symbols = usize::from(block.source_symbols);
        if source_symbols > code.source_symbols {
            return Err(DropReason::Oversize);
        }
        let shape = Params {
            source_symbols,
            batch_size: view.size,
            profile: Profile::from_code(block.profile).ok_or(DropReason::Malformed)?,
            generator_bits: block.generator_bits,
        };
        let agreed = Agreed {
            params: shape.validated().map_err(|_| DropReason::Malformed)?,
            depth: u16::from(block.interleave.max(1)),
            epoch: view.epoch,
            field: view.field,
            symbol_bytes: view.symbol_bytes,
        };
        Ok((u32::from(block.number) * Self::STEP, Told { batch: block.batch, agreed }))
    }

    fn progress(&self) -> &Progress {
        &self.progress
    }

    fn progress_mut(&mut self) -> &mut Progress {
        &mut self.progress
    }

    fn open(&mut self, _number: u32) {
        self.agreed = None;
        (self.newest_batch, self.asked_after, self.first_asked_after) = (0, 0, None);
    }

    fn clear(&mut self, frames: &mut impl Frames) {
        self.rows.clear(frames);
    }

    fn is_answer(&self, _header: &CodedHeader, view: &PacketView) -> bool {
        let is_newer = |batch: u16| batch > self.asked_after;
        self.progress.has_asked()
            && !self.progress.decoded
            && view.block.is_some_and(|block| is_newer(block.batch))
    }

    fn is_planned(&self, _header: &CodedHeader, view: &PacketView) -> bool {
        let is_first = |batch: u16| self.first_asked_after.is_none_or(|first| batch <= first);
        view.block.is_some_and(|block| is_first(block.batch))
    }

    fn accept(
        &mut self,
        io: &mut Io<'_, impl Frames, impl Egress>,
        told: Told,
        _payload: Span,
        view: &PacketView,
    ) -> Result<bool, DropReason> {
        if !self.agree(told.agreed) {
            return Err(DropReason::Mismatch);
        }
        if usize::from(told.batch) >= self.batches_max {
            return Err(DropReason::BatchesExhausted);
        }
        let mut unit = [0; SIZE_MAX];
        let vector = match &view.coding {
            PacketCoding::Systematic(index) => {
                unit[*index] = 1;
                &unit[..view.size]
            }
            PacketCoding::Vector(elements) => &elements[..view.size],
        };
        let outcome = self.decoder.insert(told.batch, vector);
        let outcome = outcome.map_err(|_| DropReason::BatchesExhausted)?;
        self.newest_batch = self.newest_batch.max(told.batch);
        let innovative = matches!(outcome, Gain::Innovative { .. });
        if innovative {
            self.rows.push(io.frames, view.symbol);
        }
        Ok(innovative)
    }

    fn lacks(&self, view: &PacketView) -> bool {
        let rank = |batch| self.decoder.batch_rank(batch);
        !self.progress.decoded && view.block.is_some_and(|block| rank(block.batch) < view.size)
    }

    fn decode(&mut self, io: &mut Io<'_, impl Frames, impl Egress>, _shard: ShardId) -> bool {
        let Some(agreed) = self.agreed else { return false };
        let effort = Effort::new(DECODE_BYTES, usize::from(agreed.symbol_bytes));
        let kernel = io.combiner.kernel();
        let mut bench = Workbench { rows: &mut self.rows, frames: io.frames, kernel };
        let advanced = self.decoder.advance_by(effort, &mut bench, |_| ());
        let decoded = advanced.is_ok() && self.is_complete();
        if decoded {
            self.rows.release_received(io.frames);
        }
        decoded
    }

    fn is_busy(&self) -> bool {
        self.agreed.is_some() && !self.progress.decoded && self.decoder.is_cut()
    }

    fn ends_with(&self, _header: &CodedHeader) -> bool {
        false
    }

    fn is_complete(&self) -> bool {
        self.agreed.is_some() && self.decoder.is_complete()
    }

    fn epoch(&self) -> Option<u8> {
        self.agreed.map(|agreed| agreed.epoch)
    }

    fn size(&self) -> usize {
        self.agreed.map_or(0, |agreed| agreed.params.source_symbols)
    }

    fn symbol(&self, index: usize) -> Option<Span> {
        self.decoder.is_decoded(index).then(|| self.rows.symbol(index)).flatten()
    }

    fn missing(&self) -> u16 {
        match self.agreed {
            None => Nack::ALL,
            Some(_) => self.decoder.missing() as u16,
        }
    }

    /// Batches still arriving when a block decodes would count as shorter than they are, so they
    /// are left out.
    fn record_ranks(&self, incoming: &mut Incoming) {
        let Some(Agreed { params, depth, epoch, .. }) = self.agreed else { return };
        let open = if self.progress.decoded { depth } else { 0 };
        for batch in 0..self.newest_batch.saturating_add(1).saturating_sub(open) {
            let rank = self.decoder.batch_rank(batch);
            incoming.ranks.record(epoch, params.batch_size, rank);
        }
    }

    fn begin_round(&mut self) {
        self.asked_after = self.newest_batch;
        self.first_asked_after.get_or_insert(self.newest_batch);
    }

    fn block_ack(number: u32) -> Option<Item<'static>> {
        Some(Item::BlockAck((number / Self::STEP) as u16))
    }
}

/// Room for the most batches that the source may send. Sizes are announced rounded up to a power of
/// two, so batches may be little more than half as large.
pub(crate) fn limits(params: &FlowParams, code: &BatsParams) -> Limits {
    let least = Limits::of(code.source_symbols, params.generation_size);
    let batch_size_min = params.generation_size / 2 + 1;
    let sent = params.redundancy_max * code.source_symbols as f64 / batch_size_min as f64;
    let batches_max = least.batches_max.max(sent.ceil() as usize + BATCHES_SPARE);
    Limits { batches_max: batches_max.min(usize::from(u16::MAX)), ..least }
}
