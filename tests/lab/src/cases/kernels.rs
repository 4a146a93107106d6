//! Older kernels: the XDP objects load and verify, and two boxes ping. All NICs run on the newest
//! one.

use super::trial::Trial;
use super::{Case, Machine};
use crate::LabError;
use crate::guest::Guest;
use crate::host::Kernel;
use crate::nic::Nic;

/// Linux 5.4: AF_XDP sockets need 5.10.
pub const V5_4: Machine = Machine {
    name: "linux-5.4",
    kernel: Kernel::V5_4,
    cases: &[
        Case {
            name: "linux-5.4-auto",
            shows: "the default is UDP sockets, which carry; the reason names 5.10",
            run: |guest| Trial::new(Nic::Virtio, None, ["none", "udp"]).reason("5.10").run(guest),
        },
        Case {
            name: "linux-5.4-xdp",
            shows: "backend = \"xdp\" is refused, with the version that it needs",
            run: xdp_refused,
        },
    ],
    ..MACHINE
};

/// What the verifier of an old Linux says of a program is longer than a message of the daemon.
fn xdp_refused(guest: &Guest) -> Result<String, LabError> {
    match Trial::new(Nic::Virtio, Some("xdp"), ["", ""]).run(guest) {
        Err(LabError::Wrong(reason)) if reason.contains("use Linux 5.10 or newer") => {
            Ok("refused in words".into())
        }
        Err(error) => Err(error),
        Ok(modes) => LabError::wrong(format!("it was not refused: {modes}")),
    }
}

/// Linux 5.10.
pub const V5_10: Machine = Machine {
    name: "linux-5.10",
    kernel: Kernel::V5_10,
    cases: &[
        Case {
            name: "linux-5.10-xdp",
            shows: "the XDP objects load and verify; AF_XDP sockets carry",
            run: |guest| {
                Trial::new(Nic::Virtio, Some("xdp"), ["native", "copy"]).reason("zero").run(guest)
            },
        },
        Case {
            name: "linux-5.10-udp",
            shows: "UDP sockets carry",
            run: |guest| Trial::new(Nic::Virtio, Some("udp"), ["none", "udp"]).run(guest),
        },
    ],
    ..MACHINE
};

/// Linux 6.1.
pub const V6_1: Machine = Machine {
    name: "linux-6.1",
    kernel: Kernel::V6_1,
    cases: &[
        Case {
            name: "linux-6.1-xdp",
            shows: "the XDP objects load and verify; AF_XDP sockets carry",
            run: |guest| {
                Trial::new(Nic::Virtio, Some("xdp"), ["native", "copy"]).reason("zero").run(guest)
            },
        },
        Case {
            name: "linux-6.1-udp",
            shows: "UDP sockets carry",
            run: |guest| Trial::new(Nic::Virtio, Some("udp"), ["none", "udp"]).run(guest),
        },
    ],
    ..MACHINE
};

/// Linux 6.12.
pub const V6_12: Machine = Machine {
    name: "linux-6.12",
    kernel: Kernel::V6_12,
    cases: &[Case {
        name: "linux-6.12-xdp",
        shows: "the XDP objects load and verify; AF_XDP sockets carry",
        run: |guest| {
            Trial::new(Nic::Virtio, Some("xdp"), ["native", "copy"]).reason("zero").run(guest)
        },
    }],
    ..MACHINE
};

const MACHINE: Machine =
    Machine { name: "", nics: &[Nic::Virtio], seconds: 240, cases: &[], ..Machine::USUAL };
