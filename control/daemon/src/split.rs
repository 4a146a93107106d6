//! The programs `recoded-split`, one for each tunnel with `tcp_split`: started, watched and ended
//! by the supervisor, which follows the active configuration.
//!
//! ```text
//!  supervisor -- stdin: open as long as the program is wanted ----> recoded-split
//!             <- one line a second: SplitReport -------------------
//! ```
//!
//! A program ends by itself when the supervisor does, however that ends: its rules are then gone
//! and new connections pass through the tunnel as they are. A program that ends is started again,
//! after a pause that doubles up to [`PAUSE_MAX`].

use crate::config::{Config, Sandbox};
use crate::sandbox::User;
use recoded_api::v1::Split;
use recoded_counters::split::{REPORT_BYTES_MAX, SplitReport};
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The program, in the folder of this one.
const PROGRAM: &str = "recoded-split";

/// Pause before a program that ended is started again: the first one, and the longest.
const PAUSE_FIRST: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// A program that ran for this long did not fail at its start.
const STABLE: Duration = Duration::from_secs(10);

/// Longest wait for programs to remove their rules and close their connections.
const END_PATIENCE: Duration = Duration::from_secs(3);

/// Poll interval while waiting for that.
const END_LOOK: Duration = Duration::from_millis(10);

/// A tunnel whose TCP connections end at both edges.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SplitTunnel {
    /// Its interface.
    pub tunnel: String,
    /// Address of this edge in the tunnel.
    pub address: IpAddr,
    /// Address of the other edge in the tunnel, of the same family.
    pub peer: IpAddr,
    /// User of the process that handles connections; `None`: that of the supervisor.
    pub user: Option<String>,
}

/// The tunnels of a configuration that are split.
pub fn split_tunnels(config: &Config) -> Vec<SplitTunnel> {
    let user = || match config.daemon.sandbox {
        Sandbox::On => User::find(config.daemon.user.as_deref()).ok().flatten(),
        Sandbox::Off => None,
    };
    let tunnels = config.tunnels.iter().filter_map(|tunnel| {
        let (address, peer) = (tunnel.split_address()?, tunnel.tcp_split?);
        let user = user().map(|user| user.name);
        Some(SplitTunnel { tunnel: tunnel.name.clone(), address, peer, user })
    });
    tunnels.collect()
}

/// Path of the program, in the folder of this one.
///
/// # Errors
///
/// It is not there.
pub fn program() -> io::Result<PathBuf> {
    let own = std::env::current_exe()?;
    let path = own.with_file_name(PROGRAM);
    path.metadata()?;
    Ok(path)
}

/// The programs.
#[derive(Debug)]
pub struct Splits {
    log: &'static str,
    state: Mutex<Programs>,
}

#[derive(Debug, Default)]
struct Programs {
    wanted: Vec<SplitTunnel>,
    running: Vec<Program>,
    /// Programs that are to end, or have ended: the next one of a tunnel waits for them.
    ending: Vec<(String, Child)>,
    /// Tunnels whose program ended by itself.
    failures: BTreeMap<String, Failure>,
}

#[derive(Debug)]
struct Program {
    tunnel: SplitTunnel,
    child: Child,
    socket: UnixStream,
    line: Vec<u8>,
    report: Option<SplitReport>,
    begun: Instant,
}

#[derive(Clone, Debug)]
struct Failure {
    reason: String,
    pause: Duration,
    /// When the next program starts.
    due: Instant,
}

impl Splits {
    /// Those of `config`, for a supervisor with this `--log`; a filter of another form becomes
    /// `info`.
    pub fn following(config: &Config, log: &str) -> Splits {
        let levels = ["error", "warn", "info", "debug"];
        let log = levels.into_iter().find(|level| *level == log).unwrap_or("info");
        let splits = Splits { log, state: Mutex::default() };
        splits.change(split_tunnels(config));
        splits
    }

    /// Changes the tunnels; programs start and end at the next [`Splits::look`].
    pub fn change(&self, wanted: Vec<SplitTunnel>) {
        self.programs().wanted = wanted;
    }

