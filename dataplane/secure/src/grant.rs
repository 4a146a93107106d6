//! Grants: a source sends a relay the seeds of some columns of its tags, so that the relay verifies
//! symbols before it combines them. A grant is one message without an answer, sealed for that relay
//! only: earlier nodes forward it without learning its contents.
//!
//! ```text
//! grant    = 0x27, 5, strict (1) || epochs (7), columns (8) || stamp (64) || noise || mac1 (128)
//! noise    = Noise_K_25519_ChaChaPoly_BLAKE2s of the source to the relay, payload: for each epoch,
//!            the oldest first, the seeds of its columns, in ascending order, 32 bytes each
//! prologue = "recoded v2" || header and stamp || "columns" || flow (32)
//! mac1     = as of handshakes between source and relay: only these two can form it
//! ```
//!
//! Four columns are granted: bit c of `columns` stands for column c of 8, or if `strict` is set for
//! columns 2 c and 2 c + 1 of 16. Stamps grow, over starts of the source too, so a copy is refused.
//! There is no forward secrecy, and no need for it: an attacker who later learns the relay's key
//! learns the keys of past tags, and nothing that they cover.

use zeroize::Zeroizing;

use crate::derive::Secrets;
use crate::error::Refused;
use crate::handshake::{FIRST_BYTE, GRANT, MAC, Mac1, Scope, noise};
use crate::homomorphic::{ColumnSeed, SUBSET_MIN, Strength};
use crate::keys::{Entropy, PrivateKey, PublicKey};
use crate::profile::STRICT;
use crate::secret::Secret;

/// Maximum epochs of a grant: the one that tags are under, the previous one and the next one.
pub const GRANT_EPOCHS_MAX: usize = 3;

const HEADER: usize = 4;
const STAMP: usize = 8;
const KEY: usize = 32;
const TAG: usize = 16;

/// Bytes of an epoch.
const SEEDS: usize = SUBSET_MIN * 32;

/// The longest grant.
pub const GRANT_BYTES_MAX: usize = grant_bytes(GRANT_EPOCHS_MAX);

/// Seeds of the columns that a relay holds for an epoch, in ascending order.
pub type GrantedSeeds = [ColumnSeed; SUBSET_MIN];

const fn grant_bytes(epochs: usize) -> usize {
    HEADER + STAMP + KEY + epochs * SEEDS + TAG + MAC
}

/// The seeds for the relay at this place of a source's list. Consecutive relays get different
/// halves of 8 columns, or quarters of 16, so that a lying relay does not know the next one's
/// columns.
#[must_use]
pub fn granted_seeds(secrets: &Secrets, strength: Strength, place: usize) -> GrantedSeeds {
    let first = place % (strength.columns() / SUBSET_MIN) * SUBSET_MIN;
    std::array::from_fn(|index| secrets.column_seed((first + index) as u8))
}

/// Number of columns per bit of a grant.
const fn columns_of_bit(strength: Strength) -> u8 {
    strength.columns() as u8 / 8
}

/// Contents of a grant.
#[derive(Copy, Clone, Debug)]
pub struct Grant<'a> {
    /// The flow that uses the tags.
    pub flow: u32,
    /// Grows from grant to grant: the wall clock in nanoseconds.
    pub stamp: u64,
    /// Number of columns of the tags.
    pub strength: Strength,
    /// One to three epochs, all of the same columns.
    pub epochs: &'a [GrantedSeeds],
}

/// Whether a message is a grant, for any node.
#[must_use]
pub fn is_grant(message: &[u8]) -> bool {
    message.first_chunk() == Some(&[FIRST_BYTE, GRANT])
}

