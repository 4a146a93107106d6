//! CombinationDecoder of symbols from combinations: the receiving side of one hop of a stream.
//!
//! A neighbour counts the symbols that it sends for the first time: their places. It combines
//! symbols of consecutive places, so that both sides know which they are. Nothing is stored here
//! while the neighbour sends no combinations.

use crate::config::params::{FlowParams, Nanos};
use crate::stream::received_bitmap::ReceivedBitmap;
use recoded_code::window::Equations;
use recoded_wire::link::{LINK_MISSING_MAX, Missing};
use recoded_wire::stream::{
    COMBINED_MAX, Combination, SYMBOL_HEADER_BYTES, StreamSymbol, read_symbol, write_symbol_header,
};

/// Symbols that equations may cover: twice the number combined, as RFC 8681 appendix D advises.
const WINDOW: usize = 1024;

/// After this long without combinations, symbols are no longer stored.
const IDLE_NANOS: Nanos = 2_000_000_000;

/// Several consecutive places further away than these belong to another life of the neighbour. 16
/// bits of a place tell as many apart as both together.
const AHEAD: i32 = WINDOW as i32;
const BEHIND: i32 = 30_000;
const FAR_PACKETS: u8 = 3;

/// Places before the start of a new life that are requested as well: those of packets that were too
/// far away, or were dropped with unconfirmed numbers.
const BEFORE: u32 = 2 * FAR_PACKETS as u32;

/// CombinationDecoder state per upstream: each combines what it sends on its own.
pub(crate) struct CombinationDecoders(Vec<CombinationDecoder>);

impl CombinationDecoders {
    /// Creates the state for the neighbours and sizes of a flow.
    pub(crate) fn new(params: &FlowParams) -> Self {
        let one = |_| CombinationDecoder::new(params.symbol_bytes);
        Self((0..params.upstreams().count().max(1)).map(one).collect())
    }

    /// Allocated bytes.
    pub(crate) fn memory_bytes(params: &FlowParams) -> usize {
        params.upstreams().count().max(1) * CombinationDecoder::memory_bytes(params.symbol_bytes)
    }

    /// Restarts with the current neighbours of the flow.
    pub(crate) fn adopt(&mut self, params: &FlowParams) {
        *self = Self::new(params);
    }

    /// The state of the neighbour at index `upstream`.
    pub(crate) fn of(&mut self, upstream: usize) -> &mut CombinationDecoder {
        &mut self.0[upstream]
    }
}

/// The symbols of one hop, by place.
pub(crate) struct CombinationDecoder {
    equations: Equations,
    symbol_bytes: usize,
    /// The first place stored.
    since: u32,
    /// When the last combination arrived, if symbols are stored.
    active_at: Option<Nanos>,
    /// Whether combinations are certain to follow, and nothing else recovers the first symbols.
    is_open_loop: bool,
    far: u8,
    received: ReceivedBitmap,
    /// Places before the first one that are requested.
    before: u32,
    /// Place of the symbol recovered last.
    last: u32,
}

impl CombinationDecoder {
    /// Creates the state for IP packets of up to `symbol_bytes`.
    pub(crate) fn new(symbol_bytes: usize) -> Self {
        let equations = Equations::new(WINDOW, coded_bytes(symbol_bytes));
        Self {
            equations: equations.expect("a window of fixed size"),
            symbol_bytes,
            since: 0,
            active_at: None,
            is_open_loop: false,
            far: 0,
            received: ReceivedBitmap::new(),
            before: 0,
            last: 0,
        }
    }

    /// Allocated bytes.
    pub(crate) fn memory_bytes(symbol_bytes: usize) -> usize {
        Equations::memory_bytes(WINDOW, coded_bytes(symbol_bytes))
            + 16 * WINDOW
            + ReceivedBitmap::BYTES
    }

    /// Expands the low bits of a place, near the newest one; `None` when it is too far away.
    fn near(&mut self, low: u16, behind_most: i32) -> Option<u32> {
        let Some(end) = self.received.end() else {
            let first = u32::from(low);
            self.received.begin(first.wrapping_sub(self.before));
            self.received.hear(first);
            return Some(first);
        };
        let distance = i32::from(low.wrapping_sub(end as u16).cast_signed());
        if (-behind_most..=AHEAD).contains(&distance) {
            self.far = 0;
            return Some(end.wrapping_add_signed(distance));
        }
        self.far += 1;
        if self.far >= FAR_PACKETS {
            // The neighbour restarted.
            (self.far, self.active_at) = (0, None);
            (self.received, self.before) = (ReceivedBitmap::new(), BEFORE);
        }
        None
    }

