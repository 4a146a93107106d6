//! Supervisors that are killed, replaced by another program, or started twice: traffic continues,
//! state remains, and no protected packet leaves in the clear.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::common;
use crate::processes::{
    RATE_MBIT, SERVER, assert_same_file, line, line_with, probe, program, tunnel, wait_for_another,
};
use recoded_netns::clear::ClearText;
use recoded_netns::process::{self, output};
use recoded_netns::traffic::{Fetch, WebServer, write_random_file};
use recoded_netns::{AuthPlan, Bed, Daemon, Loss};
use rustix::process::Signal;

/// Addresses that tunnels carry: their own, and a route that an operator added.
const PROTECTED: &[[u8; 2]] = &[[10, 99], [10, 98]];

/// Bytes of a download that outlasts the test's interventions.
const FILE_BYTES: u64 = 32 << 20;

/// Adds state to the ends that could get lost: an address, a route, and a way around the tunnel.
fn dress(bed: &Bed) {
    bed.source().ip("route add 10.98.0.0/24 dev rec0").unwrap();
    bed.sink().ip("address add 10.97.0.1/32 dev rec0").unwrap();
    bed.source().ip("route add default via 10.77.1.2").unwrap();
    bed.sink().ip("route add default via 10.77.2.1").unwrap();
}

/// Watches for traffic in the clear at both ends.
fn watch(bed: &Bed) -> [ClearText; 2] {
    let watch = |link: usize, side| ClearText::watch(bed.link(link), side, PROTECTED).unwrap();
    [watch(1, "west"), watch(2, "east")]
}

fn bytes(clear: &[ClearText]) -> u64 {
    clear.iter().map(ClearText::bytes).sum()
}

/// A download and a stream of datagrams while `disturb` runs on each host in turn; prints and
/// returns the longest gap of each.
fn under_traffic(
    bed: &Bed,
    daemons: &mut [Daemon],
    mut disturb: impl FnMut(&mut Daemon),
) -> Vec<f64> {
    let (file, copy) = (bed.directory().join("file"), bed.directory().join("copy"));
    write_random_file(&file, FILE_BYTES).unwrap();
    let _server = WebServer::start(bed.source(), bed.directory()).unwrap();
    dress(bed);
    let clear = watch(bed);
    let tunnels = [tunnel(bed.source()), tunnel(bed.sink())];
    let limit = Duration::from_secs(120);
    let mut gaps = Vec::new();
    for (index, victim) in [(1, "relay"), (0, "source"), (2, "sink")] {
        let fetch = Fetch::start(bed.sink(), SERVER.into(), "file", &copy, limit).unwrap();
        let stream = probe(bed, 4);
        std::thread::sleep(Duration::from_secs(1));
        assert!(fetch.bytes() < FILE_BYTES, "{victim}: the download was over too soon");
        disturb(&mut daemons[index]);
        let outcome = stream.finish().unwrap();
        let gap = outcome.longest_gap_millis();
        println!(
            "{victim}: longest gap of UDP {gap:.0} ms, {} of {} came",
            outcome.came, outcome.sent
        );
        assert!(gap < 3000.0, "{victim}");
        assert!(outcome.came > outcome.sent / 2, "{victim}: {} came", outcome.came);
        let download = fetch.finish().unwrap();
        println!("{download:?}");
        assert!(download.complete, "the connection broke: {download:?}");
        assert_same_file(&file, &copy);
        gaps.push(gap);
    }
    assert_eq!(tunnels, [tunnel(bed.source()), tunnel(bed.sink())]);
    assert_eq!(bytes(&clear), 0, "bytes in the clear");
    gaps
}

#[test]
fn supervisor_killed_under_traffic_leaves_packets_flowing_and_the_next_takes_over() {
    let Some(_turn) = common::daemons_beside() else { return };
    let (bed, mut daemons) = line_with(Some(AuthPlan::new("full", 2)));
    under_traffic(&bed, &mut daemons, |daemon| {
        let before = daemon.dataplane_pid().unwrap();
        daemon.kill_supervisor();
        std::thread::sleep(Duration::from_millis(500));
        assert!(process::runs(before), "it died with its supervisor:\n{}", daemon.log());
        assert!(daemon.show().is_ok(), "it answers");
        daemon.start_supervisor().unwrap();
        let took = wait_for_another(daemon, before);
        println!("taken over after {took:?}");
        assert!(!process::runs(before), "there are two");
    });
    for daemon in &mut daemons {
        assert!(daemon.log().contains("the supervisor is gone"), "{}", daemon.log());
        assert!(daemon.stop(), "{}", daemon.log());
    }
    for host in bed.hosts() {
        let links = host.ip("-details link show").unwrap();
        assert!(!links.contains("rec0") && !links.contains("xdp"), "it stays: {links}");
    }
}

