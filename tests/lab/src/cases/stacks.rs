//! Links on stacked interfaces, and faults of a path and of a card.

use recoded_netns::Namespace;

use super::faults::{flap, fq, fq_codel, netem, netem_rate};
use super::trial::Trial;
use super::{Case, Machine};
use crate::LabError;
use crate::guest::{Guest, Setup, Stack};
use crate::nic::Nic;

/// One pair of cards; each case sets up its interfaces on them.
pub const MACHINE: Machine = Machine {
    name: "stacks",
    nics: &[Nic::Virtio],
    memory_mib: 1536,
    modules: &[
        "tun",
        "sch_netem",
        "sch_fq",
        "sch_fq_codel",
        "sch_tbf",
        "sch_ingress",
        "cls_matchall",
        "act_mirred",
        "ifb",
        "veth",
        "8021q",
        "bonding",
        "bridge",
        "macvlan",
        "vrf",
    ],
    seconds: 1200,
    cases: &CASES,
    ..Machine::USUAL
};

const CASES: [Case; 17] = [
    Case {
        name: "vlan-auto",
        shows: "the default on a VLAN (802.1Q)",
        run: |guest| trial(None, ["none", "udp"], vlan).run(guest),
    },
    Case {
        name: "vlan-xdp",
        shows: "backend = \"xdp\" on a VLAN (802.1Q)",
        run: |guest| trial(Some("xdp"), ["generic", "copy"], vlan).run(guest),
    },
    Case {
        name: "bond-auto",
        shows: "the default on a bond (active-backup)",
        run: |guest| trial(None, ["none", "udp"], bond).run(guest),
    },
    Case {
        name: "bond-8023ad-auto",
        shows: "the default on a bond (802.3ad) whose members agreed by LACP",
        run: |guest| aggregated(guest, None),
    },
    Case {
        name: "bridge-auto",
        shows: "the default on a bridge",
        run: |guest| trial(None, ["none", "udp"], bridge).run(guest),
    },
    Case {
        name: "bridge-xdp",
        shows: "backend = \"xdp\" on a bridge",
        run: |guest| trial(Some("xdp"), ["generic", "copy"], bridge).run(guest),
    },
    Case {
        name: "macvlan-auto",
        shows: "the default on a macvlan",
        run: |guest| trial(None, ["none", "udp"], macvlan).run(guest),
    },
    Case {
        name: "macvlan-xdp",
        shows: "backend = \"xdp\" on a macvlan",
        run: |guest| trial(Some("xdp"), ["generic", "copy"], macvlan).run(guest),
    },
    Case {
        name: "vrf-auto",
        shows: "the default on an interface in a VRF",
        run: |guest| trial(None, ["native", "copy"], vrf).reason("zero").run(guest),
    },
    Case {
        name: "vrf-udp",
        shows: "UDP sockets on an interface in a VRF",
        run: |guest| trial(Some("udp"), ["none", "udp"], vrf).run(guest),
    },
    Case {
        name: "netem-loss",
        shows: "UDP sockets over 10 % of loss and 10 ms by netem; the measured loss agrees",
        run: netem,
    },
    Case {
        name: "netem-rate",
        shows: "20 ms and 10 Mbit/s by netem: round trips and TCP inside agree with plain, the bed too",
        run: netem_rate,
    },
    Case {
        name: "fq-rate",
        shows: "fq on the card, 20 ms and 10 Mbit/s by netem: round trips and TCP agree with plain",
        run: fq,
    },
    Case {
        name: "fq-codel-rate",
        shows: "fq_codel behind a shaper of 10 Mbit/s: round trips and TCP agree with plain",
        run: fq_codel,
    },
    Case {
        name: "flap-xdp",
        shows: "AF_XDP sockets carry again when the card was down for 3 s",
        run: |guest| flap(guest, Nic::Virtio, "xdp"),
    },
    Case {
        name: "flap-udp",
        shows: "UDP sockets carry again when the card was down for 3 s",
        run: |guest| flap(guest, Nic::Virtio, "udp"),
    },
    Case {
        name: "bond-xdp",
        shows: "backend = \"xdp\" on a bond is refused, with the cause",
        run: bond_refused,
    },
];

