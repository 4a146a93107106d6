//! Drivers of NICs: each backend carries pings and TCP in both directions over each of them, and
//! `show` reports the modes in use and the reasons for them.

use std::time::{Duration, Instant};

use recoded_api::v1::Link;

use super::trial::Trial;
use super::{Case, Machine};
use crate::LabError;
use crate::guest::{Guest, Setup};
use crate::nic::Nic;

/// Two of each card.
pub const MACHINE: Machine = Machine {
    name: "nics",
    nics: &[Nic::Igb, Nic::Virtio, Nic::VirtioIommu, Nic::Vmxnet3, Nic::E1000e],
    processors: 2,
    memory_mib: 2048,
    cases: &CASES,
    ..Machine::USUAL
};

const CASES: [Case; 9] = [
    Case {
        name: "igb-auto",
        shows: "the default on igb is native XDP with zero copy",
        run: |guest| Trial::new(Nic::Igb, None, ["native", "zero-copy"]).run(guest),
    },
    Case {
        name: "igb-udp",
        shows: "UDP sockets on igb, which loses bursts that it segments, send packets one by one",
        run: lost_bursts,
    },
    Case {
        name: "virtio-auto",
        shows: "the default on virtio-net without iommu_platform",
        run: |guest| Trial::new(Nic::Virtio, None, ["native", "copy"]).reason("zero").run(guest),
    },
    Case {
        name: "virtio-udp",
        shows: "UDP sockets on virtio-net",
        run: |guest| Trial::new(Nic::Virtio, Some("udp"), ["none", "udp"]).run(guest),
    },
    Case {
        name: "virtio-iommu-auto",
        shows: "the default on virtio-net with iommu_platform is zero copy",
        run: |guest| Trial::new(Nic::VirtioIommu, None, ["native", "zero-copy"]).run(guest),
    },
    Case {
        name: "vmxnet3-auto",
        shows: "the default on vmxnet3 is native XDP, copied",
        run: |guest| Trial::new(Nic::Vmxnet3, None, ["native", "copy"]).reason("zero").run(guest),
    },
    Case {
        name: "vmxnet3-udp",
        shows: "UDP sockets on vmxnet3",
        run: |guest| Trial::new(Nic::Vmxnet3, Some("udp"), ["none", "udp"]).run(guest),
    },
    Case {
        name: "e1000e-auto",
        shows: "the default on e1000e, whose driver has no XDP, is UDP sockets, with reason",
        run: |guest| Trial::new(Nic::E1000e, None, ["none", "udp"]).reason("native").run(guest),
    },
    Case {
        name: "e1000e-xdp",
        shows: "backend = \"xdp\" on e1000e: generic, copied, with reason",
        run: |guest| {
            Trial::new(Nic::E1000e, Some("xdp"), ["generic", "copy"]).reason("native").run(guest)
        },
    },
];

/// Timeout for both boxes to detect, under TCP, that bursts are lost.
const FOUND_OUT_PATIENCE: Duration = Duration::from_secs(300);

/// Links that lose bursts but not single packets carry traffic once only single packets are sent.
fn lost_bursts(guest: &Guest) -> Result<String, LabError> {
    let setup = Setup { backend: Some("udp"), ..Setup::default() };
    let boxes = guest.pair(Nic::Igb)?.start(&setup)?;
    let began = Instant::now();
    let has_ended =
        |link: &Link| link.faults.get("tx_bursts_ended").is_some_and(|times| *times > 0);
    while !boxes.links()?.iter().all(has_ended) {
        if began.elapsed() > FOUND_OUT_PATIENCE {
            return LabError::wrong(format!("bursts are sent still: {:?}", boxes.links()));
        }
        boxes.load();
    }
    let took = began.elapsed().as_secs_f64();
    boxes.carry()?;
    let [a, b] = boxes.links()?;
    if ![&a, &b].iter().all(|link| link.reason.contains("segmented bursts do not arrive")) {
        return LabError::wrong(format!("reasons '{}' and '{}'", a.reason, b.reason));
    }
    Ok(format!("{}, {}; bursts ended within {took:.1} s", a.xdp_mode, a.socket_mode))
}
