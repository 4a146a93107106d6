//! Sink edge of a stream: symbols in, IP packets out; those of one TCP flow in order, others at
//! once.
//!
//! A packet that names a previous one of its flow waits for it until it arrives or times out. The
//! sink requests end to end those that no hop recovers, because a relay restarted or ran out of
//! memory.

use crate::base::time::earlier;
use crate::config::params::{FlowParams, Nanos, StreamParams, UPSTREAMS_MAX};
use crate::config::report::{DropReason, FlowReport};
use crate::env::egress::Egress;
use crate::hop::receive::link_report::Onward;
use crate::hop::receive::loss::hop_report;
use crate::hop::send::repair::ROUNDS;
use crate::packet::arrival::{Arrival, Data, Fate};
use crate::packet::incoming::Incoming;
use crate::stream::arrival_log::ArrivalLog;
use crate::stream::combination_decoder::CombinationDecoders;
use crate::stream::delivery::Delivery;
use crate::stream::window_admission::{self, Candidate, Kept};
use crate::unit::context::Context;
use crate::unit::role::Lifecycle;
use crate::unit::tags;
use recoded_wire::feedback::{FlowReport as SinkReport, Item, NACKS_MAX, Nack};
use recoded_wire::frames::Frames;
use recoded_wire::header::{Flags, serial_before};
use recoded_wire::stream::{
    COMBINATION_BYTES, STREAM_BYTES, StreamBody, StreamPacket, StreamSymbol,
};

/// How long a symbol may wait beyond the configured time, in round trips of all hops, which recover
/// it one after the other.
const ROUND_TRIPS: Nanos = 3;

/// Longest wait of a symbol.
const HOLD_MAX_NANOS: Nanos = 4_000_000_000;

/// In an open loop, a missing symbol is abandoned once this many combinations' worth of newer ones
/// were sent: an older one is in no combination, and the equations of one may need the next. At
/// least as many symbols may be reordered.
const OPEN_LOOP_SPANS: u32 = 2;
const OPEN_LOOP_SYMBOLS_MIN: u16 = 32;

/// Numbers scanned for a request.
const LOOK: u32 = 2048;

/// Sink state of a stream.
pub(crate) struct StreamSink {
    delivery: Delivery,
    incoming: Incoming,
    decoders: CombinationDecoders,
    /// Every number before this one is known or counts as lost.
    settled: u32,
    /// When to request missing symbols again, and the round of the next request.
    ask_at: Option<Nanos>,
    round: u8,
    /// Sum of the round trips of all hops, by upstream.
    round_trips: [Nanos; UPSTREAMS_MAX],
    /// Symbols of a combination of an open loop, where nothing can be requested.
    open_loop: Option<u16>,
    /// Whether the source spreads the stream over several paths, and what arrived.
    has_paths: bool,
    arrived: ArrivalLog,
}

impl StreamSink {
    pub(crate) fn new(params: &FlowParams, code: StreamParams) -> Self {
        let symbols = 1 << code.window_log2();
        Self {
            delivery: Delivery::new(symbols, params.symbol_bytes),
            incoming: Incoming::default(),
            decoders: CombinationDecoders::new(params),
            settled: 0,
            ask_at: None,
            round: 0,
            round_trips: [0; UPSTREAMS_MAX],
            open_loop: None,
            has_paths: false,
            arrived: ArrivalLog::new(symbols),
        }
    }

    /// Allocated bytes.
    pub(crate) fn memory_bytes(params: &FlowParams, code: &StreamParams) -> usize {
        let symbols = 1 << code.window_log2();
        Delivery::memory_bytes(symbols, params.symbol_bytes)
            + CombinationDecoders::memory_bytes(params)
            + ArrivalLog::memory_bytes(symbols)
    }

    /// Sum of the round trips of all hops on the longest path.
    fn round_trips(&self) -> Nanos {
        self.round_trips.iter().copied().fold(0, Nanos::max)
    }

    /// How long a symbol may be missing.
    fn hold(&self, params: &FlowParams) -> Nanos {
        (params.hold_timeout_nanos + ROUND_TRIPS * self.round_trips()).min(HOLD_MAX_NANOS)
    }

    /// In an open loop: the oldest number that combinations may still recover, since later ones
    /// cover newer symbols only.
    fn oldest_recoverable(&self) -> Option<u32> {
        let symbols = self.open_loop?.max(OPEN_LOOP_SYMBOLS_MIN);
        let span = OPEN_LOOP_SPANS * u32::from(symbols);
        Some(self.delivery.store().end().wrapping_sub(span))
    }

    /// Learns from a packet whether the path has no return path.
    fn follow_open_loop(&mut self, packet: &StreamPacket) {
        let is_open = packet.header.open_loop().is_some();
        self.open_loop = match packet.body {
            _ if !is_open => None,
            StreamBody::Combination(combination) => Some(combination.count),
            _ => Some(self.open_loop.unwrap_or(0)),
        };
    }

