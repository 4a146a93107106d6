//! Faults that `tests/FAULTS.md` lists and no other test covers: panics, other tools' programs, the
//! end under load, a soak.

use std::fs;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::common;
use crate::events::events;
use crate::processes::{
    RATE_MBIT, hold_worker, line, line_plan, probe, program, says, wait_for_another,
};
use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, waitpid};
use recoded_netns::process::output;
use recoded_netns::soak::{self, SoakPlan};
use recoded_netns::traffic::send_paced;
use recoded_netns::{AuthPlan, Daemon, LinePlan, Loss, binary};

/// Milliseconds after their start at which workers panic: at a higher rate than a worker is
/// restarted.
const PANICS_MILLIS: [u64; 10] = [400, 430, 460, 490, 520, 550, 580, 610, 640, 670];

/// Whether the daemon was built with fault injection.
fn has_fault(daemon: &Daemon, wait: Duration) -> bool {
    std::thread::sleep(wait);
    daemon.log().contains("asked for this")
}

/// Fault 2: a worker that panics in the middle of a packet is restarted in the same process, and
/// its lost state is recovered by repairs. At each node, without keys and with all.
#[test]
fn worker_that_panics_is_made_anew_under_traffic() {
    let Some(_turn) = common::daemons_beside() else { return };
    for (auth, workers) in [(None, 1), (Some(AuthPlan::new("full", 2)), 1), (None, 2)] {
        let with = if auth.is_some() { "full" } else { "none" };
        // All workers of a node panic at the same moment.
        let (bed, plan) = line_plan(auth, workers);
        let start = |index: usize| {
            let mut plan = plan.clone();
            let at = 4000 + 3000 * index as u64;
            plan.environment = vec![("RECODED_TEST_PANIC_MILLIS", at.to_string())];
            let daemon = Daemon::start(&bed, index, &plan).unwrap();
            // Its workers started slightly before it answers, so they panic slightly earlier.
            (daemon, Instant::now() + Duration::from_millis(at))
        };
        let (daemons, panics): (Vec<Daemon>, Vec<Instant>) = (0..3).map(start).unzip();
        daemons.iter().for_each(|daemon| daemon.wait_until_it_has_sessions().unwrap());
        let handshakes = |daemon: &Daemon| {
            let sessions = daemon.show().unwrap().sessions;
            sessions.iter().map(|session| session.handshakes).sum::<u64>()
        };
        let agreed = handshakes(&daemons[0]);
        let processes: Vec<u32> =
            daemons.iter().map(|daemon| daemon.dataplane_pid().unwrap()).collect();
        for (index, victim) in ["source", "relay", "sink"].into_iter().enumerate() {
            let from = panics[index] - Duration::from_secs(1);
            std::thread::sleep(from.saturating_duration_since(Instant::now()));
            let outcome = probe(&bed, 2).finish().unwrap();
            let log = daemons[index].log();
            if !log.contains("a test asked for this") {
                println!("skipped: recoded was built without debug assertions, and does not panic");
                return;
            }
            let line = log
                .lines()
                .find(|line| line.contains("panicked and was restarted"))
                .unwrap_or_else(|| panic!("{log}"));
            println!(
                "auth {with}, {workers} workers, {victim}: longest gap of UDP {:.0} ms, {} of {} came; {line}",
                outcome.longest_gap_millis(),
                outcome.came,
                outcome.sent
            );
            assert!(outcome.longest_gap_millis() < 1000.0, "{victim}");
            assert!(outcome.loss() < 0.3, "{victim}: {} of {} came", outcome.came, outcome.sent);
        }
        // Units are numbered from the start again, and tags depend on the numbers.
        assert!(with == "none" || handshakes(&daemons[0]) > agreed, "no other keys of the flow");
        for (daemon, process) in daemons.iter().zip(processes) {
            assert_eq!(daemon.dataplane_pid().unwrap(), process, "{}", daemon.log());
            for worker in daemon.show().unwrap().workers {
                assert_eq!(worker.panics, 1, "{worker:?}");
                let frames = &worker.frames;
                let places = frames.free + frames.fill + frames.held + frames.tx;
                assert_eq!(frames.total, places, "{worker:?}");
                let fates =
                    worker.forwarded + worker.consumed + worker.handed_over + worker.dropped;
                assert_eq!(worker.received, fates, "{worker:?}");
            }
            let is_told = || events(daemon).iter().any(|event| event["kind"] == "worker_renewed");
            common::wait_for("the event of the worker", daemon, is_told);
        }
        let outcome = probe(&bed, 1).finish().unwrap();
        assert!(outcome.loss() < 0.02, "{} of {} came", outcome.came, outcome.sent);
    }
}

