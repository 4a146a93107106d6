//! One next hop as one of several paths to a receiver: how soon what it gets arrives, and whether
//! anything does.

use super::Sender;
use crate::params::Nanos;
use crate::peer::sample::AROUND_BYTES;

/// A path is in doubt when nothing was heard of it for so long, and a round trip and a quarter,
/// though it was sent to: reports follow packets within a millisecond.
const DOUBT_NANOS: Nanos = 25_000_000;

/// A round trip that is not known yet may be so long.
const UNKNOWN_NANOS: Nanos = 300_000_000;

/// What waits for longer in a neighbour does not arrive: its next hop is silent.
const STUCK_NANOS: Nanos = 500_000_000;

/// A path in doubt of which nothing waits is asked this often.
const ASK_NANOS: Nanos = 50_000_000;

impl Sender {
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
        self.liveness.reaches(patience)
    }

    /// Whether it is what lies behind the neighbour that does not answer.
    pub(crate) fn is_stuck_behind(&self) -> bool {
        self.waits_there > STUCK_NANOS
    }

    /// The bit of the store that says what it has.
    pub(crate) fn receiver(&self) -> usize {
        self.receiver
    }

    /// Goes on asking a path in doubt, where nothing else does.
    pub(crate) fn ask_anew(&mut self, now: Nanos) {
        self.keepalive.due.get_or_insert(now + ASK_NANOS);
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
