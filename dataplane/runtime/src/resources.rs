//! Opens everything that needs privilege: XDP programs, frames, sockets, tunnels, netlink.
//!
//! [`crate::Runtime::start`] takes what is open here and opens nothing itself. So a process may
//! give up its privileges in between ([`Resources::seal`]): programs, tunnels and changes by
//! rtnetlink are then another process's ([`crate::privileged`]), and sockets are opened once. No
//! thread is started here, so that whatever confines this thread confines them all.

use crate::attach::Attachment;
use crate::choice::settled;
use crate::error::StartError;
use crate::icmp::Icmp;
use crate::links::Sources;
use crate::memory::{Memory, Ways};
use crate::netlink::{Interface, LinkEvents, Netlink};
use crate::port::{LinkMode, Port, XdpPort};
use crate::privileged::Client;
use crate::report::LinkStatus;
use crate::reserve::Reserve;
use crate::shared::LinkNow;
use crate::slot::Slot;
use crate::topology::{Backend, LinkConfig, Topology};
use crate::tunnel::{self, Tunnel, TunnelPlan, Tunnels};
use crate::udp::UdpSocket;
use crate::wake::Waker;
use recoded_xsk::{ActiveMode, FrameSize, Socket, SocketMode, Umem};
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Everything open, nothing running. Dropping it closes everything.
///
/// Field order is drop order: sockets before the programs that feed them.
pub struct Resources {
    pub(crate) workers: Vec<WorkerResources>,
    pub(crate) wakers: Arc<[Waker]>,
    pub(crate) attachments: Vec<Attachment>,
    /// For the thread that creates deleted tunnels again.
    pub(crate) plans: Vec<TunnelPlan>,
    pub(crate) tunnel_netlink: Netlink,
    pub(crate) tunnels: Arc<Slot<Tunnels>>,
    pub(crate) links: Vec<LinkState>,
    pub(crate) netlink: Netlink,
    /// For the thread that follows paths.
    pub(crate) path_netlink: Netlink,
    /// What one-way paths must not forget.
    pub(crate) memory: Memory,
    /// For the thread that watches the links.
    pub(crate) link_sources: Sources,
    pub(crate) topology: Topology,
    pub(crate) is_sealed: bool,
}

/// What one worker will own.
pub(crate) struct WorkerResources {
    /// By link; `None` where there is no interface.
    pub(crate) ports: Vec<Option<Port>>,
    pub(crate) umem: Umem,
    /// Further descriptors of the sockets, to wait on.
    pub(crate) socket_fds: Vec<Option<OwnedFd>>,
}

/// What is known of a link once it is open.
#[derive(Clone, Debug)]
pub(crate) struct LinkState {
    /// As last seen.
    pub(crate) interface: Interface,
    /// Of the frames behind its sockets.
    pub(crate) frame_size: FrameSize,
    pub(crate) mode: LinkMode,
    pub(crate) status: LinkStatus,
}

impl LinkState {
    fn new(interface: Option<Interface>, mode: LinkMode, frame_size: FrameSize) -> LinkState {
        let status = interface.as_ref().map_or(LinkStatus::Gone, status);
        LinkState { interface: interface.unwrap_or_default(), frame_size, mode, status }
    }

    /// Its properties that workers use.
    pub(crate) fn now(&self) -> LinkNow {
        let mtu = self.interface.mtu.min(crate::ip_packet_bytes_max(self.frame_size));
        LinkNow { mtu, is_present: self.status != LinkStatus::Gone }
    }
}

impl Resources {
    /// Opens everything `topology` names.
    ///
    /// # Errors
    /// [`StartError`]: one sentence with the remedy. Everything opened before is closed again.
    pub fn open(topology: &Topology) -> Result<Resources, StartError> {
        check_capabilities(topology)?;
        Resources::open_beside(topology, None, Reserve::default())
    }

    /// Opens what this process needs beside `privileged`, which has the rest, on frames of
    /// `reserve` where they fit. With `or_without_links`, interfaces may be absent: their links are
    /// as if they had disappeared.
    ///
    /// # Errors
    /// As [`Resources::open`].
    pub fn join(
        topology: &Topology,
        (privileged, or_without_links): (Client, bool),
        reserve: Reserve,
    ) -> Result<Resources, StartError> {
        let privileged = Arc::new(privileged);
        Resources::open_beside(topology, Some((&privileged, or_without_links)), reserve)
    }

