//! Resources that a host can take from a daemon while packets flow: memory, cores, and an XDP
//! program that Linux accepts.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::common;
use crate::processes::{RATE_MBIT, line, probe, program, wait_for_another};
use recoded_api::client::Client;
use recoded_netns::process::{self, Background};
use recoded_netns::{AuthPlan, CodePlan, Daemon, FlowPlan, LinePlan, Loss, binary};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// A number that no user has.
const USER: &str = "64321";

/// The dataplane process runs as a user that owns nothing, and its supervisor can still replace and
/// stop it.
#[test]
fn dataplane_process_of_another_user_carries_packets_and_is_replaced() {
    let Some(_turn) = common::daemons_beside() else { return };
    let bed = common::bed(2, Loss::independent(0.05), RATE_MBIT);
    let auth = Some(AuthPlan::new("full", 2));
    let mut plan = LinePlan { pace_mbit: Some(0.97 * RATE_MBIT), auth, ..LinePlan::protected(2) };
    for flow in &mut plan.flows {
        *flow = FlowPlan { code: CodePlan::Auto, field: 256, ..flow.clone() };
    }
    let text = |index: usize, socket: &str| {
        plan.config(index, socket).replacen(
            "[daemon]\n",
            &format!("[daemon]\nuser = \"{USER}\"\n"),
            1,
        )
    };
    let start = |index| Daemon::start_as(&bed, index, &plan, |socket| text(index, socket)).unwrap();
    let mut daemons: Vec<Daemon> = (0..3).map(start).collect();
    let is_of_user = |daemon: &Daemon| {
        let pid = daemon.dataplane_pid().unwrap();
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let ids = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        let all = |name| ids(name).split_whitespace().all(|id| id == USER);
        assert!(all("Uid:") && all("Gid:") && all("Groups:"), "{status}");
    };
    daemons.iter().for_each(is_of_user);
    let begun = Instant::now();
    while probe(&bed, 1).finish().unwrap().loss() > 0.02 {
        assert!(begun.elapsed() < Duration::from_secs(20), "{}", daemons[1].log());
    }
    let before = daemons[1].dataplane_pid().unwrap();
    daemons[1].signal_dataplane(Signal::KILL).unwrap();
    wait_for_another(&mut daemons[1], before);
    is_of_user(&daemons[1]);
    for daemon in &mut daemons {
        assert!(daemon.stop(), "{}", daemon.log());
    }
}

/// The unit of the package.
const UNIT: &str = include_str!("../../../../control/daemon/recoded.service");

