//! Arrivals of packets by the half of a comparison that they were sent in: segmented bursts
//! (UDP_SEGMENT), or one by one.
//!
//! The half follows from the clock, so that the sending socket and the account of sent packets
//! agree without communication:
//!
//! ```text
//!  | segmented | single || single | segmented || segmented | single || ...   34 ms each
//! ```
//!
//! Which half of a pair comes first is pseudorandom, so that loss at regular intervals affects
//! both. The counts are meaningful while a socket alternates; other callers ignore them.

use crate::config::params::Nanos;

/// Logarithm of the length of a half, 34 ms: long compared with a burst, so that most packets are
/// sent in the middle of one, and short compared with changes of the link.
const HALF_LOG2: u32 = 25;

/// Whether packets are now sent one by one.
#[inline]
pub fn is_single(now: Nanos) -> bool {
    let half = now >> HALF_LOG2;
    // SplitMix64: with one multiplication only, the top bit nearly repeats.
    let mixed = (half >> 1).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    let is_swapped = mixed >> 63 == 1;
    (half & 1 == 1) != is_swapped
}

/// Packets whose fate was reported.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct Totals {
    /// Those that arrived.
    pub arrived: u32,
    /// Those that did not.
    pub lost: u32,
}

impl Totals {
    /// All of them.
    pub fn packets(&self) -> u32 {
        self.arrived.saturating_add(self.lost)
    }

    /// Share of lost packets.
    pub fn loss(&self) -> f64 {
        f64::from(self.lost) / f64::from(self.packets().max(1))
    }

    fn add(&mut self, other: &Totals) {
        self.arrived = self.arrived.saturating_add(other.arrived);
        self.lost = self.lost.saturating_add(other.lost);
    }
}

/// Packets whose fate was reported, by the half that they were sent in.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct Comparison {
    /// Packets sent in halves of segmented bursts.
    pub segmented: Totals,
    /// Packets sent one by one.
    pub single: Totals,
}

impl Comparison {
    /// Notes the fate of a packet that was sent at `at`.
    #[inline]
    pub(crate) fn note(&mut self, at: Nanos, is_lost: bool) {
        let totals = if is_single(at) { &mut self.single } else { &mut self.segmented };
        let count = if is_lost { &mut totals.lost } else { &mut totals.arrived };
        *count = count.saturating_add(1);
    }

    /// Adds another comparison.
    pub fn add(&mut self, other: &Comparison) {
        self.segmented.add(&other.segmented);
        self.single.add(&other.single);
    }

    /// Both halves.
    pub fn all(&self) -> Totals {
        let mut all = self.segmented;
        all.add(&self.single);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pair_has_both_halves_in_an_order_that_does_not_repeat() {
        let halves: Vec<bool> = (0..2000u64).map(|half| is_single(half << HALF_LOG2)).collect();
        assert!(halves.chunks(2).all(|pair| pair[0] != pair[1]));
        for period in 1..20 {
            let same = halves.chunks(2).zip(halves.chunks(2).skip(period));
            let same = same.filter(|(one, other)| one[0] == other[0]).count();
            assert!((100..900).contains(&same), "pairs {period} apart: {same}");
        }
        let end = (1 << HALF_LOG2) - 1;
        assert!(
            (0..100)
                .all(|half: u64| is_single(half << HALF_LOG2)
                    == is_single((half << HALF_LOG2) + end))
        );
    }

    #[test]
    fn counts_of_both_halves_add_up() {
        let (mut sum, mut one) = (Comparison::default(), Comparison::default());
        for number in 0..1000u64 {
            one.note(number << 24, number % 5 == 0);
        }
        sum.add(&one);
        sum.add(&one);
        assert_eq!(sum.all(), Totals { arrived: 1600, lost: 400 });
        assert!((sum.all().loss() - 0.2).abs() < 1e-9);
        assert_eq!(sum.single.packets(), 1000);
        one.single.lost = u32::MAX;
        sum.add(&one);
        assert_eq!(sum.single.lost, u32::MAX, "reports may say anything");
    }
}
