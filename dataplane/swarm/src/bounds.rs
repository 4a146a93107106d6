//! Bounds of a content, and the version of its description and of messages.

/// Version of the manifest and of all messages.
pub const VERSION: u8 = 1;

/// Most blocks of a segment: a coding vector of a block has a byte for each.
pub const BLOCKS_MAX: u16 = 256;

/// Least bytes of a block. Shorter ones would spend more on headers than on content.
pub const BLOCK_BYTES_MIN: u32 = 64;

/// Most bytes of a block: those of the papers' streaming server.
pub const BLOCK_BYTES_MAX: u32 = 4096;

/// Most segments: their hashes take 2 MiB, which a receiver allocates before it can verify them.
pub const SEGMENTS_MAX: u64 = 1 << 16;
