//! The newest symbols of a stream at one node, indexed by number modulo the size of the table.
//!
//! ```text
//!    too old  |  known, missing, known ...  |  not heard of
//!  ---------- start --------------------- end -------------->  number
//! ```
//!
//! The table is as large as the round trip needs, so that it fits into caches if that is short. If
//! its oldest quarters are still needed when its end is reached, it is extended beyond that end
//! instead of wrapping to its beginning. Nothing is moved, and memory for the largest table is
//! allocated at the start.

use crate::config::params::Nanos;
use recoded_wire::header::serial_before;
use recoded_wire::stream::{SYMBOL_HEADER_BYTES, StreamSymbol, write_symbol_header};

/// State of one symbol.
#[derive(Copy, Clone, Debug)]
struct Slot {
    /// When it arrived, or when a later one showed that it was missing.
    heard_at: Nanos,
    bytes: u16,
    after: u16,
    /// Bytes of the slot that may not be zero.
    dirty: u16,
    is_known: bool,
    /// Whether its number was seen since the table began.
    is_expected: bool,
    /// Bitmap of the next hops that have it. At a sink: whether it was delivered.
    done: u8,
    /// Rounds of sink requests answered, four bits for each next hop.
    answered: u32,
    /// Distance to the later symbol that waits for this one at a sink; 0 for none.
    waits: u16,
}

const EMPTY: Slot = Slot {
    heard_at: 0,
    bytes: 0,
    after: 0,
    dirty: 0,
    is_known: false,
    is_expected: false,
    done: 0,
    answered: 0,
    waits: 0,
};

/// Initial table size in symbols.
const SYMBOLS_MIN: usize = 1024;

/// Growth factor over the size needed.
const ROOM: usize = 4;

/// Nothing is needed for longer: nodes have dropped older symbols.
const NEEDED_NANOS: Nanos = 4_000_000_000;

/// A known symbol.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Symbol<'a> {
    pub packet: &'a [u8],
    pub after: u16,
}

/// One bit for each of `next` next hops.
pub(crate) fn all_done(next: usize) -> u8 {
    (1u32 << next.min(8)).wrapping_sub(1) as u8
}

/// Bits of [`Slot::answered`] for a next hop.
const ROUND_BITS: usize = 4;
const ROUND_MAX: u32 = (1 << ROUND_BITS) - 1;

/// Bytes of a slot.
fn stride(symbol_bytes: usize) -> usize {
    (SYMBOL_HEADER_BYTES + symbol_bytes).next_multiple_of(64)
}

/// The newest symbols.
pub(crate) struct Store {
    /// Slots of the largest table.
    slots: Box<[Slot]>,
    /// Size of the current table, a power of two, and the offset from a number to its slot.
    held: usize,
    offset: u32,
    /// The oldest number of the current table.
    first: u32,
    /// Numbers from this one on are needed even if all next hops have them.
    kept_from: Option<u32>,
    /// Bits of `done` that are required.
    all_done: u8,
    /// In coded form: header, packet, zeros.
    bytes: Box<[u8]>,
    /// Bytes of a slot.
    stride: usize,
    symbol_bytes: usize,
    /// The number after the newest one seen; `None` before the first.
    end: Option<u32>,
}

impl Store {
    /// Creates room for this many symbols, rounded up to a power of two, of up to `symbol_bytes`. A
    /// symbol is needed until it is done for all `next` hops, or delivered.
    pub(crate) fn new(symbols: usize, symbol_bytes: usize, next: usize) -> Self {
        let (symbols, stride) = (symbols.next_power_of_two(), stride(symbol_bytes));
        Self {
            slots: vec![EMPTY; symbols].into_boxed_slice(),
            held: symbols.min(SYMBOLS_MIN),
            offset: 0,
            first: 0,
            kept_from: None,
            all_done: all_done(next),
            bytes: vec![0; symbols * stride].into_boxed_slice(),
            stride,
            symbol_bytes,
            end: None,
        }
    }

    /// Allocated bytes.
    pub(crate) fn memory_bytes(symbols: usize, symbol_bytes: usize) -> usize {
        symbols.next_power_of_two() * (stride(symbol_bytes) + size_of::<Slot>())
    }

