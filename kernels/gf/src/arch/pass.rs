//! A pass of a matrix product over up to 64 sources, and its plan in `fused.rs`: whether it copies
//! tiles, whether it computes factors once for many of them, and tiles whose place in the sources
//! has been checked.

/// Destinations of a block.
pub const STRIP: usize = 4;

/// Bytes of sources to process with the same factors: far more than computing those takes, and few
/// enough for an L2 cache.
pub const READY_BYTES: usize = 64 * 1024;

/// Sources up to which factors are computed once for many tiles. More of them are faster copied,
/// tile by tile, see [`Pass::pays_to_pack`].
pub const READY_SOURCES_MAX: usize = 32;

/// Least number of tiles for that: with fewer, computing factors takes longer than it saves.
pub const READY_TILES_MIN: usize = 16;

/// Parameters that the blocks of one pass share.
#[derive(Copy, Clone)]
pub struct Pass<'a> {
    pub tables: &'static crate::table::Tables,
    /// Row-major; begins at the pass's first column.
    pub coefficients: &'a [u8],
    /// Columns of the whole matrix.
    pub columns: usize,
    /// The pass's sources, at most `fused::SOURCES`.
    pub sources: &'a [&'a [u8]],
    /// Bytes of every source and every destination.
    pub bytes: usize,
    /// Whether to add to the destinations.
    pub accumulate: bool,
}

impl Pass<'_> {
    /// Whether to compute factors once for many tiles of `tile_bytes`: for enough of them, and
    /// unless sources evict each other, which processing all of them for each strip would make
    /// worse.
    #[inline]
    pub fn pays_to_make_ready(&self, destinations: usize, tile_bytes: usize) -> bool {
        destinations >= STRIP
            && self.sources.len() <= READY_SOURCES_MAX
            && self.bytes >= READY_TILES_MIN * tile_bytes
            && !self.is_crowded()
    }

    /// Bytes of each source to process with the same factors.
    #[inline]
    pub fn ready_bytes(&self, tile_bytes: usize) -> usize {
        (READY_BYTES / self.sources.len().max(1)).next_multiple_of(tile_bytes)
    }

    /// Whether sources crowd a few of the 64 sets of an L1 cache and evict each other: 16 of them
    /// 4096 bytes apart lie in one set, which has room for 8.
    #[inline]
    fn is_crowded(&self) -> bool {
        let set = |source: &&[u8]| 1_u64 << (source.as_ptr() as usize / 64 % 64);
        let sets = self.sources.iter().map(set).fold(0, |sets, set| sets | set);
        self.sources.len() > 4 * sets.count_ones() as usize
    }

    /// Whether to copy tiles: for many sources always; for a few, when they evict each other; never
    /// for destinations too few to read the copy often.
    #[inline]
    pub fn pays_to_pack(&self, destinations: usize) -> bool {
        destinations > 2 * STRIP && (self.sources.len() > 16 || self.is_crowded())
    }
}

/// Vectors of the sources of a pass, `V` of `VECTOR` bytes of each at a time. Checked at creation,
/// so that loading tiles needs no check.
pub struct Tiles<'a, const VECTOR: usize, const V: usize> {
    sources: &'a [&'a [u8]],
    start: usize,
    count: usize,
}

impl<'a, const VECTOR: usize, const V: usize> Tiles<'a, VECTOR, V> {
    /// The whole tiles from `start` to `end`.
    ///
    /// # Panics
    /// When a source ends before.
    #[inline]
    pub fn new(sources: &'a [&'a [u8]], start: usize, end: usize) -> Self {
        let shortest = sources.iter().map(|source| source.len()).fold(end, usize::min);
        assert!(start <= end && shortest == end, "a source ends before its tiles");
        Self { sources, start, count: (end - start) / (V * VECTOR) }
    }

    /// A tile of every source.
    ///
    /// # Panics
    /// When there is no tile of this number.
    #[inline]
    pub fn tile(&self, number: usize) -> Tile<'a, VECTOR, V> {
        assert!(number < self.count);
        Tile { sources: self.sources, start: self.start + number * V * VECTOR }
    }
}

/// One of [`Tiles`], which alone creates it.
pub struct Tile<'a, const VECTOR: usize, const V: usize> {
    sources: &'a [&'a [u8]],
    start: usize,
}

impl<'a, const VECTOR: usize, const V: usize> Tile<'a, VECTOR, V> {
    /// The vectors of a source.
    #[inline]
    pub fn of(&self, source: usize) -> [&'a [u8; VECTOR]; V] {
        let source = self.sources[source].as_ptr();
        core::array::from_fn(|v| {
            // SAFETY: `Tiles::new` checked that every source is as long as all tiles, this one
            // included.
            unsafe { &*source.add(self.start + v * VECTOR).cast() }
        })
    }
}
