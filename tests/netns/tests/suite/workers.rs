//! One flow over several workers at every host: each does its share, connections stay in order, and
//! packets received on another queue do not count as lost.

use crate::common;
use nix::sys::socket::{setsockopt, sockopt};
use recoded_netns::{Daemon, LinePlan, Loss};
use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

const RATE_MBIT: f64 = 100.0;

/// Workers of every daemon, and queues of every interface.
const WORKERS: u32 = 2;

/// Shards of each flow: the maximum. Linux spreads them over queues by a hash of addresses and
/// ports that differs from boot to boot and is unfair to neighbouring ports: a queue was seen with
/// one or two of them.
const SHARDS: u8 = 16;

/// Connections: enough that a fair hash leaves no worker with less than a quarter of them, except
/// once in 30,000 runs.
const CONNECTIONS: usize = 64;

/// Packets of each.
const PACKETS: u32 = 400;

/// Payload of a packet: the numbers of its connection and of itself.
fn payload(connection: u32, number: u32) -> Vec<u8> {
    let mut bytes = vec![0; 500];
    bytes[..4].copy_from_slice(&connection.to_be_bytes());
    bytes[4..8].copy_from_slice(&number.to_be_bytes());
    bytes
}

/// Numbers of the received packets by connection, in order of arrival.
fn receive(socket: &UdpSocket) -> HashMap<u32, Vec<u32>> {
    let mut came: HashMap<u32, Vec<u32>> = HashMap::new();
    let mut buffer = [0; 2048];
    while let Ok(length) = socket.recv(&mut buffer) {
        assert_eq!(length, 500);
        let word = |at: usize| u32::from_be_bytes(buffer[at..at + 4].try_into().unwrap());
        came.entry(word(0)).or_default().push(word(4));
    }
    came
}

#[test]
fn connections_spread_over_workers_and_each_stays_in_order() {
    let Some(_turn) = common::daemons() else { return };
    let queues = WORKERS as usize;
    let bed = common::bed_of_queues(queues, 2, Loss::independent(0.05), RATE_MBIT);
    let mut plan =
        LinePlan { workers: WORKERS, pace_mbit: Some(0.97 * RATE_MBIT), ..LinePlan::protected(2) };
    // Of two, both may meet in one queue.
    plan.flows.iter_mut().for_each(|flow| flow.shards = Some(SHARDS));
    let daemons = Daemon::start_line(&bed, &plan).unwrap();
    let to = SocketAddr::from(([10, 99, 0, 2], 7000));
    let receiver = bed.sink().udp_socket(to).unwrap();
    receiver.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    // What its thread reads late on a busy machine must not be lost in its own buffer.
    setsockopt(&receiver, sockopt::RcvBufForce, &(4 << 20)).unwrap();
    let from = SocketAddr::from(([10, 99, 0, 1], 0));
    let senders: Vec<UdpSocket> =
        (0..CONNECTIONS).map(|_| bed.source().udp_socket(from).unwrap()).collect();
    let came = std::thread::scope(|scope| {
        let receiving = scope.spawn(|| receive(&receiver));
        for number in 0..PACKETS {
            for (connection, sender) in (0..).zip(&senders) {
                let _ = sender.send_to(&payload(connection, number), to);
            }
            // 64 packets of 528 bytes every 6 ms are 45 Mbit/s.
            std::thread::sleep(Duration::from_millis(6));
        }
        receiving.join().unwrap()
    });
    let delivered: usize = came.values().map(Vec::len).sum();
    let sent = CONNECTIONS * PACKETS as usize;
    println!("{delivered} of {sent} packets of {} connections", came.len());
    assert!(delivered + sent / 500 >= sent, "{delivered} of {sent}");
    for (connection, numbers) in &came {
        assert!(numbers.is_sorted(), "connection {connection} came out of order: {numbers:?}");
    }
    for daemon in &daemons {
        let state = daemon.show().unwrap();
        let took: Vec<u64> = state.workers.iter().map(|worker| worker.received).collect();
        let all: u64 = took.iter().sum();
        println!("{}: {took:?} packets by worker, drops {:?}", daemon.name(), state.drops);
        // The source receives only feedback, and each shard sends as much of it as it needs.
        let least = if state.flows.iter().any(|flow| flow.role == "source") { 1 } else { all / 40 };
        assert!(took.iter().all(|&took| took >= least), "{}: {took:?}", daemon.name());
        for flow in &state.flows {
            for hop in &flow.hops {
                // Packets that went to another queue would be half of all.
                assert!(hop.loss < 0.1, "{}: {hop:?}", daemon.name());
            }
        }
    }
}