    /// Largest symbol size.
    pub(crate) fn symbol_bytes(&self) -> usize {
        self.symbol_bytes
    }

    /// Accepts longer symbols from now on.
    pub(crate) fn widen(&mut self, symbol_bytes: usize) {
        let stride = stride(symbol_bytes).max(self.stride);
        let mut bytes = vec![0; self.slots.len() * stride].into_boxed_slice();
        let places = bytes.chunks_exact_mut(stride);
        for (place, symbol) in places.zip(self.bytes.chunks_exact(self.stride)) {
            place[..self.stride].copy_from_slice(symbol);
        }
        (self.bytes, self.stride, self.symbol_bytes) = (bytes, stride, symbol_bytes);
    }

    /// Resizes the store, rounded up to a power of two, and keeps the newest symbols.
    pub(crate) fn resize(&mut self, symbols: usize) {
        let mut new = Self::new(symbols, self.symbol_bytes, 0);
        (new.all_done, new.offset, new.end) = (self.all_done, self.offset, self.end);
        new.kept_from = self.kept_from;
        new.held = self.held.min(new.slots.len()).max(new.slots.len().min(SYMBOLS_MIN));
        let begin = self.end().wrapping_sub(new.held.min(self.held) as u32);
        new.first = if serial_before(begin, self.first) { self.first } else { begin };
        if new.held > self.held {
            // Current numbers keep their slots, as when the table grows.
            new.offset = 0u32.wrapping_sub(new.first);
        }
        let stride = self.stride.min(new.stride);
        for number in (0..self.end().wrapping_sub(new.first)).map(|i| new.first.wrapping_add(i)) {
            let (from, to) = (self.place(number), new.place(number));
            new.slots[to] = self.slots[from];
            let symbol = &self.bytes[from * self.stride..][..stride];
            new.bytes[to * new.stride..][..stride].copy_from_slice(symbol);
        }
        *self = new;
    }

    /// Capacity in symbols.
    pub(crate) fn symbols(&self) -> usize {
        self.slots.len()
    }

    /// Current table size in symbols.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// Sets the bits of the next hops. New ones lack none of the symbols stored so far.
    pub(crate) fn follow(&mut self, bits: u8) {
        let new = bits & !self.all_done;
        if new != 0 {
            self.slots.iter_mut().for_each(|slot| slot.done |= new);
        }
        self.all_done = bits;
    }

    /// Keeps symbols from this number on while there is room, even if all next hops have them;
    /// `None`: only those that a next hop lacks.
    pub(crate) fn keep_from(&mut self, number: Option<u32>) {
        self.kept_from = number;
    }

    /// Marks a number as not to be sent to any next hop.
    pub(crate) fn withdraw(&mut self, number: u32) {
        if self.covers(number) {
            let all_done = self.all_done;
            self.slot_mut(number).done |= all_done;
        }
    }

    /// The number after the newest one seen; 0 before the first.
    pub(crate) fn end(&self) -> u32 {
        self.end.unwrap_or(0)
    }

    /// Whether any number was seen.
    pub(crate) fn has_begun(&self) -> bool {
        self.end.is_some()
    }

    /// Clears the store and restarts at `next`. Late symbols from before it have slots.
    pub(crate) fn begin(&mut self, next: u32, now: Nanos) {
        let empty = Slot { heard_at: now, ..EMPTY };
        self.slots.iter_mut().for_each(|slot| *slot = Slot { dirty: slot.dirty, ..empty });
        self.end = Some(next);
        self.held = self.slots.len().min(SYMBOLS_MIN);
        (self.first, self.offset) = (next.wrapping_sub(self.held as u32), 0u32.wrapping_sub(next));
    }

    /// The oldest number that may be held.
    pub(crate) fn start(&self) -> u32 {
        let start = self.end().wrapping_sub(self.held as u32);
        if serial_before(start, self.first) { self.first } else { start }
    }

    /// Whether a number lies between the oldest that may be held and the newest seen.
    pub(crate) fn covers(&self, number: u32) -> bool {
        let start = self.start();
        self.end.is_some_and(|end| number.wrapping_sub(start) < end.wrapping_sub(start))
    }

