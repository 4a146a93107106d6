//! Arguments of the program, and its help.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum, value_parser};
use recoded_swarm::ContentId;

/// Serves a file to many receivers over UDP, as random linear combinations of its blocks.
///
/// Any combinations will do: a receiver needs as many as there are blocks, from any peers and in
/// any order, and a lost one is not retransmitted but replaced. Receivers can serve others from
/// their blocks, before they have everything.
///
///   recoded-swarm serve film.mkv                                     prints the content id
///   recoded-swarm get ID 192.0.2.1:7800 --out film.mkv
///   recoded-swarm get ID 192.0.2.1:7800 [2001:db8::5]:7800 --out film.mkv --serve [::]:7800
///
/// The id is the hash of the content's description, so it verifies what any peer sends. Blocks are
/// not encrypted. Exit codes: 0 success, 1 error, 2 wrong arguments.
#[derive(Debug, Parser)]
#[command(version, verbatim_doc_comment)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

/// A command.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve a file until interrupted
    ///
    ///   recoded-swarm serve film.mkv --source-key film.key --rate 2000
    ///
    /// Prints `content ID`, and the addresses. The file is read into memory once, so it may change
    /// meanwhile. Without --source-key, the id is another one after each start.
    #[command(verbatim_doc_comment)]
    Serve(Serve),
    /// Fetch a file, and serve others if wanted
    ///
    ///   recoded-swarm get ID 192.0.2.1:7800 --out film.mkv
    ///   recoded-swarm get ID 192.0.2.1:7800 --out - | mpv -
    ///   recoded-swarm get ID 192.0.2.1:7800 198.51.100.2:7800 --out film.mkv --serve [::]:7800
    ///
    /// Segments are verified before they are written, in order. A file appears under its name when
    /// it is complete. Name the source among the peers: it issues checks, and they verify every
    /// block of other peers on arrival. Without it, each segment is fetched from one peer only.
    #[command(verbatim_doc_comment)]
    Get(Get),
    /// Measure how many peers this computer serves, over its loopback interface
    ///
    ///   recoded-swarm bench --peers 1000 --peers 3050 --seconds 10
    ///
    /// Prints JSON: encoding alone per second of a core, and for each number of peers how many got
    /// their rate. Servers and receivers share the cores. Needs as many open files as peers
    /// (`ulimit -n`).
    #[command(verbatim_doc_comment)]
    Bench(Bench),
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

/// Limits of serving.
#[derive(Debug, Args)]
pub(crate) struct ServeLimits {
    /// Most kbit/s to each peer
    #[arg(long, value_name = "KBIT", default_value_t = 20_000)]
    #[arg(value_parser = value_parser!(u32).range(1..=100_000_000))]
    pub rate: u32,
    /// Most KiB to a peer at once
    #[arg(long, value_name = "KIB", default_value_t = 16)]
    #[arg(value_parser = value_parser!(u32).range(8..=1024))]
    pub burst: u32,
    /// Most peers at an address; those that come later are refused
    #[arg(long, value_name = "N", default_value_t = 4096)]
    #[arg(value_parser = value_parser!(u32).range(1..=1_000_000))]
    pub max_peers: u32,
    /// Threads for each address; 0 means one per core
    #[arg(long, value_name = "N", default_value_t = 0)]
    #[arg(value_parser = value_parser!(u16).range(0..=256))]
    pub workers: u16,
    /// Segments whose combinations each thread makes ahead and shares among peers; 0: on demand
    #[arg(long, value_name = "N", default_value_t = 16)]
    #[arg(value_parser = value_parser!(u16).range(0..=4096))]
    pub ahead: u16,
}

