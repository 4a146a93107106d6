//! One measurement: iperf3, and the load of the cores meanwhile.

use std::fs;
use std::time::{Duration, Instant};

use recoded_netns::process::{Background, tail};
use serde_json::Value;

use crate::cores::{CoreShares, Ticks};
use crate::edge::bed::{Bed, mortal};
use crate::edge::contender::{Running, wait_for};
use crate::error::BenchError;

/// A stream that was measured.
#[derive(Copy, Clone, PartialEq, Debug, serde::Serialize)]
pub struct Sample {
    /// Number of its round.
    pub round: usize,
    /// Rate at the receiving program, in Gbit/s.
    pub gbit: f64,
    /// TCP segments retransmitted.
    pub retransmits: u64,
    /// Cores that were not idle, in cores.
    pub cores_busy: f64,
    /// Of these, cores taken by the hypervisor.
    pub cores_stolen: f64,
}

/// Measures the stream for `seconds`, after one second that is not counted.
///
/// # Errors
/// [`BenchError`] if iperf3 fails.
pub fn take(
    bed: &Bed,
    running: &Running,
    cores: &[usize],
    seconds: u64,
    round: usize,
) -> Result<Sample, BenchError> {
    let mut command = mortal(&bed.right, "iperf3");
    command.args(["-s", "-1", "-p", PORT]);
    let _server =
        Background::start(&mut command, &bed.file("server.log")).map_err(BenchError::Bed)?;
    wait_for("the iperf3 server", || is_listening(bed))?;
    let path = bed.file("client.json");
    let mut command = mortal(&bed.left, "iperf3");
    command.args(["-c", running.to, "-p", PORT, "-J", "-O", "1", "-t", &seconds.to_string()]);
    let mut client = Background::start(&mut command, &path).map_err(BenchError::Bed)?;
    let begin = Instant::now();
    std::thread::sleep(OMITTED);
    let before = read_ticks(cores)?;
    std::thread::sleep((OMITTED + Duration::from_secs(seconds)).saturating_sub(begin.elapsed()));
    let shares = since(&before, cores)?;
    let ended = client.wait(PATIENCE);
    let text = fs::read_to_string(&path).map_err(BenchError::os("reading what iperf3 says"))?;
    let unreadable = || BenchError::Command { command: "iperf3".into(), output: tail(&text) };
    let json: Value = serde_json::from_str(&text).map_err(|_| unreadable())?;
    let rate = json["end"]["sum_received"]["bits_per_second"].as_f64();
    let (Some(true), Some(rate)) = (ended, rate) else { return Err(unreadable()) };
    Ok(Sample {
        round,
        gbit: rate / 1e9,
        retransmits: json["end"]["sum_sent"]["retransmits"].as_u64().unwrap_or(0),
        cores_busy: shares.iter().map(|shares| 1.0 - shares.idle).sum(),
        cores_stolen: shares.iter().map(|shares| shares.steal).sum(),
    })
}

fn read_ticks(cores: &[usize]) -> Result<Vec<Ticks>, BenchError> {
    cores.iter().map(|core| Ticks::read(&[*core])).collect()
}

fn since(before: &[Ticks], cores: &[usize]) -> Result<Vec<CoreShares>, BenchError> {
    let now = read_ticks(cores)?;
    Ok(now.iter().zip(before).map(|(now, before)| now.since(before)).collect())
}

/// Whether the server listens, from Linux's table of sockets in its namespace.
fn is_listening(bed: &Bed) -> bool {
    let table = |name: &str| {
        fs::read_to_string(format!("/proc/{}/net/{name}", bed.right.pid())).unwrap_or_default()
    };
    let listens = |line: &str| line.contains(":1451 ") && line.contains(" 0A ");
    table("tcp").lines().chain(table("tcp6").lines()).any(listens)
}

/// iperf3's own, 0x1451.
const PORT: &str = "5201";
/// iperf3 leaves this out, and so do the cores.
const OMITTED: Duration = Duration::from_secs(1);
/// How much longer than requested iperf3 may take.
const PATIENCE: Duration = Duration::from_secs(15);
