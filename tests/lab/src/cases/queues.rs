//! A card with four queues: fewer workers serve all of them, and both TCP and datagrams of several
//! flows arrive.

use super::{Case, Machine};
use crate::LabError;
use crate::guest::{Guest, Setup};
use crate::host::Kernel;
use crate::nic::Nic;

/// Linux gives the card a queue for each processor.
const QUEUES: u32 = 4;

/// As many processors as queues.
pub const MACHINE: Machine = Machine {
    name: "queues",
    kernel: Kernel::Newest,
    nics: &[Nic::Igb],
    behind_iommu: &[],
    processors: QUEUES,
    memory_mib: 1536,
    disk_mib: 0,
    waits: false,
    has_peer: false,
    modules: &["tun"],
    seconds: 300,
    cases: &CASES,
};

const CASES: [Case; 2] = [
    Case {
        name: "igb-four-queues-one-worker",
        shows: "one worker serves four queues of igb, with zero copy: TCP and datagrams arrive",
        run: |guest| served(guest, "workers = 1"),
    },
    Case {
        name: "igb-four-queues-two-workers",
        shows: "two workers serve four queues of igb, with zero copy: TCP and datagrams arrive",
        run: |guest| served(guest, "workers = 2"),
    },
];

fn served(guest: &Guest, daemon: &'static str) -> Result<String, LabError> {
    let boxes = guest.pair(Nic::Igb)?.start(&Setup { daemon, ..Setup::default() })?;
    boxes.carry()?;
    boxes.carry_datagrams()?;
    let links = boxes.links()?;
    for link in &links {
        let served = (link.queues, link.xdp_mode.as_str(), link.socket_mode.as_str());
        if served != (u64::from(QUEUES), "native", "zero-copy") {
            return LabError::wrong(format!("the link has queues and modes {served:?}"));
        }
    }
    let received = links.map(|link| link.received_packets);
    Ok(format!("{QUEUES} queues, native, zero-copy; {received:?} packets received"))
}
