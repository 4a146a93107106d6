//! Merging paths: the progress of each upstream with the units of a flow, so that no node waits for
//! a lost last packet or requests packets that a branch is about to deliver.
//!
//! Each branch delivers units in order, at its own pace: a relay that combines sends a whole unit
//! at once, perhaps long after another branch has sent its last packet of it.

use crate::config::params::{Nanos, UPSTREAMS_MAX};

/// Packets of a newer unit after which an upstream counts as done with earlier ones: reordering is
/// assumed to be smaller.
const PACKETS: u8 = 3;

/// Silences after which a unit ends when the part of an upstream is pending: the node there may
/// have waited for one before it began to send, or may not have been scheduled. An upstream that is
/// done with a unit signals it or begins the next one, so this applies only when nothing follows.
const SILENCES: Nanos = 2;

/// Progress of one upstream.
#[derive(Copy, Clone, Debug)]
struct UpstreamProgress {
    /// The newest unit, and the number of its packets received, up to [`PACKETS`].
    newest: u32,
    packets: u8,
    /// The upstream is done with all units before this one.
    before: u32,
    heard_at: Nanos,
}

/// The packets of one unit from all upstreams.
#[derive(Copy, Clone, Debug)]
pub(crate) struct UnitArrivals {
    /// Upstreams that sent their last packet of it, one bit each.
    pub ended: u8,
    /// Number of upstreams.
    pub upstreams: usize,
    /// Arrival time of its first packet.
    pub first: Nanos,
    /// Arrival time of its newest packet.
    pub newest: Nanos,
}

/// All upstreams, by index.
#[derive(Debug, Default)]
pub(crate) struct Branches {
    all: [Option<UpstreamProgress>; UPSTREAMS_MAX],
}

impl Branches {
    /// Records any packet from the upstream at `place`.
    pub(crate) fn hear(&mut self, place: usize, now: Nanos) {
        if let Some(branch) = &mut self.all[place % UPSTREAMS_MAX] {
            branch.heard_at = now;
        }
    }

    /// Records a planned packet of a unit from the upstream at `place`. Returns the first unit that
    /// the upstream may not be done with, if that changed. Units `restart` apart belong to
    /// different lives of a source.
    pub(crate) fn note(
        &mut self,
        place: usize,
        unit: u32,
        restart: u32,
        now: Nanos,
    ) -> Option<u32> {
        let place = place % UPSTREAMS_MAX;
        let new = UpstreamProgress { newest: unit, packets: 1, before: unit, heard_at: now };
        let branch = self.all[place].get_or_insert(new);
        branch.heard_at = now;
        let ahead = unit.wrapping_sub(branch.newest).cast_signed();
        if ahead.unsigned_abs() >= restart {
            *branch = new;
            return None;
        }
        let before = branch.before;
        if ahead > 0 {
            (branch.before, branch.newest, branch.packets) = (branch.newest, unit, 1);
        } else if ahead == 0 && branch.packets < PACKETS {
            branch.packets += 1;
        }
        if branch.packets >= PACKETS {
            branch.before = branch.newest;
        }
        (branch.before != before).then_some(branch.before)
    }

    /// When a unit ends that receives nothing more: after one silence, and at most `most` after its
    /// first packet. It ends after two silences, counted from the upstream's last packet, if an
    /// upstream that is still heard has not ended it.
    pub(crate) fn ends_at(&self, unit: &UnitArrivals, silence: Nanos, most: Nanos) -> Nanos {
        let UnitArrivals { ended, upstreams, first, newest } = *unit;
        let is_pending = |place: &usize| upstreams > 1 && ended & (1 << place) == 0;
        let heard = (0..upstreams.min(UPSTREAMS_MAX)).filter(is_pending);
        let heard = heard.filter_map(|place| self.all[place].map(|branch| branch.heard_at)).max();
        let Some(heard) = heard.filter(|heard| heard + most > newest) else {
            return newest + silence;
        };
        let end = newest.max(heard) + SILENCES * silence;
        end.min(first + most).max(newest + silence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESTART: u32 = 1 << 16;

    #[test]
    fn upstream_is_done_with_what_comes_before_three_packets_of_the_next() {
        let mut branches = Branches::default();
        let mut note = |place, unit| branches.note(place, unit, RESTART, 0);
        let told = [7, 7, 8, 7, 8, 8, 8].map(|unit| note(1, unit));
        assert_eq!(told, [None, None, None, None, None, Some(8), None]);
        // Units of one packet each: all before the last two.
        let told = [9, 10, 11].map(|unit| note(1, unit));
        assert_eq!(told, [None, Some(9), Some(10)]);
        assert_eq!(note(0, 3), None, "another upstream");
        // The source restarted, and its numbers wrap around.
        let far = u32::MAX - (1 << 20);
        let told = [far, u32::MAX, 0, 0, 0].map(|unit| note(1, unit));
        assert_eq!(told, [None, None, None, None, Some(0)], "lives are not compared");
    }

    #[test]
    fn unit_waits_for_the_upstream_whose_part_is_pending() {
        let mut branches = Branches::default();
        branches.note(0, 5, RESTART, 100);
        branches.note(1, 4, RESTART, 140);
        branches.hear(1, 150);
        let unit = |ended, upstreams| UnitArrivals { ended, upstreams, first: 60, newest: 110 };
        let ends_at = |ended, upstreams| branches.ends_at(&unit(ended, upstreams), 20, 1000);
        assert_eq!(ends_at(0b00, 2), 190, "the source pauses");
        assert_eq!(ends_at(0b01, 2), 190, "the other one still brings the unit before");
        assert_eq!(ends_at(0b10, 2), 150);
        assert_eq!((ends_at(0b01, 1), ends_at(0b11, 2)), (130, 130));
        assert_eq!(branches.ends_at(&unit(0b01, 2), 20, 100), 160, "the wait is bounded");
        let later = UnitArrivals { first: 2000, newest: 2100, ..unit(0b01, 2) };
        assert_eq!(branches.ends_at(&later, 20, 1000), 2120, "it is gone");
    }
}
