//! Cards with four queues: each of them is served by any number of workers.

use std::collections::HashSet;
use std::net::{SocketAddr, UdpSocket};
use std::thread::sleep;
use std::time::Duration;

use super::{Case, Machine};
use crate::LabError;
use crate::guest::{Boxes, Guest, INSIDE, Setup};
use crate::nic::Nic;

/// Linux's `igb` has one queue for each processor.
const QUEUES: usize = 4;

/// Connections of datagrams through the tunnel, as many as a flow has shards at most.
const CONNECTIONS: usize = 16;

/// Datagrams of each connection.
const DATAGRAMS: u16 = 8;

/// Pause after a datagram of each connection: processors are emulated.
const PAUSE: Duration = Duration::from_millis(50);

/// Timeout of the receiver after the last datagram.
const PATIENCE: Duration = Duration::from_secs(10);

/// Four processors, and two cards.
pub const MACHINE: Machine = Machine {
    name: "queues",
    nics: &[Nic::Igb],
    processors: QUEUES as u32,
    cases: &CASES,
    ..Machine::USUAL
};

const CASES: [Case; 3] = [
    Case {
        name: "igb-four-queues-1",
        shows: "one worker serves four queues of igb: datagrams of 16 connections on each, and TCP",
        run: |guest| every_queue_is_served(guest, "workers = 1"),
    },
    Case {
        name: "igb-four-queues-2",
        shows: "two workers serve four queues of igb likewise",
        run: |guest| every_queue_is_served(guest, "workers = 2"),
    },
    Case {
        name: "igb-four-queues-4",
        shows: "four workers serve four queues of igb likewise",
        run: |guest| every_queue_is_served(guest, "workers = 4"),
    },
];

/// First the card distributes packets as its driver has set it. Then all arrive on one queue, and
/// on each of the others in turn; TCP runs on the last one.
fn every_queue_is_served(guest: &Guest, daemon: &'static str) -> Result<String, LabError> {
    let setup = Setup { daemon, ..Setup::default() };
    let boxes = guest.pair(Nic::Igb)?.start(&setup)?;
    boxes.carry()?;
    let links = boxes.links()?;
    if let Some(link) = links.iter().find(|link| link.queues != QUEUES as u64) {
        return LabError::wrong(format!("{} of {QUEUES} queues are served", link.queues));
    }
    for queue in 0..QUEUES {
        for node in boxes.nodes() {
            let all = format!("-X {} start {queue} equal 1", node.interface);
            node.namespace.run("ethtool", &all)?;
        }
        let arrived = datagrams(&boxes)?;
        if arrived < CONNECTIONS * usize::from(DATAGRAMS) {
            return LabError::wrong(format!("queue {queue}: {arrived} datagrams: {links:?}"));
        }
    }
    boxes.carry()?;
    let [a, _] = links;
    Ok(format!("{}, {}; all {QUEUES} queues carry", a.xdp_mode, a.socket_mode))
}

/// Sends datagrams of all connections through the tunnel; returns how many arrive.
fn datagrams(boxes: &Boxes) -> Result<usize, LabError> {
    let [source, sink] = boxes.nodes();
    let failed = |error: std::io::Error| LabError::Wrong(format!("datagrams: {error}"));
    let address = |end: usize, port: u16| -> SocketAddr {
        SocketAddr::from((INSIDE[end].parse::<std::net::Ipv4Addr>().unwrap_or([0; 4].into()), port))
    };
    let receiver = sink.namespace.udp_socket(address(1, 7000))?;
    receiver.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    let senders: Vec<UdpSocket> = (0..CONNECTIONS)
        .map(|_| Ok(source.namespace.udp_socket(address(0, 0))?))
        .collect::<Result<_, LabError>>()?;
    for number in 0..DATAGRAMS {
        for (connection, sender) in senders.iter().enumerate() {
            let payload = [connection as u8, number as u8];
            sender.send_to(&payload, address(1, 7000)).map_err(failed)?;
        }
        sleep(PAUSE);
    }
    let (mut arrived, mut buffer) = (HashSet::new(), [0; 64]);
    while arrived.len() < CONNECTIONS * usize::from(DATAGRAMS) {
        let Ok(length) = receiver.recv(&mut buffer) else { break };
        arrived.insert(buffer[..length].to_vec());
    }
    Ok(arrived.len())
}
