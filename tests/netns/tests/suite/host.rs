//! Host settings that block links: firewall, port, return path, networks of tunnels. Real rules in
//! namespaces; `recoded --check` names them, and the command that it prints fixes them.

use std::net::UdpSocket;
use std::process::Command;

use crate::common;
use recoded_netns::process::output;
use recoded_netns::{Bed, Daemon, LinePlan, Loss, Namespace, binary};

const OK: i32 = 0;
const FAILED: i32 = 1;
const UNHEALTHY: i32 = 5;

/// Two hosts whose links have UDP sockets: AF_XDP bypasses all of these settings.
fn line() -> (Bed, LinePlan) {
    let bed = common::bed(1, Loss::independent(0.0), 100.0);
    (bed, LinePlan { udp: vec![0, 1], ..LinePlan::protected(1) })
}

/// Exit code and text of `recoded --check` at the source.
fn check(bed: &Bed, text: &str) -> (i32, String) {
    let file = bed.directory().join("host.toml");
    std::fs::write(&file, text).unwrap();
    let mut command = bed.source().command(binary("recoded"));
    let ended = output(command.args(["--check", "--config"]).arg(&file)).unwrap();
    (ended.code.unwrap_or(-1), ended.stdout + &ended.stderr)
}

fn config(bed: &Bed, plan: &LinePlan) -> String {
    plan.config(0, &bed.directory().join("host.sock").to_string_lossy())
}

fn shell(host: &Namespace, script: &str) -> String {
    let mut command = host.command("sh");
    let ended = output(command.args(["-c", script])).unwrap();
    assert!(ended.success, "{script}: {}", ended.stderr);
    ended.stdout
}

/// The command in the parentheses of a finding that begins like this.
fn printed(text: &str, start: &str) -> String {
    let from = text.find(&format!("({start}")).unwrap_or_else(|| panic!("no {start}: {text}"));
    let rest = &text[from + 1..];
    rest[..rest.find(')').unwrap()].split(", and in").next().unwrap().to_owned()
}

fn has_nft() -> bool {
    let found = Command::new("nft").arg("--version").output().is_ok();
    if !found {
        println!("skipped: `nft` is not installed");
    }
    found
}

#[test]
fn firewall_that_drops_our_port_is_found_and_opened_by_the_printed_command() {
    let Some(_turn) = common::daemons_beside() else { return };
    if !has_nft() {
        return;
    }
    let (bed, plan) = line();
    let (host, text) = (bed.source(), config(&bed, &plan));
    let (code, said) = check(&bed, &text);
    assert_eq!(code, OK, "{said}");
    assert!(!said.contains("firewall"), "{said}");
    for (hook, name) in [("input", "from"), ("output", "to")] {
        let chain = format!("type filter hook {hook} priority 0; policy drop;");
        shell(host, &format!("nft add table inet own; nft 'add chain inet own c {{ {chain} }}'"));
        shell(host, "nft add rule inet own c tcp dport 22 accept");
        let (code, said) = check(&bed, &text);
        assert_eq!(code, FAILED, "{said}");
        let cause = "the firewall (inet own c) drops UDP packets to port 9426,";
        assert!(said.contains(&format!("{cause} {name} 10.77.1.2")), "{said}");
        shell(host, &printed(&said, "nft insert rule"));
        let (code, said) = check(&bed, &text);
        assert_eq!(code, OK, "{said}");
        shell(host, "nft delete table inet own");
    }
    // A separate rule for the port, before one that accepts everything.
    shell(
        host,
        "nft add table ip own; nft 'add chain ip own c { type filter hook input priority \
                 -10; }'; nft add rule ip own c udp dport 9000-9999 reject",
    );
    assert!(check(&bed, &text).1.contains("the firewall (ip own c) drops"));
}

