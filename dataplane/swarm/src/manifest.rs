//! Description of the content: sizes, hashes, and the public key of its source. Its SHA-256 is the
//! content id, so a receiver accepts it from anyone and verifies it.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use sha2::{Digest, Sha256};

use crate::bounds::{BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, BLOCKS_MAX, SEGMENTS_MAX, VERSION};
use crate::error::ManifestError;

/// First bytes of a manifest.
const MAGIC: [u8; 8] = *b"RCDSWARM";

/// Bytes before the hashes of segments.
const FIXED_BYTES: usize = 88;

/// Bytes of a SHA-256.
const HASH_BYTES: usize = 32;

/// Most bytes of a manifest.
pub const MANIFEST_BYTES_MAX: usize = FIXED_BYTES + SEGMENTS_MAX as usize * HASH_BYTES;

/// Name of a content: the SHA-256 of its manifest.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct ContentId(pub [u8; HASH_BYTES]);

impl fmt::Display for ContentId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl FromStr for ContentId {
    type Err = ManifestError;

    fn from_str(text: &str) -> Result<Self, ManifestError> {
        if text.len() != 2 * HASH_BYTES || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(ManifestError::ContentId);
        }
        let mut id = [0; HASH_BYTES];
        for (byte, digits) in id.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            let digits = std::str::from_utf8(digits).map_err(|_| ManifestError::ContentId)?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| ManifestError::ContentId)?;
        }
        Ok(Self(id))
    }
}

/// Sizes of a content.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Blocks of a segment; the last segment may have fewer.
    pub blocks: u16,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Bytes of the content.
    pub total_bytes: u64,
}

impl Layout {
    /// Checks the bounds.
    ///
    /// # Errors
    /// A size is out of range.
    pub fn new(blocks: u16, block_bytes: u32, total_bytes: u64) -> Result<Self, ManifestError> {
        if !(1..=BLOCKS_MAX).contains(&blocks) {
            return Err(ManifestError::Blocks { blocks });
        }
        if !(BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX).contains(&block_bytes) {
            return Err(ManifestError::BlockBytes { block_bytes });
        }
        let layout = Self { blocks, block_bytes, total_bytes };
        let segments = total_bytes.div_ceil(layout.segment_bytes());
        if !(1..=SEGMENTS_MAX).contains(&segments) {
            return Err(ManifestError::TotalBytes { total_bytes, segments });
        }
        Ok(layout)
    }

    /// Bytes of a complete segment.
    #[must_use]
    pub fn segment_bytes(&self) -> u64 {
        u64::from(self.blocks) * u64::from(self.block_bytes)
    }

    /// Number of segments, at least 1.
    #[must_use]
    pub fn segments(&self) -> u32 {
        self.total_bytes.div_ceil(self.segment_bytes()) as u32
    }

    /// Bytes of the content that a segment holds.
    #[must_use]
    pub fn range(&self, segment: u32) -> Range<u64> {
        let start = u64::from(segment) * self.segment_bytes();
        start.min(self.total_bytes)..(start + self.segment_bytes()).min(self.total_bytes)
    }

    /// Blocks of a segment. The last block of the last segment is padded with zeros.
    #[must_use]
    pub fn blocks_of(&self, segment: u32) -> usize {
        let range = self.range(segment);
        (range.end - range.start).div_ceil(u64::from(self.block_bytes)) as usize
    }
}

/// The description of a content.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Manifest {
    /// Sizes.
    pub layout: Layout,
    /// SHA-256 of the content.
    pub content_hash: [u8; HASH_BYTES],
    /// X25519 public key of the source, which issues checks of blocks.
    pub source: [u8; HASH_BYTES],
    /// SHA-256 of the content of each segment.
    pub segment_hashes: Vec<[u8; HASH_BYTES]>,
}

impl Manifest {
    /// Describes a content.
    ///
    /// # Errors
    /// The content is empty or has too many segments.
    pub fn describe(
        content: &[u8],
        blocks: u16,
        block_bytes: u32,
        source: [u8; HASH_BYTES],
    ) -> Result<Self, ManifestError> {
        let layout = Layout::new(blocks, block_bytes, content.len() as u64)?;
        let segments = content.chunks(layout.segment_bytes() as usize);
        let segment_hashes = segments.map(|bytes| Sha256::digest(bytes).into()).collect();
        Ok(Self { layout, content_hash: Sha256::digest(content).into(), source, segment_hashes })
    }

