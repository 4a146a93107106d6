//! `recoded`: two processes of one program. The supervisor reads the configuration and owns what
//! must persist; the dataplane process, which it starts, sees packets and answers the control
//! socket. On a signal both give everything back.

#![forbid(unsafe_code)]

mod asks;

mod confined;
mod health;
mod journal;
mod manual;
mod resolver;
mod signals;
mod standby;
mod successor;
mod supervisor;
mod termination;
mod threads;
mod vm_generation;

use clap::Parser;
use recoded::check;
use recoded::config::document::Named;
use recoded::config::document::{Document, FILE_BYTES_MAX};
use recoded::config::names::Names;
use recoded::config::{Config, Sandbox};
use recoded::control::socket::SocketError;
use recoded::dataplane::Observation;
use recoded::keys::{Keys, KeysError};
use recoded::lifecycle::{EXIT_AGAIN, EXIT_SET_BACK};
use recoded::log_limit::LogLimit;
use recoded::memory;
use recoded::metrics::MetricsError;
use recoded::network::{self, OwnError};
use recoded::node;
use recoded::predecessor::{self, LockError};
use recoded::sandbox::{self, SandboxError};
use recoded::usage::UsageError;
use recoded_host::Level;
use recoded_network::NetworkErrors;
use recoded_runtime::StartError;
use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;
use supervisor::Own;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::prelude::*;

/// Longest wait for the resolver at startup. The daemon then starts with the names that are known
/// and resolves the others in the background. A working resolver answers within a second.
const NAMES_PATIENCE: Duration = Duration::from_secs(3);
/// Exit code when something on this host is in the way.
const EXIT_FAILED: u8 = 1;
/// Exit code when the command line or the configuration is wrong.
const EXIT_CONFIG: u8 = 2;
/// Exit code after a panic, `EX_SOFTWARE` of sysexits.h.
const EXIT_PANIC: u8 = 70;

/// Recodes packets in the network: sends fresh combinations of what arrived, at every hop, so that
/// loss does not add up along the way.
#[derive(Parser)]
#[command(name = "recoded", version, after_help = AFTER_HELP)]
struct Arguments {
    /// Configuration file (TOML): of a network, the same on every box (recodectl render --help), or
    /// of this host alone (control/daemon/recoded.toml explains its keys)
    #[arg(long, value_name = "FILE", required_unless_present_any = ["man", "completion"])]
    config: Option<PathBuf>,

    /// The box that this host is, in a file with [boxes]; by default the one with its private key
    #[arg(long, value_name = "BOX", env = "RECODED_NAME")]
    name: Option<String>,

    /// Check the configuration and whether this host fits it, report every mistake, and change
    /// nothing
    #[arg(long)]
    check: bool,

    /// Directory for the history of configurations, which `recodectl undo` goes back to; without
    /// one it is in memory only
    #[arg(long, value_name = "DIR", env = "STATE_DIRECTORY")]
    state: Option<PathBuf>,
    /// With --check: the configuration alone, for another host, without privileges or key files
    #[arg(long, requires = "check")]
    offline: bool,

    /// What to log to stderr: error, warn, info, debug, trace, or a filter such as
    /// info,recoded_runtime=debug
    #[arg(long, value_name = "FILTER", env = "RECODED_LOG", default_value = "info")]
    log: String,

    /// Be the dataplane process of the supervisor at the other end of stdin
    #[arg(long, hide = true)]
    dataplane: bool,

    /// Print the manual page, for packages
    #[arg(long, hide = true)]
    man: bool,

    /// Print a completion script for a shell, for packages
    #[arg(long, hide = true, value_name = "SHELL")]
    completion: Option<clap_complete::Shell>,
}

impl Arguments {
    /// The configuration file; clap insists on it where it is read.
    fn config(&self) -> &Path {
        self.config.as_deref().unwrap_or(Path::new(""))
    }
}

const AFTER_HELP: &str = "\
Examples:
  sudo recoded --config recoded.toml --check       is this file right, and does this host fit it?
  recoded --config recoded.toml --check --offline  is this file right?
  sudo recoded --config recoded.toml               run until SIGTERM or Ctrl-C
  sudo recodectl show                              what is it doing?
  sudo recodectl set 1 code=bats                   change a flow while traffic runs
  sudo recodectl reload --diff                     what would the file change now?
  sudo recodectl reload --confirm 60s              change it, and back unless confirmed

Running needs root, or CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF and CAP_PERFMON; where each [[link]] has
backend udp, CAP_NET_ADMIN for tunnels, and nothing without them. Packets are handled by a process
of their own without privileges (sandbox in [daemon]); when that ends or hangs, another takes its
place, and tunnels, routes and XDP programs stay. On SIGHUP the configuration is read again, as by
recodectl reload. On SIGTERM packets in flight are sent, the XDP programs detached, tunnels and the
control socket removed. On SIGUSR2 the program that now lies where this one did takes over, with the
configuration file as it is then: an upgrade, with tunnels and routes kept. After SIGKILL packets
flow on, and the next start takes over.

