//! `recoded-split`: TCP connections end at both edges of a tunnel, and their bytes are carried
//! between as streams of QUIC. So a host meets a short path to its edge, whatever its congestion
//! control, and the long path is filled by a window that knows the tunnel.
//!
//! ```text
//!  host <-TCP-> near.rs [edge] <- QUIC over the tunnel: link.rs -> [edge] far.rs <-TCP-> server
//! ```
//!
//! Two processes: one, with the rights to do it, sets the rules; the other one, with few rights,
//! handles connections.

#![forbid(unsafe_code)]

mod carry;
mod connections;
mod far;
mod held;
mod link;
mod near;
mod nflog;
mod request;
mod rules;
mod sandbox;
mod server;
mod sockets;
mod syn;
mod tls;
mod turns;
mod window;

use clap::Parser;
use connections::{Connections, supervisor};
use held::Held;
use link::Link;
use nflog::Log;
use rules::{Rules, Targets};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{self, IsTerminal, Write};
use std::net::{IpAddr, SocketAddr};
use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use syn::Injector;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::{TcpListener, UnixStream};
use tokio::process::Command;
use tokio::signal::unix::{Signal as Waiting, SignalKind, signal};

/// Smallest MTU of a tunnel assumed if it does not exist yet.
const MTU_ASSUMED: u16 = 1280;

/// Exit code of arguments that are wrong, as of the other programs.
const WRONG_ARGUMENTS: u8 = 2;

/// Ends TCP connections at both edges of a tunnel, and carries their bytes between.
///
/// recoded runs it itself for a path with tcp = "split". By hand, run it at both edges, as root, in
/// addition to recoded:
///
///   recoded-split rec0 --address 10.99.0.1 --peer 10.99.0.2     at one edge
///   recoded-split rec0 --address 10.99.0.2 --peer 10.99.0.1     at the other one
///
/// TCP connections that would leave by the tunnel are then split, those of hosts behind the edge
/// and of its own programs; addresses stay. UDP and everything else pass as before. A connection
/// that exists already is not split. docs/split.md lists the costs.
#[derive(Debug, Parser)]
#[command(version, verbatim_doc_comment)]
struct Arguments {
    /// Interface of the tunnel
    tunnel: String,
    /// Address of this edge in the tunnel
    #[arg(long)]
    address: IpAddr,
    /// Address of the other edge in the tunnel
    #[arg(long)]
    peer: IpAddr,
    /// UDP port at both edges, below 1024: only root may use it
    #[arg(long, default_value_t = 923, value_parser = clap::value_parser!(u16).range(1..1024))]
    port: u16,
    /// User of the process that handles connections, by name or number
    #[arg(long)]
    user: Option<String>,
    /// What is logged: error, warn, info or debug
    #[arg(long, default_value = "info")]
    log: tracing::Level,
    /// The process that handles connections
    #[arg(long, hide = true)]
    confined: bool,
    /// The supervisor of recoded is at the other end of stdin: it reads reports, and this program
    /// ends with it
    #[arg(long, hide = true)]
    supervised: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    tracing_subscriber::fmt()
        .with_max_level(arguments.log)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .with_target(false)
        .init();
    if let Err(problem) = check(&arguments) {
        tracing::error!("{problem}");
        return ExitCode::from(WRONG_ARGUMENTS);
    }
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Has one thread, as the sandbox needs it.
fn run(arguments: &Arguments) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        if arguments.confined { handle(arguments).await } else { watch(arguments).await }
    })
}

fn check(arguments: &Arguments) -> Result<(), String> {
    let Arguments { tunnel, address, peer, .. } = arguments;
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if tunnel.is_empty() || tunnel.len() > 15 || !tunnel.bytes().all(is_name) {
        return Err(format!("{tunnel:?} is no name of an interface"));
    }
    if address.is_ipv4() != peer.is_ipv4() {
        return Err(format!("--address {address} and --peer {peer} are of two families"));
    }
    if address == peer {
        return Err(format!("--address and --peer are both {address}: --peer is the other edge's"));
    }
    Ok(())
}

