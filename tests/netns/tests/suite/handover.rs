//! Changes of resources that a supervisor creates only once, such as links: a new supervisor takes
//! over, and tunnels come and go with it; a rollback restores the previous configuration.

use std::fs;

use crate::common;
use crate::events::events;
use crate::reload::{
    DONE, Download, FAILED, RATE_MBIT, REFUSED, line, probe, recodectl, rewrite, start_in, wait_for,
};
use recoded_netns::traffic::sha256;
use recoded_netns::{Bed, CodePlan, Daemon, LinePlan, Loss};
use serde_json::Value;

/// A line in front of another one that needs a new supervisor.
const GENERIC: &str = "xdp_mode = \"generic\"\nframes = ";

/// Linux's index of the source's tunnel, which changes if the interface is recreated.
fn tunnel_index(bed: &Bed) -> String {
    let link = bed.source().ip("-oneline link show dev rec0").unwrap();
    link.split(':').next().unwrap_or_default().to_owned()
}

/// A change that needs a new process: it takes over, and an unconfirmed change is rolled back.
#[test]
fn reload_of_tunnels_has_another_process_take_over_and_may_be_taken_back() {
    let Some(_turn) = common::daemons_beside() else { return };
    let (bed, daemons) = line();
    let Download { file, copy, fetch, _server } = Download::begin(&bed);
    let source = &daemons[0];
    bed.source().ip("route add 10.98.0.0/24 dev rec0").unwrap();
    let (supervisor, before) = (source.pid(), source.show().unwrap().config);
    let index = tunnel_index(&bed);
    let longer = |text: &str| {
        text.replacen(
            "[[tunnel]]",
            "[[tunnel]]\nname = \"rec7\"\naddress = \"10.97.0.1/24\"\n\n[[tunnel]]",
            1,
        )
    };
    rewrite(source, longer);
    let (code, said) = recodectl(source, "reload --diff");
    assert_eq!(code, DONE, "{said}");
    assert!(said.contains("gap ") && said.contains("tunnel rec7 is new"), "{said}");
    assert!(said.contains("other tunnels stay"), "{said}");

    let has = || bed.source().ip("link show dev rec7").is_ok();
    let (code, said) = recodectl(source, "reload --confirm 3s");
    assert_eq!(code, DONE, "{said}\n{}", source.log());
    assert!(said.contains("rolling back in 3 s"), "{said}");
    assert!(has(), "{}", source.log());
    assert_eq!((source.pid(), tunnel_index(&bed)), (supervisor, index.clone()), "{}", source.log());
    assert!(recodectl(source, "history").1.contains("active)"), "{}", source.log());
    wait_for("it is taken back", source, || !has());
    wait_for("it is back", source, || source.show().is_ok_and(|state| state.config == before));
    assert_eq!(tunnel_index(&bed), index);
    assert!(bed.source().ip("route show dev rec0").unwrap().contains("10.98.0.0/24"));

    let (code, said) = recodectl(source, "reload --confirm 30s");
    assert_eq!(code, DONE, "{said}\n{}", source.log());
    let (code, said) = recodectl(source, "confirm");
    assert_eq!(code, DONE, "{said}\n{}", source.log());
    let (code, said) = recodectl(source, "undo");
    assert_eq!(code, DONE, "{said}\n{}", source.log());
    wait_for("it is undone", source, || !has() && source.show().is_ok());
    // No other supervisor was needed.
    let told = events(source);
    let is_start = |event: &&Value| event["kind"] == "daemon_started";
    let numbers: Vec<u64> = told.iter().filter_map(|event| event["number"].as_u64()).collect();
    assert_eq!(told.iter().filter(is_start).count(), 1, "{told:?}");
    assert!(numbers.first() == Some(&1) && numbers.is_sorted(), "{numbers:?}");
    let download = fetch.finish().unwrap();
    assert!(download.complete, "the connection broke: {download:?}");
    assert_eq!(sha256(&file).unwrap(), sha256(&copy).unwrap());
}

/// A supervisor that took over has the previous configuration from its predecessor, not from a
/// disk.
#[test]
fn undo_of_what_another_supervisor_took_over_with_needs_no_directory() {
    let Some(_turn) = common::daemons_beside() else { return };
    let bed = common::bed(2, Loss::independent(0.0), RATE_MBIT);
    let relay = start_in(&bed, 1, Vec::new());
    let before = relay.show().unwrap().config;
    let tunnel = "\n[[tunnel]]\nname = \"rec7\"\naddress = \"10.97.0.1/24\"\n";
    rewrite(&relay, |text| text.replacen("frames = ", GENERIC, 1) + tunnel);
    let has = || bed.hosts()[1].ip("link show dev rec7").is_ok();
    let (code, said) = recodectl(&relay, "reload");
    assert_eq!((code, has()), (DONE, true), "{said}\n{}", relay.log());
    let (_, said) = recodectl(&relay, "history");
    assert!(said.contains("in memory only") && said.contains("(active)"), "{said}");
    let (code, said) = recodectl(&relay, "undo");
    assert_eq!(code, DONE, "{said}\n{}", relay.log());
    wait_for("it is undone", &relay, || {
        relay.show().is_ok_and(|state| state.config == before) && !has()
    });
    // A second undo restores it.
    let (code, said) = recodectl(&relay, "undo");
    assert_eq!(code, DONE, "{said}\n{}", relay.log());
    wait_for("the tunnel is back", &relay, || relay.show().is_ok() && has());
}

