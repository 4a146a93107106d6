//! One direction of a link whose packets have real hop tags: written when a packet leaves, verified
//! before the receiving node sees a byte. An attacker on the link has no keys.
//!
//! ```text
//!  node -> seal -> link: losses, copies, damage, packets of an attacker -> open -> node
//!                                                                           `-> refused
//! ```
//!
//! Every accepted packet must equal a sealed one, byte for byte, and is accepted once. The keys of
//! a run survive restarts, although real nodes would agree on new ones: this way a captured packet
//! must be refused without exception.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use recoded_pipeline::params::Nanos;
use recoded_secure::{HopDigest, HopReceiver, HopSender, Secrets, TRAILER_BYTES};
use recoded_wire::shard::source_port_of;

use crate::random::{Random, Stream};
use crate::violation::Violation;

/// Longest packet with its tag.
const PACKET_BYTES_MAX: usize = 2048;

/// Packets that may be late.
const WINDOW_PACKETS: usize = 1 << 14;

/// Packets that an attacker keeps.
const CAPTURED: usize = 64;

const KEY_ID: u8 = 1;

/// A direction of a link with keys.
pub(crate) struct HopTags {
    sender: HopSender,
    receiver: HopReceiver,
    /// Packets sealed but not yet accepted: a packet's identity by its tag.
    sealed: HashMap<[u8; TRAILER_BYTES], u64>,
    /// Packets that an attacker captured.
    captured: VecDeque<Vec<u8>>,
    random: Random,
    /// Packets refused.
    pub refused: u64,
}

/// Keys of a run; those of each direction are derived from them.
pub(crate) struct HopKeys {
    secrets: Secrets,
    digest: Arc<HopDigest>,
}

impl HopKeys {
    pub(crate) fn new(seed: u64) -> HopKeys {
        let secrets = Secrets::extract(&seed.to_be_bytes(), &[0x48; 32]);
        let digest = Arc::new(HopDigest::new(&secrets, PACKET_BYTES_MAX));
        HopKeys { secrets, digest }
    }

    /// Those of one direction of a link.
    pub(crate) fn of(&self, seed: u64, hop: usize, is_up: bool) -> HopTags {
        let HopKeys { secrets, digest } = self;
        let lane = (2 * hop + usize::from(is_up)) as u16;
        HopTags {
            sender: HopSender::new(secrets, KEY_ID, lane, digest),
            receiver: HopReceiver::new(secrets, KEY_ID, lane, digest, WINDOW_PACKETS),
            sealed: HashMap::new(),
            captured: VecDeque::new(),
            random: Random::new(seed, Stream::HopTags { hop, is_up }),
            refused: 0,
        }
    }
}

impl HopTags {
    /// Puts a tag behind a packet.
    pub(crate) fn seal(&mut self, payload: &mut Vec<u8>) {
        let port = source_port_of(payload);
        payload.extend([0; TRAILER_BYTES]);
        self.sender.seal(payload, port).expect("room for a tag, and few packets");
        self.sealed.insert(trailer(payload), fingerprint(payload));
        if self.captured.len() == CAPTURED {
            self.captured.pop_front();
        }
        self.captured.push_back(payload.clone());
    }

    /// Takes the tag off a packet that arrived. False where it is refused.
    pub(crate) fn open(&mut self, payload: &mut Vec<u8>, at: Nanos) -> Result<bool, Violation> {
        let bytes = payload.len().saturating_sub(TRAILER_BYTES);
        let port = source_port_of(&payload[..bytes]);
        let checked = self.receiver.check(payload, port);
        let Ok(_) = checked.and_then(|checked| self.receiver.accept(&checked)) else {
            self.refused += 1;
            return Ok(false);
        };
        if self.sealed.remove(&trailer(payload)) != Some(fingerprint(payload)) {
            return Err(Violation::Forged { at });
        }
        payload.truncate(bytes);
        Ok(true)
    }

    /// Alters a packet forged by an attacker without keys. It is sent unchanged, with a random tag,
    /// or with the tag of a captured packet. Or a captured packet is sent instead: unchanged,
    /// damaged, or truncated.
    pub(crate) fn forge(&mut self, mut packet: Vec<u8>) -> Vec<u8> {
        let random = &mut self.random;
        let kind = random.among(0..=5);
        let seen = match self.captured.len() {
            0 => None,
            count => self.captured.get(random.size(0..=count - 1)),
        };
        let (Some(seen), 2..) = (seen, kind) else {
            if kind > 0 {
                packet.push(KEY_ID);
                packet.extend((1..TRAILER_BYTES).map(|_| random.number() as u8));
            }
            return packet;
        };
        match kind {
            2 => packet.extend_from_slice(&seen[seen.len() - TRAILER_BYTES..]),
            3 => packet.clone_from(seen),
            4 => {
                packet.clone_from(seen);
                let place = random.size(0..=packet.len() - 1);
                packet[place] ^= 1 << random.among(0..=7);
            }
            _ => {
                packet.clone_from(seen);
                let cut = random.size(0..=packet.len() - 1);
                packet.truncate(cut);
            }
        }
        packet
    }
}

fn trailer(packet: &[u8]) -> [u8; TRAILER_BYTES] {
    *packet.last_chunk().expect("a packet with a tag")
}

fn fingerprint(packet: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    packet.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_taken_once_and_nothing_that_was_made_of_them() {
        let keys = HopKeys::new(3);
        let (mut down, mut up) = (keys.of(3, 0, false), keys.of(3, 0, true));
        for number in 0..200_u8 {
            let packet = vec![number; usize::from(number) + 20];
            let mut sealed = packet.clone();
            down.seal(&mut sealed);
            assert_eq!(up.open(&mut sealed.clone(), 0), Ok(false), "of the other direction");
            assert_eq!(down.open(&mut sealed.clone(), 0), Ok(true));
            assert_eq!(down.open(&mut sealed, 0), Ok(false), "a copy");
            let mut forged = down.forge(packet);
            assert_eq!(down.open(&mut forged, 0), Ok(false));
        }
        assert_eq!((down.refused, up.refused), (400, 200));
    }
}
