//! Segments that stay in memory that the card reads, so that bundles over them bring no sources
//! along.
//!
//! They lie in memory that is allocated when the engine is opened, each at the first gap that is
//! large enough. A kept segment is dropped at the first call after all other holders dropped it;
//! bundles in flight hold theirs.

use std::sync::{Arc, Weak};

use recoded_code::engine::Segment;

use crate::transport::{MemoryError, Transport};

/// The kept segments, within a limit.
pub(super) struct Segments {
    start: u64,
    bytes: usize,
    /// In the order of their offsets.
    kept: Vec<KeptSegment>,
}

struct KeptSegment {
    segment: Weak<Segment>,
    offset: usize,
    bytes: usize,
}

impl Segments {
    /// No segments yet, in these bytes of the memory that the card reaches.
    pub const fn new(start: u64, bytes: usize) -> Self {
        Self { start, bytes, kept: Vec::new() }
    }

    /// Bytes of all kept segments.
    pub fn bytes(&self) -> usize {
        self.kept.iter().map(|kept| kept.bytes).sum()
    }

    /// The address of the rows, if the card has them.
    pub fn find(&self, segment: &Arc<Segment>) -> Option<u64> {
        // Nothing else can have the address while the weak pointer exists.
        let same = |kept: &&KeptSegment| kept.segment.as_ptr() == Arc::as_ptr(segment);
        self.kept.iter().find(same).map(|kept| self.start + kept.offset as u64)
    }

    /// Copies the rows; `Ok(false)` without room.
    pub fn keep(
        &mut self,
        segment: &Arc<Segment>,
        memory: &mut impl Transport,
    ) -> Result<bool, MemoryError> {
        self.kept.retain(|kept| kept.segment.strong_count() > 0);
        if self.find(segment).is_some() {
            return Ok(true);
        }
        let bytes = segment.bytes().next_multiple_of(BEAT_BYTES);
        let Some((place, offset)) = self.gap(bytes) else { return Ok(false) };
        memory.write(self.start + offset as u64, &segment.arena()[..segment.bytes()])?;
        self.kept.insert(place, KeptSegment { segment: Arc::downgrade(segment), offset, bytes });
        Ok(true)
    }

    /// The first gap for `bytes`: its place among the kept segments, and its offset.
    fn gap(&self, bytes: usize) -> Option<(usize, usize)> {
        let mut end = 0;
        for (place, kept) in self.kept.iter().enumerate() {
            if kept.offset - end >= bytes {
                return Some((place, end));
            }
            end = kept.offset + kept.bytes;
        }
        (self.bytes - end >= bytes).then_some((self.kept.len(), end))
    }
}

/// Bytes that the card reads at once.
const BEAT_BYTES: usize = 64;
