//! Parts of a host that affect packets of links: firewall, port, return path, connection tracking,
//! offloads.

use crate::firewall::{Chain, iptables, nft};
use crate::{Face, HostPlan, Sockets};
use nix::sys::socket::{setsockopt, sockopt};
use rtnetlink::packet_route::route::RouteAttribute;
use rtnetlink::{Handle, RouteMessageBuilder};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::{Command, Stdio};

/// Longest program output that is read; a ruleset with large sets has some megabytes.
const OUTPUT_BYTES_MAX: u64 = 16 << 20;

/// Offloads that merge packets below XDP, by ethtool's names and by those for its option `-K`.
const MERGING: [(&str, &str); 2] = [("large-receive-offload", "lro"), ("rx-gro-hw", "rx-gro-hw")];

/// Name prefix of Recoded's processes.
const OURS: &str = "recoded";

/// State of the surroundings.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Surroundings {
    /// Chains of the firewall; empty if they cannot be read.
    pub firewall: Vec<Chain>,
    /// Sockets of other programs on the port of the plan.
    pub holders: Vec<Holder>,
    /// Interfaces that Linux would choose for packets to neighbours.
    pub return_paths: Vec<ReturnPath>,
    /// Effective `rp_filter`, by interface.
    pub rp_filter: BTreeMap<String, u8>,
    /// Effective `arp_ignore`, by interface.
    pub arp_ignore: BTreeMap<String, u8>,
    /// Whether packets of other hosts are forwarded, if there is an exit: IPv4, IPv6.
    pub forwards: [Option<bool>; 2],
    /// Whether rules translate source addresses, if there is an exit.
    pub translates: Option<bool>,
    /// Connection tracking, if it is loaded.
    pub tracking: Option<Tracking>,
    /// Active offloads that merge packets below XDP, by interface: names as for `ethtool -K`.
    pub merging: BTreeMap<String, Vec<&'static str>>,
}

/// A socket of another program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    /// The link that it conflicts with.
    pub link: String,
    /// Its address.
    pub address: IpAddr,
    /// The process, if visible: name and process id.
    pub process: Option<(String, u32)>,
}

/// The interface that Linux chooses for packets to a neighbour.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ReturnPath {
    /// The neighbour.
    pub neighbour: IpAddr,
    /// The local address on the link.
    pub local: IpAddr,
    /// The interface.
    pub index: u32,
}

/// Usage of the connection tracking table.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Tracking {
    /// Present entries.
    pub count: u64,
    /// Maximum.
    pub max: u64,
}

impl Surroundings {
    /// Examines all but return paths.
    pub(crate) fn look(&mut self, plan: &HostPlan, faces: &[Face]) {
        let may_be_udp = plan.links.iter().any(|link| link.sockets != Sockets::Xdp);
        if may_be_udp {
            self.firewall = firewall();
            self.tracking = tracking();
        }
        if !plan.exits.is_empty() {
            self.forwards = ["ipv4/ip_forward", "ipv6/conf/all/forwarding"].map(forwards);
            self.translates = translates(&[
                output("nft", &["-j", "list", "ruleset"]),
                output("iptables-legacy", &["-t", "nat", "-S"]),
                output("ip6tables-legacy", &["-t", "nat", "-S"]),
            ]);
        }
        self.holders = holders(plan);
        for link in &plan.links {
            if let Some(value) = strictest("rp_filter", &link.interface) {
                self.rp_filter.insert(link.interface.clone(), value);
            }
            if link.sockets != Sockets::Udp {
                self.merging.insert(link.interface.clone(), merging(&link.interface));
            }
        }
        for face in faces {
            let value = strictest("arp_ignore", &face.name);
            self.arp_ignore.extend(value.map(|value| (face.name.clone(), value)));
        }
    }
}

/// Queries Linux's route to each neighbour, from the local address.
pub async fn return_paths(plan: &HostPlan, handle: &Handle) -> Vec<ReturnPath> {
    let mut found = Vec::new();
    for link in &plan.links {
        let Some(local) = link.local else { continue };
        for neighbour in &link.neighbours {
            let message = match (*neighbour, local) {
                (IpAddr::V4(to), IpAddr::V4(from)) => RouteMessageBuilder::<Ipv4Addr>::new()
                    .destination_prefix(to, 32)
                    .source_prefix(from, 32)
                    .build(),
                (IpAddr::V6(to), IpAddr::V6(from)) => RouteMessageBuilder::<Ipv6Addr>::new()
                    .destination_prefix(to, 128)
                    .source_prefix(from, 128)
                    .build(),
                _ => continue,
            };
            // A missing route is another finding.
            let answers = crate::netlink::all(handle.route().get(message).execute(), 1).await;
            let attributes = answers.into_iter().flatten().flat_map(|route| route.attributes);
            let index = attributes.into_iter().find_map(|attribute| match attribute {
                RouteAttribute::Oif(index) => Some(index),
                _ => None,
            });
            found.extend(index.map(|index| ReturnPath { neighbour: *neighbour, local, index }));
        }
    }
    found
}

