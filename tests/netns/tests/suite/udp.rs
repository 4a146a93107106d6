//! Hosts whose links have UDP sockets (`backend = "udp"`): alone, together with AF_XDP, without
//! privileges, behind address translation.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use crate::common;
use recoded_api::v1::State;
use recoded_netns::process::output;
use recoded_netns::traffic::{Fetch, WebServer, sha256, write_random_file};
use recoded_netns::{AuthPlan, Bed, CodePlan, Daemon, LinePlan, Loss};
use recoded_wire::DEFAULT_PORT;

/// Rate of the links: any two cores carry a line of three daemons at this.
const RATE_MBIT: f64 = 100.0;

/// The web server through the tunnel.
const SERVER: [u8; 4] = [10, 99, 0, 1];

/// Timeout until counters are published.
const PATIENCE: Duration = Duration::from_secs(10);

/// A line of two hops whose flows are streams.
fn plan(udp: &[usize]) -> LinePlan {
    let mut plan =
        LinePlan { pace_mbit: Some(0.97 * RATE_MBIT), udp: udp.to_vec(), ..LinePlan::protected(2) };
    plan.flows.iter_mut().for_each(|flow| flow.code = CodePlan::Stream);
    plan
}

/// Downloads a file through the line by TCP and compares it.
fn download(bed: &Bed, bytes: u64) {
    let (file, copy) = (bed.directory().join("file"), bed.directory().join("copy"));
    let _server = WebServer::start(bed.source(), bed.directory()).unwrap();
    write_random_file(&file, bytes).unwrap();
    let limit = Duration::from_secs(60);
    let fetch = Fetch::start(bed.sink(), SERVER.into(), "file", &copy, limit).unwrap();
    let download = fetch.finish().unwrap();
    println!("{download:?}, {:.1} Mbit/s", download.mbit());
    assert!(download.complete, "{download:?}");
    assert_eq!(sha256(&file).unwrap(), sha256(&copy).unwrap());
}

/// Every frame is accounted for, every packet has one outcome, and the sockets are of the requested
/// kind.
fn assert_sound(daemons: &[Daemon], udp: &[usize]) {
    for (index, daemon) in daemons.iter().enumerate() {
        let state = daemon.show().unwrap();
        for worker in &state.workers {
            let frames = &worker.frames;
            let places = frames.free + frames.fill + frames.held + frames.tx;
            assert_eq!(frames.total, places, "frames leak on {}", daemon.name());
            let fates = worker.forwarded + worker.consumed + worker.handed_over + worker.dropped;
            assert_eq!(worker.received, fates, "packets vanish on {}", daemon.name());
        }
        for link in &state.links {
            assert_eq!(link.socket_mode == "udp", udp.contains(&index), "{link:?}");
            let sent = ["tx_full", "tx_no_neighbour", "tx_oversize"].map(|name| link.faults[name]);
            assert_eq!(sent, [0; 3], "{} {}", daemon.name(), link.name);
        }
        assert!(state.verdicts["redirected"] > 100, "{}: {:?}", daemon.name(), state.verdicts);
    }
}

#[test]
fn download_over_udp_sockets_and_lossy_hops_arrives_whole() {
    let Some(_turn) = common::daemons_beside() else { return };
    let bed = common::bed(2, Loss::independent(0.1), RATE_MBIT);
    let all = [0, 1, 2];
    let daemons = Daemon::start_line(&bed, &plan(&all)).unwrap();
    download(&bed, 12 << 20);
    assert_sound(&daemons, &all);
    for host in bed.hosts() {
        let links = host.ip("-details link show").unwrap();
        assert!(!links.contains("xdp"), "there is an XDP program: {links}");
    }
}

#[test]
fn hosts_with_udp_sockets_and_with_af_xdp_understand_each_other() {
    let Some(_turn) = common::daemons_beside() else { return };
    for udp in [&[1][..], &[0, 2]] {
        let bed = common::bed(2, Loss::independent(0.05), RATE_MBIT);
        let keyed = LinePlan { auth: Some(AuthPlan::new("full", 2)), ..plan(udp) };
        let daemons = Daemon::start_line(&bed, &keyed).unwrap();
        download(&bed, 4 << 20);
        assert_sound(&daemons, udp);
        for daemon in &daemons {
            let state = daemon.show().unwrap();
            let wrong: u64 = state.links.iter().map(|link| link.faults["rx_wrong_tag"]).sum();
            assert_eq!(wrong, 0, "{}", daemon.name());
        }
    }
}

