//! Too many events of one kind about the same: the first few are let through, then one at a time
//! after pauses that double. The last one always comes, so that what is written last is so.

use super::Happened;
use std::time::{Duration, Instant};

/// Let through at once: somebody who pulls a cable and puts it back sees every event.
const BURST: u32 = 5;

/// First pause after those, and the longest.
const PAUSE_FIRST: Duration = Duration::from_secs(10);
const PAUSE_MAX: Duration = Duration::from_secs(600);

/// After so long without one it begins anew.
pub const CALM: Duration = Duration::from_secs(300);

/// Damps the events of one topic about one thing.
#[derive(Debug)]
pub struct Damper {
    burst: u32,
    pause: Duration,
    /// When the next one may pass, once the burst is used up.
    next: Instant,
    /// When the last one came.
    last: Instant,
    /// The newest that waits, and when it was seen.
    held: Option<(Happened, u64)>,
    left_out: u64,
}

/// What passes: the event, when it was seen, and how many before it did not.
pub type Passed = (Happened, u64, u64);

impl Damper {
    /// One that has let nothing through.
    pub fn new(now: Instant) -> Damper {
        let (pause, held) = (PAUSE_FIRST, None);
        Damper { burst: BURST, pause, next: now, last: now, held, left_out: 0 }
    }

    /// Takes an event; what passes of it is what [`Damper::due`] returns next.
    pub fn take(&mut self, happened: Happened, at_ms: u64, now: Instant) {
        if self.is_calm(now) {
            *self = Damper::new(now);
        }
        self.last = now;
        if self.held.replace((happened, at_ms)).is_some() {
            self.left_out += 1;
        }
    }

    /// What may pass now. `spend` says whether there is room for an event at all.
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
        Some((happened, at_ms, std::mem::take(&mut self.left_out)))
    }

    /// Whether it can be forgotten.
    pub fn is_calm(&self, now: Instant) -> bool {
        let is_over = now.saturating_duration_since(self.last) >= CALM;
        is_over && self.held.is_none() && now >= self.next
    }
}
