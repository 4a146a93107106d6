//! Rank histogram of a flow: what the theory is held against, and what the source is told.

use crate::report::FlowCounters;

/// Rank histogram of full-size generations, started anew when the source changes parameters.
#[derive(Debug, Default)]
pub(crate) struct RankHistogram {
    epoch: Option<u8>,
    nominal: usize,
}

impl RankHistogram {
    /// Notes that a generation of `size` closed with `rank`.
    pub(crate) fn record(
        &mut self,
        counters: &mut FlowCounters,
        epoch: u8,
        size: usize,
        rank: usize,
    ) {
        let newer = self.epoch.is_none_or(|known| (epoch.wrapping_sub(known) as i8) > 0);
        if newer || (self.epoch == Some(epoch) && size > self.nominal) {
            self.epoch = Some(epoch);
            self.nominal = size;
            counters.rank_histogram.clear();
            counters.rank_histogram.resize(size + 1, 0);
        }
        if self.epoch == Some(epoch) && size == self.nominal {
            counters.rank_histogram[rank] += 1;
        }
    }

    /// Notes `count` generations of which nothing arrived.
    pub(crate) fn record_absent(&self, counters: &mut FlowCounters, count: u32) {
        if let Some(absent) = counters.rank_histogram.first_mut() {
            *absent += u64::from(count);
        }
    }

    /// Takes back that one was absent: it was only late.
    pub(crate) fn retract_absent(&self, counters: &mut FlowCounters) {
        if let Some(absent) = counters.rank_histogram.first_mut() {
            *absent = absent.saturating_sub(1);
        }
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
