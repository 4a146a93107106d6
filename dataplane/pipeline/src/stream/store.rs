//! The newest symbols of a stream at one node, found by number modulo the size of the table.
//!
//! ```text
//!    too old  |  known, missing, known ...  |  not heard of
//!  ------- end - slots ------------------- end -------------->  number
//! ```

use crate::params::Nanos;
use recoded_wire::header::serial_before;
use recoded_wire::stream::{SYMBOL_HEADER_BYTES, StreamSymbol, write_symbol_header};

/// What is known of one symbol.
#[derive(Copy, Clone, Debug)]
struct Slot {
    /// When it came, or when another one told that it was missing.
    heard_at: Nanos,
    bytes: u16,
    after: u16,
    /// Bytes of the slot that may not be zero.
    dirty: u16,
    is_known: bool,
    /// Next hops that have it, a bit each. At a sink: whether it was delivered.
    done: u8,
    /// Rounds of requests from the sink that were answered.
    answered: u8,
    /// How much later the symbol is that waits for this one at a sink; 0 for none.
    waits: u16,
}

const EMPTY: Slot = Slot {
    heard_at: 0,
    bytes: 0,
    after: 0,
    dirty: 0,
    is_known: false,
    done: 0,
    answered: 0,
    waits: 0,
};

/// A symbol that is known.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Symbol<'a> {
    pub packet: &'a [u8],
    pub after: u16,
}

/// Bytes of a slot.
fn stride(symbol_bytes: usize) -> usize {
    (SYMBOL_HEADER_BYTES + symbol_bytes).next_multiple_of(64)
}

/// The newest symbols.
pub(crate) struct Store {
    slots: Box<[Slot]>,
    /// As they are combined: header, packet, zeros.
    bytes: Box<[u8]>,
    /// Of a slot.
    stride: usize,
    symbol_bytes: usize,
    /// The number after the newest heard of; `None` before the first.
    end: Option<u32>,
}

impl Store {
    /// For so many symbols, rounded up to a power of two, of up to `symbol_bytes`.
    pub(crate) fn new(symbols: usize, symbol_bytes: usize) -> Self {
        let (symbols, stride) = (symbols.next_power_of_two(), stride(symbol_bytes));
        Self {
            slots: vec![EMPTY; symbols].into_boxed_slice(),
            bytes: vec![0; symbols * stride].into_boxed_slice(),
            stride,
            symbol_bytes,
            end: None,
        }
    }

    /// Bytes that it allocates.
    pub(crate) fn memory_bytes(symbols: usize, symbol_bytes: usize) -> usize {
        symbols.next_power_of_two() * (stride(symbol_bytes) + size_of::<Slot>())
    }

    /// Most bytes of a symbol.
    pub(crate) fn symbol_bytes(&self) -> usize {
        self.symbol_bytes
    }

    /// Takes longer symbols from now on.
    pub(crate) fn widen(&mut self, symbol_bytes: usize) {
        let stride = stride(symbol_bytes).max(self.stride);
        let mut bytes = vec![0; self.slots.len() * stride].into_boxed_slice();
        let places = bytes.chunks_exact_mut(stride);
        for (place, symbol) in places.zip(self.bytes.chunks_exact(self.stride)) {
            place[..self.stride].copy_from_slice(symbol);
        }
        (self.bytes, self.stride, self.symbol_bytes) = (bytes, stride, symbol_bytes);
    }

    /// How many symbols it holds.
    pub(crate) fn symbols(&self) -> usize {
        self.slots.len()
    }

    /// The number after the newest heard of; 0 before the first.
    pub(crate) fn end(&self) -> u32 {
        self.end.unwrap_or(0)
    }

    /// Whether it has heard of any number.
    pub(crate) fn has_begun(&self) -> bool {
        self.end.is_some()
    }

    /// Forgets everything, and goes on with `next`.
    pub(crate) fn begin(&mut self, next: u32) {
        self.slots.iter_mut().for_each(|slot| *slot = Slot { dirty: slot.dirty, ..EMPTY });
        self.end = Some(next);
    }

    /// The oldest number that it may hold.
    pub(crate) fn start(&self) -> u32 {
        self.end().wrapping_sub(self.slots.len() as u32)
    }