    fn open_beside(
        topology: &Topology,
        privileged: Option<(&Arc<Client>, bool)>,
        mut reserve: Reserve,
    ) -> Result<Resources, StartError> {
        topology.check()?;
        raise_memlock();
        let client = privileged.map(|(client, _)| client);
        let netlink = Netlink::open_beside(client)?;
        // Before the first query: all later changes cause an event.
        let (link_netlink, link_events) = (Netlink::open_beside(client)?, LinkEvents::open()?);
        let (interfaces, mut attachments) = match privileged {
            Some((client, true)) => find_links(topology, &netlink, client)?,
            _ => {
                let interfaces = find_interfaces(topology, &netlink)?;
                let attachments = (0..topology.links.len())
                    .map(|link| Attachment::open(topology, link, &netlink));
                (interfaces.into_iter().map(Some).collect(), attachments.collect::<Result<_, _>>()?)
            }
        };
        let topology = &settled(topology, &attachments);
        for (link, interface) in topology.links.iter().zip(&interfaces) {
            interface
                .iter()
                .for_each(|it| warn_of_limits(link, it, (topology.workers, topology.frame_size)));
        }
        let mut workers = Vec::with_capacity(topology.workers);
        let mut modes = Vec::new();
        let present: Vec<bool> = interfaces.iter().map(Option::is_some).collect();
        for queue in 0..topology.workers {
            let umem = reserve.take(topology)?;
            let opened = open_worker(topology, (&attachments, &present), queue as u32, umem);
            let (worker, worker_modes) = opened.map_err(|refused| refused.error)?;
            workers.push(worker);
            merge_modes(&mut modes, worker_modes);
        }
        enter_sockets(&mut attachments, &workers)?;
        let plans = tunnel::plans(topology);
        let tunnels = plans
            .iter()
            .map(|plan| Tunnel::open(plan, &netlink).map(Arc::new))
            .collect::<Result<Tunnels, _>>()?;
        let tunnels = Arc::new(Slot::new(tunnels));
        let wakers = (0..topology.workers)
            .map(|_| Waker::open())
            .collect::<Result<Arc<[_]>, _>>()
            .map_err(|source| StartError::Limit { what: "an eventfd", source })?;
        let links = interfaces.into_iter().zip(modes).zip(&attachments);
        let links = links.zip(&topology.links).map(|(((interface, mode), attachment), config)| {
            let mode = mode.unwrap_or_else(|| without_sockets(config, attachment));
            LinkState::new(interface, mode, topology.frame_size)
        });
        let links = links.collect();
        Ok(Resources {
            workers,
            wakers,
            attachments,
            plans,
            tunnel_netlink: Netlink::open_beside(client)?,
            tunnels,
            links,
            netlink,
            path_netlink: Netlink::open_beside(client)?,
            memory: match client {
                Some(client) => Memory::Beside(Arc::clone(client)),
                None => Memory::Own(Ways::open(None)),
            },
            link_sources: Sources {
                netlink: link_netlink,
                events: link_events,
                icmp: Icmp::open(topology),
            },
            topology: topology.clone(),
            is_sealed: false,
        })
    }

    /// Notes that this process gave up the privileges that opening sockets needs: when an interface
    /// comes back, [`crate::Runtime::needs_restart`].
    pub fn seal(&mut self) {
        self.is_sealed = true;
    }
}

/// The links whose interfaces are there, and their programs; the places of the others.
fn find_links(
    topology: &Topology,
    netlink: &Netlink,
    privileged: &Arc<Client>,
) -> Result<(Vec<Option<Interface>>, Vec<Attachment>), StartError> {
    let is_absent = |error: &StartError| {
        matches!(error, StartError::NoSuchInterface { .. } | StartError::NotEthernet { .. })
    };
    let find = |(index, link): (usize, &LinkConfig)| {
        let found = netlink.interface(&link.interface).and_then(|interface| {
            Ok((Some(interface), Attachment::open(topology, index, netlink)?))
        });
        match found {
            Err(error) if is_absent(&error) => {
                tracing::warn!(
                    "link {}: interface {} is gone: packets for it are dropped until one of that \
                     name is back",
                    link.name,
                    link.interface
                );
                Ok((None, Attachment::absent(&link.interface, privileged)))
            }
            outcome => outcome,
        }
    };
    let found: Result<Vec<_>, StartError> = topology.links.iter().enumerate().map(find).collect();
    Ok(found?.into_iter().unzip())
}