    /// Reads reports, and starts and ends programs. Never waits.
    pub fn look(&self) {
        let Programs { wanted, running, ending, failures } = &mut *self.programs();
        for program in running.iter_mut() {
            program.read();
        }
        let unwanted = running.extract_if(.., |program| !wanted.contains(&program.tunnel));
        ending.extend(unwanted.map(Program::end));
        running.retain_mut(|program| match program.child.try_wait() {
            Ok(None) => true,
            ended => {
                let reason = ended.map_or_else(
                    |error| error.to_string(),
                    |status| status.map(|status| status.to_string()).unwrap_or_default(),
                );
                fail(failures, &program.tunnel.tunnel, program.begun, &reason);
                false
            }
        });
        ending.retain_mut(|(_, child)| matches!(child.try_wait(), Ok(None)));
        failures.retain(|tunnel, _| wanted.iter().any(|it| it.tunnel == *tunnel));
        for tunnel in wanted.iter() {
            let name = &tunnel.tunnel;
            let is_there = running.iter().any(|it| it.tunnel.tunnel == *name)
                || ending.iter().any(|(ending, _)| ending == name);
            let is_due = failures.get(name).is_none_or(|it| it.due <= Instant::now());
            if is_there || !is_due {
                continue;
            }
            match self.start(tunnel) {
                Ok(program) => running.push(program),
                Err(error) => fail(failures, name, Instant::now(), &error.to_string()),
            }
        }
    }

    /// Ends all programs, and waits until their rules are gone. [`Splits::look`] starts them again.
    pub fn end(&self) {
        let programs = &mut *self.programs();
        programs.ending.extend(programs.running.drain(..).map(Program::end));
        let begun = Instant::now();
        while !programs.ending.is_empty() && begun.elapsed() < END_PATIENCE {
            std::thread::sleep(END_LOOK);
            programs.ending.retain_mut(|(_, child)| matches!(child.try_wait(), Ok(None)));
        }
    }

    /// State of each tunnel.
    pub fn report(&self) -> BTreeMap<String, Split> {
        let Programs { wanted, running, failures, .. } = &*self.programs();
        let of = |tunnel: &SplitTunnel| {
            let program = running.iter().find(|program| program.tunnel == *tunnel);
            let report = program.and_then(|program| program.report);
            let failure = failures.get(&tunnel.tunnel).filter(|_| program.is_none());
            (tunnel.tunnel.clone(), shown(tunnel, report, failure))
        };
        wanted.iter().map(of).collect()
    }

    fn start(&self, tunnel: &SplitTunnel) -> io::Result<Program> {
        let program = program().map_err(|error| {
            io::Error::new(error.kind(), format!("{PROGRAM} is not installed ({error})"))
        })?;
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let SplitTunnel { tunnel: name, address, peer, user } = tunnel;
        let mut command = Command::new(program);
        command
            .arg(name)
            .args(["--address", &address.to_string(), "--peer", &peer.to_string()])
            .args(["--log", self.log, "--supervised"])
            .env_remove("NOTIFY_SOCKET")
            .stdin(Stdio::from(OwnedFd::from(theirs)));
        if let Some(user) = user {
            command.args(["--user", user]);
        }
        let child = command.spawn()?;
        let (line, report, begun) = (Vec::new(), None, Instant::now());
        Ok(Program { tunnel: tunnel.clone(), child, socket: ours, line, report, begun })
    }

    fn programs(&self) -> MutexGuard<'_, Programs> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Program {
    /// Reads the reports that have come, and keeps the newest one.
    fn read(&mut self) {
        let mut bytes = [0; 4 * REPORT_BYTES_MAX];
        let count = self.socket.read(&mut bytes).unwrap_or(0);
        self.report = newest(&mut self.line, &bytes[..count]).or(self.report);
    }

    /// Has it end, by the end of its stdin.
    fn end(self) -> (String, Child) {
        (self.tunnel.tunnel, self.child)
    }
}

/// The newest report among `bytes`, which follow the begun `line`. A line that is too long is not a
/// report.
fn newest(line: &mut Vec<u8>, bytes: &[u8]) -> Option<SplitReport> {
    let mut report = None;
    for byte in bytes {
        if *byte == b'\n' {
            let text = std::str::from_utf8(line).ok();
            report = text.and_then(|text| text.parse().ok()).or(report);
            line.clear();
        } else if line.len() < REPORT_BYTES_MAX {
            line.push(*byte);
        }
    }
    report
}

