//! What hosts see of the path of a stream: its tunnel has a carrier while the next hop answers.

use crate::common;
use recoded_netns::{CodePlan, Daemon, LinePlan, Loss, Namespace};
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A path is dead after three seconds without an answer, and back within one.
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

#[test]
fn tunnel_loses_its_carrier_with_the_relay_and_gets_it_back() {
    let Some(_turn) = common::daemons() else { return };
    let bed = common::bed(2, Loss::independent(0.02), 100.0);
    let mut plan = LinePlan::protected(2);
    plan.flows.iter_mut().for_each(|flow| flow.code = CodePlan::Stream);
    let mut daemons = Daemon::start_line(&bed, &plan).unwrap();
    let to = SocketAddr::from(([10, 99, 0, 2], 7000));
    let receiver = bed.sink().udp_socket(to).unwrap();
    let sender = bed.source().udp_socket(SocketAddr::from(([10, 99, 0, 1], 0))).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let _ = sender.send_to(&[7; 1000], to);
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait_for_traffic("traffic flows", &receiver);
            assert!(has_carrier(bed.source()));
            daemons[1].kill();
            let took = wait("the carrier is gone", || !has_carrier(bed.source()));
            assert!(took > Duration::from_secs(2), "too soon: {took:?}");
            let state = daemons[0].show().unwrap();
            assert_eq!(state.tunnels[0].state, "no-carrier");
            assert!(state.flows[0].neighbours.iter().all(|hop| hop.silent));
            daemons[1].spawn_again().unwrap();
            daemons[1].wait_until_it_answers().unwrap();
            wait("the carrier is back", || has_carrier(bed.source()));
            wait_for_traffic("traffic flows again", &receiver);
            assert_eq!(times_without_carrier(&daemons[0]), 1);

            // A restart costs the carrier once at most, however long it takes.
            daemons[1].kill();
            daemons[1].spawn_again().unwrap();
            daemons[1].wait_until_it_answers().unwrap();
            std::thread::sleep(Duration::from_secs(5));
            wait("the carrier is there", || has_carrier(bed.source()));
            wait_for_traffic("traffic flows after a restart", &receiver);
            assert!(times_without_carrier(&daemons[0]) <= 2, "{}", daemons[0].log());
        }));
        is_over.store(true, Ordering::Relaxed);
        if let Err(panic) = result {
            println!("{}", daemons[0].log());
            std::panic::resume_unwind(panic);
        }
    });
    let log = daemons[0].log();
    for words in ["the next hop has not answered", "the next hop answers again"] {
        let line = log.lines().find(|line| line.contains(words)).expect(words);
        println!("{line}");
        assert!(line.contains("flow=1") && line.contains("neighbour=east:"), "{line}");
    }
}
