//! Arguments of the program, and its help.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, value_parser};

/// Protects stored files against lost and damaged parts, by Reed-Solomon stripes.
///
/// A file or folder becomes K data shards and M parity shards in a folder. Any K of these K + M
/// files hold everything. Put them on different disks or boxes; each is 1/K of the content.
///
///   recoded-stripes encode film.mkv --data 10 --parity 4 --output film.set
///   recoded-stripes verify film.set               finds missing files and silent damage
///   recoded-stripes recover film.set              rebuilds up to 4 of the 14 shards in place
///   recoded-stripes recover film.set --output film.mkv
///
/// Exit codes: 0 success, 1 error, 2 wrong arguments; of `verify`: 3 damaged but recoverable,
/// 4 lost. Checksums find accidental damage only: an attacker with write access can forge them.
#[derive(Debug, Parser)]
#[command(version, verbatim_doc_comment)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub command: Command,
    /// Threads; 0 means one per core
    #[arg(long, global = true, default_value_t = 0, value_name = "N")]
    pub threads: usize,
    /// Do not show progress; it is shown on a terminal only
    #[arg(long, global = true)]
    pub quiet: bool,
}

/// A command.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Write a file, a folder or standard input as shards
    ///
    ///   recoded-stripes encode film.mkv --data 10 --parity 4 --output film.set
    ///   recoded-stripes encode photos/ --data 4 --parity 2 --output photos.set
    ///   pg_dump shop | recoded-stripes encode - --data 6 --parity 3 --output shop.set
    ///
    /// The folder of shards appears when all of them are on the disk. A folder is stored as a tar
    /// archive with modes, times and symbolic links, which are not followed. Owners, setuid bits
    /// and extended attributes are not kept; sockets, pipes and devices are refused.
    #[command(verbatim_doc_comment)]
    Encode(Encode),
    /// Read all shards and report damage, by shard and stripe
    ///
    /// Exit code 0: healthy. 3: something is missing or damaged, and `recover` rebuilds it.
    /// 4: too much is lost for some stripe. 1: the shards cannot be read.
    #[command(verbatim_doc_comment)]
    Verify {
        /// Folder of the shards
        dir: PathBuf,
    },
    /// Rebuild shards in place, or write the content elsewhere
    ///
    ///   recoded-stripes recover film.set                         repair in place
    ///   recoded-stripes recover film.set --output film.mkv       write the content, change nothing
    ///   recoded-stripes recover photos.set --output photos       a folder is extracted
    ///   recoded-stripes recover photos.set --output - | tar tv   its archive
    ///
    /// In place, each bad shard is replaced when its successor is on the disk.
    #[command(verbatim_doc_comment)]
    Recover {
        /// Folder of the shards
        dir: PathBuf,
        /// File or folder to write, which must not exist; `-` is standard output
        #[arg(long, short, value_name = "FILE|-")]
        output: Option<PathBuf>,
    },
    /// Replace bytes of a protected file by those of standard input
    ///
    ///   printf 'new' | recoded-stripes update disk.set --at 4096
    ///
    /// Only the touched units and the parity of their stripes are read and written. After a power
    /// cut, the next command completes the update, or it had no effect. The length stays.
    #[command(verbatim_doc_comment)]
    Update {
        /// Folder of the shards
        dir: PathBuf,
        /// Offset of the first byte to replace, in bytes
        #[arg(long, value_name = "OFFSET")]
        at: u64,
    },
    /// Show the code, the lengths and the shards of a set, from its headers only
    Info {
        /// Folder of the shards
        dir: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// Arguments of `encode`.
#[derive(Debug, Args)]
pub(crate) struct Encode {
    /// File or folder to protect; `-` is standard input
    #[arg(value_name = "FILE|FOLDER|-")]
    pub input: PathBuf,
    /// Data shards, which together are as long as the content
    #[arg(long, short = 'k', value_name = "K", value_parser = value_parser!(u16).range(1..=255))]
    pub data: u16,
    /// Parity shards: how many shards may be lost. K + M is at most 256
    #[arg(long, short = 'm', value_name = "M", value_parser = value_parser!(u16).range(1..=255))]
    pub parity: u16,
    /// Folder for the shards, which must not exist or be empty
    #[arg(long, short, value_name = "DIR")]
    pub output: PathBuf,
    /// Length of a unit in KiB. Shorter ones make small updates cheaper
    #[arg(long, value_name = "KIB", default_value_t = 256)]
    #[arg(value_parser = value_parser!(u16).range(1..=1024))]
    pub unit_kib: u16,
}
