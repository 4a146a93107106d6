//! Requests of a sink for missing symbols of its units: how long after their end, how often, and
//! within which budget.

use crate::config::params::Nanos;
use crate::hop::receive::lateness::Lateness;
use crate::hop::send::repair::{ROUNDS, RepairBudget};
use crate::unit::sink::unit::{REQUEST_COPIES, RequestTiming};

/// Long-run share of reports with NACKs per arriving packet. One in ten packets lost, on hops that
/// do not recover it, takes some hundredths.
const SHARE: f64 = 0.125;

/// Maximum lateness of a packet on a path whose hops recover their losses.
const LATE_MAX_NANOS: Nanos = 1_000_000_000;

/// Minimum time that hops get to recover their losses before the sink requests repairs.
const MENDED_NANOS: Nanos = 5_000_000;

/// Shortest time between two copies of a request, also its initial value.
const INTERVAL_NANOS: Nanos = 4_000_000;

/// Request state of a sink.
#[derive(Debug)]
pub(crate) struct Requests {
    /// Time between two copies of a request: a third of a round trip to the source, so that a round
    /// ends when its answer is due.
    interval: Nanos,
    /// Counted in reports.
    budget: RepairBudget,
    /// Whether hops recover their losses, and how long after the end of a unit that takes.
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

    /// Notes a packet and whether its hops recover their losses.
    pub(crate) fn arrived(&mut self, is_mended: bool) {
        self.is_mended = is_mended;
        self.budget.earn(1);
    }

    /// Whether hops recover their losses.
    pub(crate) fn is_mended(&self) -> bool {
        self.is_mended
    }

    /// Notes an answer that arrived `trip` after the first request; delivery waits for `hold`.
    pub(crate) fn answered(&mut self, trip: Nanos, hold: Nanos) {
        let smoothed = (7 * self.interval + trip / u64::from(REQUEST_COPIES)) / 8;
        let most = hold / u64::from(REQUEST_COPIES * ROUNDS);
        self.interval = smoothed.min(most).max(INTERVAL_NANOS);
    }

    /// Notes a packet of a unit that ended `nanos` before.
    pub(crate) fn late(&mut self, nanos: Nanos, now: Nanos) {
        self.late.note(nanos, now);
    }

    /// Additional delivery wait for hops that recover their losses.
    pub(crate) fn hold(&self) -> Nanos {
        2 * self.late.nanos()
    }

    /// When units request their missing symbols now.
    pub(crate) fn timing(&mut self, now: Nanos) -> RequestTiming {
        let patience = self.late.patience(now).max(MENDED_NANOS);
        let patience = if self.is_mended { patience } else { 0 };
        RequestTiming { interval: self.interval, patience }
    }

    /// Time until which a copy of a request waits for an answer.
    pub(crate) fn answered_by(&self, asked_at: Nanos) -> Nanos {
        asked_at + self.interval
    }

    /// Whether a report with requests may be sent.
    pub(crate) fn has_budget(&self) -> bool {
        self.budget.is_left()
    }

    /// Notes such a report.
    pub(crate) fn sent(&mut self) {
        self.budget.spend(1);
    }
}
