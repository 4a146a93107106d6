//! One TCP stream for a limited time: bytes received per tenth of a second.
//!
//! Sender and receiver are threads of this process. iperf3 would do the same, but it needs a second
//! connection to its server, which does not survive on lines where plain TCP starves.

use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};

use crate::{BedError, Namespace, mptcp};

/// Bytes of one write and one read.
const BLOCK_BYTES: usize = 128 << 10;

/// How often both sides check whether they may end.
const LOOK: Duration = Duration::from_millis(100);

/// Timeout for a connection.
const PATIENCE: Duration = Duration::from_secs(10);

/// Tenths of a second: the step of the record.
pub const STEP: Duration = Duration::from_millis(100);

/// Shortest recorded gap without a byte: longer than the time between reads of a stream.
const GAP: Duration = Duration::from_millis(20);

/// The priority of iperf3 in a bed.
const NICE: i32 = -20;

/// A stream that is running. Dropping it ends it.
#[derive(Debug)]
pub struct Stream {
    began: Instant,
    stop: Arc<AtomicBool>,
    sender: Option<JoinHandle<()>>,
    receiver: Option<JoinHandle<StreamOutcome>>,
    /// Accepts further paths of MPTCP while the connection lasts.
    _listener: TcpListener,
}

/// Transport of a stream.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Transport {
    /// One path.
    Tcp,
    /// Multipath TCP: as many paths as [`mptcp::prepare`] allows.
    Mptcp,
}

/// Received data: bytes in each [`STEP`] since the start.
#[derive(Clone, Debug, Default)]
pub struct StreamOutcome {
    /// Bytes by step.
    pub bytes: Vec<u64>,
    /// Longer gaps without a byte: their start and end, in seconds.
    pub gaps: Vec<(f64, f64)>,
}

impl StreamOutcome {
    /// Mean goodput in Mbit/s from one second to another.
    pub fn mbit_between(&self, from: f64, to: f64) -> f64 {
        let step = |seconds: f64| (seconds / STEP.as_secs_f64()).round() as usize;
        let steps = step(from)..step(to);
        let bytes: u64 = steps.clone().map(|step| self.bytes.get(step).copied().unwrap_or(0)).sum();
        bytes as f64 * 8e-6 / (steps.len().max(1) as f64 * STEP.as_secs_f64())
    }

    /// Longest gap without a byte between two times, all in seconds; 0 if none exceeded a few
    /// milliseconds.
    pub fn longest_gap_between(&self, from: f64, to: f64) -> f64 {
        let within = self.gaps.iter().map(|(begin, end)| end.min(to) - begin.max(from));
        within.fold(0.0, f64::max)
    }
}

/// Sets the congestion control of a socket.
///
/// # Errors
/// If Linux does not have it.
pub fn set_congestion_control(socket: &TcpStream, name: &str) -> std::io::Result<()> {
    Ok(setsockopt(socket, sockopt::TcpCongestion, &OsString::from(name))?)
}

/// Makes a socket discard its unsent data when it is closed.
///
/// # Errors
/// When Linux refuses.
pub fn forget_when_closed(socket: &TcpStream) -> std::io::Result<()> {
    let linger = nix::libc::linger { l_onoff: 1, l_linger: 0 };
    Ok(setsockopt(socket, sockopt::Linger, &linger)?)
}

impl Stream {
    /// Connects from `sender` to `to` and sends as fast as `control` allows. The stream arrives at
    /// `listen` on `receiver`: the same address, unless there are proxies in between.
    ///
    /// # Errors
    /// If the connection is not established within ten seconds, or Linux lacks this congestion
    /// control.
    pub fn start(
        sender: &Namespace,
        to: SocketAddr,
        receiver: &Namespace,
        listen: SocketAddr,
        control: &str,
    ) -> Result<Stream, BedError> {
        Stream::start_over(Transport::Tcp, sender, to, receiver, listen, control)
    }

