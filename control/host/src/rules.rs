//! Derives findings from a plan and the facts about the host.

use crate::facts::{Face, Facts, shares_prefix};
use crate::finding::{by, error, warning};
use crate::{Finding, HostPlan, Link, Sockets, exit, fit, unit};
use std::net::IpAddr;

/// The oldest Linux with all system calls of the daemon.
const LINUX_MIN: (u32, u32) = (5, 4);

/// The oldest Linux with all XDP features that links with AF_XDP sockets use. A test of the daemon
/// compares it with what links choose by.
pub const LINUX_MIN_XDP: (u32, u32) = (5, 10);

/// Bits of capabilities, as in capability.h.
const NET_ADMIN: u32 = 12;
const NET_RAW: u32 = 13;
const IPC_LOCK: u32 = 14;
const SYS_ADMIN: u32 = 21;
const SYS_RESOURCE: u32 = 24;
const PERFMON: u32 = 38;
const BPF: u32 = 39;

/// All findings, errors first.
pub fn judge(plan: &HostPlan, facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    host(plan, facts, &mut findings);
    for link in &plan.links {
        self::link(plan, facts, link, &mut findings);
    }
    fit::judge(plan, facts, &mut findings);
    exit::judge(plan, facts, &mut findings);
    for tunnel in &plan.tunnels {
        if !plan.is_running && facts.faces.iter().any(|face| face.name == *tunnel) {
            findings.push(error(
                format!("tunnel {tunnel}"),
                "an interface of this name exists already".into(),
                format!("choose another name, or remove it (ip link delete {tunnel})"),
            ));
        }
    }
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.level));
    findings
}

/// A finding if Linux is too old for all links, or for those with AF_XDP sockets.
fn old_linux(version: (u32, u32), needs_xdp: bool) -> Option<Finding> {
    let (major, minor) = version;
    let is_known = version != (0, 0);
    if is_known && version < LINUX_MIN {
        let cause = format!("Linux {major}.{minor} is too old for recoded");
        Some(error("host".into(), cause, "use Linux 5.10 or newer".into()))
    } else if is_known && version < LINUX_MIN_XDP && needs_xdp {
        let cause = format!("Linux {major}.{minor} is too old for links with AF_XDP sockets");
        let cure = "use Linux 5.10 or newer, or set backend = \"udp\" in each [[link]]";
        Some(error("host".into(), cause, cure.into()))
    } else {
        None
    }
}

