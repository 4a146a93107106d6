//! All cases, by the machine that they share. One boot takes longer than most cases, so cases of
//! one kernel share a machine.

mod apart;
mod arm64;
mod clock;
mod faults;
mod hardware;
mod iommu;
mod kernels;
mod nics;
mod queues;
mod small;
mod stacks;
mod trial;
mod tunnels;

use serde_json::{Value, json};

use crate::LabError;
use crate::guest::Guest;
use crate::host::{Architecture, Kernel};

/// A case: a name, a line for the list, and the function that runs in the guest. It returns a few
/// words about the result.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Unique name. `scripts/lab igb` runs each case whose name begins with `igb-`, too.
    pub name: &'static str,
    /// What a passed case shows.
    pub shows: &'static str,
    /// The case itself.
    pub run: fn(&Guest) -> Result<String, LabError>,
}

/// A network interface card that QEMU emulates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Nic {
    /// Intel 82576: several queues, RSS, zero copy.
    Igb,
    /// virtio-net as most hosts configure it.
    Virtio,
    /// virtio-net behind an IOMMU, which zero copy needs.
    VirtioIommu,
    /// VMware's.
    Vmxnet3,
    /// Intel 82574: the driver has no XDP.
    E1000e,
}

impl Nic {
    /// QEMU's name for the device, and its properties.
    fn device(self) -> Value {
        match self {
            Nic::Igb => json!({ "driver": "igb" }),
            Nic::Virtio => json!({ "driver": "virtio-net-pci", "disable-legacy": "on" }),
            Nic::VirtioIommu => json!({
                "driver": "virtio-net-pci", "disable-legacy": "on", "iommu_platform": true,
            }),
            Nic::Vmxnet3 => json!({ "driver": "vmxnet3" }),
            Nic::E1000e => json!({ "driver": "e1000e" }),
        }
    }

    /// Name of the driver's module.
    pub fn driver(self) -> &'static str {
        match self {
            Nic::Igb => "igb",
            Nic::Virtio | Nic::VirtioIommu => "virtio_net",
            Nic::Vmxnet3 => "vmxnet3",
            Nic::E1000e => "e1000e",
        }
    }

    /// The device at one end of a pair with this number, as QEMU's `-device` and the command
    /// `device_add` have it.
    pub fn plug(self, pair: usize, end: usize) -> Value {
        let mut device = self.device();
        device["id"] = card(pair, end).into();
        device["bus"] = port(pair, end).into();
        device["mac"] = mac(pair, end).into();
        device["netdev"] = netdev(pair, end).into();
        device["romfile"] = "".into();
        device
    }
}

/// QEMU's name for the card at one end of a pair.
pub fn card(pair: usize, end: usize) -> String {
    format!("{}-device", netdev(pair, end))
}

/// QEMU's name for the port of a hub at one end of a pair.
pub fn netdev(pair: usize, end: usize) -> String {
    format!("nic{pair}{}", ["a", "b"][end])
}

/// QEMU's name for the slot of a card.
pub fn port(pair: usize, end: usize) -> String {
    format!("port{}", 2 * pair + end + 1)
}

/// A virtual machine.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// Unique name, as in names of log files.
    pub name: &'static str,
    /// The kernel that it boots.
    pub kernel: Kernel,
    /// Two of each, joined by a hub of their own.
    pub nics: &'static [Nic],
    /// QEMU's names of devices on its first bus, with properties. With one, all devices of the
    /// machine are behind an IOMMU.
    pub behind_iommu: &'static [&'static str],
    /// Processors.
    pub processors: u32,
    /// Memory in MiB.
    pub memory_mib: u32,
    /// Size of a disk of its own in MiB, which outlives a reset; 0 for none.
    pub disk_mib: u64,
    /// Whether its cases mostly wait. It then runs beside the others.
    pub waits: bool,
    /// The architecture of the machine of its own that box a is in, if it is. On amd64 that has the
    /// programs of this host; on arm64 it has a small Debian, in which the packages are installed.
    pub peer: Option<Architecture>,
    /// Modules to load, besides those of the cards and of the shared folders.
    pub modules: &'static [&'static str],
    /// Time for the boot and all cases. A machine that takes longer is ended.
    pub seconds: u64,
    /// The cases that run in it, one after the other.
    pub cases: &'static [Case],
}

/// Every machine.
pub static MACHINES: &[Machine] = &[
    nics::MACHINE,
    queues::MACHINE,
    kernels::V5_10,
    kernels::V6_1,
    kernels::V6_12,
    stacks::MACHINE,
    tunnels::MACHINE,
    iommu::MACHINE,
    hardware::MACHINE,
    clock::MACHINE,
    small::MACHINE,
    apart::MACHINE,
    arm64::MACHINE,
];

/// Every case with its machine.
pub fn all() -> impl Iterator<Item = (&'static Machine, &'static Case)> {
    MACHINES.iter().flat_map(|machine| machine.cases.iter().map(move |case| (machine, case)))
}

/// The MAC address of interface 0 or 1 of the pair with this number.
pub fn mac(pair: usize, end: usize) -> String {
    format!("52:54:00:00:{:02x}:{:02x}", pair + 1, end + 1)
}

/// The table of cases of README.md, which `scripts/lab` shows without a build.
pub fn table() -> String {
    let mut text = String::from("| case | Linux | shows |\n|---|---|---|\n");
    for (machine, case) in all() {
        let kernel = machine.kernel.name();
        text.push_str(&format!("| `{}` | {kernel} | {} |\n", case.name, case.shows));
    }
    text
}
