//! Sink edge of a stream: symbols in, IP packets out; those of one TCP flow in order, others at
//! once.
//!
//! A packet that names one before it of its flow waits for that until it comes or its time is over.
//! What no hop mends, because a relay restarted or ran out of memory, the sink asks for from end to
//! end.

use crate::arrival::{Arrival, Data, Fate};
use crate::context::Context;
use crate::edge::outlet::Outlet;
use crate::egress::Egress;
use crate::incoming::Incoming;
use crate::io::Io;
use crate::params::{FlowParams, Nanos, Role, StreamParams, UPSTREAMS_MAX};
use crate::peer::loss::hop_report;
use crate::peer::repair::ROUNDS;
use crate::report::{DropReason, FlowReport};
use crate::role::Lifecycle;
use crate::sink::SinkCode;
use crate::stream::reach::{self, Kept, is_near};
use crate::stream::recovery::Recoveries;
use crate::stream::store::Store;
use crate::tags;
use crate::time::earlier;
use recoded_wire::feedback::{FlowReport as SinkReport, Item, NACKS_MAX, Nack};
use recoded_wire::frames::{Frames, Span};
use recoded_wire::header::{Flags, serial_before};
use recoded_wire::link::Missing;
use recoded_wire::stream::{COMBINATION_BYTES, STREAM_BYTES, StreamBody, StreamSymbol};
use std::collections::VecDeque;

/// What a symbol may wait beyond the configured time: so many times the round trips of all hops,
/// which mend it one after the other.
const ROUND_TRIPS: Nanos = 3;

/// Longest that one waits.
const HOLD_MAX_NANOS: Nanos = 4_000_000_000;

/// Places for waiting packets for each symbol of the window: those of packets that were delivered
/// meanwhile are only free once they are the oldest, or all places are taken.
const WAITING_PART: usize = 2;

/// Numbers that are looked at for a request.
const LOOK: u32 = 2048;

/// The bit of a store that says that a symbol was delivered.
const DELIVERED: usize = 0;

/// Where a packet lies that is delivered.
enum Packet<'a> {
    /// Here.
    Kept(&'a [u8]),
    /// In the frame in which it came.
    Arrived(Span),
}

/// Packets that wait for one before them.
#[derive(Copy, Clone, Debug)]
struct Waiting {
    number: u32,
    until: Nanos,
}

/// Sink state of a stream.
pub(crate) struct StreamSink {
    store: Store,
    incoming: Incoming,
    recoveries: Recoveries,
    /// In the order in which they came.
    waiting: VecDeque<Waiting>,
    /// Every number before this one is known or given up.
    settled: u32,
    /// When to ask again for what is missing, and the round of the next request.
    ask_at: Option<Nanos>,
    round: u8,
    /// Sum of the round trips of all hops, by the neighbour that it is received from.
    round_trips: [Nanos; UPSTREAMS_MAX],
}

impl StreamSink {
    pub(crate) fn new(params: &FlowParams, code: StreamParams) -> Self {
        let symbols = 1 << code.window_log2();
        Self {
            store: Store::new(symbols, params.symbol_bytes, 1),
            incoming: Incoming::default(),
            recoveries: Recoveries::new(params),
            waiting: VecDeque::with_capacity(WAITING_PART * symbols),
            settled: 0,
            ask_at: None,
            round: 0,
            round_trips: [0; UPSTREAMS_MAX],
        }
    }

    /// Bytes that it allocates.
    pub(crate) fn memory_bytes(params: &FlowParams, code: &StreamParams) -> usize {
        let symbols = 1 << code.window_log2();
        Store::memory_bytes(symbols, params.symbol_bytes)
            + Recoveries::memory_bytes(params)
            + WAITING_PART * symbols * size_of::<Waiting>()
    }

    /// What combinations of the neighbour at a place have not given so far.
    pub(crate) fn missing(&mut self, upstream: usize) -> Missing {
        self.recoveries.of(upstream).missing()
    }

