//! Separate routing tables: a link whose routes are in one, by a VRF if Linux supports it, and a
//! tunnel in a VRF.

use std::process::Output;
use std::time::{Duration, Instant};

use crate::common;
use recoded_netns::{Bed, CodePlan, Daemon, LinePlan, Loss, Namespace, binary};

/// Until something on a busy machine is as it should be.
const PATIENCE: Duration = Duration::from_secs(60);

/// The other end of the tunnel.
const FAR: &str = "10.99.0.2";
const FAR_IPV6: &str = "fd00:99::2";

/// Exit codes of recodectl.
const OK: i32 = 0;
const FAILED: i32 = 1;
const UNHEALTHY: i32 = 5;

/// The table of the VRF.
const TABLE: &str = "82";

fn plan(udp: &[usize]) -> LinePlan {
    let mut plan = LinePlan { udp: udp.to_vec(), ..LinePlan::protected(1) };
    plan.flows.iter_mut().for_each(|flow| flow.code = CodePlan::Stream);
    plan
}

/// Creates a VRF; `false` if Linux does not support it.
fn make_vrf(host: &Namespace) -> bool {
    host.ip(&format!("link add blue type vrf table {TABLE}")).is_ok_and(|_| {
        host.ip("link set blue up").unwrap();
        true
    })
}

/// Runs recodectl on a host; returns its exit code and its output in one line.
fn recodectl(host: &Namespace, daemon: &Daemon, arguments: &str) -> (i32, String) {
    let mut command = host.command(binary("recodectl"));
    command.arg("--socket").arg(daemon.socket()).args(arguments.split(' '));
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned();
    (status.code().unwrap_or(-1), text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Runs recodectl until it returns the wanted exit code and output.
fn wait_for(host: &Namespace, daemon: &Daemon, arguments: &str, wanted_code: i32, wanted: &str) {
    let begun = Instant::now();
    loop {
        let (code, text) = recodectl(host, daemon, arguments);
        if code == wanted_code && text.contains(wanted) {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{arguments}: {code}: {text}\n{}", daemon.log());
    }
}

/// If the source's link has separate routes, only sockets bound to its interface use them: sockets
/// of the daemon of either kind, and the probes of `doctor`.
#[test]
fn link_with_routes_of_its_own_is_used_by_both_kinds_of_sockets() {
    let Some(_turn) = common::daemons_beside() else { return };
    for udp in [&[0][..], &[1]] {
        let bed = common::bed(1, Loss::independent(0.0), 100.0);
        let source = bed.source();
        if make_vrf(source) {
            source.ip("link set east master blue").unwrap();
        } else {
            println!("this Linux has no VRF: a rule does");
            source.ip(&format!("route add 10.77.1.0/24 dev east table {TABLE}")).unwrap();
            source.ip("route del 10.77.1.0/24 dev east").unwrap();
            source.ip(&format!("rule add oif east table {TABLE}")).unwrap();
        }
        let near = Bed::east_address(1);
        let main = source.ip(&format!("route get {near}"));
        assert!(main.is_err(), "the neighbour is in the main table: {main:?}");
        let mut daemons = Daemon::start_line(&bed, &plan(udp)).unwrap();
        wait_for(source, &daemons[0], &format!("ping {FAR} -c 1 -W 1"), OK, "answered 1");
        wait_for(bed.sink(), &daemons[1], "ping 10.99.0.1 -c 1 -W 1", OK, "answered 1");
        wait_for(source, &daemons[0], "doctor --seconds 1", OK, "errors 0");
        assert!(daemons[1].stop());
        let closed = format!("{near} answers \"port 9426 unreachable\"");
        wait_for(source, &daemons[0], "doctor", UNHEALTHY, &closed);
    }
}

/// The tunnel of the source is moved into a VRF while it runs, and stays there with its addresses
/// across replacements of the daemon's processes; packets routed there never leave in the clear.
#[test]
fn tunnel_in_a_vrf_carries_what_is_routed_there_and_stays_in_it() {
    let Some(_turn) = common::daemons_beside() else { return };
    let bed = common::bed(1, Loss::independent(0.05), 100.0);
    let source = bed.source();
    if !make_vrf(source) {
        return println!("skipped: this Linux has no VRF (CONFIG_NET_VRF)");
    }
    for host in bed.hosts() {
        host.sysctl("net.ipv6.conf.all.disable_ipv6", "0").unwrap();
        host.sysctl("net.ipv6.conf.default.disable_ipv6", "0").unwrap();
    }
    let start = |index: usize| {
        let host = index + 1;
        let one = format!("address = \"10.99.0.{host}/24\"");
        let both = format!("address = [\"10.99.0.{host}/24\", \"fd00:99::{host}/64\"]");
        let text = |socket: &str| {
            let text = plan(&[]).config(index, socket);
            assert!(text.contains(&one), "{text}");
            text.replace(&one, &both).replace("[[tunnel]]", "[[tunnel]]\nkill_switch = true")
        };
        Daemon::start_with(&bed, index, text).unwrap()
    };
    let mut daemons = [start(0), start(1)];
    source.ip("link set rec0 master blue").unwrap();
    source.ip(&format!("route add 10.98.0.0/24 dev rec0 table {TABLE}")).unwrap();
    let pings = |daemon: &Daemon| {
        for (address, interface) in [(FAR, "rec0"), (FAR, "blue"), (FAR_IPV6, "rec0")] {
            let echo = format!("ping {address} -I {interface} -c 1 -W 1");
            wait_for(source, daemon, &echo, OK, "answered 1");
        }
        let (code, text) = recodectl(source, daemon, &format!("ping {FAR} -c 1"));
        assert!(code == FAILED && text.contains("name it with --interface"), "{code}: {text}");
    };
    pings(&daemons[0]);

    daemons[0].signal_dataplane(rustix::process::Signal::KILL).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    daemons[0].wait_until_it_answers().unwrap();
    pings(&daemons[0]);
    daemons[0].kill_supervisor();
    daemons[0].start_supervisor().unwrap();
    daemons[0].wait_until_it_answers().unwrap();
    pings(&daemons[0]);
    assert!(source.ip("link show rec0").unwrap().contains("master blue"));

    // Without the tunnel, no other route of the VRF has these packets.
    let behind = || {
        let table = source.ip(&format!("route show type unreachable table {TABLE}")).unwrap();
        table.contains("10.99.0.0/24") && table.contains("10.98.0.0/24")
    };
    let begun = Instant::now();
    while !behind() {
        assert!(begun.elapsed() < PATIENCE, "{}", daemons[0].log());
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(daemons[0].stop(), "{}", daemons[0].log());
    assert!(behind());
    let main = source.ip("route show type unreachable").unwrap();
    assert!(!main.contains("10.98.0.0/24"), "{main}");
}