/// `doctor` of a daemon whose link is down since the firewall was closed.
#[test]
fn doctor_names_the_firewall_first_and_the_rest_as_what_follows() {
    let Some(_turn) = common::daemons_beside() else { return };
    if !has_nft() {
        return;
    }
    let (bed, plan) = line();
    let daemons = Daemon::start_line(&bed, &plan).unwrap();
    let host = bed.source();
    let doctor = |json: bool| {
        let mut command = host.command(binary("recodectl"));
        command.arg("--socket").arg(daemons[0].socket()).args(["doctor", "--seconds", "1"]);
        let ended = output(command.args(json.then_some("--json"))).unwrap();
        (ended.code.unwrap_or(-1), ended.stdout + &ended.stderr)
    };
    common::wait_for("a line without errors", &daemons[0], || doctor(false).0 == OK);
    shell(
        host,
        "nft add table inet own; nft 'add chain inet own c { type filter hook input \
                 priority 0; policy drop; }'; nft add chain inet own o; nft 'add chain inet own out \
                 { type filter hook output priority 0; }'; nft add rule inet own out udp dport \
                 9426 drop",
    );
    common::wait_for("a silent neighbour", &daemons[0], || {
        common::answers(host, "10.99.0.2");
        // Of the same link, so the text names it once.
        doctor(true).1.contains("\"follows_from\":\"link east\"")
            || doctor(true).1.contains("\"follows_from\": \"link east\"")
    });
    let (code, said) = doctor(false);
    println!("{said}");
    assert_eq!(code, UNHEALTHY, "{said}");
    let first = said.lines().next().unwrap();
    assert!(first.contains("FAIL link east the firewall (inet own"), "{said}");
    let json: serde_json::Value = serde_json::from_str(&doctor(true).1).unwrap();
    let findings = json["findings"].as_array().unwrap();
    assert!(findings.iter().any(|it| it["follows_from"] == "link east"), "{json}");
}

#[test]
fn port_of_another_program_and_network_of_the_link_in_a_tunnel_are_found() {
    let Some(_turn) = common::daemons_beside() else { return };
    let (bed, plan) = line();
    let text = config(&bed, &plan);
    let other: UdpSocket = bed.source().udp_socket(([0, 0, 0, 0], 9426).into()).unwrap();
    let (code, said) = check(&bed, &text);
    assert_eq!(code, FAILED, "{said}");
    let named = format!("(process {}) has UDP port 9426 of 0.0.0.0", std::process::id());
    assert!(said.contains(&named), "{said}");
    drop(other);
    assert_eq!(check(&bed, &text).0, OK);
    let inside = text.replace("10.99.0.1/24", "10.77.1.77/24");
    assert_ne!(inside, text);
    let (code, said) = check(&bed, &inside);
    assert_eq!(code, FAILED, "{said}");
    assert!(said.contains("overlaps with 10.77.1.1/24 of east"), "{said}");
}

/// Two uplinks to one hub: its answers use both, and Linux would send to it through only one.
#[test]
fn strict_reverse_path_filter_is_found_and_loosened_by_the_printed_command() {
    let Some(_turn) = common::daemons_beside() else { return };
    let (bed, plan) = line();
    let (host, text) = (bed.source(), config(&bed, &plan));
    host.sysctl("net.ipv4.conf.east.rp_filter", "1").unwrap();
    let (code, said) = check(&bed, &text);
    assert_eq!(code, OK, "its own route is out of this link: {said}");
    // A better route by another interface.
    host.ip("link add other type veth peer name another").unwrap();
    host.ip("link set other up").unwrap();
    host.ip("route add 10.77.1.2/32 dev other").unwrap();
    let (code, said) = check(&bed, &text);
    assert_eq!(code, FAILED, "{said}");
    assert!(said.contains("rp_filter is strict there"), "{said}");
    assert!(said.contains("is out of other"), "{said}");
    shell(host, &printed(&said, "sysctl -w"));
    assert_eq!(check(&bed, &text).0, OK);
}

/// A shell outside the daemon's container: root enters its namespace.
#[test]
fn doctor_from_another_namespace_looks_at_that_of_the_daemon() {
    let Some(_turn) = common::daemons_beside() else { return };
    let (bed, plan) = line();
    let daemons = Daemon::start_line(&bed, &plan).unwrap();
    let mut said = String::new();
    common::wait_for("a line without errors", &daemons[0], || {
        common::answers(bed.source(), "10.99.0.2");
        let mut command = Command::new(binary("recodectl"));
        command.arg("--socket").arg(daemons[0].socket()).args(["doctor", "--seconds", "1"]);
        let ended = output(&mut command).unwrap();
        said = ended.stdout + &ended.stderr;
        said.contains("errors 0")
    });
    // This namespace has no such interfaces.
    assert!(!said.contains("no interface") && !said.contains("namespace"), "{said}");
}
