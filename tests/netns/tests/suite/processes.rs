//! The two processes of a daemon: the losses when the dataplane process is killed or hangs, and the
//! state that remains.

use std::net::SocketAddr;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::common;
use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use recoded_netns::probe::{Probe, ProbePlan};
use recoded_netns::traffic::{Fetch, WebServer, sha256, write_random_file};
use recoded_netns::{
    AuthPlan, Bed, CodePlan, Daemon, FlowPlan, LinePlan, Loss, Namespace, process,
};
use rustix::process::Signal;

pub const RATE_MBIT: f64 = 100.0;
pub const SERVER: [u8; 4] = [10, 99, 0, 1];
const SINK: [u8; 4] = [10, 99, 0, 2];

/// A source, a relay and a sink over links that lose a tenth.
pub fn line() -> (Bed, Vec<Daemon>) {
    line_with(None)
}

pub fn line_with(auth: Option<AuthPlan>) -> (Bed, Vec<Daemon>) {
    let (bed, plan) = line_plan(auth, 1);
    let daemons = Daemon::start_line(&bed, &plan).unwrap();
    (bed, daemons)
}

pub fn line_plan(auth: Option<AuthPlan>, workers: u32) -> (Bed, LinePlan) {
    let bed = common::bed_of_queues(workers as usize, 2, Loss::independent(0.1), RATE_MBIT);
    let pace_mbit = Some(0.97 * RATE_MBIT);
    let mut plan = LinePlan { pace_mbit, auth, workers, ..LinePlan::protected(2) };
    for flow in &mut plan.flows {
        *flow = FlowPlan { code: CodePlan::Auto, field: 256, ..flow.clone() };
    }
    (bed, plan)
}

/// All that Linux shows of the tunnel of a host, and its routes.
pub fn tunnel(host: &Namespace) -> String {
    // Settings made by hand would be lost with the interface.
    let addresses = host.ip("-oneline address show dev rec0").unwrap();
    let link = host.ip("-oneline link show dev rec0").unwrap();
    let index = link.split(':').next().unwrap_or_default().to_owned();
    index + &addresses + &host.ip("route show dev rec0").unwrap()
}

/// Id of the XDP program of an interface.
pub fn program(host: &Namespace, interface: &str) -> String {
    let link = host.ip(&format!("-oneline -details link show dev {interface}")).unwrap();
    let after = link.split("prog/xdp id ").nth(1).unwrap_or_default();
    after.split_whitespace().next().unwrap_or_default().to_owned()
}

/// Waits until another process handles packets and the daemon answers.
pub fn wait_for_another(daemon: &mut Daemon, before: u32) -> Duration {
    let begun = Instant::now();
    // A standby is a child of the daemon, too.
    while process::runs(before)
        || daemon.dataplane_pid().is_ok_and(|pid| pid == before)
        || daemon.dataplane_pid().is_err()
    {
        assert!(begun.elapsed() < Duration::from_secs(40), "no other process:\n{}", daemon.log());
        std::thread::sleep(Duration::from_millis(5));
    }
    daemon.wait_until_it_answers().unwrap();
    begun.elapsed()
}

pub fn probe(bed: &Bed, seconds: u64) -> Probe {
    let plan = ProbePlan {
        to: SocketAddr::from((SINK, 7000)),
        payload_bytes: 200,
        packets_per_second: 500.0,
        length: Duration::from_secs(seconds),
        grace: Duration::from_secs(2),
        buffer_bytes: Some(1 << 20),
    };
    Probe::start(bed.source(), bed.sink(), &plan).unwrap()
}

pub fn assert_same_file(one: &Path, other: &Path) {
    assert_eq!(sha256(one).unwrap(), sha256(other).unwrap());
}

#[test]
fn dataplane_process_killed_under_traffic_costs_a_moment_and_no_connection() {
    let Some(_turn) = common::daemons_beside() else { return };
    let (bed, daemons) = line();
    kill_each_under_traffic(&bed, daemons);
}

/// Keys are of a process: the next one agrees on others.
#[test]
fn dataplane_process_with_keys_killed_under_traffic_costs_a_moment_and_no_connection() {
    let Some(_turn) = common::daemons_beside() else { return };
    let (bed, daemons) = line_with(Some(AuthPlan::new("full", 2)));
    kill_each_under_traffic(&bed, daemons);
}

