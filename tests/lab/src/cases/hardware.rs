//! Faults of the box itself: a card that is unplugged, a reset, a full disk.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use recoded_api::client::Client;
use recoded_netns::process;
use serde_json::{Value, json};

use super::{Case, Machine};
use crate::LabError;
use crate::guest::{Boxes, Guest, Node, SHARED, Setup};
use crate::nic::{Nic, card};

/// Cards that can be pulled out, and a disk.
pub const MACHINE: Machine = Machine {
    name: "hardware",
    nics: &[Nic::Virtio, Nic::Igb, Nic::E1000e],
    memory_mib: 1536,
    disk_mib: 64,
    cases: &CASES,
    ..Machine::USUAL
};

const CASES: [Case; 7] = [
    Case {
        name: "unplug-virtio-auto",
        shows: "the default carries again when its virtio-net card was pulled out and is back",
        run: |guest| unplug(guest, Nic::Virtio, None),
    },
    Case {
        name: "unplug-virtio-xdp",
        shows: "AF_XDP sockets carry again when their virtio-net card was pulled out and is back",
        run: |guest| unplug(guest, Nic::Virtio, Some("xdp")),
    },
    Case {
        name: "unplug-virtio-udp",
        shows: "UDP sockets carry again when their virtio-net card was pulled out and is back",
        run: |guest| unplug(guest, Nic::Virtio, Some("udp")),
    },
    Case {
        name: "unplug-igb-auto",
        shows: "the default carries again when its igb card, with zero copy, was pulled out",
        run: |guest| unplug(guest, Nic::Igb, None),
    },
    Case {
        name: "unplug-e1000e-auto",
        shows: "the default carries again when its e1000e card was pulled out and is back",
        run: |guest| unplug(guest, Nic::E1000e, None),
    },
    Case {
        name: "reset-keys",
        shows: "a box that is reset hard starts from what its disk has, and carries, with keys",
        run: reset,
    },
    Case {
        name: "full-disk-keys",
        shows: "a full disk of records is named, stops no packet, and is used again after",
        run: full_disk,
    },
];

/// Timeout for a link to notice that its card is gone, and for a card to disappear.
const GONE_PATIENCE: Duration = Duration::from_secs(90);

/// How long a card is unplugged.
const OUT: Duration = Duration::from_secs(2);

fn unplug(guest: &Guest, nic: Nic, backend: Option<&'static str>) -> Result<String, LabError> {
    let mut boxes = guest.pair(nic)?.start(&Setup { backend, ..Setup::default() })?;
    boxes.carry()?;
    let number = guest.number(nic);
    guest.qemu(&[command("device_del", json!({ "id": card(number, 0) }))])?;
    wait_for("the link to wait", &boxes, |boxes| Ok(boxes.nodes()[0].link()?.state == "waiting"))?;
    let waits = boxes.nodes()[0].link()?.waits;
    if waits.is_empty() {
        return LabError::wrong("the link gives no reason for waiting");
    }
    sleep(OUT);
    let add = command("device_add", nic.plug(number, 0));
    // Linux releases the slot asynchronously.
    wait_for("the slot to be free", &boxes, |_| {
        Ok(guest.qemu(std::slice::from_ref(&add)).is_ok())
    })?;
    let interface = guest.interface(nic, 0)?;
    let began = Instant::now();
    let node = &mut boxes.nodes_mut()[0];
    node.plug(&interface)?;
    wait_for("the link to be up", &boxes, |boxes| Ok(boxes.nodes()[0].link()?.state == "up"))?;
    let up = began.elapsed();
    boxes.carry()?;
    let link = boxes.nodes()[0].link()?;
    let (xdp, socket) = (link.xdp_mode, link.socket_mode);
    Ok(format!("{xdp}, {socket}; out: \"{waits}\"; up {:.1} s after", up.as_secs_f64()))
}

/// A command of the QEMU Machine Protocol.
fn command(name: &str, arguments: Value) -> Value {
    json!({ "execute": name, "arguments": arguments })
}

