//! Columns of tags at relays: when a source grants them, which epoch it tags with, and for how long
//! a relay goes by what it was granted.
//!
//! ```text
//!  source   |-- grants of A, every 2 s --|- of A and B, every 6 ms -|-- of B and A, ever rarer --
//!           tags of A                    .. 20 or 50 ms ............| tags of B, late ones of A
//!  relay    refuses what is none of the newest grant, while that is younger than 5 s
//! ```
//!
//! Keys change because they are old, or because the sink started again and has no others: then long
//! before they are old, and what is tagged under them until it changes is lost. So a source tags
//! under new ones soon: 50 ms after it first granted those that replace old ones, in which every
//! relay is sent nine grants; after 20 ms, and twelve, where it is the sink that started again, or
//! this node, which has nothing else to tag with. Grants go where symbols go, and before them.
//! Afterwards the next grant comes after as long as the keys are in use, up to 2 s: what a relay
//! refuses since it heard none of them lasts no longer than the silence before that. A relay that
//! has no young grant recodes blindly, as one that has no keys: who keeps grants from it could as
//! well keep the packets.

use std::sync::Arc;

use crate::epoch_keys::PACKET_BYTES_MAX;
use crate::error::Refused;
use crate::grant::{GrantReader, GrantedSeeds};
use crate::handshake::timing::REKEY_NANOS;
use crate::homomorphic::TagKey;
use crate::keys::{PrivateKey, PublicKey};
use crate::ring::Ring;
use crate::units::{Formed, TaggedUnit, UnitMasks};

const MILLI: u64 = 1_000_000;
const SECOND: u64 = 1000 * MILLI;

/// Between two grants at most, of which two in a row must be lost until a relay goes by none: where
/// a third of all messages is lost and each has three copies, once in seven hundred times.
const PERIOD_NANOS: u64 = 2 * SECOND;

/// How long a relay goes by a grant.
pub const GRANT_LIFE_NANOS: u64 = 5 * SECOND;

/// How long keys are granted before tags are of them.
const HOLD_NANOS: u64 = 50 * MILLI;

/// The same where there is nothing else to tag with, or the sink has nothing else.
const FIRST_HOLD_NANOS: u64 = 20 * MILLI;

/// Keys that were replaced so soon are not old: the sink started again.
const EARLY_NANOS: u64 = REKEY_NANOS / 2;

/// Copies of each grant; where many follow in the longer time, each has one.
const COPIES: usize = 3;

/// Between grants in that time.
const HELD_PERIOD_NANOS: u64 = 6 * MILLI;

/// How long they are granted afterwards: streams keep symbols for 4 s, and ask for them.
const LATE_NANOS: u64 = 10 * SECOND;

/// Grants that a relay opens in a second in vain: each costs two products on the curve.
const TRIES_PER_SECOND: u32 = 20;

/// Which keys a source tags with, and when it grants them to relays.
#[derive(Clone, Debug, Default)]
pub struct GrantSchedule {
    /// Number of the keys that tags are of; `None`: nothing is to be tagged yet.
    tagging: Option<u8>,
    /// Since when.
    since: u64,
    /// Those of before, and until when they are granted.
    before: Option<(u8, u64)>,
    /// Those that tags will be of, and from when on.
    after: Option<(u8, u64)>,
    /// Whether that is as soon as can be.
    is_hurried: bool,
    /// When the next grants are due.
    next: u64,
}

/// What [`GrantSchedule::poll`] asks for.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct GrantTurn {
    /// Grants of [`GrantSchedule::granted`] are to leave, to every relay, in so many copies.
    pub copies: usize,
    /// Tags are of other keys from here on.
    pub is_changed: bool,
}