    /// How long the hops may take to recover a symbol before the sink requests it.
    fn mending(&self, params: &FlowParams) -> Nanos {
        (params.generation_timeout_nanos + 2 * self.round_trips()).min(HOLD_MAX_NANOS)
    }

    /// Counts a new symbol.
    fn count(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>, number: u32) {
        cx.counters.source_symbols += 1;
        self.arrived.note(number);
        let missed = cx.io.now.saturating_sub(self.delivery.store().heard_at(number));
        if missed > 0 {
            cx.counters.decoded_after(missed);
        }
    }

    /// Delivers symbols that have waited long enough, and counts those that are lost.
    fn settle(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>) {
        let now = cx.io.now;
        let oldest = self.oldest_recoverable();
        self.delivery.release_due(cx, oldest);
        let store = self.delivery.store();
        let hold = self.hold(cx.params);
        if !store.covers(self.settled) && serial_before(self.settled, store.start()) {
            let passed = store.start().wrapping_sub(self.settled);
            cx.counters.generations += u64::from(passed);
            cx.counters.generations_failed += u64::from(passed);
            self.settled = store.start();
        }
        while serial_before(self.settled, store.end()) {
            let is_known = store.is_known(self.settled);
            let is_awaited = oldest.is_none_or(|oldest| !serial_before(self.settled, oldest));
            if !is_known && is_awaited && store.heard_at(self.settled) + hold > now {
                break;
            }
            cx.counters.generations += 1;
            cx.counters.generations_complete += u64::from(is_known);
            cx.counters.generations_failed += u64::from(!is_known);
            self.settled = self.settled.wrapping_add(1);
            self.round = 0;
        }
        let is_missing = serial_before(self.settled, store.end());
        let is_answered = cx.params.repair && self.open_loop.is_none();
        let asks = is_missing && is_answered && self.round < ROUNDS;
        let due = asks.then(|| store.heard_at(self.settled) + self.mending(cx.params));
        self.ask_at = match (due, self.ask_at) {
            (Some(due), Some(at)) => Some(due.max(at)),
            (due, _) => due,
        };
    }

    /// Requests missing symbols end to end.
    fn ask(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>) {
        let (now, mending) = (cx.io.now, self.mending(cx.params));
        if self.ask_at.is_none_or(|at| at > now) {
            return;
        }
        let round = self.round;
        self.round += 1;
        self.ask_at = Some(now + mending);
        let store = self.delivery.store();
        let count = store.end().wrapping_sub(self.settled).min(LOOK);
        let numbers = (0..count).map(|step| self.settled.wrapping_add(step));
        let is_missing =
            |number: &u32| !store.is_known(*number) && store.heard_at(*number) + mending <= now;
        let missing = numbers.filter(is_missing).take(NACKS_MAX);
        let (epoch, loss) = (cx.upstream.epoch(), cx.upstream.loss.loss());
        let mut asked = 0;
        let seals = cx.params.has_edge_keys();
        cx.upstream.reporter.send_to_source(cx.io, epoch, loss, seals, |writer| {
            for unit in missing {
                if writer.push(Item::Nack(Nack { unit, missing: 1, round })) {
                    asked += 1;
                }
            }
        });
        cx.counters.repairs += asked;
    }

    fn report(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>) {
        let hop = hop_report(&cx.upstream.loss);
        let state = Item::Flow(SinkReport {
            newest: self.delivery.store().end().wrapping_sub(1),
            complete: cx.counters.generations_complete as u32,
            failed: cx.counters.generations_failed as u32,
        });
        let epoch = cx.upstream.epoch();
        //= docs/protocol §2.8(i)
        let mut random = || cx.io.combiner.next_u32();
        let block = self.has_paths.then(|| self.arrived.block([random(), random()])).flatten();
        let seals = cx.params.has_edge_keys();
        cx.upstream.reporter.send_to_source(cx.io, epoch, 0.0, seals, |writer| {
            for item in hop.into_iter().chain([state]) {
                writer.push(item);
            }
            if let Some((first, count)) = block {
                writer.push_arrivals(first, count, |number| self.arrived.has(number));
            }
        });
    }

    /// Drops the state of missing symbols when the window restarts at `number`.
    fn note_first(&mut self, kept: Kept, number: u32) {
        if kept == Kept::First {
            self.settled = number;
            self.arrived.begin(number);
        }
    }