    fn place(&self, number: u32) -> usize {
        number.wrapping_add(self.offset) as usize & (self.held - 1)
    }

    fn slot(&self, number: u32) -> &Slot {
        &self.slots[self.place(number)]
    }

    fn slot_mut(&mut self, number: u32) -> &mut Slot {
        &mut self.slots[self.place(number)]
    }

    /// Extends the range to all numbers before `end`; the oldest make room. Steps: the new numbers,
    /// at most one table's worth.
    pub(crate) fn extend(&mut self, end: u32, now: Nanos) {
        let Some(old) = self.end.filter(|old| serial_before(*old, end)) else { return };
        let news = end.wrapping_sub(old).min(self.slots.len() as u32);
        for back in (1..=news).rev() {
            let number = end.wrapping_sub(back);
            self.make_way(number, now);
            let slot = self.slot_mut(number);
            let dirty = slot.dirty;
            *slot = Slot { heard_at: now, dirty, is_expected: true, ..EMPTY };
        }
        self.end = Some(end);
    }

    /// Grows the table if `number`, the next one, would wrap around and more of the table is still
    /// needed than there should be.
    pub(crate) fn make_way(&mut self, number: u32, now: Nanos) {
        if self.place(number) != 0 {
            return;
        }
        self.first = number.wrapping_sub(self.held as u32);
        if self.held == self.slots.len() {
            return;
        }
        let old = &self.slots[..self.held - self.held / ROOM];
        let is_done = |slot: &Slot| slot.is_known && slot.done & self.all_done == self.all_done;
        let is_kept = |place: usize| {
            let number = self.first.wrapping_add(place as u32);
            self.kept_from.is_some_and(|from| !serial_before(number, from))
        };
        let is_needed = |(place, slot): (usize, &Slot)| {
            let is_young = slot.is_expected && slot.heard_at + NEEDED_NANOS > now;
            is_young && (!is_done(slot) || is_kept(place))
        };
        let Some(place) = old.iter().enumerate().position(is_needed) else { return };
        let (held, needed) = (self.held, self.held - place);
        self.held = (ROOM * needed).next_power_of_two().min(self.slots.len());
        // Current numbers keep their slots; this one takes the first slot after them.
        self.offset = (held as u32).wrapping_sub(number);
    }

    /// Whether a number is covered and known.
    pub(crate) fn is_known(&self, number: u32) -> bool {
        self.covers(number) && self.slot(number).is_known
    }

    /// When a covered number was first seen.
    pub(crate) fn heard_at(&self, number: u32) -> Nanos {
        self.slot(number).heard_at
    }

    /// Stores a packet of at most the symbol size under a number that is covered and not known.
    pub(crate) fn put(&mut self, number: u32, packet: &[u8], after: u16) {
        self.put_with(0, number, packet, after);
    }

    /// Like [`Store::put`], for a packet followed by `zeros` zero bytes. Returns the symbol and its
    /// bytes.
    pub(crate) fn put_with(
        &mut self,
        zeros: usize,
        number: u32,
        packet: &[u8],
        after: u16,
    ) -> (StreamSymbol, &mut [u8]) {
        let (place, len) = (self.place(number), zeros + packet.len());
        let (slot, bytes) = (&mut self.slots[place], len as u16);
        let out = &mut self.bytes[place * self.stride..][..self.stride];
        let symbol = StreamSymbol { number, after, place: 0, bytes };
        write_symbol_header(&symbol, out);
        let (held, rest) = out[SYMBOL_HEADER_BYTES..].split_at_mut(len);
        held[..packet.len()].copy_from_slice(packet);
        held[packet.len()..].fill(0);
        rest[..usize::from(slot.dirty.saturating_sub(bytes))].fill(0);
        (slot.bytes, slot.dirty) = (bytes, bytes);
        (slot.after, slot.is_known) = (after, true);
        (symbol, held)
    }

