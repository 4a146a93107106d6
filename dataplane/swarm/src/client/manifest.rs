//! Fetches the manifest from one peer at a time. Its hash is the content id: a peer that sends
//! another one is banned.

use crate::error::ManifestError;
use crate::manifest::{ContentId, MANIFEST_BYTES_MAX, Manifest};
use crate::wire::PART_BYTES;

/// Parts that are requested at the same time: less than a burst of a server.
const PARTS: usize = 8;

/// Rounds without a new part after which another peer is queried.
const ROUNDS_MAX: u32 = 6;

/// The same if no other peer is there: a session that works stays. At a loss of 50 % in each
/// direction, 0.3 % of fetches get this far.
const ROUNDS_ALONE_MAX: u32 = 20;

/// A manifest that is being received from one peer.
pub(super) struct Fetch {
    pub peer: usize,
    bytes: Vec<u8>,
    /// Whether the part of this index has arrived.
    arrived: Vec<bool>,
    requested_at: Option<u64>,
    rounds: u32,
}

/// The result of a part.
pub(super) enum Fetched {
    /// Parts are missing.
    Incomplete {
        /// Whether the part had not arrived before.
        is_new: bool,
    },
    /// The peer sent another manifest.
    Forged,
    /// The content id names these bytes, which are no manifest of this version.
    Invalid(ManifestError),
    Complete(Manifest),
}

impl Fetch {
    /// `None` if no manifest has that length.
    pub(super) fn new(peer: usize, bytes: u32) -> Option<Self> {
        let bytes = bytes as usize;
        if bytes == 0 || bytes > MANIFEST_BYTES_MAX {
            return None;
        }
        Some(Self {
            peer,
            bytes: vec![0; bytes],
            arrived: vec![false; bytes.div_ceil(PART_BYTES)],
            requested_at: None,
            rounds: 0,
        })
    }

    /// Offsets of parts to request now; all that are requested have `wait` to arrive.
    pub(super) fn requests(&mut self, now: u64, wait: u64) -> Vec<u32> {
        if self.requested_at.is_some_and(|at| now.saturating_sub(at) < wait) {
            return Vec::new();
        }
        self.requested_at = Some(now);
        self.rounds += 1;
        let missing = self.arrived.iter().enumerate().filter(|&(_, &arrived)| !arrived);
        missing.take(PARTS).map(|(index, _)| (index * PART_BYTES) as u32).collect()
    }

    /// Whether the peer does not answer. `is_alone`: no other peer can be queried instead.
    pub(super) const fn is_stuck(&self, is_alone: bool) -> bool {
        self.rounds > if is_alone { ROUNDS_ALONE_MAX } else { ROUNDS_MAX }
    }

    /// Takes a part.
    pub(super) fn take(&mut self, id: ContentId, offset: u32, part: &[u8]) -> Fetched {
        let offset = offset as usize;
        let index = offset / PART_BYTES;
        let expected = self.bytes.len().saturating_sub(offset).min(PART_BYTES);
        if !offset.is_multiple_of(PART_BYTES) || part.len() != expected || expected == 0 {
            return Fetched::Forged;
        }
        let is_new = !self.arrived[index];
        if is_new {
            self.bytes[offset..offset + part.len()].copy_from_slice(part);
            self.arrived[index] = true;
            self.rounds = 0;
            if self.arrived[..=index].iter().all(|&arrived| arrived)
                && (index + 1).is_multiple_of(PARTS)
            {
                self.requested_at = None;
            }
        }
        if !self.arrived.iter().all(|&arrived| arrived) {
            return Fetched::Incomplete { is_new };
        }
        if Manifest::id_of(&self.bytes) != id {
            return Fetched::Forged;
        }
        Manifest::parse(&self.bytes).map_or_else(Fetched::Invalid, Fetched::Complete)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A manifest of a later version, under its own id, is no forgery of the peer.
    #[test]
    fn manifest_of_another_version_accuses_nobody() {
        let manifest = Manifest::describe(&[7; 1000], 4, 256, [1; 32]).expect("valid");
        let mut bytes = manifest.to_bytes();
        bytes[9] = 2;
        let mut fetch = Fetch::new(0, bytes.len() as u32).expect("a length");
        let fetched = fetch.take(Manifest::id_of(&bytes), 0, &bytes);
        assert!(matches!(fetched, Fetched::Invalid(ManifestError::Version { version: 2 })));
        let mut fetch = Fetch::new(0, bytes.len() as u32).expect("a length");
        assert!(matches!(fetch.take(manifest.id(), 0, &bytes), Fetched::Forged));
    }
}
