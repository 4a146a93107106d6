//! Moments shared by all senders of one node through its clock.
//!
//! Several senders on one link detect competing traffic by sending less for a while. If only one
//! does, the others use the room it leaves; if all do at once, they see the queue drain.

use crate::config::params::Nanos;

/// Whether one of the moments, one per `period`, lies between two times. Periods are rounded up to
/// powers of two, so that the moments of a longer period are among those of a shorter one: senders
/// with different round trips still coincide.
pub(crate) fn has_passed(before: Nanos, now: Nanos, period: Nanos) -> bool {
    let period = period.clamp(1, 1 << 62).next_power_of_two();
    before / period != now / period
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn senders_of_different_periods_and_steps_meet() {
        let moments = |period: Nanos, step: Nanos| {
            let times = (1..20_000).map(move |number| number * step);
            times.filter(move |now| has_passed(now - step, *now, period)).collect::<Vec<_>>()
        };
        let (short, long) = (moments(250, 7), moments(900, 11));
        assert!(short.len() > 100 && long.len() > 100);
        for moment in long.iter().filter(|moment| **moment < 130_000) {
            assert!(short.iter().any(|other| other.abs_diff(*moment) <= 11), "{moment}");
        }
    }

    #[test]
    fn no_clock_and_no_period_is_too_long() {
        assert!(!has_passed(u64::MAX, u64::MAX, u64::MAX));
        assert!(has_passed(0, u64::MAX, u64::MAX));
        assert!(has_passed(1, 0, 0));
    }
}