/// A setting whose effective value is the stricter of the interface's and the global one
/// (ip-sysctl.rst).
fn strictest(setting: &str, interface: &str) -> Option<u8> {
    // An interface name has no slash; with one, the path would name another file.
    let is_name = !interface.contains('/');
    let read = |of: &str| {
        let path = format!("/proc/sys/net/ipv4/conf/{of}/{setting}");
        fs::read_to_string(path).ok()?.trim().parse::<u8>().ok()
    };
    Some(read(interface).filter(|_| is_name)?.max(read("all")?))
}

/// Whether a setting of forwarding is on.
fn forwards(setting: &str) -> Option<bool> {
    let text = fs::read_to_string(format!("/proc/sys/net/{setting}")).ok()?;
    Some(text.trim() != "0")
}

/// Whether rules translate source addresses, by the texts of all rulesets that can be read; `None`
/// if none can.
fn translates(rulesets: &[String]) -> Option<bool> {
    if rulesets.iter().all(String::is_empty) {
        return None;
    }
    let words = ["masquerade", "snat"];
    Some(rulesets.iter().any(|text| {
        let text = text.to_lowercase();
        words.iter().any(|word| text.contains(word))
    }))
}

fn tracking() -> Option<Tracking> {
    let read = |name: &str| {
        let path = format!("/proc/sys/net/netfilter/nf_conntrack_{name}");
        fs::read_to_string(path).ok()?.trim().parse().ok()
    };
    Some(Tracking { count: read("count")?, max: read("max")? })
}

fn firewall() -> Vec<Chain> {
    let mut chains = nft::parse(&output("nft", &["-j", "list", "ruleset"]));
    chains.extend(iptables::parse(&output("iptables-legacy", &["-S"]), false));
    chains.extend(iptables::parse(&output("ip6tables-legacy", &["-S"]), true));
    chains
}

fn merging(interface: &str) -> Vec<&'static str> {
    let text = output("ethtool", &["-k", interface]);
    let is_on = |name: &str| {
        let mut lines = text.lines().filter_map(|line| line.trim().split_once(": "));
        lines.any(|(of, value)| of == name && value.starts_with("on"))
    };
    MERGING.iter().filter(|(name, _)| is_on(name)).map(|(_, option)| *option).collect()
}

/// Output of a program; empty if it is missing or not permitted.
fn output(program: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stderr(Stdio::null()).stdout(Stdio::piped());
    let Ok(mut child) = command.spawn() else { return String::new() };
    let mut text = Vec::new();
    if let Some(out) = child.stdout.take() {
        // A truncated list is useless.
        let is_read = out.take(OUTPUT_BYTES_MAX).read_to_end(&mut text).is_ok();
        if !is_read || text.len() as u64 == OUTPUT_BYTES_MAX {
            text.clear();
        }
    }
    let _ = child.kill();
    let _ = child.wait();
    String::from_utf8(text).unwrap_or_default()
}

/// Sockets that conflict with a link. Before the daemon runs, this tries to open a socket like the
/// daemon's; the table of sockets names the program.
fn holders(plan: &HostPlan) -> Vec<Holder> {
    let Some(port) = plan.port else { return Vec::new() };
    let mut found = Vec::new();
    let mut all: Option<Vec<UdpSocket>> = None;
    for link in &plan.links {
        let Some(local) = link.local else { continue };
        let is_taken = plan.is_running || is_taken(&link.interface, SocketAddr::new(local, port));
        if !is_taken {
            continue;
        }
        let sockets = all.get_or_insert_with(|| sockets_on(port));
        let mut others = sockets.iter().filter(|socket| socket.is_in_the_way(local));
        let other = if plan.is_running {
            // Invisible processes may be Recoded's.
            others.find(|socket| socket.name().is_some_and(|name| !name.starts_with(OURS)))
        } else {
            others.next()
        };
        let holder = other.map(|other| Holder {
            link: link.name.clone(),
            address: other.address,
            process: other.process.clone(),
        });
        let unknown = || Holder { link: link.name.clone(), address: local, process: None };
        found.extend(holder.or_else(|| (!plan.is_running).then(unknown)));
    }
    found
}

/// Whether Linux refuses a socket like the daemon's because the port is in use.
fn is_taken(interface: &str, local: SocketAddr) -> bool {
    let family = if local.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let Ok(fd) = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None) else {
        return false;
    };
    let bound = setsockopt(&fd, sockopt::BindToDevice, &OsString::from(interface));
    bound.is_ok() && bind(&fd, &local) == Err(Errno::ADDRINUSE)
}

/// A UDP socket of this network namespace.
struct UdpSocket {
    address: IpAddr,
    inode: u64,
    process: Option<(String, u32)>,
}

impl UdpSocket {
    fn name(&self) -> Option<&str> {
        self.process.as_ref().map(|(name, _)| name.as_str())
    }

