//! Damps bursts of similar events about one subject: the first few pass, then one at a time after
//! pauses that double. The last one always passes, so that the last line logged is current.

use super::Happened;
use std::time::{Duration, Instant};

/// Events that pass at once: pulling a cable and plugging it in again shows every event.
const BURST: u32 = 5;

/// First pause after the burst, and the longest.
const PAUSE_FIRST: Duration = Duration::from_secs(10);
const PAUSE_MAX: Duration = Duration::from_secs(600);

/// Quiet time after which the damper resets.
pub const CALM: Duration = Duration::from_secs(300);

/// Damps the events of one topic about one thing.
#[derive(Debug)]
pub struct Damper {
    burst: u32,
    pause: Duration,
    /// When the next event may pass, once the burst is used up.
    next: Instant,
    /// When the last event arrived.
    last: Instant,
    /// The newest held event, and when it was seen.
    held: Option<(Happened, u64)>,
    left_out: u64,
}

/// A passed event.
pub struct Passed {
    /// The event.
    pub happened: Happened,
    /// When it was seen, in milliseconds since 1970.
    pub at_ms: u64,
    /// Number of similar events suppressed before it.
    pub left_out: u64,
}

impl Damper {
    /// A damper that has passed nothing yet.
    pub fn new(now: Instant) -> Damper {
        let (pause, held) = (PAUSE_FIRST, None);
        Damper { burst: BURST, pause, next: now, last: now, held, left_out: 0 }
    }

    /// Takes an event; [`Damper::due`] returns it once it may pass.
    pub fn take(&mut self, happened: Happened, at_ms: u64, now: Instant) {
        if self.is_calm(now) {
            *self = Damper::new(now);
        }
        self.last = now;
        if self.held.replace((happened, at_ms)).is_some() {
            self.left_out += 1;
        }
    }

    /// Returns the event that may pass now. `spend` reports whether the global budget has room.
    pub fn due(&mut self, now: Instant, spend: impl FnOnce() -> bool) -> Option<Passed> {
        let is_due = self.held.is_some() && (self.burst > 0 || now >= self.next);
        if !is_due || !spend() {
            return None;
        }
        if self.burst > 0 {
            self.burst -= 1;
        } else {
            self.pause = (2 * self.pause).min(PAUSE_MAX);
        }
        self.next = now + self.pause;
        let (happened, at_ms) = self.held.take()?;
        Some(Passed { happened, at_ms, left_out: std::mem::take(&mut self.left_out) })
    }

    /// Whether it can be forgotten.
    pub fn is_calm(&self, now: Instant) -> bool {
        let is_over = now.saturating_duration_since(self.last) >= CALM;
        is_over && self.held.is_none() && now >= self.next
    }
}