Exit codes: 0 stopped as asked, or the file is right; 1 something on this host is in the way;
2 the command line or the configuration is wrong. Messages say what to do about it.";

/// Why the daemon ends other than by request.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("cannot read {path} ({source}): name a readable TOML file with --config")]
    Read { path: PathBuf, source: io::Error },
    #[error("{path} is larger than {FILE_BYTES_MAX} bytes: this cannot be a configuration")]
    TooLarge { path: PathBuf },
    #[error(transparent)]
    Config(#[from] recoded::config::error::ConfigErrors),
    #[error(transparent)]
    Network(#[from] NetworkErrors),
    #[error(transparent)]
    Own(#[from] OwnError),
    #[error(transparent)]
    Keys(#[from] KeysError),
    #[error(transparent)]
    Socket(#[from] SocketError),
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error("cannot set up the control thread ({0}): raise the process's limits (`ulimit -n -u`)")]
    Control(io::Error),
    #[error("the control socket broke ({0}): restart the daemon, and report this")]
    Serve(String),
    #[error("a thread of the dataplane ended or is stuck: report this with the log")]
    Unhealthy,
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    #[error(transparent)]
    Facts(#[from] recoded_host::FactsError),
    #[error("this host does not fit it: errors {errors}, warnings {warnings}")]
    Host { errors: usize, warnings: usize },
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error(
        "cannot start the dataplane process ({0}): raise the process's limits (`ulimit -n -u`)"
    )]
    Spawn(io::Error),
    #[error("the dataplane process ended before it ran ({status}){cause}")]
    Dataplane { status: ExitStatus, code: Option<u8>, cause: String },
    #[error("this process needs a supervisor ({0}): start recoded without --dataplane")]
    NoSupervisor(io::Error),
    #[error("an interface is back: another dataplane process takes it over")]
    Again,
    #[error(
        "this box was set back to a snapshot, or runs twice: this process ends, and the next one has \
         new keys and numbers (start recoded if no supervisor runs)"
    )]
    SetBack,
    #[error("another dataplane process takes over, with the configuration that was read")]
    Replaced,
}

impl Failure {
    fn exit_code(&self) -> u8 {
        match self {
            Failure::Read { .. }
            | Failure::TooLarge { .. }
            | Failure::Config(_)
            | Failure::Network(_)
            | Failure::Own(_)
            | Failure::Keys(_) => EXIT_CONFIG,
            Failure::Dataplane { code, .. } => code.unwrap_or(EXIT_FAILED),
            Failure::Again | Failure::Replaced => EXIT_AGAIN,
            Failure::SetBack => EXIT_SET_BACK,
            _ => EXIT_FAILED,
        }
    }
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => match UsageError::of(&error) {
            Some(wrong) => {
                eprintln!("{}", wrong.lines("recoded"));
                return ExitCode::from(EXIT_CONFIG);
            }
            None => error.exit(),
        },
    };
    match manual::print(&arguments) {
        Ok(false) => {}
        Ok(true) => return ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("recoded: cannot write the output: {error}");
            return ExitCode::from(EXIT_FAILED);
        }
    }
    let filter = match EnvFilter::try_new(&arguments.log) {
        Ok(filter) => filter,
        Err(error) => {
            eprintln!("recoded: --log {}: {error}", arguments.log);
            return ExitCode::from(EXIT_CONFIG);
        }
    };
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    match journal::is_stderr() {
        true => {
            let log = log.with_ansi(false).event_format(journal::Format).finish();
            log.with(LogLimit::default()).init();
        }
        false => {
            let log = log.with_ansi(io::stderr().is_terminal()).finish();
            log.with(LogLimit::default()).init();
        }
    }
    let ended = if arguments.dataplane { confined::run() } else { run(&arguments) };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // A dataplane process has said itself why it ended, unless it was killed.
            match &failure {
                Failure::Dataplane { code: Some(_), .. } => {}
                Failure::Again => tracing::info!("{failure}"),
                failure => eprintln!("{}", journal::error(&failure.to_string())),
            }
            ExitCode::from(failure.exit_code())
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Failure> {
    let written = read(arguments.config())?;
    let file = arguments.config().to_string_lossy();
    if arguments.offline && network::is_network(&written) {
        let network = network::parse(&file, &written)?;
        if let Some(name) = &arguments.name {
            network::named(&network, name)?;
        }
        let (boxes, paths) = (network.nodes.len(), network.paths.len());
        println!("{file}: valid: boxes {boxes}, paths {paths}");
        return Ok(());
    }
    let text = network::own(&file, &written, arguments.name.as_deref())?;
    let (_, _, config) = Config::parse(&file, &text, &node::mtu)?;
    if config.daemon.sandbox == Sandbox::On {
        sandbox::forbid_core_dumps()?;
    }
    // The dataplane process reads them again, and alone keeps them. Offline, they are elsewhere.
    if !arguments.offline {
        drop(Keys::read(&config)?);
    }
    let (config, names) =
        if arguments.offline { (config, Names::default()) } else { resolve(&file, &text, config)? };
    if config.daemon.sandbox == Sandbox::On && !arguments.offline {
        sandbox::User::find(config.daemon.user.as_deref())?;
    }
    if arguments.check {
        let Config { links, tunnels, flows, .. } = &config;
        let counts = (links.len(), tunnels.len(), flows.len());
        println!("{file}: valid: links {}, tunnels {}, flows {}", counts.0, counts.1, counts.2);
        if !arguments.offline {
            return check_host(&config);
        }
        say_unknown(&config);
        return Ok(());
    }
    supervisor::run(arguments, Own { file: written, text }, config, names)
}

