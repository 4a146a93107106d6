//! All cases, grouped by machine. One boot takes longer than most cases, so cases of one kernel
//! share a machine.

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

use crate::LabError;
use crate::guest::Guest;
use crate::host::{Architecture, Kernel};
use crate::nic::Nic;

/// A case: a name, a line for the list, and the function that runs in the guest. It returns a few
/// words about the result.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Unique name. `scripts/lab igb` runs each case whose name begins with `igb-`, too.
    pub name: &'static str,
    /// Property that a passed case demonstrates.
    pub shows: &'static str,
    /// The case itself.
    pub run: fn(&Guest) -> Result<String, LabError>,
}

/// A virtual machine.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// Unique name, as in names of log files.
    pub name: &'static str,
    /// The kernel that it boots.
    pub kernel: Kernel,
    /// Two of each, joined by a dedicated hub.
    pub nics: &'static [Nic],
    /// QEMU's names of devices on its first bus, with properties. With one, all devices of the
    /// machine are behind an IOMMU.
    pub behind_iommu: &'static [&'static str],
    /// Processors.
    pub processors: u32,
    /// Memory in MiB.
    pub memory_mib: u32,
    /// Size of a dedicated disk in MiB, which outlives a reset; 0 for none.
    pub disk_mib: u64,
    /// Whether its cases mostly wait. It then runs in parallel with the others.
    pub waits: bool,
    /// Architecture of the separate machine of box a, if it has one. On amd64, that machine has the
    /// programs of this host. On arm64, it has a small Debian, where a case installs the packages.
    pub peer: Option<Architecture>,
    /// Modules to load in addition to those of the cards and of the shared folders.
    pub modules: &'static [&'static str],
    /// Timeout for the boot and all cases, after which the machine is killed.
    pub seconds: u64,
    /// The cases that run in it, one after the other.
    pub cases: &'static [Case],
}

impl Machine {
    /// The values of most machines.
    pub const USUAL: Machine = Machine {
        name: "",
        kernel: Kernel::Newest,
        nics: &[],
        behind_iommu: &[],
        processors: 1,
        memory_mib: 1024,
        disk_mib: 0,
        waits: false,
        peer: None,
        modules: &["tun"],
        seconds: 900,
        cases: &[],
    };
}

/// Every machine.
pub static MACHINES: &[Machine] = &[
    queues::MACHINE,
    nics::MACHINE,
    kernels::V5_4,
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

/// The table of cases of README.md, which `scripts/lab` shows without a build.
pub fn table() -> String {
    let mut text = String::from("| case | Linux | shows |\n|---|---|---|\n");
    for (machine, case) in all() {
        let kernel = machine.kernel.name();
        text.push_str(&format!("| `{}` | {kernel} | {} |\n", case.name, case.shows));
    }
    text
}
