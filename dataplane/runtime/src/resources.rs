//! Opens everything that needs privilege: XDP programs, frames, sockets, tunnels, netlink.
//!
//! [`crate::Runtime::start`] takes the open resources and opens nothing itself. So a process may
//! drop its privileges in between ([`Resources::seal`]): programs, tunnels and changes by rtnetlink
//! then belong to another process ([`crate::privileged`]), and sockets are opened once. No thread
//! is started here, so that whatever confines this thread confines them all.

use crate::attach::Attachment;
use crate::bpf_link::KILLED_RETRY;
use crate::capabilities::{TUNNEL_CAPABILITY, missing_capabilities};
use crate::choice::{self, CONFIGURED, settled};
use crate::error::StartError;
use crate::icmp::Icmp;
use crate::memory::{Memory, Ways};
use crate::netlink::{Interface, LinkEvents, Netlink};
use crate::own;
use crate::port::LinkMode;
use crate::privileged::Client;
use crate::report::LinkStatus;
use crate::reserve::{Reserve, raise_memlock};
use crate::shared::LinkNow;
use crate::slot::Slot;
use crate::sockets::{Refused, WorkerResources, enter_sockets, open_workers, queues_of, served};
use crate::topology::{Backend, LinkConfig, Topology};
use crate::tunnel::{self, Tunnel, TunnelPlan, Tunnels};
use crate::wake::Waker;
use recoded_xsk::{ActiveMode, FrameSize, HAS_AF_XDP, Queues, SocketMode, XskError};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

/// Everything open, nothing running. Dropping it closes everything.
///
/// Field order is drop order: sockets before the programs that feed them.
pub struct Resources {
    pub(crate) workers: Vec<WorkerResources>,
    pub(crate) wakers: Arc<[Waker]>,
    pub(crate) attachments: Vec<Attachment>,
    /// For the thread that recreates deleted tunnels.
    pub(crate) plans: Vec<TunnelPlan>,
    pub(crate) tunnel_netlink: Netlink,
    pub(crate) tunnels: Arc<Slot<Tunnels>>,
    pub(crate) links: Vec<LinkState>,
    pub(crate) netlink: Netlink,
    /// For the thread that follows paths.
    pub(crate) path_netlink: Netlink,
    /// Replay protection of one-way paths.
    pub(crate) memory: Memory,
    /// For the thread that watches the links.
    pub(crate) link_sources: Sources,
    pub(crate) topology: Topology,
    pub(crate) is_sealed: bool,
}

/// Event sources of the thread.
pub(crate) struct Sources {
    pub(crate) netlink: Netlink,
    pub(crate) events: LinkEvents,
    pub(crate) icmp: Icmp,
}

/// State of a link once it is open.
#[derive(Clone, Debug)]
pub(crate) struct LinkState {
    /// As last seen.
    pub(crate) interface: Interface,
    /// This node's address on it; `None` while it has none.
    pub(crate) local: Option<IpAddr>,
    /// Size of the frames behind its sockets.
    pub(crate) frame_size: FrameSize,
    pub(crate) mode: LinkMode,
    pub(crate) status: LinkStatus,
    /// The driver's queues when the sockets were opened.
    pub(crate) queues: Queues,
    /// Receive queues with sockets.
    pub(crate) served: u32,
    /// The reason why no packets are sent and received on it; empty while they are.
    pub(crate) waits: String,
    /// Whether its configuration leaves its backend open (`backend = "auto"`).
    pub(crate) is_auto: bool,
    /// Whether that is decided when its interface appears.
    pub(crate) is_undecided: bool,
}

impl LinkState {
    /// Its properties that workers use.
    pub(crate) fn now(&self) -> LinkNow {
        let is_present = self.status != LinkStatus::Gone && self.local.is_some();
        let mtu = self.interface.mtu.min(crate::ip_packet_bytes_max(self.frame_size));
        LinkNow { mtu, is_present }
    }
}

impl Resources {
    /// Opens everything `topology` names.
    ///
    /// # Errors
    /// [`StartError`]: one sentence with the remedy. Everything opened before is closed again.
    pub fn open(topology: &Topology) -> Result<Resources, StartError> {
        check_capabilities(topology)?;
        Resources::open_beside(topology, None, false, Reserve::default())
    }

    /// Opens what this process needs in addition to `privileged`, which has the rest, on frames of
    /// `reserve` if they fit. Links wait while their interface or address is missing, and with
    /// `waits_for_ports` also while their UDP port is taken.
    ///
    /// # Errors
    /// As [`Resources::open`].
    pub fn join(
        topology: &Topology,
        privileged: Client,
        waits_for_ports: bool,
        reserve: Reserve,
    ) -> Result<Resources, StartError> {
        let privileged = Arc::new(privileged);
        Resources::open_beside(topology, Some(&privileged), waits_for_ports, reserve)
    }

