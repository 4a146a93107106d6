//! Link sequence numbers as they arrive from one neighbour: what is new, what was lost, what is a
//! replay.
//!
//! Numbers run per shard (see `recoded_wire::shard`), so that a queue that sees only some of a
//! flow's shards still sees no gap that is not a loss.
//!
//! ```text
//!   older: out of range |  window: seen or not, a bit each  | newest | ahead: a gap | out of range
//! ```
//!
//! Numbers out of range come from a neighbour that restarted, since it draws its first numbers at
//! random, or they are replays. They are believed once two in order have come while nothing in
//! range did for a while.

use crate::params::Nanos;

/// Numbers behind the newest that are told apart: packets that are overtaken by more are dropped.
/// At 1 Gbit/s in one shard this is a fifth of a second.
const WINDOW: u32 = 1 << 14;

const WORDS: usize = WINDOW as usize / u64::BITS as usize;

/// A gap wider than this is a sender that restarted, not a loss. No more than a window: after a
/// forged number of the future, those of the present are still told apart.
const GAP_MAX: u32 = WINDOW;

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

/// The numbers seen.
#[derive(Clone, Debug)]
struct Seen {
    newest: u32,
    /// Bit `number % WINDOW`: whether a number of the window was seen.
    seen: [u64; WORDS],
}

/// The link sequence numbers of one shard from one neighbour.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sequences {
    seen: Option<Seen>,
    /// The newest number out of range.
    out_of_range: Option<u32>,
    /// When the last number in range arrived.
    in_range_at: Nanos,
}

impl Sequences {
    /// Notes the number of a packet.
    pub(crate) fn arrived(&mut self, number: u32, now: Nanos) -> Arrived {
        let Some(known) = &mut self.seen else { return self.begin(number, now) };
        let ahead = number.wrapping_sub(known.newest);
        let behind = known.newest.wrapping_sub(number);
        let arrived = if behind < WINDOW {
            if known.set(number) { Arrived::Late } else { return Arrived::Replayed }
        } else if ahead <= GAP_MAX {
            known.advance(number);
            Arrived::Newer { lost: ahead - 1 }
        } else {
            return self.note_out_of_range(number, now);
        };
        self.in_range_at = now;
        self.out_of_range = None;
        arrived
    }

    /// Starts at the first number of a life of the neighbour.
    fn begin(&mut self, number: u32, now: Nanos) -> Arrived {
        self.seen = Some(Seen::starting(number));
        self.out_of_range = None;
        self.in_range_at = now;
        Arrived::First
    }

    fn note_out_of_range(&mut self, number: u32, now: Nanos) -> Arrived {
        let before = self.out_of_range.replace(number);
        let follows =
            before.is_some_and(|before| (1..WINDOW).contains(&number.wrapping_sub(before)));
        if !follows || now < self.in_range_at.saturating_add(SILENCE_NANOS) {
            return Arrived::Replayed;
        }
        self.begin(number, now)
    }
}

impl Seen {
    fn starting(number: u32) -> Self {
        let mut seen = Self { newest: number, seen: [0; WORDS] };
        seen.set(number);
        seen
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

    #[test]
    fn gaps_are_losses_until_the_missing_arrive() {
        let mut sequences = Sequences::default();
        assert_eq!(sequences.arrived(7, 0), Arrived::First);
        assert_eq!(sequences.arrived(10, 0), Arrived::Newer { lost: 2 });
        assert_eq!(sequences.arrived(9, 0), Arrived::Late);
        assert_eq!(sequences.arrived(9, 0), Arrived::Replayed);
        assert_eq!(sequences.arrived(11, 0), Arrived::Newer { lost: 0 });
    }

    /// A relay once passed on every copy of one stale packet.
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
        // Not so while the one that is known still sends.
        sequences.arrived((1 << 30) + 2, 60 * MILLI);
        for number in 0..10 {
            assert_eq!(sequences.arrived(9000 + number, 61 * MILLI), Arrived::Replayed);
        }
    }
}
