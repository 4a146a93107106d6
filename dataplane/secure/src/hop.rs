//! The tag of a hop: on every packet from one neighbour to the next, feedback included, so that a
//! node accepts only packets that the neighbour sent on this link, once.
//!
//! ```text
//! | packet | key id (8) | counter, lower half (32) | tag (64) |
//!          `------------- trailer, 13 bytes ----------------'
//! tag = SipHash-2-4(key of the lane,
//!         counter (64, little-endian) || bytes of the packet (32, le) || source port (16, le)
//!         || key id (8) || 0 (8) || digest of the packet (128, le))
//! ```
//!
//! The counter has 64 bits, per direction and *lane*: a lane is a source port, so that one worker
//! sends it and one receives it, and none waits for another. Flow, shard and hop index are in the
//! packet, which is covered. The source port is bound in: the one assigned to its shard, not the
//! one in the UDP header, which address translation changes.
//!
//! The digest is a sum of carry-less products of the packet's words with those of a secret key
//! (`recoded_gf::CarryLess`): block i of the key is AES-128 of i. Two packets of one length have
//! the same digest with probability 2^-64 at most, and the digest stays hidden: it goes through
//! SipHash. This takes a third of the time of the sums of eight columns, and the cost of SipHash
//! does not depend on the packet.
//!
//! Only [`HopReceiver::accept`], which takes a [`Checked`], queries and moves the replay window.

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
    /// Offset of the key: aligned to a cache line.
    start: usize,
    packet_bytes_max: usize,
}

impl HopDigest {
    /// For packets of up to `packet_bytes_max` bytes.
    #[must_use]
    pub fn new(secrets: &Secrets, packet_bytes_max: usize) -> Self {
        let cipher = cipher(&secrets.key("hop digest", &[]));
        let mut bytes = Zeroizing::new(vec![0; packet_bytes_max.next_multiple_of(BLOCK) + LINE]);
        // The alignment affects only speed.
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

/// State shared by sender and receiver of a lane.
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
        // Words of eight bytes, as SipHash reads them: bytes written one by one would stall it.
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

    /// Writes the trailer into the last [`TRAILER_BYTES`] bytes of `buffer`, covering all bytes
    /// before.
    ///
    /// # Errors
    /// The buffer is too short or too long, or the key is exhausted.
    pub fn seal(&self, buffer: &mut [u8], source_port: u16) -> Result<(), Refused> {
        if self.packets() >= PACKETS_MAX {
            return Err(Refused::Exhausted);
        }
        let (packet, trailer) =
            buffer.split_last_chunk_mut::<TRAILER_BYTES>().ok_or(Refused::Malformed)?;
        if packet.len() > self.lane.digest.packet_bytes_max {
            return Err(Refused::Long);
        }
        // Only uniqueness matters.
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

/// Verifies the packets of one lane from a neighbour. Workers may share it: none waits for the
/// window while all packets of a lane reach one worker, as they normally do.
pub struct HopReceiver {
    lane: Lane,
    key_id: u8,
    window: Mutex<ReplayWindow>,
    /// The counter that the window expects next, readable without its lock.
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

    /// The key id of a packet; `None` if it is too short for a trailer.
    #[must_use]
    pub fn key_id_of(packet: &[u8]) -> Option<u8> {
        packet.last_chunk::<TRAILER_BYTES>().map(|trailer| trailer[0])
    }

    /// Moves the replay window; returns the packet without its trailer.
    ///
    /// # Errors
    /// It was accepted before.
    pub fn accept<'a>(&self, checked: &Checked<'a>) -> Result<&'a [u8], Refused> {
        self.accept_in_order(checked).map(|(packet, _)| packet)
    }

    /// The same, and whether all packets accepted before on this lane are older.
    ///
    /// # Errors
    /// It was accepted before.
    pub fn accept_in_order<'a>(&self, checked: &Checked<'a>) -> Result<(&'a [u8], bool), Refused> {
        let mut window = self.window();
        let is_newest = checked.counter >= window.next();
        if window.accept(checked.counter) {
            // It only affects how counters are completed.
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

    /// Verifies a packet that [`HopSender::seal`] tagged. No state changes.
    ///
    /// # Errors
    /// The neighbour did not send it in this form.
    //= docs/protocol §2.11(d)
    pub fn check<'a>(&self, packet: &'a [u8], source_port: u16) -> Result<Checked<'a>, Refused> {
        let (packet, trailer) =
            packet.split_last_chunk::<TRAILER_BYTES>().ok_or(Refused::Malformed)?;
        let [key_id, c0, c1, c2, c3, tag @ ..] = trailer;
        if *key_id != self.key_id {
            return Err(Refused::UnknownKey);
        }
        let low = u32::from_be_bytes([*c0, *c1, *c2, *c3]);
        // Replays are refused by `accept`, which has the window.
        let counter = nearest(low, self.next.load(Ordering::Relaxed));
        let expected = self.lane.tag(packet, counter, *key_id, source_port)?;
        // In constant time, as words.
        let equal: bool = u64::from_le_bytes(expected).ct_eq(&u64::from_le_bytes(*tag)).into();
        if equal { Ok(Checked { counter, packet }) } else { Err(Refused::Tag) }
    }
}

/// The counter with this lower half that is nearest to the next expected one.
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
