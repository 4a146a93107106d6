//! The first bytes of a shard: which set it belongs to, and which shard it is. `README.md` has the
//! table of its fields.

use crate::layout::{HEADER_BYTES, Layout};
use crate::unit::{CHECKSUM_BYTES, Checksum, SetId};

/// First bytes of every shard.
const MAGIC: [u8; 8] = *b"RCDSTRIP";

/// The format described here. A program refuses any other.
pub const VERSION: u16 = 1;

/// Bytes that the checksum covers.
const COVERED: usize = HEADER_BYTES - CHECKSUM_BYTES;

/// The content of a set.
#[derive(Copy, Clone, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Content {
    /// Bytes of one file or of a stream.
    File,
    /// A folder, as a tar archive.
    Folder,
}

/// Most updates of a set.
const REVISION_MAX: u64 = 1 << 56;

/// Permissions that a header can hold.
const MODE_MAX: u16 = 0o777;

/// Header of a shard. Shards of one set differ in `shard` only.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// The set.
    pub set: SetId,
    /// Code and lengths.
    pub layout: Layout,
    /// Kind of content.
    pub content: Content,
    /// Permissions of the protected file or folder, 9 bits.
    pub mode: u16,
    /// Updates of the set since it was encoded. A shard with fewer is stale.
    pub revision: u64,
    /// Which shard: data from 0, then parity.
    pub shard: usize,
}

/// The reason why bytes are not a header.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum HeaderError {
    /// They do not begin as a shard does.
    Foreign,
    /// A newer format.
    Version(u16),
    /// The checksum does not match, or numbers contradict each other.
    Damaged,
}

impl Header {
    /// The same for another shard of the set.
    #[must_use]
    pub const fn of_shard(self, shard: usize) -> Self {
        Self { shard, ..self }
    }

    /// Whether another header belongs to the same set and agrees with this one. Revisions may
    /// differ.
    #[must_use]
    pub fn agrees(&self, other: &Self) -> bool {
        *self == Self { shard: self.shard, revision: self.revision, ..*other }
    }

    /// The bytes in a shard.
    #[must_use]
    pub fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let Self { set, layout, content, mode, revision, shard } = self;
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        bytes[10] = u8::from(content == Content::Folder);
        // The layout has at most 256 shards and units of at most 1 MiB.
        bytes[12..14].copy_from_slice(&(layout.data() as u16).to_le_bytes());
        bytes[14..16].copy_from_slice(&(layout.parity() as u16).to_le_bytes());
        bytes[16..18].copy_from_slice(&(shard as u16).to_le_bytes());
        bytes[18..20].copy_from_slice(&(mode & MODE_MAX).to_le_bytes());
        bytes[20..24].copy_from_slice(&(layout.unit_bytes() as u32).to_le_bytes());
        bytes[24..40].copy_from_slice(&set.0);
        bytes[40..48].copy_from_slice(&layout.total_bytes().to_le_bytes());
        bytes[48..56].copy_from_slice(&revision.to_le_bytes());
        let sum = blake3::hash(&bytes[..COVERED]);
        bytes[COVERED..].copy_from_slice(sum.as_bytes());
        bytes
    }

    /// Reads a header.
    ///
    /// # Errors
    /// The bytes are not a header of this format.
    pub fn parse(bytes: &[u8]) -> Result<Self, HeaderError> {
        if !bytes.starts_with(&MAGIC) {
            return Err(HeaderError::Foreign);
        }
        let bytes: &[u8; HEADER_BYTES] = bytes.try_into().map_err(|_| HeaderError::Damaged)?;
        let (covered, sum) = bytes.split_at(COVERED);
        let expected: Checksum = *blake3::hash(covered).as_bytes();
        if expected != *sum {
            return Err(HeaderError::Damaged);
        }
        let version = number(&bytes[8..10]) as u16;
        if version != VERSION {
            return Err(HeaderError::Version(version));
        }
        Self::parse_fields(bytes).ok_or(HeaderError::Damaged)
    }

    fn parse_fields(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        let content = match bytes[10] {
            0 => Content::File,
            1 => Content::Folder,
            _ => return None,
        };
        let [data, parity, shard, mode] =
            [12, 14, 16, 18].map(|start| number(&bytes[start..][..2]) as usize);
        let unit_bytes = number(&bytes[20..24]) as usize;
        let layout = Layout::new(data, parity, unit_bytes).ok()?;
        let layout = layout.with_total(number(&bytes[40..48])).ok()?;
        let set = SetId(bytes[24..40].try_into().ok()?);
        let revision = number(&bytes[48..56]);
        let header = Self { set, layout, content, mode: mode as u16, revision, shard };
        let is_in_range = shard < layout.shards() && revision <= REVISION_MAX;
        // Reserved bits are zero; the comparison covers all of them.
        (is_in_range && header.to_bytes() == *bytes).then_some(header)
    }
}

/// A little-endian number of up to 8 bytes.
pub(crate) fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        let layout = Layout::new(10, 4, 4096).and_then(|it| it.with_total(123_456_789));
        Header {
            set: SetId(std::array::from_fn(|index| index as u8)),
            layout: layout.expect("it is in range"),
            content: Content::Folder,
            mode: 0o640,
            revision: 7,
            shard: 13,
        }
    }

    #[test]
    fn header_returns_from_its_bytes() {
        assert_eq!(Header::parse(&header().to_bytes()), Ok(header()));
    }

    #[test]
    fn any_changed_byte_or_length_is_found() {
        let bytes = header().to_bytes();
        for index in 0..HEADER_BYTES {
            let mut changed = bytes;
            changed[index] ^= 1;
            assert!(Header::parse(&changed).is_err(), "byte {index}");
        }
        for length in 0..HEADER_BYTES {
            assert!(Header::parse(&bytes[..length]).is_err(), "{length} bytes");
        }
    }

    /// Numbers that contradict each other are refused under a checksum that matches.
    #[test]
    fn forged_numbers_are_refused() {
        for (start, value) in
            [(10, 2), (11, 1), (12, 0), (16, 14), (19, 2), (20, 3), (47, 255), (55, 2)]
        {
            let mut bytes = header().to_bytes();
            bytes[start] = value;
            let sum = blake3::hash(&bytes[..COVERED]);
            bytes[COVERED..].copy_from_slice(sum.as_bytes());
            assert_eq!(Header::parse(&bytes), Err(HeaderError::Damaged), "byte {start}");
        }
    }

    #[test]
    fn other_version_is_reported() {
        let mut bytes = header().to_bytes();
        bytes[8] = 2;
        let sum = blake3::hash(&bytes[..COVERED]);
        bytes[COVERED..].copy_from_slice(sum.as_bytes());
        assert_eq!(Header::parse(&bytes), Err(HeaderError::Version(2)));
    }
}
