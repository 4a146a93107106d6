//! Link sequence numbers as they arrive from one neighbour: detects new packets, losses and
//! replays.
//!
//! Numbers run per shard (see `recoded_wire::shard`), so that a queue that sees only some of a
//! flow's shards still sees no gap that is not a loss.
//!
//! ```text
//!   older: out of range |  window: seen or not, a bit each  | newest | ahead: a gap | out of range
//! ```
//!
//! Numbers out of range come from a restarted neighbour, which draws its first number at random, or
//! are forged or replayed. They begin a second life alongside the known one when two arrive in
//! order after it has been silent for a while, or when they arrive more often. Packets of both
//! lives pass, so an attacker that sends during a pause cannot lock the neighbour out; a third life
//! replaces the weaker one.

use crate::config::params::Nanos;

/// Numbers tracked behind the newest: packets reordered by more are dropped. At 1 Gbit/s in one
/// shard this is a fifth of a second.
const WINDOW: u32 = 1 << 14;

const WORDS: usize = WINDOW as usize / u64::BITS as usize;

/// A wider gap means a restarted sender, not a loss. No more than a window: after a forged future
/// number, current ones are still told apart.
const GAP_MAX: u32 = WINDOW;

/// A restarted neighbour has been silent for at least this long: a worker that panicked is down for
/// two milliseconds, a process for much longer. Shorter pauses occur between packets of many flows;
/// an attacker that sends in one only begins a life of its own.
const SILENCE_NANOS: Nanos = 8_000_000;

/// Half-life of arrivals when lives are compared.
const HALF_NANOS: Nanos = 500_000_000;

/// Classification of an arrival.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Arrived {
    /// The first of a life of the neighbour.
    First,
    /// Newer than all previous ones; `lost` numbers in between were not seen.
    Newer { lost: u32 },
    /// Reordered, and counted as lost before.
    Late,
    /// Seen before, or too old to tell.
    Replayed,
}

/// The numbers seen.
#[derive(Clone, Debug)]
struct ReceivedNumbers {
    newest: u32,
    /// Bit `number % WINDOW`: whether a number of the window was seen.
    seen: [u64; WORDS],
}

/// Recent arrivals, halved every [`HALF_NANOS`].
#[derive(Copy, Clone, Debug)]
struct Strength {
    count: u32,
    halved_at: Nanos,
}

/// A sequence of consecutive numbers.
#[derive(Clone, Debug)]
struct Life {
    seen: ReceivedNumbers,
    strength: Strength,
    heard_at: Nanos,
}

/// Candidate for a new life: the sequence that most out-of-range packets follow.
#[derive(Copy, Clone, Debug)]
struct LifeCandidate {
    newest: u32,
    strength: Strength,
}

/// The link sequence numbers of one shard from one neighbour.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sequences {
    lives: [Option<Life>; 2],
    trial: Option<LifeCandidate>,
}

impl Sequences {
    /// Records the number of a packet.
    pub(crate) fn arrived(&mut self, number: u32, now: Nanos) -> Arrived {
        for life in self.lives.iter_mut().flatten() {
            let Some(arrived) = life.seen.arrived(number) else { continue };
            if arrived != Arrived::Replayed {
                life.strength.add(now);
                life.heard_at = now;
            }
            return arrived;
        }
        let Some(strength) = self.try_out(number, now) else { return Arrived::Replayed };
        self.begin(Life { seen: ReceivedNumbers::starting(number), strength, heard_at: now });
        Arrived::First
    }

    /// Records a number out of range. Returns the strength of the life that it begins, if any.
    fn try_out(&mut self, number: u32, now: Nanos) -> Option<Strength> {
        let known = self.lives.iter().flatten().max_by_key(|life| life.rank(now));
        let Some(known) = known else { return Some(Strength::one(now)) };
        let trial = self
            .trial
            .get_or_insert(LifeCandidate { newest: number, strength: Strength::one(now) });
        if !(1..WINDOW).contains(&number.wrapping_sub(trial.newest)) {
            // The majority stays.
            trial.strength.count = trial.strength.at(now).saturating_sub(1);
            if trial.strength.count == 0 {
                *trial = LifeCandidate { newest: number, strength: Strength::one(now) };
            }
            return None;
        }
        trial.newest = number;
        trial.strength.add(now);
        let is_silent = now >= known.heard_at.saturating_add(SILENCE_NANOS);
        let strength = trial.strength;
        if !is_silent && strength.count <= known.strength.at(now) {
            return None;
        }
        self.trial = None;
        Some(strength)
    }

