//! Columns of tags at relays: when a source grants them, which epoch it tags with, and how long a
//! relay uses a grant.
//!
//! ```text
//!  source   |-- grants of A, every 2 s --|- of A and B, every 6 ms -|-- of B and A, ever rarer --
//!           tags of A                    .. 20 or 50 ms ............| tags of B, late ones of A
//!  relay    refuses what is none of the newest grant, while that is younger than 5 s
//! ```
//!
//! Keys change because they are old, or because the sink restarted and has none of the old ones. In
//! that case they change long before they are old, and symbols tagged under them until the change
//! are lost, so a source tags under new keys soon. It waits 50 ms after it first granted keys that
//! replace old ones; every relay is sent nine grants in that time. The wait is 20 ms, with twelve
//! grants, if the sink restarted, or if this node did and has no other keys. Grants follow the path
//! of symbols, ahead of them. Afterwards the interval to the next grant is the time that the keys
//! have been in use, up to 2 s: a relay that missed all of them refuses symbols no longer than the
//! grants were missing before. A relay without a recent grant recodes blindly, like one without
//! keys: a node that drops its grants could as well drop the packets.

use std::sync::Arc;

use recoded_wire::unit::{Formed, TaggedUnit};

use crate::epoch_keys::PACKET_BYTES_MAX;
use crate::error::Refused;
use crate::grant::{GrantReader, GrantedSeeds};
use crate::handshake::timing::REKEY_NANOS;
use crate::homomorphic::TagKey;
use crate::keys::{PrivateKey, PublicKey};
use crate::ring::Ring;
use crate::units::UnitMasks;

const MILLI: u64 = 1_000_000;
const SECOND: u64 = 1000 * MILLI;

/// Longest interval between two grants. A relay has none after two in a row are lost: once in seven
/// hundred times, if a third of all messages is lost and each has three copies.
const PERIOD_NANOS: u64 = 2 * SECOND;

/// How long a relay uses a grant.
pub const GRANT_LIFE_NANOS: u64 = 5 * SECOND;

/// How long keys are granted before tags use them.
const HOLD_NANOS: u64 = 50 * MILLI;

/// The same if there are no other keys to tag with, or the sink has no others.
const FIRST_HOLD_NANOS: u64 = 20 * MILLI;

/// Keys replaced within this time are not old: the sink restarted.
const EARLY_NANOS: u64 = REKEY_NANOS / 2;

/// Copies of each grant; of the many during the longer wait, each has one.
const COPIES: usize = 3;

/// Interval of grants during that wait.
const HELD_PERIOD_NANOS: u64 = 6 * MILLI;

/// How long previous keys are granted afterwards: streams keep symbols for 4 s, and request them.
const LATE_NANOS: u64 = 10 * SECOND;

/// Schedule of the keys that a source tags with, and of their grants to relays.
#[derive(Clone, Debug, Default)]
pub struct GrantSchedule {
    /// Id of the keys that tags use; `None`: nothing may be tagged yet.
    tagging: Option<u8>,
    /// Since when.
    since: u64,
    /// Previous keys, and until when they are granted.
    before: Option<(u8, u64)>,
    /// Keys that tags will use next, and from when on.
    after: Option<(u8, u64)>,
    /// Whether the short wait applies.
    is_hurried: bool,
    /// When the next grants are due.
    next: u64,
}

/// Requests of [`GrantSchedule::poll`] to its caller.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct GrantTurn {
    /// Number of copies to send, to every relay, of the grants of [`GrantSchedule::granted`].
    pub copies: usize,
    /// Tags use other keys from now on.
    pub is_changed: bool,
}

impl GrantSchedule {
    /// Evaluates the valid keys. Late calls only delay grants.
    pub fn poll<T>(&mut self, now: u64, ring: &Ring<T>) -> GrantTurn {
        let known = self.tagging;
        let Some(sending) = ring.sending().map(|epoch| epoch.key_id) else {
            *self = Self::default();
            return GrantTurn { copies: 0, is_changed: known.is_some() };
        };
        if known.is_some_and(|key_id| !ring.holds(key_id)) {
            // They expired before they were replaced: the sending keys are the only ones.
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

    /// The keys that symbols are tagged with; `None`: none may be formed yet.
    #[must_use]
    pub const fn tagging(&self) -> Option<u8> {
        self.tagging
    }

    /// The keys that relays get columns of, the oldest first.
    pub fn granted(&self) -> impl Iterator<Item = u8> + use<> {
        let [before, after] = [self.before, self.after].map(|it| it.map(|(key_id, _)| key_id));
        [before, self.tagging, after].into_iter().flatten()
    }

    /// When [`GrantSchedule::poll`] has work while the keys stay.
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

/// Columns that a relay holds of the tags of a flow.
#[derive(Debug)]
pub struct RelayColumns {
    reader: GrantReader,
    epochs: Vec<(GrantedSeeds, Arc<TagKey>)>,
    /// When the newest grant arrived; `None` if that is too long ago.
    heard: Option<u64>,
}

impl RelayColumns {
    /// Holds nothing yet, for the flow of a source; like [`GrantReader::new`].
    #[must_use]
    pub fn new(reader: GrantReader) -> Self {
        Self { reader, epochs: Vec::new(), heard: None }
    }

    /// The same, given the keys of the relay and the source.
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

    /// Reads a grant. Returns whether workers need a new copy of [`RelayColumns::keys`].
    ///
    /// # Errors
    /// As for [`GrantReader::read`]: no state has changed. Messages that the source did not form,
    /// and copies of those that it did, cost a hash.
    pub fn receive(&mut self, now: u64, message: &[u8]) -> Result<bool, Refused> {
        let (strength, epochs) = self.reader.read(message)?;
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

    /// Forgets expired grants. Returns whether there was anything to forget.
    pub fn expire(&mut self, now: u64) -> bool {
        let old = self.heard.take_if(|heard| now.saturating_sub(*heard) >= GRANT_LIFE_NANOS);
        if old.is_some() {
            self.epochs.clear();
        }
        old.is_some()
    }

    /// The columns of every epoch that genuine symbols may use, the newest first; none: nothing can
    /// be verified.
    #[must_use]
    pub fn keys(&self) -> Vec<Arc<TagKey>> {
        self.epochs.iter().rev().map(|(_, key)| Arc::clone(key)).collect()
    }
}

/// Verifies a symbol with the columns that a relay holds; see [`RelayColumns::keys`]. Returns the
/// serial number of the key.
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
) -> Result<u64, Refused> {
    masks.verify_by_any(keys.iter().map(Arc::as_ref), unit, formed, symbol)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::Epoch;

    /// Each epoch begins when the previous one is old.
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
        assert_eq!(schedule.granted().collect::<Vec<_>>(), [1, 2]);
        // Increasingly rare: after 0.1, 0.2, 0.4 s and so on, up to 2 s.
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
        assert_eq!(schedule.granted().collect::<Vec<_>>(), [1, 3]);
        schedule.poll(3 * SECOND, &ring(&[1, 3, 4]));
        assert_eq!(schedule.granted().collect::<Vec<_>>(), [1, 3, 4]);
        schedule.poll(4 * SECOND, &ring(&[1, 3, 4]));
        assert_eq!(schedule.granted().collect::<Vec<_>>(), [3, 4]);
        schedule.poll(14 * SECOND, &ring(&[1, 3, 4]));
        assert_eq!(schedule.granted().collect::<Vec<_>>(), [4]);
    }
}