fn wait_for(
    what: &str,
    boxes: &Boxes,
    mut is_so: impl FnMut(&Boxes) -> Result<bool, LabError>,
) -> Result<(), LabError> {
    let deadline = Instant::now() + GONE_PATIENCE;
    // A process that is replaced does not answer for a moment.
    while !is_so(boxes).unwrap_or(false) {
        if Instant::now() > deadline {
            let [a, _] = boxes.nodes();
            let log = process::tail(&a.log());
            return LabError::wrong(format!("{what}: not within {GONE_PATIENCE:?}: {log}"));
        }
        sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// Mount point of the disk.
const DISK: &str = "/run/disk";

/// Marker file: the machine was reset in this case.
const RESET: &str = "was-reset";

/// Runs twice: until the reset, and after it.
fn reset(guest: &Guest) -> Result<String, LabError> {
    let mark = Path::new(SHARED).join(RESET);
    let was_reset = mark.exists();
    fs::create_dir_all(DISK).map_err(LabError::file(Path::new(DISK)))?;
    if was_reset {
        guest.qemu(&[set_action("shutdown")])?;
    } else {
        let made = process::output(Command::new("mkfs.ext4").args(["-q", "/dev/vda"]));
        if let Err(error) = made {
            return Err(LabError::Unavailable(format!("mkfs.ext4 is missing: {error}")));
        }
    }
    process::run(Command::new("mount").args(["-t", "ext4", "/dev/vda", DISK]))?;
    let found = if was_reset { records(DISK)? } else { String::new() };
    let setup = Setup { has_keys: true, folder: Some(DISK), ..Setup::default() };
    let boxes = guest.pair(Nic::Virtio)?.start(&setup)?;
    boxes.carry()?;
    if !was_reset {
        fs::write(&mark, "").map_err(LabError::file(&mark))?;
        // Records of the last seconds are in memory, and not on the disk.
        guest.qemu(&[set_action("reset"), json!({ "execute": "system_reset" })])?;
        sleep(GONE_PATIENCE);
        return LabError::wrong("the machine was not reset");
    }
    Ok(format!("after the reset: {found}"))
}

/// QEMU command that sets the action on reboot of the machine.
fn set_action(reboot: &str) -> Value {
    command("set-action", json!({ "reboot": reboot }))
}

/// Timeout for an entry in the history.
const SAID_PATIENCE: Duration = Duration::from_secs(40);

/// Files of records with their sizes.
fn records(folder: &str) -> Result<String, LabError> {
    let found =
        process::run(Command::new("find").args([folder, "-type", "f", "-printf", "%P %s, "]))?;
    Ok(found.trim_end_matches(", ").to_owned())
}

/// A disk of some pages.
const SMALL: &str = "/run/small";

/// State of both boxes is on a disk that fills up while they run, and box a starts on it.
fn full_disk(guest: &Guest) -> Result<String, LabError> {
    let small = Path::new(SMALL);
    fs::create_dir_all(small).map_err(LabError::file(small))?;
    process::run(Command::new("mount").args(["-t", "tmpfs", "-o", "size=96k", "small", SMALL]))?;
    let setup = Setup { has_keys: true, folder: Some(SMALL), ..Setup::default() };
    let mut boxes = guest.pair(Nic::Virtio)?.start(&setup)?;
    boxes.carry()?;
    let filler = small.join("filler");
    fill(&filler)?;
    change(&boxes.nodes()[0], "1")?;
    expect_trouble(&boxes.nodes()[0], true)?;
    boxes.carry()?;
    boxes.nodes_mut()[0].restart()?;
    boxes.carry()?;
    let [a, _] = boxes.nodes();
    if !a.log().contains("sessions.json cannot be written (No space left on device") {
        let log = process::tail(&a.log());
        return LabError::wrong(format!("the log does not name the full disk: {log}"));
    }
    fs::remove_file(&filler).map_err(LabError::file(&filler))?;
    change(a, "2")?;
    expect_trouble(a, false)?;
    boxes.carry()?;
    Ok(format!("afterwards: {}", records(SMALL)?))
}

/// Fills all free space.
fn fill(filler: &Path) -> Result<(), LabError> {
    let mut file = fs::File::create(filler).map_err(LabError::file(filler))?;
    for bytes in [4096, 1] {
        while file.write_all(&vec![1; bytes]).is_ok() {}
    }
    Ok(())
}

/// Changes the first flow, which the history of configurations notes.
fn change(node: &Node, redundancy: &str) -> Result<(), LabError> {
    let changes = BTreeMap::from([("redundancy".to_owned(), redundancy.to_owned())]);
    node.ask(|client| client.set(1, &changes)).map(drop)
}

/// Expects that the history reports a full disk, or no problem.
fn expect_trouble(node: &Node, is_full: bool) -> Result<(), LabError> {
    let deadline = Instant::now() + SAID_PATIENCE;
    loop {
        let trouble = node.ask(Client::history)?.trouble;
        let is_right = match is_full {
            true => trouble.contains("No space left on device") && trouble.contains("make room"),
            false => trouble.is_empty(),
        };
        if is_right {
            return Ok(());
        }
        if Instant::now() > deadline {
            return LabError::wrong(format!("full: {is_full}; the history says \"{trouble}\""));
        }
        sleep(Duration::from_millis(100));
    }
}
