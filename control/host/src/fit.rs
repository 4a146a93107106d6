//! Rules about a host's surroundings: whether firewall, port, routes and tunnels interfere with
//! packets of links.

use crate::facts::{Facts, shares_prefix};
use crate::finding::{by, error, warning};
use crate::firewall::{Chain, Decision, Hook, Owner, Packet, decide};
use crate::{Face, Finding, HostPlan, Level, Link, Network, Sockets};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Threshold in percent: a fuller connection table drops new connections in a burst.
const TRACKING_PERCENT_MAX: u64 = 90;

/// Name of the process that owns the ports of links.
const DATAPLANE_PROCESS: &str = "recoded-dp";

/// `rp_filter` value that drops packets whose replies would take another interface.
const STRICT: u8 = 1;

pub fn judge(plan: &HostPlan, facts: &Facts, findings: &mut Vec<Finding>) {
    for link in &plan.links {
        port(plan, facts, link, findings);
        if link.sockets != Sockets::Xdp {
            firewall(plan, facts, link, findings);
            rp_filter(facts, link, findings);
        }
        merging(facts, link, findings);
        arp(facts, link, findings);
        for network in &plan.networks {
            overlap(facts, link, network, findings);
        }
    }
    tracking(plan, facts, findings);
}

/// Severity for a link with UDP sockets. AF_XDP sockets bypass Linux's network stack, so a link
/// that may have them may not be affected.
fn level_of(link: &Link) -> Level {
    if link.sockets == Sockets::Udp { Level::Error } else { Level::Warning }
}

fn port(plan: &HostPlan, facts: &Facts, link: &Link, findings: &mut Vec<Finding>) {
    let mut holders = facts.surroundings.holders.iter();
    let (Some(holder), Some(port)) = (holders.find(|it| it.link == link.name), plan.port) else {
        return;
    };
    let (who, cure) = match &holder.process {
        Some((name, pid)) => (format!("{name} (process {pid})"), format!("stop it (kill {pid})")),
        None => {
            let see = format!("find it (ss -ulpn sport = :{port}) and stop it");
            ("another program".to_owned(), see)
        }
    };
    let found = error(
        format!("link {}", link.name),
        format!("{who} has UDP port {port} of {}", holder.address),
        format!("{cure}, or set another port in [daemon] on every box"),
    );
    // A daemon with another control socket: it may be the one for this configuration.
    let is_daemon = holder.process.as_ref().is_some_and(|(name, _)| name == DATAPLANE_PROCESS);
    let level = if is_daemon { Level::Warning } else { level_of(link) };
    findings.push(Finding { level, ..found });
}

fn firewall(plan: &HostPlan, facts: &Facts, link: &Link, findings: &mut Vec<Finding>) {
    let (Some(port), chains) = (plan.port, &facts.surroundings.firewall) else { return };
    let mut named: BTreeSet<String> = BTreeSet::new();
    for neighbour in &link.neighbours {
        let packet = |hook, is_established| Packet {
            interface: &link.interface,
            neighbour: *neighbour,
            local: link.local,
            port,
            is_established,
            hook,
        };
        for hook in [Hook::Prerouting, Hook::Input, Hook::Output] {
            let new = decide(chains, &packet(hook, false));
            let old = decide(chains, &packet(hook, true));
            let Some(found) = verdict(link, &packet(hook, false), &new, &old) else { continue };
            // One rule usually drops packets of all neighbours.
            if named.insert(found.cause.replace(&neighbour.to_string(), "")) {
                findings.push(found);
            }
        }
    }
}