fn trial(backend: Option<&'static str>, modes: [&'static str; 2], stack: Stack) -> Trial {
    Trial::new(Nic::Virtio, backend, modes).stack(stack)
}

/// A bond carries traffic without LACP, too, so Linux is queried for the agreement.
fn aggregated(guest: &Guest, backend: Option<&'static str>) -> Result<String, LabError> {
    let setup = Setup { backend, stack: Some(bond_lacp), ..Setup::default() };
    let boxes = guest.pair(Nic::Virtio)?.start(&setup)?;
    boxes.carry()?;
    let [a, _] = boxes.nodes();
    let shown = a.namespace.run("cat", "/proc/net/bonding/bond7")?;
    let partner = shown.lines().find_map(|line| line.trim().strip_prefix("Partner Mac Address: "));
    let link = a.link()?;
    match partner {
        Some(partner) if partner != NO_PARTNER && link.socket_mode == "udp" => {
            Ok(format!("{}, {}; partner {partner}", link.xdp_mode, link.socket_mode))
        }
        _ => LabError::wrong(format!("{}, partner {partner:?}: {shown}", link.socket_mode)),
    }
}

/// Address that Linux shows for a member without a partner.
const NO_PARTNER: &str = "00:00:00:00:00:00";

/// Packets arrive on queues of the members, which sockets of the bond do not serve.
fn bond_refused(guest: &Guest) -> Result<String, LabError> {
    match trial(Some("xdp"), ["", ""], bond).run(guest) {
        Err(LabError::Wrong(reason)) if reason.contains("`bond7` is a bond") => {
            Ok("refused in words".into())
        }
        Err(error) => Err(error),
        Ok(modes) => LabError::wrong(format!("it was not refused: {modes}")),
    }
}

fn vlan(host: &Namespace, card: &str, _: usize) -> Result<String, LabError> {
    host.ip(&format!("link set {card} up"))?;
    host.ip(&format!("link add link {card} name vlan7 type vlan id 7"))?;
    Ok("vlan7".into())
}

fn bond(host: &Namespace, card: &str, _: usize) -> Result<String, LabError> {
    host.ip("link add bond7 type bond mode active-backup miimon 100")?;
    host.ip(&format!("link set {card} master bond7"))?;
    Ok("bond7".into())
}

fn bond_lacp(host: &Namespace, card: &str, _: usize) -> Result<String, LabError> {
    host.ip("link add bond7 type bond mode 802.3ad miimon 100 lacp_rate fast")?;
    // virtio-net reports no speed, and members without one are not aggregated.
    host.run("ethtool", &format!("-s {card} speed 1000 duplex full"))?;
    host.ip(&format!("link set {card} master bond7"))?;
    Ok("bond7".into())
}

fn bridge(host: &Namespace, card: &str, _: usize) -> Result<String, LabError> {
    host.ip("link add bridge7 type bridge")?;
    host.ip(&format!("link set {card} master bridge7"))?;
    host.ip(&format!("link set {card} up"))?;
    Ok("bridge7".into())
}

fn macvlan(host: &Namespace, card: &str, _: usize) -> Result<String, LabError> {
    host.ip(&format!("link set {card} up"))?;
    host.ip(&format!("link add link {card} name mac7 type macvlan mode bridge"))?;
    // Otherwise the card also answers ARP requests for mac7's address, and has no program.
    host.sysctl("net.ipv4.conf.all.arp_ignore", "1")?;
    Ok("mac7".into())
}

fn vrf(host: &Namespace, card: &str, _: usize) -> Result<String, LabError> {
    host.ip("link add red type vrf table 10")?;
    host.ip("link set red up")?;
    host.ip(&format!("link set {card} master red"))?;
    Ok(card.into())
}