fn kill_each_under_traffic(bed: &Bed, mut daemons: Vec<Daemon>) {
    let (file, copy) = (bed.directory().join("file"), bed.directory().join("copy"));
    write_random_file(&file, 24 << 20).unwrap();
    let _server = WebServer::start(bed.source(), bed.directory()).unwrap();
    bed.source().ip("route add 10.98.0.0/24 dev rec0").unwrap();
    bed.sink().ip("address add 10.97.0.1/32 dev rec0").unwrap();
    let (tunnels, programs) = (
        [tunnel(bed.source()), tunnel(bed.sink())],
        [program(&bed.hosts()[1], "east"), program(&bed.hosts()[1], "west")],
    );
    assert!(programs.iter().all(|id| !id.is_empty()), "{programs:?}");

    let limit = Duration::from_secs(120);
    for (index, victim) in [(1, "relay"), (0, "source"), (2, "sink")] {
        let fetch = Fetch::start(bed.sink(), SERVER.into(), "file", &copy, limit).unwrap();
        // If a handshake is lost, the next one follows a second or two later.
        let stream = probe(bed, 6);
        std::thread::sleep(Duration::from_secs(1));
        assert!(fetch.bytes() < 24 << 20, "{victim}: the download was over too soon");
        let before = daemons[index].dataplane_pid().unwrap();
        let killed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        daemons[index].signal_dataplane(Signal::KILL).unwrap();
        let took = wait_for_another(&mut daemons[index], before);
        let outcome = stream.finish().unwrap();
        println!(
            "{victim}: answers after {took:?}, longest gap of UDP {:.0} ms, {} of {} came",
            outcome.longest_gap_millis(),
            outcome.came,
            outcome.sent
        );
        assert!(outcome.longest_gap_millis() < 4000.0, "{victim}");
        assert!(outcome.came > outcome.sent / 2, "{victim}: {} came", outcome.came);
        print_start(victim, killed, &daemons[index].log());
        let download = fetch.finish().unwrap();
        println!("{download:?}");
        assert!(download.complete, "the connection broke: {download:?}");
        assert_same_file(&file, &copy);
    }
    assert_eq!(tunnels, [tunnel(bed.source()), tunnel(bed.sink())]);
    assert_eq!(
        programs,
        [program(&bed.hosts()[1], "east"), program(&bed.hosts()[1], "west")],
        "another program was attached"
    );
    for daemon in &daemons {
        assert!(daemon.log().contains("another starts"), "{}", daemon.log());
    }
}

