//! Why a key is not one, and why a packet is refused.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why a key cannot be read.
#[derive(Debug, Error)]
pub enum KeyError {
    /// The text is not 32 bytes in base64.
    #[error("a key is 32 bytes in base64: 44 characters, the last of which is `=`")]
    Text,
    /// A public key with which every private key gives the same secret.
    #[error("this is no public key: it lies in the small subgroup of Curve25519")]
    SmallOrder,
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What Linux says.
        source: io::Error,
    },
    /// The path leads to something else than a file.
    #[error("{}: not a regular file", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// Others than the owner may read or write the file.
    #[error("{}: mode {mode:04o} lets others in; do: chmod 600 {}", path.display(), path.display())]
    Mode {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The file holds no key.
    #[error("{}: {source}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<KeyError>,
    },
}

/// Why a packet, or the sending of one, is refused. Nothing has changed when it is.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Error)]
pub enum Refused {
    /// Too short, or of no known form.
    #[error("malformed")]
    Malformed,
    /// Longer than keys were made for.
    #[error("longer than the keys are")]
    Long,
    /// No key of that id.
    #[error("no key of this id")]
    UnknownKey,
    /// The tag is wrong: a forgery, damage, or another key.
    #[error("the tag is wrong")]
    Tag,
    /// Seen before, or too old to tell.
    #[error("replayed")]
    Replayed,
    /// The coding vector is zero; such a symbol verifies under any key and says nothing.
    #[error("the coding vector is zero")]
    ZeroVector,
    /// More coefficients than symbols, or a symbol that has no mask here.
    #[error("the coding vector does not fit the unit")]
    Vector,
    /// The key has been used as often as it may be.
    #[error("the key is used up")]
    Exhausted,
    /// A holder of some columns only cannot form tags.
    #[error("not all columns of the key are known")]
    Incomplete,
    /// A handshake that no pending one answers.
    #[error("unexpected handshake message")]
    Unexpected,
    /// The handshake does not decrypt: another pre-shared key, another peer, or a forgery.
    #[error("the handshake does not decrypt")]
    Handshake,
    /// The peer has another key than the expected one.
    #[error("another peer")]
    OtherPeer,
    /// An initiation or opening that is not newer than the last one.
    #[error("older than one before: the clock of the sender went back, or it is a recorded copy")]
    Stale,
    /// What is not to be forgotten over a restart could not be written down.
    #[error("what is to be remembered over a restart cannot be kept")]
    NotKept,
    /// The other end of a flow has tags of another length.
    #[error("the other end has tags of another length: edge_profile must be the same at both")]
    Strength,
    /// Initiations come too fast.
    #[error("too soon after the last one")]
    TooSoon,
}
