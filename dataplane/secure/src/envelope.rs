//! End-to-end encryption: AEAD per source packet, before symbols are formed. Relays recode
//! ciphertext.
//!
//! ```text
//! | key id (8) | counter (64) | source packet, encrypted | tag (128) |
//!  `----- header, 9 bytes ---'
//! nonce = 0 (32) || counter (64);  associated data = header || what the caller binds in
//! ```
//!
//! The counter is explicit: unit numbers wrap and restart, and a nonce must not. The sink's window
//! drops replays; it is wide, because packets of a code that decodes late arrive late.
//!
//! A seal of a report is an envelope without a packet; its associated data is the header,
//! `report`, and the report. Counters of both are the same, so no nonce repeats.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use aws_lc_rs::aead::{
    AES_128_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey,
};

use crate::PACKETS_MAX;
use crate::error::Refused;
use crate::replay::ReplayWindow;
use crate::secret::Secret;

/// Bytes before the packet.
pub const HEADER_BYTES: usize = 9;

const TAG_BYTES: usize = 16;

/// Bytes that an envelope adds to a packet.
pub const ENVELOPE_BYTES: usize = HEADER_BYTES + TAG_BYTES;

/// Longest associated data of the caller: the flow and other identification of a stream of packets.
const BOUND_BYTES_MAX: usize = 23;

/// What precedes a sealed report in the associated data. Associated data of packets is shorter than
/// the shortest report.
const REPORT: &[u8] = b"report";

/// Longest report.
pub const REPORT_BYTES_MAX: usize = 1280;

/// An AEAD. Ends agree on one in the handshake.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Suite {
    /// Used if both ends have AES instructions.
    Aes128Gcm,
    /// Used otherwise.
    ChaCha20Poly1305,
}

impl Suite {
    /// Both, in order of preference.
    pub const ALL: [Self; 2] = [Self::Aes128Gcm, Self::ChaCha20Poly1305];

    /// The one that is faster on this processor.
    #[must_use]
    pub fn preferred() -> Self {
        #[cfg(target_arch = "x86_64")]
        let has_aes = is_x86_feature_detected!("aes") && is_x86_feature_detected!("pclmulqdq");
        #[cfg(target_arch = "aarch64")]
        let has_aes = std::arch::is_aarch64_feature_detected!("aes");
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let has_aes = false;
        if has_aes { Self::Aes128Gcm } else { Self::ChaCha20Poly1305 }
    }

    /// The code in handshakes.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Aes128Gcm => 1,
            Self::ChaCha20Poly1305 => 2,
        }
    }

    /// The suite of a code.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|suite| suite.code() == code)
    }

    fn algorithm(self) -> &'static Algorithm {
        match self {
            Self::Aes128Gcm => &AES_128_GCM,
            Self::ChaCha20Poly1305 => &CHACHA20_POLY1305,
        }
    }

    fn key(self, secret: &Secret<32>) -> LessSafeKey {
        let algorithm = self.algorithm();
        let bytes = &secret.expose()[..algorithm.key_len()];
        let key = UnboundKey::new(algorithm, bytes).expect("a key as long as the algorithm's");
        LessSafeKey::new(key)
    }
}

/// Seals the packets of one direction. Workers may share it; each counter is used once.
pub struct Sealer {
    key: LessSafeKey,
    key_id: u8,
    counter: AtomicU64,
}

impl Sealer {
    pub(crate) fn new(suite: Suite, secret: &Secret<32>, key_id: u8) -> Self {
        Self { key: suite.key(secret), key_id, counter: AtomicU64::new(0) }
    }

