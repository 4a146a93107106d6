//! Cards with up to eight queues: each of them is served by any number of workers.

use std::collections::HashSet;
use std::net::{SocketAddr, UdpSocket};
use std::thread::sleep;
use std::time::{Duration, Instant};

use recoded_netns::Namespace;

use super::{Case, Machine};
use crate::LabError;
use crate::guest::{Boxes, Guest, INSIDE, Setup, Stack, under_pings};
use crate::nic::Nic;

/// Linux's `igb` has one queue for each processor, and the card eight.
const QUEUES: usize = 8;

/// Connections of datagrams through the tunnel, as many as a flow has shards at most.
const CONNECTIONS: usize = 16;

/// Datagrams of each connection.
const DATAGRAMS: u16 = 8;

/// Pause after a datagram of each connection: processors are emulated.
const PAUSE: Duration = Duration::from_millis(50);

/// Timeout of the receiver after the last datagram, with the machine's eight processors in one
/// thread of the host.
const PATIENCE: Duration = Duration::from_secs(30);

/// Timeout until a new number of queues is served.
const SERVED_PATIENCE: Duration = Duration::from_secs(120);

/// Pings that may be lost, each with 5 s for its answer, while the driver starts the cards of both
/// boxes again and new processes take over.
const LOST_MAX: u32 = 5;

/// Eight processors, and two cards.
pub const MACHINE: Machine = Machine {
    name: "queues",
    nics: &[Nic::Igb],
    processors: QUEUES as u32,
    cases: &CASES,
    ..Machine::USUAL
};

const CASES: [Case; 3] = [
    Case {
        name: "igb-eight-queues-1",
        shows: "one worker serves 8 queues of igb: datagrams of 16 connections on each, and TCP",
        run: |guest| every_queue_is_served(guest, "workers = 1", &[QUEUES]),
    },
    Case {
        name: "igb-eight-queues-2",
        shows: "two workers serve one queue of igb, then 2, 4 and 8, added under pings",
        run: |guest| every_queue_is_served(guest, "workers = 2", &[1, 2, 4, QUEUES]),
    },
    Case {
        name: "igb-eight-queues-4",
        shows: "four workers serve 8 queues of igb likewise",
        run: |guest| every_queue_is_served(guest, "workers = 4", &[QUEUES]),
    },
];

/// All queues of the cards are served, for each of these numbers of queues in turn. They grow:
/// Linux refuses to take away a queue that an AF_XDP socket uses.
fn every_queue_is_served(
    guest: &Guest,
    daemon: &'static str,
    numbers: &[usize],
) -> Result<String, LabError> {
    let stack: Option<Stack> = (numbers[0] == 1).then_some(with_one_queue);
    let setup = Setup { daemon, stack, ..Setup::default() };
    let boxes = guest.pair(Nic::Igb)?.start(&setup)?;
    boxes.carry()?;
    let mut lost = 0;
    for &queues in numbers {
        if !are_served(&boxes, queues) {
            lost += change_queues(&boxes, queues)?;
        }
        each_queue_carries(&boxes, queues)?;
    }
    boxes.carry()?;
    let [a, _] = boxes.links()?;
    Ok(format!("{}, {}; all queues carry, {lost} pings lost", a.xdp_mode, a.socket_mode))
}

/// The cards of both boxes get this number of queues, under pings; returns how many were lost.
fn change_queues(boxes: &Boxes, queues: usize) -> Result<u32, LabError> {
    let [near, far] = boxes.nodes();
    let ((), pings) = under_pings(&near.namespace, far.inside, || {
        for node in boxes.nodes() {
            node.namespace.run("ethtool", &format!("-L {} combined {queues}", node.interface))?;
        }
        let began = Instant::now();
        while !are_served(boxes, queues) {
            if began.elapsed() > SERVED_PATIENCE {
                return LabError::wrong(format!("not {queues} queues: {:?}", boxes.links()));
            }
            sleep(PAUSE);
        }
        Ok(())
    })?;
    if pings.lost > LOST_MAX {
        return LabError::wrong(format!("{queues} queues: {pings}"));
    }
    Ok(pings.lost)
}

/// A process that is replaced does not answer for a moment.
fn are_served(boxes: &Boxes, queues: usize) -> bool {
    boxes.links().is_ok_and(|links| links.iter().all(|link| link.queues == queues as u64))
}

/// First the card distributes packets as its driver has set it. Then all arrive on one queue, and
/// on each of the others in turn.
fn each_queue_carries(boxes: &Boxes, queues: usize) -> Result<(), LabError> {
    for queue in 0..queues {
        for node in boxes.nodes() {
            let all = format!("-X {} start {queue} equal 1", node.interface);
            node.namespace.run("ethtool", &all)?;
        }
        let arrived = datagrams(boxes)?;
        if arrived < CONNECTIONS * usize::from(DATAGRAMS) {
            let links = boxes.links();
            return LabError::wrong(format!("queue {queue}: {arrived} datagrams: {links:?}"));
        }
    }
    Ok(())
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

/// The driver refuses fewer queues than the card distributes packets to.
fn with_one_queue(host: &Namespace, card: &str, _: usize) -> Result<String, LabError> {
    host.run("ethtool", &format!("-X {card} default"))?;
    host.run("ethtool", &format!("-L {card} combined 1"))?;
    Ok(card.into())
}