/// The configuration with addresses for its host names. Where the daemon before this one did not
/// end in order, what it knew of them holds while the resolver is silent.
fn resolve(file: &str, text: &str, config: Config) -> Result<(Config, Names), Failure> {
    let document = Document::parse(file, text)?;
    if !document.asks_host() {
        return Ok((config, Names::default()));
    }
    let before = predecessor::names(&config.daemon.socket);
    let names = Names::look_up(&document, &before, NAMES_PATIENCE);
    let (.., config) = Config::parse_on(file, text, &node::mtu, Some(&names))?;
    Ok((config, names))
}

/// Prints what a file leaves to the host that it is for.
fn say_unknown(config: &Config) {
    for link in config.links.iter().filter(|link| !link.is_local_written) {
        let (name, interface) = (&link.name, &link.interface);
        println!("not checked: link {name}: local is the address of {interface} on its host");
    }
}

/// Prints what on this host is not as the configuration needs it.
fn check_host(config: &Config) -> Result<(), Failure> {
    let unknown = config.named.iter().filter(|named| !named.trouble.is_empty());
    let mut findings: Vec<recoded_host::Finding> = unknown.map(waits_for_name).collect();
    findings.extend(check::not_built(config));
    findings.extend(check::short_memory(config));
    findings.extend(check::split_programs(config));
    findings.extend(recoded_host::check(&check::plan(config))?);
    for recoded_host::Finding { level, subject, cause, cure, .. } in &findings {
        println!("{}: {subject}: {cause}: {cure}", level.name());
    }
    let errors = findings.iter().filter(|finding| finding.level == Level::Error).count();
    match errors {
        0 => {
            println!("this host fits it: errors 0, warnings {}", findings.len());
            Ok(())
        }
        errors => Err(Failure::Host { errors, warnings: findings.len() - errors }),
    }
}

/// A neighbour whose name does not resolve: it is waited for.
fn waits_for_name(named: &Named) -> recoded_host::Finding {
    recoded_host::Finding {
        level: Level::Warning,
        subject: format!("link {}", named.link),
        cause: format!("waits for {}", named.name),
        cure: named.trouble.clone(),
        mend: Vec::new(),
    }
}

fn read(path: &Path) -> Result<String, Failure> {
    let failed = |source| Failure::Read { path: path.to_owned(), source };
    let mut text = String::new();
    let file = File::open(path).map_err(failed)?;
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(Failure::TooLarge { path: path.to_owned() });
    }
    Ok(text)
}

/// Resolves at SIGTERM or SIGINT.
fn stop_signal() -> io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    // The supervisor has handlers of its own; they must not end the dataplane process.
    let mut hangup = signal(SignalKind::hangup())?;
    let mut replace = signal(SignalKind::user_defined2())?;
    Ok(async move {
        loop {
            let name = tokio::select! {
                _ = terminate.recv() => "SIGTERM",
                _ = interrupt.recv() => "SIGINT",
                _ = hangup.recv() => continue,
                _ = replace.recv() => continue,
            };
            tracing::info!("{name}: draining and stopping");
            return;
        }
    })
}

fn farewell(seen: &Observation) {
    let sum =
        |pick: fn(&recoded_api::v1::Worker) -> u64| seen.workers.iter().map(pick).sum::<u64>();
    tracing::info!(
        received = sum(|worker| worker.received),
        forwarded = sum(|worker| worker.forwarded),
        consumed = sum(|worker| worker.consumed),
        dropped = sum(|worker| worker.dropped),
        "stopped"
    );
}
