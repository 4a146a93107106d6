//! Which numbers a node takes: those around its window, and others on evidence.

use crate::arrival::RESTART_DISTANCE;
use crate::incoming::Incoming;
use crate::params::{FlowParams, Nanos};
use crate::stream::store::Store;
use recoded_wire::header::serial_before;
use recoded_wire::stream::StreamSymbol;

/// A number may be this part of the window ahead of the newest one, and at least so many.
const AHEAD_PART: usize = 4;
const AHEAD_MIN: u32 = 32;

/// Older ones than this many windows are of another life of the source.
const BEHIND_WINDOWS: u32 = 2;

/// How long nothing of the window must have come before numbers of another life are believed, where
/// nothing but the source makes them; elsewhere it is `generation_timeout`.
const TAGGED_SILENCE_NANOS: Nanos = 5_000_000;

/// What becomes of a number.
enum Reach {
    /// The window covers it now.
    Within,
    /// The window began anew with it.
    Begun,
    /// It is older than the window.
    Passed,
    /// Nothing confirms it.
    Stray,
}

/// What became of a symbol.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Kept {
    /// The window began anew with it.
    First,
    New,
    /// It is known, or older than the window.
    Known,
    /// Nothing confirms its number.
    Stray,
}

impl Kept {
    /// Whether it was not known before.
    pub(crate) fn is_news(self) -> bool {
        matches!(self, Kept::First | Kept::New)
    }
}

/// Keeps a symbol that is not known and that the window reaches.
pub(crate) fn keep(
    (store, incoming): (&mut Store, &mut Incoming),
    (symbol, packet): (&StreamSymbol, &[u8]),
    at: (Nanos, &FlowParams),
) -> Kept {
    let kept = admit((&mut *store, incoming), (symbol, packet.len()), at);
    if kept.is_news() {
        store.put(symbol.number, packet, symbol.after);
    }
    kept
}

/// Like [`keep`], of a symbol of so many bytes, for which the window gets room only.
pub(crate) fn admit(
    (store, incoming): (&mut Store, &mut Incoming),
    (symbol, packet_bytes): (&StreamSymbol, usize),
    (now, params): (Nanos, &FlowParams),
) -> Kept {
    if packet_bytes > store.symbol_bytes() {
        return Kept::Known;
    }
    let timeout = params.generation_timeout_nanos;
    let silence = if params.tagged { timeout.min(TAGGED_SILENCE_NANOS) } else { timeout };
    match reach(store, incoming, symbol.number, (now, silence)) {
        Reach::Begun => Kept::First,
        Reach::Within if store.is_known(symbol.number) => Kept::Known,
        Reach::Within => Kept::New,
        Reach::Passed => Kept::Known,
        Reach::Stray => Kept::Stray,
    }
}

/// Whether the window covers a number, or moves to it without further evidence.
pub(crate) fn is_near(store: &Store, number: u32) -> bool {
    let window = store.symbols() as u32;
    let ahead = number.wrapping_sub(store.end()).cast_signed();
    let ahead_max = (window / AHEAD_PART as u32).max(AHEAD_MIN).cast_signed();
    store.has_begun() && (-(BEHIND_WINDOWS * window).cast_signed()..ahead_max).contains(&ahead)
}

/// Decides on a number, and moves the window where it follows.
fn reach(
    store: &mut Store,
    incoming: &mut Incoming,
    number: u32,
    (now, silence): (Nanos, Nanos),
) -> Reach {
    if !store.has_begun() {
        store.begin(number, now);
        store.extend(number.wrapping_add(1), now);
        return Reach::Begun;
    }
    if is_near(store, number) {
        incoming.note_in_range(now);
        if !serial_before(number, store.end()) {
            store.extend(number.wrapping_add(1), now);
        }
        return if store.covers(number) { Reach::Within } else { Reach::Passed };
    }
    let follows = incoming.note_out_of_range(number, RESTART_DISTANCE, (now, silence));
    let Some(first) = follows else { return Reach::Stray };
    store.begin(first, now);
    store.extend(number.wrapping_add(1), now);
    Reach::Begun
}
