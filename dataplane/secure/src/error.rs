//! Reasons why a key is invalid, and why a packet is refused.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why a key cannot be read.
#[derive(Debug, Error)]
pub enum KeyError {
    /// The text is not 32 bytes in base64.
    #[error("a key is 32 bytes in base64: 44 characters that end in `=`")]
    Text,
    /// A public key that gives the same secret with every private key.
    #[error("this is no public key: it lies in the small subgroup of Curve25519")]
    SmallOrder,
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The path does not lead to a regular file.
    #[error("{}: not a regular file", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// Users other than the owner may read or write the file.
    #[error("{}: mode {mode:04o} lets others in; do: chmod 600 {}", path.display(), path.display())]
    Mode {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The file belongs to a user other than root and that of this process.
    #[error("{0}: belongs to user {owner}, who can read it; do: chown root {0}", path.display())]
    Owner {
        /// The file.
        path: PathBuf,
        /// Its owner.
        owner: u32,
    },
    /// The file holds no key.
    #[error("{}: {source}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The problem with it.
        source: Box<KeyError>,
    },
}

/// Why a packet, or the sending of one, is refused. A refusal changes no state.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Error)]
pub enum Refused {
    /// Too short, or of no known form.
    #[error("malformed")]
    Malformed,
    /// Longer than the keys allow.
    #[error("longer than the keys are")]
    Long,
    /// No key of that id.
    #[error("no key of this id")]
    UnknownKey,
    /// The tag is wrong: a forgery, damage, or another key.
    #[error("the tag is wrong")]
    Tag,
    /// Seen before, or too old to decide.
    #[error("replayed")]
    Replayed,
    /// The coding vector is zero; such a symbol verifies under any key and carries no information.
    #[error("the coding vector is zero")]
    ZeroVector,
    /// More coefficients than symbols, or a symbol without a mask here.
    #[error("the coding vector does not fit the unit")]
    Vector,
    /// The key has reached its usage limit.
    #[error("the key is used up")]
    Exhausted,
    /// A holder of only some columns cannot form tags.
    #[error("not all columns of the key are known")]
    Incomplete,
    /// A handshake message without a matching pending handshake.
    #[error("unexpected handshake message")]
    Unexpected,
    /// The handshake does not decrypt: another pre-shared key, another peer, or a forgery.
    #[error("the handshake does not decrypt")]
    Handshake,
    /// The peer's key is not the expected one.
    #[error("another peer")]
    OtherPeer,
    /// An initiation or opening that is not newer than the last one.
    #[error("older than one before: the clock of the sender went back, or it is a recorded copy")]
    Stale,
    /// The peer returned a mark of this session that another copy of its memory made.
    #[error("this box was set back to a snapshot, or runs twice: it begins with new keys")]
    SetBack,
    /// State that must survive a restart could not be stored.
    #[error("what is to be remembered over a restart cannot be kept")]
    NotKept,
    /// The other end of a flow has tags of another length.
    #[error("the other end has tags of another length: edge_profile must be the same at both")]
    Strength,
    /// The peer and this node number this path differently.
    #[error("another path: path must be the same number at both ends of it")]
    OtherPath,
    /// Initiations come too fast.
    #[error("too soon after the last one")]
    TooSoon,
    /// The neighbour that brought the message brought too many that failed.
    #[error("the neighbour brings too many messages that are refused")]
    TooMany,
}
