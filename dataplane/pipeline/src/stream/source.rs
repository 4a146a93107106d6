//! Source edge of a stream: every IP packet is a symbol, and leaves as soon as the next hop can
//! take it.

use crate::base::layout::SEALING_BYTES;
use crate::base::time::earlier;
use crate::config::params::{
    FlowCode, FlowParams, Nanos, PeerId, Redundancy, StreamParams, StreamProfile,
};
use crate::config::report::{DropReason, FlowReport, HopLoss};
use crate::config::segmentation::Comparison;
use crate::edge::sealed::envelope_of;
use crate::env::combine::Combiner;
use crate::env::egress::{Egress, Keys, Unsealed};
use crate::hop::send::path_size::PathSize;
use crate::stream::flow_order::FlowOrder;
use crate::stream::senders::{Answered, Outgoing, Senders};
use crate::stream::sink_restart::SinkRestarts;
use crate::stream::store::Store;
use crate::unit::context::Context;
use crate::unit::role::Lifecycle;
use crate::unit::source::path::Path;
use crate::unit::source::remote::Remote;
use crate::unit::source::{Inbound, SourceCode, take_in};
use crate::unit::tags;
use recoded_gf::FieldOrder;
use recoded_wire::feedback::{FeedbackHeader, Item, NACKS_MAX, items};
use recoded_wire::frames::{Frames, Span};
use recoded_wire::link::LinkReport;
use recoded_wire::stream::STREAM_OVERHEAD_BYTES;

/// A symbol that the next hops do not take for this long is dropped.
const STUCK_NANOS: Nanos = 1_500_000_000;

/// Packets this old are not encoded again for a restarted sink: their senders have retransmitted
/// them. Longer than a restart and a handshake with a retry take.
const LATE_NANOS: Nanos = 4_000_000_000;

/// Source state of a stream.
pub(crate) struct StreamSource {
    window_log2: u8,
    profile: StreamProfile,
    store: Store,
    senders: Senders,
    order: FlowOrder,
    /// The oldest number that a next hop may lack.
    oldest: u32,
    epoch: u8,
    hops: Path,
    size: PathSize,
    remote: Remote,
    sink_restarts: SinkRestarts,
}

impl StreamSource {
    pub(crate) fn new(params: &FlowParams, code: StreamParams, combiner: &mut Combiner) -> Self {
        let window_log2 = code.window_log2();
        let symbols = 1 << window_log2;
        let receivers = params.spread.receivers(params.next_hops.len());
        let mut store = Store::new(symbols, params.symbol_bytes, receivers);
        // A random start distinguishes a restarted source from stragglers of its previous life.
        let next = combiner.next_u32();
        store.begin(next, 0);
        Self {
            window_log2,
            profile: code.profile,
            store,
            senders: Senders::new(params, symbols),
            order: FlowOrder::new(),
            oldest: next,
            epoch: combiner.next_u32() as u8,
            hops: Path::new(),
            size: PathSize::default(),
            remote: Remote::new(),
            sink_restarts: SinkRestarts::default(),
        }
    }

    /// Allocated bytes.
    pub(crate) fn memory_bytes(params: &FlowParams, code: &StreamParams) -> usize {
        let symbols = 1 << code.window_log2();
        Store::memory_bytes(symbols, params.symbol_bytes)
            + Senders::memory_bytes(params, symbols)
            + FlowOrder::memory_bytes()
    }

    fn outgoing(&self, params: &FlowParams) -> Outgoing {
        let open_loop = match params.redundancy {
            Redundancy::Fixed(factor) => Some((factor - 1.0).max(0.0)),
            Redundancy::Auto => None,
        };
        Outgoing {
            epoch: self.epoch,
            window_log2: self.window_log2,
            hop_index: 0,
            round_trips: 0,
            profile: self.profile,
            has_paths: false,
            open_loop,
        }
    }

    fn pump(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>) {
        let outgoing = self.outgoing(cx.params);
        self.senders.pump(cx, &mut self.store, &outgoing, None);
    }

    /// Whether the window has room for one more symbol without dropping one that a next hop lacks.
    fn has_room(&mut self, now: Nanos) -> bool {
        self.follow_oldest(now);
        (self.store.end().wrapping_sub(self.oldest) as usize) < self.store.held()
    }