fn host(plan: &HostPlan, facts: &Facts, findings: &mut Vec<Finding>) {
    let needs_xdp = plan.links.iter().any(|link| link.sockets == Sockets::Xdp);
    findings.extend(old_linux(facts.linux, needs_xdp));
    if needs_xdp && facts.has_af_xdp == Some(false) {
        let cause = "this Linux has no AF_XDP sockets".into();
        let cure = "use one with CONFIG_XDP_SOCKETS, or set backend = \"udp\" in each [[link]]";
        findings.push(error("host".into(), cause, cure.into()));
    }
    if !plan.tunnels.is_empty() && !facts.has_tun {
        let cause = "/dev/net/tun is missing, so there are no tunnels".into();
        let missing = error("host".into(), cause, "load the module (modprobe tun)".into());
        findings.push(by(missing, "modprobe tun"));
    }
    let has = |bit: u32| facts.capabilities >> bit & 1 == 1;
    let wanted = [
        ("CAP_NET_ADMIN", has(NET_ADMIN) || !needs_xdp && plan.tunnels.is_empty()),
        ("CAP_NET_RAW", has(NET_RAW) || !needs_xdp),
        ("CAP_BPF", has(BPF) || has(SYS_ADMIN) || !needs_xdp),
        // Without it, the verifier rejects pointer arithmetic on packets.
        ("CAP_PERFMON", has(PERFMON) || has(SYS_ADMIN) || !needs_xdp),
    ];
    let missing = wanted.into_iter().filter(|(_, has)| !has).map(|(name, _)| name);
    let missing: Vec<&str> = missing.collect();
    if !missing.is_empty() && !plan.is_running {
        findings.push(warning(
            "host".into(),
            format!("this user lacks {}, without which recoded does not start", missing.join(", ")),
            if needs_xdp {
                "start it as root or by its unit, or set backend = \"udp\" in each [[link]]; this \
                 check knows less without"
            } else {
                "start it as root or by its unit, for its tunnels"
            }
            .into(),
        ));
    }
    if !has(NET_ADMIN) && plan.links.iter().any(|link| link.sockets == Sockets::Udp) {
        socket_buffers(plan, facts, findings);
    }
    let is_bounded = !has(IPC_LOCK) && !has(SYS_RESOURCE) && missing.is_empty();
    if let Some(limit) = facts.memlock_bytes
        && is_bounded
        && needs_xdp
        && limit < plan.locked_bytes
    {
        findings.push(warning(
            "host".into(),
            format!(
                "{limit} bytes may be locked in memory, and packet buffers take {}",
                plan.locked_bytes
            ),
            "raise the limit (ulimit -l, LimitMEMLOCK= of the unit) or lower frames".into(),
        ));
    }
    if let Some(limit) = facts.unit_memlock_bytes.filter(|limit| *limit < plan.locked_bytes)
        && needs_xdp
    {
        let (unit, wanted) = (unit::UNIT, plan.locked_bytes);
        let found = warning(
            "host".into(),
            format!("{unit} may lock {limit} bytes in memory, and packet buffers take {wanted}"),
            "set LimitMEMLOCK=infinity in a drop-in, which holds from its next start on".into(),
        );
        findings.push(Finding { mend: unit::mend(), ..found });
    }
}

/// Buffers of UDP sockets; a program with CAP_NET_ADMIN may exceed the limits.
fn socket_buffers(plan: &HostPlan, facts: &Facts, findings: &mut Vec<Finding>) {
    let Some(wanted) = plan.socket_bytes else { return };
    let limits = ["net.core.rmem_max", "net.core.wmem_max"].into_iter().zip(facts.socket_bytes_max);
    for (name, limit) in limits {
        let Some(limit) = limit.filter(|limit| *limit < wanted) else { continue };
        let cause = format!("{name} = {limit} bounds socket buffers, which should have {wanted}");
        let cure = format!(
            "set it (sysctl -w {name}={wanted}, and in /etc/sysctl.d for the next boot), or bursts \
             are dropped"
        );
        let found = warning("host".into(), cause, cure);
        findings.push(by(found, &format!("sysctl -q -w {name}={wanted}")));
    }
}

fn link(plan: &HostPlan, facts: &Facts, link: &Link, findings: &mut Vec<Finding>) {
    let subject = || format!("link {}", link.name);
    let interface = &link.interface;
    let Some(face) = facts.faces.iter().find(|face| face.name == *interface) else {
        let mut names: Vec<&str> = facts.faces.iter().map(|face| face.name.as_str()).collect();
        names.truncate(16);
        findings.push(warning(
            subject(),
            format!("waits for {interface}: there is no such interface in this network namespace"),
            format!("plug it in, or correct interface; there are {}", names.join(", ")),
        ));
        return;
    };
    if link.sockets == Sockets::Xdp && !face.is_ethernet {
        findings.push(error(
            subject(),
            format!("packets of {interface} have no Ethernet header, which AF_XDP sockets need"),
            "set backend = \"udp\" in its [[link]], or leave backend out".into(),
        ));
    }
    if !face.is_up {
        let cause = format!("{interface} is down");
        let down = error(subject(), cause, format!("set it up (ip link set {interface} up)"));
        findings.push(by(down, &format!("ip link set dev {interface} up")));
    } else if !face.has_carrier {
        let cause = format!("{interface} has no carrier");
        findings.push(warning(subject(), cause, "see the cable and the other end".into()));
    }
    if let Some(most) = plan.packet_bytes_max.filter(|most| face.mtu > *most) {
        findings.push(warning(
            subject(),
            format!(
                "packets above {most} bytes are not received; {interface} has MTU {}",
                face.mtu
            ),
            format!("lower it (ip link set {interface} mtu 1500) unless all neighbours send less"),
        ));
    }
    if link.sockets != Sockets::Udp {
        program(plan, face, link, findings);
    }
    if link.sockets == Sockets::Xdp && face.is_bond {
        findings.push(error(
            subject(),
            format!("{interface} is a bond, whose packets arrive on the queues of its members"),
            "set backend = \"udp\" in its [[link]], or make a member its interface".into(),
        ));
    }
    local(facts, face, link, findings);
    for neighbour in &link.neighbours {
        self::neighbour(facts, face, link, *neighbour, findings);
    }
}

