//! The tag of a hop: on every packet from one neighbour to the next, feedback included, so that
//! nothing is believed that the neighbour did not send on this link, once.
//!
//! ```text
//! | packet | key id (8) | counter, lower half (32) | tag (64) |
//!          `------------- trailer, 13 bytes ----------------'
//! tag = SipHash-2-4(key of the lane,
//!         counter (64, little-endian) || bytes of the packet (32, le) || source port (16, le)
//!         || key id (8) || 0 (8) || digest of the packet (128, le))
//! ```
//!
//! The counter is of 64 bits and per direction and *lane*: a lane is a source port, so that one
//! worker sends it and one receives it, and none waits for another. Flow, shard and hop index are
//! in the packet, which is covered; the source port is bound in: the one that its shard has, not
//! the one from which it comes, which address translation changes.
//!
//! The digest is a sum of carry-less products of the packet's words with those of a secret key
//! (`recoded_gf::CarryLess`): block i of the key is AES-128 of i. Two packets of one length have
//! the same digest with probability 2^-64 at most, and nothing shows it: it goes through SipHash. A
//! third of what the sums of eight columns took, and what SipHash takes does not depend on the
//! packet.
//!
//! The replay window is asked and moves in [`HopReceiver::accept`] alone, which takes a
//! [`Checked`].

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use recoded_gf::CarryLess;
use siphasher::sip::SipHasher24;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::PACKETS_MAX;
use crate::columns::{BLOCK, LINE, cipher, encrypt};
use crate::derive::Secrets;
use crate::error::Refused;
use crate::replay::ReplayWindow;
use crate::secret::Secret;

/// Bytes that a tag adds to a packet.
pub const TRAILER_BYTES: usize = 13;

const TAG_BYTES: usize = 8;

/// The key of the digests of a direction, for all of its lanes. Cleared when dropped.
pub struct HopDigest {
    way: CarryLess,
    bytes: Zeroizing<Vec<u8>>,
    /// Where the key begins: where a cache line does.
    start: usize,
    packet_bytes_max: usize,
}

impl HopDigest {
    /// For packets of up to `packet_bytes_max` bytes.
    #[must_use]
    pub fn new(secrets: &Secrets, packet_bytes_max: usize) -> Self {
        let cipher = cipher(&secrets.key("hop digest", &[]));
        let mut bytes = Zeroizing::new(vec![0; packet_bytes_max.next_multiple_of(BLOCK) + LINE]);
        // What it is depends on nothing but speed.
        let start = bytes.as_ptr().align_offset(LINE).min(LINE);
        let blocks = bytes[start..].as_chunks_mut::<BLOCK>().0.iter_mut().enumerate();
        blocks.for_each(|(i, block)| *block = encrypt(&cipher, &(i as u128).to_be_bytes()));
        Self { way: CarryLess::best(), bytes, start, packet_bytes_max }
    }

    #[inline]
    fn of(&self, packet: &[u8]) -> u128 {
        self.way.sum(&self.bytes[self.start..], packet)
    }
}

/// What sender and receiver of a lane share.
struct Lane {
    key: Secret<16>,
    digest: Arc<HopDigest>,
}

impl Lane {
    fn new(secrets: &Secrets, lane: u16, digest: &Arc<HopDigest>) -> Self {
        Self { key: secrets.key("hop tag", &lane.to_be_bytes()), digest: Arc::clone(digest) }
    }

    /// The tag of a packet without its trailer.
    #[inline]
    fn tag(
        &self,
        packet: &[u8],
        counter: u64,
        key_id: u8,
        source_port: u16,
    ) -> Result<[u8; TAG_BYTES], Refused> {
        if packet.len() > self.digest.packet_bytes_max {
            return Err(Refused::Long);
        }
        let digest = self.digest.of(packet);
        // Words of eight bytes, as SipHash reads them: bytes written one by one would make it wait.
        let length = packet.len() as u64;
        let said = length | u64::from(source_port) << 32 | u64::from(key_id) << 48;
        let words = [counter, said, digest as u64, (digest >> 64) as u64].map(u64::to_le_bytes);
        let text = words.as_flattened();
        Ok(SipHasher24::new_with_key(self.key.expose()).hash(text).to_le_bytes())
    }
}

/// Tags the packets of one lane to a neighbour. Workers may share it; each counter is used once.
pub struct HopSender {
    lane: Lane,
    key_id: u8,
    counter: AtomicU64,
}

impl HopSender {
    /// `key_id` is the one that the receiver chose for these secrets.
    #[must_use]
    pub fn new(secrets: &Secrets, key_id: u8, lane: u16, digest: &Arc<HopDigest>) -> Self {
        Self { lane: Lane::new(secrets, lane, digest), key_id, counter: AtomicU64::new(0) }
    }

    /// Packets that have been tagged.
    #[must_use]
    pub fn packets(&self) -> u64 {
        self.counter.load(Ordering::Relaxed)
    }

