//! How late things come that were not there when they were expected, and so how long to wait for
//! the next one.

use crate::params::Nanos;

/// What was seen is forgotten by half after so long without another one.
const FORGET_NANOS: Nanos = 1_000_000_000;

/// Less than this is nothing.
const LEAST_NANOS: Nanos = 50_000;

/// The largest lateness of recent times.
#[derive(Debug)]
pub(crate) struct Lateness {
    nanos: Nanos,
    /// When it was seen, or forgotten by half.
    at: Nanos,
    most: Nanos,
}

impl Lateness {
    /// Nothing was late so far; at most `most` counts.
    pub(crate) fn new(most: Nanos) -> Self {
        Self { nanos: 0, at: 0, most }
    }

    /// Something came so late.
    pub(crate) fn note(&mut self, nanos: Nanos, now: Nanos) {
        self.nanos = self.nanos.max(nanos + nanos / 8).min(self.most);
        self.at = now;
    }

    /// The largest.
    pub(crate) fn nanos(&self) -> Nanos {
        self.nanos
    }

    /// How long to wait.
    pub(crate) fn patience(&mut self, now: Nanos) -> Nanos {
        if self.nanos > 0 && now >= self.at + FORGET_NANOS {
            self.at = now;
            self.nanos = if self.nanos < LEAST_NANOS { 0 } else { self.nanos / 2 };
        }
        self.nanos
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_is_waited_for_and_forgotten_by_halves() {
        let mut late = Lateness::new(1_000_000);
        assert_eq!(late.patience(0), 0);
        for nanos in [80_000, 800_000, 400_000] {
            late.note(nanos, 5);
        }
        assert_eq!(late.patience(6), 900_000);
        assert_eq!(late.patience(5 + FORGET_NANOS), 450_000);
        late.note(5_000_000, 6 + FORGET_NANOS);
        assert_eq!(late.patience(6 + FORGET_NANOS), 1_000_000, "at most so much counts");
        let mut now = 6 + FORGET_NANOS;
        while late.patience(now) > 0 {
            now += FORGET_NANOS;
        }
        assert_eq!(now, 6 + 7 * FORGET_NANOS);
    }
}