    /// Asks a neighbour no more for a symbol that was refused: others may have it as it was.
    pub(crate) fn give_up(&mut self, upstream: usize, symbol: &StreamSymbol) {
        self.recoveries.of(upstream).give_up(symbol);
    }

    /// Follows a change of the neighbours that it is received from.
    pub(crate) fn adopt(&mut self, params: &FlowParams) {
        self.recoveries.adopt(params);
        self.round_trips = [0; UPSTREAMS_MAX];
    }

    /// Sum of the round trips of all hops, of the longest path.
    fn round_trips(&self) -> Nanos {
        self.round_trips.iter().copied().fold(0, Nanos::max)
    }

    /// How long a symbol may be missing.
    fn hold(&self, params: &FlowParams) -> Nanos {
        (params.hold_timeout_nanos + ROUND_TRIPS * self.round_trips()).min(HOLD_MAX_NANOS)
    }

    /// How long hops have to mend it before the sink asks.
    fn mending(&self, params: &FlowParams) -> Nanos {
        (params.generation_timeout_nanos + 2 * self.round_trips()).min(HOLD_MAX_NANOS)
    }

    /// Delivers a symbol, and those that waited for it, one after the other.
    fn deliver(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>, first: u32) {
        let mut next = Some(first);
        while let Some(number) = next {
            let Some(symbol) = self.store.get(number) else { return };
            if self.store.is_done(number, DELIVERED) {
                return;
            }
            Self::hand_over(cx, Packet::Kept(symbol.packet));
            self.store.set_done(number, DELIVERED);
            next = self.store.waiting(number);
        }
    }

    /// Delivers a packet.
    fn hand_over(cx: &mut Context<'_, '_, impl Frames, impl Egress>, packet: Packet<'_>) {
        let Role::Sink { tunnel, .. } = cx.params.role else { return };
        let Io { egress, combiner, frames, .. } = &mut *cx.io;
        let packet = match packet {
            Packet::Kept(packet) => packet,
            Packet::Arrived(payload) => &frames.bytes(payload)[STREAM_BYTES..],
        };
        let bytes = packet.len().saturating_sub(cx.params.tag_bytes());
        let packet = &packet[..bytes];
        let (shard, sealed) = (cx.shard, cx.params.sealed);
        let mut outlet =
            Outlet { egress: &mut **egress, combiner, tunnel, shard, sealed, datagrams: None };
        outlet.deliver(packet, cx.counters, cx.marks);
    }

    /// Takes in a symbol that arrived and was not known before. One that waits for none before it
    /// is delivered from its frame: a copy would be read once, and push others out of the caches.
    fn take_arrived(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        symbol: &StreamSymbol,
        payload: Span,
    ) {
        let StreamSymbol { number, after, .. } = *symbol;
        if !self.is_free(number, after) {
            let packet = &cx.io.frames.bytes(payload)[STREAM_BYTES..];
            self.store.put(number, packet, after);
            return self.take(cx, symbol);
        }
        self.count(cx, number);
        Self::hand_over(cx, Packet::Arrived(payload));
        self.store.pass(number, after, DELIVERED);
        if let Some(next) = self.store.waiting(number) {
            self.deliver(cx, next);
        }
    }

    /// Whether a symbol need not wait for the one that is `after` before it.
    fn is_free(&self, number: u32, after: u16) -> bool {
        after == 0 || self.store.is_done(number.wrapping_sub(u32::from(after)), DELIVERED)
    }

    /// Counts a symbol that was not known before.
    fn count(&self, cx: &mut Context<'_, '_, impl Frames, impl Egress>, number: u32) {
        cx.counters.source_symbols += 1;
        let missed = cx.io.now.saturating_sub(self.store.heard_at(number));
        if missed > 0 {
            cx.counters.decoded_after(missed);
        }
    }

    /// Delivers a symbol that was not known before, or lets it wait.
    fn take(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>, symbol: &StreamSymbol) {
        let StreamSymbol { number, after, .. } = *symbol;
        self.count(cx, number);
        if self.is_free(number, after) || !self.store.wait(number, after) {
            return self.deliver(cx, number);
        }
        let until = cx.io.now + self.hold(cx.params);
        if self.waiting.len() == self.waiting.capacity() {
            let store = &self.store;
            self.waiting.retain(|waiting| !store.is_done(waiting.number, DELIVERED));
        }
        self.waiting.push_back(Waiting { number, until });
    }

