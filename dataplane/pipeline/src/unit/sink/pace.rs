//! How fast a sink delivers symbols that become known at once: those of a block when it decodes,
//! and those that waited behind an incomplete generation.
//!
//! As many symbols may be delivered as packets arrive, plus 16 each millisecond, so that waiting
//! symbols need no further arrivals; at most 32 at once. A socket with the default buffer of Linux
//! holds 92 datagrams of 1300 bytes: blocks of 256 symbols, delivered at once, lost a quarter of
//! 100 Mbit/s there. Symbols that arrive in order never wait, nor do packets of TCP, whose
//! receivers advertise how much they can take.

use crate::config::params::Nanos;

/// Symbols at once, and the increment of each period.
const AT_ONCE: u32 = 32;
const MORE: u32 = 8;
const PERIOD_NANOS: Nanos = 500_000;

/// Symbols that may be delivered.
#[derive(Debug)]
pub(crate) struct Pace {
    symbols: u32,
    /// Until when time was counted.
    at: Nanos,
    /// Whether a symbol waits.
    is_waiting: bool,
}

impl Pace {
    pub(crate) fn new() -> Self {
        Self { symbols: AT_ONCE, at: 0, is_waiting: false }
    }

    /// Notes that a packet arrived.
    pub(crate) fn arrived(&mut self) {
        self.symbols = (self.symbols + 1).min(AT_ONCE);
    }

    /// Accounts for elapsed time.
    pub(crate) fn pass(&mut self, now: Nanos) {
        let periods = now.saturating_sub(self.at) / PERIOD_NANOS;
        if periods > 0 {
            let more = periods.min(u64::from(AT_ONCE)) as u32 * MORE;
            self.symbols = (self.symbols + more).min(AT_ONCE);
            // The rest of a period counts, except after a pause.
            self.at = if self.symbols == AT_ONCE { now } else { self.at + periods * PERIOD_NANOS };
        }
        self.is_waiting = false;
    }

    /// Takes permission to deliver a symbol. Returns whether it was granted.
    pub(crate) fn take(&mut self) -> bool {
        self.is_waiting = self.symbols == 0;
        self.symbols = self.symbols.saturating_sub(1);
        !self.is_waiting
    }

    /// Returns the last permission: the symbol was for a receiver that advertises how much it can
    /// take.
    pub(crate) fn give_back(&mut self) {
        self.symbols = (self.symbols + 1).min(AT_ONCE);
    }

    /// When the next one may be delivered, if one waits.
    pub(crate) fn due(&self) -> Option<Nanos> {
        self.is_waiting.then_some(self.at + PERIOD_NANOS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Nanos = 1_000_000;

    /// Symbols delivered at a time.
    fn leave(pace: &mut Pace, now: Nanos) -> usize {
        pace.pass(now);
        (0..1000).take_while(|_| pace.take()).count()
    }

    #[test]
    fn what_comes_one_by_one_never_waits() {
        let mut pace = Pace::new();
        for _ in 0..1000 {
            pace.arrived();
            pace.pass(0);
            assert!(pace.take());
        }
        assert_eq!(pace.due(), None);
    }

    #[test]
    fn block_leaves_in_parts_as_fast_as_packets_come_and_somewhat_faster() {
        let mut pace = Pace::new();
        assert_eq!(leave(&mut pace, MILLI), 32);
        let due = pace.due().expect("the rest waits");
        assert_eq!(due, MILLI + PERIOD_NANOS);
        assert_eq!(leave(&mut pace, due), 8);
        // Ten packets arrive each millisecond.
        let mut left = 0;
        for milli in 2..12 {
            (0..10).for_each(|_| pace.arrived());
            left += leave(&mut pace, (milli + 1) * MILLI);
        }
        assert!((255..=270).contains(&left), "{left} in 10 ms");
        assert_eq!(leave(&mut pace, 1000 * MILLI), 32, "after a pause");
    }

    #[test]
    fn what_is_given_back_never_waits() {
        let mut pace = Pace::new();
        let leaves = |pace: &mut Pace| {
            let leaves = pace.take();
            pace.give_back();
            leaves
        };
        assert!((0..1000).all(|_| leaves(&mut pace)));
        assert_eq!(leave(&mut pace, 0), 32, "others have what they had");
    }
}
