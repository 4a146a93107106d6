//! A soak: a line with keys and traffic, and one fault after the other, drawn from a seed. At the
//! end the line must still carry packets, and no daemon may have leaked, panicked or lost count.
//!
//! The seed decides the faults, their targets and their values; when they take effect depends on
//! the machine.

use std::fmt;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::emulator::Random;
use crate::probe::{Probe, ProbeOutcome, ProbePlan};
use crate::{AuthPlan, Bed, BedConfig, BedError, CodePlan, Daemon, LinePlan, LinkConfig, Loss};

/// Links of the line.
const HOPS: usize = 2;

/// Rate of each link.
const RATE_MBIT: f64 = 100.0;

/// Time between faults: long enough for each to take effect, short enough for many.
const STEP: Duration = Duration::from_millis(1200);

/// Time for full recovery after the last fault: a backoff is 5 s at most.
const RECOVERY: Duration = Duration::from_secs(8);

/// Allowed memory growth of a process, in KiB: queues and flows that fill for the first time.
const GROWTH_KIB: u64 = 24 << 10;

/// Allowed growth in descriptors: clients come and go.
const DESCRIPTORS: usize = 4;

/// A process has everything that it needs after this.
const START: Duration = Duration::from_secs(3);

/// How long a process may exceed it.
const DESCRIPTORS_PATIENCE: Duration = Duration::from_secs(3);

/// Share of packets that must arrive once the only fault left is loss of up to a fifth on each
/// link, which generations do not always repair.
const ARRIVALS: f64 = 0.95;

/// Duration and seed.
#[derive(Copy, Clone, Debug)]
pub struct SoakPlan {
    /// Seconds during which faults occur.
    pub seconds: u64,
    /// Seed of all random choices.
    pub seed: u64,
}

/// Result of a soak.
#[derive(Clone, Debug, Default)]
pub struct SoakOutcome {
    seed: u64,
    /// The faults, in order.
    faults: Vec<String>,
    during: ProbeOutcome,
    after: ProbeOutcome,
    complaints: Vec<String>,
}

impl SoakOutcome {
    /// Failures; empty if the soak passed.
    pub fn complaints(&self) -> &[String] {
        &self.complaints
    }
}

impl fmt::Display for SoakOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "seed {}, {} faults: {}",
            self.seed,
            self.faults.len(),
            self.faults.join(", ")
        )?;
        let share = |outcome: &ProbeOutcome| 100.0 * (1.0 - outcome.loss());
        write!(
            f,
            "{:.1} % of the packets came meanwhile, {:.1} % afterwards",
            share(&self.during),
            share(&self.after)
        )?;
        self.complaints.iter().try_for_each(|complaint| write!(f, "\nwrong: {complaint}"))
    }
}

/// A process, and its resources when it was first seen.
struct Usage {
    host: usize,
    pid: u32,
    kib: u64,
    descriptors: usize,
    /// When it was first seen.
    since: Instant,
}

/// Runs a soak.
///
/// # Errors
/// If the bed or a daemon cannot be built or started, or does not recover.
pub fn run(plan: &SoakPlan) -> Result<SoakOutcome, BedError> {
    let mut random = Random::new(plan.seed, 0);
    let link = LinkConfig::new(Loss::independent(0.05), RATE_MBIT);
    let mut bed = Bed::build(&BedConfig::uniform(HOPS, link))?;
    let mut line = LinePlan {
        pace_mbit: Some(0.97 * RATE_MBIT),
        auth: Some(AuthPlan::new("full", HOPS)),
        ..LinePlan::protected(HOPS)
    };
    for flow in &mut line.flows {
        (flow.code, flow.field) = (CodePlan::Auto, 256);
    }
    let mut daemons = Daemon::start_line(&bed, &line)?;
    let mut outcome = SoakOutcome { seed: plan.seed, ..SoakOutcome::default() };
    let length = Duration::from_secs(plan.seconds);
    let traffic = probe(&bed, length)?;
    let mut seen = Vec::new();
    let began = Instant::now();
    while began.elapsed() + STEP < length {
        // Resource use under traffic is the baseline.
        std::thread::sleep(STEP);
        note(&daemons, &mut seen, &mut outcome)?;
        outcome.faults.push(fault(&mut random, &mut bed, &mut daemons)?);
    }
    outcome.during = traffic.finish()?;
    for daemon in &mut daemons {
        daemon.wait_until_it_answers()?;
    }
    std::thread::sleep(RECOVERY);
    outcome.after = probe(&bed, Duration::from_secs(2))?.finish()?;
    note(&daemons, &mut seen, &mut outcome)?;
    judge(&mut daemons, &mut outcome)?;
    Ok(outcome)
}

