//! Numbers that a node accepts: those around its window, and others on evidence. A key that
//! verified a symbol is evidence: see [`crate::packet::freshness`]. Of other symbols, several in a
//! row are required, after a silence.

use crate::config::params::{FlowParams, Nanos};
use crate::env::egress::KeySerial;
use crate::packet::arrival::RESTART_DISTANCE;
use crate::packet::freshness::Order;
use crate::packet::incoming::Incoming;
use crate::stream::store::Store;
use recoded_wire::stream::StreamSymbol;

/// A number may be ahead of the newest one by this part of the window, and at least by the minimum.
const AHEAD_PART: usize = 4;
const AHEAD_MIN: u32 = 32;

/// Numbers more than this many windows old belong to another life of the source.
const BEHIND_WINDOWS: u32 = 2;

/// Silence of the window after which numbers of another life are accepted at a relay that lacks the
/// keys of a tagged flow; otherwise it is `generation_timeout`.
const TAGGED_SILENCE_NANOS: Nanos = 5_000_000;

/// Effect of a number on the window.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Reach {
    /// The window covers it, advances to it, or has passed it.
    Near,
    /// The window restarts at `first`.
    Anew { first: u32 },
    /// Unconfirmed, or too large.
    Refused(Kept),
}

/// Outcome of a symbol.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Kept {
    /// The window restarted with it.
    First,
    New,
    /// Already known, or older than the window.
    Known,
    /// Its number is unconfirmed.
    Stray,
}

impl Kept {
    /// Whether it is new.
    pub(crate) fn is_news(self) -> bool {
        matches!(self, Kept::First | Kept::New)
    }
}

/// A symbol that arrived, or was solved from combinations.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Candidate<'a> {
    pub symbol: StreamSymbol,
    pub packet: &'a [u8],
    /// The key that verified it, if one did.
    pub key: Option<KeySerial>,
}

/// Stores a new symbol that the window reaches.
pub(crate) fn keep(
    store: &mut Store,
    incoming: &mut Incoming,
    candidate: &Candidate<'_>,
    now: Nanos,
    params: &FlowParams,
) -> Kept {
    let Candidate { symbol, packet, .. } = candidate;
    let reach = reach(store, incoming, candidate, now, params);
    let kept = enter(store, reach, symbol.number, now);
    if kept.is_news() {
        store.put(symbol.number, packet, symbol.after);
    }
    kept
}

/// Decides on a symbol. The window does not change until its number [enters](enter).
pub(crate) fn reach(
    store: &Store,
    incoming: &mut Incoming,
    candidate: &Candidate<'_>,
    now: Nanos,
    params: &FlowParams,
) -> Reach {
    let Candidate { symbol: StreamSymbol { number, .. }, packet, key } = *candidate;
    if packet.len() > store.symbol_bytes() {
        return Reach::Refused(Kept::Known);
    }
    if is_near(store, number) || !store.has_begun() {
        key.into_iter().for_each(|key| incoming.freshness.note(key, number));
        incoming.note_in_range(now);
        let is_first = !store.has_begun();
        return if is_first { Reach::Anew { first: number } } else { Reach::Near };
    }
    if let Some(key) = key {
        return by_key(store, incoming, key, number);
    }
    let timeout = params.generation_timeout_nanos;
    let silence = if params.tagged { timeout.min(TAGGED_SILENCE_NANOS) } else { timeout };
    match incoming.note_out_of_range(number, RESTART_DISTANCE, now, silence) {
        // Many packets were lost. The state of the others still counts: some of them will be
        // retransmitted.
        Some(first) if first.wrapping_sub(store.end()) < store.symbols() as u32 => Reach::Near,
        Some(first) => Reach::Anew { first },
        None => Reach::Refused(Kept::Stray),
    }
}

/// Decides on the number of a verified symbol that is not near the window.
fn by_key(store: &Store, incoming: &mut Incoming, key: KeySerial, number: u32) -> Reach {
    let order = incoming.freshness.order(key, number);
    if order == Order::Behind {
        // Late or replayed: the window has passed it, as a retransmission would be.
        return Reach::Refused(Kept::Known);
    }
    incoming.freshness.restart(key, number);
    // The source has formed it. Within the window, earlier ones may still arrive over other paths.
    let is_within = number.wrapping_sub(store.end()) < store.symbols() as u32;
    let goes_on = order == Order::Ahead && is_within;
    if goes_on { Reach::Near } else { Reach::Anew { first: number } }
}

/// Moves the window as decided.
pub(crate) fn enter(store: &mut Store, reach: Reach, number: u32, now: Nanos) -> Kept {
    let end = number.wrapping_add(1);
    match reach {
        Reach::Refused(kept) => kept,
        Reach::Anew { first } => {
            store.begin(first, now);
            store.extend(end, now);
            Kept::First
        }
        Reach::Near => {
            store.extend(end, now);
            let is_new = store.covers(number) && !store.is_known(number);
            if is_new { Kept::New } else { Kept::Known }
        }
    }
}

/// Whether the window covers a number, or advances to it without further evidence.
fn is_near(store: &Store, number: u32) -> bool {
    let window = store.symbols() as u32;
    let ahead = number.wrapping_sub(store.end()).cast_signed();
    let ahead_max = (window / AHEAD_PART as u32).max(AHEAD_MIN).cast_signed();
    store.has_begun() && (-(BEHIND_WINDOWS * window).cast_signed()..ahead_max).contains(&ahead)
}