/// Starts the process that handles connections, sets the rules, and waits for the end of it, or for
/// a signal.
async fn watch(arguments: &Arguments) -> io::Result<()> {
    let mut stop = Stop::new(arguments.supervised)?;
    let stdin = if arguments.supervised { Stdio::inherit() } else { Stdio::null() };
    let mut child = Command::new("/proc/self/exe")
        .args(std::env::args_os().skip(1))
        .arg("--confined")
        .stdin(stdin)
        .stdout(Stdio::piped())
        .spawn()?;
    let stdout = child.stdout.take().ok_or_else(|| io::Error::other("no pipe"))?;
    let said = BufReader::new(stdout).lines().next_line().await?;
    let Some((port, group)) = said.as_deref().and_then(targets) else {
        let status = child.wait().await?;
        return Err(io::Error::other(format!("connections cannot be handled ({status})")));
    };
    let edge = SocketAddr::new(arguments.address, arguments.port);
    let rules = Rules::set(&arguments.tunnel, Targets { port, group, edge })?;
    tracing::info!(tunnel = %arguments.tunnel, "TCP connections that leave by the tunnel are split");
    let status = tokio::select! {
        status = child.wait() => status?,
        () = stop.requested() => {
            // First, so that new connections pass by themselves.
            drop(rules);
            let pid = child.id().and_then(|pid| Pid::from_raw(pid as i32));
            pid.map(|pid| kill_process(pid, Signal::TERM)).transpose()?;
            child.wait().await?
        }
    };
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("{status}"))) }
}

/// Reads the port of the listener and the group that first packets are to be logged to, if any.
fn targets(said: &str) -> Option<(u16, Option<u16>)> {
    let (port, group) = said.split_once(' ')?;
    Some((port.parse().ok()?, Some(group.parse().ok()?).filter(|group| *group > 0)))
}

/// Handles connections until a signal.
async fn handle(arguments: &Arguments) -> io::Result<()> {
    let mut stop = Stop::new(false)?;
    let supervisor = arguments.supervised.then(supervisor).transpose()?;
    let mtu = std::fs::read_to_string(format!("/sys/class/net/{}/mtu", arguments.tunnel));
    let mtu = mtu.ok().and_then(|mtu| mtu.trim().parse().ok()).unwrap_or_else(|| {
        let tunnel = &arguments.tunnel;
        tracing::warn!("there is no interface {tunnel} yet: start recoded, or correct the name");
        MTU_ASSUMED
    });
    let edge = sockets::edge(SocketAddr::new(arguments.address, arguments.port))?;
    let listener = TcpListener::from_std(sockets::listener()?)?;
    let port = listener.local_addr()?.port();
    let log = Log::open().and_then(|log| Ok((log, Injector::open()?)));
    let log = log.inspect_err(|error| {
        tracing::warn!(%error, "hosts are connected before their servers answer (NFLOG)");
    });
    sandbox::enter(arguments.user.as_deref())?;
    let peer = SocketAddr::new(arguments.peer, arguments.port);
    let connections = Arc::new(Connections::new());
    let link = Arc::new(Link::open_at(edge, peer, mtu, Arc::clone(&connections))?);
    let group = log.as_ref().map_or(0, |(log, _)| log.group());
    println!("{port} {group}");
    io::stdout().flush()?;
    let held = Arc::new(Held::default());
    let (holding, linked) = (Arc::clone(&held), Arc::clone(&link));
    let counted = Arc::clone(&connections);
    let hold = async move {
        match log {
            Ok((log, injector)) => held::hold(log, injector, holding, linked, counted).await,
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        () = link.dial() => {}
        () = link.serve() => {}
        () = near::take(listener, held, Arc::clone(&link), Arc::clone(&connections)) => {}
        () = hold => {}
        () = report(supervisor.as_ref(), &connections, &link) => {}
        () = stop.requested() => {}
    }
    link.end().await;
    Ok(())
}

/// Reports to the supervisor, if there is one, without end.
async fn report(supervisor: Option<&UnixStream>, connections: &Connections, link: &Link) {
    match supervisor {
        Some(supervisor) => connections.tell(supervisor, || link.is_connected()).await,
        None => std::future::pending().await,
    }
}

/// Signals that end a process in order, and the supervisor that it ends with.
struct Stop {
    terminate: Waiting,
    interrupt: Waiting,
    supervisor: Option<UnixStream>,
}

impl Stop {
    fn new(is_supervised: bool) -> io::Result<Stop> {
        let terminate = signal(SignalKind::terminate())?;
        let interrupt = signal(SignalKind::interrupt())?;
        Ok(Stop { terminate, interrupt, supervisor: is_supervised.then(supervisor).transpose()? })
    }

    async fn requested(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            () = ended(self.supervisor.as_mut()) => {}
        }
    }
}

/// Waits for the end of the supervisor, which never writes.
async fn ended(supervisor: Option<&mut UnixStream>) {
    match supervisor {
        Some(supervisor) => drop(supervisor.read(&mut [0]).await),
        None => std::future::pending().await,
    }
}
