//! Links on interfaces that carry IP packets without an Ethernet header: tunnels of Linux, a VPN
//! and PPP. Each is deleted and recreated while the daemons run.

use std::fs;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use recoded_api::v1::Link;
use recoded_netns::{Namespace, process};

use super::{Case, Machine};
use crate::LabError;
use crate::guest::{Boxes, Guest, OUTSIDE, SHARED, Setup, Stack, tool, tool_command};
use crate::nic::{Nic, mac};

/// One pair of cards; each case sets up its interfaces on them.
pub const MACHINE: Machine = Machine {
    name: "tunnels",
    nics: &[Nic::Virtio],
    modules: &["tun", "ip_gre", "ipip", "sit", "wireguard", "ppp_generic", "pppoe"],
    seconds: 300,
    cases: &CASES,
    ..Machine::USUAL
};

const CASES: [Case; 5] = [
    Case {
        name: "gre-auto-keys",
        shows: "the default on a GRE tunnel, which is deleted and made again",
        run: |guest| Tunnel { stack: gre, ..IPV4 }.run(guest),
    },
    Case {
        name: "ipip-auto-keys",
        shows: "the default on an IPIP tunnel, which is deleted and made again",
        run: |guest| Tunnel { stack: ipip, ..IPV4 }.run(guest),
    },
    Case {
        name: "sit-auto-keys",
        shows: "the default on a SIT tunnel, by IPv6, which is deleted and made again",
        run: |guest| Tunnel { stack: sit, is_ipv6: true, ..IPV4 }.run(guest),
    },
    Case {
        name: "wireguard-auto-keys",
        shows: "the default on WireGuard, which is deleted and made again",
        run: |guest| Tunnel { stack: wireguard, ..IPV4 }.run(guest),
    },
    Case {
        name: "pppoe-auto-keys",
        shows: "the default on PPPoE, which hangs up and dials again",
        run: |guest| Tunnel { stack: pppoe, delete: hang_up, ..IPV4 }.run(guest),
    },
];

/// Name of the interface of the link.
const NAME: &str = "wan7";

/// Addresses of the cards below.
const BELOW: [&str; 2] = ["198.51.100.1", "198.51.100.2"];

/// Timeout for events that take a second on an idle machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// How long the interface is absent.
const OUT: Duration = Duration::from_secs(2);

/// An interface without an Ethernet header.
struct Tunnel {
    /// Makes it.
    stack: Stack,
    /// Deletes it.
    delete: fn(&Namespace) -> Result<(), LabError>,
    /// Whether it carries only IPv6.
    is_ipv6: bool,
}

const IPV4: Tunnel = Tunnel { stack: gre, delete, is_ipv6: false };

impl Tunnel {
    /// Traffic with keys, and again after one box's interface was deleted and recreated.
    fn run(&self, guest: &Guest) -> Result<String, LabError> {
        let Tunnel { stack, delete, is_ipv6 } = *self;
        let setup = Setup { stack: Some(stack), has_keys: true, is_ipv6, ..Setup::default() };
        let card = guest.interface(Nic::Virtio, 0)?;
        let mut boxes = guest.pair(Nic::Virtio)?.start(&setup)?;
        boxes.carry()?;
        expect_reason(&boxes)?;
        delete(&boxes.nodes()[0].namespace)?;
        expect_link(&boxes, "is gone", |link| link.waits.contains("missing"))?;
        sleep(OUT);
        let began = Instant::now();
        boxes.nodes_mut()[0].stack_on(&card)?;
        expect_link(&boxes, "is there again", |link| link.state == "up")?;
        let up = began.elapsed().as_secs_f64();
        boxes.carry()?;
        expect_reason(&boxes)?;
        let mtu = boxes.nodes()[0].link()?.mtu;
        Ok(format!("none, udp, MTU {mtu}; up {up:.1} s after it was made again"))
    }
}

