//! Bitmap of the newest places of a hop, set when received or recovered. It covers more places than
//! the equations.

use recoded_wire::stream::STREAM_LOG2_MAX;

/// Places tracked.
const PLACES: u32 = 1 << STREAM_LOG2_MAX;

const WORDS: usize = (PLACES / u64::BITS) as usize;

/// Words scanned per call.
const LOOK: usize = 32;

/// The newest places.
#[derive(Debug)]
pub(crate) struct ReceivedBitmap {
    bits: Box<[u64; WORDS]>,
    /// Every place before this one is set, or too old.
    settled: u32,
    /// The place after the newest.
    end: Option<u32>,
    /// Start of the next scan: some places may stay missing for good.
    turn: u32,
}

impl ReceivedBitmap {
    /// Allocated bytes.
    pub(crate) const BYTES: usize = WORDS * size_of::<u64>();

    pub(crate) fn new() -> Self {
        Self { bits: Box::new([0; WORDS]), settled: 0, end: None, turn: 0 }
    }

    /// The place after the newest; `None` before the first.
    pub(crate) fn end(&self) -> Option<u32> {
        self.end
    }

    /// Restarts at `next`.
    pub(crate) fn begin(&mut self, next: u32) {
        (self.settled, self.end, self.turn) = (next, Some(next), next);
        self.bits.fill(0);
    }

    /// Extends the range to all places before `end`, if that is ahead. Steps: the new places, at
    /// most one table's worth.
    pub(crate) fn hear(&mut self, end: u32) {
        let news = end.wrapping_sub(self.end.unwrap_or(end));
        if news.cast_signed() <= 0 {
            return;
        }
        for back in 1..=news.min(PLACES) {
            let (word, bit) = at(end.wrapping_sub(back));
            self.bits[word] &= !bit;
        }
        self.end = Some(end);
        if end.wrapping_sub(self.settled) > PLACES {
            self.settled = end.wrapping_sub(PLACES);
        }
    }

    /// Marks a place as received or recovered.
    pub(crate) fn set(&mut self, place: u32) {
        if self.end.is_some_and(|end| (1..=PLACES).contains(&end.wrapping_sub(place))) {
            let (word, bit) = at(place);
            self.bits[word] |= bit;
        }
    }

    /// Marks a place as missing after all.
    pub(crate) fn unset(&mut self, place: u32) {
        let (word, bit) = at(place);
        self.bits[word] &= !bit;
        if self.settled.wrapping_sub(place) <= PLACES {
            self.settled = place;
        }
    }

    /// Up to `MOST` missing places, in rotation, so that each is reported repeatedly while it stays
    /// missing.
    pub(crate) fn missing<const MOST: usize>(&mut self) -> impl Iterator<Item = u32> + use<MOST> {
        let end = self.end.unwrap_or(self.settled);
        for _ in 0..LOOK {
            let (word, bit) = at(self.settled);
            let is_first = bit == 1;
            let left = end.wrapping_sub(self.settled);
            if is_first && left >= u64::BITS && self.bits[word] == u64::MAX {
                self.settled = self.settled.wrapping_add(u64::BITS);
            } else {
                let steps = (u64::BITS - bit.trailing_zeros()).min(left);
                let had = (!self.bits[word] >> bit.trailing_zeros()).trailing_zeros();
                self.settled = self.settled.wrapping_add(had.min(steps));
                if had < steps || steps == left {
                    break;
                }
            }
        }
        // The range grows with every packet: a scan that restarted only on reaching the newest
        // place would report each place once.
        if self.turn.wrapping_sub(self.settled) >= end.wrapping_sub(self.settled) {
            self.turn = self.settled;
        }
        let (mut found, mut count) = ([0; MOST], 0);
        for _ in 0..LOOK as u32 * u64::BITS {
            if self.turn == end {
                self.turn = self.settled;
                break;
            }
            if count == MOST {
                break;
            }
            let (word, bit) = at(self.turn);
            if bit == 1 && self.bits[word] == u64::MAX && end.wrapping_sub(self.turn) >= u64::BITS {
                self.turn = self.turn.wrapping_add(u64::BITS);
                continue;
            }
            if !self.has(self.turn) {
                found[count] = self.turn;
                count += 1;
            }
            self.turn = self.turn.wrapping_add(1);
        }
        found.into_iter().take(count)
    }

    fn has(&self, place: u32) -> bool {
        let (word, bit) = at(place);
        self.bits[word] & bit != 0
    }
}

fn at(place: u32) -> (usize, u64) {
    let place = place % PLACES;
    ((place / u64::BITS) as usize, 1 << (place % u64::BITS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_missing_is_what_was_not_set(
            first: u32, count in 1u32..2000, lost in prop::collection::btree_set(0u32..2000, 0..9),
        ) {
            let mut had = ReceivedBitmap::new();
            had.begin(first);
            had.hear(first.wrapping_add(count));
            for place in (0..count).filter(|place| !lost.contains(place)) {
                had.set(first.wrapping_add(place));
            }
            let expected: Vec<u32> = lost.iter().filter(|place| **place < count).copied().collect();
            let found: Vec<u32> = had.missing::<9>().map(|place| place.wrapping_sub(first)).collect();
            prop_assert_eq!(found, expected.clone());
            for place in expected {
                had.set(first.wrapping_add(place));
            }
            prop_assert_eq!(had.missing::<9>().count(), 0);
        }
    }

    /// All subsets of twelve places, at the ends of words, of the table and of the numbers.
    #[test]
    fn any_subset_of_twelve_places_is_missing_exactly() {
        for first in [0, 58, 64, PLACES - 5, u32::MAX - 11, u32::MAX - 5, u32::MAX] {
            let mut had = ReceivedBitmap::new();
            for subset in 0..1u32 << 12 {
                had.begin(first);
                had.hear(first.wrapping_add(12));
                let is_set = |place: &u32| subset >> place & 1 != 0;
                (0..12).filter(is_set).for_each(|place| had.set(first.wrapping_add(place)));
                let missing = had.missing::<12>().map(|place| place.wrapping_sub(first));
                let expected = (0..12).filter(|place| !is_set(place));
                assert!(missing.eq(expected), "{subset:#b} from {first}");
            }
        }
    }

    #[test]
    fn what_is_too_old_is_not_missed() {
        let mut had = ReceivedBitmap::new();
        had.begin(5);
        had.hear(6);
        assert_eq!(had.missing::<7>().collect::<Vec<_>>(), [5]);
        had.hear(6 + PLACES);
        assert_eq!(had.missing::<7>().next(), Some(6));
    }

    /// Regression: places were reported repeatedly only if nothing arrived between two reports.
    /// Under traffic, symbols not recovered from combinations were lost for good, and a TCP flow
    /// waited for them until the window had passed.
    #[test]
    fn what_stays_missing_is_told_again_while_others_come() {
        let mut had = ReceivedBitmap::new();
        had.begin(0);
        let mut told = 0;
        for end in 1..5000 {
            had.hear(end);
            if end != 101 {
                had.set(end - 1);
            }
            told += usize::from(had.missing::<7>().any(|place| place == 100));
        }
        assert!(told > 1000, "{told} times");
    }
}
