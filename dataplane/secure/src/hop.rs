//! The tag of a hop: on every packet from one neighbour to the next, feedback included, so that
//! nothing is believed that the neighbour did not send on this link, once.
//!
//! ```text
//! | packet: head, body | key id (8) | counter, lower half (32) | tag (64) |
//!                       `------------- trailer, 13 bytes ----------------'
//! tag = SipHash-2-4(key of the lane,
//!         counter (64, little-endian) || head bytes (32, le) || body bytes (32, le)
//!         || source port (16, le) || covered (8) || key id (8) || head || digest of the body (64))
//! ```
//!
//! The counter is of 64 bits and per direction and *lane*: a lane is a source port, so that one
//! worker sends it and one receives it, and none waits for another. Flow, shard and hop index are
//! in the packet, which is covered; the source port is bound in: the one that its shard has, not
//! the one from which it comes, which address translation changes. Two ways to cover a packet:
//!
//! - **whole** (`covered` = 1): the head is the first 64 bytes; the digest of the rest is the sums
//!   of its products with eight secret columns over GF(256) modulo 0x11D. Two bodies of one length
//!   have the same digest with probability 2^-64 over the columns, which nothing shows: the digest
//!   goes through SipHash. As fast as a homomorphic tag is verified, a third of AES-GMAC.
//! - **head** (`covered` = 0): header, coding vector and homomorphic tag. The body must verify by
//!   that tag before the packet counts: [`HeadChecked`] becomes [`Checked`] only with a
//!   [`VerifiedBody`] of this very body.
//!
//! The replay window moves in [`HopReceiver::accept`] alone, which takes a [`Checked`].

use std::hash::Hasher;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use siphasher::sip::SipHasher24;
use subtle::ConstantTimeEq;

use crate::PACKETS_MAX;
use crate::columns::Columns;
use crate::derive::Secrets;
use crate::error::Refused;
use crate::homomorphic::VerifiedBody;
use crate::replay::ReplayWindow;
use crate::secret::Secret;

/// Bytes that a tag adds to a packet.
pub const TRAILER_BYTES: usize = 13;

const TAG_BYTES: usize = 8;

/// Bytes of a packet that go through SipHash where the digest covers the rest: headers and short
/// packets, for which the digest would take longer.
const DIRECT_BYTES: usize = 64;

/// Longest head that is hashed from one place, which takes a third less time than from two: the
/// header and vector of a generation of 64.
const HEAD_BYTES: usize = 128;

/// What is bound into a tag besides the packet.
const BOUND_BYTES: usize = 20;

/// Columns of the digest: as hard to collide with as the tag is to guess.
const DIGEST_COLUMNS: usize = 8;

/// The columns of a direction, for all of its lanes.
pub struct HopDigest(Columns);

impl HopDigest {
    /// For packets of up to `packet_bytes_max` bytes.
    #[must_use]
    pub fn new(secrets: &Secrets, packet_bytes_max: usize) -> Self {
        let key = |column: u8| secrets.key("hop digest", &[column]);
        let keys: [Secret<16>; DIGEST_COLUMNS] = std::array::from_fn(|column| key(column as u8));
        Self(Columns::expand(keys.iter(), packet_bytes_max.saturating_sub(DIRECT_BYTES)))
    }
}

/// What sender and receiver of a lane share.
struct Lane {
    key: Secret<16>,
    digest: Arc<HopDigest>,
}

/// How a packet is covered.
#[derive(Copy, Clone)]
enum Covered {
    Whole,
    Head(usize),
}

impl Lane {
    fn new(secrets: &Secrets, lane: u16, digest: &Arc<HopDigest>) -> Self {
        Self { key: secrets.key("hop tag", &lane.to_be_bytes()), digest: Arc::clone(digest) }
    }

    /// Whether the digest covers so long a packet.
    #[inline]
    fn fits(&self, packet: &[u8], covered: Covered) -> bool {
        !matches!(covered, Covered::Whole) || packet.len() <= DIRECT_BYTES + self.digest.0.length()
    }