/// On veth, AF_XDP relays more packets and UDP sockets carry more at the ends; without privileges
/// there is no AF_XDP.
#[test]
fn hosts_that_may_choose_have_what_is_faster_or_what_can_be_had() {
    let Some(_turn) = common::daemons() else { return };
    let bed = common::bed(2, Loss::independent(0.05), RATE_MBIT);
    let keyed = || Some(AuthPlan::new("full", 2));
    let chooses = vec![0, 1, 2];
    let mut daemons =
        Daemon::start_line(&bed, &LinePlan { auth: keyed(), chooses, ..plan(&[]) }).unwrap();
    download(&bed, 4 << 20);
    assert_sound(&daemons, &[0, 2]);
    let reason = |daemon: &Daemon| daemon.show().unwrap().links[0].reason.clone();
    assert!(reason(&daemons[0]).contains("veth"), "{}", reason(&daemons[0]));
    // The choice holds when another dataplane process takes over.
    for daemon in &daemons {
        daemon.signal_dataplane(rustix::process::Signal::KILL).unwrap();
    }
    std::thread::sleep(Duration::from_millis(300));
    for daemon in &mut daemons {
        daemon.wait_until_it_answers().unwrap();
        daemon.wait_until_it_has_sessions().unwrap();
    }
    download(&bed, 4 << 20);
    assert_sound(&daemons, &[0, 2]);
    drop((daemons, bed));
    let bed = common::bed(2, Loss::independent(0.05), RATE_MBIT);
    let unprivileged =
        LinePlan { auth: keyed(), chooses: vec![1], unprivileged: vec![1], ..plan(&[]) };
    let daemons = Daemon::start_line(&bed, &unprivileged).unwrap();
    download(&bed, 1 << 20);
    assert_sound(&daemons, &[1]);
    let said = "AF_XDP needs CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF, CAP_PERFMON";
    assert_eq!(reason(&daemons[1]), said);
}

/// A relay needs no tunnel, and hence no privileges: neither to start nor to restart.
#[test]
fn relay_with_udp_sockets_runs_as_a_user_without_privilege() {
    let Some(_turn) = common::daemons_beside() else { return };
    let bed = common::bed(2, Loss::independent(0.05), RATE_MBIT);
    let keyed =
        LinePlan { auth: Some(AuthPlan::new("full", 2)), unprivileged: vec![1], ..plan(&[1]) };
    let mut daemons = Daemon::start_line(&bed, &keyed).unwrap();
    for pid in [daemons[1].pid(), daemons[1].dataplane_pid().unwrap()] {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = |name| status.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        assert!(line("Uid:").ends_with("\t65534"), "{status}");
        assert!(line("CapBnd:").ends_with("\t0000000000000000"), "{status}");
    }
    assert!(daemons[1].log().contains("sandbox: no capabilities"), "{}", daemons[1].log());
    download(&bed, 4 << 20);
    assert_sound(&daemons, &[1]);
    daemons[1].spawn_again().unwrap();
    daemons[1].wait_until_it_answers().unwrap();
    daemons.iter().for_each(|daemon| daemon.wait_until_it_has_sessions().unwrap());
    download(&bed, 1 << 20);
    // The new dataplane process opens its sockets as that user.
    daemons[1].signal_dataplane(rustix::process::Signal::KILL).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    daemons[1].wait_until_it_answers().unwrap();
    daemons.iter().for_each(|daemon| daemon.wait_until_it_has_sessions().unwrap());
    download(&bed, 1 << 20);
    // The next supervisor takes over from the process that the previous one left.
    daemons[1].kill_supervisor();
    download(&bed, 1 << 20);
    daemons[1].start_supervisor().unwrap();
    daemons[1].wait_until_it_answers().unwrap();
    daemons.iter().for_each(|daemon| daemon.wait_until_it_has_sessions().unwrap());
    download(&bed, 1 << 20);
}

fn verdict(state: &State, name: &str) -> u64 {
    state.verdicts[name]
}

