//! Segments in memory, shared by the threads that receive and those that serve.
//!
//! ```text
//!  Absent --verified block--> Partial --decoded, SHA-256 correct--> Complete --written--> Absent
//! ```
//!
//! A partial segment has combinations that checks have verified, and serves combinations of them.
//! Blocks that nothing has verified never get here, so no node forwards a forgery.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use recoded_gf::Kernel;

use crate::bounds::BLOCKS_MAX;
use crate::manifest::{Layout, Manifest};
use crate::random::{Random, expand};
use crate::wire::Coding;

/// Blocks that one product computes: enough for the kernel's widest tile, and few enough for the
/// stack.
pub(crate) const BUNDLE: usize = 16;

/// Combinations of a segment that have been verified.
#[derive(Default)]
pub(crate) struct Partial {
    /// Coding vectors, end to end.
    vectors: Vec<u8>,
    /// Payloads, end to end.
    payloads: Vec<u8>,
}

/// A segment.
#[derive(Default)]
pub(crate) enum Segment {
    /// Nothing of it.
    #[default]
    Absent,
    /// Innovative combinations, verified.
    Partial(Partial),
    /// Its blocks end to end, the last one padded with zeros.
    Complete(Vec<u8>),
}

/// The segments of a content.
pub struct Store {
    manifest: Manifest,
    manifest_bytes: Vec<u8>,
    segments: Vec<RwLock<Segment>>,
}

impl Store {
    /// A store that has nothing yet.
    #[must_use]
    pub fn empty(manifest: Manifest) -> Self {
        let segments = (0..manifest.layout.segments()).map(|_| RwLock::default()).collect();
        Self { manifest_bytes: manifest.to_bytes(), manifest, segments }
    }

    /// A store that has the content, whose length is that of the manifest.
    #[must_use]
    pub fn complete(manifest: Manifest, content: &[u8]) -> Self {
        let store = Self::empty(manifest);
        let segment_bytes = store.manifest.layout.segment_bytes() as usize;
        for (number, bytes) in content.chunks(segment_bytes).enumerate() {
            store.set(number as u32, Segment::Complete(store.padded(number as u32, bytes)));
        }
        store
    }

    /// The description.
    #[must_use]
    pub const fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The bytes of the description.
    #[must_use]
    pub fn manifest_bytes(&self) -> &[u8] {
        &self.manifest_bytes
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.manifest.layout
    }

    /// A segment to read. `None` if there is none of this number.
    pub(crate) fn read(&self, segment: u32) -> Option<RwLockReadGuard<'_, Segment>> {
        let lock = self.segments.get(segment as usize)?;
        // Writers replace or append; a panic between leaves nothing that verification misses.
        Some(lock.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write(&self, segment: u32) -> Option<RwLockWriteGuard<'_, Segment>> {
        let lock = self.segments.get(segment as usize)?;
        Some(lock.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces a segment.
    pub(crate) fn set(&self, segment: u32, content: Segment) {
        if let Some(mut place) = self.write(segment) {
            *place = content;
        }
    }

    /// Adds a verified combination that is innovative.
    pub(crate) fn add(&self, segment: u32, vector: &[u8], payload: &[u8]) {
        let Some(mut place) = self.write(segment) else { return };
        if matches!(*place, Segment::Absent) {
            *place = Segment::Partial(Partial::default());
        }
        if let Segment::Partial(partial) = &mut *place {
            partial.vectors.extend_from_slice(vector);
            partial.payloads.extend_from_slice(payload);
        }
    }

    fn padded(&self, segment: u32, bytes: &[u8]) -> Vec<u8> {
        let layout = self.layout();
        let mut padded = vec![0; layout.blocks_of(segment) * layout.block_bytes as usize];
        padded[..bytes.len()].copy_from_slice(bytes);
        padded
    }
}

impl Segment {
    /// Degrees of freedom.
    pub(crate) fn rank(&self, layout: &Layout) -> usize {
        let bytes = match self {
            Self::Absent => 0,
            Self::Partial(partial) => partial.payloads.len(),
            Self::Complete(blocks) => blocks.len(),
        };
        bytes / layout.block_bytes as usize
    }
}

/// A combination that is to be computed.
pub(crate) struct Combination {
    vector: [u8; BLOCKS_MAX as usize],
    length: usize,
    seed: Option<u64>,
}

impl Combination {
    pub(crate) const EMPTY: Self = Self { vector: [0; BLOCKS_MAX as usize], length: 0, seed: None };

    /// Coefficients as they are sent.
    pub(crate) fn coding(&self) -> Coding<'_> {
        match self.seed {
            Some(seed) => Coding::Seed(seed),
            None => Coding::Vector(&self.vector[..self.length]),
        }
    }
}

/// Computes up to [`BUNDLE`] random combinations of a segment into `payloads`. The segment has at
/// least one block or combination.
pub(crate) fn combine(
    segment: &Segment,
    blocks: usize,
    random: &mut Random,
    combinations: &mut [Combination],
    payloads: &mut [&mut [u8]],
) {
    let kernel = Kernel::best();
    let block_bytes = payloads.first().map_or(1, |payload| payload.len());
    let (rows, sources): (usize, &[u8]) = match segment {
        Segment::Absent => return,
        Segment::Partial(partial) => (partial.payloads.len() / block_bytes, &partial.payloads),
        Segment::Complete(bytes) => (blocks, bytes),
    };
    let mut factors = [0; BUNDLE * BLOCKS_MAX as usize];
    let factors = &mut factors[..rows * payloads.len()];
    for (combination, factors) in combinations.iter_mut().zip(factors.chunks_exact_mut(rows)) {
        let seed = random.number();
        expand(seed, factors);
        combination.length = blocks;
        combination.seed = matches!(segment, Segment::Complete(_)).then_some(seed);
    }
    if let Segment::Partial(partial) = segment {
        let vectors = slices(&partial.vectors, blocks);
        let mut products: [&mut [u8]; BUNDLE] = Default::default();
        for (product, combination) in products.iter_mut().zip(&mut *combinations) {
            *product = &mut combination.vector[..blocks];
        }
        kernel.matmul(factors, &vectors[..rows], &mut products[..payloads.len()]);
    }
    kernel.matmul(factors, &slices(sources, block_bytes)[..rows], payloads);
}

/// References to rows of `bytes` bytes.
pub(crate) fn slices(rows: &[u8], bytes: usize) -> [&[u8]; BLOCKS_MAX as usize] {
    let mut slices: [&[u8]; BLOCKS_MAX as usize] = [&[]; BLOCKS_MAX as usize];
    for (slice, row) in slices.iter_mut().zip(rows.chunks_exact(bytes)) {
        *slice = row;
    }
    slices
}
