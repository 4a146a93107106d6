//! Disagreements between two neighbours, and since when. Pure.

use crate::talk::SECOND;
use recoded_pipeline::params::Nanos;
use recoded_wire::announcement::Refusal;

/// Refusals kept for a neighbour, of each side: an honest neighbour has fewer.
const MOST: usize = 64;

/// A refusal not repeated for this long expires: three rounds, and some margin.
const EXPIRY: Nanos = 35 * SECOND;

/// The refusals of one side.
#[derive(Default)]
pub(super) struct Refusals(Vec<Entry>);

struct Entry {
    flow: u32,
    refusal: Refusal,
    at: Nanos,
}

impl Refusals {
    /// Records a refusal. Returns whether it is new.
    pub(super) fn note(&mut self, flow: u32, refusal: Refusal, now: Nanos) -> bool {
        if let Some(entry) = self.0.iter_mut().find(|entry| is_same(entry, flow, refusal)) {
            // The largest packets may have changed.
            (entry.at, entry.refusal) = (now, refusal);
            return false;
        }
        let has_room = self.0.len() < MOST;
        if has_room {
            self.0.push(Entry { flow, refusal, at: now });
        }
        has_room
    }

    /// Withdraws the refusals of a flow, except those that `keeps` names.
    pub(super) fn settle(&mut self, flow: u32, keeps: impl Fn(Refusal) -> bool) {
        self.0.retain(|entry| entry.flow != flow || keeps(entry.refusal));
    }

    /// Drops refusals that were not repeated.
    pub(super) fn expire(&mut self, now: Nanos) {
        self.0.retain(|entry| now.saturating_sub(entry.at) < EXPIRY);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, Refusal)> {
        self.0.iter().map(|entry| (entry.flow, entry.refusal))
    }
}

fn is_same(entry: &Entry, flow: u32, refusal: Refusal) -> bool {
    let kinds = [entry.refusal, refusal].map(|it| std::mem::discriminant(&it));
    entry.flow == flow && kinds[0] == kinds[1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_bounded_renewed_settled_and_expire() {
        let mut refusals = Refusals::default();
        assert!(refusals.note(7, Refusal::TooLarge(1400), 0));
        assert!(!refusals.note(7, Refusal::TooLarge(1300), 1), "the same, by another number");
        assert_eq!(refusals.iter().collect::<Vec<_>>(), [(7, Refusal::TooLarge(1300))]);
        assert!(refusals.note(7, Refusal::NotThere, 2));
        refusals.settle(7, |refusal| refusal == Refusal::NotThere);
        assert_eq!(refusals.iter().collect::<Vec<_>>(), [(7, Refusal::NotThere)]);
        for flow in 100..1000 {
            refusals.note(flow, Refusal::UnknownFlow, 5);
        }
        assert_eq!(refusals.iter().count(), MOST);
        refusals.expire(2 + EXPIRY);
        assert_eq!(refusals.iter().filter(|(flow, _)| *flow == 7).count(), 0);
        refusals.expire(5 + EXPIRY);
        assert_eq!(refusals.iter().count(), 0);
    }
}
