//! `recodectl ping`: an echo each second to the far end of a tunnel, over the same path as its
//! users' packets.
//!
//! ```text
//!  Echoes ── ICMP through the tunnel, coded, decoded ──> the far end's Linux
//!    │ answers        Session: round trips, losses
//!    └ own address ─> tunnel ─> its flows ─> trace: loss, queue and rank by hop
//! ```
//!
//! The daemon is queried once, at the end, and only for the hops: echoes are sent even without one.

mod echo;
mod session;
mod show;

pub use show::text;

use crate::Failure;
use crate::durations;
use crate::trace::{Trace, of_tunnel};
use clap::Args;
use echo::{EchoReply, Echoes, PAYLOAD_BYTES_MAX, PAYLOAD_BYTES_MIN};
use recoded_api::client::Client;
use serde::Serialize;
use session::{Figures, Session};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::{IpAddr, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const HOST_RULE: &str = "write the address that the far end has in the tunnel, such as 10.99.0.2, or \
                         a host name; recodectl trace takes the id of a flow";

/// Longest wait for a reply, and thus for a signal.
const LOOK: Duration = Duration::from_millis(200);

/// Options of `ping`.
#[derive(Args, Debug)]
pub struct PingOptions {
    /// The far end: its address in the tunnel, or any host; with -f omit it to ping every path
    #[arg(value_name = "HOST", value_parser = host)]
    host: Option<String>,
    /// Number of echo requests; 0 for no limit, until Ctrl-C
    #[arg(short, long, value_name = "N", default_value_t = 10)]
    count: u64,
    /// Seconds between echo requests, 0.01 to 3600
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    interval: Duration,
    /// Timeout in seconds, 0.1 to 60; a later reply counts as lost
    #[arg(short = 'W', long, value_name = "SECONDS", default_value = "4", value_parser = wait)]
    wait: Duration,
    /// Payload bytes; IPv4 and ICMP add 28, IPv6 48
    #[arg(short = 's', long, default_value_t = 56,
          value_parser = clap::value_parser!(u16)
              .range(PAYLOAD_BYTES_MIN as i64..=PAYLOAD_BYTES_MAX as i64))]
    bytes: u16,
    /// Print only the summary
    #[arg(short, long)]
    quiet: bool,
    /// Interface to send from, such as a tunnel in a VRF, or the VRF; by default routes decide
    #[arg(short = 'I', long, value_name = "NAME")]
    interface: Option<String>,
}

impl PingOptions {
    /// Whether it names one host rather than all paths of a network.
    pub fn names_host(&self) -> bool {
        self.host.is_some()
    }

    /// Longest duration; `None` if unlimited.
    pub fn longest(&self) -> Option<Duration> {
        let pauses = u32::try_from(self.count.checked_sub(1)?).ok()?;
        Some(self.interval.checked_mul(pauses)? + self.wait)
    }

    /// The same options for another host, as shell words.
    pub fn words(&self) -> String {
        let PingOptions { count, interval, wait, bytes, .. } = self;
        let (interval, wait) = (interval.as_secs_f64(), wait.as_secs_f64());
        format!("-c {count} -i {interval} -W {wait} -s {bytes}")
    }
}

/// Explains the command.
pub const HELP: &str = "\
Examples:
  recodectl ping 10.99.0.2                         the far end of a tunnel, ten times
  recodectl ping 10.99.0.2 -c 0                    until Ctrl-C
  recodectl ping 10.99.0.2 -c 500 -i 0.02 -q       losses to a fifth of a percent, in ten seconds
  recodectl ping 10.99.0.2 -s 1372                 packets of 1400 bytes
  recodectl --json ping 10.99.0.2 | jq .figures.loss
  recodectl ping 10.99.0.2 -I rec0                 through this tunnel, regardless of routes
  recodectl ping 192.0.2.2                         the same host outside of the tunnel, to compare
  recodectl -f net.toml ping                       every path of a network, from its source

The ping needs ICMP at the far end, and a return flow. Losses shown here are residual: Recoded did
not recover them. RTTs include coding and decoding in both directions. The hops below them are the
reports of single links (as recodectl trace), with losses before repair.

