//! Arguments of the program, and its help.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum, value_parser};

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
    /// Estimate how long a set lasts, with each shard on a disk of its own; reads no files
    ///
    ///   recoded-stripes plan --data 10 --parity 4
    ///   recoded-stripes plan -k 10 -m 2 --mttf-hours 300000 --repair-hours 72 --disk-gb 20000
    ///
    /// Disks are assumed to fail independently. Those of one batch, box or power supply do not, so
    /// the time is an upper bound; compare codes with it. Studies found failures several times as
    /// often as data sheets state: choose the mean time to failure by that.
    #[command(verbatim_doc_comment)]
    Plan(Plan),
    /// Print a completion script for a shell, or, with man, the manual page; for packages
    #[command(hide = true)]
    Print {
        /// Format
        what: Printed,
        /// Command of the manual page; without it, the program
        command: Option<String>,
    },
}

/// Files of a package that the program prints.
#[derive(Copy, Clone, Debug, ValueEnum)]
pub(crate) enum Printed {
    Man,
    Bash,
    Zsh,
    Fish,
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

/// Arguments of `plan`.
#[derive(Debug, Args)]
pub(crate) struct Plan {
    /// Data shards
    #[arg(long, short = 'k', value_name = "K", value_parser = value_parser!(u16).range(1..=255))]
    pub data: u16,
    /// Parity shards: how many disks may fail. K + M is at most 256
    #[arg(long, short = 'm', value_name = "M", value_parser = value_parser!(u16).range(1..=255))]
    pub parity: u16,
    /// Mean time to failure of a disk, in hours
    #[arg(long, value_name = "HOURS", default_value_t = 1.2e6, value_parser = positive)]
    pub mttf_hours: f64,
    /// Mean time to replace and rebuild a disk, in hours
    #[arg(long, value_name = "HOURS", default_value_t = 24.0, value_parser = positive)]
    pub repair_hours: f64,
    /// Capacity of a disk, in GB (10^9 bytes)
    #[arg(long, value_name = "GB", default_value_t = 1000.0, value_parser = positive)]
    pub disk_gb: f64,
    /// Bits that a disk reads for each unrecoverable error
    #[arg(long, value_name = "BITS", default_value_t = 1e15, value_parser = positive)]
    pub bits_per_error: f64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// A number that products and quotients of a few such numbers keep in range.
fn positive(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(number) if (1e-6..=1e18).contains(&number) => Ok(number),
        _ => Err("must be a number from 1e-6 to 1e18".into()),
    }
}