    /// Delivers what still waits and makes room for the numbers up to `number`, if the window moves
    /// there.
    fn make_room(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>, number: u32) {
        let steps = number.wrapping_add(1).wrapping_sub(self.store.end());
        if steps > self.store.symbols() as u32 {
            return;
        }
        let end = self.store.end();
        for step in 0..steps {
            let next = end.wrapping_add(step);
            self.store.make_way(next, cx.io.now);
            self.deliver(cx, next.wrapping_sub(self.store.held() as u32));
        }
    }

    /// Delivers the one that waits longest, whatever is missing before it.
    fn release_oldest(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>) {
        if let Some(waiting) = self.waiting.pop_front() {
            self.deliver(cx, waiting.number);
        }
    }

    /// Delivers what has waited long enough; counts what is given up.
    fn settle(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>) {
        let now = cx.io.now;
        while let Some(waiting) = self.waiting.front() {
            let is_over = waiting.until <= now || self.store.is_done(waiting.number, DELIVERED);
            if !is_over {
                break;
            }
            self.release_oldest(cx);
        }
        let hold = self.hold(cx.params);
        if !self.store.covers(self.settled) && serial_before(self.settled, self.store.start()) {
            let passed = self.store.start().wrapping_sub(self.settled);
            cx.counters.generations += u64::from(passed);
            cx.counters.generations_failed += u64::from(passed);
            self.settled = self.store.start();
        }
        while serial_before(self.settled, self.store.end()) {
            let is_known = self.store.is_known(self.settled);
            if !is_known && self.store.heard_at(self.settled) + hold > now {
                break;
            }
            cx.counters.generations += 1;
            cx.counters.generations_complete += u64::from(is_known);
            cx.counters.generations_failed += u64::from(!is_known);
            self.settled = self.settled.wrapping_add(1);
            self.round = 0;
        }
        let is_missing = serial_before(self.settled, self.store.end());
        let asks = is_missing && cx.params.repair && self.round < ROUNDS;
        let due = asks.then(|| self.store.heard_at(self.settled) + self.mending(cx.params));
        self.ask_at = match (due, self.ask_at) {
            (Some(due), Some(at)) => Some(due.max(at)),
            (due, _) => due,
        };
    }

    /// Asks from end to end for what is missing.
    fn ask(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>) {
        let (now, mending) = (cx.io.now, self.mending(cx.params));
        if self.ask_at.is_none_or(|at| at > now) {
            return;
        }
        let round = self.round;
        self.round += 1;
        self.ask_at = Some(now + mending);
        let store = &self.store;
        let count = store.end().wrapping_sub(self.settled).min(LOOK);
        let numbers = (0..count).map(|step| self.settled.wrapping_add(step));
        let is_missing =
            |number: &u32| !store.is_known(*number) && store.heard_at(*number) + mending <= now;
        let missing = numbers.filter(is_missing).take(NACKS_MAX);
        let about = (cx.upstream.epoch(), cx.upstream.loss.loss());
        let mut asked = 0;
        cx.upstream.reporter.send(cx.io, about, |writer| {
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
            newest: self.store.end().wrapping_sub(1),
            complete: cx.counters.generations_complete as u32,
            failed: cx.counters.generations_failed as u32,
        });
        let about = (cx.upstream.epoch(), 0.0);
        cx.upstream.reporter.send(cx.io, about, |writer| {
            for item in hop.into_iter().chain([state]) {
                writer.push(item);
            }
        });
    }

    /// What waited for others is forgotten when the window begins anew with `number`.
    fn note_first(&mut self, kept: Kept, number: u32) {
        if kept == Kept::First {
            self.waiting.clear();
            self.settled = number;
        }
    }