    /// Begins a life, replacing the weakest.
    fn begin(&mut self, life: Life) {
        let now = life.heard_at;
        let rank = |place: &&mut Option<Life>| place.as_ref().map(|life| life.rank(now));
        if let Some(place) = self.lives.iter_mut().min_by_key(rank) {
            *place = Some(life);
        }
    }
}

impl Life {
    /// Sort key of lives: recent strength, then the time of the newest packet.
    fn rank(&self, now: Nanos) -> (u32, Nanos) {
        (self.strength.at(now), self.heard_at)
    }
}

impl Strength {
    fn one(now: Nanos) -> Strength {
        Strength { count: 1, halved_at: now }
    }

    fn at(&self, now: Nanos) -> u32 {
        let halves = now.saturating_sub(self.halved_at) / HALF_NANOS;
        self.count.checked_shr(u32::try_from(halves).unwrap_or(u32::MAX)).unwrap_or(0)
    }

    fn add(&mut self, now: Nanos) {
        let halves = now.saturating_sub(self.halved_at) / HALF_NANOS;
        self.count = self.at(now).saturating_add(1);
        self.halved_at += halves * HALF_NANOS;
    }
}

impl ReceivedNumbers {
    fn starting(number: u32) -> Self {
        let mut seen = Self { newest: number, seen: [0; WORDS] };
        seen.set(number);
        seen
    }

    /// Records a number; `None` when it is out of range.
    fn arrived(&mut self, number: u32) -> Option<Arrived> {
        let ahead = number.wrapping_sub(self.newest);
        let behind = self.newest.wrapping_sub(number);
        if behind < WINDOW {
            return Some(if self.set(number) { Arrived::Late } else { Arrived::Replayed });
        }
        (ahead <= GAP_MAX).then(|| {
            self.advance(number);
            Arrived::Newer { lost: ahead - 1 }
        })
    }

    /// Records a number of the window. Returns whether it is new.
    fn set(&mut self, number: u32) -> bool {
        let (word, bit) = place(number);
        let is_new = self.seen[word] & bit == 0;
        self.seen[word] |= bit;
        is_new
    }

    /// Marks `count` numbers from `first` on, less than a window, as not seen, word by word.
    fn clear(&mut self, mut first: u32, mut count: u32) {
        while count > 0 {
            let (word, bit) = place(first);
            let run = count.min(u64::BITS - bit.trailing_zeros());
            let bits = if run == u64::BITS { u64::MAX } else { ((1 << run) - 1) * bit };
            self.seen[word] &= !bits;
            first = first.wrapping_add(run);
            count -= run;
        }
    }

    /// Moves the window up to `number`, which is ahead of it.
    fn advance(&mut self, number: u32) {
        let ahead = number.wrapping_sub(self.newest);
        if ahead >= WINDOW {
            self.seen = [0; WORDS];
        } else {
            self.clear(self.newest.wrapping_add(1), ahead);
        }
        self.newest = number;
        self.set(number);
    }
}