/// Arguments of `serve`.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// File to serve
    pub file: PathBuf,
    /// Address to listen on; repeat it for several
    #[arg(long, value_name = "ADDR", default_values = ["0.0.0.0:7800", "[::]:7800"])]
    pub listen: Vec<SocketAddr>,
    /// Blocks of a segment: more need fewer segments and more arithmetic
    #[arg(long, value_name = "N", default_value_t = 128)]
    pub blocks: u16,
    /// Bytes of a block. Datagrams are not fragmented, and have up to 41 more and one for each
    /// block of a segment: the defaults fit every IPv6 path
    #[arg(long, value_name = "BYTES", default_value_t = 1024)]
    pub block_bytes: u32,
    /// File with the key of the source, in hexadecimal; created if it is missing
    #[arg(long, value_name = "FILE")]
    pub source_key: Option<PathBuf>,
    /// File with a pre-shared key of 32 bytes in hexadecimal: peers without it get no answer
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Interval between reports of the counters, each a line of JSON
    #[arg(long, value_name = "SECONDS")]
    #[arg(value_parser = value_parser!(u32).range(1..=86_400))]
    pub report: Option<u32>,
    #[command(flatten)]
    pub limits: ServeLimits,
}

/// Arguments of `get`.
#[derive(Debug, Args)]
pub(crate) struct Get {
    /// Content id, as `serve` printed it
    pub content: ContentId,
    /// Addresses of peers
    #[arg(required = true, value_name = "ADDR", num_args = 1..=64)]
    pub peers: Vec<SocketAddr>,
    /// File to write, which must not exist; `-` is standard output
    #[arg(long, short, value_name = "FILE|-")]
    pub out: PathBuf,
    /// Serve others on this address meanwhile and afterwards; keeps the content in memory
    #[arg(long, value_name = "ADDR")]
    pub serve: Vec<SocketAddr>,
    /// Seconds to serve after the end; without it, until interrupted
    #[arg(long, value_name = "SECONDS", requires = "serve")]
    pub linger: Option<u32>,
    /// Most kbit/s to receive
    #[arg(long, value_name = "KBIT", default_value_t = 100_000)]
    #[arg(value_parser = value_parser!(u32).range(64..=100_000_000))]
    pub max_rate: u32,
    /// Segments decoded at the same time
    #[arg(long, value_name = "N", default_value_t = 4)]
    #[arg(value_parser = value_parser!(u16).range(1..=8))]
    pub window: u16,
    /// File with the pre-shared key of the peers
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Most MiB of content to keep in memory with --serve
    #[arg(long, value_name = "MIB", default_value_t = 4096)]
    pub memory: u64,
    /// Stop with an error after this many seconds without progress
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    #[arg(value_parser = value_parser!(u32).range(1..=86_400))]
    pub timeout: u32,
    #[command(flatten)]
    pub limits: ServeLimits,
}

/// Arguments of `bench`.
#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// Peers at the same time; repeat it for several runs
    #[arg(long, value_name = "N", default_values_t = [1000])]
    #[arg(value_parser = value_parser!(u32).range(1..=50_000))]
    pub peers: Vec<u32>,
    /// Content for each peer in kbit/s
    #[arg(long, value_name = "KBIT", default_value_t = 768)]
    #[arg(value_parser = value_parser!(u32).range(1..=1_000_000))]
    pub rate: u32,
    /// Seconds of each measurement
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    #[arg(value_parser = value_parser!(u32).range(1..=600))]
    pub seconds: u32,
    /// Threads that serve
    #[arg(long, value_name = "N", default_value_t = 2)]
    #[arg(value_parser = value_parser!(u16).range(1..=256))]
    pub workers: u16,
    /// Blocks of a segment
    #[arg(long, value_name = "N", default_value_t = 128)]
    pub blocks: u16,
    /// Bytes of a block
    #[arg(long, value_name = "BYTES", default_value_t = 1024)]
    pub block_bytes: u32,
    /// Segments whose combinations are made ahead; 0 makes each on demand
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub ahead: u16,
    /// Most KiB to a peer at once
    #[arg(long, value_name = "KIB", default_value_t = 16)]
    #[arg(value_parser = value_parser!(u32).range(8..=1024))]
    pub burst: u32,
    /// Segments of the content, which peers follow as they would a film
    #[arg(long, value_name = "N", default_value_t = 64)]
    #[arg(value_parser = value_parser!(u32).range(1..=4096))]
    pub segments: u32,
}