#[test]
fn packets_of_others_end_at_a_udp_socket_and_are_counted_by_name() {
    let Some(_turn) = common::daemons_beside() else { return };
    let bed = common::bed(2, Loss::independent(0.0), RATE_MBIT);
    let daemons = Daemon::start_line(&bed, &plan(&[0, 1, 2])).unwrap();
    // Another host on the link, and the neighbour's own address, used by another program.
    bed.source().ip("addr add 10.77.1.66/24 dev east").unwrap();
    let from = |address: [u8; 4]| -> UdpSocket {
        bed.source().udp_socket(SocketAddr::from((address, 0))).unwrap()
    };
    let (outsider, neighbour) = (from([10, 77, 1, 66]), from([10, 77, 1, 1]));
    let relay = SocketAddr::new(Bed::east_address(1), DEFAULT_PORT);
    let mut coded = [0; 64];
    coded[0] = 0x32;
    coded[7] = 1;
    let mut unknown = coded;
    unknown[7] = 99;
    for number in 0..500 {
        outsider.send_to(&coded, relay).unwrap();
        neighbour.send_to(&[0xff; 700], relay).unwrap();
        neighbour.send_to(&unknown, relay).unwrap();
        neighbour.send_to(&coded[..number % 16], relay).unwrap();
    }
    let wanted = ["drop_not_neighbour", "drop_version", "drop_unknown_flow", "drop_truncated"];
    let deadline = Instant::now() + PATIENCE;
    loop {
        let state = daemons[1].show().unwrap();
        if wanted.iter().all(|name| verdict(&state, name) == 500) {
            break;
        }
        assert!(Instant::now() < deadline, "{:?}", state.verdicts);
        std::thread::sleep(Duration::from_millis(20));
    }
    download(&bed, 2 << 20);
    let state = daemons[1].show().unwrap();
    assert_eq!(verdict(&state, "drop_not_neighbour"), 500);
    assert!(state.links.iter().any(|link| link.not_neighbours == ["10.77.1.66"]), "{state:?}");
    let mut neighbours = state.links.iter().flat_map(|link| &link.neighbours);
    let source = neighbours.find(|it| it.address == "10.77.1.1").unwrap();
    assert_eq!((source.other_protocol, source.other_protocol_packets), (Some(15), 500));
}

/// The relay is behind a box that only replaces the relay's address by its own. Packets pass in
/// both directions, because each comes from the port that the answer is sent to.
#[test]
fn source_behind_address_translation_is_heard_and_answered() {
    let Some(_turn) = common::daemons_beside() else { return };
    let bed = common::bed(1, Loss::independent(0.02), RATE_MBIT);
    // The source has another address than the sink knows; it is translated to the known one inside
    // the source's own stack. Unsolicited packets are dropped, as such boxes do: otherwise the
    // first packet of the sink would take the port.
    let inside = [10, 77, 200, 1];
    let east = Bed::west_address(1);
    let source = bed.source();
    source.ip("addr add 10.77.200.1/32 dev east").unwrap();
    let rules = format!(
        "add table ip nat; \
         add chain ip nat out {{ type nat hook postrouting priority 100; }}; \
         add rule ip nat out ip saddr 10.77.200.1 snat to {east}; \
         add chain ip nat in {{ type filter hook input priority 0; }}; \
         add rule ip nat in iif east ct state new drop"
    );
    let translated = source.command("nft").arg(&rules).output();
    if !translated.is_ok_and(|output| output.status.success()) {
        let reason = "`nft` is not installed, or Linux has no nf_tables";
        assert!(std::env::var_os("RECODED_REQUIRE_ALL").is_none(), "cannot run: {reason}");
        println!("skipped: {reason}");
        return;
    }
    // If a device has no checksum offload, Linux 6.18 translates messages of many packets wrongly.
    let checksums = "-K east tx-checksum-ip-generic on tx-udp-segmentation off";
    source.run("ethtool", checksums).unwrap();
    let mut plan = LinePlan {
        pace_mbit: Some(0.97 * RATE_MBIT),
        udp: vec![0, 1],
        inside: Some(inside.into()),
        auth: Some(AuthPlan::new("full", 1)),
        ..LinePlan::protected(1)
    };
    plan.flows.iter_mut().for_each(|flow| flow.code = CodePlan::Stream);
    let daemons = Daemon::start_line(&bed, &plan).unwrap();
    download(&bed, 4 << 20);
    assert_sound(&daemons, &[0, 1]);
    let shown = daemons[0].show().unwrap();
    assert_eq!(shown.links[0].local, "10.77.200.1");
    assert_eq!(verdict(&daemons[1].show().unwrap(), "drop_not_neighbour"), 0);
}

