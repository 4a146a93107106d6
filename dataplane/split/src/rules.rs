//! Rules of firewall and routing that bring connections here. The process that sets them reads
//! nothing from the network.
//!
//! ```text
//!  host -> server, SYN, leaves by the tunnel   -> NFLOG, dropped; beyond a rate: listener (TPROXY)
//!  SYN from this program: MARK_ANSWERED        -> listener (TPROXY)
//!                         MARK_REFUSED         -> RST from the server's address
//!                         MARK_PASSED          -> tunnel, as without this program
//!  packet of a transparent socket              -> MARK_HERE: delivered here, whatever its address
//!  own programs: the same by the output chain, which remembers their connections (conntrack)
//! ```
//! The table belongs to a process `nft` that ends with this one: then no rule is left.

use crate::sockets::{
    MARK_ANSWERED, MARK_BACK, MARK_BACK_MASK, MARK_HERE, MARK_OURS, MARK_PASSED, MARK_REFUSED,
};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Routing table with one route: everything is delivered here. Numbered as its mark.
const TABLE: u32 = MARK_HERE;

/// Priority of the rule that leads to it: after that of local addresses.
const PRIORITY: u32 = 150;

/// First packets a second that wait for their server, of forwarded hosts and of programs here.
/// Linux answers others at once: more are a flood.
const HELD_RATE: u32 = 1000;

/// Where rules bring connections of a tunnel.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Targets {
    /// Port of the listener.
    pub(crate) port: u16,
    /// Group that first packets are logged to; `None`: Linux answers all at once.
    pub(crate) group: Option<u16>,
    /// Address and port of this edge.
    pub(crate) edge: SocketAddr,
}

/// Active rules; they end with `nft`.
#[derive(Debug)]
pub(crate) struct Rules {
    nft: Child,
}

impl Rules {
    /// Sets them for connections that would leave by the interface `tunnel`. Packets between the
    /// edges may come from the tunnel only.
    pub(crate) fn set(tunnel: &str, targets: Targets) -> io::Result<Rules> {
        for family in ["-4", "-6"] {
            // Without IPv6 there is nothing to route.
            let routed = route(family);
            if family == "-4" {
                routed?;
            }
        }
        let mut nft = Command::new("nft")
            .arg("-i")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| io::Error::new(error.kind(), format!("nft: {error}")))?;
        let stdin = nft.stdin.as_mut().ok_or_else(|| io::Error::other("no pipe"))?;
        stdin.write_all(text(tunnel, targets).as_bytes())?;
        stdin.flush()?;
        let rules = Rules { nft };
        // nft reports to no one when it has read them.
        let begun = Instant::now();
        while !is_set(tunnel)? {
            if begun.elapsed() > PATIENCE {
                return Err(io::Error::other("nft does not set the rules: see its messages above"));
            }
            std::thread::sleep(PAUSE);
        }
        Ok(rules)
    }
}

impl Drop for Rules {
    fn drop(&mut self) {
        drop(self.nft.stdin.take());
        let _ = self.nft.wait();
    }
}

/// Longest wait until nft has set the rules, and the pause between two looks.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(10);

/// Whether the last rule of a table is active: it is followed by an empty chain.
fn is_set(tunnel: &str) -> io::Result<bool> {
    let mut nft = Command::new("nft");
    nft.args(["list", "chain", "inet", &table(tunnel), LAST]);
    Ok(nft.stdout(Stdio::null()).stderr(Stdio::null()).status()?.success())
}

/// Name of the table for a tunnel.
fn table(tunnel: &str) -> String {
    format!("recoded-split-{tunnel}")
}

/// A chain without rules, which is added after all rules.
const LAST: &str = "complete";

fn route(family: &str) -> io::Result<()> {
    let (table, priority) = (TABLE.to_string(), PRIORITY.to_string());
    let ip = |arguments: &[&str]| {
        Command::new("ip").arg(family).args(arguments).stderr(Stdio::null()).status()
    };
    let mut is_ruled = true;
    for mark in [MARK_HERE.to_string(), format!("{MARK_BACK}/{MARK_BACK_MASK}")] {
        let rule = ["fwmark", &mark, "lookup", &table, "priority", &priority];
        // Those of a process before this one are the same.
        ip(&[["rule", "del"].as_slice(), &rule].concat())?;
        is_ruled &= ip(&[["rule", "add"].as_slice(), &rule].concat())?.success();
    }
    let route = ["route", "replace", "local", "default", "dev", "lo", "table", &table];
    let is_routed = ip(&route)?.success();
    let refused =
        || io::Error::other(format!("ip {family} rule and route for table {table} failed"));
    if is_ruled && is_routed { Ok(()) } else { Err(refused()) }
}