/// Even a long time without a supervisor causes no additional loss.
#[test]
fn packets_flow_while_no_supervisor_lives() {
    let Some(_turn) = common::daemons_beside() else { return };
    let (bed, mut daemons) = line();
    daemons.iter_mut().for_each(Daemon::kill_supervisor);
    let outcome = probe(&bed, 3).finish().unwrap();
    println!("{} of {} came", outcome.came, outcome.sent);
    assert!(outcome.loss() < 0.02, "{} of {}", outcome.came, outcome.sent);
    for host in &bed.hosts()[..1] {
        assert!(!program(host, "east").is_empty(), "the XDP program went");
    }
}

#[test]
fn upgrade_under_traffic_keeps_tunnels_routes_and_live_changes() {
    let Some(_turn) = common::daemons_beside() else { return };
    let (bed, mut daemons) = line_with(Some(AuthPlan::new("full", 2)));
    daemons[2].set(1, "hold_timeout_us", "400000").unwrap();
    under_traffic(&bed, &mut daemons, |daemon| {
        let (supervisor, before) = (daemon.pid(), daemon.dataplane_pid().unwrap());
        let holding = programs_held(supervisor);
        daemon.signal(Signal::USR2).unwrap();
        let took = wait_for_another(daemon, before);
        println!("taken over after {took:?}");
        assert_eq!(daemon.pid(), supervisor);
        assert!(!process::runs(before), "there are two");
        // Its programs replaced the previous ones without an interruption.
        let held = programs_held(supervisor);
        assert!(held.keys().eq(holding.keys()), "{holding:?} became {held:?}");
        assert!(held.values().all(|program| holding.values().all(|before| program != before)));
    });
    let mut config = daemons[2].control(&["show", "config"]);
    let text = output(&mut config).unwrap().stdout;
    assert!(text.contains("hold_timeout_us = 400000"), "the live change is lost:\n{text}");
    for daemon in &mut daemons {
        assert!(!daemon.log().contains("panicked"), "{}", daemon.log());
        assert!(daemon.stop(), "{}", daemon.log());
    }
    for host in bed.hosts() {
        let links = host.ip("-details link show").unwrap();
        assert!(!links.contains("rec0") && !links.contains("xdp"), "it stays: {links}");
    }
}

/// XDP programs held by a process: program numbers by the numbers of their `bpf_link`s.
fn programs_held(process: u32) -> BTreeMap<u32, u32> {
    let mut held = BTreeMap::new();
    for entry in fs::read_dir(format!("/proc/{process}/fdinfo")).unwrap().flatten() {
        let text = fs::read_to_string(entry.path()).unwrap_or_default();
        let value = |name: &str| {
            let mut lines = text.lines();
            lines.find_map(|line| line.strip_prefix(name)?.trim().parse::<u32>().ok())
        };
        held.extend(value("link_id:").zip(value("prog_id:")));
    }
    assert!(!held.is_empty(), "it has no program");
    held
}