    /// Stores symbols from the first one on, or only while combinations arrive.
    pub(crate) fn set_open_loop(&mut self, is_open_loop: bool) {
        self.is_open_loop = is_open_loop;
    }

    /// Processes a symbol.
    pub(crate) fn symbol(
        &mut self,
        symbol: &StreamSymbol,
        packet: &[u8],
        is_repair: bool,
        now: Nanos,
    ) {
        // First transmissions are the newest, except for reordering.
        let behind = if is_repair { BEHIND } else { AHEAD };
        let Some(place) = self.near(symbol.place, behind) else { return };
        self.received.hear(place.wrapping_add(1));
        self.received.set(place);
        if self.is_open_loop {
            self.begin_open_loop(place, now);
        } else if self.active_at.is_none_or(|at| at + IDLE_NANOS < now) {
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

    /// Stores symbols from now on, whatever the pause: the first combination after it covers
    /// earlier symbols as well, and so does the first one of all if the first symbol was lost.
    fn begin_open_loop(&mut self, place: u32, now: Nanos) {
        if self.active_at.is_none() {
            self.since = place.wrapping_sub(u32::from(COMBINED_MAX));
            self.equations.begin(self.since);
            self.active_at = Some(now);
        }
    }

    /// Processes a combination. Returns whether it was useful; `None` if its places are not
    /// accepted, so that it cannot replace a symbol.
    pub(crate) fn combination(
        &mut self,
        combination: &Combination,
        sum: &[u8],
        now: Nanos,
    ) -> Option<bool> {
        let Combination { first, count, key } = *combination;
        let first = self.near(first as u16, AHEAD)?;
        let end = first.wrapping_add(u32::from(count));
        self.received.hear(end);
        if self.is_open_loop {
            self.begin_open_loop(first, now);
        }
        if self.active_at.is_none() {
            // Only the places of earlier symbols are known.
            self.since = end;
            self.equations.begin(end);
        }
        self.active_at = Some(now);
        let is_before = first.wrapping_sub(self.since).cast_signed() < 0;
        if is_before || sum.len() > usize::from(coded_bytes(self.symbol_bytes)) {
            return Some(false);
        }
        self.equations.hear(end);
        Some(self.equations.combine(first, usize::from(count), key, sum))
    }

    /// Symbols neither received nor recovered.
    pub(crate) fn missing(&mut self) -> Missing {
        Missing::of(self.received.missing::<LINK_MISSING_MAX>().map(|place| place as u16))
    }

    /// Marks the symbol taken last as missing: it cannot be used yet, and must be retransmitted.
    pub(crate) fn refuse(&mut self) {
        self.received.unset(self.last);
    }

    /// Rejects the symbol taken last as corrupt: it must be retransmitted, and so must any that the
    /// same equations would yield.
    pub(crate) fn distrust(&mut self) {
        self.refuse();
        self.active_at = None;
    }

    /// Marks a symbol that differs from the source's as received: a retransmission would be the
    /// same.
    pub(crate) fn give_up(&mut self, symbol: &StreamSymbol) {
        if let Some(place) = self.near(symbol.place, AHEAD) {
            self.received.hear(place.wrapping_add(1));
            self.received.set(place);
        }
    }

    /// Takes a symbol recovered since the last call; its window has `window_symbols`.
    pub(crate) fn next(&mut self, window_symbols: usize) -> Option<(StreamSymbol, &[u8])> {
        let place = loop {
            let place = self.equations.next_solved()?;
            self.received.set(place);
            self.last = place;
            let bytes = self.equations.symbol(place);
            if bytes.is_some_and(|bytes| read_symbol(bytes, window_symbols).is_some()) {
                break place;
            }
            // Not a symbol: a combination was corrupt.
            self.distrust();
        };
        read_symbol(self.equations.symbol(place)?, window_symbols)
    }
}

/// Bytes of a symbol in a combination.
fn coded_bytes(symbol_bytes: usize) -> u16 {
    u16::try_from(symbol_bytes + SYMBOL_HEADER_BYTES).unwrap_or(u16::MAX)
}