    /// Finds the oldest symbol that a next hop may lack.
    fn follow_oldest(&mut self, now: Nanos) {
        while self.oldest != self.store.end() {
            let is_stuck = self.store.covers(self.oldest)
                && self.store.heard_at(self.oldest) + STUCK_NANOS < now;
            if !is_stuck && !self.senders.have(&self.store, self.oldest) {
                break;
            }
            self.oldest = self.oldest.wrapping_add(1);
        }
    }

    /// Encodes packets again that a restarted sink lost with its keys, once there are new keys.
    fn restore(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>) {
        if self.sink_restarts.due(cx.io.now).is_none() {
            return;
        }
        let Some(key) = cx.io.tag_key(cx.shard) else { return };
        let (now, end) = (cx.io.now, self.store.end());
        let Some(numbers) = self.sink_restarts.take(key, end, now) else { return };
        let count = numbers.end.wrapping_sub(numbers.start).min(self.store.held() as u32);
        let first = numbers.end.wrapping_sub(count);
        for number in (0..count).map(|step| first.wrapping_add(step)) {
            let is_late = self.store.heard_at(number) + LATE_NANOS < now;
            if self.store.is_known(number) && !is_late {
                self.encode_again(cx, number);
            }
        }
    }

    /// Assigns a new number to the packet of a symbol tagged under old keys.
    fn encode_again(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>, number: u32) {
        self.store.withdraw(number);
        let Some(symbol) = self.store.get(number) else { return };
        let carried = symbol.packet.len().saturating_sub(cx.params.tag_bytes());
        let carried = &symbol.packet[..carried];
        let mut place = cx.io.combiner.take_packet();
        let len = if !cx.params.sealed {
            place[..carried.len()].copy_from_slice(carried);
            carried.len()
        } else {
            let len = carried.len().saturating_sub(SEALING_BYTES);
            let opened = envelope_of(carried).map(|envelope| {
                let keys = cx.io.egress.keys().ok_or(Unsealed::NoKeys);
                keys.and_then(|keys| keys.open_own(cx.shard, envelope, &mut place[..len]))
            });
            if opened == Some(Ok(())) { len } else { 0 }
        };
        if len > 0 {
            cx.counters.encoded_again += 1;
            take_in(self, cx, &place[..len]);
        }
        cx.io.combiner.put_back_packet(place);
    }
}

impl SourceCode for StreamSource {
    fn apply(&mut self, new: &FlowParams, _cx: &mut Context<'_, '_, impl Frames, impl Egress>) {
        let FlowCode::Stream(code) = new.code else { return };
        self.profile = code.profile;
        if code.window_log2() == self.window_log2 && new.symbol_bytes <= self.store.symbol_bytes() {
            return;
        }
        // Nodes may have to make room for longer symbols.
        self.epoch = self.epoch.wrapping_add(1);
        if code.window_log2() == self.window_log2 {
            return self.store.widen(new.symbol_bytes);
        }
        // Packets in flight stay in flight.
        self.window_log2 = code.window_log2();
        self.store.resize(1 << self.window_log2);
        if new.symbol_bytes > self.store.symbol_bytes() {
            self.store.widen(new.symbol_bytes);
        }
        self.senders.resize(1 << self.window_log2, self.store.end());
        if !self.store.covers(self.oldest) {
            self.oldest = self.store.start();
        }
    }

    fn epoch(&self) -> u8 {
        self.epoch
    }

    fn begin_epoch(&mut self, epoch: u8) {
        self.epoch = epoch;
    }

    fn next_number(&self) -> u32 {
        self.store.end()
    }

    fn begin_at(&mut self, number: u32) {
        self.store.begin(number, 0);
        self.oldest = number;
    }

    fn takes(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        carried_bytes: usize,
    ) -> bool {
        self.restore(cx);
        let carried_bytes = carried_bytes + cx.params.tag_bytes();
        if carried_bytes > cx.params.symbol_bytes || !self.has_room(cx.io.now) {
            cx.counters.ingress_dropped += 1;
            return false;
        }
        let is_too_large = self.senders.refuse(carried_bytes);
        cx.counters.too_large += u64::from(is_too_large);
        !is_too_large
    }

