//! Marks of a session's messages. They show a node that it was set back: that its machine was
//! restored from a snapshot, or runs twice. Its keys, packet numbers and unit numbers are then
//! used a second time.
//!
//! ```text
//! mark = number of the message (32) || random (32) || tag (64)
//! tag  = the first 8 bytes of BLAKE2s-128(secret of the session, number || random)
//! ```
//!
//! Each handshake message and each announcement to a neighbour has a mark, and returns that of the
//! peer with the highest number; a response does not return that of the initiation that it answers.
//! A peer cannot form a mark: a returned one that this session never made shows that another copy
//! of its memory made it. No other input leads to this finding, be it a clock, a restart or a
//! replay.
//!
//! The copy that was set back counts on from the snapshot, and would hide the marks of the other
//! one: lower numbers are noted only after [`CONTESTED_NANOS`]. Until then the peer returns what
//! shows it. A peer that restarts counts from 1, and is not harmed: earlier marks show nothing.

use std::collections::VecDeque;

use subtle::ConstantTimeEq;

use super::cookie::mac;
use super::message::{MARK, MARKS_BYTES};
use crate::error::Refused;
use crate::keys::Entropy;
use crate::secret::Secret;

const NUMBER: usize = 4;
const RANDOM: usize = 4;
const PLAIN: usize = NUMBER + RANDOM;

/// Own marks that are remembered. Earlier ones show nothing. Without a path to the peer, an
/// initiation is sent every two seconds: for a quarter of an hour.
const REMEMBERED: usize = 512;

/// How long marks with lower numbers than the noted one are not noted: six announcements.
const CONTESTED_NANOS: u64 = 60_000_000_000;

/// The marks of a session, and the newest one of its peer.
pub(super) struct Marks {
    secret: Secret<32>,
    made: u32,
    /// The random bytes of the newest, the last one last.
    recent: VecDeque<[u8; RANDOM]>,
    /// The noted one of the peer.
    peer: [u8; MARK],
    /// Since when the peer's marks have lower numbers.
    contested: Option<u64>,
}

/// The marks in a message.
#[derive(Copy, Clone, Debug)]
pub(super) struct Marked {
    /// That of the message.
    pub made: [u8; MARK],
    /// The newest one of its receiver that its sender had noted.
    pub returned: [u8; MARK],
}

impl Marked {
    /// From the bytes of a payload.
    pub fn read(bytes: &[u8; MARKS_BYTES]) -> Self {
        let (made, returned) = bytes.split_at(MARK);
        Self {
            made: made.try_into().expect("the first half"),
            returned: returned.try_into().expect("the second half"),
        }
    }

    /// As bytes of a payload.
    pub fn bytes(&self) -> [u8; MARKS_BYTES] {
        let mut bytes = [0; MARKS_BYTES];
        bytes[..MARK].copy_from_slice(&self.made);
        bytes[MARK..].copy_from_slice(&self.returned);
        bytes
    }
}

impl Marks {
    /// The first half of `entropy` becomes the secret.
    pub fn new(entropy: &Entropy) -> Self {
        let (secret, peer) = (entropy.key(), [0; MARK]);
        Self { secret, made: 0, recent: VecDeque::new(), peer, contested: None }
    }

    /// Marks for a message that is sent with this entropy.
    pub fn make(&mut self, entropy: &Entropy) -> Marked {
        self.made = self.made.wrapping_add(1);
        let (mut made, random) = ([0; MARK], entropy.extra::<RANDOM>(28));
        made[..NUMBER].copy_from_slice(&self.made.to_be_bytes());
        made[NUMBER..PLAIN].copy_from_slice(&random);
        let tag = self.tag(&made);
        made[PLAIN..].copy_from_slice(&tag);
        if self.recent.len() == REMEMBERED {
            self.recent.pop_front();
        }
        self.recent.push_back(random);
        Marked { made, returned: self.peer }
    }

    /// Reads the marks of an authentic message that is accepted.
    pub fn read(&mut self, now: u64, marked: &Marked) -> Result<(), Refused> {
        self.check(marked)?;
        self.note(now, marked);
        Ok(())
    }

    /// Notes the mark of an authentic message that is accepted.
    pub fn note(&mut self, now: u64, marked: &Marked) {
        let is_above = number(&marked.made) > number(&self.peer);
        let since = *self.contested.get_or_insert(now);
        if is_above || now.saturating_sub(since) >= CONTESTED_NANOS {
            self.peer = marked.made;
            self.contested = None;
        }
    }

