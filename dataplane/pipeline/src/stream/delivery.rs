//! Delivery of a sink's symbols: those of one TCP flow in order, others at once.

use crate::config::params::{Nanos, Role};
use crate::edge::outlet::Outlet;
use crate::env::egress::Egress;
use crate::env::io::Io;
use crate::stream::store::Store;
use crate::stream::window_admission::{self, Kept, Reach};
use crate::unit::context::Context;
use recoded_wire::frames::{Frames, Span};
use recoded_wire::header::serial_before;
use recoded_wire::stream::{STREAM_BYTES, StreamSymbol};
use std::collections::VecDeque;

/// Waiting entries per symbol of the window: entries of packets delivered meanwhile are freed only
/// once they are the oldest, or when all entries are taken.
const WAITING_PART: usize = 2;

/// The bit of a store that marks a symbol as delivered.
const DELIVERED: usize = 0;

/// Location of a packet to deliver.
enum Packet<'a> {
    /// In the store.
    Kept(&'a [u8]),
    /// In the frame of its arrival.
    Arrived(Span),
}

/// A packet that waits for an earlier one.
#[derive(Copy, Clone, Debug)]
struct WaitingSymbol {
    number: u32,
    until: Nanos,
}

/// The newest symbols, and those that wait for earlier ones.
pub(crate) struct Delivery {
    store: Store,
    /// In order of arrival.
    waiting: VecDeque<WaitingSymbol>,
}

impl Delivery {
    /// Creates room for this many symbols of up to `symbol_bytes`.
    pub(crate) fn new(symbols: usize, symbol_bytes: usize) -> Self {
        Self {
            store: Store::new(symbols, symbol_bytes, 1),
            waiting: VecDeque::with_capacity(WAITING_PART * symbols),
        }
    }

    /// Allocated bytes.
    pub(crate) fn memory_bytes(symbols: usize, symbol_bytes: usize) -> usize {
        Store::memory_bytes(symbols, symbol_bytes)
            + WAITING_PART * symbols * size_of::<WaitingSymbol>()
    }

    /// The newest symbols.
    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// When the symbol that has waited longest is delivered, even if earlier ones are missing.
    pub(crate) fn due(&self) -> Option<Nanos> {
        self.waiting.front().map(|waiting| waiting.until)
    }

    /// Moves the window as decided for a number. Waiting symbols whose slots are reused are
    /// delivered first.
    pub(crate) fn enter(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        reach: Reach,
        number: u32,
    ) -> Kept {
        let news = number.wrapping_add(1).wrapping_sub(self.store.end());
        match reach {
            Reach::Refused(_) => {}
            Reach::Near if news.cast_signed() <= 0 => {}
            Reach::Near if news <= self.store.symbols() as u32 => self.make_room(cx, news),
            Reach::Near | Reach::Anew { .. } => self.release_all(cx),
        }
        window_admission::enter(&mut self.store, reach, number, cx.io.now)
    }

    /// Delivers the symbols whose slots the next `news` numbers reuse.
    fn make_room(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>, news: u32) {
        let end = self.store.end();
        for step in 0..news {
            let next = end.wrapping_add(step);
            self.store.make_way(next, cx.io.now);
            self.deliver(cx, next.wrapping_sub(self.store.held() as u32));
        }
    }

    /// Takes a new symbol from the frame that it arrived in. If it need not wait, it is delivered
    /// from there: a copy would be read once, and evict other data from the caches. Otherwise it is
    /// stored until then.
    pub(crate) fn take_arrived(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        symbol: &StreamSymbol,
        payload: Span,
        until: Nanos,
    ) {
        let StreamSymbol { number, after, .. } = *symbol;
        if !self.is_free(number, after) {
            let packet = &cx.io.frames.bytes(payload)[STREAM_BYTES..];
            self.store.put(number, packet, after);
            return self.take(cx, symbol, until);
        }
        Self::hand_over(cx, Packet::Arrived(payload));
        self.store.pass(number, after, DELIVERED);
        if let Some(next) = self.store.waiting(number) {
            self.deliver(cx, next);
        }
    }

    /// Stores a new symbol; it is [taken](Self::take) next.
    pub(crate) fn put(&mut self, symbol: &StreamSymbol, packet: &[u8]) {
        self.store.put(symbol.number, packet, symbol.after);
    }

    /// Delivers a stored symbol, or lets it wait until `until`.
    pub(crate) fn take(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        symbol: &StreamSymbol,
        until: Nanos,
    ) {
        let StreamSymbol { number, after, .. } = *symbol;
        if self.is_free(number, after) || !self.store.wait(number, after) {
            return self.deliver(cx, number);
        }
        if self.waiting.len() == self.waiting.capacity() {
            let store = &self.store;
            self.waiting.retain(|waiting| !store.is_done(waiting.number, DELIVERED));
        }
        self.waiting.push_back(WaitingSymbol { number, until });
    }

    /// Delivers symbols that have waited long enough, or wait for one before `oldest`, which will
    /// not arrive.
    pub(crate) fn release_due(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        oldest: Option<u32>,
    ) {
        while let Some(waiting) = self.waiting.front() {
            let is_over = waiting.until <= cx.io.now
                || self.store.is_done(waiting.number, DELIVERED)
                || oldest.is_some_and(|oldest| serial_before(self.awaited(waiting.number), oldest));
            if !is_over {
                break;
            }
            self.release_oldest(cx);
        }
    }

    /// Delivers all waiting symbols by number, even if earlier ones are missing. Steps: one for
    /// each symbol held.
    pub(crate) fn release_all(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>) {
        if self.waiting.is_empty() {
            return;
        }
        self.waiting.clear();
        let start = self.store.start();
        for step in 0..self.store.end().wrapping_sub(start) {
            self.deliver(cx, start.wrapping_add(step));
        }
    }

    fn release_oldest(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>) {
        if let Some(waiting) = self.waiting.pop_front() {
            self.deliver(cx, waiting.number);
        }
    }

    /// The number that a waiting symbol waits for.
    fn awaited(&self, number: u32) -> u32 {
        let after = self.store.get(number).map_or(0, |symbol| symbol.after);
        number.wrapping_sub(u32::from(after))
    }

    /// Whether a symbol need not wait for the one `after` numbers before it.
    fn is_free(&self, number: u32, after: u16) -> bool {
        after == 0 || self.store.is_done(number.wrapping_sub(u32::from(after)), DELIVERED)
    }

    /// Delivers a symbol, and then those that waited for it.
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
}
