//! One block at the sink of a BATS flow: its decoder, its frames, its requests.

use crate::batch::{PacketCoding, PacketView};
use crate::bats::rows::Rows;
use crate::egress::Egress;
use crate::incoming::Incoming;
use crate::io::{Io, earlier};
use crate::params::{BatsParams, FlowCode, FlowParams, Nanos};
use crate::redundancy::ROUNDS;
use crate::report::{DropReason, FlowCounters};
use recoded_code::bats::{Decoder, Limits, Outcome, Params, Profile};
use recoded_gf::FieldOrder;
use recoded_wire::feedback::RepairRequest;
use recoded_wire::frames::Frames;
use recoded_wire::header::{Block, SIZE_MAX};

/// A request is said this often per round, since the way back is lossy too; the source answers once.
pub(crate) const SAYINGS: u8 = 3;

/// Batches beyond what the redundancy of a block allows: a short one still gets a few.
const BATCHES_SPARE: usize = 16;

/// What all packets of a block agree on.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Told {
    pub params: Params,
    pub depth: u16,
    pub epoch: u8,
    pub field: FieldOrder,
    pub symbol_bytes: u16,
}

/// A block at the sink.
pub(crate) struct Entry {
    pub number: u16,
    pub live: bool,
    /// Nothing more is planned for it: a newer one began, or a silence.
    pub closed: bool,
    pub told: Option<Told>,
    pub decoder: Decoder,
    pub rows: Rows,
    /// Batch ids of a block lie below this.
    pub batches_max: usize,
    /// Largest batch id seen.
    pub newest_batch: u16,
    pub opened: Nanos,
    pub touched: Nanos,
    pub closed_at: Nanos,
    pub decoded_at: Option<Nanos>,
    pub asks: u8,
    pub first_asked_at: Nanos,
    pub asked_at: Nanos,
    /// Batches seen when a round was first asked for: newer ones answer it.
    pub asked_after: u16,
}

impl Entry {
    pub(crate) fn new(limits: Limits) -> Entry {
        let slots = limits.batches_max * limits.batch_size_max;
        Entry {
            number: 0,
            live: false,
            closed: false,
            told: None,
            decoder: Decoder::new(limits),
            rows: Rows::new(slots, limits.intermediate_symbols_max(), limits.inactive_max),
            batches_max: limits.batches_max,
            newest_batch: 0,
            opened: 0,
            touched: 0,
            closed_at: 0,
            decoded_at: None,
            asks: 0,
            first_asked_at: 0,
            asked_at: 0,
            asked_after: 0,
        }
    }

    pub(crate) fn open(&mut self, number: u16, now: Nanos) {
        self.number = number;
        self.live = true;
        self.closed = false;
        self.told = None;
        self.newest_batch = 0;
        (self.opened, self.touched, self.closed_at) = (now, now, 0);
        self.decoded_at = None;
        (self.asks, self.asked_at, self.asked_after) = (0, 0, 0);
    }

    /// Frees the entry and lets its frames go.
    pub(crate) fn clear(&mut self, frames: &mut impl Frames) {
        self.rows.clear(frames);
        self.live = false;
    }

    /// Takes the shape that the first packet of the block tells. False when a later one differs.
    pub(crate) fn begin(&mut self, told: Told, now: Nanos) -> bool {
        if self.told.is_none() {
            if self.decoder.reset(told.params).is_err() {
                return false;
            }
            self.rows.begin(told.symbol_bytes);
            self.told = Some(told);
            self.opened = now;
        }
        self.told == Some(told)
    }

    /// Takes a packet in. Whether it was innovative.
    pub(crate) fn insert(
        &mut self,
        io: &mut Io<'_, impl Frames, impl Egress>,
        batch: u16,
        view: &PacketView,
    ) -> Result<bool, DropReason> {
        if usize::from(batch) >= self.batches_max {
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
        match self.decoder.insert(batch, vector) {
            Ok(outcome) => {
                self.newest_batch = self.newest_batch.max(batch);
                let innovative = matches!(outcome, Outcome::Innovative { .. });
                if innovative {
                    self.rows.push(io.frames, view.symbol);
                }
                Ok(innovative)
            }
            Err(_) => Err(DropReason::BatchesExhausted),
        }
    }

    /// Whether a batch was sent because this block asked for more.
    pub(crate) fn is_answer(&self, batch: u16) -> bool {
        self.asks > 0 && self.decoded_at.is_none() && batch > self.asked_after
    }

    /// Counts the ranks of all batches but the newest `open`, once for each block.
    pub(crate) fn record_ranks(
        &mut self,
        incoming: &mut Incoming,
        counters: &mut FlowCounters,
        open: u16,
    ) {
        let Some(told) = self.told else { return };
        for batch in 0..(self.newest_batch.saturating_add(1)).saturating_sub(open) {
            let rank = self.decoder.batch_rank(batch);
            incoming.ranks.record(counters, told.epoch, told.params.batch_size, rank);
        }
    }

    pub(crate) fn may_ask(&self, now: Nanos, interval: Nanos) -> bool {
        self.closed
            && self.decoded_at.is_none()
            && self.asks < SAYINGS * ROUNDS
            && (self.asks == 0 || now >= self.asked_at + interval)
    }

    pub(crate) fn ask(&mut self, now: Nanos) -> RepairRequest {
        let round = self.asks / SAYINGS;
        if self.asks == 0 {
            self.first_asked_at = now;
        }
        if self.asks.is_multiple_of(SAYINGS) {
            self.asked_after = self.newest_batch;
        }
        self.asks += 1;
        self.asked_at = now;
        let missing = match self.told {
            None => RepairRequest::ALL,
            Some(_) => self.decoder.missing() as u16,
        };
        RepairRequest { generation: u32::from(self.number), missing, round }
    }

    /// When this closed block wants to be looked at again.
    pub(crate) fn deadline(&self, params: &FlowParams, interval: Nanos) -> Option<Nanos> {
        if self.decoded_at.is_some() {
            return None;
        }
        let hold = self.closed_at + params.hold_timeout_nanos;
        let ask =
            (params.repair && self.asks < SAYINGS * ROUNDS).then_some(self.asked_at + interval);
        earlier(Some(hold), ask)
    }
}

/// Room for as many batches as the source may send.
pub(crate) fn limits(params: &FlowParams, code: &BatsParams) -> Limits {
    let least = Limits::of(code.source_symbols, params.generation_size);
    let sent = params.redundancy_max * code.source_symbols as f64 / params.generation_size as f64;
    let batches_max = least.batches_max.max(sent.ceil() as usize + BATCHES_SPARE);
    Limits { batches_max: batches_max.min(usize::from(u16::MAX)), ..least }
}

/// What a packet says of its block, if the flow allows it.
pub(crate) fn told_by(params: &FlowParams, view: &PacketView) -> Result<(Block, Told), DropReason> {
    let (FlowCode::Bats(code), Some(block)) = (&params.code, view.block) else {
        return Err(DropReason::WrongRole);
    };
    let source_symbols = block.source_symbols as usize;
    if source_symbols > code.source_symbols {
        return Err(DropReason::Oversize);
    }
    let shape = Params {
        source_symbols,
        batch_size: view.size,
        profile: Profile::from_code(block.profile).ok_or(DropReason::Malformed)?,
        generator_bits: block.generator_bits,
    };
    let told = Told {
        params: shape.validated().map_err(|_| DropReason::Malformed)?,
        depth: u16::from(block.interleave.max(1)),
        epoch: view.epoch,
        field: view.field,
        symbol_bytes: view.symbol_bytes,
    };
    Ok((block, told))
}
