//! The command line.

use crate::configure;
#[cfg(feature = "bats")]
use crate::degrees;
use crate::keys;
use crate::network::options::{Fleet, NETWORK_HELP, Rendering};
use crate::part::Show;
use crate::ping;
use crate::plan;
use crate::{durations, events};
use clap::{Parser, Subcommand};
use clap_complete::Shell;
use jiff::Timestamp;
use recoded_api::{SOCKET_DEFAULT, SOCKET_ENV};
use recoded_fpga::Card;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Shows what a recoded daemon does, and changes its flows while traffic runs.
#[derive(Parser)]
#[command(name = "recodectl", version, after_help = AFTER_HELP)]
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

const AFTER_HELP: &str = "\
Examples:
  recodectl show                                   everything in brief
  recodectl show flows                             losses, next hops and parameters of flows
  recodectl show flows --watch=5                   the same every five seconds
  recodectl doctor                                 what is wrong, and what to do about it
  recodectl top                                    flows, next hops and events, live
  recodectl events -f --since 10m                  what changed, and what changes now
  recodectl set 1 code=rlnc generation_size=64     change flow 1; all of it or nothing
  recodectl set 1 code=bats block_symbols=256      protect it by BATS from here on
  recodectl set 1 redundancy=1.5 --save            and in the configuration file as well
  recodectl set engine cpu                         use the CPU only
  recodectl reload --diff                          what would the file change, and at what cost?
  recodectl reload --confirm 60s                   change it, and back unless confirmed
  recodectl configure host --apply                 interfaces and queues as the file needs them
  recodectl ping 10.99.0.2                         the far end of a tunnel: round trip, loss, hops
  recodectl plan 192.0.2.2                         is it worth it on this path?
  recodectl kernels                                what this CPU can do, before anything runs
  recodectl engines                                whether a card would be faster
  recodectl --json show | jq '.flows[].rank_ratio'
  recodectl completion bash > /etc/bash_completion.d/recodectl
  recodectl render net.toml --out boxes            a file for each box of a network
  recodectl -f net.toml status                     all boxes of it, over SSH
  recodectl -f net.toml apply                      all of them over to their files, or none

Exit codes: 0 done; 1 failed; 2 wrong command line, or network; 3 no daemon, or with -f no box,
answers; 4 refused, nothing changed; 5 doctor, status or apply found something wrong, or no ping
was answered.";