/// With no more capabilities than the unit leaves, the XDP program is verified and AF_XDP sockets
/// are opened; without CAP_PERFMON, Linux refuses the program. The supervisor that follows a killed
/// one finds the running dataplane process, so it must see other processes.
#[test]
fn capabilities_of_the_unit_are_all_that_af_xdp_and_a_takeover_take() {
    let Some(_turn) = common::daemons_beside() else { return };
    // If processes are hidden (those that may not be traced), root's group sees them.
    let mut lines = UNIT.lines();
    assert!(!UNIT.contains("ProtectProc=") || lines.any(|it| it == "SupplementaryGroups=root"));
    let bed = common::bed(1, Loss::independent(0.0), RATE_MBIT);
    let place = |end: &str| bed.directory().join(format!("unit.{end}"));
    let (file, socket) = (place("toml"), place("sock"));
    let plan = LinePlan::protected(1);
    let text = plan.config(0, &socket.to_string_lossy());
    assert!(text.contains("backend = \"xdp\""), "{text}");
    fs::write(&file, text).unwrap();
    let left = UNIT.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet="));
    let left = left.expect("a line").to_lowercase().replace("cap_", "+").replace(' ', ",");
    let start = |log: &Path| {
        let mut daemon = bed.source().command("setpriv");
        daemon.arg(format!("--bounding-set=-all,{left}"));
        daemon.args(["--inh-caps=-all", "--no-new-privs"]);
        daemon.arg(binary("recoded")).arg("--config").arg(&file);
        Background::start(&mut daemon, log).unwrap()
    };
    let dataplane = || {
        let record = fs::read_to_string(place("sock.state")).unwrap_or_default();
        let record: serde_json::Value = serde_json::from_str(&record).unwrap_or_default();
        record["dataplane"]["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok())
    };
    // It answers, and not a process that is left from before.
    let wait = |process: &mut Background, left: Option<u32>| {
        let begun = Instant::now();
        while process.is_running() && begun.elapsed() < Duration::from_secs(30) {
            let state = Client::connect(&socket).and_then(|mut client| client.state());
            if let Some(state) =
                state.ok().filter(|_| dataplane().is_some_and(|it| Some(it) != left))
            {
                return Some(state);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        None
    };
    let mut process = start(&place("log"));
    let seen = wait(&mut process, None);
    let said = fs::read_to_string(place("log")).unwrap();
    let link = seen.unwrap_or_else(|| panic!("{said}")).links.swap_remove(0);
    assert_eq!(link.xdp_mode, "native", "{said}");

    let before = dataplane();
    process.kill();
    assert!(before.is_some_and(process::runs), "it keeps running without a supervisor");
    let mut process = start(&place("again.log"));
    let seen = wait(&mut process, before);
    let said = fs::read_to_string(place("again.log")).unwrap();
    assert!(seen.is_some() && !before.is_some_and(process::runs), "{said}");
    assert!(process.terminate(Duration::from_secs(10)), "{said}");
}

/// Room for short-lived clients of the control socket, in addition to the daemon's use.
const ROOM_BYTES: u64 = 16 << 20;

/// A group of processes with a memory limit; they leave it when it is dropped.
struct Group {
    folder: PathBuf,
    parent: PathBuf,
    limit: &'static str,
}

impl Group {
    /// `None` if this host supports no memory limit for groups.
    fn new() -> Option<Group> {
        let name = format!("recoded-test-{}", std::process::id());
        let second = Path::new("/sys/fs/cgroup");
        let first = second.join("memory");
        let (parent, limit) = match first.join("memory.limit_in_bytes").exists() {
            true => (first, "memory.limit_in_bytes"),
            false => (second.to_owned(), "memory.max"),
        };
        let folder = parent.join(name);
        fs::create_dir(&folder).ok()?;
        let group = Group { folder, parent, limit };
        group.folder.join(group.limit).exists().then_some(group)
    }

    fn take(&self, pid: u32) -> bool {
        fs::write(self.folder.join("cgroup.procs"), pid.to_string()).is_ok()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let held = fs::read_to_string(self.folder.join("cgroup.procs")).unwrap_or_default();
        for pid in held.lines() {
            let _ = fs::write(self.parent.join("cgroup.procs"), pid);
        }
        let _ = fs::remove_dir(&self.folder);
    }
}

/// Fault 23: all memory of the path is allocated before the first packet, so an exhausted group
/// costs nothing while packets flow and clients send requests.
#[test]
fn memory_limit_of_its_group_costs_a_running_daemon_no_packet() {
    let Some(_turn) = common::daemons() else { return };
    let Some(group) = Group::new() else {
        println!("skipped: no control group with a limit of memory can be made here");
        return;
    };
    let (bed, daemons) = line();
    // Wait until stages are open, the source knows the losses, and a standby process holds its
    // frames.
    while daemons[1].children().len() < 2 {
        probe(&bed, 1).finish().unwrap();
    }
    std::thread::sleep(Duration::from_millis(500));
    let pids = [daemons[1].pid(), daemons[1].dataplane_pid().unwrap()];
    // Memory already in use stays charged to the original group: the limit applies to new
    // allocations.
    fs::write(group.folder.join(group.limit), ROOM_BYTES.to_string()).unwrap();
    if !pids.iter().all(|pid| group.take(*pid)) {
        println!("skipped: processes cannot be put into a control group here");
        return;
    }
    let stream = probe(&bed, 3);
    for _ in 0..50 {
        assert!(daemons[1].show().is_ok(), "{}", daemons[1].log());
        std::thread::sleep(Duration::from_millis(40));
    }
    let outcome = stream.finish().unwrap();
    println!("{} of {} came", outcome.came, outcome.sent);
    assert!(outcome.loss() < 0.02, "{} of {}", outcome.came, outcome.sent);
    assert_eq!([daemons[1].pid(), daemons[1].dataplane_pid().unwrap()], pids, "one was replaced");
}

/// Fault 33: when a core goes offline, Linux moves its threads to the others. The test moves them
/// by hand, because it cannot switch off cores of this machine.
#[test]
fn worker_whose_core_is_taken_away_under_load_goes_on_at_another() {
    let Some(_turn) = common::daemons() else { return };
    let (bed, daemons) = line();
    let pid = daemons[1].dataplane_pid().unwrap();
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let name = |path: &Path| fs::read_to_string(path.join("comm")).unwrap_or_default();
    let worker = threads.map(|it| it.unwrap().path()).find(|it| name(it).trim() == "recoded-w0");
    let tid = worker.unwrap().file_name().unwrap().to_string_lossy().parse().unwrap();
    let worker = Pid::from_raw(tid);
    let allowed = sched_getaffinity(None).unwrap();
    let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect();
    if cores.len() < 2 {
        println!("skipped: one core only");
        return;
    }
    let stream = probe(&bed, 3);
    for turn in 0..10 {
        let mut left = CpuSet::new();
        left.set(cores[turn % cores.len()]);
        sched_setaffinity(worker, &left).unwrap();
        std::thread::sleep(Duration::from_millis(250));
    }
    let outcome = stream.finish().unwrap();
    println!("{} of {} came", outcome.came, outcome.sent);
    assert!(outcome.loss() < 0.02, "{} of {}", outcome.came, outcome.sent);
    assert_eq!(daemons[1].dataplane_pid().unwrap(), pid, "it was replaced");
    sched_setaffinity(worker, &allowed).unwrap();
}

/// The exit instruction of eBPF, and an invalid instruction.
const EXIT: [u8; 8] = [0x95, 0, 0, 0, 0, 0, 0, 0];
const NONE: [u8; 8] = [0xff; 8];

/// The program `recoded` with an XDP program that Linux always refuses.
fn with_bad_program(good: &[u8]) -> Vec<u8> {
    let object = concat!(env!("CARGO_MANIFEST_DIR"), "/../../ebpf/recoded.bpf.o");
    let object = fs::read(object).expect("scripts/test builds it");
    let place = good.windows(object.len()).position(|window| window == object);
    let mut bad = good.to_vec();
    let within = &mut bad[place.expect("the object is in the program")..][..object.len()];
    let mut changed = 0;
    for place in (0..within.len() - 8).step_by(8) {
        if within[place..place + 8] == EXIT {
            within[place..place + 8].copy_from_slice(&NONE);
            changed += 1;
        }
    }
    assert!(changed > 0, "no instruction was found");
    bad
}

/// A process that outlives its supervisor, but not its test.
struct Left(u32);

impl Drop for Left {
    fn drop(&mut self) {
        process::end(self.0);
    }
}

/// Replaces a program that may be running.
fn put(program: &Path, bytes: &[u8]) {
    let content = program.with_extension("content");
    fs::write(&content, bytes).unwrap();
    process::install_program(&content, program).unwrap();
}

/// Fault 7: a supervisor whose XDP program Linux refuses ends with an error. The dataplane process
/// continues with the previous program, and the next supervisor takes over.
#[test]
fn new_xdp_program_that_linux_refuses_ends_its_supervisor_and_no_packet_is_lost() {
    let Some(_turn) = common::daemons_beside() else { return };
    let (bed, mut daemons) = line();
    assert!(daemons[1].stop(), "{}", daemons[1].log());
    let (own, log) = (bed.directory().join("recoded"), bed.directory().join("own.log"));
    let good = fs::read(binary("recoded")).unwrap();
    put(&own, &good);
    let start = || {
        let mut command = bed.hosts()[1].command(&own);
        command.arg("--config").arg(daemons[1].config());
        Background::start(&mut command, &log).unwrap()
    };
    let said = || fs::read_to_string(&log).unwrap_or_default();
    let wait = |what: &str, holds: &mut dyn FnMut() -> bool| {
        let begun = Instant::now();
        while !holds() {
            assert!(begun.elapsed() < Duration::from_secs(30), "{what}:\n{}", said());
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let mut supervisor = start();
    wait("it does not run", &mut || said().contains(" runs: workers "));
    let dataplane = Left(process::children(supervisor.pid())[0]);
    let before = program(&bed.hosts()[1], "east");
    put(&own, &with_bad_program(&good));
    kill_process(Pid::from_raw(supervisor.pid() as i32).unwrap(), Signal::USR2).unwrap();
    wait("it lives on", &mut || !supervisor.is_running());
    assert!(said().contains("XDP program"), "it does not say why:\n{}", said());
    assert_eq!(program(&bed.hosts()[1], "east"), before, "another program was attached");
    let outcome = probe(&bed, 2).finish().unwrap();
    println!("{} of {} came", outcome.came, outcome.sent);
    assert!(outcome.loss() < 0.02, "{} of {}:\n{}", outcome.came, outcome.sent, said());
    put(&own, &good);
    let mut next = start();
    wait("it does not take over", &mut || !Path::new(&format!("/proc/{}", dataplane.0)).exists());
    wait("it does not answer", &mut || daemons[1].show().is_ok());
    assert!(next.terminate(Duration::from_secs(10)), "{}", said());
}