    /// Seals the packet that lies in `buffer` between [`HEADER_BYTES`] bytes of room and 16 more.
    /// `bound` is authenticated and not sent: context of the flow known to both sink and source.
    ///
    /// # Errors
    /// The buffer is shorter than an envelope, `bound` longer than 23 bytes, or the key is
    /// exhausted.
    pub fn seal(&self, buffer: &mut [u8], bound: &[u8]) -> Result<(), Refused> {
        if self.packets() >= PACKETS_MAX {
            return Err(Refused::Exhausted);
        }
        if bound.len() > BOUND_BYTES_MAX {
            return Err(Refused::Long);
        }
        let (header, rest) =
            buffer.split_first_chunk_mut::<HEADER_BYTES>().ok_or(Refused::Malformed)?;
        let (packet, tag) = rest.split_last_chunk_mut::<TAG_BYTES>().ok_or(Refused::Malformed)?;
        // Only uniqueness matters.
        let counter = self.counter.fetch_add(1, Ordering::Relaxed);
        header[0] = self.key_id;
        header[1..].copy_from_slice(&counter.to_be_bytes());
        let mut aad = [0; HEADER_BYTES + BOUND_BYTES_MAX];
        let aad = associated(header, bound, &mut aad)?;
        let sealed = self
            .key
            .seal_in_place_separate_tag(nonce(counter), Aad::from(aad), packet)
            .map_err(|_| Refused::Long)?;
        tag.copy_from_slice(sealed.as_ref());
        Ok(())
    }

    /// Authenticates a report of more than 23 bytes, and at most [`REPORT_BYTES_MAX`], which stays
    /// in the clear.
    ///
    /// # Errors
    /// The report has another length, or the key is exhausted.
    pub fn seal_report(&self, report: &[u8]) -> Result<[u8; ENVELOPE_BYTES], Refused> {
        if self.packets() >= PACKETS_MAX {
            return Err(Refused::Exhausted);
        }
        let mut seal = [0; ENVELOPE_BYTES];
        let (header, tag) = seal.split_first_chunk_mut().ok_or(Refused::Malformed)?;
        let mut aad = [0; REPORT_AAD_BYTES_MAX];
        check_report(report)?;
        let counter = self.counter.fetch_add(1, Ordering::Relaxed);
        header[0] = self.key_id;
        header[1..].copy_from_slice(&counter.to_be_bytes());
        let aad = Aad::from(associated_report(header, report, &mut aad)?);
        let sealed = self.key.seal_in_place_separate_tag(nonce(counter), aad, &mut []);
        tag.copy_from_slice(sealed.map_err(|_| Refused::Long)?.as_ref());
        Ok(seal)
    }

    /// Decrypts an envelope that this sealer made; `packet` has the length of the sealed packet.
    ///
    /// # Errors
    /// The envelope is not one of this key, or `packet` has another length.
    pub fn open_own(
        &self,
        envelope: &[u8],
        bound: &[u8],
        packet: &mut [u8],
    ) -> Result<(), Refused> {
        let (header, rest) =
            envelope.split_first_chunk::<HEADER_BYTES>().ok_or(Refused::Malformed)?;
        let (sealed, tag) = rest.split_last_chunk::<TAG_BYTES>().ok_or(Refused::Malformed)?;
        let [key_id, counter @ ..] = *header;
        if key_id != self.key_id {
            return Err(Refused::UnknownKey);
        }
        if sealed.len() != packet.len() {
            return Err(Refused::Malformed);
        }
        let nonce = nonce(u64::from_be_bytes(counter));
        let mut aad = [0; HEADER_BYTES + BOUND_BYTES_MAX];
        let aad = associated(header, bound, &mut aad)?;
        let opened = self.key.open_separate_gather(nonce, Aad::from(aad), sealed, tag, packet);
        opened.map_err(|_| Refused::Tag)
    }

    /// Packets that have been sealed.
    #[must_use]
    pub fn packets(&self) -> u64 {
        self.counter.load(Ordering::Relaxed)
    }
}

/// Opens the packets of one direction, each once. Workers may share it.
pub struct Opener {
    key: LessSafeKey,
    window: Mutex<ReplayWindow>,
}

impl Opener {
    pub(crate) fn new(suite: Suite, secret: &Secret<32>, window_packets: usize) -> Self {
        Self { key: suite.key(secret), window: Mutex::new(ReplayWindow::new(window_packets)) }
    }

    /// The key id of an envelope; `None` if it is too short.
    #[must_use]
    pub fn key_id_of(envelope: &[u8]) -> Option<u8> {
        (envelope.len() >= ENVELOPE_BYTES).then(|| envelope[0])
    }