/// What to do.
#[derive(Subcommand)]
pub enum Command {
    /// Show everything in brief, or one part in full
    Show {
        /// The part
        what: Option<Show>,
        /// Show every part in full, as `all` does: for researchers, and for a report
        #[arg(short, long, conflicts_with = "what")]
        verbose: bool,
        /// Show it again and again, each second or so many, 0.5 to 3600, over one connection; with
        /// --json one state a line
        #[arg(short, long, value_name = "SECONDS", num_args = 0..=1, require_equals = true,
              default_missing_value = "1", value_parser = durations::interval)]
        watch: Option<Duration>,
    },
    /// Change parameters of a flow, or who does bulk work, while traffic runs
    ///
    /// All changes of a flow take effect together or not at all; the command returns once every
    /// worker has adopted them. Values are written as in the configuration file, which is not
    /// changed, but with --save.
    ///
    /// Other nodes keep two codes or sizes of a flow apart: another code or larger sizes within a
    /// second of the last such change are taken up when that has passed.
    ///
    /// `set engine auto`, `cpu`, `cuda` or `fpga` says who solves large generations.
    #[command(after_help = keys::help())]
    Set {
        /// Id of the flow, or the word engine
        target: Target,
        /// Changes, such as generation_size=32; for engine: auto, cpu, cuda or fpga
        #[arg(required = true, value_name = "KEY=VALUE", value_parser = keys::ChangeParser,
              hide_possible_values = true)]
        changes: Vec<String>,
        /// Write the changes of a flow to the configuration file as well, whose comments stay:
        /// both or neither
        #[arg(long)]
        save: bool,
    },
    /// Read the configuration file again and change what it changes, while traffic runs
    ///
    /// The file is checked whole first: with a mistake in it nothing changes. Then all of it is in
    /// force, or nothing. SIGHUP to the daemon does the same.
    #[command(after_help = RELOAD)]
    Reload {
        /// Only say what would change, and what each change costs
        #[arg(long, conflicts_with = "confirm")]
        diff: bool,
        /// Go back by itself after this time, unless recodectl confirm comes first: 60s, 5m, 1h;
        /// 60s if none is written
        #[arg(long, value_name = "TIME", num_args = 0..=1, default_missing_value = "60s",
              value_parser = durations::confirm_seconds)]
        confirm: Option<u64>,
    },
    /// Keep the last reload, which would go back by itself
    Confirm,
    /// Go back to the configuration before this one; the file stays as it is
    ///
    /// A second undo takes the first one back. While a reload waits to be confirmed, undo takes it
    /// back at once.
    Undo {
        /// Number of the configuration, as recodectl history has it
        #[arg(value_parser = configuration_number)]
        number: Option<u64>,
    },
    /// Show the configurations that were in force
    History,
    /// Say what keeps packets from arriving, and what to do about it; exit code 5 if something does
    ///
    /// Asks the daemon twice, this host about its interfaces, addresses and routes, and every
    /// neighbour whether recoded runs there. Changes nothing.
    Doctor {
        /// How long to watch counters and to wait for answers
        #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=60))]
        seconds: u64,
    },
    /// Prepare this host for a configuration; needs no daemon
    Configure {
        /// What to prepare
        #[command(subcommand)]
        what: configure::What,
    },
    /// Measure the path to a host and say what Recoded would bring; needs no daemon
    ///
    /// Before anything is installed but this program, on both ends: losses and their bursts, rate,
    /// queue, round trip, reordering and MTU, in both directions, what TCP carries as it is, what
    /// each code would, and whether it is worth it.
    #[command(after_help = plan::HELP)]
    Plan(plan::Options),
    /// Show flows, their next hops and what changed, once a second; ? explains the keys
    Top,
    /// Show what changed: flows, next hops, sessions, links, drops, configurations, processes
    #[command(after_help = EVENTS)]
    Events {
        /// Wait for more, until Ctrl-C; with --json one event a line
        #[arg(short, long)]
        follow: bool,
        /// Only what happened since: 10m ago, 07:30 today, "2026-11-23 07:30"
        #[arg(long, value_name = "TIME", value_parser = events::since)]
        since: Option<Timestamp>,
    },
    /// Show the hops of a flow: loss, round trip, queue and rank, as far as nodes report them here
    ///
    /// Sends nothing: these are the reports that the flow itself needs. Only neighbours measure
    /// round trips: with -f all nodes are asked, each for its own hop, there and back.
    #[command(after_help = TRACE)]
    Trace {
        /// Id of the flow; all of them if none is named
        #[arg(value_parser = flow_id)]
        flow: Option<u32>,
    },
    /// Send echoes to the far end of a tunnel: round trips, losses, and the hops between
    ///
    /// As users' packets go: through the tunnel, coded and decoded there and back. Sends ICMP
    /// echoes, which need no privileges, and asks the daemon for what nodes report of the hops.
    #[command(after_help = ping::HELP)]
    Ping(ping::Options),
    /// Write an archive for a bug report: versions, host, state, events, doctor, log; no keys
    ///
    /// Works without a daemon, and says what could not be had. Run it as root, where the daemon
    /// runs. The archive is readable by its owner only.
    Bugreport {
        /// The archive; recoded-bugreport-DATE-TIME.tar.gz here if none is named
        #[arg(long, value_name = "FILE.tar.gz")]
        out: Option<PathBuf>,
    },
    /// Show and measure the compute routines that this machine can run; needs no daemon
    #[command(after_help = KERNELS)]
    Kernels {
        /// Time for measuring, all levels together; 0 measures nothing
        #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(0..=60))]
        seconds: u64,
        /// Say what would happen if this level were forced
        #[arg(long, value_name = "LEVEL")]
        kernel: Option<String>,
    },
    /// Show and measure who can do bulk work here: CPU, cards, and why there is none; needs no
    /// daemon
    #[command(after_help = ENGINES)]
    Engines {
        /// Time for measuring, all engines together; 0 measures nothing
        #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(0..=600))]
        seconds: u64,
        /// The FPGA card, as in the daemon's configuration; it must not be in use
        #[arg(long, value_name = "CARD")]
        fpga: Option<Card>,
    },
    /// Find the degree distribution of a BATS outer code for the ranks that arrive; needs no daemon
    ///
    /// A source mixes as many source symbols into a batch as a random degree says. Which degrees
    /// are best depends on how much of its batches arrives: small ones decode early and overlap,
    /// large ones reach the last symbols and cost computing. This finds the distribution that
    /// recovers most symbols per batch.
    #[cfg(feature = "bats")]
    #[command(after_help = degrees::EXAMPLES)]
    Degrees(degrees::Options),
    /// Make the configuration of every box of a network from one file; needs no daemon
    ///
    /// Each file is read by the parser of the daemon first: what it would refuse is said by the
    /// line of the network.
    #[command(after_help = NETWORK_HELP)]
    Render(Rendering),
    /// With -f: show every box of a network in one line, and what is wrong with it
    ///
    /// State, version, flows by state, the worst loss of a hop, and what doctor finds there in a
    /// second. Exit code 3 if a box or its daemon does not answer, 5 if something is wrong.
    Status,
    /// With -f: say whether every box could run its file, and change nothing
    ///
    /// Each box has its file checked by `recoded --check`, compares it with the one it has, and its
    /// key with the one of the network. Exit code 3 if a box does not answer, 4 if one refuses.
    Check,
    /// With -f: have all boxes go over to their files, or none
    ///
    /// Every box checks its file first; if one refuses, nothing changes anywhere. Then all take
    /// theirs over, as by `recodectl reload --confirm`, and confirm once doctor finds no error on
    /// any box that was not there before; otherwise all go back, file included. A box that cannot
    /// be reached then goes back by itself. Where no daemon runs on any box, the files are written,
    /// and with --start the daemons are started.
    /// Exit code 3 if a box does not answer, 4 if one refuses, 5 if something is wrong afterwards.
    Apply {
        /// How long a box waits for the others before it goes back by itself: 60s, 5m
        #[arg(long, value_name = "TIME", default_value = "60s", value_parser = apply_seconds)]
        confirm: u64,
        /// Where no daemon runs on any box: enable and start recoded on each (systemctl), and wait
        /// as long as --confirm until all are well
        #[arg(long)]
        start: bool,
    },
    /// With -f: have every box make its private key, if it has none, and print the public ones
    ///
    /// Private keys never leave their boxes. Public ones belong into the file of the network, where
    /// a change can be seen: a command that asked for them each time trusts any host that answers.
    Keys {
        /// Write public keys that are new into the file; one that differs is never replaced
        #[arg(long)]
        save: bool,
    },
    /// With -f: serve a page, to browsers on this machine, that shows the network live
    ///
    /// Nodes and paths on a map: states, rates, losses of hops, rank beside theory, asked of all
    /// boxes over SSH again and again. It changes nothing, needs nothing from the internet, and has
    /// no password: hence loopback only. Elsewhere by ssh -L 9429:127.0.0.1:9429 THIS-HOST.
    Web {
        /// Address of loopback, and a port; 0 for any that is free
        #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9429")]
        listen: SocketAddr,
    },
    /// Print a new private key; needs no daemon
    ///
    /// Keep it in a file that only its owner may read: `umask 077; recodectl genkey > private.key`.
    Genkey,
    /// Print the public key of the private key on standard input; needs no daemon
    ///
    /// `recodectl pubkey < private.key > public.key`
    Pubkey,
    /// Print a new key that two neighbours share besides their pairs; needs no daemon
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
        /// Page of one command instead, or of counters, or of recoded.toml
        page: Option<String>,
    },
}

