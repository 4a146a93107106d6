//! Marks of a session's messages, by which a node finds out that it was set back: that its machine
//! was restored from a snapshot, or runs twice. Its keys, packet numbers and unit numbers are then
//! used a second time.
//!
//! ```text
//! mark = number of the message (32) || random (32) || tag (64)
//! tag  = the first 8 bytes of BLAKE2s-128(secret of the session, number || random)
//! ```
//!
//! Each handshake message and each announcement to a neighbour has a mark, and returns that of the newest message of the peer that was accepted
//! before; a response does not return that of the initiation that it answers. A mark is opaque to
//! the peer, which cannot form one: a returned mark that this session never made shows that another
//! copy of its memory made it. No other input leads to this finding, be it a clock, a restart or a
//! replay.

use std::collections::VecDeque;

use subtle::ConstantTimeEq;

use super::cookie::mac;
use super::message::{MARK, MARKS_BYTES};
use crate::keys::Entropy;
use crate::secret::Secret;

const PLAIN: usize = 8;

/// Own marks that are remembered whole. Of earlier ones only the number counts.
const REMEMBERED: usize = 16;

/// The marks of a session, and the newest one of its peer.
pub(super) struct Marks {
    secret: Secret<32>,
    made: u32,
    /// The newest last.
    recent: VecDeque<[u8; MARK]>,
    /// The newest one of the peer that an authentic message had.
    peer: [u8; MARK],
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
        Self { secret: entropy.key(), made: 0, recent: VecDeque::new(), peer: [0; MARK] }
    }

    /// Marks for a message that is sent with this entropy.
    pub fn make(&mut self, entropy: &Entropy) -> Marked {
        self.made = self.made.wrapping_add(1);
        let mut made = [0; MARK];
        made[..4].copy_from_slice(&self.made.to_be_bytes());
        made[4..PLAIN].copy_from_slice(&entropy.extra::<4>(28));
        let tag = self.tag(&made);
        made[PLAIN..].copy_from_slice(&tag);
        if self.recent.len() == REMEMBERED {
            self.recent.pop_front();
        }
        self.recent.push_back(made);
        Marked { made, returned: self.peer }
    }

    /// Notes the marks of an authentic message that is accepted.
    pub fn note(&mut self, marked: &Marked) {
        self.peer = marked.made;
    }

    /// Whether a mark of an authentic message shows that this session was set back.
    pub fn shows_set_back(&self, marked: &Marked) -> bool {
        let returned = &marked.returned;
        let is_own: bool = self.tag(returned).ct_eq(&returned[PLAIN..]).into();
        if !is_own {
            return false;
        }
        let number = returned.first_chunk().map_or(0, |number| u32::from_be_bytes(*number));
        let age = self.made.wrapping_sub(number).cast_signed();
        match usize::try_from(age) {
            Ok(age) if age < self.recent.len() => !self.recent.contains(returned),
            Ok(_) => false,
            Err(_) => true,
        }
    }

    fn tag(&self, mark: &[u8; MARK]) -> [u8; MARK - PLAIN] {
        let tag = mac(self.secret.expose(), &[&mark[..PLAIN]]);
        *tag.first_chunk().expect("a MAC is longer")
    }
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
            assert!(!marks.shows_set_back(&returning(mark)));
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
        assert!(restored.shows_set_back(&returning(ahead)));
        restored.make(&entropy(4));
        assert!(restored.shows_set_back(&returning(ahead)), "equal number, other random bytes");
        assert!(!real.shows_set_back(&returning(ahead)));
    }

    #[test]
    fn marks_that_a_peer_invents_or_an_earlier_process_made_show_nothing() {
        let mut marks = Marks::new(&entropy(1));
        let mut made = marks.make(&entropy(2)).made;
        made[..4].copy_from_slice(&900_u32.to_be_bytes());
        for mark in [made, [0; MARK], [0xFF; MARK]] {
            assert!(!marks.shows_set_back(&returning(mark)));
        }
        let mut before = Marks::new(&entropy(9));
        let earlier = (0..5).map(|number| before.make(&entropy(number)).made).last();
        assert!(!marks.shows_set_back(&returning(earlier.expect("five"))));
    }
}
