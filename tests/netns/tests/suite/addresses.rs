//! Tunnels with several addresses, IPv4 and IPv6: set when they are created, changed by a reload,
//! and kept by the next supervisor.

use std::fs;

use crate::common;
use recoded_netns::process::output;
use recoded_netns::{Bed, CodePlan, Daemon, LinePlan, Loss, Namespace};

fn plan() -> LinePlan {
    let mut plan = LinePlan::protected(1);
    plan.flows.iter_mut().for_each(|flow| flow.code = CodePlan::Stream);
    plan
}

/// The file of an end with these addresses of its tunnel.
fn text(index: usize, socket: &str, addresses: &str) -> String {
    let one = format!("address = \"10.99.0.{}/24\"", index + 1);
    let text = plan().config(index, socket);
    assert!(text.contains(&one), "{text}");
    text.replace(&one, &format!("address = [{addresses}]"))
}

fn answers(bed: &Bed, address: &str) -> bool {
    common::answers(bed.source(), address)
}

fn has(host: &Namespace, address: &str) -> bool {
    host.ip("address show dev rec0").unwrap().contains(&format!(" {address} "))
}

#[test]
fn tunnel_has_both_families_changes_addresses_live_and_keeps_them() {
    let Some(_turn) = common::daemons_beside() else { return };
    let bed = common::bed(1, Loss::independent(0.0), 100.0);
    for host in bed.hosts() {
        host.sysctl("net.ipv6.conf.all.disable_ipv6", "0").unwrap();
        host.sysctl("net.ipv6.conf.default.disable_ipv6", "0").unwrap();
    }
    let both = |index: usize| {
        let host = index + 1;
        format!("\"10.99.0.{host}/24\", \"fd00:99::{host}/64\", \"10.98.0.{host}/24\"")
    };
    let start = |index: usize| {
        Daemon::start_as(&bed, index, &plan(), |socket| text(index, socket, &both(index)))
    };
    let mut daemons = [start(0).unwrap(), start(1).unwrap()];
    for address in ["10.99.0.2", "fd00:99::2", "10.98.0.2"] {
        common::wait_for(address, &daemons[0], || answers(&bed, address));
    }
    let shown = daemons[0].show().unwrap().tunnels[0].addresses.clone();
    assert_eq!(shown, ["10.99.0.1/24", "fd00:99::1/64", "10.98.0.1/24"]);
    let table = output(&mut daemons[0].control(&["show"])).unwrap().stdout;
    assert!(table.contains("fd00:99::1/64") && table.contains("10.98.0.1/24"), "{table}");

    // Addresses and routes that an operator added survive changes of the file.
    bed.source().ip("route add 10.55.0.0/24 dev rec0").unwrap();
    bed.source().ip("address add 10.96.0.1/24 dev rec0").unwrap();
    for (index, daemon) in daemons.iter().enumerate() {
        let host = index + 1;
        let next = format!("\"10.99.0.{host}/24\", \"fd00:97::{host}/64\"");
        let written = fs::read_to_string(daemon.config()).unwrap();
        let changed = written.replace(&both(index), &next);
        assert_ne!(written, changed);
        fs::write(daemon.config(), changed).unwrap();
        let process = daemon.dataplane_pid().unwrap();
        let said = output(&mut daemon.control(&["reload"])).unwrap();
        assert_eq!(said.code, Some(0), "{said:?}");
        assert_eq!(daemon.dataplane_pid().unwrap(), process, "{}", daemon.log());
    }
    for address in ["10.99.0.2", "fd00:97::2"] {
        common::wait_for(address, &daemons[0], || answers(&bed, address));
    }
    let assert_dressed = |bed: &Bed| {
        let source = bed.source();
        assert!(has(source, "10.99.0.1/24") && has(source, "fd00:97::1/64"));
        assert!(!has(source, "fd00:99::1/64") && !has(source, "10.98.0.1/24"));
        assert!(has(source, "10.96.0.1/24"));
        assert!(source.ip("route show dev rec0").unwrap().contains("10.55.0.0/24"));
    };
    assert_dressed(&bed);

    // The next supervisor adopts the tunnel unchanged, together with the current file.
    let near = &mut daemons[0];
    let process = near.dataplane_pid().unwrap();
    near.kill_supervisor();
    let written = fs::read_to_string(near.config()).unwrap();
    let changed = written.replace("\"fd00:97::1/64\"", "\"fd00:97::1/64\", \"10.95.0.1/24\"");
    assert_ne!(written, changed);
    fs::write(near.config(), changed).unwrap();
    near.start_supervisor().unwrap();
    common::wait_for("another process", near, || {
        near.dataplane_pid().is_ok_and(|pid| pid != process)
    });
    near.wait_until_it_answers().unwrap();
    common::wait_for("the new address", near, || has(bed.source(), "10.95.0.1/24"));
    assert_dressed(&bed);
    common::wait_for("a packet after the takeover", near, || answers(&bed, "fd00:97::2"));
}