const TRACE: &str = "\
loss     share of packets that the hop loses, before anything makes up for it
runs     mean number of packets lost in a row
trip     mean time to the next node and back; queue: of that, waiting on the link
arrived  share of what the source sent, repairs included, that is there behind the hop: mean rank
         of generations and batches over their size; of streams, symbols that were not given up
theory   the same, by the losses of the hops
delay    at the sink, mean time until what was lost is decoded
-        not known here: ask the node itself, or all of them with recodectl -f net.toml trace";

const EVENTS: &str = "\
! marks what may cost packets, # what failed. The daemon keeps the newest 1024 in memory, 256 of
them for what happens all the time, and writes each to its log once (journalctl -u recoded). Of
events about the same thing five come at once, then one after 10 s, 20 s and so on up to 10 minutes;
how many were left out stands beside the next one, and the last one always comes. What the daemon
has is lost when it ends, and stays when its dataplane process is replaced.";

const KERNELS: &str = "\
A level is a way to multiply by coefficients with certain CPU instructions. All compute the same
bytes; the daemon uses the last one of the list that its CPU has, marked * here. To force another
one, start the daemon with RECODED_KERNEL=LEVEL.

When a level is missing that the processor should have, a virtual machine usually hides it: give the
guest the host's CPU model (QEMU: -cpu host). Without GFNI recoding takes about three times as long,
without AVX2 about seven times.