/// A change that this host cannot apply is refused up front. If only the supervisor or a process
/// finds the problem, it rolls back to the previous configuration.
#[test]
fn reload_that_no_supervisor_can_start_with_ends_with_the_configuration_before() {
    let Some(_turn) = common::daemons_beside() else { return };
    let (bed, daemons) = line();
    let relay = &daemons[1];
    let (before, supervisor) = (relay.show().unwrap().config, relay.pid());
    let process = relay.dataplane_pid().unwrap();
    let file = rewrite(relay, |text| text.replacen("\"east\"\nlocal", "\"away\"\nlocal", 1));
    let (code, said) = recodectl(relay, "reload");
    assert_eq!(code, REFUSED, "{said}");
    assert!(said.contains("no interface away") && said.contains("nothing was changed"), "{said}");
    assert_eq!(relay.dataplane_pid().unwrap(), process);
    fs::write(relay.config(), file).unwrap();

    // Linux refuses such an address on a newly created interface.
    let mut sysctl = bed.hosts()[1].command("sysctl");
    sysctl.args(["-q", "-w", "net.ipv6.conf.default.disable_ipv6=1"]);
    assert!(sysctl.status().unwrap().success());
    let tunnel = "\n[[tunnel]]\nname = \"rec7\"\naddress = \"fd00:97::1/64\"\n";
    rewrite(relay, |text| text.to_owned() + tunnel);
    let (code, said) = recodectl(relay, "reload");
    assert_eq!(code, FAILED, "{said}\n{}", relay.log());
    assert!(said.contains("rolled back to configuration"), "{said}");
    assert!(relay.log().contains("rolled back to the previous one"), "{}", relay.log());
    assert!(bed.hosts()[1].ip("link show dev rec7").is_err(), "half a tunnel stays");
    assert_eq!((&relay.show().unwrap().config, relay.pid()), (&before, supervisor));

    // A problem that only a dataplane process finds: veth does not support zero-copy.
    rewrite(relay, |text| {
        text.replace(tunnel, "").replacen("frames = ", "xdp_mode = \"zero-copy\"\nframes = ", 1)
    });
    let (code, said) = recodectl(relay, "reload");
    assert_eq!(code, FAILED, "{said}\n{}", relay.log());
    assert!(said.contains("rolled back to configuration"), "{said}");
    wait_for("it is as before", relay, || relay.show().is_ok_and(|it| it.config == before));
    assert_eq!(relay.pid(), supervisor);
    let outcome = probe(&bed, 1).finish().unwrap();
    assert!(outcome.came > outcome.sent * 9 / 10, "{}\n{}", outcome.came, relay.log());
}

/// Guards against an internal error: the tunnel kept the MTU that followed from IPv4, and IPv6
/// leaves less room.
#[test]
fn boxes_go_over_from_ipv4_to_ipv6_between_them_by_a_reload() {
    let Some(_turn) = common::daemons_beside() else { return };
    let bed = common::bed(1, Loss::independent(0.0), 100.0);
    for (index, interface) in ["east", "west"].into_iter().enumerate() {
        let host = &bed.hosts()[index];
        host.sysctl("net.ipv6.conf.all.disable_ipv6", "0").unwrap();
        host.sysctl(&format!("net.ipv6.conf.{interface}.disable_ipv6"), "0").unwrap();
        let address = format!("addr add fd00:77::{}/64 dev {interface} nodad", index + 1);
        host.ip(&address).unwrap();
    }
    let mut plan = LinePlan::protected(1);
    plan.flows.iter_mut().for_each(|flow| flow.code = CodePlan::Stream);
    plan.tunnels.iter_mut().for_each(|tunnel| tunnel.mtu = None);
    let daemons = [0, 1].map(|index| Daemon::start(&bed, index, &plan).unwrap());
    let answers = || common::answers(bed.source(), "10.99.0.2");
    wait_for("a packet", &daemons[0], answers);
    let mtu = |daemon: &Daemon| daemon.show().map_or(0, |state| state.tunnels[0].mtu_configured);
    let before = mtu(&daemons[0]);
    for daemon in &daemons {
        rewrite(daemon, |text| text.replace("10.77.1.", "fd00:77::"));
        let (code, said) = recodectl(daemon, "reload");
        assert_eq!(code, DONE, "{said}\n{}", daemon.log());
    }
    wait_for("a packet over IPv6", &daemons[0], answers);
    wait_for("the MTU of IPv6", &daemons[0], || mtu(&daemons[0]) == before - 20);
}