fn place(number: u32) -> (usize, u64) {
    let at = number % WINDOW;
    ((at / u64::BITS) as usize, 1 << (at % u64::BITS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MILLI: Nanos = 1_000_000;

    proptest! {
        #[test]
        fn every_number_passes_once(start: u32, order in Just((0u32..800).collect::<Vec<_>>()).prop_shuffle()) {
            let mut sequences = Sequences::default();
            sequences.arrived(start, 0);
            let number = |step: u32| start.wrapping_add(1 + step);
            for step in &order {
                prop_assert_ne!(sequences.arrived(number(*step), 0), Arrived::Replayed);
            }
            for step in &order {
                prop_assert_eq!(sequences.arrived(number(*step), 0), Arrived::Replayed);
            }
        }
    }

    /// All orders of seven numbers, at the wrap of numbers and of the window.
    #[test]
    fn any_order_of_seven_numbers_passes_each_once() {
        for start in [u32::MAX - 3, WINDOW - 4, u32::MAX - WINDOW - 2] {
            let mut known = Sequences::default();
            (1..=3).for_each(|back| _ = known.arrived(start.wrapping_sub(4 - back), 0));
            for order in 0..7u32.pow(7) {
                let digit = |place: u32| order / 7u32.pow(place) % 7;
                let is_order = (0..7).fold(0, |seen, place| seen | 1 << digit(place)) == 0x7F;
                if !is_order {
                    continue;
                }
                let mut sequences = known.clone();
                let number = |place: u32| start.wrapping_add(digit(place));
                let is_new = |place| sequences.arrived(number(place), 0) != Arrived::Replayed;
                assert!((0..7).all(is_new), "order {order} from {start}");
                let is_new = |place| sequences.arrived(number(place), 0) != Arrived::Replayed;
                assert!(!(0..7).any(is_new), "order {order} from {start}");
            }
        }
    }

    #[test]
    fn gaps_are_losses_until_the_missing_arrive() {
        let mut sequences = Sequences::default();
        assert_eq!(sequences.arrived(7, 0), Arrived::First);
        assert_eq!(sequences.arrived(10, 0), Arrived::Newer { lost: 2 });
        assert_eq!(sequences.arrived(9, 0), Arrived::Late);
        assert_eq!(sequences.arrived(9, 0), Arrived::Replayed);
        assert_eq!(sequences.arrived(11, 0), Arrived::Newer { lost: 0 });
    }

    /// Regression: a relay passed on every copy of one stale packet.
    #[test]
    fn a_stale_packet_repeated_never_passes() {
        let mut sequences = Sequences::default();
        for number in 0..20_000 {
            sequences.arrived(number, u64::from(number) * 10_000);
        }
        for copy in 0..1000 {
            let now = 200 * MILLI + copy * MILLI;
            assert_eq!(sequences.arrived(5, now), Arrived::Replayed);
        }
    }

    #[test]
    fn a_neighbour_that_restarts_is_believed_at_its_second_packet() {
        let mut sequences = Sequences::default();
        for number in 0..100 {
            sequences.arrived(number, 0);
        }
        assert_eq!(sequences.arrived(1 << 30, 50 * MILLI), Arrived::Replayed);
        assert_eq!(sequences.arrived((1 << 30) + 1, 50 * MILLI), Arrived::First);
        // Stragglers of the former life still pass; others do not while one life sends.
        assert_eq!(sequences.arrived(100, 55 * MILLI), Arrived::Newer { lost: 0 });
        sequences.arrived((1 << 30) + 2, 60 * MILLI);
        for number in 0..10 {
            assert_eq!(sequences.arrived((1 << 31) + number, 61 * MILLI), Arrived::Replayed);
        }
    }

    /// Regression: an attacker that began sending in a pause of 20 ms, and continued, locked the
    /// neighbour out.
    #[test]
    fn who_talks_in_pauses_does_not_lock_the_neighbour_out() {
        let (mut sequences, mut refused) = (Sequences::default(), 0);
        for milli in 0..10_000u32 {
            let now = u64::from(milli) * MILLI;
            // A new life every quarter of a second, with one number per 5 ms.
            if milli % 5 == 0 {
                sequences.arrived((milli / 250).wrapping_mul(0x9E37_79B1) + milli, now);
            }
            if milli % 200 < 150 && sequences.arrived(milli, now) == Arrived::Replayed {
                refused += 1;
            }
        }
        assert!(refused < 75, "{refused} of 7500");
    }

    /// A neighbour whose numbers were forgotten in a long silence recovers when it sends more than
    /// the lives begun meanwhile.
    #[test]
    fn the_neighbour_returns_once_it_sends_more_than_others() {
        let mut sequences = Sequences::default();
        for number in 0..1000 {
            sequences.arrived(number, 0);
        }
        for step in 0..1000u32 {
            let now = (60_000 + 10 * u64::from(step)) * MILLI;
            let life = if step < 500 { 1 << 30 } else { 1 << 31 };
            sequences.arrived(life + step, now);
            // Both lives continue.
            sequences.arrived((1 << 30) + 2000 + step, now);
        }
        let at = |number: u32| (70_000 + u64::from(number)) * MILLI;
        let other = |number: u32| (1 << 30) + 4000 + number / 10;
        let is_refused = |number: &u32| {
            sequences.arrived(other(*number), at(*number));
            sequences.arrived(1000 + number, at(*number)) == Arrived::Replayed
        };
        let refused = (0..2000u32).filter(is_refused).count();
        assert!(refused < 400, "{refused} of 2000");
    }
}
