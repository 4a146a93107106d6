//! Bounds of the bytes that link reports draw. Without keys anyone can form them, and each may name
//! all packets in flight as lost, and seven symbols as missing (`docs/protocol` §7.1 B15, B16).
//!
//! ```text
//!  new symbols ---- SHARE bytes per byte ----------> retransmissions of any kind
//!  link reports --- CLAIM_SHARE bytes per byte ----> of symbols that were reported as received
//! ```

use super::Sender;
use crate::stream::store::Store;

/// Bytes of retransmissions per byte of new symbols: enough for a link that loses three packets of
/// four. At half of it, a link that loses two of three would lack some; at twice, forged reports
/// leave a seventh of the link to new symbols instead of a quarter.
const SHARE: usize = 3;

/// Bytes of symbols reported as received, and then as missing, per byte of reports. A neighbour
/// that received a symbol and could not keep it names it, which is rare. At half of it, a minimal
/// report pays for no packet of 100 bytes; at twice, a forger gains more than by sending himself.
const CLAIM_SHARE: usize = 3;

/// Most bytes of such symbols at once: twelve full packets, since honest reports come in bursts.
const CLAIM_BYTES_MAX: usize = 16 << 10;

/// Retransmissions allowed before the first symbols, and at least later: 40 ms of a link of 300
/// Mbit/s.
const RESERVE_BYTES: usize = 3 << 19;

/// What may be retransmitted.
#[derive(Debug)]
pub(super) struct RetransmissionBudget {
    bytes: usize,
    claim_bytes: usize,
    /// Symbols dropped since they were last taken.
    refused: u64,
}

impl RetransmissionBudget {
    /// A full reserve.
    pub(super) fn new() -> RetransmissionBudget {
        RetransmissionBudget { bytes: RESERVE_BYTES, claim_bytes: CLAIM_BYTES_MAX, refused: 0 }
    }

    /// Adds to it for a new symbol; `most` bytes are all that may be in flight.
    pub(super) fn earn(&mut self, bytes: usize, most: usize) {
        self.bytes = (self.bytes + SHARE * bytes).min(most.max(RESERVE_BYTES));
    }

    /// Records a retransmission that left.
    pub(super) fn spend(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// Adds to it for a report.
    pub(super) fn hear(&mut self, report_bytes: usize) {
        self.claim_bytes = (self.claim_bytes + CLAIM_SHARE * report_bytes).min(CLAIM_BYTES_MAX);
    }

    /// Whether a symbol that was reported as received may be retransmitted; if so, spends its
    /// bytes.
    pub(super) fn claims(&mut self, bytes: usize) -> bool {
        let left = self.claim_bytes.checked_sub(bytes);
        self.refused += u64::from(left.is_none());
        self.claim_bytes = left.unwrap_or(self.claim_bytes);
        left.is_some()
    }
}

impl Sender {
    /// Records a symbol that left.
    pub(super) fn left_symbol(&mut self, is_repair: bool, bytes: usize) {
        match is_repair {
            true => self.budget.spend(bytes),
            false => self.budget.earn(bytes, self.link.in_flight.capacity() * self.mean_bytes),
        }
    }

    /// Whether a symbol may be retransmitted. If not, it is dropped: the sink requests it end to
    /// end.
    pub(super) fn may_retransmit(&mut self, store: &mut Store, number: u32) -> bool {
        let is_left = self.budget.bytes > 0;
        if !is_left {
            self.budget.refused += 1;
            if !self.is_path {
                store.set_done(number, self.receiver);
            }
        }
        is_left
    }

    /// Retransmissions refused since the last call.
    pub(crate) fn take_refused(&mut self) -> u64 {
        std::mem::take(&mut self.budget.refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retransmissions_are_a_share_of_new_symbols_and_claims_one_of_reports() {
        let mut budget = RetransmissionBudget::new();
        budget.spend(2 * RESERVE_BYTES);
        assert_eq!(budget.bytes, 0);
        budget.earn(100, 0);
        assert_eq!(budget.bytes, 300);
        budget.earn(1 << 30, 2 * RESERVE_BYTES);
        assert_eq!(budget.bytes, 2 * RESERVE_BYTES);
        assert!((0..12).all(|_| budget.claims(1300)) && !budget.claims(1300));
        budget.hear(433);
        assert!(!budget.claims(2100) && budget.claims(1300), "{budget:?}");
        assert_eq!(budget.refused, 2);
    }
}
