//! The command line.

use crate::configure;
#[cfg(feature = "bats")]
use crate::degrees;
use crate::init::InitOptions;
use crate::invitation::invite::InviteOptions;
use crate::invitation::join::JoinOptions;
use crate::keys;
use crate::network::options::{Fleet, NETWORK_HELP, Rendering};
use crate::part::Show;
use crate::ping;
use crate::plan;
use crate::summary::LEGEND;
use crate::{durations, events};
use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use jiff::Timestamp;
use recoded_api::{SOCKET_DEFAULT, SOCKET_ENV};
use recoded_fpga::Card;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Shows the state of a recoded daemon, and changes its flows under traffic.
#[derive(Parser)]
#[command(name = "recodectl", version, disable_help_subcommand = true)]
pub struct Arguments {
    /// Control socket of the daemon
    #[arg(long, global = true, value_name = "PATH", env = SOCKET_ENV, default_value = SOCKET_DEFAULT)]
    pub socket: PathBuf,

    /// Print JSON with stable keys, errors included
    #[arg(long, global = true)]
    pub json: bool,

    /// All boxes of a network instead of this host
    #[command(flatten)]
    pub fleet: Fleet,

    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Subcommand)]
pub enum Command {
    /// Show a summary, or one part in full
    #[command(after_help = LEGEND)]
    Show {
        /// The part
        what: Option<Show>,
        /// Show every part in full, like `all`: for researchers and reports
        #[arg(short, long, conflicts_with = "what")]
        verbose: bool,
        /// Repeat every second, or every SECONDS, 0.5 to 3600, over one connection; with
        /// --json one state per line
        #[arg(short, long, value_name = "SECONDS", num_args = 0..=1, require_equals = true,
              default_missing_value = "1", value_parser = durations::interval)]
        watch: Option<Duration>,
    },
    /// Change parameters of a flow, or the engine for bulk work, under traffic
    ///
    /// All changes of a flow take effect together or not at all; the command returns once every
    /// worker has applied them. Values are written as in the configuration file, which only --save
    /// changes.
    ///
    /// Other boxes distinguish two codes or sizes of a flow at a time. A third one within a
    /// second of the last such change takes effect after that second.
    ///
    /// `set engine auto`, `cpu`, `cuda` or `fpga` selects the engine for large generations.
    #[command(after_help = keys::help())]
    Set {
        /// Id of the flow, or the word engine
        target: Target,
        /// Changes, such as generation_size=32; for engine: auto, cpu, cuda or fpga
        #[arg(required = true, value_name = "KEY=VALUE", value_parser = keys::ChangeParser,
              hide_possible_values = true)]
        changes: Vec<String>,
        /// Write the changes of a flow to the configuration file, too: both or neither. Comments
        /// are kept
        #[arg(long)]
        save: bool,
        /// Roll back after this time unless recodectl confirm comes first: 60s, 5m, 1h; 60s by
        /// default
        #[arg(long, value_name = "TIME", num_args = 0..=1, default_missing_value = "60s",
              value_parser = durations::confirm_seconds, conflicts_with = "save")]
        confirm: Option<u64>,
    },
    /// Apply the changed configuration file under traffic
    ///
    /// The whole file is checked first: a mistake changes nothing. Then all of it is applied, or
    /// nothing. SIGHUP to the daemon does the same.
    #[command(after_help = RELOAD)]
    Reload {
        /// Only print the changes, and the cost of each
        #[arg(long, conflicts_with = "confirm")]
        diff: bool,
        /// With --diff: compare this file instead of the daemon's; - is standard input
        #[arg(long, value_name = "FILE", requires = "diff")]
        with: Option<PathBuf>,
        /// Roll back after this time unless recodectl confirm comes first: 60s, 5m, 1h; 60s by
        /// default
        #[arg(long, value_name = "TIME", num_args = 0..=1, default_missing_value = "60s",
              value_parser = durations::confirm_seconds)]
        confirm: Option<u64>,
    },
    /// Confirm the last reload, cancelling automatic rollback
    Confirm,
    /// Roll back to the previous configuration
    ///
    /// The file is unchanged, unless `set --save` made the change: then it is restored, too. A
    /// second undo reverts the first one. While a reload waits for confirmation, undo rolls it
    /// back at once.
    Undo {
        /// Number of the configuration, from recodectl history
        #[arg(value_parser = configuration_number)]
        number: Option<u64>,
    },
    /// Show the configurations that were applied
    History,
    /// Diagnose packet loss and suggest fixes; exit code 5 if there is a fault
    ///
    /// Queries the daemon twice, checks interfaces, addresses and routes of this host, and probes
    /// recoded at every neighbour. Changes nothing.
    Doctor {
        /// Time to watch counters and to wait for replies
        #[arg(long, default_value = "2", value_parser = |text: &str| durations::seconds(text, 1..=60))]
        seconds: u64,
    },
    /// Prepare this host for a configuration; needs no daemon
    Configure {
        /// What to prepare
        #[command(subcommand)]
        what: configure::What,
    },
    /// Measure the path to a host and forecast the gain of Recoded; needs no daemon
    ///
    /// Needs only this program on both ends. Measures losses and their bursts, rate, queue, RTT,
    /// reordering and MTU, in both directions. Forecasts the goodput of plain TCP and of each code,
    /// and recommends one.
    #[command(after_help = plan::HELP)]
    Plan(plan::PlanOptions),
    /// Show flows, next hops and events live, once a second; ? explains the keys
    Top,
    /// Show changes of flows, next hops, sessions, links, drops, configurations and processes
    #[command(after_help = EVENTS)]
    Events {
        /// Print new events until Ctrl-C; with --json one event per line
        #[arg(short, long)]
        follow: bool,
        /// Only events since this time: 10m (ago), 07:30 (today), "2026-11-23 07:30"
        #[arg(long, value_name = "TIME", value_parser = events::since)]
        since: Option<Timestamp>,
    },
    /// Show the hops of a flow: loss, RTT, queue and rank, as far as boxes report them here
    ///
    /// Sends no packets: the flow itself needs these reports. Only neighbours measure
    /// RTTs: with -f all boxes are queried, each for its own hop, in both directions.
    #[command(after_help = TRACE)]
    Trace {
        /// Id of the flow; all flows by default
        #[arg(value_parser = flow_id)]
        flow: Option<u32>,
    },
    /// Ping the far end of a tunnel: RTT, loss, and the hops in between
    ///
    /// The pings take the path of users' packets: through the tunnel, coded and decoded in both
    /// directions. Sends ICMP echo requests, which need no privileges, and queries the daemon for
    /// reports of the hops.
    #[command(after_help = ping::HELP)]
    Ping(ping::PingOptions),
    /// Write an archive for a bug report: versions, host, state, events, doctor, log; no keys
    ///
    /// Works without a daemon, and lists the missing parts. Run it as root, on the host of the
    /// daemon. Only its owner can read the archive.
    Bugreport {
        /// The archive; by default recoded-bugreport-DATE-TIME.tar.gz in this folder
        #[arg(long, value_name = "FILE.tar.gz")]
        out: Option<PathBuf>,
    },
    /// Show and measure the compute routines that this machine can run; needs no daemon
    #[command(after_help = KERNELS)]
    Kernels {
        /// Total time for measurements; 0 measures nothing
        #[arg(long, default_value = "2", value_parser = |text: &str| durations::seconds(text, 0..=60))]
        seconds: u64,
        /// Print the effect of forcing this level
        #[arg(long, value_name = "LEVEL")]
        kernel: Option<String>,
    },
    /// Show and measure engines for bulk work: CPU and cards, or why a card is missing; needs no
    /// daemon
    #[command(after_help = ENGINES)]
    Engines {
        /// Total time for measurements; 0 measures nothing
        #[arg(long, default_value = "3", value_parser = |text: &str| durations::seconds(text, 0..=600))]
        seconds: u64,
        /// The FPGA card, as in the daemon's configuration; it must not be in use
        #[arg(long, value_name = "CARD")]
        fpga: Option<Card>,
    },
    /// Find the degree distribution of a BATS outer code for a rank distribution; needs no daemon
    ///
    /// A source combines a random number of source symbols, the degree, into each batch. The best
    /// degrees depend on the rank of the batches that arrive: small ones decode early and overlap,
    /// large ones reach the last symbols and cost computation. This finds the distribution that
    /// recovers most symbols per batch.
    #[cfg(feature = "bats")]
    #[command(after_help = degrees::EXAMPLES)]
    Degrees(degrees::DegreeOptions),
    /// Make the key of this box and the first file of a network, or add other boxes to it; needs no
    /// daemon
    ///
    /// On a terminal it requests name and address. The file is the same on all boxes; a daemon
    /// finds its own line by its private key. The printed command adds this box to the file of
    /// another one.
    #[command(after_help = INIT)]
    Init(InitOptions),
    /// Bring a new box into the network of this one, the hub: prints a token, and waits for the box
    ///
    /// Run recodectl join with the token on the new box. It makes its own private key; this command
    /// then adds its line and a path between both to the file, and has the daemon reload. Other
    /// boxes need no change.
    ///
    /// The token serves once, and until it expires by the monotonic clock of the hub; it holds a
    /// secret. The command waits at a TCP port of its own. Ctrl-C withdraws the token. The daemon
    /// need not run yet.
    ///
    /// A new path costs a restart of the daemon, as `recodectl reload --help` explains: packets
    /// of other boxes wait for some tenths of a second.
    #[command(after_help = INVITE)]
    Invite(InviteOptions),
    /// Join the network of a hub with the token that recodectl invite printed; needs no daemon
    ///
    /// Makes the private key of this box, which never leaves it, and its file, which has this box,
    /// the hub and the path between them. The clock of this box need not be right.
    #[command(after_help = JOIN)]
    Join(JoinOptions),
    /// Print the configuration of every box of a network from one file; needs no daemon
    ///
    /// The parser of the daemon checks each file first; its errors name the line of the network
    /// file.
    #[command(after_help = NETWORK_HELP)]
    Render(Rendering),
    /// With -f: show every box of a network in one line, with its faults
    ///
    /// State, version, flows by state, the worst loss of a hop, and the findings of a doctor run of
    /// one second. Exit code 3 if a box or its daemon does not answer, 5 if there is a fault.
    Status,
    /// With -f: check that every box can run its file, and change nothing
    ///
    /// Each box checks its file with `recoded --check`, and compares the file with its present one
    /// and its key with the network file. Exit code 3 if a box does not answer, 4 if one refuses.
    Check,
    /// With -f: deploy to all boxes atomically
    ///
    /// Every box checks its file first; if one refuses, nothing changes anywhere. Then all boxes
    /// apply their files, as by `recodectl reload --confirm`, and confirm once doctor finds no new
    /// error on any box; otherwise all roll back, file included. A box that is unreachable at that
    /// point rolls back automatically. If no daemon runs on any box, the files are written,
    /// and --start starts the daemons.
    ///
    /// A box whose file was changed there since the last apply, as by `recodectl set --save`, is
    /// refused unless --force is given. --diff shows the changes of every box first.
    ///
    /// Exit code 3 if a box does not answer, 4 if one refuses, 5 if there is a fault afterwards.
    Apply(Applying),
    /// With -f: create missing private keys on all boxes, and print the public ones
    ///
    /// Private keys never leave their boxes. Keep public keys in the network file, where
    /// changes are visible: fetching them each time would trust any host that answers.
    ///
    /// --rotate BOX makes another private key on one box, in a file next to the old one, and
    /// applies the network with it on all boxes at once, like `apply`. If all are healthy, the
    /// network file is written and the old key is removed; otherwise all keep the old one. All
    /// sessions with that box end, and its flows lose packets until all boxes have switched,
    /// usually for less than a second. Apply pending changes of the file first.
    Keys {
        /// Write new public keys into the file; a different one is never replaced
        #[arg(long)]
        save: bool,
        /// Replace the key of this box on all boxes, and in the file
        #[arg(long, value_name = "BOX", conflicts_with = "save")]
        rotate: Option<String>,
    },
    /// With -f: serve a live page of the network to browsers on this machine
    ///
    /// A map of boxes and paths: states, rates, losses of hops, rank against theory, polled over
    /// SSH. It changes nothing, needs no internet access, and has no password, so it
    /// listens on loopback only. From elsewhere use ssh -L 9429:127.0.0.1:9429 THIS-HOST.
    Web {
        /// Loopback address and port; port 0 for any free one
        #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9429",
              value_parser = address_and_port)]
        listen: SocketAddr,
    },
    /// Print a new private key; needs no daemon
    ///
    /// Keep it in a file that only its owner can read: `umask 077; recodectl genkey > private.key`.
    Genkey,
    /// Print the public key of the private key on standard input; needs no daemon
    ///
    /// `recodectl pubkey < private.key > public.key`
    Pubkey,
    /// Print a new pre-shared key for two neighbours; needs no daemon
    Genpsk,
    /// Show the versions of recodectl and of the daemon
    Version,
    /// Print a completion script for a shell
    Completion {
        /// The shell
        shell: Shell,
    },
    /// Print the manual page, to be read with `man -l -`
    Man {
        /// The page of a command, of counters, or of recoded.toml
        page: Option<String>,
    },
    /// Print the help of a command, or a page of the book
    ///
    /// Topics: examples, network, commands; and pages of the book, which `help topics` lists.
    Help {
        /// The command or topic
        #[arg(value_name = "COMMAND")]
        words: Vec<String>,
    },
}