#[test]
fn upgrade_reads_the_file_and_one_that_is_wrong_changes_nothing() {
    let Some(_turn) = common::daemons_beside() else { return };
    let (bed, mut daemons) = line();
    let file = bed.directory().join("h0.toml");
    let good = fs::read_to_string(&file).unwrap();
    let before = daemons[0].dataplane_pid().unwrap();
    fs::write(&file, format!("{good}\n[nonsense]\n")).unwrap();
    daemons[0].signal(Signal::USR2).unwrap();
    let begun = Instant::now();
    while !daemons[0].log().contains("cannot take over") {
        assert!(begun.elapsed() < Duration::from_secs(20), "{}", daemons[0].log());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(daemons[0].log().contains("nonsense"), "{}", daemons[0].log());
    assert_eq!(daemons[0].dataplane_pid().unwrap(), before);
    fs::write(&file, good.replace("10.99.0.1/24", "10.99.0.7/24")).unwrap();
    daemons[0].signal(Signal::USR2).unwrap();
    wait_for_another(&mut daemons[0], before);
    assert!(tunnel(bed.source()).contains("10.99.0.7/24"), "{}", tunnel(bed.source()));
}

#[test]
fn second_daemon_for_a_socket_or_an_interface_is_refused_and_told_why() {
    let Some(_turn) = common::daemons_beside() else { return };
    let (bed, daemons) = line();
    let file = bed.directory().join("h1.toml");
    let start = |file: &std::path::Path| {
        let mut command = bed.hosts()[1].command(recoded_netns::binary("recoded"));
        output(command.arg("--config").arg(file)).unwrap()
    };
    let refused = start(&file);
    assert!(!refused.success);
    let holder = format!("process {}", daemons[1].pid());
    assert!(refused.stderr.contains(&holder), "{}", refused.stderr);
    let other = bed.directory().join("other.toml");
    let text = fs::read_to_string(&file).unwrap().replace("h1.sock", "other.sock");
    fs::write(&other, text).unwrap();
    let refused = start(&other);
    assert!(!refused.success);
    assert!(refused.stderr.contains("XDP program"), "{}", refused.stderr);
    let outcome = probe(&bed, 1).finish().unwrap();
    assert!(outcome.loss() < 0.02, "{} of {}", outcome.came, outcome.sent);
}

/// Packets for a tunnel that no process reads are dropped there, whatever other routes exist.
#[test]
fn daemon_of_which_all_is_killed_lets_nothing_out_in_the_clear() {
    let Some(_turn) = common::daemons_beside() else { return };
    let bed = common::bed(2, Loss::independent(0.0), RATE_MBIT);
    let plan = recoded_netns::LinePlan::protected(2);
    let mut daemons = Daemon::start_line(&bed, &plan).unwrap();
    dress(&bed);
    let clear = watch(&bed);
    let kept = tunnel(bed.source());
    let stream = probe(&bed, 3);
    std::thread::sleep(Duration::from_millis(500));
    daemons[0].kill();
    std::thread::sleep(Duration::from_secs(1));
    // It has no carrier, since no process reads from it.
    assert_eq!(tunnel(bed.source()).replace("linkdown ", ""), kept);
    daemons[0].start_supervisor().unwrap();
    daemons[0].wait_until_it_answers().unwrap();
    let outcome = stream.finish().unwrap();
    println!("{} of {} came", outcome.came, outcome.sent);
    assert!(outcome.came > outcome.sent / 4);
    assert_eq!(tunnel(bed.source()), kept);
    assert_eq!(bytes(&clear), 0);
    // Control: an orderly stop removes the tunnel, so the capture must see packets.
    assert!(daemons[0].stop());
    probe(&bed, 1).finish().unwrap();
    assert!(bytes(&clear) > 0, "the capture sees nothing");
}

/// The kill switch works in any state of the daemon and its tunnel.
#[test]
fn kill_switch_lets_nothing_out_in_the_clear_until_it_is_lifted() {
    let Some(_turn) = common::daemons_beside() else { return };
    let (bed, mut daemons) = line();
    dress(&bed);
    let file = bed.directory().join("h0.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("[[tunnel]]", "[[tunnel]]\nkill_switch = true")).unwrap();
    let before = daemons[0].dataplane_pid().unwrap();
    daemons[0].signal(Signal::USR2).unwrap();
    wait_for_another(&mut daemons[0], before);
    let behind = || bed.source().ip("route show type unreachable").unwrap();
    let begun = Instant::now();
    while !(behind().contains("10.99.0.0/24") && behind().contains("10.98.0.0/24")) {
        assert!(begun.elapsed() < Duration::from_secs(10), "{}", behind());
        std::thread::sleep(Duration::from_millis(20));
    }
    // Behind the sink the addresses are not protected.
    let [clear, _] = watch(&bed);
    // To an address behind the sink that is reachable only through the operator's route.
    let send = || {
        let socket = bed.source().udp_socket(([0, 0, 0, 0], 0).into()).unwrap();
        (0..100)
            .filter(|_| socket.send_to(&[1; 100], SocketAddr::from(([10, 98, 0, 5], 9))).is_ok())
            .count()
    };
    assert_eq!(send(), 100);
    bed.source().ip("link delete rec0").unwrap();
    send();
    let begun = Instant::now();
    while !bed.source().ip("-oneline address").unwrap().contains("10.99.0.1/24") {
        assert!(begun.elapsed() < Duration::from_secs(10), "{}", daemons[0].log());
        std::thread::sleep(Duration::from_millis(20));
    }
    // The route that was added is lost with the tunnel.
    assert_eq!(send(), 0, "packets took another route");
    daemons[0].kill();
    send();
    daemons[0].start_supervisor().unwrap();
    daemons[0].wait_until_it_answers().unwrap();
    assert!(daemons[0].stop(), "{}", daemons[0].log());
    assert_eq!(send(), 0, "packets took another route");
    assert_eq!(clear.bytes(), 0);
    bed.source().ip("route flush proto 82").unwrap();
    assert_eq!(send(), 100);
    let begun = Instant::now();
    while clear.bytes() == 0 {
        assert!(begun.elapsed() < Duration::from_secs(10), "the capture sees nothing");
        std::thread::sleep(Duration::from_millis(20));
    }
}