    fn is_in_the_way(&self, local: IpAddr) -> bool {
        self.address == local
            || self.address.is_unspecified() && (self.address.is_ipv6() || local.is_ipv4())
    }
}

fn sockets_on(port: u16) -> Vec<UdpSocket> {
    // Not /proc/net, which shows the namespace of the first thread.
    let tables = ["udp", "udp6"].map(|name| format!("/proc/thread-self/net/{name}"));
    let texts = tables.map(|path| fs::read_to_string(path).unwrap_or_default());
    let lines = texts.iter().flat_map(|text| text.lines());
    let mut sockets: Vec<UdpSocket> = lines.filter_map(|line| socket(line, port)).collect();
    if !sockets.is_empty() {
        name(&mut sockets);
    }
    sockets
}

/// Parses a line of `/proc/net/udp` if its socket has this port (proc_net_udp(5)).
fn socket(line: &str, port: u16) -> Option<UdpSocket> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (address, of) = words.get(1)?.split_once(':')?;
    if u16::from_str_radix(of, 16).ok()? != port {
        return None;
    }
    let word = |at: usize| u32::from_str_radix(address.get(at..at + 8)?, 16).ok();
    let address: IpAddr = if address.len() == 8 {
        Ipv4Addr::from(word(0)?.to_ne_bytes()).into()
    } else {
        let mut bytes = [0; 16];
        for (at, four) in bytes.chunks_exact_mut(4).enumerate() {
            four.copy_from_slice(&word(at * 8)?.to_ne_bytes());
        }
        Ipv6Addr::from(bytes).into()
    };
    Some(UdpSocket { address, inode: words.get(9)?.parse().ok()?, process: None })
}

/// Finds the processes that own the sockets, as far as visible to this user.
fn name(sockets: &mut [UdpSocket]) {
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        for file in fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten() {
            let Ok(target) = fs::read_link(file.path()) else { continue };
            let inode = target.to_str().and_then(|text| text.strip_prefix("socket:["));
            let inode = inode.and_then(|text| text.strip_suffix(']')?.parse::<u64>().ok());
            let Some(inode) = inode else { continue };
            for socket in sockets.iter_mut().filter(|socket| socket.inode == inode) {
                let comm = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
                socket.process = Some((comm.trim().to_owned(), pid));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Link;

    fn plan(port: u16) -> HostPlan {
        let link = Link {
            name: "west".into(),
            interface: "lo".into(),
            local: Some([127, 0, 0, 1].into()),
            neighbours: vec![[127, 0, 0, 2].into()],
            sockets: Sockets::Udp,
        };
        HostPlan { links: vec![link], port: Some(port), ..HostPlan::default() }
    }

    #[test]
    fn program_that_has_the_port_is_named_and_none_where_it_is_free() {
        let holder = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = holder.local_addr().unwrap().port();
        let found = holders(&plan(port));
        assert_eq!(found.len(), 1);
        let (_, pid) = found[0].process.clone().expect("this process may be looked at");
        assert_eq!((found[0].link.as_str(), pid), ("west", std::process::id()));
        let elsewhere = HostPlan { port: Some(port), ..plan(port) };
        let elsewhere = HostPlan {
            links: vec![Link { local: Some([127, 0, 0, 9].into()), ..elsewhere.links[0].clone() }],
            ..elsewhere
        };
        assert_eq!(holders(&elsewhere), [], "another address");
        drop(holder);
        assert_eq!(holders(&plan(port)), []);
    }

    #[test]
    fn masquerade_is_found_in_the_rulesets_of_any_program() {
        let nft = |expr: &str| format!("{{\"nftables\": [{{\"rule\": {{\"expr\": [{expr}]}}}}]}}");
        let rulesets = |text: &str| translates(&[text.to_owned(), String::new()]);
        assert_eq!(rulesets(&nft("{\"masquerade\": null}")), Some(true));
        assert_eq!(rulesets("-A POSTROUTING -o eth0 -j MASQUERADE"), Some(true));
        assert_eq!(rulesets(&nft("{\"accept\": null}")), Some(false));
        assert_eq!(rulesets(""), None);
    }

    #[test]
    fn lines_of_sockets_are_read_and_garbage_is_not() {
        let v4 = "  12: 0100007F:24D2 00000000:0000 07 00000000:00000000 00:00000000 00000000 0 0 \
                  4242 2 0000 0";
        let found = socket(v4, 9426).unwrap();
        assert_eq!((found.address, found.inode), (IpAddr::from([127, 0, 0, 1]), 4242));
        assert!(socket(v4, 9427).is_none());
        let v6 = "1: 00000000000000000000000001000000:24D2 0:0 07 0:0 0:0 0 0 0 7 2 0 0";
        assert_eq!(socket(v6, 9426).unwrap().address, IpAddr::from(Ipv6Addr::LOCALHOST));
        for garbage in ["", "sl local_address", "1: :24D2", "1: zz:24D2 a b c d e f g h i"] {
            assert!(socket(garbage, 9426).is_none(), "{garbage}");
        }
    }
}