    /// Whether a number lies between the oldest that may be held and the newest heard of.
    pub(crate) fn covers(&self, number: u32) -> bool {
        self.end.is_some_and(|end| {
            let back = end.wrapping_sub(number) as usize;
            (1..=self.slots.len()).contains(&back)
        })
    }

    fn slot(&self, number: u32) -> &Slot {
        &self.slots[number as usize & (self.slots.len() - 1)]
    }

    fn slot_mut(&mut self, number: u32) -> &mut Slot {
        let place = number as usize & (self.slots.len() - 1);
        &mut self.slots[place]
    }

    /// Hears of all numbers before `end`; the oldest make room. Steps: numbers that are new, one
    /// table's worth at most.
    pub(crate) fn extend(&mut self, end: u32, now: Nanos) {
        let Some(old) = self.end.filter(|old| serial_before(*old, end)) else { return };
        let news = end.wrapping_sub(old).min(self.slots.len() as u32);
        for back in (1..=news).rev() {
            let number = end.wrapping_sub(back);
            let slot = self.slot_mut(number);
            *slot = Slot { heard_at: now, dirty: slot.dirty, ..EMPTY };
        }
        self.end = Some(end);
    }

    /// Whether a number that is covered is known.
    pub(crate) fn is_known(&self, number: u32) -> bool {
        self.covers(number) && self.slot(number).is_known
    }

    /// When a number that is covered was first heard of.
    pub(crate) fn heard_at(&self, number: u32) -> Nanos {
        self.slot(number).heard_at
    }

    /// Keeps a packet of at most the symbol size under a number that is covered and not known.
    pub(crate) fn put(&mut self, number: u32, packet: &[u8], after: u16) {
        let place = number as usize & (self.slots.len() - 1);
        let (slot, bytes) = (&mut self.slots[place], packet.len() as u16);
        let out = &mut self.bytes[place * self.stride..][..self.stride];
        write_symbol_header(&StreamSymbol { number, after, place: 0, bytes }, out);
        let (held, rest) = out[SYMBOL_HEADER_BYTES..].split_at_mut(packet.len());
        held.copy_from_slice(packet);
        rest[..usize::from(slot.dirty.saturating_sub(bytes))].fill(0);
        (slot.bytes, slot.dirty) = (bytes, bytes);
        (slot.after, slot.is_known) = (after, true);
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

    /// Bytes of a symbol as it is combined, without the zeros at its end, if it is known.
    pub(crate) fn coded_bytes(&self, number: u32) -> Option<usize> {
        self.is_known(number).then(|| SYMBOL_HEADER_BYTES + usize::from(self.slot(number).bytes))
    }

    /// The first bytes of a symbol as it is combined, if it is known.
    pub(crate) fn coded(&self, number: u32, bytes: usize) -> Option<&[u8]> {
        self.slot_bytes(number).map(|slot| &slot[..bytes])
    }

    fn slot_bytes(&self, number: u32) -> Option<&[u8]> {
        let place = number as usize & (self.slots.len() - 1);
        self.is_known(number).then(|| &self.bytes[place * self.stride..][..self.stride])
    }

    /// Whether next hop `hop` has a number, or it is not covered any more.
    pub(crate) fn is_done(&self, number: u32, hop: usize) -> bool {
        !self.covers(number) || self.slot(number).done & 1 << hop != 0
    }

    /// Notes that next hop `hop` has a number.
    pub(crate) fn set_done(&mut self, number: u32, hop: usize) {
        if self.covers(number) {
            self.slot_mut(number).done |= 1 << hop;
        }
    }

    /// Notes that next hop `hop` lacks a number after all.
    pub(crate) fn set_undone(&mut self, number: u32, hop: usize) {
        if self.covers(number) {
            self.slot_mut(number).done &= !(1 << hop);
        }
    }

    /// Whether a request of a round for a number that is known is to be answered; it is then, by
    /// sending it anew to all next hops.
    pub(crate) fn answers(&mut self, number: u32, round: u8) -> bool {
        if !self.is_known(number) || round < self.slot(number).answered {
            return false;
        }
        let slot = self.slot_mut(number);
        (slot.answered, slot.done) = (round.saturating_add(1), 0);
        true
    }

    /// Lets `number` wait for the one that is `after` before it. False when that is not covered, or
    /// another one waits for it.
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
