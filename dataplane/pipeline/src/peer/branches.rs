//! Where paths meet: how far each upstream has come with the units of a flow, so that no node waits
//! for a last packet that was lost, nor asks for what a branch is about to bring.
//!
//! Each branch brings units in order, by its own time: one that a relay combines brings all of a
//! unit when another one has long brought its last packet.

use crate::params::{Nanos, UPSTREAMS_MAX};

/// Packets of a newer unit that show that an upstream is done with those before: fewer may have
/// overtaken the last one.
const PACKETS: u8 = 3;

/// Silences that a unit ends with when the part of an upstream is pending: the node there may have
/// waited for one of them before it began to send, or not have run. An upstream that is done with a
/// unit says so, or begins the next one: this is for when nothing follows.
const SILENCES: Nanos = 2;

/// One upstream.
#[derive(Copy, Clone, Debug)]
struct Branch {
    /// The newest unit, and how many packets came of it, up to [`PACKETS`].
    newest: u32,
    packets: u8,
    /// All before that one are done with.
    before: u32,
    heard_at: Nanos,
}

/// All upstreams, by place.
#[derive(Debug, Default)]
pub(crate) struct Branches {
    all: [Option<Branch>; UPSTREAMS_MAX],
}

impl Branches {
    /// Notes any packet from the upstream at a place.
    pub(crate) fn hear(&mut self, place: usize, now: Nanos) {
        if let Some(branch) = &mut self.all[place % UPSTREAMS_MAX] {
            branch.heard_at = now;
        }
    }

    /// Notes a planned packet of a unit from the upstream at a place. The first unit that it may
    /// not be done with, where that is news. Units `restart` apart belong to different lives of
    /// a source.
    pub(crate) fn note(
        &mut self,
        place: usize,
        unit: u32,
        (restart, now): (u32, Nanos),
    ) -> Option<u32> {
        let place = place % UPSTREAMS_MAX;
        let new = Branch { newest: unit, packets: 1, before: unit, heard_at: now };
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

    /// When a unit ends of which nothing came since `touched`, at most so long after its first
    /// packet: after a silence; after two where one of so many upstreams has not ended it (bits say
    /// which have) and is still heard, counted from what it sent last.
    pub(crate) fn ends_at(
        &self,
        (ended, upstreams): (u8, usize),
        (first, touched): (Nanos, Nanos),
        (silence, most): (Nanos, Nanos),
    ) -> Nanos {
        let is_pending = |place: &usize| upstreams > 1 && ended & (1 << place) == 0;
        let heard = (0..upstreams.min(UPSTREAMS_MAX)).filter(is_pending);
        let heard = heard.filter_map(|place| self.all[place].map(|branch| branch.heard_at)).max();
        let Some(heard) = heard.filter(|heard| heard + most > touched) else {
            return touched + silence;
        };
        let end = touched.max(heard) + SILENCES * silence;
        end.min(first + most).max(touched + silence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIVES: (u32, Nanos) = (1 << 16, 0);

    #[test]
    fn upstream_is_done_with_what_comes_before_three_packets_of_the_next() {
        let mut branches = Branches::default();
        let told: Vec<_> = [7, 7, 8, 7, 8, 8, 8].map(|unit| branches.note(1, unit, LIVES)).to_vec();
        assert_eq!(told, [None, None, None, None, None, Some(8), None]);
        // Units of one packet each: all before the last two.
        let told: Vec<_> = [9, 10, 11].map(|unit| branches.note(1, unit, LIVES)).to_vec();
        assert_eq!(told, [None, Some(9), Some(10)]);
        assert_eq!(branches.note(0, 3, LIVES), None, "another upstream");
        // Another life of the source, whose numbers wrap around.
        let far = u32::MAX - (1 << 20);
        let told = [far, u32::MAX, 0, 0, 0].map(|unit| branches.note(1, unit, LIVES));
        assert_eq!(told, [None, None, None, None, Some(0)], "lives are not compared");
    }

    #[test]
    fn unit_waits_for_the_upstream_whose_part_is_pending() {
        let mut branches = Branches::default();
        branches.note(0, 5, (1 << 16, 100));
        branches.note(1, 4, (1 << 16, 140));
        branches.hear(1, 150);
        let ends_at =
            |ended, upstreams| branches.ends_at((ended, upstreams), (60, 110), (20, 1000));
        assert_eq!(ends_at(0b00, 2), 190, "the source pauses");
        assert_eq!(ends_at(0b01, 2), 190, "the other one still brings the unit before");
        assert_eq!(ends_at(0b10, 2), 150);
        assert_eq!((ends_at(0b01, 1), ends_at(0b11, 2)), (130, 130));
        assert_eq!(branches.ends_at((0b01, 2), (60, 110), (20, 100)), 160, "not for ever");
        let later = branches.ends_at((0b01, 2), (2000, 2100), (20, 1000));
        assert_eq!(later, 2120, "it is gone");
    }
}