/// Waits until the link of box a is as it should be.
fn expect_link(boxes: &Boxes, what: &str, is_so: fn(&Link) -> bool) -> Result<(), LabError> {
    let [a, _] = boxes.nodes();
    let began = Instant::now();
    while !a.link().is_ok_and(|link| is_so(&link)) {
        if began.elapsed() > PATIENCE {
            let log = process::tail(&a.log());
            return LabError::wrong(format!("the interface {what}: {:?}: {log}", a.link()));
        }
        sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// Both have UDP sockets, and report why.
fn expect_reason(boxes: &Boxes) -> Result<(), LabError> {
    for link in boxes.links()? {
        let modes = [link.xdp_mode.as_str(), link.socket_mode.as_str()];
        if modes != ["none", "udp"] || !link.reason.contains("no Ethernet header") {
            return LabError::wrong(format!("{modes:?}, reason '{}'", link.reason));
        }
    }
    Ok(())
}

fn delete(host: &Namespace) -> Result<(), LabError> {
    host.ip(&format!("link del {NAME}"))?;
    Ok(())
}

/// Ends pppd, and its interface with it.
fn hang_up(host: &Namespace) -> Result<(), LabError> {
    let mut pids = process::run(Command::new("ip").args(["netns", "pids", host.name()]))?;
    pids.retain(|letter| letter.is_ascii_digit() || letter == '\n');
    for pid in pids.lines() {
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        if String::from_utf8_lossy(&command).contains("/pppd\0") {
            host.run("kill", pid)?;
        }
    }
    let began = Instant::now();
    while host.ip(&format!("link show {NAME}")).is_ok() {
        if began.elapsed() > PATIENCE {
            return LabError::wrong("pppd does not end");
        }
        sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn gre(host: &Namespace, card: &str, end: usize) -> Result<String, LabError> {
    tunnel(host, card, end, "gre")
}

fn ipip(host: &Namespace, card: &str, end: usize) -> Result<String, LabError> {
    tunnel(host, card, end, "ipip")
}

fn sit(host: &Namespace, card: &str, end: usize) -> Result<String, LabError> {
    tunnel(host, card, end, "sit")
}

fn tunnel(host: &Namespace, card: &str, end: usize, kind: &str) -> Result<String, LabError> {
    address(host, card, end)?;
    for key in ["all", "default"] {
        host.sysctl(&format!("net.ipv6.conf.{key}.disable_ipv6"), "0")?;
    }
    let (local, remote) = (BELOW[end], BELOW[1 - end]);
    host.ip(&format!("link add {NAME} type {kind} local {local} remote {remote} ttl 64"))?;
    Ok(NAME.into())
}

/// Gives the card below its address.
fn address(host: &Namespace, card: &str, end: usize) -> Result<(), LabError> {
    host.ip(&format!("addr replace {}/24 dev {card}", BELOW[end]))?;
    host.ip(&format!("link set {card} up"))?;
    Ok(())
}

/// Private keys of WireGuard.
const WIREGUARD_KEYS: [&str; 2] = ["/run/wireguard-a", "/run/wireguard-b"];

fn wireguard(host: &Namespace, card: &str, end: usize) -> Result<String, LabError> {
    address(host, card, end)?;
    let wg = tool_command("usr/bin/wg").join(" ");
    for key in WIREGUARD_KEYS {
        script(host, &format!("umask 077; test -s {key} || {wg} genkey > {key}"))?;
    }
    let (own, other) = (WIREGUARD_KEYS[end], WIREGUARD_KEYS[1 - end]);
    host.ip(&format!("link add {NAME} type wireguard"))?;
    script(
        host,
        &format!(
            "{wg} set {NAME} listen-port 51820 private-key {own} peer $({wg} pubkey < {other}) \
             allowed-ips 0.0.0.0/0 endpoint {}:51820",
            BELOW[1 - end]
        ),
    )?;
    Ok(NAME.into())
}

/// Number of the PPPoE session, configured at both ends, so there is no discovery.
const SESSION: u32 = 7;

fn pppoe(host: &Namespace, card: &str, end: usize) -> Result<String, LabError> {
    host.ip(&format!("link set {card} up"))?;
    let plugin = pppoe_plugin()?;
    let pppd = tool_command("usr/sbin/pppd").join(" ");
    let other = mac(0, 1 - end);
    script(
        host,
        &format!(
            "{pppd} plugin {plugin} nic-{card} pppoe-sess {SESSION}:{other} ifname {NAME} \
             noauth nodefaultroute noipv6 mtu 1492 mru 1492 persist maxfail 0 holdoff 1 \
             lcp-max-configure 100 logfile {}/pppd-{}.log {}:{}",
            SHARED,
            host.name(),
            OUTSIDE[end],
            OUTSIDE[1 - end]
        ),
    )?;
    let began = Instant::now();
    while host.ip(&format!("link show {NAME}")).is_err() {
        if began.elapsed() > PATIENCE {
            return LabError::wrong("pppd makes no interface: see its log");
        }
        sleep(Duration::from_millis(50));
    }
    Ok(NAME.into())
}

/// The plugin of pppd, in a folder named after the version.
fn pppoe_plugin() -> Result<String, LabError> {
    for entry in fs::read_dir(tool("usr/lib/pppd")).into_iter().flatten().flatten() {
        let plugin = entry.path().join("pppoe.so");
        if plugin.exists() {
            return Ok(plugin.to_string_lossy().into_owned());
        }
    }
    Err(LabError::Unavailable("the package ppp has no pppoe.so".into()))
}

fn script(host: &Namespace, text: &str) -> Result<(), LabError> {
    process::run(host.command("sh").args(["-c", text]))?;
    Ok(())
}
