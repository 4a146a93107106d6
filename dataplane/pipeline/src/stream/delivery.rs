//! The symbols of a sink and how they leave it: those of one TCP flow in order, others at once.

use crate::context::Context;
use crate::edge::outlet::Outlet;
use crate::egress::Egress;
use crate::io::Io;
use crate::params::{Nanos, Role};
use crate::stream::reach::{self, Kept, Reach};
use crate::stream::store::Store;
use recoded_wire::frames::{Frames, Span};
use recoded_wire::stream::{STREAM_BYTES, StreamSymbol};
use std::collections::VecDeque;

/// Places for waiting packets for each symbol of the window: those of packets that were delivered
/// meanwhile are only free once they are the oldest, or all places are taken.
const WAITING_PART: usize = 2;

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

/// The newest symbols, and those that wait for others.
pub(crate) struct Delivery {
    store: Store,
    /// In the order in which they came.
    waiting: VecDeque<Waiting>,
}

impl Delivery {
    /// For so many symbols of up to `symbol_bytes`.
    pub(crate) fn new(symbols: usize, symbol_bytes: usize) -> Self {
        Self {
            store: Store::new(symbols, symbol_bytes, 1),
            waiting: VecDeque::with_capacity(WAITING_PART * symbols),
        }
    }

    /// Bytes that it allocates.
    pub(crate) fn memory_bytes(symbols: usize, symbol_bytes: usize) -> usize {
        Store::memory_bytes(symbols, symbol_bytes) + WAITING_PART * symbols * size_of::<Waiting>()
    }

    /// The newest symbols.
    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// When the one that waits longest is delivered, whatever is missing before it.
    pub(crate) fn due(&self) -> Option<Nanos> {
        self.waiting.front().map(|waiting| waiting.until)
    }

    /// Moves the window as was decided on a number. What waits in a place that another number gets
    /// leaves before.
    pub(crate) fn enter(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        (reach, number): (Reach, u32),
    ) -> Kept {
        let news = number.wrapping_add(1).wrapping_sub(self.store.end());
        match reach {
            Reach::Refused(_) => {}
            Reach::Near if news.cast_signed() <= 0 => {}
            Reach::Near if news <= self.store.symbols() as u32 => self.make_room(cx, news),
            Reach::Near | Reach::Anew { .. } => self.release_all(cx),
        }
        reach::enter(&mut self.store, reach, number, cx.io.now)
    }

    /// Delivers what would leave its place to the next `news` numbers.
    fn make_room(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>, news: u32) {
        let end = self.store.end();
        for step in 0..news {
            let next = end.wrapping_add(step);
            self.store.make_way(next, cx.io.now);
            self.deliver(cx, next.wrapping_sub(self.store.held() as u32));
        }
    }

    /// Takes a symbol that entered as a new one and that lies in the frame in which it came. One
    /// that waits for none before it is delivered from there: a copy would be read once, and push
    /// others out of the caches. Others wait until then.
    pub(crate) fn take_arrived(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        (symbol, payload): (&StreamSymbol, Span),
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

    /// Keeps a symbol that entered as a new one; it is [taken](Self::take) next.
    pub(crate) fn put(&mut self, symbol: &StreamSymbol, packet: &[u8]) {
        self.store.put(symbol.number, packet, symbol.after);
    }

    /// Delivers a symbol that is kept, or lets it wait until then.
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
        self.waiting.push_back(Waiting { number, until });
    }

    /// Delivers what has waited long enough.
    pub(crate) fn release_due(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>) {
        while let Some(waiting) = self.waiting.front() {
            let is_over =
                waiting.until <= cx.io.now || self.store.is_done(waiting.number, DELIVERED);
            if !is_over {
                break;
            }
            self.release_oldest(cx);
        }
    }

    /// Delivers all that waits in the order of the numbers, whatever is missing before it. Steps:
    /// one for each symbol that is held.
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

    /// Whether a symbol need not wait for the one that is `after` before it.
    fn is_free(&self, number: u32, after: u16) -> bool {
        after == 0 || self.store.is_done(number.wrapping_sub(u32::from(after)), DELIVERED)
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
}
