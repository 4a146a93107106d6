//! Links whose interface, address or port is missing at the start: the daemon serves the rest,
//! reports the missing resource, and uses the link once it appears, without a lost packet on the
//! others.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use crate::common;
use recoded_api::v1::Link;
use recoded_netns::probe::{Probe, ProbePlan};
use recoded_netns::process::output;
use recoded_netns::{Bed, CodePlan, Daemon, LinePlan, Loss};

/// A second link and a flow over it.
const SPARE: &str = r#"
[[link]]
name = "spare"
interface = "wan0"

[[tunnel]]
name = "rec9"
address = "10.98.0.1/24"

[[flow]]
id = 9
role = "source"
tunnel = "rec9"
next_hops = [{ link = "spare", address = "192.0.2.9" }]
"#;

fn plan() -> LinePlan {
    let mut plan = LinePlan { udp: vec![0, 1], ..LinePlan::protected(1) };
    plan.flows.iter_mut().for_each(|flow| flow.code = CodePlan::Stream);
    plan
}

/// Both ends, the first one with a second link.
fn start(bed: &Bed) -> (Daemon, Daemon) {
    let far = Daemon::start(bed, 1, &plan()).unwrap();
    let with_spare = |socket: &str| {
        let text = plan().config(0, socket);
        // Keys of [daemon] precede the rest.
        format!("{text}{SPARE}")
    };
    let near = Daemon::start_as(bed, 0, &plan(), with_spare).unwrap();
    common::wait_for("a packet", &near, || common::answers(bed.source(), "10.99.0.2"));
    (near, far)
}

fn link(daemon: &Daemon, name: &str) -> Link {
    let state = daemon.show().unwrap();
    state.links.into_iter().find(|link| link.name == name).expect("a link of that name")
}

fn waits(daemon: &Daemon, name: &str) -> String {
    daemon.show().map_or_else(
        |_| String::new(),
        |state| state.links.into_iter().find(|it| it.name == name).map_or("".into(), |it| it.waits),
    )
}

#[test]
fn missing_interface_is_waited_for_and_taken_into_use_without_a_lost_packet_elsewhere() {
    let Some(_turn) = common::daemons_beside() else { return };
    let bed = common::bed(1, Loss::independent(0.0), 100.0);
    let (mut near, _far) = start(&bed);
    assert_eq!(waits(&near, "spare"), "interface wan0 is missing");
    let state = near.show().unwrap();
    let flow = state.flows.iter().find(|flow| flow.id == 9).expect("the flow");
    let of_flow = (flow.state.as_deref(), flow.waits.as_str());
    assert_eq!(of_flow, (Some("waiting"), "link spare: interface wan0 is missing"));
    let shown = output(&mut near.control(&["show"])).unwrap().stdout;
    assert!(shown.contains("waiting: interface wan0 is missing"), "{shown}");
    let said = output(&mut near.control(&["doctor"])).unwrap().stdout;
    assert!(said.contains("waiting: interface wan0 is missing"), "{said}");

    // The interface appears without an address, gets one, then another one, disappears and
    // reappears with another index.
    let process = near.dataplane_pid().unwrap();
    let stream = ProbePlan {
        to: ([10, 99, 0, 2], 9_000).into(),
        payload_bytes: 100,
        packets_per_second: 500.0,
        length: Duration::from_secs(12),
        grace: Duration::from_secs(1),
        buffer_bytes: Some(1 << 20),
    };
    let probe = Probe::start(bed.source(), bed.sink(), &stream).unwrap();
    let source = bed.source();
    let add = || source.ip("link add wan0 type veth peer name wan1").unwrap();
    add();
    source.ip("link set wan0 up").unwrap();
    source.ip("link set wan1 up").unwrap();
    common::wait_for("its address is missing", &near, || waits(&near, "spare").contains("address"));
    let is_at = |address: &str| {
        let link = link(&near, "spare");
        (link.state.as_str(), link.local.as_str()) == ("up", address)
    };
    source.ip("addr add 192.0.2.1/24 dev wan0").unwrap();
    common::wait_for("the link is used", &near, || is_at("192.0.2.1"));
    source.ip("addr del 192.0.2.1/24 dev wan0").unwrap();
    source.ip("addr add 192.0.2.2/24 dev wan0").unwrap();
    common::wait_for("the other address", &near, || is_at("192.0.2.2"));
    source.ip("link del wan0").unwrap();
    common::wait_for("it is gone", &near, || waits(&near, "spare") == "interface wan0 is missing");
    add();
    source.ip("addr add 192.0.2.1/24 dev wan0").unwrap();
    source.ip("link set wan0 up").unwrap();
    source.ip("link set wan1 up").unwrap();
    common::wait_for("it is back", &near, || is_at("192.0.2.1"));
    let outcome = probe.finish().unwrap();
    assert_eq!(outcome.lost(), 0, "of {}:\n{}", outcome.sent, near.log());
    assert_eq!(near.dataplane_pid().unwrap(), process, "{}", near.log());
    let once = "link spare waits: interface wan0 is missing";
    assert_eq!(near.log().matches(once).count(), 1, "{}", near.log());
    assert!(near.stop(), "{}", near.log());
}

#[test]
fn port_that_another_program_has_is_waited_for() {
    let Some(_turn) = common::daemons_beside() else { return };
    let bed = common::bed(1, Loss::independent(0.0), 100.0);
    let far = Daemon::start(&bed, 1, &plan()).unwrap();
    let any = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 9426);
    let taken = bed.source().udp_socket(any).unwrap();
    let near = Daemon::start(&bed, 0, &plan()).unwrap();
    assert_eq!(link(&near, "east").state, "waiting");
    assert!(waits(&near, "east").contains("nothing else has the port"), "{}", near.log());
    let process = near.dataplane_pid().unwrap();
    drop(taken);
    common::wait_for("the link is used", &near, || link(&near, "east").state == "up");
    common::wait_for("a packet", &near, || common::answers(bed.source(), "10.99.0.2"));
    assert_eq!(near.dataplane_pid().unwrap(), process, "{}", near.log());
    drop(far);
}