const INIT: &str = "\
A laptop behind address translation, and a server:
  server# recodectl init --name server --address vpn.example.net
  laptop# recodectl init --name laptop --with 'LINE OF SERVER'
  server# recodectl init --with 'LINE OF LAPTOP'
  both#   systemctl enable --now recoded
init prints the line in question with the command. Other forms of networks: recodectl render --help";

const INVITE: &str = "\
With --json it prints two lines: the token, and the box that has joined. On both boxes:
  hub#    recodectl invite laptop
  laptop# recodectl join TOKEN
  laptop# systemctl enable --now recoded";

const JOIN: &str = "\
Exit codes: 2 the token is cut off or mistyped; 3 the hub does not answer; 4 it refused, nothing
changed. Then start the daemon: systemctl enable --now recoded";

const TRACE: &str = "\
loss     share of packets lost on the hop, before repair
runs     mean number of packets lost in a row
trip     mean RTT to the next box; queue: part of it, waiting on the link
arrived  share of the source's symbols behind the hop, repairs included: mean rank of generations
         and batches over their size; for streams, symbols that were not abandoned
theory   the same, computed from the losses of the hops
delay    at the sink, mean time until lost packets are decoded
-        unknown here: query the box itself, or all boxes with recodectl -f net.toml trace";

const EVENTS: &str = "\
! marks events that may cost packets, # failures. The daemon keeps the newest 1024 in memory, 256 of
them for frequent ones, and logs each once (journalctl -u recoded). Of similar events five are
shown at once, then one after 10 s, 20 s and so on up to 10 minutes, with the number of suppressed
ones; the last one is always shown. Events are lost when the daemon ends, and kept when its
dataplane process is replaced.";

