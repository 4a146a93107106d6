//! Errors of the library: the problem on the first line, the fix on the second one.

use std::fmt::Display;
use std::io;
use std::path::PathBuf;

use recoded_code::reed_solomon;

use crate::layout::LayoutError;
use crate::unit::SetId;

/// The reason why an operation failed. Stored files are as they were, or can be recovered.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such code or unit.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The code contradicts the layout, which does not happen.
    #[error(transparent)]
    Code(#[from] reed_solomon::Error),
    /// An error of the system.
    #[error("cannot {action} {name}: {source}")]
    Io {
        /// The operation.
        action: &'static str,
        /// The file.
        name: String,
        /// The error.
        source: io::Error,
    },
    /// Another process works on the set.
    #[error("another process uses {}\nfix: wait until it has ended", path.display())]
    Busy {
        /// The folder.
        path: PathBuf,
    },
    /// The output exists.
    #[error("{} exists\nfix: choose another output, or remove it", path.display())]
    Exists {
        /// The output.
        path: PathBuf,
    },
    /// The output would become a part of the input.
    #[error("{} is inside the folder to protect\nfix: choose another output", path.display())]
    InsideInput {
        /// The output.
        path: PathBuf,
    },
    /// A socket, pipe or device in a folder.
    #[error(
        "{} is no file, folder or symbolic link\nfix: remove it from the folder",
        path.display()
    )]
    Special {
        /// Its path.
        path: PathBuf,
    },
    /// An entry of the archive that is not extracted.
    #[error(
        "{entry} in the archive {reason}\nfix: recover with --output - and inspect the tar archive"
    )]
    Archive {
        /// Its path in the archive.
        entry: String,
        /// The problem.
        reason: &'static str,
    },
    /// No shard has a valid header.
    #[error("no shard with a valid header\nfix: name the folder that `encode` has written")]
    NoSet,
    /// A shard of a newer program.
    #[error("{name} has format {version}\nfix: use a newer version of this program")]
    Version {
        /// The file.
        name: String,
        /// Its format.
        version: u16,
    },
    /// Shards of two sets.
    #[error(
        "{first} is of set {first_set}, {other} of set {other_set}\n\
         fix: keep the shards of one set in the folder"
    )]
    Mixed {
        /// A file.
        first: String,
        /// Its set.
        first_set: SetId,
        /// A file of another set.
        other: String,
        /// The other set.
        other_set: SetId,
    },
    /// Headers of one set that contradict each other.
    #[error("the headers of {first} and {other} contradict each other\nfix: remove the wrong one")]
    Contradiction {
        /// A file.
        first: String,
        /// Another file.
        other: String,
    },
    /// The same shard twice.
    #[error("{first} and {other} are both shard {shard}\nfix: remove one of them")]
    Duplicate {
        /// Its number.
        shard: usize,
        /// A file.
        first: String,
        /// Another file.
        other: String,
    },
    /// The name of a shard to be written belongs to another one.
    #[error("{name} holds shard {found}, not {expected}\nfix: name it {canonical}")]
    Misnamed {
        /// The file.
        name: String,
        /// The shard in it.
        found: usize,
        /// The shard that has this name.
        expected: usize,
        /// The name of the shard in it.
        canonical: String,
    },
    /// An update needs shards under their names, so that its journal finds them.
    #[error("{name} holds shard {shard}\nfix: name it {canonical} before an update")]
    Renamed {
        /// The file.
        name: String,
        /// The shard in it.
        shard: usize,
        /// The name of the shard.
        canonical: String,
    },
    /// More shards are lost than the code can rebuild.
    #[error(
        "stripe {stripe}: {intact} of the {needed} units that are needed are intact\n\
         fix: bring back missing shards; `verify` lists them"
    )]
    Lost {
        /// The first such stripe.
        stripe: u64,
        /// Its intact units.
        intact: usize,
        /// Data units of the code.
        needed: usize,
    },
    /// Checksums match and parity does not.
    #[error(
        "stripe {stripe}: its units are intact, but belong to different contents\n\
         fix: replace shards by those of one backup; `recover --output` writes the data as it is"
    )]
    Inconsistent {
        /// The first such stripe.
        stripe: u64,
    },
    /// An update needs all shards.
    #[error("shard {shard} is missing or damaged\nfix: run `recover` without --output first")]
    NeedsRepair {
        /// The shard.
        shard: usize,
    },
    /// An update behind the end.
    #[error(
        "offset {offset} is behind the end: the content has {total_bytes} bytes\n\
         fix: choose a lower offset; an update does not lengthen a file"
    )]
    PastEnd {
        /// The offset.
        offset: u64,
        /// Bytes of the content.
        total_bytes: u64,
    },
    /// An update that does not end with the content.
    #[error(
        "the update is longer than the rest of the content, {room_bytes} B; nothing has changed\n\
         fix: send fewer bytes; an update does not lengthen a file"
    )]
    TooLong {
        /// Bytes from the offset to the end.
        room_bytes: u64,
    },
    /// An update of a folder.
    #[error("the set holds a folder, which has no offsets\nfix: encode the folder again")]
    Folder,
    /// The journal of an update is damaged.
    #[error(
        "the journal of an interrupted update is {reason}\n\
         fix: restore {name} from a copy; without one, remove it and run `verify`"
    )]
    Journal {
        /// Its file.
        name: &'static str,
        /// The problem.
        reason: &'static str,
    },
    /// No random name for a set.
    #[error("the random generator of the system failed: {0}")]
    Random(getrandom::Error),
}

impl Error {
    /// An error of the system.
    pub(crate) fn io(action: &'static str, name: impl Display, source: io::Error) -> Self {
        Self::Io { action, name: name.to_string(), source }
    }

    /// Whether arguments are wrong, as opposed to files.
    #[must_use]
    pub const fn is_of_arguments(&self) -> bool {
        matches!(
            self,
            Self::Layout(_)
                | Self::Exists { .. }
                | Self::InsideInput { .. }
                | Self::PastEnd { .. }
                | Self::TooLong { .. }
                | Self::Folder
        )
    }
}
