//! Unit that a sink decodes as a whole and delivers in order: a generation, or a block of batches.

use crate::config::params::{FlowParams, Nanos, ShardId, UPSTREAMS_MAX};
use crate::config::report::{DropReason, FlowCounters};
use crate::env::egress::{Egress, Ticket};
use crate::env::io::Io;
use crate::hop::send::repair::ROUNDS;
use crate::packet::collected::PacketView;
use crate::packet::incoming::Incoming;
use recoded_wire::coded::CodedHeader;
use recoded_wire::feedback::Item;
use recoded_wire::frames::{Frames, Span};

/// Each request is sent three times per round, since the reverse path is lossy too. The source
/// answers once.
pub(crate) const REQUEST_COPIES: u8 = 3;

/// A generation or a block at a sink: its decoder, and the frames of its symbols.
pub(crate) trait Unit {
    /// Fields that all packets of one unit share.
    type Told: Copy;

    /// Distance between consecutive numbers. Numbers shorter than a word occupy its upper bits, so
    /// that distances wrap alike.
    const STEP: u32;

    /// Numbers this far apart belong to different runs of a source.
    const RESTART: u32;

    /// Number of the unit that a packet belongs to, and the fields that describe the unit. Refuses
    /// packets that the flow does not accept.
    fn told(
        params: &FlowParams,
        header: &CodedHeader,
        view: &PacketView,
    ) -> Result<(u32, Self::Told), DropReason>;

    /// Its progress.
    fn progress(&self) -> &Progress;

    /// Its progress, mutable.
    fn progress_mut(&mut self) -> &mut Progress;

    /// Begins unit `number` in this entry, which is unused.
    fn open(&mut self, number: u32);

    /// Releases its frames.
    fn clear(&mut self, frames: &mut impl Frames);

    /// Whether the packet answers a request of this unit.
    fn is_answer(&self, header: &CodedHeader, view: &PacketView) -> bool;

    /// Whether the packet was sent before this unit requested more.
    fn is_planned(&self, header: &CodedHeader, view: &PacketView) -> bool;

    /// Adds a packet; `payload` is its span, whose reference stays with the caller. Returns whether
    /// it was innovative.
    fn accept(
        &mut self,
        io: &mut Io<'_, impl Frames, impl Egress>,
        told: Self::Told,
        payload: Span,
        view: &PacketView,
    ) -> Result<bool, DropReason>;

    /// Whether the packet's part of the unit is incomplete: in a block, its batch.
    fn lacks(&self, view: &PacketView) -> bool;

    /// Decodes as far as one call allows. Returns whether all symbols are known; if not, it is
    /// called again, and at once while [`Unit::is_busy`].
    fn decode(&mut self, io: &mut Io<'_, impl Frames, impl Egress>, shard: ShardId) -> bool;

    /// Whether the last call of [`Unit::decode`] has left work, since each call is bounded.
    fn is_busy(&self) -> bool {
        false
    }

    /// Takes `rows`, the result of an accelerator's product; fewer than requested if it failed.
    /// Returns whether all symbols are known.
    fn solved<'a>(
        &mut self,
        _io: &mut Io<'_, impl Frames, impl Egress>,
        _ticket: Ticket,
        _rows: impl Iterator<Item = &'a [u8]>,
    ) -> bool {
        false
    }

    /// Whether no more packets are planned for it after this one.
    fn ends_with(&self, header: &CodedHeader) -> bool;

    /// Whether the rank suffices.
    fn is_complete(&self) -> bool;

    /// Epoch of its packets, once one arrived.
    fn epoch(&self) -> Option<u8>;

    /// Number of source symbols, as far as known.
    fn size(&self) -> usize;

    /// Source symbol `index`, if it is known.
    fn symbol(&self, index: usize) -> Option<Span>;

    /// Degrees of freedom to request.
    fn missing(&self) -> u16;

    /// Counts its ranks as it closes.
    fn record_ranks(&self, incoming: &mut Incoming);

    /// Begins a new round of requests.
    fn begin_round(&mut self) {}

    /// Acknowledgement of all units up to `number`, if sources keep units until then.
    fn block_ack(_number: u32) -> Option<Item<'static>> {
        None
    }
}

/// When the units of a sink request their missing symbols.
#[derive(Copy, Clone, Debug)]
pub(crate) struct RequestTiming {
    /// Time between two copies of a request.
    pub interval: Nanos,
    /// Time from the end of a unit to its first request.
    pub patience: Nanos,
}

/// Lifecycle of a unit at a sink.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Progress {
    /// Whether the entry is in use.
    pub live: bool,
    /// When the first packet arrived.
    pub first: Option<Nanos>,
    /// When the last packet arrived, or the entry was opened.
    pub touched: Nanos,
    /// When it ended: no more packets were planned for it. That is its end, full rank, a newer unit
    /// or a timeout. With several upstreams, the end of each; newer units do not end it.
    pub closed: Option<Nanos>,
    /// Upstreams that sent their last packet of it, one bit each.
    pub ended: u8,
    /// Whether all its symbols are known.
    pub decoded: bool,
    /// Whether its ranks were counted.
    pub is_recorded: bool,
    /// Requests sent.
    asks: u8,
    first_asked_at: Nanos,
    /// Zero before the first request.
    pub asked_at: Nanos,
}

impl Progress {
    pub(crate) fn opened(now: Nanos) -> Self {
        Self { live: true, touched: now, ..Self::default() }
    }

    /// Notes that all symbols became known.
    pub(crate) fn decode(&mut self, counters: &mut FlowCounters, now: Nanos) {
        self.decoded = true;
        counters.decoded_after(now.saturating_sub(self.first.unwrap_or(now)));
    }

    /// Notes that one of `upstreams` has no more packets planned for it. Returns whether none has.
    pub(crate) fn ends(&mut self, place: usize, upstreams: usize) -> bool {
        self.ended |= 1 << (place % UPSTREAMS_MAX);
        self.ended.count_ones() as usize >= upstreams
    }

    /// Whether it has requested more.
    pub(crate) fn has_asked(&self) -> bool {
        self.asks > 0
    }

    /// Time since its first request.
    pub(crate) fn asked_for(&self, now: Nanos) -> Nanos {
        now.saturating_sub(self.first_asked_at)
    }

    fn has_requests(&self) -> bool {
        self.asks < REQUEST_COPIES * ROUNDS
    }

    /// Whether a request may be sent now.
    pub(crate) fn may_ask(&self, now: Nanos, timing: RequestTiming) -> bool {
        self.closed.is_some() && self.asks_at(timing).is_some_and(|at| at <= now)
    }

    /// Notes a request. Returns its round, and whether it is the first of the round.
    pub(crate) fn ask(&mut self, now: Nanos) -> (u8, bool) {
        if self.asks == 0 {
            self.first_asked_at = now;
        }
        let round = (self.asks / REQUEST_COPIES, self.asks.is_multiple_of(REQUEST_COPIES));
        self.asks += 1;
        self.asked_at = now;
        round
    }

    /// When it may request more again, if it is not decoded: see [`Progress::may_ask`].
    pub(crate) fn asks_at(&self, timing: RequestTiming) -> Option<Nanos> {
        let RequestTiming { interval, patience } = timing;
        let closed = self.closed.unwrap_or(self.touched);
        let at = if self.asks == 0 { closed + patience } else { self.asked_at + interval };
        (!self.decoded && self.has_requests()).then_some(at)
    }
}