    /// The manifest as it is sent and hashed.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(FIXED_BYTES + self.segment_hashes.len() * HASH_BYTES);
        bytes.extend(MAGIC);
        bytes.extend(u16::from(VERSION).to_be_bytes());
        bytes.extend(self.layout.blocks.to_be_bytes());
        bytes.extend(self.layout.block_bytes.to_be_bytes());
        bytes.extend(self.layout.total_bytes.to_be_bytes());
        bytes.extend(self.content_hash);
        bytes.extend(self.source);
        bytes.extend(self.segment_hashes.iter().flatten());
        bytes
    }

    /// Parses untrusted bytes.
    ///
    /// # Errors
    /// They are not a manifest of this version, or describe no valid content.
    pub fn parse(bytes: &[u8]) -> Result<Self, ManifestError> {
        let (fixed, hashes) =
            bytes.split_first_chunk::<FIXED_BYTES>().ok_or(ManifestError::Length)?;
        if fixed[..8] != MAGIC {
            return Err(ManifestError::Magic);
        }
        let version = u16::from_be_bytes([fixed[8], fixed[9]]);
        if version != u16::from(VERSION) {
            return Err(ManifestError::Version { version });
        }
        let field = |range: Range<usize>| {
            fixed[range].iter().fold(0_u64, |value, &byte| value << 8 | u64::from(byte))
        };
        let layout = Layout::new(field(10..12) as u16, field(12..16) as u32, field(16..24))?;
        let (hashes, rest) = hashes.as_chunks::<HASH_BYTES>();
        if !rest.is_empty() || hashes.len() != layout.segments() as usize {
            return Err(ManifestError::Length);
        }
        let hash = |start: usize| std::array::from_fn(|index| fixed[start + index]);
        Ok(Self {
            layout,
            content_hash: hash(24),
            source: hash(56),
            segment_hashes: hashes.to_vec(),
        })
    }

    /// The name of the content.
    #[must_use]
    pub fn id(&self) -> ContentId {
        Self::id_of(&self.to_bytes())
    }

    /// The name that a manifest with these bytes gives its content.
    #[must_use]
    pub fn id_of(bytes: &[u8]) -> ContentId {
        ContentId(Sha256::digest(bytes).into())
    }

    /// Whether `content` is that of the segment.
    #[must_use]
    pub fn is_segment(&self, segment: u32, content: &[u8]) -> bool {
        let hash: [u8; HASH_BYTES] = Sha256::digest(content).into();
        self.segment_hashes.get(segment as usize) == Some(&hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn example() -> Manifest {
        let content: Vec<u8> = (0..100_000_u32).map(|index| (index * 7) as u8).collect();
        Manifest::describe(&content, 16, 1024, [7; 32]).expect("it is valid")
    }

    #[test]
    fn manifest_survives_its_bytes() {
        let manifest = example();
        assert_eq!(manifest.layout.segments(), 7);
        assert_eq!(manifest.layout.blocks_of(5), 16);
        assert_eq!(manifest.layout.blocks_of(6), 2);
        assert_eq!(Manifest::parse(&manifest.to_bytes()), Ok(manifest.clone()));
        let id = manifest.id();
        assert_eq!(id.to_string().parse(), Ok(id));
    }

    #[test]
    fn damaged_manifests_are_refused_or_have_another_id() {
        let seed = crate::tests_seed();
        let mut random = Random::new(&seed);
        let (manifest, bytes) = (example(), example().to_bytes());
        for length in 0..bytes.len() {
            assert!(Manifest::parse(&bytes[..length]).is_err());
        }
        for _ in 0..2000 {
            let mut damaged = bytes.clone();
            let index = random.number() as usize % damaged.len();
            damaged[index] ^= 1 << (random.number() % 8);
            if let Ok(parsed) = Manifest::parse(&damaged) {
                assert_ne!(parsed.id(), manifest.id());
            }
            random.fill(&mut damaged[10..]);
            let _ = Manifest::parse(&damaged);
        }
    }

    #[test]
    fn sizes_out_of_range_are_refused() {
        for (blocks, block_bytes, total) in [
            (0, 1024, 1),
            (257, 1024, 1),
            (1, 63, 1),
            (1, 4097, 1),
            (1, 64, 0),
            (1, 64, 65 * SEGMENTS_MAX),
            (256, 4096, u64::MAX),
        ] {
            assert!(Layout::new(blocks, block_bytes, total).is_err());
        }
        for text in ["", "00", &"g0".repeat(32), &"é".repeat(32)] {
            assert_eq!(text.parse::<ContentId>(), Err(ManifestError::ContentId));
        }
    }
}
