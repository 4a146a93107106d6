//! One next hop as one of several paths to a receiver: how soon what it gets arrives, and whether
//! anything does.

use super::{KEEPALIVE_SILENT_NANOS, KEEPALIVES_OFTEN, Sender};
use crate::params::Nanos;
use crate::peer::sample::AROUND_BYTES;
use crate::segmentation::Comparison;
use crate::stream::store::Store;
use crate::time::earlier;

/// A path is in doubt when nothing was heard of it for so long, and of what was sent to it so long,
/// and a round trip and a quarter, before: reports follow packets within a millisecond.
const DOUBT_NANOS: Nanos = 25_000_000;

/// A round trip that is not known yet may be so long.
const UNKNOWN_NANOS: Nanos = 300_000_000;

/// What waits for longer in a neighbour does not arrive: its next hop is silent.
const STUCK_NANOS: Nanos = 500_000_000;

/// A path in doubt is asked this often, for half a minute.
const ASK_NANOS: Nanos = 50_000_000;

impl Sender {
    /// Takes in the pace of the link, and returns the fates of packets that were reported since the
    /// last call.
    pub(crate) fn settle(&mut self, pace: Option<f64>) -> Comparison {
        self.rate.limit(pace);
        std::mem::take(&mut self.sent.comparison)
    }

    /// How long what is queued now waits until it leaves: without end where the neighbour is
    /// silent.
    pub(crate) fn backlog(&self, symbol_bytes: usize, now: Nanos) -> Nanos {
        let is_known = self.round_trip.is_some() || self.liveness.silence() > UNKNOWN_NANOS;
        if is_known && self.liveness.silence() > self.patience_with_silence() {
            return Nanos::MAX;
        }
        let waiting = self.fresh.len() + self.again.len();
        let queued = self.rate.nanos(waiting * (symbol_bytes + AROUND_BYTES));
        queued + if waiting > 0 { self.free_at.saturating_sub(now) } else { 0 }
    }

    /// How long what is queued now waits until it leaves, as long as symbols were lately.
    pub(crate) fn waits(&self, now: Nanos) -> Nanos {
        self.backlog(self.mean_bytes, now)
    }

    /// How long a symbol takes to the receiver if it is queued now.
    pub(crate) fn arrives_after(&self, now: Nanos) -> Nanos {
        let waits = self.waits(now).saturating_add(self.waits_there);
        waits.saturating_add(self.path_round_trip() / 2)
    }

    /// Whether what it got may never arrive: neither it nor what lies behind it answers.
    pub(crate) fn is_in_doubt(&self, now: Nanos) -> bool {
        self.is_stuck_behind() || self.doubted_at().is_some_and(|at| at <= now)
    }

    /// When its first hop comes into doubt if nothing is heard of it.
    pub(crate) fn doubted_at(&self) -> Option<Nanos> {
        let round_trip = self.round_trip.unwrap_or(UNKNOWN_NANOS);
        let patience = DOUBT_NANOS + round_trip + round_trip / 4;
        // Where reports come all the time, the first that is missing is one on what left a round
        // trip before the last of them.
        let overdue = self.sent.oldest_at().filter(|_| self.round_trip.is_some());
        let overdue = overdue.map(|at| (at + patience).max(self.heard_at + DOUBT_NANOS));
        earlier(self.liveness.reaches(patience), overdue)
    }

    /// Whether it is what lies behind the neighbour that does not answer.
    pub(crate) fn is_stuck_behind(&self) -> bool {
        self.waits_there > STUCK_NANOS
    }

    /// When the oldest symbol that waits to be sent was heard of.
    pub(crate) fn waits_since(&self, store: &Store) -> Option<Nanos> {
        let waiting = self.again.iter().map(|(number, _)| *number);
        let mut waiting = waiting.chain(self.fresh.iter().copied());
        let is_missing =
            |number: &u32| store.is_known(*number) && !store.is_done(*number, self.receiver);
        waiting.find(is_missing).map(|number| store.heard_at(number))
    }

    /// The bit of the store that says what it has.
    pub(crate) fn receiver(&self) -> usize {
        self.receiver
    }

    /// Goes on asking a path in doubt. Its neighbour may answer: what is asked for is whether
    /// anything goes on behind it.
    pub(crate) fn ask_anew(&mut self, now: Nanos) {
        let is_over_soon = self.keepalive.count <= KEEPALIVES_OFTEN;
        let at = now + if is_over_soon { ASK_NANOS } else { KEEPALIVE_SILENT_NANOS.1 };
        self.keepalive.due = earlier(self.keepalive.due, Some(at));
    }

    /// Lets go of what waits; others send it.
    pub(crate) fn hand_over(&mut self) {
        self.fresh.clear();
        self.again.clear();
        self.open.clear();
    }

    /// Lets go of everything that waits.
    pub(crate) fn clear(&mut self) {
        self.hand_over();
        self.keepalive.due = None;
    }
}