    /// Looks for another copy in the marks of an authentic message, be it accepted or not.
    //= docs/protocol §3.3(f)
    pub fn check(&self, marked: &Marked) -> Result<(), Refused> {
        let returned = &marked.returned;
        let is_own: bool = self.tag(returned).ct_eq(&returned[PLAIN..]).into();
        if !is_own {
            return Ok(());
        }
        let age = self.made.wrapping_sub(number(returned)).cast_signed();
        let Ok(age) = usize::try_from(age) else { return Err(Refused::SetBack) };
        let place = self.recent.len().checked_sub(age + 1);
        let random = place.and_then(|place| self.recent.get(place));
        match random {
            Some(random) if random[..] != returned[NUMBER..PLAIN] => Err(Refused::SetBack),
            _ => Ok(()),
        }
    }

    fn tag(&self, mark: &[u8; MARK]) -> [u8; MARK - PLAIN] {
        let tag = mac(self.secret.expose(), &[&mark[..PLAIN]]);
        *tag.first_chunk().expect("a MAC is longer")
    }
}

/// The number of a mark; 0 if there is none.
fn number(mark: &[u8; MARK]) -> u32 {
    mark.first_chunk().map_or(0, |number| u32::from_be_bytes(*number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entropy(number: u8) -> Entropy {
        Entropy::new([number; 64])
    }

    fn returning(returned: [u8; MARK]) -> Marked {
        Marked { made: [7; MARK], returned }
    }

    #[test]
    fn marks_that_were_made_here_show_nothing_however_late_they_return() {
        let mut marks = Marks::new(&entropy(1));
        let made: Vec<_> = (0..40).map(|number| marks.make(&entropy(number)).made).collect();
        for mark in made {
            assert_eq!(marks.check(&returning(mark)), Ok(()));
        }
    }

    #[test]
    fn marks_of_another_copy_show_it_be_they_ahead_or_of_equal_number() {
        let mut copies = [Marks::new(&entropy(1)), Marks::new(&entropy(1))];
        let [real, restored] = &mut copies;
        for marks in [&mut *real, &mut *restored] {
            marks.make(&entropy(2));
        }
        let ahead = real.make(&entropy(3)).made;
        assert_eq!(restored.check(&returning(ahead)), Err(Refused::SetBack));
        // Its retries pass the number.
        for number in 10..200 {
            restored.make(&entropy(number));
            assert_eq!(restored.check(&returning(ahead)), Err(Refused::SetBack), "{number}");
        }
        assert_eq!(real.check(&returning(ahead)), Ok(()));
    }

    #[test]
    fn marks_that_a_peer_invents_or_an_earlier_process_made_show_nothing() {
        let mut marks = Marks::new(&entropy(1));
        let mut made = marks.make(&entropy(2)).made;
        made[..4].copy_from_slice(&900_u32.to_be_bytes());
        for mark in [made, [0; MARK], [0xFF; MARK]] {
            assert_eq!(marks.check(&returning(mark)), Ok(()));
        }
        let mut before = Marks::new(&entropy(9));
        let earlier = (0..5).map(|number| before.make(&entropy(number)).made).last();
        assert_eq!(marks.check(&returning(earlier.expect("five"))), Ok(()));
    }

    #[test]
    fn lower_marks_are_noted_only_after_a_minute_of_them() {
        let (mut here, mut there) = (Marks::new(&entropy(1)), Marks::new(&entropy(2)));
        let made: Vec<_> = (0..20).map(|number| there.make(&entropy(number))).collect();
        let second = 1_000_000_000;
        here.note(5 * second, &made[18]);
        // A message that was overtaken, and a restored copy.
        for (at, low) in [(6, 17), (30, 3), (64, 4)] {
            here.note(at * second, &made[low]);
            assert_eq!(here.make(&entropy(9)).returned, made[18].made, "{at} s");
        }
        here.note(65 * second, &made[19]);
        here.note(66 * second, &made[5]);
        assert_eq!(here.make(&entropy(9)).returned, made[19].made, "the minute begins again");
        here.note(126 * second, &made[6]);
        assert_eq!(here.make(&entropy(9)).returned, made[6].made);
    }
}