    /// Keeps a symbol that combinations gave and that was not known before.
    fn keep_recovered(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
    ) -> Option<StreamSymbol> {
        let (window_symbols, upstream) = (self.store.symbols(), cx.upstream.place);
        let (now, params) = (cx.io.now, cx.params);
        loop {
            let (symbol, packet) = self.recoveries.of(upstream).next(window_symbols)?;
            let about = (cx.shard, params);
            if let Err(reason) = tags::verify_stream(cx.io.egress, about, (&symbol, packet)) {
                cx.counters.tag_refused += u64::from(reason == DropReason::WrongSymbolTag);
                self.recoveries.of(upstream).distrust();
                continue;
            }
            let window = (&mut self.store, &mut self.incoming);
            let kept = reach::keep(window, (&symbol, packet), (now, params));
            self.note_first(kept, symbol.number);
            match kept {
                Kept::First | Kept::New => return Some(symbol),
                Kept::Known => {}
                Kept::Stray => self.recoveries.of(upstream).refuse(),
            }
        }
    }
}

impl SinkCode for StreamSink {
    fn receive(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        arrival: &Arrival<'_>,
    ) -> Fate {
        let Arrival { payload, data: Data::Stream(packet), .. } = arrival else {
            return Fate::Dropped(DropReason::WrongCode);
        };
        self.incoming.arrived_stream(packet);
        let upstream = cx.upstream.place;
        self.round_trips[upstream % UPSTREAMS_MAX] = packet.header.round_trips_nanos();
        let is_repair = packet.header.common.flags.has(Flags::REPAIR);
        let is_news = match packet.body {
            StreamBody::Keepalive => return Fate::Consumed,
            StreamBody::Symbol(symbol) => {
                if is_near(&self.store, symbol.number) {
                    self.make_room(cx, symbol.number);
                }
                let packet = &cx.io.frames.bytes(*payload)[STREAM_BYTES..];
                let at = (cx.io.now, cx.params);
                let window = (&mut self.store, &mut self.incoming);
                let kept = reach::admit(window, (&symbol, packet.len()), at);
                self.note_first(kept, symbol.number);
                if kept == Kept::Stray {
                    // Not acknowledged: it is sent again once others confirm its number.
                    return Fate::Dropped(DropReason::Stray);
                }
                let recovery = self.recoveries.of(upstream);
                recovery.symbol((&symbol, packet), is_repair, cx.io.now);
                if kept.is_news() {
                    self.take_arrived(cx, &symbol, *payload);
                }
                kept.is_news()
            }
            StreamBody::Combination(combination) => {
                let sum = &cx.io.frames.bytes(*payload)[COMBINATION_BYTES..];
                match self.recoveries.of(upstream).combination(&combination, sum, cx.io.now) {
                    Some(is_news) => is_news,
                    // Not acknowledged: what it was to make good is sent again.
                    None => return Fate::Dropped(DropReason::Stray),
                }
            }
        };
        cx.counters.innovative += u64::from(is_news);
        cx.counters.redundant += u64::from(!is_news);
        while let Some(symbol) = self.keep_recovered(cx) {
            self.take(cx, &symbol);
        }
        self.settle(cx);
        Fate::Consumed
    }
}

impl Lifecycle for StreamSink {
    fn tick(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>) -> Option<Nanos> {
        self.settle(cx);
        self.ask(cx);
        if cx.upstream.reporter.due().is_some_and(|due| due <= cx.io.now) {
            self.report(cx);
        }
        self.wake(cx.params, cx.io.now)
    }

    fn wake(&self, params: &FlowParams, _now: Nanos) -> Option<Nanos> {
        let waiting = self.waiting.front().map(|waiting| waiting.until);
        let missing = serial_before(self.settled, self.store.end())
            .then(|| self.store.heard_at(self.settled) + self.hold(params));
        earlier(earlier(waiting, missing), self.ask_at)
    }

    fn drain(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>) {
        while !self.waiting.is_empty() {
            self.release_oldest(cx);
        }
    }

    fn fill(&self, report: &mut FlowReport) {
        self.incoming.fill(report);
    }
}
