//! Errors: the problem on the first line, the fix on the second one. Refused datagrams have reasons
//! of their own, which are counted.

use std::io;

use crate::bounds::{BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, BLOCKS_MAX, SEGMENTS_MAX};

/// The reason why a manifest or its sizes are refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ManifestError {
    /// Not 64 hexadecimal digits.
    #[error("a content id has 64 hexadecimal digits\nfix: copy the id that `serve` printed")]
    ContentId,
    /// A code that does not exist.
    #[error("{blocks} blocks in a segment\nfix: choose 1 to {BLOCKS_MAX}")]
    Blocks {
        /// Blocks of a segment.
        blocks: u16,
    },
    /// A block of another length.
    #[error("a block of {block_bytes} B\nfix: choose {BLOCK_BYTES_MIN} to {BLOCK_BYTES_MAX}")]
    BlockBytes {
        /// Bytes of a block.
        block_bytes: u32,
    },
    /// Nothing, or too much.
    #[error(
        "{total_bytes} B are {segments} segments, not 1 to {SEGMENTS_MAX}\n\
         fix: serve a file that is not empty, or choose longer segments"
    )]
    TotalBytes {
        /// Bytes of the content.
        total_bytes: u64,
        /// Segments they would take.
        segments: u64,
    },
    /// Other bytes than a manifest.
    #[error("not a manifest")]
    Magic,
    /// A manifest of another version.
    #[error("manifest version {version} is unknown\nfix: update this program")]
    Version {
        /// The version.
        version: u16,
    },
    /// Hashes are missing or too many.
    #[error("the manifest has the wrong length")]
    Length,
}

/// The reason why the program stops.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Sizes out of range.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The content id names a manifest that this program cannot use.
    #[error("the content id is right, but the manifest cannot be used: {0}")]
    Content(ManifestError),
    /// An error of the system.
    #[error("cannot {action} {name}: {source}")]
    Io {
        /// The operation.
        action: &'static str,
        /// The file or address.
        name: String,
        /// The error.
        source: io::Error,
    },
    /// A key file that is no key.
    #[error(
        "{name} holds no key of {bytes} bytes in hexadecimal\n\
         fix: `(umask 077; head -c {bytes} /dev/urandom | xxd -p -c 99 > {name})`"
    )]
    KeyFile {
        /// The file.
        name: String,
        /// Bytes of such a key.
        bytes: usize,
    },
    /// The output exists.
    #[error("{name} exists\nfix: choose another output, or remove it")]
    Exists {
        /// The output.
        name: String,
    },
    /// No peer serves the content, or none has more of it.
    #[error(
        "no peer served the content for {seconds} s: {state}\n\
         fix: check addresses, content id, firewall and `--key`, and that a peer is running"
    )]
    NoPeer {
        /// Seconds without progress.
        seconds: u64,
        /// State of the peers.
        state: String,
    },
    /// The content would not fit in memory.
    #[error("the content has {bytes} B, more than --memory permits\nfix: raise --memory")]
    Memory {
        /// Bytes of the content.
        bytes: u64,
    },
    /// The segments match, and the whole does not: the manifest contradicts itself.
    #[error("the content does not match its hash\nfix: ask the source for a new content id")]
    ContentHash,
    /// The checks of the source confirm blocks that its manifest contradicts.
    #[error(
        "{segments} segments passed the source's checks and failed their SHA-256\n\
         fix: ask the source for a new content id"
    )]
    Contradiction {
        /// Such segments.
        segments: u32,
    },
    /// No random numbers.
    #[error("the random generator of the system failed: {0}")]
    Random(getrandom::Error),
    /// The user stopped it.
    #[error("interrupted before the content was complete")]
    Interrupted,
}

impl Error {
    pub(crate) fn io(action: &'static str, name: impl ToString, source: io::Error) -> Self {
        Self::Io { action, name: name.to_string(), source }
    }

    /// Whether arguments are wrong, as opposed to the network or files.
    #[must_use]
    pub const fn is_of_arguments(&self) -> bool {
        matches!(self, Self::Manifest(_) | Self::KeyFile { .. } | Self::Exists { .. })
    }
}

/// The reason why a datagram is dropped. Each is one counter.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Drop {
    /// Not a message of this version.
    Malformed,
    /// The datagram has no correct MAC under the pre-shared key.
    Unauthenticated,
    /// The cookie is missing, old, or of another address.
    Cookie,
    /// A hello for another content.
    OtherContent,
    /// The table of peers is full.
    Full,
    /// No such session at this address.
    NoSession,
    /// A request older than the latest one.
    Stale,
    /// The budget of the peer is exhausted.
    Budget,
    /// A message that the receiver of it never expects.
    Unexpected,
    /// A block, checks or manifest that is forged.
    Forged,
}

impl Drop {
    /// Number of reasons.
    pub const COUNT: usize = 10;

    /// Names of the reasons, in their order.
    pub const NAMES: [&str; Self::COUNT] = [
        "malformed",
        "unauthenticated",
        "cookie",
        "other_content",
        "full",
        "no_session",
        "stale",
        "budget",
        "unexpected",
        "forged",
    ];
}