fn probe(bed: &Bed, length: Duration) -> Result<Probe, BedError> {
    let plan = ProbePlan {
        to: SocketAddr::from(([10, 99, 0, 2], 7000)),
        payload_bytes: 400,
        packets_per_second: 500.0,
        length,
        grace: Duration::from_secs(2),
        buffer_bytes: Some(1 << 20),
    };
    Probe::start(bed.source(), bed.sink(), &plan)
}

/// Injects one fault into the line, and returns its description.
fn fault(random: &mut Random, bed: &mut Bed, daemons: &mut [Daemon]) -> Result<String, BedError> {
    let mut draw = |choices: usize| (random.unit() * choices as f64) as usize;
    let (kind, host) = (draw(9), draw(daemons.len()));
    let (value, number) = (draw(5), 1 + draw(HOPS));
    let name = daemons[host].name().to_owned();
    let said = match kind {
        0 => {
            // It may be exiting already.
            let _ = daemons[host].signal_dataplane(Signal::KILL);
            format!("{name} loses its process")
        }
        1 => {
            daemons[host].kill_supervisor();
            std::thread::sleep(Duration::from_millis(100 * value as u64));
            daemons[host].start_supervisor()?;
            daemons[host].wait_until_it_answers()?;
            format!("{name} loses its supervisor")
        }
        2 => {
            daemons[host].spawn_again()?;
            daemons[host].wait_until_it_answers()?;
            format!("{name} is killed")
        }
        3 => {
            daemons[host].signal(Signal::USR2)?;
            format!("{name} is upgraded")
        }
        4 => {
            let side = if host == HOPS { "west" } else { "east" };
            bed.hosts()[host].ip(&format!("link set dev {side} down"))?;
            std::thread::sleep(Duration::from_millis(100 * value as u64));
            bed.hosts()[host].ip(&format!("link set dev {side} up"))?;
            format!("{name} has its link down")
        }
        5 => {
            let percent = 5 * value;
            let loss = Loss::independent(percent as f64 / 100.0);
            bed.set_link(number, LinkConfig::new(loss, RATE_MBIT))?;
            format!("link {number} loses {percent} %")
        }
        6 => {
            let code = ["stream", "rlnc"][value % 2];
            // It may be between two processes.
            let taken = daemons[0].set(1, "code", code).is_ok();
            format!("{code}{}", if taken { "" } else { " refused" })
        }
        7 => {
            let bytes = 1300 + 50 * value;
            bed.hosts()[host].ip(&format!(
                "link set dev {} mtu {bytes}",
                if host == 0 { "east" } else { "west" }
            ))?;
            format!("{name} has an MTU of {bytes}")
        }
        _ => {
            hostile(bed, host, &mut || random.unit())?;
            format!("{name} sends garbage")
        }
    };
    Ok(said)
}

/// Datagrams of anything, to where coded packets go.
fn hostile(bed: &Bed, host: usize, unit: &mut impl FnMut() -> f64) -> Result<(), BedError> {
    let (last, third) = if host == HOPS { (1, host) } else { (2, host + 1) };
    let socket = bed.hosts()[host].udp_socket(SocketAddr::from(([0, 0, 0, 0], 0)))?;
    let to = SocketAddr::from(([10, 77, third as u8, last], CODED_PORT));
    for _ in 0..2000 {
        let bytes: Vec<u8> =
            (0..1 + (unit() * 200.0) as usize).map(|_| (unit() * 256.0) as u8).collect();
        // A full socket buffer is no reason to stop.
        let _ = socket.send_to(&bytes, to);
    }
    Ok(())
}

