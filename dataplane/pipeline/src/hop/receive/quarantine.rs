//! Quarantine of neighbours that send symbols with wrong tags: they are compromised, or forward
//! symbols corrupted upstream.
//!
//! ```text
//!  wrong tags: 1, 2 ... as many as are allowed ──► quarantine 10 s, 20 s ... 640 s ──► 1, 2 ...
//!                                   (within 60 s)
//! ```
//!
//! Packets of a neighbour in quarantine are ignored, so that its data arrives over other paths, and
//! it is rekeyed. Without another path nothing would be gained, and it is not ignored. Only packets
//! authenticated as its own count, so no other host can put a neighbour in quarantine.

use crate::config::params::Nanos;

const SECOND: Nanos = 1_000_000_000;

/// Older wrong tags do not count.
const WITHIN_NANOS: Nanos = 60 * SECOND;

/// The first quarantine, and how many times its length doubles.
const FIRST_NANOS: Nanos = 10 * SECOND;
const DOUBLED_MAX: u32 = 6;

/// After this long without a wrong tag, quarantines start from the first length again.
const FORGIVEN_NANOS: Nanos = 3600 * SECOND;

/// Misbehaviour of a neighbour, and how long it is ignored.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Quarantine {
    /// Wrong tags since `since`.
    wrong: u32,
    since: Nanos,
    from: Nanos,
    until: Nanos,
    /// Number of quarantines so far.
    count: u32,
}

impl Quarantine {
    /// Records a wrong tag; `most` of them start a quarantine, and 0 allows any number. Returns
    /// whether one starts.
    pub(crate) fn note(&mut self, most: u32, now: Nanos) -> bool {
        if most == 0 || self.is_on(now) {
            return false;
        }
        if self.wrong == 0 || now.saturating_sub(self.since) > WITHIN_NANOS {
            if now.saturating_sub(self.until) > FORGIVEN_NANOS {
                self.count = 0;
            }
            (self.wrong, self.since) = (0, now);
        }
        self.wrong += 1;
        if self.wrong < most {
            return false;
        }
        (self.wrong, self.from) = (0, now);
        self.until = now.saturating_add(FIRST_NANOS << self.count.min(DOUBLED_MAX));
        self.count = self.count.saturating_add(1);
        true
    }

    /// Whether the last quarantine began after `time`.
    pub(crate) fn has_begun_since(&self, time: Nanos) -> bool {
        self.from > time
    }

    /// Whether the neighbour is in quarantine.
    #[inline]
    pub(crate) fn is_on(&self, now: Nanos) -> bool {
        now < self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_as_are_allowed_begin_a_quarantine_and_the_next_is_longer() {
        let mut quarantine = Quarantine::default();
        let mut now = SECOND;
        for seconds in [10, 20, 40, 80, 160, 320, 640, 640] {
            assert!((0..9).all(|_| !quarantine.note(10, now)));
            assert!(!quarantine.is_on(now) && quarantine.note(10, now));
            assert!(!quarantine.note(10, now), "it is not heard meanwhile");
            assert!(quarantine.is_on(now + seconds * SECOND - 1));
            now += seconds * SECOND;
            assert!(!quarantine.is_on(now));
        }
        now += FORGIVEN_NANOS + 1;
        assert!((0..10).any(|_| quarantine.note(10, now)));
        assert!(quarantine.is_on(now + 9 * SECOND) && !quarantine.is_on(now + 10 * SECOND));
    }

    #[test]
    fn few_and_old_ones_are_let_pass_and_none_is_too_many_where_all_are_allowed() {
        let mut quarantine = Quarantine::default();
        for step in 0..1000 {
            assert!(!quarantine.note(10, step * WITHIN_NANOS / 8), "{step}");
            assert!(!quarantine.note(0, step));
        }
        assert!(Quarantine::default().note(1, SECOND));
    }
}