const KERNELS: &str = "\
A level implements the multiplication by coefficients with certain CPU instructions. All levels
compute the same bytes; the daemon uses the last one in the list that the CPU supports, marked *.
To force a level, start the daemon with RECODED_KERNEL=LEVEL.

If a level that the processor should support is missing, a virtual machine usually hides it: give
the guest the host's CPU model (QEMU: -cpu host). Recoding takes about three times as long without
GFNI, about seven times without AVX2.

Fields: `all` are GF(256) modulo 0x11D and 0x11B and the packed GF(16), GF(4) and GF(2).";

const ENGINES: &str = "\
cpu-1 is one thread, cpu all of them, cuda the first CUDA card. A separate process probes for cards,
to isolate their drivers. A CUDA card needs compiled kernels: scripts/cuda builds them.

fpga is the card that --fpga names; it is reset, so no daemon may be using it. No real FPGA card has
been tested: vfio and xdma were tested with stand-ins. --fpga simulated simulates its circuits clock
by clock, for programs built with the feature fpga-sim; it is not measured.

A card has a start-up cost: it is faster only from the number of bytes in the last column on, if at
all. The daemon measures the same and decides accordingly; show engine prints its choice.";

const RELOAD: &str = "\
Cost of each change:
  live      no packet of any flow: parameters, rates of links, engine, added and removed flows,
            addresses of tunnels, metrics
  flow      recreates that flow, others continue: its role, tunnel, next hops, upstream, shards
  gap       about 0.1 s for all flows, repaired by neighbours. A new process takes over; tunnels
            that stay keep routes and packets, XDP programs stay. For keys, new neighbours, tunnels
            added or removed, the first or last IPv6 address of a tunnel, metrics at another
            address but the same port, memory, sandbox and other keys of [daemon]
  restart   some tenths of a second for all flows. The daemon restarts in place, as for an upgrade;
            unchanged tunnels keep their routes. For links (except rates), MTUs of tunnels, workers,
            port and xdp_mode. If the restart fails, the previous configuration is restored
  stop      reload refuses it and changes nothing: socket