    fn open_beside(
        topology: &Topology,
        client: Option<&Arc<Client>>,
        waits_for_ports: bool,
        mut reserve: Reserve,
    ) -> Result<Resources, StartError> {
        topology.check()?;
        raise_memlock();
        let netlink = Netlink::open_beside(client)?;
        // Before the first query: all later changes cause an event.
        let (link_netlink, link_events) = (Netlink::open_beside(client)?, LinkEvents::open()?);
        let (mut found, mut attachments) = match client {
            Some(client) => find_links(topology, &netlink, client)?,
            None => open_links(topology, &netlink)?,
        };
        let topology = &settled(topology, &attachments);
        for (link, found) in topology.links.iter().zip(&found) {
            found.interface.iter().for_each(|it| warn_of_limits(link, it, topology.frame_size));
        }
        let context = Opening { topology, attachments: &attachments, netlink: &netlink };
        let sockets = context.open_sockets(&mut found, &mut reserve, waits_for_ports)?;
        let links = context.links(found, &sockets);
        let workers = sockets.workers;
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

    /// Records that this process dropped the privileges that opening sockets needs: when an
    /// interface returns, [`crate::Runtime::needs_restart`].
    pub fn seal(&mut self) {
        self.is_sealed = true;
    }
}

/// Everything that opening the sockets of links needs.
struct Opening<'a> {
    topology: &'a Topology,
    attachments: &'a [Attachment],
    netlink: &'a Netlink,
}

/// The sockets of all workers, and their mode by link.
struct Opened {
    workers: Vec<WorkerResources>,
    modes: Vec<Option<LinkMode>>,
    /// The driver's queues; `None` without an interface.
    queues: Vec<Option<Queues>>,
    /// Of these, the usable ones for sockets.
    usable: Vec<Option<Queues>>,
}

impl Opening<'_> {
    /// Opens the sockets of all links found. With `waits_for_ports`, a link whose port is taken
    /// becomes one that waits. Queues may still be those of a process that was just killed.
    fn open_sockets(
        &self,
        found: &mut [LinkInterface],
        reserve: &mut Reserve,
        waits_for_ports: bool,
    ) -> Result<Opened, StartError> {
        let began = Instant::now();
        loop {
            let links = found.iter().map(|it| it.interface.is_some()).enumerate();
            let queues = links.map(|(link, is_present)| {
                is_present.then(|| queues_of(self.topology, link, self.netlink))
            });
            let queues: Vec<Option<Queues>> = queues.collect();
            let mut usable = queues.clone();
            match open_workers(self.topology, self.attachments, &mut usable, reserve) {
                Err(Refused { error: error @ StartError::Udp { .. }, link: Some(link) })
                    if waits_for_ports =>
                {
                    let LinkInterface { is_auto, .. } = found[link];
                    let waits = error.to_string();
                    found[link] = LinkInterface { waits, is_auto, ..LinkInterface::default() };
                }
                // An attempt takes a moment by itself.
                Err(Refused { error: StartError::Socket(XskError::Busy { .. }), .. })
                    if began.elapsed() < KILLED_RETRY => {}
                opened => {
                    let (workers, modes) = opened.map_err(|refused| refused.error)?;
                    return Ok(Opened { workers, modes, queues, usable });
                }
            }
        }
    }

    /// The state of each link; logs links that wait.
    fn links(&self, found: Vec<LinkInterface>, opened: &Opened) -> Vec<LinkState> {
        let state = |(link, found): (usize, LinkInterface)| {
            let LinkInterface { interface, local, waits, is_auto, is_undecided } = found;
            let config = &self.topology.links[link];
            if !waits.is_empty() {
                tracing::warn!("link {} waits: {waits}", config.name);
            }
            let mode = opened.modes[link].clone();
            let [queues, usable] =
                [&opened.queues, &opened.usable].map(|it| it[link].unwrap_or(Queues::ONE));
            LinkState {
                status: interface.as_ref().map_or(LinkStatus::Gone, status),
                interface: interface.unwrap_or_default(),
                local,
                frame_size: self.topology.frame_size,
                mode: mode.unwrap_or_else(|| without_sockets(config, &self.attachments[link])),
                queues,
                served: served(usable),
                waits,
                is_auto,
                is_undecided,
            }
        };
        found.into_iter().enumerate().map(state).collect()
    }
}

/// The interface of a link.
#[derive(Default)]
struct LinkInterface {
    /// `None` if there are no sockets on it.
    interface: Option<Interface>,
    /// This node's address there.
    local: Option<IpAddr>,
    /// See [`LinkState`].
    waits: String,
    is_auto: bool,
    is_undecided: bool,
}

