//! Path state of a stream: its tunnel has a carrier while the next hop answers, and packets that
//! are too large for a link are reported.

use crate::common;
use recoded_netns::{Bed, CodePlan, Daemon, LinePlan, Loss, Namespace};
use std::net::{SocketAddr, UdpSocket};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A path is considered down after three seconds without an answer, and up within one.
const PATIENCE: Duration = Duration::from_secs(10);

/// Waits until `is_so`.
fn wait(what: &str, mut is_so: impl FnMut() -> bool) -> Duration {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    println!("{what} after {:?}", begin.elapsed());
    begin.elapsed()
}

fn has_carrier(host: &Namespace) -> bool {
    !host.ip("link show rec0").expect("the tunnel is there").contains("NO-CARRIER")
}

/// Waits until a datagram arrives that had not arrived before.
fn wait_for_traffic(what: &str, receiver: &UdpSocket) {
    receiver.set_nonblocking(true).unwrap();
    while receiver.recv(&mut [0; 2048]).is_ok() {}
    wait(what, || receiver.recv(&mut [0; 2048]).is_ok());
}

fn times_without_carrier(daemon: &Daemon) -> usize {
    daemon.log().matches("the tunnel has no carrier").count()
}

/// A line of two hops with streams over them.
fn line() -> (Bed, Vec<Daemon>) {
    let bed = common::bed(2, Loss::independent(0.02), 100.0);
    let mut plan = LinePlan::protected(2);
    plan.flows.iter_mut().for_each(|flow| flow.code = CodePlan::Stream);
    let daemons = Daemon::start_line(&bed, &plan).unwrap();
    (bed, daemons)
}

/// Runs `work` while datagrams of 1000 bytes pass through the tunnel, to the receiver that `work`
/// gets.
fn with_traffic(bed: &Bed, work: impl FnOnce(&UdpSocket)) {
    let to = SocketAddr::from(([10, 99, 0, 2], 7000));
    let receiver = bed.sink().udp_socket(to).unwrap();
    let sender = bed.source().udp_socket(SocketAddr::from(([10, 99, 0, 1], 0))).unwrap();
    let is_over = AtomicBool::new(false);
    let result = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let _ = sender.send_to(&[7; 1000], to);
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let result = catch_unwind(AssertUnwindSafe(|| work(&receiver)));
        is_over.store(true, Ordering::Relaxed);
        result
    });
    result.unwrap_or_else(|panic| resume_unwind(panic));
}

/// Checks for a line in a daemon's log about flow 1 and its next hop.
fn assert_logged(daemon: &Daemon, words: &str) {
    let log = daemon.log();
    let line = log.lines().find(|line| line.contains(words)).unwrap_or_else(|| panic!("{log}"));
    println!("{line}");
    assert!(line.contains("flow=1") && line.contains("neighbour=\"east:"), "{line}");
}

#[test]
fn tunnel_loses_its_carrier_with_the_relay_and_gets_it_back() {
    let Some(_turn) = common::daemons_beside() else { return };
    let (bed, mut daemons) = line();
    with_traffic(&bed, |receiver| {
        wait_for_traffic("traffic flows", receiver);
        assert!(has_carrier(bed.source()));
        daemons[1].kill();
        let took = wait("the carrier is gone", || !has_carrier(bed.source()));
        assert!(took > Duration::from_secs(2), "too soon: {took:?}");
        let state = daemons[0].show().unwrap();
        assert_eq!(state.tunnels[0].state, "no-carrier");
        assert!(state.flows[0].neighbours.iter().all(|hop| hop.silent));
        assert_eq!(state.flows[0].state.as_deref(), Some("down"));
        daemons[1].spawn_again().unwrap();
        daemons[1].wait_until_it_answers().unwrap();
        wait("the carrier is back", || has_carrier(bed.source()));
        wait_for_traffic("traffic flows again", receiver);
        assert_eq!(times_without_carrier(&daemons[0]), 1);

        // A restart causes at most one loss of carrier, however long it takes.
        daemons[1].kill();
        daemons[1].spawn_again().unwrap();
        daemons[1].wait_until_it_answers().unwrap();
        std::thread::sleep(Duration::from_secs(5));
        wait("the carrier is there", || has_carrier(bed.source()));
        wait_for_traffic("traffic flows after a restart", receiver);
        assert!(times_without_carrier(&daemons[0]) <= 2, "{}", daemons[0].log());
    });
    assert_logged(&daemons[0], "the next hop has not answered");
    assert_logged(&daemons[0], "the next hop answers again");
}

#[test]
fn link_that_drops_large_packets_is_named_and_the_carrier_stays() {
    let Some(_turn) = common::daemons_beside() else { return };
    let (bed, daemons) = line();
    let lost = || daemons[0].show().unwrap().flows[0].neighbours[0].lost_packet_bytes;
    with_traffic(&bed, |receiver| {
        wait_for_traffic("traffic flows", receiver);
        // Behind the interface of the host, which cannot see it.
        bed.link(1).ip("link set west mtu 900").unwrap();
        wait("large packets are missed", || lost().is_some_and(|bytes| bytes > 900));
        wait("that is logged", || daemons[0].log().contains("do not arrive"));
        assert!(has_carrier(bed.source()));
        bed.link(1).ip("link set west mtu 1500").unwrap();
        wait("they are back", || lost().is_none());
        wait_for_traffic("traffic flows again", receiver);
    });
    assert_logged(&daemons[0], "do not arrive");
}