The file may differ from the applied configuration: after set without --save, after undo, and after
a reload that was not confirmed. A starting daemon applies the file.";

fn flow_id(text: &str) -> Result<u32, String> {
    text.parse()
        .map_err(|_| "write the id of a flow, such as 1 (recodectl show lists them)".to_owned())
}

fn address_and_port(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "write ADDRESS:PORT, such as 127.0.0.1:8080".to_owned())
}

fn configuration_number(text: &str) -> Result<u64, String> {
    let rule = "write the number of a configuration, such as 3 (recodectl history lists them)";
    text.parse().map_err(|_| rule.to_owned())
}

/// Time limit for all boxes to become healthy; a few seconds would roll back every change.
fn apply_seconds(text: &str) -> Result<u64, String> {
    let seconds = durations::confirm_seconds(text)?;
    let rule = || "write a time of 10s to 24h, such as 60s or 5m".to_owned();
    Some(seconds).filter(|seconds| *seconds >= 10).ok_or_else(rule)
}

/// Options of `apply`.
#[derive(Args, Debug)]
pub struct Applying {
    /// Time after which an unconfirmed box rolls back automatically: 60s, 5m
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = apply_seconds)]
    pub confirm: u64,
    /// If no daemon runs on any box: enable and start recoded on each (systemctl), and wait
    /// up to --confirm until all are healthy
    #[arg(long)]
    pub start: bool,
    /// Overwrite files that were changed on their boxes since the last apply
    #[arg(long)]
    pub force: bool,
    /// Only print the changes of each box, and their cost
    #[arg(long, conflicts_with_all = ["start", "force", "confirm"])]
    pub diff: bool,
}

impl Command {
    /// How those that are for one host are written.
    pub fn name(&self) -> &'static str {
        match self {
            Command::Set { .. } => "set",
            Command::Reload { .. } => "reload",
            Command::Confirm => "confirm",
            Command::Undo { .. } => "undo",
            Command::Init(_) => "init",
            Command::Invite(_) => "invite",
            Command::Join(_) => "join",
            Command::History => "history",
            Command::Kernels { .. } => "kernels",
            Command::Engines { .. } => "engines",
            Command::Genkey => "genkey",
            Command::Pubkey => "pubkey",
            Command::Genpsk => "genpsk",
            Command::Version => "version",
            Command::Completion { .. } => "completion",
            Command::Man { .. } => "man",
            Command::Help { .. } => "help",
            _ => "this command",
        }
    }
}

/// What a `set` changes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// The flow of this id.
    Flow(u32),
    /// Who does bulk work.
    Engine,
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Target, String> {
        if text == "engine" {
            return Ok(Target::Engine);
        }
        let id = text.parse().map(Target::Flow);
        id.map_err(|_| {
            format!("there is no flow {text}: write its number, which recodectl show lists")
        })
    }
}
