//! A range of the card's addresses that is allocated from its start, and never freed.

use std::ops::Range;

use super::MemoryError;

pub(super) struct Window {
    range: Range<u64>,
    next: u64,
}

impl Window {
    pub const fn new(range: Range<u64>) -> Self {
        let next = range.start;
        Self { range, next }
    }

    /// Room for `bytes`, at a multiple of `alignment`.
    pub fn allocate(&mut self, bytes: usize, alignment: u64) -> Result<u64, MemoryError> {
        let no_room = MemoryError::NoRoom { bytes };
        let start = self.next.checked_next_multiple_of(alignment).ok_or(no_room)?;
        let end = start.checked_add(bytes as u64).filter(|end| *end <= self.range.end);
        self.next = end.ok_or(no_room)?;
        Ok(start)
    }

    /// Whether all of it was allocated.
    pub fn check(&self, address: u64, bytes: usize) -> Result<(), MemoryError> {
        let end = address.checked_add(bytes as u64);
        let is_inside = address >= self.range.start && end.is_some_and(|end| end <= self.next);
        is_inside.then_some(()).ok_or(MemoryError::Outside { address, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_handed_out_is_inside() {
        let mut window = Window::new(0x1000..0x4000);
        assert_eq!(window.allocate(1, 0x1000), Ok(0x1000));
        assert_eq!(window.allocate(0x1000, 0x1000), Ok(0x2000));
        assert_eq!(window.allocate(0x1001, 0x1000), Err(MemoryError::NoRoom { bytes: 0x1001 }));
        assert_eq!(window.check(0x1000, 0x2000), Ok(()));
        for (address, bytes) in [(0xFFF, 1), (0x1000, 0x2001), (u64::MAX, 2), (0x3000, 1)] {
            let outside = MemoryError::Outside { address, bytes };
            assert_eq!(window.check(address, bytes), Err(outside));
        }
        let mut last = Window::new(u64::MAX - 10..u64::MAX);
        assert!(last.allocate(1, 0x1000).is_err());
    }
}