    fn ingress(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        Inbound { packet, carried }: Inbound<'_>,
    ) {
        let number = self.store.end();
        if cx.params.tagged {
            let round_trip = self.senders.path_round_trip();
            self.store.keep_from(self.sink_restarts.keeps_from(round_trip, cx.io.now));
        }
        self.store.extend(number.wrapping_add(1), cx.io.now);
        let after = self.order.note(packet, number, self.store.symbols());
        let tag_bytes = cx.params.tag_bytes();
        let (symbol, bytes) = self.store.put_with(tag_bytes, number, carried, after);
        if tag_bytes > 0 {
            match tags::tag_stream(cx.io.egress, cx.shard, &symbol, bytes) {
                Some(key) => self.sink_restarts.tagged(key, number),
                None => cx.counters.tag_failed += 1,
            }
        }
        self.senders.queue(number, usize::from(symbol.bytes), cx.io.now);
        cx.counters.generations += 1;
        cx.counters.source_symbols += 1;
        self.pump(cx);
    }

    fn receive_feedback(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        peer: PeerId,
        payload: Span,
        header: FeedbackHeader,
    ) {
        self.size.age(cx.io.now);
        let mut asked = [None; NACKS_MAX];
        let mut places = asked.iter_mut();
        let (now, mut newest) = (cx.io.now, None);
        for item in items(cx.io.frames.bytes(payload)) {
            match item {
                Item::Hop(report) => {
                    self.hops.hear(header.common.hop_index, report, cx.io.now);
                }
                Item::Size(report) if report.hop == header.common.hop_index => {
                    self.size.hear(report.bytes, cx.io.now);
                }
                Item::Arrivals(report) => {
                    // Sinks write their state first.
                    if let Some(newest) = newest {
                        self.senders.hear_arrivals(&mut self.store, &report, newest, now);
                    }
                }
                Item::Flow(report) => {
                    self.remote.hear(report);
                    self.senders.note_sink(&self.store, report.newest, now);
                    newest = Some(report.newest);
                    if cx.params.tagged {
                        let window = self.store.symbols() as u32;
                        self.sink_restarts.hear(header.node, &report, window, cx.io.now);
                    }
                }
                Item::Nack(nack) => {
                    if let Some(place) = places.next() {
                        *place = Some(nack);
                    }
                }
                _ => {}
            }
        }
        for nack in asked.into_iter().flatten() {
            match self.senders.answer(&mut self.store, peer, nack.unit, nack.round, cx.io.now) {
                Answered::Done => cx.counters.repairs += 1,
                Answered::Refused => cx.counters.repairs_refused += 1,
                Answered::Unknown => {}
            }
        }
        self.restore(cx);
        self.pump(cx);
    }
}

impl Lifecycle for StreamSource {
    fn is_settled(&mut self, now: Nanos) -> bool {
        self.follow_oldest(now);
        self.oldest == self.store.end()
    }

    fn opens_at(&mut self, now: Nanos) -> Result<(), Option<Nanos>> {
        if !self.has_room(now) {
            return Err(Some(now + 1_000_000));
        }
        self.senders.opens_at(now)
    }

    fn path_round_trip(&self) -> Nanos {
        self.senders.path_round_trip()
    }

    fn lacks_paths(&self) -> bool {
        self.senders.lack_paths()
    }

    fn apply_pace(&mut self, peer: PeerId, pace: Option<f64>) -> Comparison {
        self.senders.settle(peer, pace)
    }

    fn hear_link(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        peer: PeerId,
        report: &LinkReport,
        payload: Span,
    ) -> Result<(), DropReason> {
        let bytes = cx.io.frames.bytes(payload);
        self.senders.hear(&mut self.store, peer, report, bytes, cx.io.now)?;
        self.size.age(cx.io.now);
        if let Some(bytes) = self.senders.limit() {
            self.size.hear(bytes, cx.io.now);
        }
        self.pump(cx);
        Ok(())
    }

    fn tick(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>) -> Option<Nanos> {
        self.restore(cx);
        self.pump(cx);
        self.wake(cx.params, cx.io.now)
    }

    fn wake(&self, _params: &FlowParams, now: Nanos) -> Option<Nanos> {
        earlier(self.senders.due(now), self.sink_restarts.due(now))
    }

    fn drain(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>) {
        self.pump(cx);
    }

    fn fill(&self, report: &mut FlowReport) {
        report.epoch = self.epoch;
        report.field = FieldOrder::TwoFiftySix;
        report.generation_size = self.store.symbols();
        report.planned = 0;
        let hops: &[HopLoss] = self.hops.hops();
        report.hops = hops.to_vec();
        report.next_hops = self.senders.report(&self.store);
        let limit = self.size.limit().map(usize::from);
        report.packet_bytes_max = limit.map(|bytes| bytes.saturating_sub(STREAM_OVERHEAD_BYTES));
        self.remote.fill(report);
    }
}
