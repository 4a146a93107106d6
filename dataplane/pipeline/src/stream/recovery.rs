//! Symbols that come back out of combinations: the receiving side of one hop of a stream.
//!
//! A neighbour counts the symbols that it sends for the first time: their places. What it combines
//! are symbols of consecutive places, so that both know which they are. Nothing is kept here while
//! the neighbour sends no combinations.

use crate::params::{FlowParams, Nanos};
use crate::stream::had::Had;
use recoded_code::window::Equations;
use recoded_wire::link::{LINK_MISSING_MAX, Missing};
use recoded_wire::stream::{
    Combination, SYMBOL_HEADER_BYTES, StreamSymbol, read_symbol, write_symbol_header,
};

/// Symbols that equations may mention: twice what is combined, as RFC 8681 appendix D advises.
const WINDOW: usize = 1024;

/// Without combinations for so long, symbols are not kept any more.
const IDLE_NANOS: Nanos = 2_000_000_000;

/// Places further away than these are of another life of the neighbour, if several in a row are.
/// 16 bits of a place tell as many apart as both together.
const AHEAD: i32 = WINDOW as i32;
const BEHIND: i32 = 30_000;
const FAR_PACKETS: u8 = 3;

/// Where another life begins, so many places before it are asked for, too: those of packets that
/// were far, or were not taken because nothing confirmed their numbers.
const BEFORE: u32 = 2 * FAR_PACKETS as u32;

/// Those of all neighbours that a stream is received from: each combines what it sends by itself.
pub(crate) struct Recoveries(Vec<Recovery>);

impl Recoveries {
    /// For the neighbours and sizes of a flow.
    pub(crate) fn new(params: &FlowParams) -> Self {
        let one = |_| Recovery::new(params.symbol_bytes);
        Self((0..params.upstreams().count().max(1)).map(one).collect())
    }

    /// Bytes that it allocates.
    pub(crate) fn memory_bytes(params: &FlowParams) -> usize {
        params.upstreams().count().max(1) * Recovery::memory_bytes(params.symbol_bytes)
    }

    /// Begins anew with the neighbours that the flow has now.
    pub(crate) fn adopt(&mut self, params: &FlowParams) {
        *self = Self::new(params);
    }

    /// That of the neighbour at a place.
    pub(crate) fn of(&mut self, upstream: usize) -> &mut Recovery {
        &mut self.0[upstream]
    }
}

/// The symbols of one hop, by place.
pub(crate) struct Recovery {
    equations: Equations,
    symbol_bytes: usize,
    /// The first place kept.
    since: u32,
    /// When the last combination came, if symbols are kept.
    active_at: Option<Nanos>,
    far: u8,
    had: Had,
    /// Places before the first one that are asked for.
    before: u32,
    /// Place of the symbol that came back last.
    last: u32,
}

impl Recovery {
    /// For IP packets of up to `symbol_bytes`.
    pub(crate) fn new(symbol_bytes: usize) -> Self {
        let equations = Equations::new(WINDOW, coded_bytes(symbol_bytes));
        Self {
            equations: equations.expect("a window of fixed size"),
            symbol_bytes,
            since: 0,
            active_at: None,
            far: 0,
            had: Had::new(),
            before: 0,
            last: 0,
        }
    }

    /// Bytes that it allocates.
    pub(crate) fn memory_bytes(symbol_bytes: usize) -> usize {
        Equations::memory_bytes(WINDOW, coded_bytes(symbol_bytes)) + 16 * WINDOW + Had::BYTES
    }

    /// The place of which these are the lower bits, near the newest one; `None` when it is far.
    fn near(&mut self, low: u16, behind_most: i32) -> Option<u32> {
        let Some(end) = self.had.end() else {
            let first = u32::from(low);
            self.had.begin(first.wrapping_sub(self.before));
            self.had.hear(first);
            return Some(first);
        };
        let distance = i32::from(low.wrapping_sub(end as u16).cast_signed());
        if (-behind_most..=AHEAD).contains(&distance) {
            self.far = 0;
            return Some(end.wrapping_add_signed(distance));
        }
        self.far += 1;
        if self.far >= FAR_PACKETS {
            // Another life of the neighbour.
            (self.far, self.active_at) = (0, None);
            (self.had, self.before) = (Had::new(), BEFORE);
        }
        None
    }

