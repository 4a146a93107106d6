//! The sockets of the workers: how they open, and the worker that serves each queue of each link.
//!
//! ```text
//!  queue q of a link -> worker q % workers, one AF_XDP socket each, on the frames of that worker
//!  worker w sends by its socket on queue w; where that is none for sending, by a UDP socket
//! ```
//!
//! So every receive queue is served, whatever the number of workers. A packet that arrives at a
//! worker without its shard is handed over, as usual.

use crate::attach::Attachment;
use crate::error::StartError;
use crate::netlink::Netlink;
use crate::port::{LinkMode, Port, XdpPort};
use crate::reserve::Reserve;
use crate::topology::{Backend, Topology};
use crate::udp::UdpSocket;
use recoded_wire::steer::XSKS_MAX;
use recoded_xsk::{ActiveMode, ModePreference, Queues, Socket, SocketMode, Umem, XskError};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

/// Resources of one worker.
pub(crate) struct WorkerResources {
    /// By link; `None` without an interface.
    pub(crate) ports: Vec<Option<Port>>,
    pub(crate) umem: Umem,
    /// Further descriptors of the sockets, to wait on, by link.
    pub(crate) socket_fds: Vec<Vec<OwnedFd>>,
}

/// The inputs for opening sockets.
struct Ground<'a> {
    topology: &'a Topology,
    attachments: &'a [Attachment],
    /// Queues of each interface; `None` without one.
    queues: &'a [Option<Queues>],
}

/// The reason why the sockets of a worker cannot be opened.
pub(crate) struct Refused {
    pub(crate) error: StartError,
    /// The link of the failed socket, if it was a socket.
    pub(crate) link: Option<usize>,
}

impl<E: Into<StartError>> From<E> for Refused {
    fn from(error: E) -> Refused {
        Refused { error: error.into(), link: None }
    }
}

/// Mode of a link's sockets; `None` for a link without any.
pub(crate) type Mode = Option<LinkMode>;

/// The queues of an existing interface; those of a link with UDP sockets do not matter.
pub(crate) fn queues_of(topology: &Topology, link: usize, netlink: &Netlink) -> Queues {
    let config = &topology.links[link];
    if config.backend == Backend::Udp {
        return Queues::ONE;
    }
    match netlink.queues(&config.interface) {
        Ok(queues) => {
            if queues.receive > XSKS_MAX {
                tracing::warn!(
                    "link {}: {} has {} receive queues, more than the {XSKS_MAX} that are served",
                    config.name,
                    config.interface,
                    queues.receive
                );
            }
            queues
        }
        Err(error) => {
            tracing::warn!(
                "link {}: {error}: the first queue of {} is served",
                config.name,
                config.interface
            );
            Queues::ONE
        }
    }
}

/// Served receive queues of an interface.
pub(crate) fn served(queues: Queues) -> u32 {
    queues.receive.min(XSKS_MAX)
}

/// The queues of one worker on an interface.
#[derive(Clone, PartialEq, Eq, Debug)]
struct WorkerQueues {
    /// The sending queue comes first.
    queues: Vec<u32>,
    /// Whether the first one can send.
    sends: bool,
}

impl WorkerQueues {
    fn of(worker: usize, workers: usize, queues: Queues) -> WorkerQueues {
        let first = worker as u32;
        let sends = first < queues.transmit.min(XSKS_MAX);
        let received = (first..served(queues)).step_by(workers);
        // A transmit-only queue also has a socket, if the worker has no other.
        let only_sends = (sends && first >= served(queues)).then_some(first);
        WorkerQueues { queues: only_sends.into_iter().chain(received).collect(), sends }
    }
}

