//! When a sink asks for what its units lack: how long after their end, how often, and within which
//! budget.

use crate::params::Nanos;
use crate::peer::lateness::Lateness;
use crate::peer::repair::{ROUNDS, RepairBudget};
use crate::sink::unit::REQUEST_COPIES;

/// Reports with NACKs for each packet that arrives, in the long run. One in ten packets lost, and
/// no hop that makes up for it, takes some hundredths.
const SHARE: f64 = 0.125;

/// Most that a packet may come late on a path whose hops make up for their losses.
const LATE_MAX_NANOS: Nanos = 1_000_000_000;

/// Least wait for hops to make up for their losses before the source is asked.
const MENDED_NANOS: Nanos = 5_000_000;

/// Shortest time between two copies of a request, and its initial value.
const INTERVAL_NANOS: Nanos = 4_000_000;

/// What a sink knows of its requests.
#[derive(Debug)]
pub(crate) struct Requests {
    /// Time between two copies of a request: a third of a round trip to the source, so that a round
    /// ends when its answer is due.
    interval: Nanos,
    /// In reports.
    budget: RepairBudget,
    /// Whether hops make up for their losses, and how long after the end of a unit that takes.
    is_mended: bool,
    late: Lateness,
}

impl Requests {
    pub(crate) fn new() -> Self {
        Self {
            interval: INTERVAL_NANOS,
            budget: RepairBudget::of_share(SHARE),
            is_mended: false,
            late: Lateness::new(LATE_MAX_NANOS),
        }
    }

    /// Notes a packet, which says whether hops make up for their losses.
    pub(crate) fn arrived(&mut self, is_mended: bool) {
        self.is_mended = is_mended;
        self.budget.earn(1);
    }

    /// Whether hops make up for their losses.
    pub(crate) fn is_mended(&self) -> bool {
        self.is_mended
    }

    /// Notes an answer, so long after it was asked for first; delivery waits for `hold`.
    pub(crate) fn answered(&mut self, trip: Nanos, hold: Nanos) {
        let smoothed = (7 * self.interval + trip / u64::from(REQUEST_COPIES)) / 8;
        let most = hold / u64::from(REQUEST_COPIES * ROUNDS);
        self.interval = smoothed.min(most).max(INTERVAL_NANOS);
    }

    /// Notes a packet of a unit that had ended so long ago.
    pub(crate) fn late(&mut self, nanos: Nanos, now: Nanos) {
        self.late.note(nanos, now);
    }

    /// How much longer delivery waits for what hops make up for.
    pub(crate) fn hold(&self) -> Nanos {
        2 * self.late.nanos()
    }

    /// Time between two copies of a request, and from the end of a unit to the first.
    pub(crate) fn timing(&mut self, now: Nanos) -> (Nanos, Nanos) {
        let patience = self.late.patience(now).max(MENDED_NANOS);
        (self.interval, if self.is_mended { patience } else { 0 })
    }

    /// Until when a copy of a request waits for an answer.
    pub(crate) fn answered_by(&self, asked_at: Nanos) -> Nanos {
        asked_at + self.interval
    }

    /// Whether a report with requests may be sent.
    pub(crate) fn has_budget(&self) -> bool {
        self.budget.is_left()
    }

    /// Notes one that is sent.
    pub(crate) fn sent(&mut self) {
        self.budget.spend(1);
    }
}
