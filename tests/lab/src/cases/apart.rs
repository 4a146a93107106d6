//! Faults of one of two boxes in separate machines: its clock steps, it is suspended, it is
//! restored from a snapshot.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Case, Machine};
use crate::LabError;
use crate::guest::{Apart, Guest};
use crate::host::Architecture;
use crate::nic::Nic;

/// A pair for the link, and one for management.
pub const MACHINE: Machine = Machine {
    name: "apart",
    nics: &[Nic::Virtio, Nic::E1000e],
    memory_mib: 768,
    peer: Some(Architecture::Amd64),
    cases: &CASES,
    ..Machine::USUAL
};

const CASES: [Case; 4] = [
    Case {
        name: "clock-one-box-keys",
        shows: "the clock of one box steps by days, back and forth: no ping is lost, it restarts",
        run: clock,
    },
    Case {
        name: "suspend-auto-keys",
        shows: "the default carries again when its box was suspended to memory and resumed",
        run: |guest| suspend(guest, None),
    },
    Case {
        name: "suspend-udp-keys",
        shows: "UDP sockets carry again when their box was suspended to memory and resumed",
        run: |guest| suspend(guest, Some("udp")),
    },
    Case {
        name: "snapshot-keys",
        shows: "a box that was set back to a snapshot finds out, and carries again with new keys",
        run: snapshot,
    },
];

const DAY: i64 = 86_400;

/// How long pings continue after a step.
const SETTLE: Duration = Duration::from_secs(3);

/// How long a box may take to carry traffic again.
const AGAIN_PATIENCE: Duration = Duration::from_secs(120);

fn clock(guest: &Guest) -> Result<String, LabError> {
    let boxes = guest.apart(None)?;
    boxes.carry()?;
    let mut text = String::from("no ping lost");
    for days in [-1, 2] {
        boxes.without_loss(|| {
            boxes.peer.run(&format!("date -s @$(($(date +%s) + {}))", days * DAY))?;
            std::thread::sleep(SETTLE);
            Ok(())
        })?;
        boxes.peer.stop_daemon()?;
        let began = Instant::now();
        boxes.peer.start_daemon()?;
        boxes.first_ping(AGAIN_PATIENCE)?;
        let first = began.elapsed().as_secs_f64();
        boxes.carry()?;
        text.push_str(&format!("; {days:+} days: a restart carries after {first:.1} s"));
    }
    Ok(text)
}

/// Duration of a suspension.
const ASLEEP: Duration = Duration::from_secs(6);

/// Prints how often the box was.
const SUSPENDED: &str = "cat /sys/power/suspend_stats/success";

fn suspend(guest: &Guest, backend: Option<&'static str>) -> Result<String, LabError> {
    let boxes = guest.apart(backend)?;
    boxes.carry()?;
    let before = boxes.peer.run(SUSPENDED)?;
    boxes.peer.run("(sleep 1; echo mem >/sys/power/state) >/dev/null 2>&1 &")?;
    let wakeup = json!({ "execute": "system_wakeup" });
    // After a machine's first suspension, QEMU wakes it up by itself, so the command has no effect.
    let woken = guest.qemu_of_peer(&[wakeup], ASLEEP);
    let text = again(&boxes)?;
    match boxes.peer.run(SUSPENDED)? {
        after if after == before => LabError::wrong(format!("it was not suspended: {woken:?}")),
        _ => Ok(text),
    }
}

/// Waits until a ping is answered, then checks all traffic.
fn again(boxes: &Apart) -> Result<String, LabError> {
    let first = boxes.first_ping(AGAIN_PATIENCE)?.as_secs_f64();
    boxes.carry()?;
    Ok(format!("carries {first:.1} s after"))
}

/// Until both have sent another announcement.
const ANNOUNCED: Duration = Duration::from_secs(11);

fn snapshot(guest: &Guest) -> Result<String, LabError> {
    let boxes = guest.apart(None)?;
    boxes.carry()?;
    let make = |options: Value| {
        let id = options["driver"].clone();
        json!({ "execute": "blockdev-create", "arguments": { "job-id": id, "options": options } })
    };
    let add = |options: Value| json!({ "execute": "blockdev-add", "arguments": options });
    let monitor = |line: &str| {
        let arguments = json!({ "command-line": line });
        json!({ "execute": "human-monitor-command", "arguments": arguments })
    };
    let file = "snapshot.qcow2";
    let now = Duration::ZERO;
    guest.qemu_of_peer(&[make(json!({ "driver": "file", "filename": file, "size": 0 }))], now)?;
    let opened = json!({ "driver": "file", "filename": file, "node-name": "file" });
    guest.qemu_of_peer(&[add(opened)], now)?;
    let made = make(json!({ "driver": "qcow2", "file": "file", "size": 1 << 20 }));
    guest.qemu_of_peer(&[made], now)?;
    let opened = json!({ "driver": "qcow2", "file": "file", "node-name": "snapshot" });
    guest.qemu_of_peer(&[add(opened), monitor("savevm before")], now)?;
    boxes.carry()?;
    // Neighbours announce themselves every ten seconds.
    std::thread::sleep(ANNOUNCED);
    boxes.carry()?;
    guest.qemu_of_peer(&[monitor("loadvm before")], now)?;
    let text = again(&boxes)?;
    boxes.peer.run("grep 'the dataplane process ended.*this box was set back' /run/a.log")?;
    Ok(text)
}