/// The sockets of all workers, on frames of `reserve` if they fit.
///
/// If Linux has fewer queues than the driver reports, `queues` has their number afterwards.
pub(crate) fn open_workers(
    topology: &Topology,
    attachments: &[Attachment],
    queues: &mut [Option<Queues>],
    reserve: &mut Reserve,
) -> Result<(Vec<WorkerResources>, Vec<Mode>), Refused> {
    loop {
        let ground = Ground { topology, attachments, queues };
        let refused = match open_all(&ground, reserve) {
            Ok(opened) => return Ok(opened),
            Err(refused) => refused,
        };
        match (&refused.error, refused.link) {
            (StartError::Socket(error @ XskError::NoSuchQueue { queue, .. }), Some(link))
                if *queue > 0 =>
            {
                tracing::warn!("link {}: {error}", topology.links[link].name);
                if let Some(queues) = &mut queues[link] {
                    queues.receive = queues.receive.min(*queue);
                    queues.transmit = queues.transmit.min(*queue);
                }
            }
            _ => return Err(refused),
        }
    }
}

fn open_all(
    ground: &Ground<'_>,
    reserve: &mut Reserve,
) -> Result<(Vec<WorkerResources>, Vec<Mode>), Refused> {
    let (mut opened, mut modes) = (Vec::new(), Vec::new());
    for worker in 0..ground.topology.workers {
        let (worker, of_worker) = open_worker(ground, worker, reserve.take(ground.topology)?)?;
        opened.push(worker);
        merge_modes(&mut modes, of_worker);
    }
    Ok((opened, modes))
}

/// The sockets of one worker on every present link, over its frames.
///
/// With `auto`, all sockets copy if one of them has to: those on the same frames are alike.
fn open_worker(
    ground: &Ground<'_>,
    worker: usize,
    umem: Umem,
) -> Result<(WorkerResources, Vec<Mode>), Refused> {
    let topology = ground.topology;
    match open_ports(ground, worker, umem, topology.xdp_mode) {
        Err(Refused { error: StartError::Socket(XskError::MixedModes { .. }), .. })
            if topology.xdp_mode == ModePreference::Auto =>
        {
            let umem = Umem::new(topology.frames_per_worker)?;
            open_ports(ground, worker, umem, ModePreference::Native)
        }
        outcome => outcome,
    }
}

fn open_ports(
    ground: &Ground<'_>,
    worker: usize,
    mut umem: Umem,
    preference: ModePreference,
) -> Result<(WorkerResources, Vec<Mode>), Refused> {
    let Ground { topology, queues, .. } = ground;
    let is_xdp = |link: &usize| topology.links[*link].backend != Backend::Udp;
    let links = 0..topology.links.len();
    let parts: Vec<Option<WorkerQueues>> = links
        .clone()
        .map(|link| queues[link].map(|queues| WorkerQueues::of(worker, topology.workers, queues)))
        .collect();
    let sockets = links.clone().filter(is_xdp).filter_map(|link| parts[link].as_ref());
    umem.expect_sockets(sockets.map(|part| part.queues.len() as u32).sum());
    let (mut ports, mut modes) = (Vec::new(), Vec::new());
    for (link, part) in links.zip(&parts) {
        let refused = |error| Refused { error, link: Some(link) };
        let Some(part) = part else {
            ports.push(None);
            modes.push(None);
            continue;
        };
        if !is_xdp(&link) {
            let (socket, lacks) = UdpSocket::open(topology, link).map_err(refused)?;
            let reason = joined([ground.attachments[link].mode().1, lacks]);
            modes.push(Some(LinkMode::Udp(reason)));
            ports.push(Some(Port::Udp(Box::new(socket))));
            continue;
        }
        let (port, mode) = open_xdp(ground, link, part, &mut umem, preference).map_err(refused)?;
        modes.push(mode);
        ports.push(Some(port));
    }
    let socket_fds = ports
        .iter()
        .map(|port| port.iter().flat_map(Port::fds).map(|fd| fd.try_clone_to_owned()).collect())
        .collect::<Result<_, _>>()
        .map_err(|source| StartError::Limit { what: "a descriptor", source })?;
    Ok((WorkerResources { ports, umem, socket_fds }, modes))
}

