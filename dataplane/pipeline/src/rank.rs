//! Rank histogram of a flow: what the theory is held against, and what the source is told.

use recoded_wire::coded::SIZE_MAX;

/// Rank histogram of full-size generations, started anew when the source changes parameters.
#[derive(Debug)]
pub(crate) struct RankHistogram {
    epoch: Option<u8>,
    nominal: usize,
    /// Generations by rank.
    counts: Vec<u64>,
}

impl Default for RankHistogram {
    fn default() -> Self {
        Self { epoch: None, nominal: 0, counts: Vec::with_capacity(SIZE_MAX + 1) }
    }
}

impl RankHistogram {
    /// Notes that a generation of `size` closed with `rank`.
    pub(crate) fn record(&mut self, epoch: u8, size: usize, rank: usize) {
        let newer = self.epoch.is_none_or(|known| (epoch.wrapping_sub(known) as i8) > 0);
        if newer || (self.epoch == Some(epoch) && size > self.nominal) {
            self.epoch = Some(epoch);
            self.nominal = size;
            self.counts.clear();
            self.counts.resize(size + 1, 0);
        }
        if self.epoch == Some(epoch) && size == self.nominal {
            self.counts[rank] += 1;
        }
    }

    /// Notes `count` generations of which nothing arrived.
    pub(crate) fn record_absent(&mut self, count: u32) {
        if let Some(absent) = self.counts.first_mut() {
            *absent += u64::from(count);
        }
    }

    /// Takes back that one was absent: it was only late.
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