    /// The tag of a packet without its trailer.
    #[inline]
    fn tag(
        &self,
        packet: &[u8],
        covered: Covered,
        counter: u64,
        key_id: u8,
        source_port: u16,
    ) -> Result<[u8; TAG_BYTES], Refused> {
        let head_bytes = match covered {
            Covered::Whole => packet.len().min(DIRECT_BYTES),
            Covered::Head(bytes) => bytes,
        };
        let (head, body) = packet.split_at_checked(head_bytes).ok_or(Refused::Malformed)?;
        let mut text = Text::default();
        text.add(&counter.to_le_bytes());
        text.add(&(head.len() as u32).to_le_bytes());
        text.add(&(body.len() as u32).to_le_bytes());
        text.add(&source_port.to_le_bytes());
        text.add(&[u8::from(matches!(covered, Covered::Whole)), key_id]);
        let hasher = SipHasher24::new_with_key(self.key.expose());
        if matches!(covered, Covered::Whole) {
            let columns = &self.digest.0;
            if body.len() > columns.length() {
                return Err(Refused::Long);
            }
            let mut digest = [0; DIGEST_COLUMNS];
            columns.add_dots(0, body, &mut digest);
            text.add(head);
            text.add(&digest);
            return Ok(hasher.hash(text.bytes()).to_le_bytes());
        }
        if head.len() <= HEAD_BYTES {
            text.add(head);
            return Ok(hasher.hash(text.bytes()).to_le_bytes());
        }
        let mut hasher = hasher;
        hasher.write(text.bytes());
        hasher.write(head);
        Ok(hasher.finish().to_le_bytes())
    }
}

/// What goes through SipHash, in one place.
struct Text {
    bytes: [u8; BOUND_BYTES + HEAD_BYTES],
    length: usize,
}

impl Default for Text {
    fn default() -> Self {
        Self { bytes: [0; BOUND_BYTES + HEAD_BYTES], length: 0 }
    }
}

impl Text {
    #[inline]
    fn add(&mut self, bytes: &[u8]) {
        self.bytes[self.length..][..bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
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

    /// Writes the trailer into the last [`TRAILER_BYTES`] bytes of `buffer`, over all before.
    ///
    /// # Errors
    /// The buffer is too short or too long, or the key is used up.
    pub fn seal_whole(&self, buffer: &mut [u8], source_port: u16) -> Result<(), Refused> {
        self.seal(buffer, Covered::Whole, source_port)
    }

    /// The same over the first `head_bytes` bytes, where a homomorphic tag covers what follows.
    ///
    /// # Errors
    /// As in [`HopSender::seal_whole`].
    pub fn seal_head(
        &self,
        buffer: &mut [u8],
        head_bytes: usize,
        source_port: u16,
    ) -> Result<(), Refused> {
        self.seal(buffer, Covered::Head(head_bytes), source_port)
    }

    /// Packets that have been tagged.
    #[must_use]
    pub fn packets(&self) -> u64 {
        self.counter.load(Ordering::Relaxed)
    }

    fn seal(&self, buffer: &mut [u8], covered: Covered, source_port: u16) -> Result<(), Refused> {
        if self.packets() >= PACKETS_MAX {
            return Err(Refused::Exhausted);
        }
        let (packet, trailer) =
            buffer.split_last_chunk_mut::<TRAILER_BYTES>().ok_or(Refused::Malformed)?;
        if !self.lane.fits(packet, covered) {
            return Err(Refused::Long);
        }
        // Only that it is used once matters.
        let counter = self.counter.fetch_add(1, Ordering::Relaxed);
        let tag = self.lane.tag(packet, covered, counter, self.key_id, source_port)?;
        trailer[0] = self.key_id;
        trailer[1..5].copy_from_slice(&(counter as u32).to_be_bytes());
        trailer[5..].copy_from_slice(&tag);
        Ok(())
    }
}

/// A packet that the neighbour sent, all of it; for [`HopReceiver::accept`] of the same receiver.
#[must_use = "the packet may be a copy of an earlier one until it is accepted"]
#[derive(Debug)]
pub struct Checked<'a> {
    counter: u64,
    packet: &'a [u8],
}

/// A packet whose head the neighbour sent; what follows may be anything.
#[must_use = "the body has not been verified"]
#[derive(Debug)]
pub struct HeadChecked<'a> {
    counter: u64,
    packet: &'a [u8],
    head_bytes: usize,
}