/// Fault 3: a worker that panics repeatedly costs its process. If its successors fail as well, the
/// backoff grows, and the tunnel stays.
#[test]
fn worker_that_panics_again_and_again_costs_its_process_and_a_crash_loop_backs_off() {
    let Some(_turn) = common::daemons_beside() else { return };
    let bed = common::bed(1, Loss::independent(0.0), RATE_MBIT);
    let mut plan = LinePlan::protected(1);
    let millis = PANICS_MILLIS.map(|at| at.to_string()).join(",");
    plan.environment = vec![("RECODED_TEST_PANIC_MILLIS", millis)];
    let mut daemon = Daemon::start(&bed, 0, &plan).unwrap();
    if !has_fault(&daemon, Duration::from_secs(2)) {
        println!("skipped: recoded was built without debug assertions, and does not panic");
        return;
    }
    let seconds = 8;
    std::thread::sleep(Duration::from_secs(seconds));
    let log = daemon.log();
    let waits: Vec<u64> = log
        .lines()
        .filter_map(|line| line.split("another starts in ").nth(1)?.split(' ').next()?.parse().ok())
        .collect();
    println!("pauses {waits:?} ms");
    assert!(waits.len() > 2, "{log}");
    assert!(waits.is_sorted() && waits.last() > waits.first(), "{waits:?}");
    // Without a pause there would be more.
    let most = (seconds + 2) * 1000 / PANICS_MILLIS[8];
    assert!((waits.len() as u64) < most / 2, "{waits:?}");
    assert!(bed.source().ip("address show dev rec0").unwrap().contains("10.99.0.1"));
    assert!(!program(bed.source(), "east").is_empty(), "the program went");
    assert!(daemon.stop(), "{log}");
}

/// Fault 37: a busy worker that does not answer. The log names it and reports that it was busy,
/// before its process is replaced.
#[test]
fn worker_that_is_busy_without_end_is_named_in_the_log_and_replaced() {
    let Some(_turn) = common::daemons_beside() else { return };
    let bed = common::bed(1, Loss::independent(0.0), RATE_MBIT);
    let mut plan = LinePlan::protected(1);
    plan.environment = vec![("RECODED_TEST_SPIN_MILLIS", "1000".into())];
    let mut daemon = Daemon::start(&bed, 0, &plan).unwrap();
    let before = daemon.dataplane_pid().unwrap();
    if !has_fault(&daemon, Duration::from_secs(2)) {
        println!("skipped: recoded was built without debug assertions, and is not busy");
        return;
    }
    wait_for_another(&mut daemon, before);
    let log = daemon.log();
    assert!(log.contains("worker 0 (recoded-w0) is silent for "), "{log}");
    assert!(says(&log, "runs or waits for a core, ") && !says(&log, ", 0 of "), "{log}");
    assert!(bed.source().ip("address show dev rec0").unwrap().contains("10.99.0.1"));
}

