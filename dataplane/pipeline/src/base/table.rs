//! Numbered tables: units found by number modulo the size of the table, as used by relays and
//! sources.
//!
//! ```text
//!  number % len ─► entry      occupied: a bit per entry, the oldest is found in len / 64 steps
//! ```
//!
//! Entries are allocated once, with all their memory, and reused.

use std::ops::{Index, IndexMut};

/// Entries, and a bit for each that is in use.
#[derive(Debug)]
pub(crate) struct Table<T> {
    entries: Vec<T>,
    occupied: Vec<u64>,
    held: usize,
}

impl<T> Table<T> {
    /// A table of these entries, none in use.
    ///
    /// # Panics
    /// When there are no entries.
    pub(crate) fn new(entries: impl Iterator<Item = T>) -> Self {
        let entries: Vec<T> = entries.collect();
        assert!(!entries.is_empty(), "a table has entries");
        let words = entries.len().div_ceil(u64::BITS as usize);
        Self { entries, occupied: vec![0; words], held: 0 }
    }

    /// Entries, in use or not.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Place of unit `number`.
    pub(crate) fn index(&self, number: u32) -> usize {
        number as usize % self.entries.len()
    }

    /// Entries in use.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// Whether an entry is in use.
    pub(crate) fn is_held(&self, index: usize) -> bool {
        let (word, bit) = place(index);
        self.occupied[word] & bit != 0
    }

    /// Notes that an entry is in use.
    pub(crate) fn hold(&mut self, index: usize) {
        let (word, bit) = place(index);
        self.held += usize::from(self.occupied[word] & bit == 0);
        self.occupied[word] |= bit;
    }

    /// Notes that an entry is free.
    pub(crate) fn free(&mut self, index: usize) {
        let (word, bit) = place(index);
        self.held -= usize::from(self.occupied[word] & bit != 0);
        self.occupied[word] &= !bit;
    }

    /// The first entry in use from place `from` on.
    pub(crate) fn next_held(&self, from: usize) -> Option<usize> {
        let (first, bit) = place(from);
        let mut word = first;
        let mut bits = *self.occupied.get(word)? & !(bit - 1);
        while bits == 0 {
            word += 1;
            bits = *self.occupied.get(word)?;
        }
        Some(word * u64::BITS as usize + bits.trailing_zeros() as usize)
    }

    /// The entry in use whose unit comes first after `newest`, around the table: the oldest, if
    /// units are at most a table apart.
    pub(crate) fn oldest(&self, newest: u32) -> Option<usize> {
        let after = self.index(newest) + 1;
        self.next_held(after).or_else(|| self.next_held(0))
    }
}

impl<T> Index<usize> for Table<T> {
    type Output = T;

    fn index(&self, index: usize) -> &T {
        &self.entries[index]
    }
}

impl<T> IndexMut<usize> for Table<T> {
    fn index_mut(&mut self, index: usize) -> &mut T {
        &mut self.entries[index]
    }
}

fn place(index: usize) -> (usize, u64) {
    (index / u64::BITS as usize, 1 << (index % u64::BITS as usize))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_held_is_what_was_held_and_not_freed(
            len in 1usize..200,
            steps in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 0..400),
            newest: u32,
        ) {
            let mut table = Table::new(0..len);
            let mut truth = vec![false; len];
            for (index, hold) in steps {
                let index = index.index(len);
                if hold { table.hold(index) } else { table.free(index) }
                truth[index] = hold;
            }
            prop_assert_eq!(table.held(), truth.iter().filter(|held| **held).count());
            let around = (1..=len).map(|step| (table.index(newest) + step) % len);
            prop_assert_eq!(table.oldest(newest), around.into_iter().find(|index| truth[*index]));
            for (index, held) in truth.iter().enumerate() {
                prop_assert_eq!(table.is_held(index), *held);
            }
        }
    }
}