/// How a link without an interface runs.
fn without_sockets(config: &LinkConfig, attachment: &Attachment) -> LinkMode {
    let (xdp, reason) = attachment.mode();
    match config.backend {
        Backend::Xdp => {
            LinkMode::Xdp(ActiveMode { xdp, socket: SocketMode::Copy, reason: reason.to_owned() })
        }
        Backend::Auto | Backend::Udp => LinkMode::Udp("the interface is gone".to_owned()),
    }
}

/// One message that names all that is missing, rather than one refusal after the other. UDP sockets
/// need none, tunnels one.
pub(crate) fn check_capabilities(topology: &Topology) -> Result<(), StartError> {
    let missing = missing_capabilities();
    if topology.needs_xdp() && !missing.is_empty() {
        return Err(StartError::NotPermitted { missing: missing.join(", ") });
    }
    match !topology.tunnels.is_empty() && missing.contains(&TUNNEL_CAPABILITY) {
        true => Err(StartError::NoTunnels),
        false => Ok(()),
    }
}

/// Capabilities that AF_XDP needs and this process lacks; none where Linux does not say.
pub(crate) fn missing_capabilities() -> Vec<&'static str> {
    let Ok(sets) = capabilities(None) else { return Vec::new() };
    let needed = [
        (TUNNEL_CAPABILITY, CapabilitySet::NET_ADMIN),
        ("CAP_NET_RAW", CapabilitySet::NET_RAW),
        ("CAP_BPF", CapabilitySet::BPF | CapabilitySet::SYS_ADMIN),
        ("CAP_PERFMON", CapabilitySet::PERFMON | CapabilitySet::SYS_ADMIN),
    ];
    let missing = needed.into_iter().filter(|(_, any)| !sets.effective.intersects(*any));
    missing.map(|(name, _)| name).collect()
}

/// What tunnels need.
const TUNNEL_CAPABILITY: &str = "CAP_NET_ADMIN";

/// UMEMs and, before Linux 5.11, BPF maps count against this limit. Where it may not be raised the
/// UMEM says whether it was too low.
pub(crate) fn raise_memlock() {
    if let Err(error) = setrlimit(Resource::Memlock, Rlimit { current: None, maximum: None }) {
        tracing::debug!(%error, "the memlock limit stays as it is");
    }
}

/// The interfaces of all links, which must be there.
pub(crate) fn find_interfaces(
    topology: &Topology,
    netlink: &Netlink,
) -> Result<Vec<Interface>, StartError> {
    topology.links.iter().map(|link| netlink.interface(&link.interface)).collect()
}

fn warn_of_limits(
    link: &LinkConfig,
    interface: &Interface,
    (workers, frame_size): (usize, FrameSize),
) {
    let name = &link.interface;
    let packet_bytes_max = crate::ip_packet_bytes_max(frame_size);
    if link.backend == Backend::Xdp && interface.mtu > packet_bytes_max {
        tracing::warn!(
            interface = name,
            mtu = interface.mtu,
            "coded packets above {packet_bytes_max} bytes will not be received: the MTU is larger \
             than a frame"
        );
    }
    if link.backend == Backend::Xdp
        && let Some(queues) = receive_queues(name, interface)
        && queues > workers
    {
        tracing::warn!(
            interface = name,
            queues,
            workers,
            "coded packets on the queues without a worker are dropped: set as many workers, or \
             `ethtool -L {name} combined {workers}`"
        );
    }
}

/// Receive queues in use, from sysfs, if sysfs shows the network namespace we are in.
fn receive_queues(name: &str, interface: &Interface) -> Option<usize> {
    let folder = std::path::Path::new("/sys/class/net").join(name);
    let index: u32 = std::fs::read_to_string(folder.join("ifindex")).ok()?.trim().parse().ok()?;
    if index != interface.index {
        return None;
    }
    let queues = std::fs::read_dir(folder.join("queues")).ok()?;
    Some(
        queues
            .flatten()
            .filter(|queue| queue.file_name().as_encoded_bytes().starts_with(b"rx-"))
            .count(),
    )
}