impl LinkInterface {
    /// An interface, and this node's address there if it has one.
    fn new(
        topology: &Topology,
        link: usize,
        attachment: &Attachment,
        netlink: &Netlink,
        interface: Interface,
    ) -> Result<LinkInterface, StartError> {
        let is_auto = topology.links[link].backend == Backend::Auto;
        let found =
            LinkInterface { local: attachment.local(), is_auto, ..LinkInterface::default() };
        if found.local.is_some() {
            return Ok(LinkInterface { interface: Some(interface), ..found });
        }
        let (local, waits) = match own::address(topology, link, netlink, &interface) {
            Err(error) if error.is_absence() => (None, error.to_string()),
            found => (Some(found?), String::new()),
        };
        Ok(LinkInterface { interface: Some(interface), local, waits, ..found })
    }
}

/// The interfaces of all links, which must be present, and their programs.
fn open_links(
    topology: &Topology,
    netlink: &Netlink,
) -> Result<(Vec<LinkInterface>, Vec<Attachment>), StartError> {
    let names = topology.links.iter().map(|link| &link.interface);
    let interfaces: Vec<Interface> =
        names.map(|name| netlink.interface(name)).collect::<Result<_, _>>()?;
    let open = |(link, interface)| {
        let attachment = choice::attach(topology, link, netlink)?;
        let found = LinkInterface::new(topology, link, &attachment, netlink, interface)?;
        Ok((found, attachment))
    };
    let opened: Result<Vec<_>, StartError> = interfaces.into_iter().enumerate().map(open).collect();
    Ok(opened?.into_iter().unzip())
}

/// The links whose interfaces are present, with their programs; placeholders for the others.
fn find_links(
    topology: &Topology,
    netlink: &Netlink,
    privileged: &Arc<Client>,
) -> Result<(Vec<LinkInterface>, Vec<Attachment>), StartError> {
    let find = |(index, link): (usize, &LinkConfig)| {
        let open = |interface: Interface| {
            let lacks = own::address(topology, index, netlink, &interface).err();
            let attachment = choice::attach(topology, index, netlink)
                .map_err(|error| lacks.filter(|_| error.is_absence()).unwrap_or(error))?;
            let found = LinkInterface::new(topology, index, &attachment, netlink, interface)?;
            Ok((found, attachment))
        };
        match netlink.interface(&link.interface).and_then(open) {
            Err(error) if error.is_absence() || matches!(error, StartError::Privileged { .. }) => {
                let is_auto = link.backend == Backend::Auto;
                let waits = waits(link, &error);
                let found = LinkInterface {
                    waits,
                    is_auto,
                    is_undecided: is_auto,
                    ..LinkInterface::default()
                };
                let attachment = match is_auto {
                    true => Attachment::none(&link.interface, "it is missing".to_owned()),
                    false => Attachment::absent(&link.interface, privileged),
                };
                Ok((found, attachment))
            }
            outcome => outcome,
        }
    };
    let found: Result<Vec<_>, StartError> = topology.links.iter().enumerate().map(find).collect();
    Ok(found?.into_iter().unzip())
}

/// The missing item that a link waits for.
pub(crate) fn waits(link: &LinkConfig, error: &StartError) -> String {
    match error {
        StartError::NoSuchInterface { .. } => missing(link),
        error => error.to_string(),
    }
}

/// The same if its interface is missing.
pub(crate) fn missing(link: &LinkConfig) -> String {
    format!("interface {} is missing", link.interface)
}

/// Mode of a link without an interface.
fn without_sockets(config: &LinkConfig, attachment: &Attachment) -> LinkMode {
    let (xdp, reason) = attachment.mode();
    match config.backend {
        Backend::Xdp => {
            LinkMode::Xdp(ActiveMode { xdp, socket: SocketMode::Copy, reason: reason.to_owned() })
        }
        Backend::Auto | Backend::Udp if attachment.backend() == Backend::Udp => {
            LinkMode::Udp(reason.to_owned())
        }
        Backend::Auto | Backend::Udp => LinkMode::Udp(CONFIGURED.to_owned()),
    }
}

/// Checks all capabilities at once, so that one message names every missing one. UDP sockets need
/// none, tunnels one.
pub(crate) fn check_capabilities(topology: &Topology) -> Result<(), StartError> {
    if topology.needs_xdp() && !HAS_AF_XDP {
        return Err(XskError::NotBuilt.into());
    }
    let missing = missing_capabilities();
    if topology.needs_xdp() && !missing.is_empty() {
        return Err(StartError::NotPermitted { missing: missing.join(", ") });
    }
    match !topology.tunnels.is_empty() && missing.contains(&TUNNEL_CAPABILITY) {
        true => Err(StartError::NoTunnels),
        false => Ok(()),
    }
}

fn warn_of_limits(link: &LinkConfig, interface: &Interface, frame_size: FrameSize) {
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
}

/// For an interface that is present.
pub(crate) fn status(interface: &Interface) -> LinkStatus {
    if interface.is_up { LinkStatus::Up } else { LinkStatus::Down }
}
