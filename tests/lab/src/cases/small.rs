//! A box with little memory.

use std::fs;
use std::path::Path;

use super::{Case, Machine, Nic};
use crate::LabError;
use crate::guest::{Guest, Setup};
use crate::host::Kernel;

/// Little memory for two boxes.
pub const MACHINE: Machine = Machine {
    name: "small",
    kernel: Kernel::V6_12,
    nics: &[Nic::Virtio],
    behind_iommu: &[],
    processors: 1,
    memory_mib: 224,
    disk_mib: 0,
    waits: false,
    has_peer: false,
    modules: &["tun"],
    seconds: 240,
    cases: &CASES,
};

const CASES: [Case; 1] = [Case {
    name: "small-memory",
    shows: "two daemons with the default configuration in 224 MiB, kernel and all",
    run: small,
}];

/// Most that a daemon may have of its own: packet buffers of 37 MiB, and the program.
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

/// Memory that programs can still get.
fn available_mib() -> Result<u64, LabError> {
    let path = Path::new("/proc/meminfo");
    let text = fs::read_to_string(path).map_err(LabError::file(path))?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib: Option<u64> = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    kib.map(|kib| kib >> 10).ok_or_else(|| LabError::Wrong("no MemAvailable".into()))
}
