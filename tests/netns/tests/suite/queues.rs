//! Interfaces with several receive queues: each queue is served, whatever the number of workers,
//! and however the queues change under traffic.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::common;
use recoded_api::v1::State;
use recoded_netns::traffic::{Fetch, WebServer, sha256, write_random_file};
use recoded_netns::{AuthPlan, Bed, Daemon, LinePlan, Loss, Namespace};

const RATE_MBIT: f64 = 200.0;

/// Connections: Linux spreads them over the shards, and the emulator spreads shards over queues.
const CONNECTIONS: usize = 32;

/// Packets of each.
const PACKETS: usize = 40;

/// Concurrent downloads.
const DOWNLOADS: usize = 4;

/// Shards of each flow: the most there may be.
const SHARDS: u8 = 16;

/// Least number of queues that receive packets once a relay has eight. On some machines it is four,
/// although packets of all shards arrive; packets on any but the first queue were lost once.
const USED: usize = 2;

/// The web server through the tunnel.
const SERVER: [u8; 4] = [10, 99, 0, 1];

fn plan(workers: u32) -> LinePlan {
    let mut plan = LinePlan {
        workers,
        pace_mbit: Some(0.97 * RATE_MBIT),
        auth: Some(AuthPlan::new("full", 2)),
        ..LinePlan::protected(2)
    };
    plan.flows.iter_mut().for_each(|flow| flow.shards = Some(SHARDS));
    plan
}

/// Datagrams since the start that arrived at a host and found the buffer of their socket full.
fn overruns(host: &Namespace) -> usize {
    let counted = host.run("cat", "/proc/net/snmp").unwrap();
    let mut lines = counted.lines().filter(|line| line.starts_with("Udp:"));
    let (names, counts) = (lines.next().unwrap(), lines.next().unwrap());
    let at = names.split(' ').position(|name| name == "RcvbufErrors").unwrap();
    counts.split(' ').nth(at).unwrap().parse().unwrap()
}

/// Calls of [`datagrams`]: distinguishes their packets.
static RUNS: AtomicU64 = AtomicU64::new(0);

/// Sends datagrams of many connections through the line; returns how many arrive.
fn datagrams(bed: &Bed) -> usize {
    let run = RUNS.fetch_add(1, Ordering::Relaxed);
    let before = overruns(bed.sink());
    let to = SocketAddr::from(([10, 99, 0, 2], 7000));
    let receiver = bed.sink().udp_socket(to).unwrap();
    receiver.set_read_timeout(Some(Duration::from_secs(4))).unwrap();
    let from = SocketAddr::from(([10, 99, 0, 1], 0));
    let senders: Vec<UdpSocket> =
        (0..CONNECTIONS).map(|_| bed.source().udp_socket(from).unwrap()).collect();
    std::thread::scope(|scope| {
        let receiving = scope.spawn(|| {
            let (mut came, mut buffer) = (HashSet::new(), [0; 2048]);
            while came.len() < CONNECTIONS * PACKETS && receiver.recv(&mut buffer).is_ok() {
                // Packets of another call may arrive late, and a few twice.
                if buffer[..8] == run.to_be_bytes() {
                    came.insert(buffer[8..16].to_vec());
                }
            }
            // On a busy machine, this thread may be too slow.
            (came.len() + overruns(bed.sink()) - before).min(CONNECTIONS * PACKETS)
        });
        for number in 0..PACKETS {
            for (connection, sender) in senders.iter().enumerate() {
                let number = (number * CONNECTIONS + connection) as u64;
                let mut payload = [7; 500];
                payload[..8].copy_from_slice(&run.to_be_bytes());
                payload[8..16].copy_from_slice(&number.to_be_bytes());
                drop(sender.send_to(&payload, to));
            }
            std::thread::sleep(Duration::from_millis(4));
        }
        receiving.join().unwrap()
    })
}

/// Downloads a file several times at once, and compares.
fn downloads(bed: &Bed) {
    let file = bed.directory().join("file");
    write_random_file(&file, 1 << 20).unwrap();
    let _server = WebServer::start(bed.source(), bed.directory()).unwrap();
    let copies: Vec<_> =
        (0..DOWNLOADS).map(|number| bed.directory().join(format!("copy{number}"))).collect();
    let limit = Duration::from_secs(30);
    let fetches: Vec<Fetch> = copies
        .iter()
        .map(|copy| Fetch::start(bed.sink(), SERVER.into(), "file", copy, limit).unwrap())
        .collect();
    for (fetch, copy) in fetches.into_iter().zip(&copies) {
        let download = fetch.finish().unwrap();
        assert!(download.complete, "{download:?}");
        assert_eq!(sha256(&file).unwrap(), sha256(copy).unwrap());
    }
}

/// Number of receive queues of an interface whose XDP program saw packets.
fn queues_that_received(host: &Namespace, interface: &str) -> usize {
    let counted = host.run("ethtool", &format!("-S {interface}")).unwrap();
    let received = counted.lines().filter_map(|line| line.trim().split_once(": "));
    received
        .filter(|(name, count)| {
            name.starts_with("rx_queue_") && name.ends_with("_xdp_packets") && *count != "0"
        })
        .count()
}

/// Packets for this daemon that arrived on queues without a socket, or found no free frame.
fn lost_at_sockets(daemon: &Daemon) -> u64 {
    let state = daemon.show().unwrap();
    let starved: u64 = state.links.iter().map(|link| link.faults["rx_fill_ring_empty"]).sum();
    state.verdicts.get("drop_no_socket").copied().unwrap_or(0) + starved
}

