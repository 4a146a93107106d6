//! One next hop as one of several paths to a receiver: how soon symbols arrive over it, and whether
//! it delivers any.

use super::Sender;
use super::keepalives::{KEEPALIVE_SILENT_NANOS, KEEPALIVES_OFTEN};
use crate::base::time::earlier;
use crate::config::params::Nanos;
use crate::hop::rate::sample::AROUND_BYTES;
use crate::stream::store::Store;

/// A path is in doubt after this long without a report on packets that are older by a round trip
/// and a quarter: reports follow packets within a millisecond.
const DOUBT_NANOS: Nanos = 25_000_000;

/// Assumed round trip until it is known.
const UNKNOWN_NANOS: Nanos = 300_000_000;

/// With a longer backlog at the neighbour, nothing arrives: its next hop is silent.
const STUCK_NANOS: Nanos = 500_000_000;

/// Interval of keepalives on a path in doubt, for half a minute.
const ASK_NANOS: Nanos = 50_000_000;

impl Sender {
    /// Queueing delay of a symbol queued now; unlimited if the neighbour is silent.
    pub(crate) fn backlog(&self, symbol_bytes: usize, now: Nanos) -> Nanos {
        let is_known = self.link.round_trip.is_known() || self.liveness.silence() > UNKNOWN_NANOS;
        if is_known && self.liveness.silence() > self.link.round_trip.patience() {
            return Nanos::MAX;
        }
        let waiting = self.fresh.len() + self.again.len();
        let queued = self.link.rate.nanos(waiting * (symbol_bytes + AROUND_BYTES));
        queued + if waiting > 0 { self.link.free_at.saturating_sub(now) } else { 0 }
    }

    /// Queueing delay of a symbol queued now, at the recent mean size.
    pub(crate) fn waits(&self, now: Nanos) -> Nanos {
        self.backlog(self.mean_bytes, now)
    }

    /// Time for a symbol queued now to reach the receiver.
    pub(crate) fn arrives_after(&self, now: Nanos) -> Nanos {
        let waits = self.waits(now).saturating_add(self.link.backlog);
        waits.saturating_add(self.link.path_round_trip() / 2)
    }

    /// Whether its symbols may never arrive, since the neighbour or the nodes behind it do not
    /// answer.
    pub(crate) fn is_in_doubt(&self, now: Nanos) -> bool {
        self.is_stuck_behind() || self.doubted_at().is_some_and(|at| at <= now)
    }

    /// When the first hop comes into doubt if no report arrives.
    pub(crate) fn doubted_at(&self) -> Option<Nanos> {
        let round_trip = self.link.round_trip.known().unwrap_or(UNKNOWN_NANOS);
        let patience = DOUBT_NANOS + round_trip + round_trip / 4;
        // With continuous reports, the first one missing covers packets sent a round trip before
        // the last one.
        let overdue = self.link.in_flight.oldest_at().filter(|_| self.link.round_trip.is_known());
        let overdue = overdue.map(|at| (at + patience).max(self.heard_at + DOUBT_NANOS));
        earlier(self.liveness.reaches(patience), overdue)
    }

    /// Whether the nodes behind the neighbour do not answer.
    pub(crate) fn is_stuck_behind(&self) -> bool {
        self.link.backlog > STUCK_NANOS
    }

    /// When the oldest waiting symbol was first seen.
    pub(crate) fn waits_since(&self, store: &Store) -> Option<Nanos> {
        let waiting = self.again.iter().map(|(number, _)| *number);
        let mut waiting = waiting.chain(self.fresh.iter().copied());
        let is_missing =
            |number: &u32| store.is_known(*number) && !store.is_done(*number, self.receiver);
        waiting.find(is_missing).map(|number| store.heard_at(number))
    }

    /// Its bit in the store.
    pub(crate) fn receiver(&self) -> usize {
        self.receiver
    }

    /// Keeps sending keepalives on a path in doubt. Even if its neighbour answers, they show
    /// whether it forwards.
    pub(crate) fn ask_anew(&mut self, now: Nanos) {
        let is_over_soon = self.link.keepalive.count <= KEEPALIVES_OFTEN;
        let at = now + if is_over_soon { ASK_NANOS } else { KEEPALIVE_SILENT_NANOS.1 };
        self.link.keepalive.due = earlier(self.link.keepalive.due, Some(at));
    }

    /// Drops its queues; other paths send the symbols.
    pub(crate) fn hand_over(&mut self) {
        self.fresh.clear();
        self.again.clear();
        self.open.clear();
    }

    /// Drops its queues and stops keepalives.
    pub(crate) fn clear(&mut self) {
        self.hand_over();
        self.link.keepalive.due = None;
    }
}