fn program(plan: &HostPlan, face: &Face, link: &Link, findings: &mut Vec<Finding>) {
    let (Some(id), name) = (face.program, &face.name) else { return };
    if plan.is_running {
        return;
    }
    let cause = format!("an XDP program ({id}) of another owner is attached to {name}");
    let cure = format!(
        "stop its owner (bpftool net show dev {name}); if it was attached by ip, ip link set \
         {name} xdp off"
    );
    let subject = format!("link {}", link.name);
    findings.push(match link.sockets {
        Sockets::Either => {
            warning(subject, format!("{cause}, so that UDP sockets will be used"), cure)
        }
        _ => error(subject, cause, cure),
    });
}

fn local(facts: &Facts, face: &Face, link: &Link, findings: &mut Vec<Finding>) {
    let here = facts.addresses.iter().filter(|own| own.index == face.index);
    let here: Vec<IpAddr> = here.map(|own| own.address).collect();
    let Some(local) = link.local else {
        let is_ipv4 = link.neighbours.first().is_none_or(IpAddr::is_ipv4);
        if !here.iter().any(|own| own.is_ipv4() == is_ipv4) {
            let family = if is_ipv4 { "IPv4" } else { "IPv6" };
            let cause = format!("waits for an address: {} has no {family} address", face.name);
            findings.push(warning(format!("link {}", link.name), cause, "give it one".into()));
        }
        return;
    };
    if here.contains(&local) {
        return;
    }
    let has: Vec<String> = here.iter().map(IpAddr::to_string).collect();
    let has = if has.is_empty() { "none".to_owned() } else { has.join(", ") };
    let elsewhere = facts.addresses.iter().find(|own| own.address == local);
    let elsewhere = elsewhere.and_then(|own| facts.faces.iter().find(|it| it.index == own.index));
    let elsewhere = elsewhere.map(|it| format!(", but of {}", it.name)).unwrap_or_default();
    findings.push(error(
        format!("link {}", link.name),
        format!("local = {local} is no address of {}{elsewhere}; it has {has}", face.name),
        format!(
            "correct local or interface, or give it the address (ip address add {local}/24 dev {})",
            face.name
        ),
    ));
}