    /// Takes in a symbol that came.
    pub(crate) fn symbol(
        &mut self,
        (symbol, packet): (&StreamSymbol, &[u8]),
        is_repair: bool,
        now: Nanos,
    ) {
        // What is sent for the first time is the newest, but for what is overtaken.
        let behind = if is_repair { BEHIND } else { AHEAD };
        let Some(place) = self.near(symbol.place, behind) else { return };
        self.had.hear(place.wrapping_add(1));
        self.had.set(place);
        if self.active_at.is_none_or(|at| at + IDLE_NANOS < now) {
            self.active_at = None;
            return;
        }
        self.equations.hear(place.wrapping_add(1));
        self.equations.insert(place, |out| {
            write_symbol_header(symbol, out);
            let (held, rest) = out[SYMBOL_HEADER_BYTES..].split_at_mut(packet.len());
            held.copy_from_slice(packet);
            rest.fill(0);
        });
    }

    /// Takes in a combination that came. Whether it brought anything; `None` where its places are
    /// not believed, so that it cannot make anything good.
    pub(crate) fn combination(
        &mut self,
        combination: &Combination,
        sum: &[u8],
        now: Nanos,
    ) -> Option<bool> {
        let Combination { first, count, key } = *combination;
        let first = self.near(first as u16, AHEAD)?;
        let end = first.wrapping_add(u32::from(count));
        self.had.hear(end);
        if self.active_at.is_none() {
            // Of symbols that came before, only the places are known.
            self.since = end;
            self.equations.begin(end);
        }
        self.active_at = Some(now);
        let is_before = first.wrapping_sub(self.since).cast_signed() < 0;
        if is_before || sum.len() > usize::from(coded_bytes(self.symbol_bytes)) {
            return Some(false);
        }
        self.equations.hear(end);
        Some(self.equations.combine((first, usize::from(count)), key, sum))
    }

    /// Symbols that neither came nor came back.
    pub(crate) fn missing(&mut self) -> Missing {
        Missing::of(self.had.missing::<LINK_MISSING_MAX>().map(|place| place as u16))
    }

    /// The symbol that was taken last is of no use yet: it is to be sent again.
    pub(crate) fn refuse(&mut self) {
        self.had.unset(self.last);
    }

    /// The symbol that was taken last is not what the source sent: it is to be sent again, and so
    /// is what would come back by what that one came of.
    pub(crate) fn distrust(&mut self) {
        self.refuse();
        self.active_at = None;
    }

    /// A symbol came that is not what the source sent. What would be sent again is the same.
    pub(crate) fn give_up(&mut self, symbol: &StreamSymbol) {
        if let Some(place) = self.near(symbol.place, AHEAD) {
            self.had.hear(place.wrapping_add(1));
            self.had.set(place);
        }
    }

    /// Takes a symbol that came back since this was asked last; its window is of so many symbols.
    pub(crate) fn next(&mut self, window_symbols: usize) -> Option<(StreamSymbol, &[u8])> {
        let place = loop {
            let place = self.equations.next_solved()?;
            self.had.set(place);
            self.last = place;
            let bytes = self.equations.symbol(place);
            if bytes.is_some_and(|bytes| read_symbol(bytes, window_symbols).is_some()) {
                break place;
            }
            // No symbol: a combination was not what it said.
            self.distrust();
        };
        read_symbol(self.equations.symbol(place)?, window_symbols)
    }
}

/// Bytes of a symbol as it is combined.
fn coded_bytes(symbol_bytes: usize) -> u16 {
    u16::try_from(symbol_bytes + SYMBOL_HEADER_BYTES).unwrap_or(u16::MAX)
}