impl<'a> HeadChecked<'a> {
    /// The part that is verified.
    #[must_use]
    pub fn head(&self) -> &'a [u8] {
        &self.packet[..self.head_bytes]
    }

    /// The payload of the symbol that the homomorphic tag at the end of the head covers.
    #[must_use]
    pub fn body(&self) -> &'a [u8] {
        &self.packet[self.head_bytes..]
    }

    /// The whole packet, given the proof that its body verifies.
    ///
    /// # Errors
    /// The proof is of other bytes.
    pub fn with_body(self, proof: VerifiedBody<'_>) -> Result<Checked<'a>, Refused> {
        if !ptr::eq(proof.body(), self.body()) {
            return Err(Refused::OtherSymbol);
        }
        Ok(Checked { counter: self.counter, packet: self.packet })
    }
}

/// Verifies the packets of one lane from a neighbour. Workers may share it: no worker waits for
/// the window while packets of a lane come to one of them, as they do.
pub struct HopReceiver {
    lane: Lane,
    key_id: u8,
    window: Mutex<ReplayWindow>,
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
        Self { lane: Lane::new(secrets, lane, digest), key_id, window }
    }

    /// The key id that a packet names; `None` where it is too short for a trailer.
    #[must_use]
    pub fn key_id_of(packet: &[u8]) -> Option<u8> {
        packet.last_chunk::<TRAILER_BYTES>().map(|trailer| trailer[0])
    }

    /// Verifies a packet that [`HopSender::seal_whole`] tagged. Nothing changes.
    ///
    /// # Errors
    /// It is not what the neighbour sent, or it was accepted before.
    pub fn check_whole<'a>(
        &self,
        packet: &'a [u8],
        source_port: u16,
    ) -> Result<Checked<'a>, Refused> {
        let (counter, packet) = self.check(packet, Covered::Whole, source_port)?;
        Ok(Checked { counter, packet })
    }

    /// Verifies the first `head_bytes` bytes, as [`HopSender::seal_head`] tagged them. Nothing
    /// changes.
    ///
    /// # Errors
    /// As in [`HopReceiver::check_whole`].
    pub fn check_head<'a>(
        &self,
        packet: &'a [u8],
        head_bytes: usize,
        source_port: u16,
    ) -> Result<HeadChecked<'a>, Refused> {
        let (counter, packet) = self.check(packet, Covered::Head(head_bytes), source_port)?;
        Ok(HeadChecked { counter, packet, head_bytes })
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
            Ok((checked.packet, is_newest))
        } else {
            Err(Refused::Replayed)
        }
    }

    /// One more than the highest counter that was accepted.
    #[must_use]
    pub fn newest(&self) -> u64 {
        self.window().next()
    }

    fn window(&self) -> MutexGuard<'_, ReplayWindow> {
        self.window.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check<'a>(
        &self,
        packet: &'a [u8],
        covered: Covered,
        source_port: u16,
    ) -> Result<(u64, &'a [u8]), Refused> {
        let (packet, trailer) =
            packet.split_last_chunk::<TRAILER_BYTES>().ok_or(Refused::Malformed)?;
        let [key_id, c0, c1, c2, c3, tag @ ..] = trailer;
        if *key_id != self.key_id {
            return Err(Refused::UnknownKey);
        }
        let counter = {
            let window = self.window();
            let counter = nearest(u32::from_be_bytes([*c0, *c1, *c2, *c3]), window.next());
            if !window.is_fresh(counter) {
                return Err(Refused::Replayed);
            }
            counter
        };
        let expected = self.lane.tag(packet, covered, counter, *key_id, source_port)?;
        let equal: bool = expected.ct_eq(tag).into();
        if equal { Ok((counter, packet)) } else { Err(Refused::Tag) }
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