/// Fault 13: a worker that does not read its receive queue for a while. The event names the queue,
/// and packets flow again in the same process.
#[test]
fn receive_queue_that_its_worker_does_not_empty_is_named_and_recovers() {
    let Some(_turn) = common::daemons_beside() else { return };
    let bed = common::bed(2, Loss::independent(0.0), RATE_MBIT);
    let plan = LinePlan { frames: 1024, ..LinePlan::protected(2) };
    let daemons = Daemon::start_line(&bed, &plan).unwrap();
    let relay = &daemons[1];
    let process = relay.dataplane_pid().unwrap();
    let worker = hold_worker(process);
    waitpid(worker, Some(WaitPidFlag::__WALL)).unwrap();
    let to = SocketAddr::from(([10, 99, 0, 2], 7000));
    send_paced(bed.source(), to, 1000, 6000, 5000.0).unwrap();
    ptrace::detach(worker, None).unwrap();

    let is_named = |text: &str| {
        let is_ring =
            ["rx_fill_ring_empty", "rx_ring_full"].iter().any(|name| text.starts_with(name));
        is_ring && text.contains("begins to rise") && text.ends_with(" on queue 0 of west")
    };
    let begun = Instant::now();
    loop {
        let all = events(relay);
        if all.iter().any(|event| event["text"].as_str().is_some_and(is_named)) {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{all:#?}\n{}", relay.log());
        std::thread::sleep(Duration::from_millis(100));
    }
    let outcome = probe(&bed, 1).finish().unwrap();
    assert!(outcome.loss() < 0.02, "{} of {}", outcome.came, outcome.sent);
    assert_eq!(relay.dataplane_pid().unwrap(), process, "no other process was needed");
}

/// Fault 6: other tools can neither detach nor replace a `bpf_link`.
#[test]
fn other_tools_cannot_take_the_xdp_program_off() {
    let Some(_turn) = common::daemons_beside() else { return };
    let (bed, _daemons) = line();
    let relay = &bed.hosts()[1];
    let before = program(relay, "east");
    for mode in ["xdp", "xdpgeneric", "xdpdrv"] {
        let mut command = relay.command("ip");
        let refused = output(command.args(["link", "set", "dev", "east", mode, "off"])).unwrap();
        println!("{mode} off: {}", refused.stderr.trim());
    }
    assert_eq!(program(relay, "east"), before);
    let outcome = probe(&bed, 1).finish().unwrap();
    assert!(outcome.loss() < 0.02, "{} of {}", outcome.came, outcome.sent);
}

/// Fault 36.
#[test]
fn daemons_that_are_stopped_under_load_drain_and_leave_nothing() {
    let Some(_turn) = common::daemons_beside() else { return };
    let (bed, mut daemons) = line();
    let stream = probe(&bed, 2);
    std::thread::sleep(Duration::from_secs(1));
    for daemon in &mut daemons {
        let begun = Instant::now();
        assert!(daemon.stop(), "{}", daemon.log());
        println!("{} stopped within {:?}", daemon.name(), begun.elapsed());
        let state = format!("{}.state", daemon.socket().display());
        assert!(!fs::exists(state).unwrap(), "a record of nothing stays");
    }
    stream.finish().unwrap();
    for host in bed.hosts() {
        let links = host.ip("-details link show").unwrap();
        assert!(!links.contains("rec0") && !links.contains("xdp"), "it stays: {links}");
    }
}

/// Fault 8: packets flow again when the link is up again, without a restart.
#[test]
fn link_that_goes_down_and_up_is_used_again() {
    let Some(_turn) = common::daemons_beside() else { return };
    let (bed, daemons) = line();
    let before = daemons[1].dataplane_pid().unwrap();
    let stream = probe(&bed, 4);
    std::thread::sleep(Duration::from_secs(1));
    bed.hosts()[1].ip("link set dev east down").unwrap();
    std::thread::sleep(Duration::from_millis(500));
    bed.hosts()[1].ip("link set dev east up").unwrap();
    // Linux flushes its neighbour entries with the interface.
    let outcome = stream.finish().unwrap();
    println!("longest gap {:.0} ms", outcome.longest_gap_millis());
    let late = outcome.rate_between(3500.0, 4000.0);
    assert!(late > 400.0, "{late:.0} of 500 packets a second come again");
    assert_eq!(daemons[1].dataplane_pid().unwrap(), before, "it was restarted");
}

/// `scripts/soak` runs it longer and with any seed.
#[test]
fn soak_of_three_minutes_leaks_nothing() {
    let Some(_turn) = common::daemons_beside() else { return };
    assert!(binary("recoded").is_file());
    let outcome = soak::run(&SoakPlan { seconds: 180, seed: 14 }).unwrap();
    println!("{outcome}");
    assert_eq!(outcome.complaints(), Vec::<String>::new(), "seed 14");
}