Fields: `all` are GF(256) modulo 0x11D and 0x11B and the packed GF(16), GF(4) and GF(2).";

const ENGINES: &str = "\
cpu-1 is one thread, cpu all of them, cuda the first CUDA card. A card is looked for in a process of
its own, so that no driver can do harm, and needs compiled kernels: scripts/cuda builds them.

fpga is the card that --fpga names; it is reset, so no daemon may be using it. No FPGA card has run
this yet: vfio and xdma were tested with stand-ins. --fpga simulated simulates the card's circuits
clock by clock, for programs built with the feature fpga-sim; that is no card, and not measured.

A card wins where it is faster by more than it takes to start: from the number of bytes in the last
column on, if ever. The daemon measures the same and decides by it; show engine says what it does.";

const RELOAD: &str = "\
What a change costs:
  live      no packet of any flow: parameters, rates of links, who does bulk work, flows that come
            and go, addresses of tunnels, metrics
  flow      that flow begins anew, others go on: its role, tunnel, next hops, upstream, shards
  gap       about 0.1 s for all flows, which neighbours repair: another process takes over, while
            tunnels, routes and XDP programs stay: keys, new neighbours, the first or last IPv6
            address of a tunnel, metrics at another address but the same port, memory, sandbox and
            what else [daemon] has
  restart   some tenths of a second for all flows: the daemon starts anew in its place, as by an
            upgrade, and tunnels that stay keep their routes: links but for their rates, tunnels,
            workers, port, xdp_mode. If it cannot, what was before is back
  stop      not done by reload, which changes nothing then: socket

The file may differ from what is in force: after set without --save, after undo, and after a reload
that was not confirmed. A daemon that starts takes the file.";

fn flow_id(text: &str) -> Result<u32, String> {
    text.parse()
        .map_err(|_| "write the id of a flow, such as 1 (recodectl show has them)".to_owned())
}

fn configuration_number(text: &str) -> Result<u64, String> {
    let rule = "write the number of a configuration, such as 3 (recodectl history has them)";
    text.parse().map_err(|_| rule.to_owned())
}

/// Seconds in which all boxes must be well: less than a few would take every change back.
fn apply_seconds(text: &str) -> Result<u64, String> {
    let seconds = durations::confirm_seconds(text)?;
    let rule = || "write a time of 10s to 24h, such as 60s or 5m".to_owned();
    Some(seconds).filter(|seconds| *seconds >= 10).ok_or_else(rule)
}

impl Command {
    /// How those that are for one host are written.
    pub fn name(&self) -> &'static str {
        match self {
            Command::Set { .. } => "set",
            Command::Reload { .. } => "reload",
            Command::Confirm => "confirm",
            Command::Undo { .. } => "undo",
            Command::History => "history",
            Command::Kernels { .. } => "kernels",
            Command::Engines { .. } => "engines",
            Command::Genkey => "genkey",
            Command::Pubkey => "pubkey",
            Command::Genpsk => "genpsk",
            Command::Version => "version",
            Command::Completion { .. } => "completion",
            Command::Man { .. } => "man",
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
        id.map_err(|_| "write the id of a flow, or engine".to_owned())
    }
}