impl GrantSchedule {
    /// Looks at the keys that are valid. Calls that come late make grants late, nothing else.
    pub fn poll<T>(&mut self, now: u64, ring: &Ring<T>) -> GrantTurn {
        let known = self.tagging;
        let Some(sending) = ring.sending().map(|epoch| epoch.key_id) else {
            *self = Self::default();
            return GrantTurn { copies: 0, is_changed: known.is_some() };
        };
        if known.is_some_and(|key_id| !ring.holds(key_id)) {
            // They went sooner than they were replaced: what is sent with is all there is.
            *self = Self { tagging: Some(sending), since: now, next: now, ..Self::default() };
        }
        self.before = self.before.filter(|(key_id, until)| now < *until && ring.holds(*key_id));
        self.after = self.after.filter(|(key_id, _)| *key_id == sending);
        if self.tagging != Some(sending) && self.after.is_none() {
            self.is_hurried = self.tagging.is_none_or(|known| is_early(ring, known, sending));
            let hold = if self.is_hurried { FIRST_HOLD_NANOS } else { HOLD_NANOS };
            self.after = Some((sending, now.saturating_add(hold)));
            self.next = now;
        }
        if let Some((key_id, _)) = self.after.take_if(|(_, from)| now >= *from) {
            self.before = self.tagging.map(|before| (before, now.saturating_add(LATE_NANOS)));
            (self.tagging, self.since) = (Some(key_id), now);
        }
        let is_due = now >= self.next;
        if is_due {
            let used = now.saturating_sub(self.since).clamp(HOLD_NANOS, PERIOD_NANOS);
            let period = if self.after.is_some() { HELD_PERIOD_NANOS } else { used };
            self.next = now.saturating_add(period);
        }
        let copies = match self.after {
            _ if !is_due => 0,
            Some(_) if !self.is_hurried => 1,
            _ => COPIES,
        };
        GrantTurn { copies, is_changed: known != self.tagging }
    }

    /// The keys that symbols are tagged with; `None`: none are to be formed yet.
    #[must_use]
    pub const fn tagging(&self) -> Option<u8> {
        self.tagging
    }

    /// The keys that relays get columns of.
    pub fn granted(&self) -> impl Iterator<Item = u8> + use<> {
        let others = [self.after, self.before].into_iter().flatten().map(|(key_id, _)| key_id);
        self.tagging.into_iter().chain(others)
    }

    /// When [`GrantSchedule::poll`] has something to do while the keys stay.
    #[must_use]
    pub fn wake(&self) -> u64 {
        let others = [self.after, self.before].into_iter().flatten().map(|(_, at)| at);
        let next = self.granted().next().map(|_| self.next);
        others.chain(next).min().unwrap_or(u64::MAX)
    }
}

/// Whether one epoch replaced another one before that was old.
fn is_early<T>(ring: &Ring<T>, before: u8, after: u8) -> bool {
    let since = |key_id| ring.epochs().find(|it| it.key_id == key_id).map(|it| it.since);
    let times = since(before).zip(since(after));
    times.is_some_and(|(before, after)| after.saturating_sub(before) < EARLY_NANOS)
}

/// What a relay holds of the tags of a flow.
#[derive(Debug)]
pub struct RelayColumns {
    reader: GrantReader,
    epochs: Vec<(GrantedSeeds, Arc<TagKey>)>,
    /// When the newest grant came; `None` where that is too long ago.
    heard: Option<u64>,
    /// A second, and how many grants may still be opened in it.
    tries: (u64, u32),
}

impl RelayColumns {
    /// Nothing yet, of the flow of a source; as [`GrantReader::new`].
    #[must_use]
    pub const fn new(reader: GrantReader) -> Self {
        Self { reader, epochs: Vec::new(), heard: None, tries: (0, TRIES_PER_SECOND) }
    }

    /// The same from the keys of the relay and the source.
    #[must_use]
    pub fn of(private: PrivateKey, source: PublicKey, flow: u32) -> Self {
        Self::new(GrantReader::new(private, source, flow))
    }

    /// The key of the source.
    #[must_use]
    pub const fn source(&self) -> &PublicKey {
        self.reader.source()
    }

    /// Whether a grant is for this relay; see [`GrantReader::is_for_this`].
    #[must_use]
    pub fn is_for_this(&self, message: &[u8]) -> bool {
        self.reader.is_for_this(message)
    }