/// Writes a grant to the start of `out`, which has room for [`GRANT_BYTES_MAX`] bytes. Returns its
/// length.
///
/// # Errors
/// There are none or too many epochs, or `out` is too short.
pub fn write_grant(
    grant: &Grant<'_>,
    source: &PrivateKey,
    relay: &PublicKey,
    entropy: &Entropy,
    out: &mut [u8],
) -> Result<usize, Refused> {
    let first = grant.epochs.first().ok_or(Refused::Malformed)?;
    if grant.epochs.len() > GRANT_EPOCHS_MAX {
        return Err(Refused::Long);
    }
    let bit = |seed: &ColumnSeed| 1 << (seed.column / columns_of_bit(grant.strength) % 8);
    let columns = first.iter().fold(0, |columns, seed| columns | bit(seed));
    let strict = if grant.strength == Strength::Strict { STRICT } else { 0 };
    let epochs = grant.epochs.len() as u8 | strict;
    let length = grant_bytes(grant.epochs.len());
    let message = out.get_mut(..length).ok_or(Refused::Long)?;
    let (before, tag) = message.split_last_chunk_mut::<MAC>().ok_or(Refused::Long)?;
    let (head, sealed) = before.split_at_mut(HEADER + STAMP);
    head[..HEADER].copy_from_slice(&[FIRST_BYTE, GRANT, epochs, columns]);
    head[HEADER..].copy_from_slice(&grant.stamp.to_be_bytes());
    let mut payload = Zeroizing::new([0; GRANT_EPOCHS_MAX * SEEDS]);
    let seeds = grant.epochs.iter().flatten();
    for (place, seed) in payload.chunks_exact_mut(32).zip(seeds) {
        place.copy_from_slice(seed.seed.expose());
    }
    let payload = &payload[..grant.epochs.len() * SEEDS];
    noise::seal_for(source, relay, &prologue(head, grant.flow), entropy, payload, sealed)?;
    *tag = Mac1::to(source, relay, Scope::Edge(grant.flow)).of(before);
    Ok(length)
}

/// Reads the grants of a source to this relay.
#[derive(Debug)]
pub struct GrantReader {
    private: PrivateKey,
    source: PublicKey,
    flow: u32,
    mac1: Mac1,
    /// Stamp of the newest one.
    newest: u64,
}

impl GrantReader {
    /// A reader for the relay with this private key, for a flow whose source has this public key.
    #[must_use]
    pub fn new(private: PrivateKey, source: PublicKey, flow: u32) -> Self {
        let mac1 = Mac1::from(&private, &source, Scope::Edge(flow));
        Self { private, source, flow, mac1, newest: 0 }
    }

    /// The key of the source.
    #[must_use]
    pub const fn source(&self) -> &PublicKey {
        &self.source
    }

    /// Whether the source formed a grant for this relay, now or before. Takes a hash.
    #[must_use]
    pub fn is_for_this(&self, message: &[u8]) -> bool {
        self.mac1.verifies(message)
    }

    /// Reads a grant: the seeds of its epochs, at least one, and the number of columns of the tags.
    ///
    /// # Errors
    /// It is not a grant, not newer than the last one, or not from this source for this relay and
    /// flow.
    pub fn read(&mut self, message: &[u8]) -> Result<(Strength, Vec<GrantedSeeds>), Refused> {
        let head: &[u8; HEADER + STAMP] = message.first_chunk().ok_or(Refused::Malformed)?;
        let [FIRST_BYTE, GRANT, epochs, columns, stamp @ ..] = *head else {
            return Err(Refused::Malformed);
        };
        let strength = if epochs & STRICT == 0 { Strength::Standard } else { Strength::Strict };
        let (epochs, wide) = (usize::from(epochs & !STRICT), columns_of_bit(strength));
        let held = |column: &u8| columns >> (column / wide) & 1 == 1;
        let columns: Vec<u8> = (0..strength.columns() as u8).filter(held).collect();
        let is_known = (1..=GRANT_EPOCHS_MAX).contains(&epochs)
            && columns.len() == SUBSET_MIN
            && message.len() == grant_bytes(epochs);
        if !is_known {
            return Err(Refused::Malformed);
        }
        if !self.is_for_this(message) {
            return Err(Refused::OtherPeer);
        }
        let stamp = u64::from_be_bytes(stamp);
        if stamp <= self.newest {
            return Err(Refused::Stale);
        }
        let sealed = &message[head.len()..message.len() - MAC];
        let mut payload = Zeroizing::new([0; GRANT_EPOCHS_MAX * SEEDS]);
        let payload = &mut payload[..epochs * SEEDS];
        let prologue = prologue(head, self.flow);
        noise::open_from(&self.private, &self.source, &prologue, sealed, payload)?;
        self.newest = stamp;
        let seeds = |epoch: &[u8]| {
            let (seeds, _) = epoch.as_chunks::<32>();
            let seed = |index: usize| Secret::new(seeds[index]);
            std::array::from_fn(|index| ColumnSeed { column: columns[index], seed: seed(index) })
        };
        Ok((strength, payload.chunks_exact(SEEDS).map(seeds).collect()))
    }
}

fn prologue(head: &[u8], flow: u32) -> Vec<u8> {
    [noise::PROLOGUE, head, b"columns", &flow.to_be_bytes()].concat()
}
