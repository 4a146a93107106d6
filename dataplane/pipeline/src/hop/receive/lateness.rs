//! Reordering delay, used to size the wait for missing packets.

use crate::config::params::Nanos;

/// The maximum is halved after this long without another late packet.
const FORGET_NANOS: Nanos = 1_000_000_000;

/// Smaller values count as zero.
const LEAST_NANOS: Nanos = 50_000;

/// The recent maximum delay.
#[derive(Debug)]
pub(crate) struct Lateness {
    nanos: Nanos,
    /// When it was seen or last halved.
    at: Nanos,
    most: Nanos,
}

impl Lateness {
    /// Starts at zero; values above `most` are capped.
    pub(crate) fn new(most: Nanos) -> Self {
        Self { nanos: 0, at: 0, most }
    }

    /// Records an arrival that was this late.
    pub(crate) fn note(&mut self, nanos: Nanos, now: Nanos) {
        self.nanos = self.nanos.max(nanos + nanos / 8).min(self.most);
        self.at = now;
    }

    /// The recent maximum.
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
        assert_eq!(late.patience(6 + FORGET_NANOS), 1_000_000, "the longest delay that counts");
        let mut now = 6 + FORGET_NANOS;
        while late.patience(now) > 0 {
            now += FORGET_NANOS;
        }
        assert_eq!(now, 6 + 7 * FORGET_NANOS);
    }
}
