//! Rank histogram of a flow: compared with theory, and reported to the source.

use recoded_wire::coded::SIZE_MAX;

/// Units that close late are fewer than this many epochs behind, and at most `LATE_MAX` come in a
/// row. Otherwise the source restarted and drew another epoch.
const EPOCHS: u8 = 4;
const LATE_MAX: u32 = 64;

/// Rank histogram of full-size generations, reset when the source changes parameters.
#[derive(Debug)]
pub(crate) struct RankHistogram {
    epoch: Option<u8>,
    nominal: usize,
    /// Generations by rank.
    counts: Vec<u64>,
    /// Late ones in a row.
    late: u32,
}

impl Default for RankHistogram {
    fn default() -> Self {
        Self { epoch: None, nominal: 0, counts: Vec::with_capacity(SIZE_MAX + 1), late: 0 }
    }
}

impl RankHistogram {
    /// Notes that a generation of `size` closed with `rank`.
    pub(crate) fn record(&mut self, epoch: u8, size: usize, rank: usize) {
        let is_late =
            self.epoch.is_some_and(|known| (1..EPOCHS).contains(&known.wrapping_sub(epoch)));
        self.late = if is_late { self.late + 1 } else { 0 };
        let is_other = self.epoch != Some(epoch) && (!is_late || self.late > LATE_MAX);
        if is_other || (self.epoch == Some(epoch) && size > self.nominal) {
            (self.epoch, self.late) = (Some(epoch), 0);
            self.nominal = size;
            self.counts.clear();
            self.counts.resize(size + 1, 0);
        }
        if self.epoch == Some(epoch) && size == self.nominal {
            self.counts[rank] += 1;
        }
    }

    /// Notes `count` generations without any arrival.
    pub(crate) fn record_absent(&mut self, count: u32) {
        if let Some(absent) = self.counts.first_mut() {
            *absent += u64::from(count);
        }
    }

    /// Takes one absence back: the generation was only late.
    pub(crate) fn retract_absent(&mut self) {
        if let Some(absent) = self.counts.first_mut() {
            *absent = absent.saturating_sub(1);
        }
    }

    /// Generations by rank.
    pub(crate) fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// Epoch of the generations counted.
    pub(crate) fn epoch(&self) -> Option<u8> {
        self.epoch
    }

    /// Size of full generations, 0 before the first.
    pub(crate) fn nominal(&self) -> usize {
        self.nominal
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_those_of_the_epoch_in_use() {
        let mut ranks = RankHistogram::default();
        ranks.record(7, 16, 16);
        // One generation closes late, after a change.
        ranks.record(8, 16, 15);
        ranks.record(7, 16, 3);
        assert_eq!((ranks.epoch(), ranks.counts()[15], ranks.counts()[3]), (Some(8), 1, 0));
        // Sources that restarted, whatever epoch they drew: half the number space behind, or near.
        for (life, epoch) in [200, 100, 98, 255, 1].into_iter().enumerate() {
            for _ in 0..=LATE_MAX + 4 {
                ranks.record(epoch, 16, life);
            }
            assert_eq!(ranks.epoch(), Some(epoch), "life {life}");
            assert!(ranks.counts()[life] >= 4, "life {life}: {:?}", ranks.counts());
        }
    }
}
