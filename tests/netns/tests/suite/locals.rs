//! Links that use their interface's address, which changes under traffic.

use std::fs;
use std::time::Duration;

use crate::common;
use recoded_netns::probe::{Probe, ProbePlan};
use recoded_netns::process::output;
use recoded_netns::{AuthPlan, Bed, CodePlan, Daemon, LinePlan, Loss};

/// Packets a second of the traffic.
const RATE: f64 = 500.0;
/// Longest gap when an address changes. The target is a second; more is allowed on a busy machine.
const GAP_MILLIS_MAX: f64 = 1_500.0;

/// By UDP sockets and keys: the far end follows the near one.
fn roaming() -> LinePlan {
    let auth = Some(AuthPlan::new("full", 1));
    let mut plan = LinePlan { auth, udp: vec![0, 1], roams: vec![0], ..LinePlan::protected(1) };
    plan.flows.iter_mut().for_each(|flow| flow.code = CodePlan::Stream);
    plan
}

/// Starts an end whose file does not set its own address.
fn start(bed: &Bed, index: usize, plan: &LinePlan) -> Daemon {
    start_written(bed, index, plan, |text| text)
}

/// The same, with a change of its file.
fn start_written(
    bed: &Bed,
    index: usize,
    plan: &LinePlan,
    change: impl Fn(String) -> String,
) -> Daemon {
    let bare = |socket: &str| {
        let text = change(plan.config(index, socket));
        let kept: String = text
            .lines()
            .filter(|line| !line.starts_with("local ="))
            .map(|it| format!("{it}\n"))
            .collect();
        assert_ne!(kept.lines().count(), text.lines().count(), "{text}");
        kept
    };
    Daemon::start_as(bed, index, plan, bare).unwrap()
}

fn local(daemon: &Daemon) -> String {
    daemon.show().map(|state| state.links[0].local.clone()).unwrap_or_default()
}

fn stream(bed: &Bed, seconds: u64) -> Probe {
    let plan = ProbePlan {
        to: ([10, 99, 0, 2], 9_000).into(),
        payload_bytes: 100,
        packets_per_second: RATE,
        length: Duration::from_secs(seconds),
        grace: Duration::from_secs(1),
        buffer_bytes: Some(1 << 20),
    };
    Probe::start(bed.source(), bed.sink(), &plan).unwrap()
}

/// Guards against a permanent outage, and against refusing reload and SIGHUP because of a `local`
/// that was not written.
#[test]
fn address_that_dhcp_changes_is_followed_within_a_second_at_a_roaming_client() {
    let Some(_turn) = common::daemons() else { return };
    let bed = common::bed(1, Loss::independent(0.0), 100.0);
    let plan = roaming();
    let far = Daemon::start(&bed, 1, &plan).unwrap();
    let near = start(&bed, 0, &plan);
    common::wait_for("a packet", &near, || common::answers(bed.source(), "10.99.0.2"));
    let own = Bed::west_address(1).to_string();
    assert_eq!(local(&near), own);
    let process = near.dataplane_pid().unwrap();
    let probe = stream(&bed, 6);
    std::thread::sleep(Duration::from_secs(2));
    // As a DHCP client does: removes the old address and adds another one.
    bed.source().ip("addr flush dev east").unwrap();
    bed.source().ip("addr add 10.77.1.55/24 dev east").unwrap();
    let outcome = probe.finish().unwrap();
    let gap = outcome.longest_gap_millis();
    println!("longest gap {gap:.0} ms, lost {} of {}", outcome.lost(), outcome.sent);
    assert!(gap < GAP_MILLIS_MAX, "{gap} ms:\n{}\n{}", near.log(), far.log());
    assert!(outcome.came > outcome.sent / 2, "{outcome:?}");
    common::wait_for("the address is shown", &near, || local(&near) == "10.77.1.55");
    assert_eq!(near.dataplane_pid().unwrap(), process, "{}", near.log());
    let said = output(&mut near.control(&["reload"])).unwrap();
    assert_eq!(said.code, Some(0), "{said:?}");
}

