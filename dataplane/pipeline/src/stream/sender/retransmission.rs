//! Bounds of the bytes that link reports draw. Without keys anyone can form them, with keys the
//! neighbour. Each may name all packets in flight as lost, and seven symbols as missing
//! (`docs/protocol` §7.1 B15, B16).
//!
//! ```text
//!  acknowledged packets -- SHARE bytes per byte --> retransmissions of any kind
//!  link reports ---------- SHARE bytes per byte --> of symbols that were reported as received
//! ```

use super::Sender;
use crate::stream::store::Store;

/// Bytes of retransmissions per byte that reports acknowledge, without keys: enough for a link that
/// loses three packets of four. At half of it, a link that loses two of three would lack some; at
/// twice, forged reports leave a seventh of the link to new symbols instead of a quarter. The same
/// share of the bytes of reports is for symbols reported as received, and then as missing.
const SHARE: usize = 3;

/// The same with keys: a neighbour draws no more than it acknowledges. Enough for a link that loses
/// every second packet. At half of it, a link that loses 40 % would lack some; at twice, a
/// neighbour that lies draws two thirds of the link.
const SHARE_WITH_KEYS: usize = 1;

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
    share: usize,
    /// Symbols dropped since they were last taken.
    refused: u64,
}

impl RetransmissionBudget {
    /// A full reserve.
    pub(super) fn new() -> RetransmissionBudget {
        let (bytes, claim_bytes) = (RESERVE_BYTES, CLAIM_BYTES_MAX);
        RetransmissionBudget { bytes, claim_bytes, share: SHARE, refused: 0 }
    }

    /// Adds to it for acknowledged bytes; `most` bytes are all that may be in flight.
    pub(super) fn earn(&mut self, bytes: usize, most: usize) {
        self.bytes = (self.bytes + self.share * bytes).min(most.max(RESERVE_BYTES));
    }

    /// Records a retransmission that left.
    pub(super) fn spend(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// Adds to it for a report.
    pub(super) fn hear(&mut self, report_bytes: usize) {
        self.claim_bytes = (self.claim_bytes + self.share * report_bytes).min(CLAIM_BYTES_MAX);
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
    /// Whether keys authenticate the reports of the neighbour.
    pub(crate) fn set_authenticated(&mut self, is_authenticated: bool) {
        self.budget.share = if is_authenticated { SHARE_WITH_KEYS } else { SHARE };
    }

    /// Records packets of symbols that a report acknowledges.
    pub(super) fn note_acknowledged(&mut self, packets: usize) {
        let most = self.link.in_flight.capacity() * self.mean_bytes;
        self.budget.earn(packets * self.mean_bytes, most);
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
    fn retransmissions_are_a_share_of_acknowledged_bytes_and_claims_one_of_reports() {
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
        budget.share = SHARE_WITH_KEYS;
        budget.spend(2 * RESERVE_BYTES);
        budget.earn(100, 0);
        assert_eq!(budget.bytes, 100);
    }
}
