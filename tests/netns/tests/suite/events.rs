//! `recodectl events` on a line: each event is reported once, in order, and outlives the process
//! that recorded it.

use std::io;
use std::net::SocketAddr;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::common;
use crate::processes::{line, wait_for_another};
use recoded_netns::process::output;
use recoded_netns::traffic::send_paced;
use recoded_netns::{Bed, Daemon};
use rustix::process::Signal;
use serde_json::Value;

/// Generous: the expected events take 1 to 5 s on an idle machine.
const PATIENCE: Duration = Duration::from_secs(40);

pub fn events(daemon: &Daemon) -> Vec<Value> {
    let mut command = daemon.control(&["--json", "events"]);
    // There is no answer while a process is replaced.
    let Ok(answer) = output(&mut command) else { return Vec::new() };
    let answer: Value = serde_json::from_str(&answer.stdout).unwrap_or_default();
    answer["events"].as_array().cloned().unwrap_or_default()
}

/// Sends packets until an event of this kind is reported; returns its number.
fn wait_for(bed: &Bed, daemon: &Daemon, kind: &str) -> u64 {
    let begun = Instant::now();
    let to = SocketAddr::from(([10, 99, 0, 2], 7000));
    loop {
        // A tunnel without a carrier accepts none.
        let _ = send_paced(bed.source(), to, 100, 200, 500.0);
        let all = events(daemon);
        if let Some(event) = all.iter().rev().find(|event| event["kind"] == kind) {
            return event["number"].as_u64().unwrap();
        }
        assert!(begun.elapsed() < PATIENCE, "no {kind} in {all:#?}\n{}", daemon.log());
    }
}

#[test]
fn what_happens_is_told_once_and_outlives_the_dataplane_process() {
    let Some(_turn) = common::daemons_beside() else { return };
    let (bed, mut daemons) = line();
    let mut follow = daemons[0].control(&["--json", "events", "--follow", "--since", "1h"]);
    let mut follow = follow.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let followed = follow.stdout.take().unwrap();
    let followed = std::thread::spawn(move || io::read_to_string(followed));
    wait_for(&bed, &daemons[0], "flow_up");
    wait_for(&bed, &daemons[2], "flow_up");

    let east = |state| bed.source().ip(&format!("link set dev east {state}")).unwrap();
    east("down");
    let down = wait_for(&bed, &daemons[0], "link_down");
    east("up");
    assert!(wait_for(&bed, &daemons[0], "link_up") > down);
    daemons[0].set(1, "redundancy_max", "3").unwrap();
    let applied = wait_for(&bed, &daemons[0], "config_applied");

    let before = daemons[0].dataplane_pid().unwrap();
    daemons[0].signal_dataplane(Signal::KILL).unwrap();
    wait_for_another(&mut daemons[0], before);
    assert!(wait_for(&bed, &daemons[0], "process_ended") > applied);
    let kinds: Vec<String> = events(&daemons[0])
        .iter()
        .filter_map(|event| event["kind"].as_str().map(str::to_owned))
        .collect();
    for kind in ["daemon_started", "process_started", "flow_up", "link_down", "config_applied"] {
        assert!(kinds.iter().any(|known| known == kind), "{kind} did not outlive it: {kinds:?}");
    }

    assert!(daemons[1].stop());
    wait_for(&bed, &daemons[0], "next_hop_silent");
    wait_for(&bed, &daemons[0], "flow_down");
    wait_for(&bed, &daemons[2], "flow_quiet");

    // Each is once in the log, and a client that follows gets each once.
    let all = events(&daemons[0]);
    let log = daemons[0].log();
    for event in &all {
        let (subject, text) = (event["subject"].as_str(), event["text"].as_str());
        let line = format!("{}: {}", subject.unwrap(), text.unwrap());
        let same = all.iter().filter(|it| it["subject"] == event["subject"]);
        let same = same.filter(|it| it["text"] == event["text"]).count();
        assert_eq!(log.matches(&line).count(), same, "{line:?} in\n{log}");
    }
    std::thread::sleep(Duration::from_secs(2));
    follow.kill().unwrap();
    follow.wait().unwrap();
    let text = followed.join().unwrap().unwrap();
    let numbers: Vec<u64> = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["number"].as_u64().unwrap())
        .collect();
    assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
    let missing = all.iter().filter(|it| !numbers.contains(&it["number"].as_u64().unwrap()));
    assert_eq!(missing.count(), 0, "{numbers:?} of {all:#?}");
}