    /// Reads a grant. Whether workers need a new copy of [`RelayColumns::keys`].
    ///
    /// # Errors
    /// As [`GrantReader::read`], and where too many came: nothing has changed.
    pub fn receive(&mut self, now: u64, message: &[u8]) -> Result<bool, Refused> {
        let second = now / SECOND;
        if self.tries.0 != second {
            self.tries = (second, TRIES_PER_SECOND);
        }
        if self.tries.1 == 0 {
            return Err(Refused::TooSoon);
        }
        let read = self.reader.read(message);
        // What is refused sooner costs a hash, and the source does not flood itself.
        if matches!(read, Err(Refused::Handshake)) {
            self.tries.1 -= 1;
        }
        let (strength, epochs) = read?;
        self.heard = Some(now);
        self.epochs.retain(|(_, key)| key.strength() == strength);
        if epochs.iter().eq(self.epochs.iter().map(|(seeds, _)| seeds)) {
            return Ok(false);
        }
        let known = std::mem::take(&mut self.epochs);
        let key = |seeds: GrantedSeeds| {
            let known = known.iter().find(|(known, _)| *known == seeds);
            let key = match known {
                // Masks are found by the key.
                Some((_, key)) => Arc::clone(key),
                None => Arc::new(TagKey::new(strength, &seeds, PACKET_BYTES_MAX)?),
            };
            Some((seeds, key))
        };
        self.epochs = epochs.into_iter().filter_map(key).collect();
        Ok(true)
    }

    /// Forgets what is too old. Whether there was anything.
    pub fn expire(&mut self, now: u64) -> bool {
        let old = self.heard.take_if(|heard| now.saturating_sub(*heard) >= GRANT_LIFE_NANOS);
        if old.is_some() {
            self.epochs.clear();
        }
        old.is_some()
    }

    /// The columns of every epoch that good symbols may be of; none: nothing can be verified.
    #[must_use]
    pub fn keys(&self) -> Vec<Arc<TagKey>> {
        self.epochs.iter().map(|(_, key)| Arc::clone(key)).collect()
    }
}

