//! Whether a verified symbol is newer than those before it. Under one key the numbers of a source
//! only grow. So a symbol whose tag is valid may be late or replayed, and shows that its source
//! restarted only if its key is newer than all before.
//!
//! ```text
//!   key 1:  ... 7 8 9 |             10 and key 2 are known:
//!   key 2:            | 10 11 12    11 is ahead, 8 is behind, all of key 3 are of a newer key
//! ```
//!
//! Both ends may begin a handshake at once. Then a source may leave a key for one that this node
//! made a moment earlier, so the key of the newest symbol counts as the newest key does.

use crate::env::egress::KeySerial;
use recoded_wire::header::serial_before;

/// Distance of numbers that belong together: half as many blocks as there are numbers of blocks, if
/// each has one batch.
const NEAR: u32 = 1 << 14;

/// Place of a symbol among those verified before.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    /// Its key is newer than those of all others: the source may have restarted.
    NewerKey,
    /// Its number is above all others: the source has come that far.
    Ahead,
    /// The source formed it before the newest one, or in an earlier session.
    Behind,
}

/// The newest of the verified symbols of one source.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Freshness {
    newest: Option<NewestSymbol>,
}

#[derive(Copy, Clone, Debug)]
struct NewestSymbol {
    /// The symbol with the highest number: that number and its key.
    number: u32,
    key: KeySerial,
    /// The newest key of any symbol.
    key_max: KeySerial,
}

impl Freshness {
    /// Where a verified symbol belongs.
    pub(crate) fn order(&self, key: KeySerial, number: u32) -> Order {
        match self.newest {
            Some(newest) if key <= newest.key_max => {
                let is_present = key == newest.key_max || key == newest.key;
                let is_ahead = is_present && serial_before(newest.number, number);
                if is_ahead { Order::Ahead } else { Order::Behind }
            }
            _ => Order::NewerKey,
        }
    }

    /// Records a verified symbol in range.
    pub(crate) fn note(&mut self, key: KeySerial, number: u32) {
        match &mut self.newest {
            Some(newest) => {
                newest.key_max = newest.key_max.max(key);
                if serial_before(newest.number, number) {
                    (newest.number, newest.key) = (number, key);
                }
            }
            None => self.restart(key, number),
        }
    }

    /// Records a verified symbol as the new start: all others are compared with it.
    pub(crate) fn restart(&mut self, key: KeySerial, number: u32) {
        let key_max = self.newest.map_or(key, |newest| newest.key_max.max(key));
        self.newest = Some(NewestSymbol { number, key, key_max });
    }

    /// Whether a number is so close to the newest one that a unit may still be repaired by it.
    pub(crate) fn is_near(&self, number: u32) -> bool {
        let distance = |newest: NewestSymbol| number.wrapping_sub(newest.number).cast_signed();
        self.newest.is_none_or(|newest| distance(newest).unsigned_abs() < NEAR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: [KeySerial; 4] = [KeySerial(3), KeySerial(8), KeySerial(9), KeySerial(20)];

    #[test]
    fn numbers_of_a_key_only_grow_and_wrap() {
        let mut freshness = Freshness::default();
        assert_eq!(freshness.order(KEYS[1], 7), Order::NewerKey);
        freshness.note(KEYS[1], u32::MAX - 1);
        assert_eq!(freshness.order(KEYS[1], 5), Order::Ahead);
        freshness.note(KEYS[1], 5);
        for number in [5, 4, 0, u32::MAX - 1, 1 << 31 | 7] {
            assert_eq!(freshness.order(KEYS[1], number), Order::Behind, "{number}");
        }
        assert!(freshness.is_near(u32::MAX) && !freshness.is_near(NEAR + 5));
    }

    #[test]
    fn only_a_newer_key_begins_anew() {
        let mut freshness = Freshness::default();
        freshness.note(KEYS[1], 1000);
        for number in [0, 999, 1001, 70_000] {
            assert_eq!(freshness.order(KEYS[0], number), Order::Behind, "{number}");
            assert_eq!(freshness.order(KEYS[2], number), Order::NewerKey, "{number}");
        }
        freshness.restart(KEYS[2], 20);
        assert_eq!(freshness.order(KEYS[1], 1001), Order::Behind);
        assert_eq!(freshness.order(KEYS[2], 21), Order::Ahead);
    }

    /// Two keys of one agreement that the source uses in the other order.
    #[test]
    fn source_that_turns_to_an_older_key_is_followed() {
        let mut freshness = Freshness::default();
        freshness.note(KEYS[2], 1000);
        freshness.note(KEYS[1], 1001);
        assert_eq!(freshness.order(KEYS[1], 90_000), Order::Ahead);
        assert_eq!(freshness.order(KEYS[1], 900), Order::Behind);
        assert_eq!(freshness.order(KEYS[2], 900), Order::Behind);
        assert_eq!(freshness.order(KEYS[0], 90_000), Order::Behind);
        assert_eq!(freshness.order(KEYS[3], 900), Order::NewerKey);
    }
}