/// The sockets of one worker on a link with AF_XDP.
fn open_xdp(
    ground: &Ground<'_>,
    link: usize,
    part: &WorkerQueues,
    umem: &mut Umem,
    preference: ModePreference,
) -> Result<(Port, Mode), StartError> {
    let Ground { topology, attachments, .. } = ground;
    let attachment = &attachments[link];
    let interface = attachment.interface();
    let (xdp, xdp_reason) = attachment.mode();
    let (mut sockets, mut modes) = (Vec::with_capacity(part.queues.len()), Vec::new());
    for (index, queue) in part.queues.iter().copied().enumerate() {
        let opened = match part.sends && index == 0 {
            true => Socket::open(umem, interface, queue, preference, xdp),
            false => Socket::open_for_receiving(umem, interface, queue, preference, xdp),
        };
        let (socket, mode, socket_reason) = opened?;
        let reason = joined([xdp_reason, &socket_reason]);
        let mode = LinkMode::Xdp(ActiveMode { xdp, socket: mode, reason });
        merge_modes(&mut modes, vec![Some(mode)]);
        sockets.push(socket);
    }
    let by_linux = match part.sends {
        true => None,
        false => Some(UdpSocket::open(topology, link)?.0),
    };
    let local = attachment.local().unwrap_or(topology.links[link].local);
    let local = SocketAddr::new(local, topology.port);
    let port = Port::Xdp(Box::new(XdpPort::new(sockets, by_linux, local)));
    Ok((port, modes.pop().flatten()))
}

pub(crate) fn joined<'a>(reasons: impl IntoIterator<Item = &'a str>) -> String {
    let reasons: Vec<&str> = reasons.into_iter().filter(|text| !text.is_empty()).collect();
    reasons.join("; ")
}

/// A link reports the worst mode of its queues.
fn merge_modes(modes: &mut Vec<Mode>, others: Vec<Mode>) {
    if modes.is_empty() {
        *modes = others;
        return;
    }
    for (mode, other) in modes.iter_mut().zip(others) {
        let is_worse = match (&mode, &other) {
            (None, _) => true,
            (Some(LinkMode::Xdp(mode)), Some(LinkMode::Xdp(other))) => {
                other.socket == SocketMode::Copy && mode.socket == SocketMode::ZeroCopy
            }
            _ => false,
        };
        if is_worse {
            *mode = other;
        }
    }
}

/// Publishes the sockets, whose fill rings are primed. No packet arrives yet: the flow tables are
/// empty.
pub(crate) fn enter_sockets(
    attachments: &mut [Attachment],
    workers: &[WorkerResources],
) -> Result<(), StartError> {
    for worker in workers {
        for (attachment, port) in attachments.iter_mut().zip(&worker.ports) {
            for (queue, socket) in port.iter().flat_map(Port::queues) {
                attachment.set_socket(queue, socket).map_err(|error| StartError::Program {
                    interface: attachment.interface().to_owned(),
                    reason: error.to_string(),
                })?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(worker: usize, workers: usize, receive: u32, transmit: u32) -> (Vec<u32>, bool) {
        let part = WorkerQueues::of(worker, workers, Queues { receive, transmit });
        (part.queues, part.sends)
    }

    #[test]
    fn every_queue_has_one_worker_whatever_their_numbers() {
        for workers in 1..=9 {
            for receive in 1..=XSKS_MAX + 3 {
                let queues = Queues { receive, transmit: receive };
                let parts = (0..workers).map(|worker| WorkerQueues::of(worker, workers, queues));
                let mut all: Vec<u32> = parts.flat_map(|part| part.queues).collect();
                all.sort_unstable();
                let served: Vec<u32> = (0..receive.min(XSKS_MAX)).collect();
                assert_eq!(all, served, "{workers} workers, {receive} queues");
            }
        }
    }

    #[test]
    fn a_worker_sends_on_its_own_queue_or_by_linux() {
        assert_eq!(part(0, 1, 8, 8), ((0..8).collect(), true));
        assert_eq!(part(1, 2, 4, 4), (vec![1, 3], true));
        // Fewer queues than workers.
        assert_eq!(part(1, 2, 1, 1), (vec![], false));
        // Fewer transmit queues, and fewer receive queues.
        assert_eq!(part(1, 2, 4, 1), (vec![1, 3], false));
        assert_eq!(part(1, 2, 1, 4), (vec![1], true));
    }
}