/// Of an interface that is there.
pub(crate) fn status(interface: &Interface) -> LinkStatus {
    if interface.is_up { LinkStatus::Up } else { LinkStatus::Down }
}

/// Why the sockets of a worker cannot be had.
pub(crate) struct Refused {
    pub(crate) error: StartError,
    /// The link whose socket it was, if it was one.
    pub(crate) link: Option<usize>,
}

impl<E: Into<StartError>> From<E> for Refused {
    fn from(error: E) -> Refused {
        Refused { error: error.into(), link: None }
    }
}

/// Over one worker's frames, a socket on queue `queue` of every link that is there.
pub(crate) fn open_worker(
    topology: &Topology,
    (attachments, present): (&[Attachment], &[bool]),
    queue: u32,
    mut umem: Umem,
) -> Result<(WorkerResources, Vec<Option<LinkMode>>), Refused> {
    let mut ports = Vec::with_capacity(attachments.len());
    let mut modes = Vec::with_capacity(attachments.len());
    for (link, (attachment, is_present)) in attachments.iter().zip(present).enumerate() {
        if !is_present {
            ports.push(None);
            modes.push(None);
            continue;
        }
        let refused = |error| Refused { error, link: Some(link) };
        if topology.links[link].backend == Backend::Udp {
            let (socket, lacks) = UdpSocket::open(topology, link).map_err(refused)?;
            modes.push(Some(LinkMode::Udp(joined([attachment.mode().1, lacks]))));
            ports.push(Some(Port::Udp(Box::new(socket))));
            continue;
        }
        let (xdp, xdp_reason) = attachment.mode();
        let (socket, mode, socket_reason) =
            Socket::open(&mut umem, attachment.interface(), queue, topology.xdp_mode, xdp)
                .map_err(|error| refused(error.into()))?;
        let reason = joined([xdp_reason, &socket_reason]);
        modes.push(Some(LinkMode::Xdp(ActiveMode { xdp, socket: mode, reason })));
        let local = SocketAddr::new(topology.links[link].local, topology.port);
        ports.push(Some(Port::Xdp(Box::new(XdpPort::new(socket, local)))));
    }
    let socket_fds = ports
        .iter()
        .map(|port| port.as_ref().map(|port| port.fd().try_clone_to_owned()).transpose())
        .collect::<Result<_, _>>()
        .map_err(|source| StartError::Limit { what: "a descriptor", source })?;
    Ok((WorkerResources { ports, umem, socket_fds }, modes))
}

fn joined(reasons: [&str; 2]) -> String {
    let reasons: Vec<&str> = reasons.into_iter().filter(|text| !text.is_empty()).collect();
    reasons.join("; ")
}

/// A link reports the worst mode of its queues.
pub(crate) fn merge_modes(modes: &mut Vec<Option<LinkMode>>, of_worker: Vec<Option<LinkMode>>) {
    if modes.is_empty() {
        *modes = of_worker;
        return;
    }
    for (mode, other) in modes.iter_mut().flatten().zip(of_worker.into_iter().flatten()) {
        let is_worse = matches!(
            (&mode, &other),
            (LinkMode::Xdp(mode), LinkMode::Xdp(other))
                if other.socket == SocketMode::Copy && mode.socket == SocketMode::ZeroCopy
        );
        if is_worse {
            *mode = other;
        }
    }
}

/// Publishes the sockets, whose fill rings are primed. No packet comes yet: the flow tables are
/// empty.
pub(crate) fn enter_sockets(
    attachments: &mut [Attachment],
    workers: &[WorkerResources],
) -> Result<(), StartError> {
    for (queue, worker) in (0..).zip(workers) {
        for (attachment, port) in attachments.iter_mut().zip(&worker.ports) {
            let Some(port) = port else { continue };
            attachment.set_socket(queue, port.fd()).map_err(|error| StartError::Program {
                interface: attachment.interface().to_owned(),
                reason: error.to_string(),
            })?;
        }
    }
    Ok(())
}
