//! Link sequence numbers as they arrive from one neighbour: what is new, what was lost, what is a
//! replay.
//!
//! Numbers run per entropy bucket (see `recoded_wire::entropy`), so that a queue that sees only
//! some of a flow's buckets still sees no gap that is not a loss.
//!
//! ```text
//!   older: out of range |  window: seen or not, a bit each  | newest | ahead: a gap | out of range
//! ```
//!
//! Numbers out of range come from a neighbour that restarted, since it draws its first numbers at
//! random, or they are replays. They are believed once two in order have come while nothing in
//! range did for a while.

use crate::params::Nanos;
use recoded_wire::entropy::BUCKETS;

/// Numbers behind the newest that are told apart: packets that are overtaken by more are dropped.
/// At 300 Mbit/s over 16 buckets this is half a second.
const WINDOW: u32 = 1024;

const WORDS: usize = WINDOW as usize / u64::BITS as usize;

/// A gap wider than this is a sender that restarted, not a loss.
const GAP_MAX: u32 = 1 << 14;

/// A neighbour that restarted has been silent for this long.
const SILENCE_NANOS: Nanos = 20_000_000;

/// What an arrival is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Arrived {
    /// The first of a life of the neighbour.
    First,
    /// Newer than all before it; so many between were not seen.
    Newer { lost: u32 },
    /// Overtaken by others, and counted as lost before.
    Late,
    /// Seen before, or too old to tell.
    Replayed,
}

#[derive(Clone, Debug)]
struct Bucket {
    newest: u32,
    /// Bit `number % WINDOW`: whether a number of the window was seen.
    seen: [u64; WORDS],
}

/// The numbers of one flow from one neighbour.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sequences {
    buckets: [Option<Bucket>; BUCKETS],
    /// The newest number out of range, and its bucket.
    out_of_range: Option<(usize, u32)>,
    /// When the last number in range arrived.
    in_range_at: Nanos,
}

impl Sequences {
    /// Notes the number of a packet.
    pub(crate) fn arrived(&mut self, bucket: usize, number: u32, now: Nanos) -> Arrived {
        if self.buckets[bucket].is_none() {
            // Senders start all buckets at the same number, and fill them in turns.
            let mut known = self.buckets.iter().flatten().peekable();
            if known.peek().is_some() && !known.any(|other| other.is_near(number)) {
                return self.note_out_of_range(bucket, number, now);
            }
        }
        let Some(known) = &mut self.buckets[bucket] else {
            self.buckets[bucket] = Some(Bucket::starting(number));
            self.in_range_at = now;
            return Arrived::First;
        };
        let ahead = number.wrapping_sub(known.newest);
        let behind = known.newest.wrapping_sub(number);
        let arrived = if behind < WINDOW {
            if known.set(number) { Arrived::Late } else { return Arrived::Replayed }
        } else if ahead <= GAP_MAX {
            known.advance(number);
            Arrived::Newer { lost: ahead - 1 }
        } else {
            return self.note_out_of_range(bucket, number, now);
        };
        self.in_range_at = now;
        self.out_of_range = None;
        arrived
    }

    fn note_out_of_range(&mut self, bucket: usize, number: u32, now: Nanos) -> Arrived {
        let before = self.out_of_range.replace((bucket, number));
        let follows = before.is_some_and(|(known, before)| {
            known == bucket && (1..WINDOW).contains(&number.wrapping_sub(before))
        });
        if !follows || now < self.in_range_at.saturating_add(SILENCE_NANOS) {
            return Arrived::Replayed;
        }
        // All buckets start anew with the neighbour.
        self.buckets = Default::default();
        self.buckets[bucket] = Some(Bucket::starting(number));
        self.out_of_range = None;
        self.in_range_at = now;
        Arrived::First
    }
}

impl Bucket {
    fn starting(number: u32) -> Self {
        let mut bucket = Self { newest: number, seen: [0; WORDS] };
        bucket.set(number);
        bucket
    }

    /// Whether a number of another bucket may be of the same life.
    fn is_near(&self, number: u32) -> bool {
        number.wrapping_sub(self.newest).cast_signed().unsigned_abs() <= GAP_MAX
    }

    /// Notes a number of the window. Whether it is the first time.
    fn set(&mut self, number: u32) -> bool {
        let (word, bit) = place(number);
        let is_new = self.seen[word] & bit == 0;
        self.seen[word] |= bit;
        is_new
    }

    /// Notes that `count` numbers from `first` on, less than a window, were not seen: word by word.
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
            sequences.arrived(3, start, 0);
            let number = |step: u32| start.wrapping_add(1 + step);
            for step in &order {
                prop_assert_ne!(sequences.arrived(3, number(*step), 0), Arrived::Replayed);
            }
            for step in &order {
                prop_assert_eq!(sequences.arrived(3, number(*step), 0), Arrived::Replayed);
            }
        }
    }

    #[test]
    fn gaps_are_losses_until_the_missing_arrive() {
        let mut sequences = Sequences::default();
        assert_eq!(sequences.arrived(0, 7, 0), Arrived::First);
        assert_eq!(sequences.arrived(0, 10, 0), Arrived::Newer { lost: 2 });
        assert_eq!(sequences.arrived(0, 9, 0), Arrived::Late);
        assert_eq!(sequences.arrived(0, 9, 0), Arrived::Replayed);
        assert_eq!(sequences.arrived(0, 11, 0), Arrived::Newer { lost: 0 });
    }

    /// A relay once passed on every copy of one stale packet.
    #[test]
    fn a_stale_packet_repeated_never_passes() {
        let mut sequences = Sequences::default();
        for number in 0..20_000 {
            sequences.arrived(0, number, u64::from(number) * 10_000);
        }
        for copy in 0..1000 {
            let now = 200 * MILLI + copy * MILLI;
            assert_eq!(sequences.arrived(0, 5, now), Arrived::Replayed);
        }
    }

    #[test]
    fn a_forged_number_is_not_where_a_bucket_begins() {
        let mut sequences = Sequences::default();
        sequences.arrived(0, 500, 0);
        assert_eq!(sequences.arrived(1, 1 << 20, 0), Arrived::Replayed);
        assert_eq!(sequences.arrived(1, 490, 0), Arrived::First);
    }

    #[test]
    fn a_neighbour_that_restarts_is_believed_at_its_second_packet() {
        let mut sequences = Sequences::default();
        for number in 0..100 {
            sequences.arrived(0, number, 0);
        }
        assert_eq!(sequences.arrived(0, 1 << 30, 50 * MILLI), Arrived::Replayed);
        assert_eq!(sequences.arrived(0, (1 << 30) + 1, 50 * MILLI), Arrived::First);
        assert_eq!(sequences.arrived(5, (1 << 30) - 9, 50 * MILLI), Arrived::First);
        // Not so while the one that is known still sends.
        sequences.arrived(0, (1 << 30) + 2, 60 * MILLI);
        for number in 0..10 {
            assert_eq!(sequences.arrived(0, 9000 + number, 61 * MILLI), Arrived::Replayed);
        }
    }
}
