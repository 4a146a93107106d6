//! Columns of the equations: the unknown symbols that they mention, in consecutive places.
//!
//! A row of an equation has a coefficient per column, not per symbol of the window. A symbol has a
//! column while an equation may mention it and it leads none, so the length of rows is the number
//! of missing equations: the deficit, which is small whenever decoding succeeds, whatever the
//! window.

/// Number of free columns that justifies no compaction.
const FREE_MIN: usize = 32;

/// No column, or no symbol.
const NONE: u16 = u16::MAX;

pub(super) struct Columns {
    /// By slot: its column.
    of: Box<[u16]>,
    /// By column: its slot.
    slots: Box<[u16]>,
    /// Columns in use lie before this one.
    width: usize,
    /// Columns before this one are in use.
    full: usize,
    used: usize,
    /// The latest moves of [`Columns::compact`]: source and destination.
    moves: Vec<(u16, u16)>,
}

impl Columns {
    /// For one symbol per slot, at most 2^15.
    pub fn new(slots: usize) -> Self {
        let none = vec![NONE; slots].into_boxed_slice();
        // At most half of them move to the other half.
        let moves = Vec::with_capacity(slots / 2);
        Self { of: none.clone(), slots: none, width: 0, full: 0, used: 0, moves }
    }

    pub const fn width(&self) -> usize {
        self.width
    }

    pub fn of(&self, slot: usize) -> Option<usize> {
        let column = self.of[slot];
        (column != NONE).then_some(usize::from(column))
    }

    /// The slot of a column in use.
    pub fn slot(&self, column: usize) -> usize {
        usize::from(self.slots[column])
    }

    /// The column of a slot, a free one if it has none.
    pub fn take(&mut self, slot: usize) -> usize {
        if let Some(column) = self.of(slot) {
            return column;
        }
        while self.full < self.width && self.slots[self.full] != NONE {
            self.full += 1;
        }
        let column = self.full;
        (self.slots[column], self.of[slot]) = (slot as u16, column as u16);
        self.width = self.width.max(column + 1);
        self.used += 1;
        column
    }

    /// Frees the column of a slot, if it has one. No equation mentions it any more.
    pub fn free(&mut self, slot: usize) {
        let Some(column) = self.of(slot) else { return };
        (self.slots[column], self.of[slot]) = (NONE, NONE);
        self.full = self.full.min(column);
        self.used -= 1;
        while self.width > 0 && self.slots[self.width - 1] == NONE {
            self.width -= 1;
        }
    }

    /// Frees all columns.
    pub fn clear(&mut self) {
        for slot in &mut self.slots[..self.width] {
            if *slot != NONE {
                self.of[usize::from(*slot)] = NONE;
                *slot = NONE;
            }
        }
        (self.width, self.full, self.used) = (0, 0, 0);
    }

    /// Moves the last columns to earlier free places if a quarter of the places is free, as happens
    /// when old symbols lead one after the other. Returns the moves, which all rows must follow.
    pub fn compact(&mut self) -> &[(u16, u16)] {
        self.moves.clear();
        if self.width - self.used <= (self.width / 4).max(FREE_MIN) {
            return &self.moves;
        }
        let free = (self.full..self.used).filter(|&column| self.slots[column] == NONE);
        let last = (self.used..self.width).filter(|&column| self.slots[column] != NONE);
        self.moves.extend(last.zip(free).map(|(from, to)| (from as u16, to as u16)));
        for &(from, to) in &self.moves {
            let slot = std::mem::replace(&mut self.slots[usize::from(from)], NONE);
            self.slots[usize::from(to)] = slot;
            self.of[usize::from(slot)] = to;
        }
        (self.width, self.full) = (self.used, self.used);
        &self.moves
    }
}

#[cfg(test)]
mod tests {
    use super::Columns;

    #[test]
    fn the_lowest_free_column_is_taken_and_the_width_shrinks() {
        let mut columns = Columns::new(8);
        assert_eq!([5, 6, 7, 5].map(|slot| columns.take(slot)), [0, 1, 2, 0]);
        assert_eq!((columns.width(), columns.slot(1), columns.of(4)), (3, 6, None));
        columns.free(6);
        assert_eq!((columns.width(), columns.of(6)), (3, None));
        assert_eq!([0, 1].map(|slot| columns.take(slot)), [1, 3]);
        columns.free(1);
        columns.free(1);
        assert_eq!(columns.width(), 3);
        columns.clear();
        assert_eq!((columns.width(), columns.of(7), columns.take(3)), (0, None, 0));
    }

    #[test]
    fn compacted_columns_are_those_that_were_in_use() {
        let mut columns = Columns::new(256);
        (0..256).for_each(|slot| assert_eq!(columns.take(slot), slot));
        (0..64).for_each(|slot| columns.free(slot));
        assert!(columns.compact().is_empty() && columns.width() == 256);
        (64..256).step_by(3).for_each(|slot| columns.free(slot));
        let moves = columns.compact().to_vec();
        assert!(moves.iter().all(|(from, to)| (128..256).contains(from) && *to < 128));
        assert_eq!(columns.width(), 128);
        let used = (64..256).filter(|slot| slot % 3 != 1);
        let mut found: Vec<_> = (0..128).map(|column| columns.slot(column)).collect();
        for (column, &slot) in found.iter().enumerate() {
            assert_eq!(columns.of(slot), Some(column));
            assert!(column == slot || moves.contains(&(slot as u16, column as u16)));
        }
        found.sort_unstable();
        assert!(found.into_iter().eq(used));
        assert_eq!(columns.take(0), 128);
    }
}