fn neighbour(
    facts: &Facts,
    face: &Face,
    link: &Link,
    address: IpAddr,
    findings: &mut Vec<Finding>,
) {
    let subject = || format!("link {}", link.name);
    if facts.addresses.iter().any(|own| own.address == address) {
        let cause = format!("neighbour {address} is this host itself");
        findings.push(error(subject(), cause, "write the address of the other host".into()));
        return;
    }
    let own = facts.addresses.iter().filter(|own| own.index == face.index);
    let is_on_link = own.clone().any(|own| shares_prefix(own.address, address, own.prefix));
    let routes = facts.routes.iter().filter(|route| route.index == face.index);
    let is_routed = routes.clone().any(|route| shares_prefix(route.to, address, route.prefix));
    // Without a route, Linux still sends IPv4 packets through the interface, and no neighbour need
    // be resolved first.
    let needs_route = face.is_ethernet || address.is_ipv6();
    if !is_on_link && !is_routed && needs_route {
        findings.push(error(
            subject(),
            format!("there is no route out of {} to neighbour {address}", face.name),
            format!(
                "correct the address, or add a route (ip route add {address} dev {}, or via a router)",
                face.name
            ),
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Address, Level, Route, Surroundings};

    fn plan() -> HostPlan {
        HostPlan {
            links: vec![Link {
                name: "west".into(),
                interface: "eth0".into(),
                local: Some([10, 0, 1, 2].into()),
                neighbours: vec![[10, 0, 1, 1].into()],
                sockets: Sockets::Xdp,
            }],
            tunnels: vec!["rec0".into()],
            networks: Vec::new(),
            exits: Vec::new(),
            port: Some(9426),
            locked_bytes: 32 << 20,
            socket_bytes: Some(4 << 20),
            packet_bytes_max: Some(1778),
            is_running: false,
        }
    }

    fn face(name: &str, index: u32) -> Face {
        Face {
            name: name.into(),
            index,
            is_ethernet: true,
            is_up: true,
            has_carrier: true,
            mtu: 1500,
            program: None,
            is_bond: false,
            macvlan_parent: None,
        }
    }

    fn facts() -> Facts {
        let address =
            |index, address: [u8; 4]| Address { index, address: address.into(), prefix: 24 };
        Facts {
            faces: vec![face("eth0", 2), face("eth1", 3)],
            addresses: vec![address(2, [10, 0, 1, 2]), address(3, [10, 0, 2, 2])],
            routes: Vec::new(),
            memlock_bytes: None,
            unit_memlock_bytes: None,
            socket_bytes_max: [Some(4 << 20); 2],
            capabilities: u64::MAX,
            linux: (6, 1),
            has_af_xdp: Some(true),
            has_tun: true,
            surroundings: Surroundings::default(),
        }
    }

    /// The only finding, which must exist with severity `level`.
    fn only(plan: &HostPlan, facts: &Facts, level: Level) -> String {
        let findings = judge(plan, facts);
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert_eq!(findings[0].level, level, "{findings:?}");
        assert!(!findings[0].cure.is_empty());
        format!("{}: {}: {}", findings[0].subject, findings[0].cause, findings[0].cure)
    }

    #[test]
    fn host_as_it_should_be_has_no_findings() {
        assert_eq!(judge(&plan(), &facts()), []);
    }

    /// The limits apply only to programs without CAP_NET_ADMIN.
    #[test]
    fn small_socket_buffers_are_found_for_udp_without_privileges() {
        let mut plan = plan();
        let mut there = facts();
        (plan.tunnels, there.socket_bytes_max) = (Vec::new(), [Some(212_992), None]);
        let unprivileged = Facts { capabilities: 0, ..there.clone() };
        let count = |findings: Vec<Finding>| {
            findings.iter().filter(|finding| finding.cause.contains("rmem_max")).count()
        };
        assert_eq!(count(judge(&plan, &unprivileged)), 0, "AF_XDP has buffers of its own");
        plan.links[0].sockets = Sockets::Udp;
        assert_eq!(judge(&plan, &there), []);
        let said = only(&plan, &unprivileged, Level::Warning);
        assert!(said.contains("net.core.rmem_max = 212992") && said.contains("4194304"), "{said}");
        let mend = judge(&plan, &unprivileged).remove(0).mend;
        assert_eq!(mend, ["sysctl", "-q", "-w", "net.core.rmem_max=4194304"]);
        let plan = HostPlan { socket_bytes: None, ..plan };
        assert_eq!(judge(&plan, &unprivileged), []);
    }

    #[test]
    fn interface_that_is_missing_down_or_idle_is_found() {
        let mut there = facts();
        there.faces.remove(0);
        let said = only(&plan(), &there, Level::Warning);
        assert!(said.contains("waits for eth0") && said.contains("eth1"), "{said}");
        let mut there = facts();
        there.faces[0].is_up = false;
        there.faces[0].has_carrier = false;
        assert!(only(&plan(), &there, Level::Error).contains("ip link set eth0 up"));
        let mend = judge(&plan(), &there).remove(0).mend;
        assert_eq!(mend, ["ip", "link", "set", "dev", "eth0", "up"]);
        let mut there = facts();
        there.faces[0].has_carrier = false;
        only(&plan(), &there, Level::Warning);
    }

    #[test]
    fn interface_without_an_ethernet_header_is_an_error_for_af_xdp_and_nothing_for_udp() {
        let mut there = facts();
        there.faces[0].is_ethernet = false;
        let said = only(&plan(), &there, Level::Error);
        for words in ["packets of eth0 have no Ethernet header", "set backend = \"udp\""] {
            assert!(said.contains(words), "{said}");
        }
        let mut plan = plan();
        plan.links[0].sockets = Sockets::Udp;
        assert_eq!(judge(&plan, &there), []);
        // Its neighbour is at the other end, with or without a route; Linux sends no IPv6 packet
        // without one.
        plan.links[0].neighbours = vec![[192, 0, 2, 1].into()];
        assert_eq!(judge(&plan, &there), []);
        there.faces[0].is_ethernet = true;
        assert!(only(&plan, &there, Level::Error).contains("no route out of eth0"));
        there.faces[0].is_ethernet = false;
        plan.links[0].neighbours = vec!["2001:db8::1".parse().unwrap()];
        assert!(only(&plan, &there, Level::Error).contains("no route out of eth0"));
    }

    #[test]
    fn interface_without_an_address_is_waited_for_where_none_is_written() {
        let mut plan = plan();
        plan.links[0].local = None;
        let mut there = facts();
        assert_eq!(judge(&plan, &there), []);
        there.addresses.retain(|own| own.index != there.faces[0].index);
        let found = judge(&plan, &there);
        let said = found.iter().find(|it| it.cause.contains("waits for an address"));
        assert_eq!(said.map(|it| it.level), Some(Level::Warning), "{found:?}");
    }

    #[test]
    fn local_address_of_another_interface_is_found_and_said_where_it_is() {
        let mut plan = plan();
        plan.links[0].local = Some([10, 0, 2, 2].into());
        let said = only(&plan, &facts(), Level::Error);
        assert!(said.contains("but of eth1; it has 10.0.1.2"), "{said}");
    }

    #[test]
    fn neighbour_without_a_route_is_found_unless_one_is_there() {
        let mut plan = plan();
        plan.links[0].neighbours = vec![[172, 16, 0, 1].into()];
        assert!(only(&plan, &facts(), Level::Error).contains("no route out of eth0"));
        let mut there = facts();
        there.routes = vec![Route { index: 3, to: [172, 16, 0, 0].into(), prefix: 12 }];
        assert!(only(&plan, &there, Level::Error).contains("172.16.0.1"));
        there.routes[0].index = 2;
        assert_eq!(judge(&plan, &there), []);
        plan.links[0].neighbours = vec![[10, 0, 2, 2].into()];
        assert!(only(&plan, &facts(), Level::Error).contains("this host itself"));
    }

    #[test]
    fn programs_and_tunnels_of_others_are_found_unless_the_daemon_runs() {
        let mut there = facts();
        there.faces[0].program = Some(77);
        assert!(only(&plan(), &there, Level::Error).contains("XDP program (77)"));
        there.faces.push(face("rec0", 9));
        assert_eq!(judge(&plan(), &there).len(), 2);
        assert_eq!(judge(&HostPlan { is_running: true, ..plan() }, &there), []);
    }

    #[test]
    fn af_xdp_sockets_on_a_bond_are_found() {
        let (mut plan, mut there) = (plan(), facts());
        there.faces[0].is_bond = true;
        assert!(only(&plan, &there, Level::Error).contains("eth0 is a bond"));
        for sockets in [Sockets::Udp, Sockets::Either] {
            plan.links[0].sockets = sockets;
            assert_eq!(judge(&plan, &there), []);
        }
    }

    /// Without AF_XDP sockets, UDP sockets are used, so nothing prevents the start.
    #[test]
    fn link_that_may_have_either_needs_nothing_of_xdp_and_hears_of_programs() {
        let mut plan = plan();
        plan.links[0].sockets = Sockets::Either;
        let mut there = Facts { has_af_xdp: Some(false), ..facts() };
        assert_eq!(judge(&plan, &there), []);
        there.faces[0].program = Some(77);
        let said = only(&plan, &there, Level::Warning);
        assert!(said.contains("(77)") && said.contains("UDP sockets will be used"), "{said}");
    }

    #[test]
    fn link_with_udp_sockets_needs_nothing_of_xdp() {
        let mut plan = plan();
        plan.links[0].sockets = Sockets::Udp;
        plan.tunnels.clear();
        let mut there = facts();
        (there.capabilities, there.memlock_bytes) = (0, Some(0));
        there.has_af_xdp = Some(false);
        there.faces[0].program = Some(77);
        assert_eq!(judge(&plan, &there), []);
        plan.tunnels.push("rec0".into());
        let said = only(&plan, &there, Level::Warning);
        assert!(said.contains("lacks CAP_NET_ADMIN, without"), "{said}");
    }

    #[test]
    fn limits_and_abilities_of_linux_are_found() {
        let bounded: u64 = !((1 << IPC_LOCK) | (1 << SYS_RESOURCE));
        let there = Facts { memlock_bytes: Some(8 << 20), capabilities: bounded, ..facts() };
        assert!(only(&plan(), &there, Level::Warning).contains("ulimit -l"));
        only(&plan(), &Facts { capabilities: 0, ..facts() }, Level::Warning);
        let said = only(&plan(), &Facts { linux: (5, 9), ..facts() }, Level::Error);
        assert!(said.contains("backend = \"udp\""), "{said}");
        let mut udp = plan();
        for link in &mut udp.links {
            link.sockets = Sockets::Udp;
        }
        assert_eq!(judge(&udp, &Facts { linux: (5, 4), ..facts() }), []);
        only(&udp, &Facts { linux: (5, 3), ..facts() }, Level::Error);
        only(&plan(), &Facts { has_af_xdp: Some(false), ..facts() }, Level::Error);
        only(&plan(), &Facts { has_tun: false, ..facts() }, Level::Error);
        let mut there = facts();
        there.faces[0].mtu = 9000;
        only(&plan(), &there, Level::Warning);
    }

    #[test]
    fn limit_of_the_unit_is_found_where_packet_buffers_exceed_it_and_mended_by_a_drop_in() {
        let there = Facts { unit_memlock_bytes: Some(1), ..facts() };
        let said = only(&plan(), &there, Level::Warning);
        assert!(said.contains("recoded.service may lock 1 bytes in memory"), "{said}");
        let mend = judge(&plan(), &there).remove(0).mend.join(" ");
        assert!(mend.contains("/etc/systemd/system/recoded.service.d/memlock.conf"), "{mend}");
        let enough = Facts { unit_memlock_bytes: Some(plan().locked_bytes), ..facts() };
        assert_eq!(judge(&plan(), &enough), []);
        let mut udp = plan();
        udp.links[0].sockets = Sockets::Udp;
        assert_eq!(judge(&udp, &there), [], "sockets of Linux lock nothing");
    }

    #[test]
    fn prefixes_are_compared_within_their_family() {
        let v4 = |text: &str| text.parse::<IpAddr>().unwrap();
        assert!(shares_prefix(v4("10.0.1.2"), v4("10.0.1.200"), 24));
        assert!(!shares_prefix(v4("10.0.1.2"), v4("10.0.2.2"), 24));
        assert!(shares_prefix(v4("10.0.1.2"), v4("192.0.2.1"), 0));
        assert!(!shares_prefix(v4("10.0.1.2"), v4("10.0.1.3"), 32));
        assert!(shares_prefix(v4("fe80::1"), v4("fe80::2"), 64));
        assert!(!shares_prefix(v4("::"), v4("0.0.0.0"), 0));
    }
}