/// Notes that the program of a tunnel ended by itself, or did not start.
fn fail(failures: &mut BTreeMap<String, Failure>, tunnel: &str, begun: Instant, reason: &str) {
    let before = failures.get(tunnel).filter(|_| begun.elapsed() < STABLE);
    let pause = before.map_or(PAUSE_FIRST, |before| (2 * before.pause).min(PAUSE_MAX));
    tracing::error!(
        "tunnel {tunnel}: {PROGRAM} ended ({reason}): connections pass without the split; another \
         one starts in {} ms",
        pause.as_millis()
    );
    let failure = Failure { reason: reason.to_owned(), pause, due: Instant::now() + pause };
    failures.insert(tunnel.to_owned(), failure);
}

fn shown(tunnel: &SplitTunnel, report: Option<SplitReport>, failure: Option<&Failure>) -> Split {
    let state = match (failure, report) {
        (Some(_), _) => "stopped",
        (None, Some(SplitReport { is_connected: true, .. })) => "connected",
        (None, Some(_)) => "waiting",
        (None, None) => "starting",
    };
    let report = report.unwrap_or_default();
    let named = |is_fault: bool| {
        let counters = report.counters.iter();
        let counters = counters.filter(|(counter, _)| counter.is_fault() == is_fault);
        counters.map(|(counter, count)| (counter.name.to_owned(), count)).collect()
    };
    Split {
        peer: tunnel.peer.to_string(),
        state: state.into(),
        reason: failure.map(|failure| failure.reason.clone()).unwrap_or_default(),
        open: report.open,
        waiting_bytes: report.waiting_bytes,
        counters: named(false),
        faults: named(true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_report_counts_and_other_lines_are_ignored() {
        let mut line = Vec::new();
        assert_eq!(newest(&mut line, b"1 2 3 4 5 6 7"), None);
        let report = newest(&mut line, b" 8\n0 0 0 1 1 1 1 1\nnonsense\n1 9").expect("a report");
        assert_eq!((report.is_connected, report.counters.opened), (false, 1));
        assert_eq!(line, b"1 9");
        assert_eq!(newest(&mut line, &[b'7'; 100_000]), None);
        assert_eq!(line.len(), REPORT_BYTES_MAX, "it is bounded");
        assert_eq!(newest(&mut line, b"\n\xff\n"), None);
        assert!(newest(&mut line, b"1 2 3 4 5 6 7 8\n").is_some());
    }

    #[test]
    fn pauses_double_while_programs_fail_and_begin_anew_after_one_that_ran() {
        let mut failures = BTreeMap::new();
        let now = Instant::now();
        let pauses: Vec<u64> = (0..8)
            .map(|_| {
                fail(&mut failures, "rec0", now, "exit status: 1");
                failures["rec0"].pause.as_millis() as u64
            })
            .collect();
        assert_eq!(pauses, [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]);
        let Some(long_ago) = now.checked_sub(2 * STABLE) else { return };
        fail(&mut failures, "rec0", long_ago, "signal: 9");
        assert_eq!(failures["rec0"].pause, PAUSE_FIRST);
    }

    #[test]
    fn states_are_those_of_the_program_and_of_the_other_edge() {
        let peer = IpAddr::from([10, 99, 0, 2]);
        let tunnel = SplitTunnel {
            tunnel: "rec0".into(),
            address: IpAddr::from([10, 99, 0, 1]),
            peer,
            user: None,
        };
        let mut report = SplitReport::default();
        report.counters.full = 3;
        report.counters.opened = 4;
        let state = |report, failure| shown(&tunnel, report, failure).state;
        assert_eq!(state(None, None), "starting");
        assert_eq!(state(Some(report), None), "waiting");
        report.is_connected = true;
        let split = shown(&tunnel, Some(report), None);
        assert_eq!((split.state.as_str(), split.faults["full"]), ("connected", 3));
        assert_eq!((split.counters["opened"], split.counters.get("full")), (4, None));
        let reason = "exit status: 1".to_owned();
        let failure = Failure { reason, pause: PAUSE_FIRST, due: Instant::now() };
        assert_eq!(state(None, Some(&failure)), "stopped");
    }
}