    /// Stores a new symbol recovered from combinations.
    fn keep_recovered(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
    ) -> Option<StreamSymbol> {
        let (window_symbols, upstream) = (self.delivery.store().symbols(), cx.upstream.place);
        let (now, params) = (cx.io.now, cx.params);
        loop {
            let (symbol, packet) = self.decoders.of(upstream).next(window_symbols)?;
            let key = match tags::verify_stream(cx.io.egress, cx.shard, params, &symbol, packet) {
                Ok(key) => key,
                Err(reason) => {
                    cx.counters.tag_refused += u64::from(reason == DropReason::WrongSymbolTag);
                    self.decoders.of(upstream).distrust();
                    continue;
                }
            };
            let (delivery, candidate) = (&mut self.delivery, Candidate { symbol, packet, key });
            let (store, incoming) = (delivery.store(), &mut self.incoming);
            let reach = window_admission::reach(store, incoming, &candidate, now, params);
            let kept = delivery.enter(cx, reach, symbol.number);
            if kept.is_news() {
                delivery.put(&symbol, packet);
            }
            self.note_first(kept, symbol.number);
            match kept {
                Kept::First | Kept::New => return Some(symbol),
                Kept::Known => {}
                Kept::Stray => self.decoders.of(upstream).refuse(),
            }
        }
    }
}

impl Lifecycle for StreamSink {
    fn receive(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        arrival: &Arrival<'_>,
    ) -> Fate {
        let Arrival { payload, data: Data::Stream(packet), key, .. } = arrival else {
            return Fate::Dropped(DropReason::WrongCode);
        };
        self.incoming.arrived_stream(packet);
        let upstream = cx.upstream.place;
        self.round_trips[upstream % UPSTREAMS_MAX] = packet.header.round_trips_nanos();
        self.follow_open_loop(packet);
        self.has_paths = packet.header.common.flags.has(Flags::PATHS);
        self.decoders.of(upstream).set_open_loop(self.open_loop.is_some());
        let is_repair = packet.header.common.flags.has(Flags::REPAIR);
        let is_news = match packet.body {
            StreamBody::Keepalive => return Fate::Consumed,
            StreamBody::Symbol(symbol) => {
                let (number, now) = (symbol.number, cx.io.now);
                let packet = &cx.io.frames.bytes(*payload)[STREAM_BYTES..];
                let candidate = Candidate { symbol, packet, key: *key };
                let (store, incoming) = (self.delivery.store(), &mut self.incoming);
                let reach = window_admission::reach(store, incoming, &candidate, now, cx.params);
                let kept = self.delivery.enter(cx, reach, number);
                self.note_first(kept, number);
                if kept == Kept::Stray {
                    // Not acknowledged: it is retransmitted once others confirm its number.
                    return Fate::Dropped(DropReason::Stray);
                }
                let packet = &cx.io.frames.bytes(*payload)[STREAM_BYTES..];
                let decoder = self.decoders.of(upstream);
                decoder.symbol(&symbol, packet, is_repair, now);
                if kept.is_news() {
                    self.count(cx, number);
                    let until = now + self.hold(cx.params);
                    self.delivery.take_arrived(cx, &symbol, *payload, until);
                }
                kept.is_news()
            }
            StreamBody::Combination(combination) => {
                let sum = &cx.io.frames.bytes(*payload)[COMBINATION_BYTES..];
                match self.decoders.of(upstream).combination(&combination, sum, cx.io.now) {
                    Some(is_news) => is_news,
                    // Not acknowledged: the symbols that it should recover are retransmitted.
                    None => return Fate::Dropped(DropReason::Stray),
                }
            }
        };
        cx.counters.innovative += u64::from(is_news);
        cx.counters.redundant += u64::from(!is_news);
        while let Some(symbol) = self.keep_recovered(cx) {
            self.count(cx, symbol.number);
            let until = cx.io.now + self.hold(cx.params);
            self.delivery.take(cx, &symbol, until);
        }
        self.settle(cx);
        Fate::Consumed
    }

    fn adopt(&mut self, params: &FlowParams) {
        self.decoders.adopt(params);
        self.round_trips = [0; UPSTREAMS_MAX];
    }

    fn onward(&mut self, _now: Nanos, _symbol_bytes: usize, upstream: usize) -> Onward {
        Onward { missing: self.decoders.of(upstream).missing(), ..Onward::default() }
    }

    fn abandon(&mut self, upstream: usize, symbol: &StreamSymbol) -> bool {
        self.decoders.of(upstream).give_up(symbol);
        true
    }

    fn tick(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>) -> Option<Nanos> {
        self.settle(cx);
        self.ask(cx);
        if cx.upstream.reporter.due().is_some_and(|due| due <= cx.io.now) {
            self.report(cx);
        }
        self.wake(cx.params, cx.io.now)
    }

    fn wake(&self, params: &FlowParams, _now: Nanos) -> Option<Nanos> {
        let store = self.delivery.store();
        let missing = serial_before(self.settled, store.end())
            .then(|| store.heard_at(self.settled) + self.hold(params));
        earlier(earlier(self.delivery.due(), missing), self.ask_at)
    }

    fn drain(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>) {
        self.delivery.release_all(cx);
    }

    fn fill(&self, report: &mut FlowReport) {
        self.incoming.fill(report);
    }
}