/// Judges the outcome for a packet of a new flow, and for a later one.
fn verdict(link: &Link, packet: &Packet, new: &Decision, old: &Decision) -> Option<Finding> {
    let (port, interface, neighbour) = (packet.port, packet.interface, packet.neighbour);
    let (Decision::Dropped(chain) | Decision::Diverted(chain)) = new else { return None };
    let place = format!("{} {}", chain.table, chain.name);
    let (way, preposition) =
        if packet.hook == Hook::Output { ("to", "out of") } else { ("from", "in by") };
    let what = format!("UDP packets to port {port}, {way} {neighbour}, {preposition} {interface}");
    let subject = format!("link {}", link.name);
    let (level, cause) = match (new, old) {
        (Decision::Diverted(_), _) => {
            (level_of(link), format!("the firewall ({place}) sends {what} elsewhere"))
        }
        (_, Decision::Dropped(_)) => {
            (level_of(link), format!("the firewall ({place}) drops {what}"))
        }
        _ => (
            Level::Warning,
            format!("the firewall ({place}) drops {what} until this host has sent some there"),
        ),
    };
    Some(Finding { level, ..error(subject, cause, opening(chain, packet)) })
}

/// The command that allows packets.
fn opening(chain: &Chain, packet: &Packet) -> String {
    let (port, table, name) = (packet.port, &chain.table, &chain.name);
    let is_ufw = chain.rules.iter().any(|rule| {
        use crate::firewall::Verdict::{Goto, Jump};
        matches!(&rule.verdict, Jump(to) | Goto(to) if to.starts_with("ufw"))
    });
    if table.ends_with(" firewalld") {
        return format!(
            "let them pass (firewall-cmd --permanent --add-port={port}/udp && firewall-cmd \
             --reload)"
        );
    }
    if is_ufw {
        return format!("let them pass (ufw allow {port}/udp)");
    }
    match chain.owner {
        Owner::Nft => format!(
            "let them pass (nft insert rule {table} {name} udp dport {port} accept), and in the \
             file of the rules for the next boot"
        ),
        Owner::Iptables => {
            let program = if packet.neighbour.is_ipv6() { "ip6tables" } else { "iptables" };
            format!("let them pass ({program}-legacy -I {name} -p udp --dport {port} -j ACCEPT)")
        }
    }
}

fn rp_filter(facts: &Facts, link: &Link, findings: &mut Vec<Finding>) {
    let surroundings = &facts.surroundings;
    if surroundings.rp_filter.get(&link.interface) != Some(&STRICT) {
        return;
    }
    let Some(face) = facts.faces.iter().find(|face| face.name == link.interface) else { return };
    let paths = surroundings.return_paths.iter().filter(|path| path.neighbour.is_ipv4());
    let mut elsewhere = paths.filter(|path| {
        link.neighbours.contains(&path.neighbour)
            && Some(path.local) == link.local
            && path.index != face.index
    });
    // The routes of a VRF are not those that were queried: the path is then not that of another
    // link.
    let Some((path, other)) = elsewhere.find_map(|path| {
        let other = facts.faces.iter().find(|face| face.index == path.index)?;
        Some((path, other))
    }) else {
        return;
    };
    let (name, neighbour, local) = (&link.interface, path.neighbour, path.local);
    let command = format!("sysctl -w net.ipv4.conf.{name}.rp_filter=2");
    let found = error(
        format!("link {}", link.name),
        format!(
            "Linux drops packets of {neighbour} that come by {name}: rp_filter is strict there, \
             and its own route to {neighbour} is out of {}",
            other.name
        ),
        format!(
            "make it loose ({command}, and in /etc/sysctl.d for the next boot), or give {local} \
             its own route (ip rule add from {local} table 100, ip route add default dev {name} \
             via GATEWAY table 100)"
        ),
    );
    findings.push(by(Finding { level: level_of(link), ..found }, &command));
}

