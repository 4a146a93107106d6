//! Answers to repair requests: packets per request, and the budget of all of them.
//!
//! Requests come from the network, and each may request many packets. So repairs have a budget
//! separate from the packets that a plan sends: a share of these, and a reserve that covers a
//! blackout. Excess requests are refused and counted; the sink retries.

use recoded_gf::FieldOrder;
use recoded_wire::coded::SIZE_MAX;

/// Largest probability that a repair leaves the sink short again.
const REPAIR_FAILURE_MAX: f64 = 1e-3;

/// Its binary logarithm, and the standard deviations of a normal distribution with the same tail.
const REPAIR_FAILURE_BITS: f64 = 10.0;
const REPAIR_DEVIATIONS: f64 = 3.1;

/// Largest number of missing degrees of freedom computed exactly, which takes a few microseconds.
const EXACT_MAX: usize = 16;

/// Rounds of repair per generation: each one only carries what the last one lost. Requests for
/// later rounds are ignored.
pub(crate) const ROUNDS: u8 = 4;

/// Repair packets allowed per planned packet. Bursts of eight at 10 % loss, the worst case
/// measured, need 0.4; more would let forged requests take more of the link.
const SHARE: f64 = 0.5;

/// Largest reserve: 40 ms of a link of 300 Mbit/s, as a blackout of that length needs.
const RESERVE_PACKETS: f64 = 1024.0;

/// Repair budget of one flow, in packets.
#[derive(Debug)]
pub(crate) struct RepairBudget {
    packets: f64,
    /// Repair packets allowed per other packet.
    share: f64,
}

impl RepairBudget {
    /// A full reserve.
    pub(crate) fn new() -> RepairBudget {
        RepairBudget::of_share(SHARE)
    }

    /// A full reserve, renewed by this share of each other packet.
    pub(crate) fn of_share(share: f64) -> RepairBudget {
        RepairBudget { packets: RESERVE_PACKETS, share }
    }

    /// Whether any budget is left.
    pub(crate) fn is_left(&self) -> bool {
        self.packets >= 1.0
    }

    /// Adds to the budget for planned packets.
    pub(crate) fn earn(&mut self, packets: u64) {
        self.packets = (self.packets + self.share * packets as f64).min(RESERVE_PACKETS);
    }

    /// Takes up to `wanted()` packets; it is evaluated only if budget is left, since it is slow.
    /// Returns how many are wanted, at least `missing`, and how many are granted.
    pub(crate) fn grant(
        &mut self,
        missing: usize,
        wanted: impl FnOnce() -> usize,
    ) -> (usize, usize) {
        if !self.is_left() {
            return (missing, 0);
        }
        let wanted = wanted();
        (wanted, self.spend(wanted))
    }

    /// Takes up to `wanted` packets from the budget. Returns how many it grants.
    pub(crate) fn spend(&mut self, wanted: usize) -> usize {
        let granted = wanted.min(self.packets as usize);
        self.packets -= granted as f64;
        granted
    }
}

/// Random combinations to send so that a receiver that lacks `missing` degrees of freedom gains
/// them all, when each packet arrives with probability `through`; at most `most`.
pub(crate) fn repair_packets(
    through: f64,
    field: FieldOrder,
    missing: usize,
    most: usize,
) -> usize {
    let through = through.clamp(0.05, 0.999);
    let missing = missing.clamp(1, SIZE_MAX);
    if missing > EXACT_MAX {
        return repair_packets_about(through, field, missing).min(most);
    }
    // gain[k] = probability that a packet is the next degree of freedom of a receiver that has k of
    // them: it arrives and is innovative.
    let mut gain = [0.0f64; EXACT_MAX];
    let mut redundant = 1.0;
    for k in (0..missing).rev() {
        redundant /= f64::from(field.order());
        gain[k] = through * (1.0 - redundant);
    }
    // arrived[k] = probability that exactly k < missing were gained; their sum is that of failure.
    let mut arrived = [0.0f64; EXACT_MAX];
    arrived[0] = 1.0;
    for sent in 1..most {
        for k in (0..missing).rev() {
            let came = if k > 0 { arrived[k - 1] * gain[k - 1] } else { 0.0 };
            arrived[k] = arrived[k] * (1.0 - gain[k]) + came;
        }
        if arrived[..missing].iter().sum::<f64>() <= REPAIR_FAILURE_MAX {
            return sent;
        }
    }
    most
}

/// Like [`repair_packets`], by the normal approximation: of n packets n p arrive, with a variance
/// of n p (1 - p), and a few extra make up for linear dependence.
fn repair_packets_about(through: f64, field: FieldOrder, missing: usize) -> usize {
    let needed = missing as f64 + REPAIR_FAILURE_BITS / f64::from(field.order()).log2();
    let spread = REPAIR_DEVIATIONS * (1.0 - through).sqrt();
    // n p - spread sqrt(n p) = needed
    let root = (spread + (spread * spread + 4.0 * needed).sqrt()) / 2.0;
    (root * root / through).ceil() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repairs_are_a_share_of_what_plans_send_and_a_reserve() {
        let mut budget = RepairBudget::new();
        let reserve: usize = (0..100).map(|_| budget.spend(256)).sum();
        assert_eq!(reserve, RESERVE_PACKETS as usize);
        budget.earn(100);
        assert_eq!(budget.spend(256), 50);
        assert_eq!(budget.spend(1), 0);
        assert_eq!(budget.grant(3, || unreachable!("it takes time")), (3, 0));
        budget.earn(100);
        assert_eq!(budget.grant(3, || 60), (60, 50));
    }

    #[test]
    fn repair_over_a_clean_path_is_barely_more_than_what_is_missing() {
        let packets = |missing| repair_packets(1.0, FieldOrder::TwoFiftySix, missing, 64);
        assert!((1..=2).contains(&packets(1)));
        assert!((16..=18).contains(&packets(16)));
    }

    #[test]
    fn long_repairs_are_counted_about_as_short_ones() {
        for through in [0.5, 0.8, 0.9, 0.99] {
            for field in [FieldOrder::Two, FieldOrder::TwoFiftySix] {
                let exact = repair_packets(through, field, EXACT_MAX, 1000) as f64;
                let about = repair_packets_about(through, field, EXACT_MAX) as f64;
                assert!((0.9..1.3).contains(&(about / exact)), "{about} for {exact}");
            }
        }
    }

    #[test]
    fn repair_never_exceeds_its_cap() {
        assert_eq!(repair_packets(0.01, FieldOrder::Sixteen, 16, 64), 64);
    }

    #[test]
    fn repair_over_a_small_field_allows_for_packets_that_bring_nothing_new() {
        // With one missing over GF(2), half of the packets help: ten fail less than once in a
        // thousand.
        assert_eq!(repair_packets(1.0, FieldOrder::Two, 1, 64), 10);
        assert!((24..=30).contains(&repair_packets(1.0, FieldOrder::Two, 16, 64)));
    }
}
