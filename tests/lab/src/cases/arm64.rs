//! An arm64 box as an operator has it: Debian's kernel, the packages installed by dpkg, the daemon
//! started by systemd. netem drops packets at box b, whose UDP sockets do not bypass it.

use std::time::Duration;

use recoded_netns::{Namespace, process};
use serde_json::Value;

use super::faults::{INBOUND, shape, shape_inbound};
use super::{Case, Machine};
use crate::LabError;
use crate::guest::{Apart, Guest, INSIDE, PACKAGED, PACKAGES, Peer, Setup};
use crate::host::{Architecture, Kernel};
use crate::nic::Nic;

/// A pair for the link, and one for management.
pub const MACHINE: Machine = Machine {
    name: "arm64",
    kernel: Kernel::V6_12,
    nics: &[Nic::Virtio, Nic::E1000e],
    memory_mib: 768,
    peer: Some(Architecture::Arm64),
    modules: &["tun", "sch_netem", "ifb", "sch_ingress", "cls_matchall", "act_mirred"],
    seconds: 600,
    cases: &CASES,
    ..Machine::USUAL
};

const CASES: [Case; 1] = [Case {
    name: "arm64-packages-keys",
    shows: "on arm64 the packages are installed by dpkg, started by systemd, and carry at 10 % loss",
    run: packages,
}];

/// Share of packets that netem drops in each direction.
const LOSS: &str = "10%";

/// Bytes of the file that goes to box a and back, and pings from there.
const FILE_BYTES: usize = 1_000_000;
const PINGS: u32 = 5;

/// Timeout until the daemon carries again after a restart.
const AGAIN_PATIENCE: Duration = Duration::from_secs(60);

fn packages(guest: &Guest) -> Result<String, LabError> {
    let peer = guest.peer(&PACKAGED)?;
    let machine = peer.run("uname -m")?;
    if machine.trim() != "aarch64" {
        return LabError::wrong(format!("box a is {machine}"));
    }
    install(&peer)?;
    let of_b = Setup { backend: Some("udp"), stack: Some(with_losses), ..Setup::default() };
    let boxes = guest.apart_as(peer, &Setup::default(), &of_b)?;
    carry(&boxes)?;
    let link = first_link(&peer)?;
    peer.run("systemctl restart recoded 2>&1")?;
    let again = boxes.first_ping(AGAIN_PATIENCE)?.as_secs_f64();
    carry(&boxes)?;
    let state = peer.run("systemctl show --property=ActiveState,NRestarts --value recoded")?;
    // In systemd's order.
    if state.split_whitespace().collect::<Vec<_>>() != ["0", "active"] {
        return LabError::wrong(format!("the unit is {state}: {}", peer.log()));
    }
    let dropped = dropped(&boxes)?;
    Ok(format!("{link}; netem dropped {dropped:?}; a restart carries after {again:.1} s"))
}

/// Installs both packages in a Debian that has all their dependencies.
fn install(peer: &Peer) -> Result<(), LabError> {
    peer.run(&format!("dpkg --install {PACKAGES}/*.deb 2>&1"))?;
    let said = peer.run(
        "dpkg-query --show --showformat='${Status}\\n' recoded recoded-agent\n\
         getent passwd recoded >/dev/null && echo user\n\
         recoded --version >/dev/null && recodectl --version >/dev/null && echo runs\n\
         recoded-agent --version >/dev/null && echo agent",
    )?;
    let expected = ["install ok installed", "install ok installed", "user", "runs", "agent"];
    match said.lines().eq(expected) {
        true => Ok(()),
        false => LabError::wrong(format!("after the installation: {said}")),
    }
}

/// Pings in both directions, and a file in both directions.
fn carry(boxes: &Apart) -> Result<(), LabError> {
    boxes.carry_bytes(FILE_BYTES)?;
    boxes.peer.run(&format!(
        "for i in $(seq {PINGS}); do ping -q -c 1 -W 20 {INSIDE_B} || exit; done",
        INSIDE_B = INSIDE[1]
    ))?;
    Ok(())
}

/// Modes of the packaged daemon's link.
fn first_link(peer: &Peer) -> Result<String, LabError> {
    let shown = peer.run("recodectl --json show")?;
    let shown: Value = serde_json::from_str(&shown)
        .map_err(|error| LabError::Wrong(format!("recodectl shows no JSON: {error}")))?;
    let link = &shown["links"][0];
    let word = |key: &str| link[key].as_str().unwrap_or("none").to_owned();
    Ok(format!("{}, {}", word("xdp_mode"), word("socket_mode")))
}

/// Drops packets in both directions.
fn with_losses(host: &Namespace, card: &str, _: usize) -> Result<String, LabError> {
    let losses = ["limit", "10000", "loss", LOSS];
    shape(host, card, &[&["root", "netem"], &losses[..]].concat())?;
    shape_inbound(host, card, &losses)?;
    Ok(card.into())
}

/// Packets from and to box b that netem dropped.
fn dropped(boxes: &Apart) -> Result<[u64; 2], LabError> {
    let node = &boxes.node;
    let count = |interface: &str| {
        let mut show = node.namespace.command("tc");
        let said = process::run(show.args(["-s", "qdisc", "show", "dev", interface, "root"]))?;
        let words = said.split_once("(dropped ").map_or("", |(_, rest)| rest);
        match words.split(',').next().unwrap_or_default().parse::<u64>() {
            Ok(count) if count > 0 => Ok(count),
            _ => LabError::wrong(format!("netem dropped no packet: {said}")),
        }
    };
    Ok([count(&node.interface)?, count(INBOUND)?])
}