/// Verifies a symbol by what a relay holds; see [`RelayColumns::keys`].
///
/// # Errors
/// The source formed no such unit, or nothing is held.
#[inline]
pub fn verify_at_relay(
    keys: &[Arc<TagKey>],
    masks: &mut UnitMasks,
    unit: &TaggedUnit,
    formed: Formed<'_>,
    symbol: &[u8],
) -> Result<(), Refused> {
    masks.verify_by_any(keys.iter().map(Arc::as_ref), unit, formed, symbol)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::Epoch;

    /// Each epoch when the one before was old.
    fn ring(ids: &[u8]) -> Ring<()> {
        ring_since(ids, REKEY_NANOS)
    }

    fn ring_since(ids: &[u8], apart: u64) -> Ring<()> {
        let mut ring = Ring::default();
        let epoch = |key_id| Epoch { key_id, since: u64::from(key_id) * apart, keys: () };
        ids.iter().for_each(|&key_id| ring.install(epoch(key_id)));
        ring
    }

    #[test]
    fn first_keys_are_granted_four_times_before_anything_is_tagged() {
        let mut schedule = GrantSchedule::default();
        assert_eq!(schedule.poll(7, &ring(&[])), GrantTurn::default());
        let mut grants = 0;
        for now in (0..20).map(|milli| SECOND + milli * MILLI) {
            let GrantTurn { copies, is_changed } = schedule.poll(now, &ring(&[5]));
            grants += copies;
            assert!(!is_changed && schedule.tagging().is_none());
            assert_eq!(schedule.granted().collect::<Vec<_>>(), [5]);
        }
        assert_eq!(grants, 4 * COPIES);
        assert!(schedule.poll(SECOND + 20 * MILLI, &ring(&[5])).is_changed);
        assert_eq!(schedule.tagging(), Some(5));
    }

    #[test]
    fn keys_that_are_gone_are_replaced_at_once() {
        let mut schedule = GrantSchedule::default();
        schedule.poll(0, &ring(&[5]));
        schedule.poll(SECOND, &ring(&[5]));
        assert_eq!(schedule.tagging(), Some(5));
        let turn = schedule.poll(2 * SECOND, &ring(&[6]));
        assert_eq!((turn.copies, turn.is_changed, schedule.tagging()), (3, true, Some(6)));
        let turn = schedule.poll(3 * SECOND, &ring(&[]));
        assert_eq!((turn.copies, turn.is_changed, schedule.tagging()), (0, true, None));
    }

    #[test]
    fn a_sink_that_started_again_waits_twenty_milliseconds_for_tags_that_it_knows() {
        let mut schedule = GrantSchedule::default();
        schedule.poll(0, &ring(&[1]));
        schedule.poll(SECOND, &ring(&[1]));
        let ring = ring_since(&[1, 2], EARLY_NANOS - 1);
        let mut grants = 0;
        for milli in 0..20 {
            grants += schedule.poll(9 * SECOND + milli * MILLI, &ring).copies;
            assert_eq!(schedule.tagging(), Some(1));
        }
        assert_eq!(grants, 4 * COPIES);
        assert!(schedule.poll(9 * SECOND + 20 * MILLI, &ring).is_changed);
        assert_eq!(schedule.tagging(), Some(2));
    }

    #[test]
    fn keys_that_replace_old_ones_are_granted_nine_times_before_tags_are_of_them() {
        let mut schedule = GrantSchedule::default();
        schedule.poll(0, &ring(&[1]));
        schedule.poll(SECOND, &ring(&[1]));
        let mut grants = 0;
        for milli in 0..50 {
            grants += schedule.poll(9 * SECOND + milli * MILLI, &ring(&[1, 2])).copies;
            assert_eq!(schedule.tagging(), Some(1));
        }
        assert_eq!(grants, 9);
        assert!(schedule.poll(9 * SECOND + 50 * MILLI, &ring(&[1, 2])).is_changed);
        assert_eq!(schedule.granted().collect::<Vec<_>>(), [2, 1]);
        // Ever rarer: after 0.1, 0.2, 0.4 s and so on, until it is 2 s.
        let due =
            |milli: &u64| schedule.poll(9 * SECOND + milli * MILLI, &ring(&[1, 2])).copies > 0;
        let due: Vec<u64> = (51..9000).filter(due).collect();
        assert!(due.len() < 12 && due[0] <= 110, "{due:?}");
        assert!(due.windows(2).all(|pair| pair[1] - pair[0] <= 2000), "{due:?}");
    }

    #[test]
    fn later_keys_replace_those_that_wait_and_those_of_before_are_granted_for_a_while() {
        let mut schedule = GrantSchedule::default();
        schedule.poll(0, &ring(&[1]));
        schedule.poll(SECOND, &ring(&[1]));
        schedule.poll(2 * SECOND, &ring(&[1, 2]));
        assert_eq!(schedule.granted().collect::<Vec<_>>(), [1, 2]);
        schedule.poll(2 * SECOND + 40 * MILLI, &ring(&[1, 2, 3]));
        assert_eq!(schedule.granted().collect::<Vec<_>>(), [1, 3]);
        schedule.poll(2 * SECOND + 60 * MILLI, &ring(&[1, 2, 3]));
        assert_eq!(schedule.tagging(), Some(1), "they wait for their turn");
        schedule.poll(2 * SECOND + 90 * MILLI, &ring(&[1, 2, 3]));
        assert_eq!(schedule.granted().collect::<Vec<_>>(), [3, 1]);
        schedule.poll(3 * SECOND, &ring(&[1, 3, 4]));
        assert_eq!(schedule.granted().collect::<Vec<_>>(), [3, 4, 1]);
        schedule.poll(4 * SECOND, &ring(&[1, 3, 4]));
        assert_eq!(schedule.granted().collect::<Vec<_>>(), [4, 3]);
        schedule.poll(14 * SECOND, &ring(&[1, 3, 4]));
        assert_eq!(schedule.granted().collect::<Vec<_>>(), [4]);
    }
}