/// Events of this kind that a daemon reports.
fn events(daemon: &Daemon, kind: &str) -> Vec<String> {
    let answer = output(&mut daemon.control(&["--json", "events"])).unwrap();
    let answer: serde_json::Value = serde_json::from_str(&answer.stdout).unwrap();
    let all = answer["events"].as_array().unwrap();
    let told = all.iter().filter(|event| event["kind"] == kind);
    told.map(|event| event["text"].as_str().unwrap().to_owned()).collect()
}

/// A host that moves: its only address changes twice during a download from it, and no connection
/// is affected. Its neighbour reports the new address, and so do `show` and the events.
#[test]
fn source_that_changes_its_address_under_traffic_goes_on() {
    let Some(_turn) = common::daemons_beside() else { return };
    let bed = common::bed(1, Loss::independent(0.02), RATE_MBIT);
    let mut plan = LinePlan {
        pace_mbit: Some(0.97 * RATE_MBIT),
        udp: vec![0, 1],
        inside: Some([0, 0, 0, 0].into()),
        roams: vec![0],
        auth: Some(AuthPlan::new("full", 1)),
        ..LinePlan::protected(1)
    };
    plan.flows.iter_mut().for_each(|flow| flow.code = CodePlan::Stream);
    let daemons = Daemon::start_line(&bed, &plan).unwrap();
    let (file, copy) = (bed.directory().join("file"), bed.directory().join("copy"));
    let _server = WebServer::start(bed.source(), bed.directory()).unwrap();
    write_random_file(&file, 40 << 20).unwrap();
    let limit = Duration::from_secs(120);
    let fetch = Fetch::start(bed.sink(), SERVER.into(), "file", &copy, limit).unwrap();
    let first = Bed::west_address(1).to_string();
    let addresses = [&first[..], "10.77.1.77", "10.77.1.78"];
    for (moves, pair) in (1..).zip(addresses.windows(2)) {
        std::thread::sleep(Duration::from_millis(700));
        bed.source().ip(&format!("addr add {}/24 dev east", pair[1])).unwrap();
        bed.source().ip(&format!("addr del {}/24 dev east", pair[0])).unwrap();
        bed.source().ip(&format!("addr add {}/24 dev east", pair[1])).ok();
        let expected = format!("{}:{DEFAULT_PORT}", pair[1]);
        let deadline = Instant::now() + PATIENCE;
        loop {
            let neighbour = daemons[1].show().unwrap().links[0].neighbours[0].clone();
            // While the interface has no address, Linux uses one of another interface.
            if neighbour.endpoint == expected && neighbour.moves >= moves {
                break;
            }
            assert!(Instant::now() < deadline, "{neighbour:?}\n{}", daemons[1].log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    let download = fetch.finish().unwrap();
    println!("{download:?}, {:.1} Mbit/s", download.mbit());
    assert!(download.complete, "{download:?}");
    assert_eq!(sha256(&file).unwrap(), sha256(&copy).unwrap());
    let shown = output(&mut daemons[1].control(&["show", "links"])).unwrap().stdout;
    assert!(shown.contains(&format!("at 10.77.1.78:{DEFAULT_PORT} after ")), "{shown}");
    let deadline = Instant::now() + PATIENCE;
    let told = format!("{first} is at 10.77.1.78:{DEFAULT_PORT} now");
    while events(&daemons[1], "neighbour_moved").last() != Some(&told) {
        assert!(Instant::now() < deadline, "{:?}", events(&daemons[1], "neighbour_moved"));
        std::thread::sleep(Duration::from_millis(100));
    }
    let neighbour = &daemons[0].show().unwrap().links[0].neighbours[0];
    assert_eq!((neighbour.endpoint.as_str(), neighbour.moves), ("", 0), "the sink stayed");
}