/// All nonzero drop counters of a daemon.
fn drops(state: &State) -> String {
    let flows = state.flows.iter().flat_map(|flow| &flow.counters);
    let links = state.links.iter().flat_map(|link| &link.faults);
    let counters = state.drops.iter().chain(&state.verdicts).chain(links).chain(flows);
    counters.filter(|(_, count)| **count != 0).fold(String::new(), |mut text, (name, count)| {
        let _ = write!(text, "{name}={count} ");
        text
    })
}

#[test]
fn every_queue_is_served_whatever_the_number_of_workers() {
    let Some(_turn) = common::daemons_beside() else { return };
    for queues in [1, 2, 4, 8] {
        let bed = common::bed_of_queues(queues, 2, Loss::independent(0.0), RATE_MBIT);
        for workers in [1, 2, 4] {
            let daemons = Daemon::start_line(&bed, &plan(workers)).unwrap();
            let sent = CONNECTIONS * PACKETS;
            // Neighbours that started earlier send before the sockets are open.
            let lost: Vec<u64> = daemons.iter().map(lost_at_sockets).collect();
            let delivered = datagrams(&bed);
            downloads(&bed);
            println!("{queues} queues, {workers} workers: {delivered} of {sent}");
            let states: Vec<_> = daemons.iter().map(|daemon| daemon.show().unwrap()).collect();
            let lost_where: Vec<String> = states.iter().map(drops).collect();
            assert_eq!(delivered, sent, "{queues} queues, {workers} workers: {lost_where:?}");
            for ((daemon, state), lost) in daemons.iter().zip(&states).zip(lost) {
                assert_eq!(lost_at_sockets(daemon), lost, "{}: {state:?}", daemon.name());
                for link in &state.links {
                    assert_eq!(link.queues, queues as u64, "{link:?}");
                    assert_ne!(link.socket_mode, "udp", "{link:?}");
                }
                let log = daemon.log();
                assert!(!log.contains("ethtool -L"), "{log}");
            }
        }
        let received = queues_that_received(&bed.hosts()[1], "west");
        assert!(received > queues / 2, "{received} of {queues} queues received anything");
    }
}

/// Gives the interfaces of a host `count` queues, and as many to the link ends they connect to:
/// each end of a veth pair with a program receives on as many queues as the other end sends on.
fn set_queues(bed: &Bed, host: usize, count: usize) {
    for (link, interface) in [(host, "west"), (host + 1, "east")] {
        let before = if interface == "west" { "east" } else { "west" };
        let at_host = || bed.hosts()[host].run("ethtool", &format!("-L {interface} rx {count}"));
        let at_link = || bed.link(link).run("ethtool", &format!("-L {before} tx {count}"));
        if count == 1 {
            at_link().unwrap();
            at_host().unwrap();
        } else {
            at_host().unwrap();
            at_link().unwrap();
        }
    }
}

/// Guards against a program that veth runs only on the queues of its start: packets on later ones
/// went to Linux, which has no such port, and with keys no handshake was answered.
#[test]
fn queues_added_under_traffic_are_served_and_a_flap_of_the_link_is_survived() {
    let Some(_turn) = common::daemons_beside() else { return };
    let bed = common::bed_of_queues(8, 2, Loss::independent(0.0), RATE_MBIT);
    set_queues(&bed, 1, 1);
    let daemons = Daemon::start_line(&bed, &plan(2)).unwrap();
    let (relay, sent) = (&daemons[1], CONNECTIONS * PACKETS);
    let queues = || -> Vec<u64> {
        // There is no answer while another process takes over.
        let links = relay.show().map(|state| state.links).unwrap_or_default();
        links.iter().map(|link| link.queues).collect()
    };
    assert_eq!(queues(), [1, 1]);
    assert_eq!(datagrams(&bed), sent);

    let begun = Instant::now();
    std::thread::scope(|scope| {
        let traffic = scope.spawn(|| datagrams(&bed));
        set_queues(&bed, 1, 8);
        common::wait_for("every queue is served", relay, || queues() == [8, 8]);
        println!("served after {:.1?}; {} of {sent}", begun.elapsed(), traffic.join().unwrap());
    });
    let has_sessions = relay.wait_until_it_has_sessions();
    assert!(has_sessions.is_ok(), "{has_sessions:?}:\n{}", relay.log());
    // Retransmissions of earlier datagrams arrive late. Repairs for the replaced process may exceed
    // the pace for a while, so that a few generations of the next datagrams are lost.
    common::wait_for("packets pass on all queues, twice in a row", relay, || {
        datagrams(&bed) == sent && datagrams(&bed) == sent
    });
    let lost = lost_at_sockets(relay);
    let received = || queues_that_received(&bed.hosts()[1], "west");
    println!("with more queues: {} of {sent}", datagrams(&bed));
    assert_eq!(lost_at_sockets(relay), lost, "no packet is lost at its socket from then on");
    assert!(received() >= USED, "{} queues received anything", received());

    for interface in ["west", "east"] {
        let traffic = ["down", "up"].map(|state| format!("link set {interface} {state}"));
        std::thread::scope(|scope| {
            let sending = scope.spawn(|| datagrams(&bed));
            std::thread::sleep(Duration::from_millis(50));
            traffic.iter().for_each(|command| drop(bed.hosts()[1].ip(command).unwrap()));
            println!("flap of {interface}: {} of {sent}", sending.join().unwrap());
        });
    }
    common::wait_for("packets pass again", relay, || datagrams(&bed) == sent);
    assert_eq!(lost_at_sockets(relay), lost);
}