/// Commands for nft. The lines of a chain, in order.
fn text(tunnel: &str, Targets { port, group, edge }: Targets) -> String {
    let table = format!("inet {}", table(tunnel));
    let family = if edge.is_ipv4() { "ip" } else { "ip6" };
    let begins = "tcp flags & (syn|ack) == syn";
    // The mark of a socket is unknown until its connection is established.
    let transparent = "meta l4proto tcp socket transparent 1";
    let here = format!("meta mark set {MARK_HERE} accept");
    let forwarded = format!("{begins} fib daddr oifname \"{tunnel}\"");
    // Of programs of this box, sent here by the output chain.
    let own = format!("{begins} iifname lo meta mark {MARK_HERE}");
    let back = format!("{begins} iifname lo meta mark");
    let to =
        |family: &str, ip: &str| format!("meta nfproto {family} tproxy {ip} to :{port} {here}");
    let hold = |what: &str| {
        let limit = format!("limit rate {HELD_RATE}/second burst {HELD_RATE} packets");
        group.map(|group| format!("{what} {limit} log group {group} drop"))
    };
    let (address, edge_port) = (edge.ip(), edge.port());
    let mut arriving = vec![
        format!("iifname != \"{tunnel}\" {family} daddr {address} udp dport {edge_port} drop"),
        format!("{transparent} {here}"),
        format!("iifname \"{tunnel}\" return"),
        format!("{back} {MARK_REFUSED} reject with tcp reset"),
        format!("{back} {MARK_ANSWERED} {}", to("ipv4", "ip")),
        format!("{back} {MARK_ANSWERED} {}", to("ipv6", "ip6")),
    ];
    arriving.extend([hold(&forwarded), hold(&own)].into_iter().flatten());
    for what in [forwarded, own] {
        arriving.extend(
            [("ipv4", "ip"), ("ipv6", "ip6")]
                .map(|(family, ip)| format!("{what} {}", to(family, ip))),
        );
    }
    let leaving = [
        format!("meta mark & {MARK_BACK_MASK} == {MARK_BACK} meta l4proto tcp accept"),
        format!("meta mark {MARK_PASSED} meta l4proto tcp ct mark set 0 accept"),
        format!("meta mark {MARK_OURS} meta l4proto tcp ct mark set {MARK_HERE} accept"),
        format!("oifname \"{tunnel}\" {begins} ct mark set {MARK_HERE}"),
        format!("ct mark {MARK_HERE} meta l4proto tcp meta mark set {MARK_HERE}"),
    ];
    let arrive = "{ type filter hook prerouting priority mangle; }";
    let leave = "{ type route hook output priority mangle; }";
    let mut text = format!(
        "add table {table} {{ flags owner; }}\nadd chain {table} arriving {arrive}\nadd chain \
         {table} leaving {leave}\n"
    );
    for (chain, rules) in [("arriving", arriving.as_slice()), ("leaving", &leaving)] {
        for rule in rules {
            text.push_str(&format!("add rule {table} {chain} {rule}\n"));
        }
    }
    text + &format!("add chain {table} {LAST}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// nft refuses what it does not understand without a message to this program.
    #[test]
    fn rules_are_what_nft_understands() {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: nft needs root to check rules");
            return;
        }
        for edge in ["10.99.0.1:923", "[fd00::1]:923"] {
            let edge = edge.parse().expect("an address");
            let text = text("rec0", Targets { port: 4242, group: Some(923), edge });
            let text = text.replace(" { flags owner; }", "");
            let Ok(mut nft) =
                Command::new("nft").args(["--check", "--file", "-"]).stdin(Stdio::piped()).spawn()
            else {
                println!("skipped: there is no nft");
                return;
            };
            let mut stdin = nft.stdin.take().expect("piped");
            stdin.write_all(text.as_bytes()).expect("it reads");
            drop(stdin);
            assert!(nft.wait().expect("it ends").success(), "{text}");
        }
    }
}