    /// Writes the trailer into the last [`TRAILER_BYTES`] bytes of `buffer`, over all before.
    ///
    /// # Errors
    /// The buffer is too short or too long, or the key is used up.
    pub fn seal(&self, buffer: &mut [u8], source_port: u16) -> Result<(), Refused> {
        if self.packets() >= PACKETS_MAX {
            return Err(Refused::Exhausted);
        }
        let (packet, trailer) =
            buffer.split_last_chunk_mut::<TRAILER_BYTES>().ok_or(Refused::Malformed)?;
        if packet.len() > self.lane.digest.packet_bytes_max {
            return Err(Refused::Long);
        }
        // Only that it is used once matters.
        let counter = self.counter.fetch_add(1, Ordering::Relaxed);
        let tag = self.lane.tag(packet, counter, self.key_id, source_port)?;
        trailer[0] = self.key_id;
        trailer[1..5].copy_from_slice(&(counter as u32).to_be_bytes());
        trailer[5..].copy_from_slice(&tag);
        Ok(())
    }
}

/// A packet that the neighbour sent; for [`HopReceiver::accept`] of the same receiver.
#[must_use = "the packet may be a copy of an earlier one until it is accepted"]
#[derive(Debug)]
pub struct Checked<'a> {
    counter: u64,
    packet: &'a [u8],
}

/// Verifies the packets of one lane from a neighbour. Workers may share it: no worker waits for
/// the window while packets of a lane come to one of them, as they do.
pub struct HopReceiver {
    lane: Lane,
    key_id: u8,
    window: Mutex<ReplayWindow>,
    /// What the window expects next, for who does not hold it.
    next: AtomicU64,
}

impl HopReceiver {
    /// `window_packets` is how late a packet may be.
    #[must_use]
    pub fn new(
        secrets: &Secrets,
        key_id: u8,
        lane: u16,
        digest: &Arc<HopDigest>,
        window_packets: usize,
    ) -> Self {
        let window = Mutex::new(ReplayWindow::new(window_packets));
        let lane = Lane::new(secrets, lane, digest);
        Self { lane, key_id, window, next: AtomicU64::new(0) }
    }

    /// The key id that a packet names; `None` where it is too short for a trailer.
    #[must_use]
    pub fn key_id_of(packet: &[u8]) -> Option<u8> {
        packet.last_chunk::<TRAILER_BYTES>().map(|trailer| trailer[0])
    }

    /// Moves the replay window; the packet without its trailer.
    ///
    /// # Errors
    /// It was accepted before.
    pub fn accept<'a>(&self, checked: &Checked<'a>) -> Result<&'a [u8], Refused> {
        self.accept_in_order(checked).map(|(packet, _)| packet)
    }

    /// The same, and whether all that was accepted of this lane before is older.
    ///
    /// # Errors
    /// It was accepted before.
    pub fn accept_in_order<'a>(&self, checked: &Checked<'a>) -> Result<(&'a [u8], bool), Refused> {
        let mut window = self.window();
        let is_newest = checked.counter >= window.next();
        if window.accept(checked.counter) {
            // Only how counters are completed depends on it.
            self.next.store(window.next(), Ordering::Relaxed);
            Ok((checked.packet, is_newest))
        } else {
            Err(Refused::Replayed)
        }
    }

    /// One more than the highest counter that was accepted.
    #[must_use]
    pub fn newest(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    fn window(&self) -> MutexGuard<'_, ReplayWindow> {
        self.window.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Verifies a packet that [`HopSender::seal`] tagged. Nothing changes.
    ///
    /// # Errors
    /// It is not what the neighbour sent.
    pub fn check<'a>(&self, packet: &'a [u8], source_port: u16) -> Result<Checked<'a>, Refused> {
        let (packet, trailer) =
            packet.split_last_chunk::<TRAILER_BYTES>().ok_or(Refused::Malformed)?;
        let [key_id, c0, c1, c2, c3, tag @ ..] = trailer;
        if *key_id != self.key_id {
            return Err(Refused::UnknownKey);
        }
        let low = u32::from_be_bytes([*c0, *c1, *c2, *c3]);
        // What was accepted before is refused by `accept`, which alone knows.
        let counter = nearest(low, self.next.load(Ordering::Relaxed));
        let expected = self.lane.tag(packet, counter, *key_id, source_port)?;
        // In constant time, as words.
        let equal: bool = u64::from_le_bytes(expected).ct_eq(&u64::from_le_bytes(*tag)).into();
        if equal { Ok(Checked { counter, packet }) } else { Err(Refused::Tag) }
    }
}

/// The counter with this lower half that is nearest to the one expected next.
fn nearest(low: u32, next: u64) -> u64 {
    let ahead = low.wrapping_sub(next as u32).cast_signed();
    next.checked_add_signed(i64::from(ahead)).unwrap_or(u64::from(low))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_counter_is_found_on_both_sides_of_a_wrap() {
        let wrap = 1 << 32;
        assert_eq!(nearest(0, 0), 0);
        assert_eq!(nearest(5, 3), 5);
        assert_eq!(nearest(2, 3), 2);
        assert_eq!(nearest(1, wrap - 1), wrap + 1);
        assert_eq!(nearest(u32::MAX, wrap + 1), wrap - 1);
        assert_eq!(nearest(u32::MAX, 1), u64::from(u32::MAX), "nothing lies before the first");
        assert_eq!(nearest(u32::MAX, u64::MAX), u64::MAX);
    }
}