/// By default Linux answers ARP on every interface for each address of the host ("ARP flux").
/// Neighbours may then send to another interface, which has neither program nor socket of the link.
fn arp(facts: &Facts, link: &Link, findings: &mut Vec<Finding>) {
    let Some(face) = facts.faces.iter().find(|face| face.name == link.interface) else { return };
    let of = |index| facts.addresses.iter().filter(move |it| it.index == index);
    let Some(local @ IpAddr::V4(_)) = link.local else { return };
    let Some(own) = of(face.index).find(|own| own.address == local) else { return };
    let is_near = |other: &Face| {
        face.macvlan_parent == Some(other.index)
            || of(other.index).any(|it| shares_prefix(it.address, local, own.prefix))
    };
    let mut others = facts.faces.iter().filter(|other| {
        let answers = facts.surroundings.arp_ignore.get(&other.name) == Some(&0);
        other.index != face.index && other.is_ethernet && other.is_up && answers
    });
    let Some(other) = others.find(|other| is_near(other)) else { return };
    let command = "sysctl -w net.ipv4.conf.all.arp_ignore=1";
    let found = warning(
        format!("link {}", link.name),
        format!(
            "{} is in the same network as {} and answers ARP for {local}: neighbours may send \
             there, and this link receives nothing",
            other.name, link.interface
        ),
        format!(
            "let each interface answer for its own addresses only ({command}, and in \
             /etc/sysctl.d for the next boot)"
        ),
    );
    findings.push(by(found, command));
}

/// AF_XDP sockets need packets as received, so offloads that merge packets interfere.
fn merging(facts: &Facts, link: &Link, findings: &mut Vec<Finding>) {
    let Some(on) = facts.surroundings.merging.get(&link.interface) else { return };
    for option in on {
        let command = format!("ethtool -K {} {option} off", link.interface);
        let found = warning(
            format!("link {}", link.name),
            format!(
                "{} merges packets ({option} is on): drivers refuse XDP then, or drop what they \
                 merged",
                link.interface
            ),
            format!("switch it off ({command})"),
        );
        findings.push(by(found, &command));
    }
}

/// Packets to a neighbour inside a tunnel's network would be routed into the tunnel.
fn overlap(facts: &Facts, link: &Link, network: &Network, findings: &mut Vec<Finding>) {
    let Network { tunnel, address, prefix } = network;
    let is_link_local = |address: &IpAddr| match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    if is_link_local(address) {
        return;
    }
    let index = facts.faces.iter().find(|face| face.name == link.interface).map(|it| it.index);
    let mut own = facts.addresses.iter().filter(|own| Some(own.index) == index);
    let own = own.find(|own| shares_prefix(own.address, *address, own.prefix.min(*prefix)));
    let mut neighbours = link.neighbours.iter();
    let neighbour = neighbours.find(|neighbour| shares_prefix(**neighbour, *address, *prefix));
    let with = match (own, neighbour) {
        (Some(own), _) => format!("{}/{} of {}", own.address, own.prefix, link.interface),
        (None, Some(neighbour)) => format!("the neighbour {neighbour}"),
        (None, None) => return,
    };
    findings.push(error(
        format!("tunnel {tunnel}"),
        format!(
            "its network {address}/{prefix} overlaps with {with} (link {}): packets for neighbours \
             would be sent into the tunnel",
            link.name
        ),
        "give the tunnels of all boxes addresses of another network, for instance of 10.99.0.0/24"
            .into(),
    ));
}

fn tracking(plan: &HostPlan, facts: &Facts, findings: &mut Vec<Finding>) {
    let Some(tracking) = facts.surroundings.tracking else { return };
    let is_udp = plan.links.iter().any(|link| link.sockets == Sockets::Udp);
    let is_full = tracking.count.saturating_mul(100) >= tracking.max * TRACKING_PERCENT_MAX;
    if !is_udp || !is_full || tracking.max == 0 {
        return;
    }
    let (count, max, more) = (tracking.count, tracking.max, tracking.max.saturating_mul(4));
    let command = format!("sysctl -w net.netfilter.nf_conntrack_max={more}");
    let port = plan.port.map_or("PORT".to_owned(), |port| port.to_string());
    let found = warning(
        "host".into(),
        format!(
            "Linux keeps track of {count} connections of at most {max}: packets of more are \
             dropped, those of links included"
        ),
        format!(
            "let there be more ({command}), or leave links out (nft add rule ip raw prerouting \
             udp dport {port} notrack)"
        ),
    );
    findings.push(by(found, &command));
}

#[cfg(test)]
mod tests;