#[test]
fn process_that_stands_by_takes_over_and_another_takes_its_place() {
    let Some(_turn) = common::daemons_beside() else { return };
    let (bed, mut daemons) = line();
    let relay = &mut daemons[1];
    let both = |relay: &Daemon| {
        let begun = Instant::now();
        loop {
            match relay.children()[..] {
                [runs, waits] => return [runs, waits],
                _ => assert!(begun.elapsed() < Duration::from_secs(20), "{}", relay.log()),
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    let [runs, waits] = both(relay);
    // It gets its frames some time after it starts.
    std::thread::sleep(Duration::from_millis(500));
    relay.signal_dataplane(Signal::KILL).unwrap();
    wait_for_another(relay, runs);
    assert_eq!(relay.dataplane_pid().unwrap(), waits, "{}", relay.log());
    let outcome = probe(&bed, 1).finish().unwrap();
    assert!(outcome.loss() < 0.02, "{} of {} came", outcome.came, outcome.sent);

    // Its own death only causes its replacement.
    let [runs, waits] = both(&daemons[1]);
    let pid = rustix::process::Pid::from_raw(i32::try_from(waits).unwrap()).unwrap();
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
    let outcome = probe(&bed, 1).finish().unwrap();
    assert!(outcome.loss() < 0.02, "{} of {} came", outcome.came, outcome.sent);
    let relay = &mut daemons[1];
    assert_eq!(relay.dataplane_pid().unwrap(), runs);
    relay.signal_dataplane(Signal::KILL).unwrap();
    wait_for_another(relay, runs);
    let [runs, waits] = both(relay);
    assert!(relay.stop(), "{}", relay.log());
    assert!(!process::runs(runs) && !process::runs(waits), "one lives on");
}

/// Prints the phases of the newest start of a process, with their times.
fn print_start(victim: &str, killed: Duration, log: &str) {
    println!("{victim}: killed at second {:.3}", killed.as_secs_f64() % 60.0);
    let from = log.rfind("another starts").and_then(|at| log[..at].rfind('\n')).unwrap_or(0);
    for line in log[from..].lines().filter(|line| line.contains("start")) {
        println!("{victim}: {line}");
    }
}

/// Whether a log reports a worker's last activity before its process was replaced.
pub fn says(log: &str, does: &str) -> bool {
    log.lines().any(|line| line.contains("thread recoded-w0 (") && line.contains(does))
}

#[test]
fn dataplane_process_that_hangs_is_replaced() {
    let Some(_turn) = common::daemons_beside() else { return };
    let (bed, mut daemons) = line();
    let before = daemons[1].dataplane_pid().unwrap();
    daemons[1].signal_dataplane(Signal::STOP).unwrap();
    let took = wait_for_another(&mut daemons[1], before);
    println!("replaced after {took:?}");
    let log = daemons[1].log();
    assert!(log.contains("hangs") && says(&log, "was stopped by a signal"), "{log}");
    let outcome = probe(&bed, 1).finish().unwrap();
    assert!(outcome.came > outcome.sent / 2, "{} of {}", outcome.came, outcome.sent);
}

/// Stops only the worker of a dataplane process, until this thread ends or releases it.
pub fn hold_worker(process: u32) -> nix::unistd::Pid {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let name = |path: &Path| std::fs::read_to_string(path.join("comm")).unwrap();
    let worker = threads.map(|it| it.unwrap().path()).find(|it| name(it).trim() == "recoded-w0");
    let tid = worker.unwrap().file_name().unwrap().to_string_lossy().parse().unwrap();
    let worker = nix::unistd::Pid::from_raw(tid);
    ptrace::seize(worker, ptrace::Options::empty()).unwrap();
    ptrace::interrupt(worker).unwrap();
    worker
}

#[test]
fn dataplane_process_with_a_worker_that_hangs_is_replaced() {
    let Some(_turn) = common::daemons_beside() else { return };
    let (_bed, mut daemons) = line();
    let before = daemons[1].dataplane_pid().unwrap();
    let worker = hold_worker(before);
    // Linux keeps a traced thread that has ended, and its process, until its tracer has been
    // notified.
    let begun = Instant::now();
    let flags = WaitPidFlag::__WALL | WaitPidFlag::WNOHANG;
    while !matches!(
        waitpid(worker, Some(flags)),
        Ok(WaitStatus::Signaled(..) | WaitStatus::Exited(..))
    ) {
        assert!(begun.elapsed() < Duration::from_secs(40), "it lives on:\n{}", daemons[1].log());
        std::thread::sleep(Duration::from_millis(20));
    }
    let took = wait_for_another(&mut daemons[1], before);
    println!("replaced after {took:?}");
    let log = daemons[1].log();
    assert!(log.contains("is stuck"), "{log}");
    assert!(log.contains("worker 0 (recoded-w0) is silent for "), "{log}");
    assert!(says(&log, "was stopped by a debugger"), "{log}");
}

#[test]
fn live_change_outlives_the_process_that_took_it() {
    let Some(_turn) = common::daemons_beside() else { return };
    let (_bed, mut daemons) = line();
    let code = |daemon: &Daemon| daemon.show().unwrap().flows.remove(0).parameters.code;
    daemons[0].set(1, "code", "rlnc").unwrap();
    assert_eq!(code(&daemons[0]).as_deref(), Some("rlnc"));
    let before = daemons[0].dataplane_pid().unwrap();
    daemons[0].signal_dataplane(Signal::KILL).unwrap();
    wait_for_another(&mut daemons[0], before);
    assert_eq!(code(&daemons[0]).as_deref(), Some("rlnc"));
}

#[test]
fn interface_that_is_away_at_the_restart_is_taken_when_it_is_back() {
    let Some(_turn) = common::daemons_beside() else { return };
    let (bed, mut daemons) = line();
    let relay = &bed.hosts()[1];
    relay.ip("link set dev east down").unwrap();
    relay.ip("link set dev east name away").unwrap();
    let before = daemons[1].dataplane_pid().unwrap();
    daemons[1].signal_dataplane(Signal::KILL).unwrap();
    wait_for_another(&mut daemons[1], before);
    let states = || daemons[1].show().map(|it| it.links.into_iter().map(|link| link.state));
    let states = || states().map(Iterator::collect::<Vec<_>>).unwrap_or_default();
    assert!(states().contains(&"waiting".to_owned()), "{:?}", states());
    relay.ip("link set dev away name east").unwrap();
    relay.ip("link set dev east up").unwrap();
    let begun = Instant::now();
    while states() != ["up", "up"] {
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}: {}", states(), daemons[1].log());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn service_manager_is_told_of_start_health_and_stop() {
    let Some(_turn) = common::daemons_beside() else { return };
    let bed = common::bed(1, Loss::independent(0.0), RATE_MBIT);
    let path = bed.directory().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut plan = LinePlan::protected(1);
    plan.environment = vec![("NOTIFY_SOCKET", path.display().to_string())];
    let mut daemon = Daemon::start(&bed, 0, &plan).unwrap();
    let hear = || {
        let mut text = [0; 256];
        let len = socket.recv(&mut text).unwrap();
        String::from_utf8_lossy(&text[..len]).trim().to_owned()
    };
    let news = || std::iter::repeat_with(hear).find(|said| said != "WATCHDOG=1");
    assert_eq!(news().as_deref(), Some("READY=1"));
    assert_eq!(hear(), "WATCHDOG=1");
    assert!(daemon.stop(), "{}", daemon.log());
    assert_eq!(news().as_deref(), Some("STOPPING=1"));
}