/// Records new processes, and reports those that have grown.
fn note(
    daemons: &[Daemon],
    seen: &mut Vec<Usage>,
    outcome: &mut SoakOutcome,
) -> Result<(), BedError> {
    for (host, daemon) in daemons.iter().enumerate() {
        for pid in [Some(daemon.pid()), daemon.dataplane_pid().ok()].into_iter().flatten() {
            // It may end at any time.
            let (Ok(kib), Ok(descriptors)) = (resident_kib(pid), descriptors(pid)) else {
                continue;
            };
            match seen.iter_mut().find(|usage| usage.host == host && usage.pid == pid) {
                // A process that was the standby until now has not allocated memory for its flows
                // yet.
                None if daemon.show().is_err() => {}
                None => {
                    seen.push(Usage { host, pid, kib, descriptors, since: Instant::now() });
                }
                // The process of the supervisor before answers while the next one starts.
                Some(first) if first.since.elapsed() < START => {
                    first.kib = first.kib.max(kib);
                    first.descriptors = first.descriptors.max(descriptors);
                }
                Some(first) => {
                    if kib > first.kib + GROWTH_KIB {
                        let grown = format!("{} has {kib} KiB, had {}", daemon.name(), first.kib);
                        outcome.complaints.push(grown);
                    }
                    if let Some(kept) = leaked(pid, first.descriptors + DESCRIPTORS) {
                        let (name, had) = (daemon.name(), first.descriptors);
                        outcome.complaints.push(format!("{name}: {kept} descriptors, {had}"));
                    }
                }
            }
        }
    }
    Ok(())
}

/// The descriptors of a process, if it has more than `most` and keeps them: it briefly has those of
/// a program that it loads, and of a process that it starts.
fn leaked(pid: u32, most: usize) -> Option<usize> {
    let deadline = Instant::now() + DESCRIPTORS_PATIENCE;
    loop {
        // It may end at any time.
        let count = descriptors(pid).ok().filter(|count| *count > most)?;
        if Instant::now() > deadline {
            return Some(count);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Whether all is well at the end.
fn judge(daemons: &mut [Daemon], outcome: &mut SoakOutcome) -> Result<(), BedError> {
    if 1.0 - outcome.after.loss() < ARRIVALS {
        let (came, sent) = (outcome.after.came, outcome.after.sent);
        outcome.complaints.push(format!("{came} of {sent} packets come when all is well again"));
    }
    for daemon in daemons {
        for worker in daemon.show()?.workers {
            let frames = &worker.frames;
            let places = frames.free + frames.fill + frames.held + frames.tx;
            let fates = worker.forwarded + worker.consumed + worker.handed_over + worker.dropped;
            if frames.total != places || worker.received != fates {
                let lost = format!("{}: {worker:?} does not add up", daemon.name());
                outcome.complaints.push(lost);
            }
        }
        let log = daemon.log();
        let panic = log.lines().find(|line| line.contains("panicked"));
        outcome.complaints.extend(panic.map(|line| format!("{}: {line}", daemon.name())));
        if !daemon.stop() {
            outcome.complaints.push(format!("{} does not stop", daemon.name()));
        }
    }
    Ok(())
}

fn resident_kib(pid: u32) -> Result<u64, BedError> {
    let path = PathBuf::from(format!("/proc/{pid}/statm"));
    let text = fs::read_to_string(&path).map_err(BedError::file(&path))?;
    let pages: u64 = text.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    Ok(pages * rustix::param::page_size() as u64 / 1024)
}

fn descriptors(pid: u32) -> Result<usize, BedError> {
    let path = PathBuf::from(format!("/proc/{pid}/fd"));
    Ok(fs::read_dir(&path).map_err(BedError::file(&path))?.count())
}

/// Destination port of coded packets, unless a configuration sets another.
const CODED_PORT: u16 = 9426;
