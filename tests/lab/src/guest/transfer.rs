//! Traffic through the tunnel: pings, and TCP with all bytes compared.

use std::fmt;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use recoded_netns::{Namespace, process};

use super::tool;
use crate::LabError;

/// Port of the listener.
const PORT: u16 = 5201;

/// Timeout of a read or write.
const STALL: Duration = Duration::from_secs(60);

/// Timeout of concurrent pings.
const PING_PATIENCE: Duration = Duration::from_secs(5);

/// Interval between concurrent pings.
const PING_PAUSE: Duration = Duration::from_millis(500);

/// Pings until the first answer.
///
/// # Errors
/// If none arrives in time.
pub fn first_ping(from: &Namespace, to: &str, patience: Duration) -> Result<Duration, LabError> {
    let began = Instant::now();
    while began.elapsed() < patience {
        if is_answered(from, to, Duration::from_secs(1))? {
            return Ok(began.elapsed());
        }
        // Without a route ping ends at once.
        std::thread::sleep(Duration::from_millis(100));
    }
    LabError::wrong(format!("no ping was answered within {} s", patience.as_secs()))
}

/// Sends pings one after the other; each must be answered.
///
/// # Errors
/// When one is lost.
pub fn ping(from: &Namespace, to: &str, count: u32) -> Result<(), LabError> {
    for number in 1..=count {
        if !is_answered(from, to, STALL)? {
            return LabError::wrong(format!("ping {number} of {count} to {to} is lost"));
        }
    }
    Ok(())
}

/// Result of concurrent pings.
#[derive(Clone, Copy, Default, Debug)]
pub struct Pings {
    /// Pings sent.
    pub sent: u32,
    /// Pings without an answer within 5 s.
    pub lost: u32,
}

impl fmt::Display for Pings {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} of {} pings lost", self.lost, self.sent)
    }
}

/// Runs `work` while one box pings the other one. Returns its result, and that of the pings.
///
/// # Errors
/// When `work` fails.
pub fn under_pings<T>(
    from: &Namespace,
    to: &str,
    work: impl FnOnce() -> Result<T, LabError>,
) -> Result<(T, Pings), LabError> {
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let pings = scope.spawn(|| {
            let mut pings = Pings::default();
            while !is_done.load(Ordering::Relaxed) {
                pings.sent += 1;
                pings.lost += u32::from(!is_answered(from, to, PING_PATIENCE)?);
                std::thread::sleep(PING_PAUSE);
            }
            Ok::<Pings, LabError>(pings)
        });
        let result = work();
        is_done.store(true, Ordering::Relaxed);
        let pings = pings.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok((result?, pings?))
    })
}

/// The shortest round trip of some pings.
///
/// # Errors
/// When none is answered.
pub fn round_trip(from: &Namespace, to: &str, count: u32) -> Result<Duration, LabError> {
    let mut command = from.command(busybox());
    let said = process::run(command.args(["ping", "-q", "-c", &count.to_string(), to]))?;
    let least = said.split_once("min/avg/max = ").and_then(|(_, times)| times.split_once('/'));
    let millis: Option<f64> = least.and_then(|(least, _)| least.parse().ok());
    match millis.and_then(|millis| Duration::try_from_secs_f64(millis / 1e3).ok()) {
        Some(least) => Ok(least),
        None => LabError::wrong(format!("pings to {to}: {said}")),
    }
}

fn is_answered(from: &Namespace, to: &str, patience: Duration) -> Result<bool, LabError> {
    let mut command = from.command(busybox());
    command.args(["ping", "-q", "-c", "1", "-W", &patience.as_secs().to_string(), to]);
    Ok(process::output(&mut command)?.success)
}

/// Sends bytes over TCP to an address of another namespace, and compares all.
///
/// # Errors
/// When the connection stalls or ends, or a byte is wrong.
pub fn tcp(from: &Namespace, to: &Namespace, at: &str, bytes: usize) -> Result<Duration, LabError> {
    let address = format!("{at}:{PORT}").parse();
    let address: SocketAddr =
        address.map_err(|_| LabError::Wrong(format!("{at} is no IPv4 address")))?;
    let listener = to.inside(|| TcpListener::bind(address))?;
    let listener = listener.map_err(|error| LabError::Wrong(format!("TCP listener: {error}")))?;
    let began = Instant::now();
    let received = std::thread::scope(|scope| {
        let receiver = scope.spawn(|| receive(&listener));
        let sent = from.inside(|| send(address, bytes));
        // The receiver waits for a connection that may never arrive.
        if !matches!(sent, Ok(Ok(()))) {
            let _ = to.inside(|| TcpStream::connect_timeout(&address, STALL));
        }
        let received = receiver.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        sent?.map_err(|error| LabError::Wrong(format!("TCP to {at}: {error}")))?;
        received.map_err(|error| LabError::Wrong(format!("TCP at {at}: {error}")))
    })?;
    if received.len() != bytes || received.iter().enumerate().any(|(i, byte)| *byte != pattern(i)) {
        let count = received.len();
        return LabError::wrong(format!("TCP to {at}: {count} of {bytes} bytes, or others"));
    }
    Ok(began.elapsed())
}

fn receive(listener: &TcpListener) -> std::io::Result<Vec<u8>> {
    let (mut stream, _) = listener.accept()?;
    stream.set_read_timeout(Some(STALL))?;
    let mut received = Vec::new();
    stream.read_to_end(&mut received)?;
    Ok(received)
}

/// Returns once the receiver has everything: a socket closed before would be an orphan, which boxes
/// of the lab abandon after one retransmission (`tcp_orphan_retries`).
fn send(address: SocketAddr, bytes: usize) -> std::io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&address, STALL)?;
    stream.set_write_timeout(Some(STALL))?;
    stream.set_read_timeout(Some(STALL))?;
    let content: Vec<u8> = (0..bytes).map(pattern).collect();
    stream.write_all(&content)?;
    stream.shutdown(Shutdown::Write)?;
    // It sends nothing, and closes at the end.
    stream.read(&mut [0]).map(|_| ())
}

/// A byte that differs from its neighbours and from those at round distances.
fn pattern(index: usize) -> u8 {
    (index.wrapping_mul(151) ^ (index >> 8) ^ (index >> 16)).to_le_bytes()[0]
}

/// Busybox's `ping`, because many hosts have none.
fn busybox() -> PathBuf {
    tool("usr/bin/busybox")
}