    /// The same over a transport.
    ///
    /// # Errors
    /// As [`Stream::start`], and when Linux lacks the transport.
    pub fn start_over(
        transport: Transport,
        sender: &Namespace,
        to: SocketAddr,
        receiver: &Namespace,
        listen: SocketAddr,
        control: &str,
    ) -> Result<Stream, BedError> {
        let failed = |what: &str| BedError::system(format!("TCP stream to {to}: {what}"));
        let bind = || match transport {
            Transport::Tcp => TcpListener::bind(listen),
            Transport::Mptcp => mptcp::listen(listen),
        };
        let connect = || match transport {
            Transport::Tcp => TcpStream::connect_timeout(&to, PATIENCE),
            Transport::Mptcp => mptcp::connect(to, PATIENCE),
        };
        let listener = receiver.inside(bind)?.map_err(failed("listen"))?;
        listener.set_nonblocking(true).map_err(failed("listen"))?;
        let outgoing = sender.inside(connect)?.map_err(failed("connect"))?;
        set_congestion_control(&outgoing, control).map_err(failed(control))?;
        outgoing.set_write_timeout(Some(LOOK)).map_err(failed("socket"))?;
        forget_when_closed(&outgoing).map_err(failed("socket"))?;
        let incoming = accept(&listener).map_err(failed("accept"))?;
        incoming.set_read_timeout(Some(LOOK)).map_err(failed("socket"))?;
        forget_when_closed(&incoming).map_err(failed("socket"))?;
        let stop = Arc::new(AtomicBool::new(false));
        let began = Instant::now();
        let flag = Arc::clone(&stop);
        let sender = std::thread::spawn(move || send(outgoing, &flag));
        let flag = Arc::clone(&stop);
        let receiver = std::thread::spawn(move || receive(incoming, began, &flag));
        let (sender, receiver) = (Some(sender), Some(receiver));
        Ok(Stream { began, stop, sender, receiver, _listener: listener })
    }

    /// Sleeps until `since_start` after the start.
    pub fn wait_until(&self, since_start: Duration) {
        std::thread::sleep(since_start.saturating_sub(self.began.elapsed()));
    }

    /// Ends it.
    pub fn finish(mut self) -> StreamOutcome {
        self.end()
    }

    fn end(&mut self) -> StreamOutcome {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(sender) = self.sender.take() {
            // The sender returns no counts.
            let _ = sender.join();
        }
        self.receiver.take().and_then(|receiver| receiver.join().ok()).unwrap_or_default()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.end();
    }
}

fn accept(listener: &TcpListener) -> std::io::Result<TcpStream> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                return Ok(stream);
            }
            Err(_) if Instant::now() > deadline => {
                return Err(std::io::Error::other("no connection came in 10 s"));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// Ends on request or when the peer has closed; a timeout is neither.
fn send(mut socket: TcpStream, stop: &AtomicBool) {
    be_prompt();
    let block = vec![0x5a; BLOCK_BYTES];
    while !stop.load(Ordering::Relaxed) {
        match socket.write(&block) {
            Ok(_) => {}
            Err(error) if is_timeout(&error) => {}
            Err(_) => return,
        }
    }
}

fn receive(mut socket: TcpStream, began: Instant, stop: &AtomicBool) -> StreamOutcome {
    be_prompt();
    let mut block = vec![0; BLOCK_BYTES];
    let (mut outcome, mut last) = (StreamOutcome::default(), began.elapsed());
    while !stop.load(Ordering::Relaxed) {
        let count = match socket.read(&mut block) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if is_timeout(&error) => continue,
            Err(_) => break,
        };
        let now = began.elapsed();
        outcome.note(last, now, count);
        last = now;
    }
    outcome.note(last, began.elapsed(), 0);
    outcome
}

impl StreamOutcome {
    /// Records `count` bytes received at `now`, after a gap since `last`.
    fn note(&mut self, last: Duration, now: Duration, count: usize) {
        if now - last >= GAP {
            self.gaps.push((last.as_secs_f64(), now.as_secs_f64()));
        }
        let step = (now.as_nanos() / STEP.as_nanos()) as usize;
        if self.bytes.len() <= step {
            self.bytes.resize(step + 1, 0);
        }
        self.bytes[step] += count as u64;
    }
}

fn is_timeout(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}

/// A measuring program that waits for a core would measure that.
fn be_prompt() {
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goodput_is_of_the_time_asked_for_and_missing_steps_brought_nothing() {
        let bytes = vec![0, 25_000, 25_000, 50_000];
        let outcome = StreamOutcome { bytes, gaps: Vec::new() };
        assert!((outcome.mbit_between(0.1, 0.3) - 2.0).abs() < 1e-9);
        assert!((outcome.mbit_between(0.3, 0.5) - 2.0).abs() < 1e-9);
        assert_eq!(outcome.mbit_between(1.0, 2.0), 0.0);
    }
    #[test]
    fn gap_counts_as_far_as_it_is_between_two_times() {
        let mut outcome = StreamOutcome::default();
        let at = [0.0, 0.01, 0.35, 0.36, 1.0].map(Duration::from_secs_f64);
        at.windows(2).for_each(|pair| outcome.note(pair[0], pair[1], 100));
        assert_eq!(outcome.bytes, [100, 0, 0, 200, 0, 0, 0, 0, 0, 0, 100]);
        assert!((outcome.longest_gap_between(0.0, 0.5) - 0.34).abs() < 1e-9);
        assert!((outcome.longest_gap_between(0.5, 2.0) - 0.5).abs() < 1e-9);
        assert!((outcome.longest_gap_between(0.0, 0.11) - 0.1).abs() < 1e-9);
        assert_eq!(outcome.longest_gap_between(2.0, 3.0), 0.0);
    }
}