Requires root, or a user whose group is within net.ipv4.ping_group_range (Debian's default is all).
Exit code 0 if there is any reply, 5 if there is none.";

/// Why the ping failed.
#[derive(Debug, thiserror::Error)]
pub enum PingError {
    /// The name has no address.
    #[error(
        "{0} has no address ({1}): write the address that the far end has in the tunnel, such as \
         10.99.0.2 (recodectl show has this end's)"
    )]
    Resolve(String, io::Error),
    /// No socket is permitted to this user.
    #[error(
        "this user may not send ICMP echoes: let all groups do so (sudo sysctl -w \
         net.ipv4.ping_group_range=\"0 2147483647\"), or run as root"
    )]
    Forbidden,
    /// No route.
    #[error(
        "no route to {0} ({1}): check ip route get {0}, and that the tunnel exists (recodectl \
         show); if it is in a VRF, name it with --interface"
    )]
    NoRoute(IpAddr, io::Error),
    /// The interface does not exist, or is not permitted to this user.
    #[error(
        "cannot send through {0} ({1}): name an existing interface (ip -br link), such as a \
         tunnel (recodectl show)"
    )]
    Interface(String, io::Error),
    /// The socket.
    #[error("the socket for ICMP echoes failed ({0}): use ping of your system")]
    Socket(#[from] io::Error),
    /// No signals.
    #[error("signals cannot be handled ({0}): use ping of your system")]
    Signals(#[from] ctrlc::Error),
}

/// Result of the echoes, and the flows that they crossed.
#[derive(Debug, Serialize)]
pub struct PingReport {
    /// As given, and its address.
    host: String,
    address: String,
    /// This host's source address.
    from: String,
    /// The tunnel with that address; null outside of tunnels.
    tunnel: Option<String>,
    bytes: u16,
    interval_seconds: f64,
    /// Counts and round trips.
    figures: Figures,
    /// ICMP errors and send errors, in words, and how often each occurred.
    refusals: BTreeMap<String, u64>,
    /// Why hops are unknown; null if they are known.
    not_known: Option<String>,
    /// Flows of the tunnel: outbound, then return.
    ways: Vec<Trace>,
}

impl PingReport {
    /// Whether no reply arrived.
    pub fn is_dead(&self) -> bool {
        self.figures.answered == 0
    }
}

/// Sends echoes until all are answered or lost, or a signal arrives.
///
/// # Errors
/// There is no such host, no route, or no socket for this user.
pub fn report(options: &PingOptions, socket: &Path, is_json: bool) -> Result<PingReport, Failure> {
    let host = options.host.as_deref().ok_or(Failure::Usage(HOST_RULE.to_owned()))?;
    let to = resolve(host)?;
    let mut echoes = Echoes::open(to, options.bytes).map_err(|error| opening(to, error))?;
    if let Some(interface) = &options.interface {
        let failed = |error| PingError::Interface(interface.clone(), error);
        echoes.by(interface).map_err(failed)?;
    }
    echoes.connect(to).map_err(|error| opening(to, error))?;
    let from = echoes.local().map_err(PingError::from)?;
    let mut reader = Reader::new(options.quiet || is_json)?;
    reader.tell(&show::head(options, host, &to.to_string(), &from.to_string()))?;
    let mut session = Session::new(options.wait);
    let mut refusals = BTreeMap::new();
    run(options, &mut echoes, &mut session, &mut refusals, &mut reader)?;
    let (tunnel, not_known, ways) = crossed(socket, from);
    Ok(PingReport {
        host: host.to_owned(),
        address: to.to_string(),
        from: from.to_string(),
        tunnel,
        bytes: options.bytes,
        interval_seconds: options.interval.as_secs_f64(),
        figures: session.figures(),
        refusals,
        not_known,
        ways,
    })
}

/// Sends and receives until the fate of all echoes is known, or the reader stops.
fn run(
    options: &PingOptions,
    echoes: &mut Echoes,
    session: &mut Session,
    refusals: &mut BTreeMap<String, u64>,
    reader: &mut Reader,
) -> Result<(), PingError> {
    let began = Instant::now();
    let mut due = Duration::ZERO;
    loop {
        let now = began.elapsed();
        let is_done = options.count > 0 && session.figures().sent >= options.count;
        if !is_done && now >= due {
            let sent = echoes.send(session.next());
            session.sent(now);
            if let Err(error) = sent {
                let said = echo::refusal(&error).ok_or(error)?;
                *refusals.entry(said).or_default() += 1;
            }
            // After the whole host was suspended, one echo is sent, not all that were missed.
            due = (due + options.interval).max(now);
        }
        for number in session.expire(now) {
            reader.tell(&show::lost(number, options))?;
        }
        if reader.is_gone() || is_done && !session.is_waiting() {
            return Ok(());
        }
        let next = if is_done { Duration::MAX } else { due };
        let next = session.deadline().map_or(next, |deadline| deadline.min(next));
        match echoes.receive(next.saturating_sub(began.elapsed()).min(LOOK))? {
            EchoReply::Answer(number) => {
                let answer = session.answer(number, began.elapsed());
                if let Some(line) = show::answer(number, answer) {
                    reader.tell(&line)?;
                }
            }
            EchoReply::Refused(said) => *refusals.entry(said).or_default() += 1,
            EchoReply::Nothing => {}
        }
    }
}

/// The reader of a line for each echo, which may stop the ping.
struct Reader {
    is_quiet: bool,
    is_closed: bool,
    is_asked_to_end: Arc<AtomicBool>,
}

impl Reader {
    fn new(is_quiet: bool) -> Result<Reader, PingError> {
        let is_asked_to_end = Arc::new(AtomicBool::new(false));
        let asked = is_asked_to_end.clone();
        // Partner: the load in `is_gone`.
        ctrlc::set_handler(move || asked.store(true, Ordering::Release))?;
        Ok(Reader { is_quiet, is_closed: false, is_asked_to_end })
    }

    fn tell(&mut self, line: &str) -> Result<(), PingError> {
        if self.is_quiet || self.is_closed {
            return Ok(());
        }
        match writeln!(io::stdout(), "{line}") {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => self.is_closed = true,
            written => written?,
        }
        Ok(())
    }

    fn is_gone(&self) -> bool {
        self.is_closed || self.is_asked_to_end.load(Ordering::Acquire)
    }
}

/// The tunnel with this address, why its hops are unknown, and its flows.
fn crossed(socket: &Path, from: IpAddr) -> (Option<String>, Option<String>, Vec<Trace>) {
    let state = match Client::connect(socket).and_then(|mut client| client.state()) {
        Ok(state) => state,
        Err(error) => return (None, Some(error.to_string()), Vec::new()),
    };
    let address = |text: &str| text.split('/').next().and_then(|text| text.parse::<IpAddr>().ok());
    let mut tunnels = state.tunnels.iter();
    let tunnel = tunnels.find(|tunnel| tunnel.addresses.iter().any(|it| address(it) == Some(from)));
    let tunnel = tunnel.map(|tunnel| tunnel.name.clone());
    let ways = tunnel.as_deref().map_or(Vec::new(), |name| of_tunnel(&state, name));
    (tunnel, None, ways)
}

fn resolve(host: &str) -> Result<IpAddr, PingError> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let failed = |error| PingError::Resolve(host.to_owned(), error);
    let mut found = (bare, 0).to_socket_addrs().map_err(failed)?;
    let found = found.next().ok_or_else(|| failed(io::Error::other("no address")))?;
    Ok(found.ip().to_canonical())
}

fn opening(to: IpAddr, error: io::Error) -> PingError {
    use io::ErrorKind::{AddrNotAvailable, HostUnreachable, InvalidInput, NetworkUnreachable};
    match error.kind() {
        io::ErrorKind::PermissionDenied => PingError::Forbidden,
        // The last is the error of a route of type blackhole.
        HostUnreachable | NetworkUnreachable | AddrNotAvailable | InvalidInput => {
            PingError::NoRoute(to, error)
        }
        _ => PingError::Socket(error),
    }
}

/// A resolver takes a number as an IPv4 address, a user as a flow.
fn host(text: &str) -> Result<String, String> {
    if text.is_empty() || text.parse::<u64>().is_ok() {
        return Err(HOST_RULE.to_owned());
    }
    Ok(text.to_owned())
}

fn interval(text: &str) -> Result<Duration, String> {
    durations::within(text, 0.01..=3600.0)
}

fn wait(text: &str) -> Result<Duration, String> {
    durations::within(text, 0.1..=60.0)
}

#[cfg(test)]
mod tests;
