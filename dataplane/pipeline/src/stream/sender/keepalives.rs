//! Keepalives of a hop: they reveal losses at the tail, and request the report without which
//! nothing leaves.
//!
//! ```text
//!  full window, no report   first after RTT / 4, then every RTT / 4 for a second: urgent
//!  symbols wait             every 1.25 RTT
//!  nothing waits            every 1.25 RTT, then doubling intervals, then none
//! ```

use super::{Next, Sender};
use crate::config::params::Nanos;
use crate::hop::send::keepalive::{KEEPALIVE_MAX_NANOS, Keepalive};

/// Keepalive interval while symbols wait.
const KEEPALIVE_WAITING_NANOS: Nanos = 10_000_000;

/// Keepalive schedule. After `KEEPALIVES` there are none until there is more to send. If none is
/// answered they continue: the interval is then an eighth of the silence, which adds little to an
/// outage, up to the first limit for `KEEPALIVES_OFTEN` keepalives, and the second later. Recovery
/// may take three, since neither side accepts a single number far from the previous ones.
const KEEPALIVES: u32 = 32;
pub(super) const KEEPALIVES_OFTEN: u32 = 600;
const SILENCE_PARTS: Nanos = 8;
pub(super) const KEEPALIVE_SILENT_NANOS: (Nanos, Nanos) = (60_000_000, 300_000_000);

/// While a full window waits for a report, keepalives follow each other at the urgent interval for
/// this long: nothing else leaves, and each burst of losses takes several of them. At the usual
/// interval, a burst of 20 lasted 0.35 s over 7 ms. They do not count for `KEEPALIVES`.
const KEEPALIVE_URGENT_NANOS: Nanos = 1_000_000_000;

/// Reports in a row that resolve nothing, after which keepalives are no longer urgent: a neighbour
/// may send them without end. After an outage, the first few resolve nothing.
const EMPTY_REPORTS_MAX: u32 = 64;

impl Sender {
    pub(super) fn due_keepalive(&mut self, now: Nanos) -> Option<Next> {
        let is_due = match self.link.keepalive.due {
            Some(due) => due <= now,
            None => self.is_stuck(),
        };
        is_due.then_some(Next::Keepalive)
    }

    /// Whether waiting symbols need a report to leave, and none is requested.
    pub(super) fn is_stuck(&self) -> bool {
        self.link.keepalive.due.is_none() && !self.is_idle() && self.is_full()
    }

    /// Schedules the keepalive after one that was sent.
    pub(super) fn left_keepalive(&mut self, is_unanswered: bool, now: Nanos) {
        let is_urgent = self.is_urgent();
        let is_counted = self.is_idle() || self.link.keepalive.count < KEEPALIVES;
        self.link.keepalive.count += u32::from(is_counted && !is_urgent);
        self.asked_at = now;
        let silence = now.saturating_sub(self.heard_at);
        let patience = self.link.round_trip.patience();
        if self.link.round_trip.is_known() && silence > patience {
            self.heard_at = now;
            self.link.rate.silence();
        }
        let longest = self.waiting_interval().max(self.liveness.silence() / SILENCE_PARTS);
        let round_trip = self.link.round_trip.mean();
        let wait = match is_urgent {
            true => Keepalive::urgent_interval(round_trip),
            false => self.link.keepalive.interval(round_trip).min(longest),
        };
        let is_over = self.link.keepalive.count >= KEEPALIVES && self.is_idle();
        let goes_on = !is_over || is_unanswered;
        let (often, rarely) = KEEPALIVE_SILENT_NANOS;
        let most = match self.is_idle() {
            true if self.link.keepalive.count > KEEPALIVES_OFTEN => rarely,
            true if self.liveness.silence() > patience => often,
            true => KEEPALIVE_MAX_NANOS,
            false => self.waiting_interval(),
        };
        self.link.keepalive.due = goes_on.then(|| now + wait.min(most));
        if is_over {
            // The neighbour may have recovered: the next packets find out.
            self.link.in_flight.forget();
        }
    }

    /// Whether nothing leaves since reports are missing, not since the link is slow: then more of
    /// them arrive. What arrives meanwhile does not show the capacity. Nor is a link slow whose
    /// large packets vanish; but sending less shows that sooner.
    pub(super) fn is_stalled(&self, now: Nanos) -> bool {
        let is_in_doubt = self.link.sizes().is_in_doubt();
        self.is_full() && !is_in_doubt && now > self.reported_at + self.link.round_trip.mean()
    }

    /// Whether a report is all that is waited for.
    fn is_urgent(&self) -> bool {
        self.is_full()
            && self.liveness.silence() < KEEPALIVE_URGENT_NANOS
            && self.empty_reports < EMPTY_REPORTS_MAX
    }

    /// Requests a report if no packet follows soon; without reports, even if packets follow: all of
    /// them may be too large for the link.
    pub(super) fn ask_soon(&mut self, now: Nanos) {
        let soon = Keepalive::first_at(self.link.round_trip.mean(), now);
        let is_heard = now.saturating_sub(self.heard_at) <= self.link.round_trip.patience();
        let last = self.asked_at + KEEPALIVE_SILENT_NANOS.0;
        self.link.keepalive.restart(if is_heard { soon } else { soon.min(last.max(now)) });
    }

    /// Keepalive interval while symbols wait for a report.
    fn waiting_interval(&self) -> Nanos {
        KEEPALIVE_WAITING_NANOS.max(self.link.round_trip.mean() * 5 / 4)
    }
}
