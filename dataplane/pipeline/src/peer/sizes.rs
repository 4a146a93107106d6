//! Whether large packets to a neighbour vanish while smaller ones come: a link on the way has a
//! smaller MTU and says so to no one, a black hole.
//!
//! Packets are counted by classes of their size. A class is lost when none of it or of a larger one
//! came while that many of it were lost, each after another smaller packet that came: what is lost
//! in a row while nothing comes counts once, so that an outage is no black hole.

use crate::report::BlackHole;

/// Sizes in a class: less than the difference of MTUs that are in use.
const CLASS_BYTES: usize = 16;

/// IP packets are at most 1778 bytes long.
const CLASSES: usize = 112;

/// Lost packets after which a class is lost. A link that loses half of all packets loses as many in
/// a row once in 2^32.
const LOST: u8 = 32;

/// What came and what was lost, by size.
#[derive(Debug)]
pub(crate) struct Sizes {
    /// By class: lost since one of it or of a larger one came, and `came` when it was last counted.
    lost: [u8; CLASSES],
    counted_at: [u32; CLASSES],
    /// Packets that came.
    came: u32,
    hole: Option<BlackHole>,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { lost: [0; CLASSES], counted_at: [0; CLASSES], came: 0, hole: None }
    }
}

impl Sizes {
    /// Notes a packet that came.
    pub(crate) fn came(&mut self, bytes: u16) {
        self.came = self.came.wrapping_add(1);
        self.lost[..=class(bytes)].fill(0);
        if let Some(hole) = &mut self.hole {
            hole.came_bytes = hole.came_bytes.max(bytes);
            self.hole = Some(*hole).filter(|hole| bytes < hole.lost_bytes);
        }
    }

    /// Notes a packet that was lost.
    pub(crate) fn lost(&mut self, bytes: u16) {
        let class = class(bytes);
        if self.lost[class] > 0 && self.counted_at[class] == self.came {
            return;
        }
        self.lost[class] = self.lost[class].saturating_add(1);
        self.counted_at[class] = self.came;
        let is_smallest = self.hole.is_none_or(|hole| bytes < hole.lost_bytes);
        if self.lost[class] >= LOST && is_smallest {
            self.hole = Some(BlackHole { came_bytes: 0, lost_bytes: bytes });
        }
    }

    /// Sizes that do not come, if there are any.
    pub(crate) fn black_hole(&self) -> Option<BlackHole> {
        self.hole
    }
}

fn class(bytes: u16) -> usize {
    (usize::from(bytes) / CLASS_BYTES).min(CLASSES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets of 1400 bytes that are lost, each after one of `came` bytes that came.
    fn lose(sizes: &mut Sizes, packets: u8, came: u16) {
        for _ in 0..packets {
            sizes.came(came);
            sizes.lost(1400);
        }
    }

    #[test]
    fn large_packets_that_vanish_beside_smaller_ones_are_a_black_hole_until_one_comes() {
        let mut sizes = Sizes::default();
        lose(&mut sizes, LOST - 1, 60);
        assert_eq!(sizes.black_hole(), None);
        lose(&mut sizes, 2, 1200);
        assert_eq!(sizes.black_hole(), Some(BlackHole { came_bytes: 1200, lost_bytes: 1400 }));
        sizes.lost(1500);
        sizes.came(1399);
        assert_eq!(sizes.black_hole(), Some(BlackHole { came_bytes: 1399, lost_bytes: 1400 }));
        sizes.came(1400);
        assert_eq!(sizes.black_hole(), None);
        lose(&mut sizes, LOST - 1, 60);
        assert_eq!(sizes.black_hole(), None);
    }

    #[test]
    fn outage_is_no_black_hole() {
        let mut sizes = Sizes::default();
        for _ in 0..LOST {
            sizes.came(1400);
            (0..100).for_each(|_| sizes.lost(1400));
            lose(&mut sizes, LOST / 2, 60);
        }
        (0..1000).for_each(|_| sizes.lost(1400));
        assert_eq!(sizes.black_hole(), None);
    }

    #[test]
    fn any_size_has_a_class() {
        let mut sizes = Sizes::default();
        for bytes in [0, u16::MAX] {
            sizes.came(bytes);
            sizes.lost(bytes);
        }
        assert_eq!(sizes.black_hole(), None);
    }
}
