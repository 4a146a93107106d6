//! `recoded`: reads the configuration, opens the dataplane, answers the control socket, and on a
//! signal gives everything back.

#![forbid(unsafe_code)]

use clap::Parser;
use recoded::config::Config;
use recoded::config::document::FILE_BYTES_MAX;
use recoded::control::bounded;
use recoded::control::socket::{SocketError, claim};
use recoded::dataplane::{Dataplane, Observation};
use recoded::keys::{Keys, KeysError};
use recoded::live::{EDITION_FIRST, Live};
use recoded::node::{self, Node};
use recoded_api::service::Service;
use recoded_runtime::StartError;
use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

/// Exit code when something on this host is in the way.
const EXIT_FAILED: u8 = 1;
/// Exit code when the command line or the configuration is wrong.
const EXIT_CONFIG: u8 = 2;
/// How often the threads of the dataplane are looked after.
const HEALTH_INTERVAL: Duration = Duration::from_secs(1);

/// Recodes packets in the network: sends fresh combinations of what arrived, at every hop, so that
/// loss does not add up along the way.
#[derive(Parser)]
#[command(name = "recoded", version, after_help = AFTER_HELP)]
struct Arguments {
    /// Configuration file (TOML). The default one, control/daemon/recoded.toml, explains every key
    #[arg(long, value_name = "FILE")]
    config: PathBuf,

    /// Check the configuration, report every mistake in it, and change nothing
    #[arg(long)]
    check: bool,

    /// What to log to stderr: error, warn, info, debug, trace, or a filter such as
    /// info,recoded_runtime=debug
    #[arg(long, value_name = "FILTER", env = "RECODED_LOG", default_value = "info")]
    log: String,
}

const AFTER_HELP: &str = "\
Examples:
  recoded --config recoded.toml --check      is this file right?
  sudo recoded --config recoded.toml         run until SIGTERM or Ctrl-C
  sudo recodectl show                        what is it doing?
  sudo recodectl set 1 code=bats             change a flow while traffic runs

Running needs root, or CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF. On SIGTERM packets in flight are
sent, the XDP programs detached, tunnels and the control socket removed.

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
    Keys(#[from] KeysError),
    #[error(transparent)]
    Socket(#[from] SocketError),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error("cannot set up the control thread ({0}): raise the process's limits (`ulimit -n -u`)")]
    Control(io::Error),
    #[error("the control socket broke ({0}): restart the daemon, and report this")]
    Serve(String),
    #[error("a thread of the dataplane ended: restart the daemon, and report this with the log")]
    Unhealthy,
}

impl Failure {
    fn exit_code(&self) -> u8 {
        match self {
            Failure::Read { .. }
            | Failure::TooLarge { .. }
            | Failure::Config(_)
            | Failure::Keys(_) => EXIT_CONFIG,
            _ => EXIT_FAILED,
        }
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let filter = match EnvFilter::try_new(&arguments.log) {
        Ok(filter) => filter,
        Err(error) => {
            eprintln!("recoded: --log {}: {error}", arguments.log);
            return ExitCode::from(EXIT_CONFIG);
        }
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .init();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::from(failure.exit_code())
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Failure> {
    let text = read(&arguments.config)?;
    let file = arguments.config.to_string_lossy();
    let (document, mtus, config) = Config::parse(&file, &text, &node::mtu)?;
    let keys = Keys::read(&config)?;
    if arguments.check {
        let Config { links, tunnels, flows, .. } = &config;
        let counts = (links.len(), tunnels.len(), flows.len());
        println!("{file}: valid: links {}, tunnels {}, flows {}", counts.0, counts.1, counts.2);
        return Ok(());
    }
    let control = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let control = control.map_err(Failure::Control)?;
    // From here on a signal waits for us instead of killing us halfway through the start.
    let stop = control.block_on(async { stop_signal() }).map_err(Failure::Control)?;
    let (listener, _claim) = claim(&config.daemon.socket)?;
    let socket = config.daemon.socket.clone();
    let node = Rc::new(Node::start(&config, keys, config.snapshot(EDITION_FIRST))?);
    announce(&config, &node.observe(), &socket);
    let live = Live::new(document, mtus, config, node.clone());
    let ended = control.block_on(async {
        let service = Service::new(Box::new(live));
        tokio::select! {
            () = stop => Ok(()),
            () = until_unhealthy(&node) => Err(Failure::Unhealthy),
            served = bounded::serve(listener, service) => Err(Failure::Serve(match served {
                Ok(()) => "it stopped listening".into(),
                Err(error) => error.to_string(),
            })),
        }
    });
    // The service has gone with its future, so this is the last owner.
    if let Some(node) = Rc::into_inner(node) {
        farewell(&node.stop());
    }
    ended
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

/// Resolves at SIGTERM or SIGINT. SIGHUP only gets an explanation.
fn stop_signal() -> io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    Ok(async move {
        loop {
            let name = tokio::select! {
                _ = terminate.recv() => "SIGTERM",
                _ = interrupt.recv() => "SIGINT",
                _ = hangup.recv() => {
                    tracing::warn!("SIGHUP changes nothing: use recodectl set, or restart");
                    continue;
                }
            };
            tracing::info!("{name}: draining and stopping");
            return;
        }
    })
}

async fn until_unhealthy(node: &Node) {
    while node.is_healthy() {
        tokio::time::sleep(HEALTH_INTERVAL).await;
    }
}

fn announce(config: &Config, seen: &Observation, socket: &Path) {
    tracing::info!(
        "recoded {} runs: workers {}, field arithmetic by {}, control socket {}",
        env!("CARGO_PKG_VERSION"),
        config.daemon.workers,
        recoded_gf::Kernel::best().name(),
        socket.display()
    );
    for link in &seen.links {
        let reason = if link.reason.is_empty() { "the best there is" } else { &link.reason };
        tracing::info!(
            "link {} ({}): XDP {}, sockets {}: {reason}",
            link.name,
            link.interface,
            link.xdp_mode,
            link.socket_mode
        );
    }
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
