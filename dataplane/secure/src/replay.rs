//! The window of counters that have been seen, after RFC 6479: a ring of words with one word always
//! partly ahead, so that moving it clears words instead of shifting bits.

/// Bits of a word.
const WORD: u64 = 64;

/// Record of accepted counters. It moves only after a tag was verified.
#[derive(Clone, Debug)]
pub struct ReplayWindow {
    /// One more than the highest accepted counter; 0 before the first.
    next: u64,
    /// Bit `c % 64` of word `c / 64`, modulo the words, is whether `c` was accepted.
    words: Box<[u64]>,
}

impl ReplayWindow {
    /// A window of at least `packets` counters.
    #[must_use]
    pub fn new(packets: usize) -> Self {
        let words = (packets.div_ceil(WORD as usize) + 1).next_power_of_two();
        Self { next: 0, words: vec![0; words].into() }
    }

    /// Maximum distance of a counter behind the newest.
    #[must_use]
    pub fn packets(&self) -> u64 {
        (self.words.len() as u64 - 1) * WORD
    }

    /// One more than the highest accepted counter.
    #[must_use]
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// Whether a counter would be accepted.
    #[must_use]
    pub fn is_fresh(&self, counter: u64) -> bool {
        if counter >= self.next {
            return counter < u64::MAX;
        }
        self.next - counter <= self.packets() && self.words[self.word(counter)] & bit(counter) == 0
    }

    /// Accepts a counter, once; returns whether it was fresh.
    pub fn accept(&mut self, counter: u64) -> bool {
        if !self.is_fresh(counter) {
            return false;
        }
        if counter >= self.next {
            // Words between that of the highest and that of the counter hold counters that have
            // left the window.
            let first = self.next.div_ceil(WORD);
            let last = (counter / WORD).min(first.saturating_add(self.words.len() as u64));
            for word in first..=last {
                let place = (word % self.words.len() as u64) as usize;
                self.words[place] = 0;
            }
            if counter / WORD > last {
                self.words.fill(0);
            }
            self.next = counter + 1;
        }
        let place = self.word(counter);
        self.words[place] |= bit(counter);
        true
    }

    fn word(&self, counter: u64) -> usize {
        (counter / WORD % self.words.len() as u64) as usize
    }
}

const fn bit(counter: u64) -> u64 {
    1 << (counter % WORD)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// Steps forward and back of every size that a window of 128 handles differently.
    fn counters() -> impl Strategy<Value = Vec<u64>> {
        let step = prop_oneof![0..70_u64, 100..300_u64, Just(1_u64 << 40)];
        let walk = (step, 0..400_u64);
        proptest::collection::vec(walk, 1..200).prop_map(|walk| {
            let mut highest = 0_u64;
            let counter = |(step, back): (u64, u64)| {
                highest += step;
                highest.saturating_sub(back)
            };
            walk.into_iter().map(counter).collect()
        })
    }

    proptest! {
        #[test]
        fn counters_in_any_order_are_accepted_once_and_within_the_window(counters in counters()) {
            let mut window = ReplayWindow::new(128);
            let mut accepted = BTreeSet::new();
            for counter in counters {
                let highest = accepted.last().copied();
                let late = highest.is_some_and(|h: u64| h + 1 > counter + window.packets());
                let fresh = !late && !accepted.contains(&counter);
                prop_assert_eq!(window.is_fresh(counter), fresh);
                prop_assert_eq!(window.accept(counter), fresh);
                accepted.extend(fresh.then_some(counter));
                prop_assert!(!window.is_fresh(counter));
            }
        }
    }

    /// All orders of any three counters of two words and a half, at the smallest window.
    #[test]
    fn any_three_counters_are_accepted_once_and_within_the_window() {
        const COUNTERS: u64 = 160;
        for code in 0..COUNTERS.pow(3) {
            let counters = [code, code / COUNTERS, code / COUNTERS / COUNTERS];
            let counters = counters.map(|counter| counter % COUNTERS);
            let mut window = ReplayWindow::new(1);
            let packets = window.packets();
            for (place, counter) in counters.into_iter().enumerate() {
                let before = &counters[..place];
                // A counter that was too late may equal one that was accepted later.
                let newest = before.iter().copied().max();
                let late = newest.is_some_and(|newest| newest + 1 > counter + packets);
                let fresh = !late && !before.contains(&counter);
                assert_eq!(window.accept(counter), fresh, "{counters:?}, {counter}");
            }
        }
    }

    #[test]
    fn the_last_counter_is_never_accepted() {
        let mut window = ReplayWindow::new(64);
        assert!(!window.accept(u64::MAX));
        assert!(window.accept(u64::MAX - 1));
        assert!(!window.accept(0));
    }
}
