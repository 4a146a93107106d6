//! Rules of firewall and routing that bring connections here. The process that sets them reads
//! nothing from the network.
//!
//! ```text
//!  host -> server, SYN, leaves by the tunnel   -> listener (TPROXY)
//!  packet of a transparent socket              -> MARK_HERE: delivered here, whatever its address
//!  own programs: the same by the output chain, which remembers their connections (conntrack)
//! ```
//! The table belongs to a process `nft` that ends with this one: then no rule is left.

use crate::sockets::{MARK_HERE, MARK_OURS};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Routing table with one route: everything is delivered here. Numbered as its mark.
const TABLE: u32 = MARK_HERE;

/// Priority of the rule that leads to it: after that of local addresses.
const PRIORITY: u32 = 150;

/// Active rules; they end with `nft`.
#[derive(Debug)]
pub(crate) struct Rules {
    nft: Child,
}

impl Rules {
    /// Sets them for connections that would leave by the interface `tunnel`, to the listener at
    /// `port`. Packets for `edge`, between the edges, may come from the tunnel only.
    pub(crate) fn set(tunnel: &str, port: u16, edge: SocketAddr) -> io::Result<Rules> {
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
        stdin.write_all(text(tunnel, port, edge).as_bytes())?;
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
    let (mark, table, priority) = (MARK_HERE.to_string(), TABLE.to_string(), PRIORITY.to_string());
    let rule = ["fwmark", &mark, "lookup", &table, "priority", &priority];
    let ip = |arguments: &[&str]| {
        Command::new("ip").arg(family).args(arguments).stderr(Stdio::null()).status()
    };
    // Those of a process before this one are the same.
    ip(&[["rule", "del"].as_slice(), &rule].concat())?;
    let is_ruled = ip(&[["rule", "add"].as_slice(), &rule].concat())?.success();
    let route = ["route", "replace", "local", "default", "dev", "lo", "table", &table];
    let is_routed = ip(&route)?.success();
    let refused = || io::Error::other(format!("ip {family} rule and route for mark {mark} failed"));
    if is_ruled && is_routed { Ok(()) } else { Err(refused()) }
}

/// Commands for nft. The lines of a chain, in order.
fn text(tunnel: &str, port: u16, edge: SocketAddr) -> String {
    let table = format!("inet {}", table(tunnel));
    let family = if edge.is_ipv4() { "ip" } else { "ip6" };
    let begins = "tcp flags & (syn|ack) == syn";
    // The mark of a socket is unknown until its connection is established.
    let transparent = "meta l4proto tcp socket transparent 1";
    let here = format!("meta mark set {MARK_HERE} accept");
    let forwarded = format!("{begins} fib daddr oifname \"{tunnel}\"");
    // Of programs of this box, sent here by the output chain.
    let own = format!("{begins} iifname lo meta mark {MARK_HERE}");
    let (address, edge_port) = (edge.ip(), edge.port());
    let arriving = [
        format!("iifname != \"{tunnel}\" {family} daddr {address} udp dport {edge_port} drop"),
        format!("{transparent} {here}"),
        format!("iifname \"{tunnel}\" return"),
        format!("{forwarded} meta nfproto ipv4 tproxy ip to :{port} {here}"),
        format!("{forwarded} meta nfproto ipv6 tproxy ip6 to :{port} {here}"),
        format!("{own} meta nfproto ipv4 tproxy ip to :{port} {here}"),
        format!("{own} meta nfproto ipv6 tproxy ip6 to :{port} {here}"),
    ];
    let leaving = [
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
            let text = text("rec0", 4242, edge.parse().expect("an address"));
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