    /// Marks a covered number as known and done for next hop `hop`, without storing its packet: it
    /// is no longer needed here.
    pub(crate) fn pass(&mut self, number: u32, after: u16, hop: usize) {
        let slot = self.slot_mut(number);
        (slot.bytes, slot.after, slot.is_known) = (0, after, true);
        slot.done |= 1 << hop;
    }

    /// A symbol, if it is known.
    pub(crate) fn get(&self, number: u32) -> Option<Symbol<'_>> {
        let Slot { bytes, after, .. } = *self.slot(number);
        let packet = &self.slot_bytes(number)?[SYMBOL_HEADER_BYTES..][..usize::from(bytes)];
        Some(Symbol { packet, after })
    }

    /// Bytes of the IP packet of a number; 0 when it is not known.
    pub(crate) fn packet_bytes(&self, number: u32) -> usize {
        self.get(number).map_or(0, |symbol| symbol.packet.len())
    }

    /// Bytes of a symbol in coded form, without trailing zeros, if it is known.
    pub(crate) fn coded_bytes(&self, number: u32) -> Option<usize> {
        self.is_known(number).then(|| SYMBOL_HEADER_BYTES + usize::from(self.slot(number).bytes))
    }

    /// The first bytes of a symbol in coded form, if it is known.
    pub(crate) fn coded(&self, number: u32, bytes: usize) -> Option<&[u8]> {
        self.slot_bytes(number).map(|slot| &slot[..bytes])
    }

    fn slot_bytes(&self, number: u32) -> Option<&[u8]> {
        let place = self.place(number);
        self.is_known(number).then(|| &self.bytes[place * self.stride..][..self.stride])
    }

    /// Whether next hop `hop` has a number, or the number is no longer covered.
    pub(crate) fn is_done(&self, number: u32, hop: usize) -> bool {
        !self.covers(number) || self.slot(number).done & 1 << hop != 0
    }

    /// Marks a number as received by next hop `hop`.
    pub(crate) fn set_done(&mut self, number: u32, hop: usize) {
        if self.covers(number) {
            self.slot_mut(number).done |= 1 << hop;
        }
    }

    /// Marks a number as missing at next hop `hop` after all.
    pub(crate) fn set_undone(&mut self, number: u32, hop: usize) {
        if self.covers(number) {
            self.slot_mut(number).done &= !(1 << hop);
        }
    }

    /// Whether to answer a request for a known number, from behind next hop `hop`. If so, marks the
    /// round as answered, and the number as missing there.
    pub(crate) fn answers(&mut self, number: u32, round: u8, hop: usize) -> bool {
        if !self.is_known(number) {
            return false;
        }
        let (slot, shift) = (self.slot_mut(number), hop * ROUND_BITS);
        if u32::from(round) < slot.answered >> shift & ROUND_MAX {
            return false;
        }
        let rounds = u32::from(round).saturating_add(1).min(ROUND_MAX);
        slot.answered = slot.answered & !(ROUND_MAX << shift) | rounds << shift;
        slot.done &= !(1 << hop);
        true
    }

    /// Lets `number` wait for the one `after` before it. Returns false when that is not covered, or
    /// another one already waits for it.
    pub(crate) fn wait(&mut self, number: u32, after: u16) -> bool {
        let before = number.wrapping_sub(u32::from(after));
        if !self.covers(before) || self.slot(before).waits != 0 {
            return false;
        }
        self.slot_mut(before).waits = after;
        true
    }

    /// The number that waits for this one.
    pub(crate) fn waiting(&self, number: u32) -> Option<u32> {
        let waits = if self.covers(number) { self.slot(number).waits } else { 0 };
        (waits > 0).then(|| number.wrapping_add(u32::from(waits)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SYMBOLS: usize = 8192;

    fn packet(number: u32) -> [u8; 4] {
        number.to_be_bytes()
    }

    /// A table that received `numbers` in order; each is done when it is `needed` numbers old.
    fn passed(first: u32, numbers: u32, needed: u32) -> Store {
        let mut store = Store::new(SYMBOLS, 4, 1);
        store.begin(first, 0);
        for step in 0..numbers {
            let number = first.wrapping_add(step);
            store.extend(number.wrapping_add(1), u64::from(step));
            store.put(number, &packet(number), 0);
            store.set_done(number.wrapping_sub(needed), 0);
        }
        store
    }

    #[test]
    fn it_is_as_large_as_what_is_needed_of_it() {
        for (needed, held) in [(0, 1024), (256, 1024), (257, 2048), (900, 4096), (5000, 8192)] {
            assert_eq!(passed(u32::MAX - 100, 40_000, needed).held(), held, "{needed}");
        }
    }

    #[test]
    fn another_size_keeps_the_newest() {
        let first = u32::MAX - 700;
        for (numbers, needed, sizes) in [
            (1500, 900, [64, 8192, 256]),
            (300, 300, [1024, 2048, 64]),
            (5000, 3000, [SYMBOLS, 4096, 16384]),
        ] {
            let (mut store, mut kept) = (passed(first, numbers, needed), SYMBOLS);
            for symbols in sizes {
                store.resize(symbols);
                kept = kept.min(symbols);
                let end = store.end();
                for back in 1..=numbers.min(needed).min(kept as u32) {
                    let number = end.wrapping_sub(back);
                    let symbol = store.get(number).map(|symbol| symbol.packet.to_vec());
                    assert_eq!(symbol, Some(packet(number).to_vec()), "{back} of {numbers}");
                    assert!(!store.is_done(number, 0), "{back} of {numbers}");
                }
                // It continues to work.
                store.extend(end.wrapping_add(1), 9000);
                store.put(end, &packet(end), 0);
                assert!(store.is_known(end));
            }
        }
    }

    #[test]
    fn what_is_passed_is_known_and_done_and_leaves_its_place_clean() {
        let turn = SYMBOLS_MIN as u32;
        let mut store = Store::new(SYMBOLS_MIN, 4, 1);
        store.begin(0, 0);
        store.extend(1, 0);
        store.put(0, &[7; 4], 0);
        store.extend(turn + 1, 0);
        store.pass(turn, 3, 0);
        assert!(store.is_known(turn) && store.is_done(turn, 0));
        assert_eq!(store.packet_bytes(turn), 0);
        store.extend(2 * turn + 1, 0);
        assert!(!store.is_known(2 * turn) && !store.is_done(2 * turn, 0));
        store.put(2 * turn, &[9], 0);
        let coded = store.coded(2 * turn, SYMBOL_HEADER_BYTES + 4).expect("it is known");
        assert_eq!(coded[SYMBOL_HEADER_BYTES..], [9, 0, 0, 0]);
    }

    #[test]
    fn what_never_comes_is_needed_for_a_time() {
        for (nanos, held) in [(1, SYMBOLS), (NEEDED_NANOS, SYMBOLS_MIN)] {
            let mut store = Store::new(SYMBOLS, 4, 1);
            store.begin(7, 0);
            for step in 1..5000 {
                store.extend(7 + step, u64::from(step / 512) * nanos);
            }
            assert_eq!(store.held(), held);
        }
    }

    proptest! {
        /// However it grew, it holds exactly the numbers that it covers, each in its own slot.
        #[test]
        fn it_holds_what_it_covers(
            first in any::<u32>(),
            parts in proptest::collection::vec((1u32..3000, 0u32..3000), 1..12),
        ) {
            let mut store = Store::new(SYMBOLS, 4, 1);
            store.begin(first, 0);
            let mut end = first;
            for (numbers, needed) in parts {
                for _ in 0..numbers {
                    store.extend(end.wrapping_add(1), 1);
                    store.put(end, &packet(end), 0);
                    end = end.wrapping_add(1);
                    store.set_done(end.wrapping_sub(needed).wrapping_sub(1), 0);
                }
                let held = end.wrapping_sub(store.start());
                prop_assert!(held as usize <= store.held());
                for back in 1..=end.wrapping_sub(first).min(2 * SYMBOLS as u32) {
                    let number = end.wrapping_sub(back);
                    let symbol = store.get(number).map(|symbol| symbol.packet.to_vec());
                    let expected = (back <= held).then(|| packet(number).to_vec());
                    prop_assert_eq!(symbol, expected, "{} back of {}", back, held);
                }
            }
        }
    }
}
