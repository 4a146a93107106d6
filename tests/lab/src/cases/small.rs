//! A box with little memory.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use recoded_netns::process;

use super::{Case, Machine};
use crate::LabError;
use crate::guest::{Guest, Node, Setup};
use crate::host::Kernel;
use crate::nic::Nic;

/// Little memory for two boxes.
pub const MACHINE: Machine = Machine {
    name: "small",
    kernel: Kernel::V6_12,
    nics: &[Nic::Virtio],
    memory_mib: 224,
    seconds: 240,
    cases: &CASES,
    ..Machine::USUAL
};

const CASES: [Case; 2] = [
    Case {
        name: "small-memory",
        shows: "two daemons with the default configuration in 224 MiB, kernel and all",
        run: small,
    },
    Case {
        name: "small-limit",
        shows: "a limit of memory that is too small is named, and they carry once it is gone",
        run: limit,
    },
];

/// Memory limit of a daemon without files: packet buffers of 37 MiB, and the program.
const OWN_MIB_MAX: u64 = 64;

fn small(guest: &Guest) -> Result<String, LabError> {
    let boxes = guest.pair(Nic::Virtio)?.start(&Setup::default())?;
    boxes.carry()?;
    let own = boxes.nodes()[0].own_memory_kib()? >> 10;
    if own > OWN_MIB_MAX {
        return LabError::wrong(format!("a daemon has {own} MiB of its own"));
    }
    let [link, _] = boxes.links()?;
    let (xdp, socket) = (link.xdp_mode, link.socket_mode);
    Ok(format!("{xdp}, {socket}; a daemon has {own} MiB, {} MiB are left", available_mib()?))
}

/// Mount point of the control groups; one group gets a limit.
const GROUPS: &str = "/sys/fs/cgroup";

/// Room of the group in addition to its current use.
const ROOM_BYTES: u64 = 4 << 20;

/// Allocates more inside the group than its room, less than two dataplane processes have, and is
/// itself exempt from the OOM killer.
const FILL: &str = "echo -1000 > /proc/self/oom_score_adj && echo $$ > $0/cgroup.procs && \
                    exec dd if=/dev/zero of=/run/fill/fill bs=1M count=16 status=none";

/// Timeout until the log reports the end of a process.
const SAID_PATIENCE: Duration = Duration::from_secs(120);

fn limit(guest: &Guest) -> Result<String, LabError> {
    let groups = Path::new(GROUPS);
    process::run(Command::new("mount").args(["-t", "cgroup2", "none", GROUPS]))?;
    put(&groups.join("cgroup.subtree_control"), "+memory")?;
    // Linux charges the pages of a program to the group that reads them first. It would reclaim
    // them from this group instead of ending a process, and read them again for minutes.
    guest.pair(Nic::Virtio)?.start(&Setup::default())?.carry()?;
    let group = groups.join("boxes");
    fs::create_dir(&group).map_err(LabError::file(&group))?;
    let this = std::process::id().to_string();
    put(&group.join("cgroup.procs"), &this)?;
    let boxes = guest.pair(Nic::Virtio)?.start(&Setup::default());
    put(&groups.join("cgroup.procs"), &this)?;
    let boxes = boxes?;
    boxes.carry()?;
    fs::create_dir("/run/fill").map_err(LabError::file(Path::new("/run/fill")))?;
    process::run(Command::new("mount").args(["-t", "tmpfs", "none", "/run/fill"]))?;
    let used = fs::read_to_string(group.join("memory.current")).unwrap_or_default();
    let used: u64 = used.trim().parse().unwrap_or(u64::MAX);
    put(&group.join("memory.max"), &used.saturating_add(ROOM_BYTES).to_string())?;
    process::run(Command::new("sh").args(["-c", FILL]).arg(&group))?;
    let deadline = Instant::now() + SAID_PATIENCE;
    let said = loop {
        let log = boxes.nodes().each_ref().map(Node::log).concat();
        if let Some(said) = log.lines().find(|line| line.contains("because memory ran out")) {
            break said.to_owned();
        }
        if Instant::now() > deadline {
            return LabError::wrong(format!("memory is not named: {}", process::tail(&log)));
        }
        std::thread::sleep(Duration::from_millis(200));
    };
    if !said.contains("give ") || !said.contains("`frames`") {
        return LabError::wrong(said);
    }
    process::run(Command::new("umount").arg("/run/fill"))?;
    put(&group.join("memory.max"), "max")?;
    boxes.carry()?;
    Ok("named; carries without the limit".into())
}

fn put(path: &Path, text: &str) -> Result<(), LabError> {
    fs::write(path, text).map_err(LabError::file(path))
}

/// Memory that programs can still get.
fn available_mib() -> Result<u64, LabError> {
    let path = Path::new("/proc/meminfo");
    let text = fs::read_to_string(path).map_err(LabError::file(path))?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib: Option<u64> = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    kib.map(|kib| kib >> 10).ok_or_else(|| LabError::Wrong("no MemAvailable".into()))
}