/// An uplink with IPv6 that dials again: another prefix, then an interface that is gone for a
/// second and comes back with a third one.
#[test]
fn prefix_that_changes_is_followed_over_ipv6_and_so_is_an_interface_that_returns_with_another() {
    let Some(_turn) = common::daemons() else { return };
    let bed = common::bed(1, Loss::independent(0.0), 100.0);
    let plan = roaming();
    for (host, interface, address) in
        [(bed.source(), "east", "fd00:77::1"), (bed.sink(), "west", "fd00:77::2")]
    {
        host.sysctl(&format!("net.ipv6.conf.{interface}.disable_ipv6"), "0").unwrap();
        host.ip(&format!("addr add {address}/32 dev {interface} nodad")).unwrap();
        host.ip(&format!("addr flush dev {interface} scope global to 10.77.0.0/16")).unwrap();
    }
    let over_ipv6 = |text: String| text.replace("10.77.1.", "fd00:77::");
    let far = Daemon::start_as(&bed, 1, &plan, |socket| over_ipv6(plan.config(1, socket))).unwrap();
    let near = start_written(&bed, 0, &plan, over_ipv6);
    let answers = || common::answers(bed.source(), "10.99.0.2");
    common::wait_for("a packet", &near, answers);
    assert_eq!(local(&near), "fd00:77::1");
    let change = |from: &str, to: &str| {
        bed.source().ip(&format!("addr del {from}/32 dev east")).unwrap();
        bed.source().ip(&format!("addr add {to}/32 dev east nodad")).unwrap();
    };
    let probe = stream(&bed, 6);
    std::thread::sleep(Duration::from_secs(2));
    change("fd00:77::1", "fd00:77:5::55");
    let outcome = probe.finish().unwrap();
    let gap = outcome.longest_gap_millis();
    println!(
        "another prefix: longest gap {gap:.0} ms, lost {} of {}",
        outcome.lost(),
        outcome.sent
    );
    assert!(gap < GAP_MILLIS_MAX, "{gap} ms:\n{}\n{}", near.log(), far.log());
    common::wait_for("the address is shown", &near, || local(&near) == "fd00:77:5::55");

    let probe = stream(&bed, 8);
    std::thread::sleep(Duration::from_secs(2));
    bed.source().ip("link set east down").unwrap();
    std::thread::sleep(Duration::from_secs(1));
    bed.source().ip("link set east up").unwrap();
    bed.source().ip("addr add fd00:77:6::66/32 dev east nodad").unwrap();
    let outcome = probe.finish().unwrap();
    let gap = outcome.longest_gap_millis();
    println!("dialled again: longest gap {gap:.0} ms, lost {} of {}", outcome.lost(), outcome.sent);
    assert!(gap < 1000.0 + GAP_MILLIS_MAX, "{gap} ms:\n{}\n{}", near.log(), far.log());
    common::wait_for("the address is shown", &near, || local(&near) == "fd00:77:6::66");
    common::wait_for("a packet after it", &near, answers);
}

/// Guards against Linux sending from the address of the tunnel, where the neighbour followed it.
#[test]
fn address_of_the_tunnel_is_never_the_source_while_the_link_has_none() {
    let Some(_turn) = common::daemons_beside() else { return };
    let bed = common::bed(1, Loss::independent(0.0), 100.0);
    let plan = roaming();
    let far = Daemon::start(&bed, 1, &plan).unwrap();
    let near = start(&bed, 0, &plan);
    common::wait_for("a packet", &near, || common::answers(bed.source(), "10.99.0.2"));
    let own = Bed::west_address(1).to_string();
    // The route stays, as one that an operator wrote would.
    bed.source().ip("route add 10.77.1.2/32 dev east").unwrap();
    bed.source().ip("addr flush dev east").unwrap();
    bed.source().ip("route replace 10.77.1.0/24 dev east").unwrap();
    common::wait_for("it waits", &near, || {
        near.show().is_ok_and(|state| state.links[0].waits.contains("no IPv4 address"))
    });
    let probe = stream(&bed, 2);
    probe.finish().unwrap();
    let endpoint = far.show().unwrap().links[0].neighbours[0].endpoint.clone();
    assert!(!endpoint.starts_with("10.99."), "{endpoint}");
    bed.source().ip(&format!("addr add {own}/24 dev east")).unwrap();
    common::wait_for("a packet after it", &near, || common::answers(bed.source(), "10.99.0.2"));
}

/// AF_XDP accepts packets for one address: its program is replaced, and its process if necessary.
#[test]
fn address_that_changes_is_followed_with_af_xdp_too() {
    let Some(_turn) = common::daemons_beside() else { return };
    let bed = common::bed(1, Loss::independent(0.0), 100.0);
    let mut plan = LinePlan::protected(1);
    plan.flows.iter_mut().for_each(|flow| flow.code = CodePlan::Stream);
    let far = Daemon::start(&bed, 1, &plan).unwrap();
    let mut near = start(&bed, 0, &plan);
    let answers = || common::answers(bed.source(), "10.99.0.2");
    common::wait_for("a packet", &near, answers);
    let own = Bed::west_address(1).to_string();
    assert_eq!(local(&near), own);

    // One address without a neighbour, and a second one that Linux does not choose as the source.
    bed.source().ip("addr add 192.0.2.1/24 dev east").unwrap();
    bed.source().ip("addr add 10.77.1.99/24 dev east").unwrap();
    let said = output(&mut near.control(&["reload"])).unwrap();
    assert!(said.code == Some(0) && said.stdout.contains("nothing"), "{said:?}");
    assert_eq!(local(&near), own);
    bed.source().ip("addr del 192.0.2.1/24 dev east").unwrap();
    bed.source().ip("addr del 10.77.1.99/24 dev east").unwrap();

    bed.source().ip("addr flush dev east").unwrap();
    bed.source().ip("addr add 10.77.1.55/24 dev east").unwrap();
    common::wait_for("the address", &near, || local(&near) == "10.77.1.55");
    // The far end has the address written.
    let written = fs::read_to_string(far.config()).unwrap();
    fs::write(far.config(), written.replace(&own, "10.77.1.55")).unwrap();
    let said = output(&mut far.control(&["reload"])).unwrap();
    assert_eq!(said.code, Some(0), "{said:?}");
    common::wait_for("a packet after it", &near, answers);
    assert!(near.stop(), "{}", near.log());
}