    /// Decrypts in place and returns the packet. The buffer of a refused envelope is meaningless.
    ///
    /// # Errors
    /// The envelope is not one of this key, or its packet was already received.
    pub fn open<'a>(&self, envelope: &'a mut [u8], bound: &[u8]) -> Result<&'a mut [u8], Refused> {
        if envelope.len() < ENVELOPE_BYTES {
            return Err(Refused::Malformed);
        }
        let (header, sealed) =
            envelope.split_first_chunk_mut::<HEADER_BYTES>().ok_or(Refused::Malformed)?;
        let [_, counter @ ..] = *header;
        let counter = u64::from_be_bytes(counter);
        if !self.window().is_fresh(counter) {
            return Err(Refused::Replayed);
        }
        let mut aad = [0; HEADER_BYTES + BOUND_BYTES_MAX];
        let aad = associated(header, bound, &mut aad)?;
        let packet = self
            .key
            .open_in_place(nonce(counter), Aad::from(aad), sealed)
            .map_err(|_| Refused::Tag)?;
        // Another worker may have opened a copy meanwhile.
        if self.window().accept(counter) { Ok(packet) } else { Err(Refused::Replayed) }
    }

    /// Verifies a report by the seal that [`Sealer::seal_report`] made of it, once.
    ///
    /// # Errors
    /// The seal is not one of this key and report, or was already received.
    pub fn open_report(&self, seal: &[u8], report: &[u8]) -> Result<(), Refused> {
        let (header, tag) = seal.split_first_chunk::<HEADER_BYTES>().ok_or(Refused::Malformed)?;
        let mut tag: [u8; TAG_BYTES] = tag.try_into().map_err(|_| Refused::Malformed)?;
        let [_, counter @ ..] = *header;
        let counter = u64::from_be_bytes(counter);
        if !self.window().is_fresh(counter) {
            return Err(Refused::Replayed);
        }
        check_report(report)?;
        let mut aad = [0; REPORT_AAD_BYTES_MAX];
        let aad = Aad::from(associated_report(header, report, &mut aad)?);
        let opened = self.key.open_in_place(nonce(counter), aad, &mut tag);
        opened.map_err(|_| Refused::Tag)?;
        // Another worker may have received a copy meanwhile.
        if self.window().accept(counter) { Ok(()) } else { Err(Refused::Replayed) }
    }

    fn window(&self) -> MutexGuard<'_, ReplayWindow> {
        self.window.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn nonce(counter: u64) -> Nonce {
    let mut bytes = [0; 12];
    bytes[4..].copy_from_slice(&counter.to_be_bytes());
    Nonce::assume_unique_for_key(bytes)
}

/// The header and the caller's context, in one buffer.
fn associated<'a>(
    header: &[u8; HEADER_BYTES],
    bound: &[u8],
    place: &'a mut [u8; HEADER_BYTES + BOUND_BYTES_MAX],
) -> Result<&'a [u8], Refused> {
    let length = HEADER_BYTES + bound.len();
    let written = place.get_mut(..length).ok_or(Refused::Long)?;
    written[..HEADER_BYTES].copy_from_slice(header);
    written[HEADER_BYTES..].copy_from_slice(bound);
    Ok(written)
}

const REPORT_AAD_BYTES_MAX: usize = HEADER_BYTES + REPORT.len() + REPORT_BYTES_MAX;

fn check_report(report: &[u8]) -> Result<(), Refused> {
    match report.len() {
        0..=BOUND_BYTES_MAX => Err(Refused::Malformed),
        length if length > REPORT_BYTES_MAX => Err(Refused::Long),
        _ => Ok(()),
    }
}

/// The header and a report, in one buffer.
fn associated_report<'a>(
    header: &[u8; HEADER_BYTES],
    report: &[u8],
    place: &'a mut [u8; REPORT_AAD_BYTES_MAX],
) -> Result<&'a [u8], Refused> {
    let written = place.get_mut(..HEADER_BYTES + REPORT.len() + report.len());
    let written = written.ok_or(Refused::Long)?;
    written[..HEADER_BYTES].copy_from_slice(header);
    written[HEADER_BYTES..][..REPORT.len()].copy_from_slice(REPORT);
    written[HEADER_BYTES + REPORT.len()..].copy_from_slice(report);
    Ok(written)
}
