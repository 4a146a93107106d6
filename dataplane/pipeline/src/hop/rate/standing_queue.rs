//! Standing queues: a queue that is never empty is drained once, which reveals its cause.
//!
//! ```text
//!  stays ── less is sent ──┬── shorter: caused by this sender
//!                          ├── as long, and others have more than their part: contest
//!                          └── as long, and never changes: part of the way
//! ```
//!
//! All senders of a node drain at the same moments ([`super::drain_schedule`]): otherwise several
//! of them on one link would mistake each other for competing traffic. If competing flows were real
//! recently, a contest begins without a drain.

use crate::config::params::Nanos;
use crate::hop::rate::competition::{Competition, SHARE, Shared};
use crate::hop::rate::drain_schedule;
use crate::hop::rate::queue_sample::QueueSample;
use crate::hop::rate::sample::SAMPLE_NANOS;
use crate::hop::rate::{Rate, Verdict};

/// A queue that was never empty for this long, and this many round trips, is drained: twice its
/// length within a round trip, at no less than this fraction of the received rate.
const FULL_NANOS: Nanos = 1_000_000_000;
const FULL_ROUND_TRIPS: Nanos = 16;
const DRAIN: f64 = 0.6;

/// The same when others have more than their share, since they take any room left.
const DRAIN_OTHERS: f64 = 0.7;

/// The drain starts this many times sooner when the own share is below the target of a contest.
const SOONER: Nanos = 4;

/// Samples, or round trips, within which the queue should have shrunk; otherwise it is not due to
/// this sender.
const DRAINED: u32 = 3;

/// The queue has shrunk when at most this fraction is left.
const SHORTER: f64 = 0.75;

/// Loss above the usual one that indicates an overflowing queue.
const OVERFLOW: f64 = 0.03;

/// Fraction of the own queue below which it counts as empty.
pub(super) const EMPTY: f64 = 0.2;

/// Within this time after a contest, the next one resumes from its rate.
const RIVAL_NANOS: Nanos = 10_000_000_000;

/// A drain in progress: the queue at its start, its start time, and the samples since.
#[derive(Copy, Clone, Debug)]
pub(super) struct Drain {
    queue: f64,
    since: Nanos,
    samples: u32,
}

/// The last contest: its time, its mean rate, and when the others were last real.
#[derive(Copy, Clone, Debug)]
pub(super) struct Rival {
    at: Nanos,
    rate: f64,
    real_at: Option<Nanos>,
}

impl Rate {
    /// Records that the queue is empty.
    pub(super) fn was_empty(&mut self, now: Nanos) {
        (self.empty_at, self.empty_rate) = (now, self.most());
        self.since_empty = (f64::MAX, 0.0);
    }

    /// Whether more is lost than without a queue.
    fn overflows(&self) -> bool {
        self.recent_loss.unwrap_or(0.0) > self.usual_loss.unwrap_or(0.0) + OVERFLOW
    }

    /// Whether the queue is long and others have more than their share of the link.
    fn is_of_others(&self, seen: &QueueSample) -> bool {
        seen.is_contested() && self.own.part(1.0) < SHARE
    }

    /// Handles a standing queue; `None` if there is none.
    pub(super) fn look_at_queue(&mut self, seen: &QueueSample, now: Nanos) -> Option<Verdict> {
        if let Some(contest) = self.contest.take() {
            if self.contend(contest, seen, now) {
                return Some(Verdict::Fine);
            }
            self.was_empty(now);
        }
        if let Some(drain) = self.drain.take() {
            return Some(self.go_on_draining(drain, seen, now));
        }
        self.rival = self.rival.filter(|rival| now < rival.at + RIVAL_NANOS);
        let is_of_others = self.is_of_others(seen);
        let full = FULL_NANOS.max(FULL_ROUND_TRIPS.saturating_mul(seen.round_trip));
        let stays = if is_of_others { full / SOONER } else { full };
        let before = std::mem::replace(&mut self.stepped_at, now);
        if now <= self.empty_at.saturating_add(stays) {
            return None;
        }
        let real_at = self.rival.and_then(|rival| rival.real_at);
        if is_of_others && real_at.is_some_and(|at| now < at + RIVAL_NANOS) {
            self.begin_contest(now);
            return Some(Verdict::Fine);
        }
        if !drain_schedule::has_passed(before, now, stays) || !(seen.is_limited || is_of_others) {
            return None;
        }
        // Without probing the base delay, a standing queue would become part of it.
        self.drain = Some(Drain { queue: seen.queue, since: now, samples: 0 });
        let part = 2.0 * seen.queue / seen.round_trip.max(SAMPLE_NANOS) as f64;
        let is_alone = self.own.part(1.0) >= SHARE;
        // The best sample of several senders exceeds the capacity.
        let carried = if is_alone { self.most() } else { self.capacity.min(self.most()) };
        let least = if is_of_others { DRAIN_OTHERS } else { DRAIN };
        self.set(carried * (1.0 - part).max(least));
        Some(Verdict::Fine)
    }

    /// Continues a drain: checks whether the queue has shrunk at the lower rate.
    fn go_on_draining(&mut self, drain: Drain, seen: &QueueSample, now: Nanos) -> Verdict {
        let is_shorter = seen.queue < SHORTER * drain.queue;
        // At low rates, samples are far apart.
        let round_trips = Nanos::from(DRAINED).saturating_mul(seen.round_trip.max(SAMPLE_NANOS));
        let is_over = drain.samples + 1 >= DRAINED || now > drain.since.saturating_add(round_trips);
        if !is_shorter && !is_over {
            self.drain = Some(Drain { samples: drain.samples + 1, ..drain });
            return Verdict::Fine;
        }
        let (least, most) = self.since_empty;
        let changes = most > least + seen.own / 2.0;
        if !is_shorter && (self.is_of_others(seen) || changes && seen.is_contested()) {
            self.begin_contest(now);
            return Verdict::Fine;
        }
        if is_shorter {
            self.set(self.most());
        }
        self.was_empty(now);
        // An overflowing queue will shrink as the rate falls.
        let is_fine = is_shorter || changes || self.overflows();
        if is_fine { Verdict::Fine } else { Verdict::NotOurs }
    }

    /// Begins a contest, since others fill the queue: at the rate of the last contest, or a share
    /// of the rate carried before they did.
    fn begin_contest(&mut self, now: Nanos) {
        let before = self.rival.map_or(SHARE * self.empty_rate, |rival| rival.rate);
        // The last contest may have been on a faster link.
        let rate = before.max(self.capacity).min(self.most().max(self.empty_rate));
        self.contest = Some(Competition::new(rate, now));
        self.set(rate);
    }

    /// One step of a contest. Returns false when it is over.
    fn contend(&mut self, mut contest: Competition, seen: &QueueSample, now: Nanos) -> bool {
        let overflows = self.overflows();
        let shared = Shared {
            own: self.own.part(SHARE),
            queue: seen.link_queue,
            target: seen.of_several(),
            overflows,
            is_limited: seen.is_limited,
            round_trip: seen.round_trip,
        };
        let next = contest.step(&shared, now);
        let before = self.rival.and_then(|rival| rival.real_at);
        let real_at = if contest.is_real() { Some(now) } else { before };
        self.rival = Some(Rival { at: now, rate: contest.mean(), real_at });
        if overflows {
            // It counts once.
            self.recent_loss = self.usual_loss;
        }
        if let Some(next) = next {
            self.contest = Some(contest);
            self.set(next);
        }
        next.is_some()
    }
}
