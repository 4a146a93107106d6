//! The half with privileges: programs, their maps, tunnels, and changes by rtnetlink.

use super::addresses::{AddressChange, Left, TunnelAddresses, readdress};
use super::message::{Reply, Request};
use super::queues::TunnelQueues;
use crate::attach::Attachment;
use crate::bpf_link::LeftPrograms;
use crate::channel::Channel;
use crate::choice::{self, Prepared};
use crate::error::StartError;
use crate::memory::Ways;
use crate::netlink::Netlink;
use crate::own;
use crate::reserve::raise_memlock;
use crate::resources::check_capabilities;
use crate::topology::{Backend, HopConfig, LinkConfig, Topology, TunnelConfig, tunnel_mtu_min};
use crate::tunnel::{self, Tunnel, TunnelPlan};
use crate::udp;
use recoded_wire::steer::{Verdict, XSKS_MAX};
use recoded_xsk::{Queues, XdpMode};
use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Programs and tunnels of a node. Dropping it detaches and removes them. Killing its process
/// leaves tunnels ([`Privileged::open`]) and, while another process has their descriptors,
/// programs.
pub struct Privileged {
    topology: Topology,
    netlink: Netlink,
    programs: Vec<Program>,
    tunnels: Vec<OpenTunnel>,
    queues: Arc<TunnelQueues>,
    addresses: Arc<TunnelAddresses>,
    ways: Ways,
    /// Whether tunnels outlive this: until it is certain that they can be recreated.
    leaves_tunnels: bool,
}

/// The program of a link.
struct Program {
    interface: String,
    /// `None` while there is no such interface.
    attachment: Option<Attachment>,
    /// Flows that it accepts.
    flows: BTreeSet<u32>,
}

/// A tunnel and its plan.
struct OpenTunnel {
    plan: TunnelPlan,
    tunnel: Arc<Tunnel>,
}

/// State that this process had before `execve`.
#[derive(Default)]
pub struct Inherited {
    /// Programs to replace or detach.
    pub programs: LeftPrograms,
    /// Queues to adopt with their waiting packets, or to close.
    pub tunnels: Arc<TunnelQueues>,
}

/// A reply without descriptors, or the reason of a failure.
type Answer = Result<Reply, String>;

impl Privileged {
    /// Attaches the programs and creates the tunnels that `topology` names. From then on the
    /// tunnels stay if this process is killed: packets for them end there. Those in `left` are of a
    /// killed process: they are adopted with addresses and routes, or removed if `topology` has
    /// others. `inherited` is the state of this process before `execve`. `end_other` begins to end
    /// any other process that still has programs and tunnels, and returns a function that waits for
    /// that; errors that can be found earlier are found before the call.
    ///
    /// # Errors
    /// [`StartError`]: one sentence with the remedy. Everything except adopted state is removed
    /// again then.
    pub fn open<Wait: FnOnce()>(
        topology: &Topology,
        left: &Left,
        inherited: Inherited,
        end_other: impl FnOnce() -> Wait,
    ) -> Result<Privileged, StartError> {
        let Inherited { programs: mut left_programs, tunnels: queues } = inherited;
        topology.check()?;
        check_capabilities(topology)?;
        raise_memlock();
        let netlink = Netlink::open()?;
        let prepared =
            (0..topology.links.len()).map(|link| or_later(Prepared::new(topology, link, &netlink)));
        let prepared = prepared.collect::<Result<Vec<_>, StartError>>()?;
        let wait = end_other();
        let programs = prepared.into_iter().enumerate().map(|(link, prepared)| {
            let left = &mut left_programs;
            let attached = prepared.map(|it| it.attach(topology, link, &netlink, left));
            let attachment = attached.map(or_later).transpose()?.flatten();
            let interface = topology.links[link].interface.clone();
            Ok(Program { interface, attachment, flows: BTreeSet::new() })
        });
        let programs = programs.collect::<Result<Vec<_>, StartError>>();
        wait();
        let programs = programs?;
        let mut opened = Privileged {
            topology: topology.clone(),
            netlink,
            programs,
            tunnels: Vec::new(),
            queues,
            addresses: Arc::new(TunnelAddresses::new(Netlink::open()?, addresses(topology))),
            ways: Ways::open(None),
            leaves_tunnels: !left.is_empty(),
        };
        opened.open_tunnels(left)?;
        opened.leaves_tunnels = false;
        Ok(opened)
    }

    fn open_tunnels(&mut self, left: &Left) -> Result<(), StartError> {
        let Privileged { topology, netlink, queues, tunnels, .. } = self;
        let is_planned = |name: &str| topology.tunnels.iter().any(|tunnel| tunnel.name == name);
        queues.keep(|name| is_planned(name) && left.contains_key(name));
        for name in left.keys().filter(|name| !is_planned(name)) {
            netlink.delete(name)?;
        }
        for plan in tunnel::plans(topology) {
            let before = left.get(&plan.config.name);
            let tunnel = open_tunnel(&plan, before.is_some(), queues, netlink)?;
            if let Some(before) = before {
                let TunnelConfig { name, addresses: next, .. } = &plan.config;
                readdress(netlink, &AddressChange { name, before, next })?;
            }
            tunnels.push(OpenTunnel { plan, tunnel });
        }
        Ok(())
    }

    /// Prepares for the next dataplane process. Tunnels become those of `tunnels`: one that stays
    /// gets its carrier and MTU of the start again, and its addresses. The programs accept the
    /// neighbours that `hops` names on these links; links stay the same.
    pub fn renew(&mut self, hops: Vec<HopConfig>, tunnels: Vec<TunnelConfig>) {
        self.topology.hops = hops;
        self.topology.tunnels = tunnels;
        for (link, program) in self.programs.iter_mut().enumerate() {
            let Some(attachment) = &mut program.attachment else { continue };
            if let Err(error) = attachment.set_neighbours(&self.topology, link) {
                tracing::warn!(%error, interface = program.interface, "its neighbours stay");
            }
        }
        self.replace_tunnels();
        if let Err(error) = self.addresses.restore(&addresses(&self.topology)) {
            tracing::error!(%error, "addresses of tunnels are not right");
        }
        let addresses = self.addresses.now();
        for OpenTunnel { plan, tunnel } in &mut self.tunnels {
            if let Some(addresses) = addresses.get(&plan.config.name) {
                plan.config.addresses.clone_from(addresses);
            }
            let mtu = plan.config.mtu;
            if !tunnel.has_carrier() && tunnel.set_carrier(true, &self.netlink).is_err()
                || tunnel.mtu() != mtu && tunnel.set_mtu(mtu, &self.netlink).is_err()
            {
                tracing::debug!(tunnel = tunnel.name(), "it is not what it was at the start");
            }
        }
    }

    /// Removes tunnels that the topology does not name, and creates those that are missing. If that
    /// fails, the next process does not start, and the previous configuration returns.
    fn replace_tunnels(&mut self) {
        let Privileged { topology, netlink, tunnels, queues, addresses, .. } = self;
        let is_planned = |name: &str| topology.tunnels.iter().any(|tunnel| tunnel.name == name);
        tunnels.retain(|held| {
            let name = held.tunnel.name();
            let is_kept = is_planned(name);
            if !is_kept {
                queues.forget(name);
                addresses.forget(name);
                remove(&held.tunnel, netlink);
                tracing::info!(tunnel = name, "removed");
            }
            is_kept
        });
        for plan in tunnel::plans(topology) {
            let TunnelConfig { name, addresses: own, .. } = &plan.config;
            if tunnels.iter().any(|held| held.tunnel.name() == name) {
                continue;
            }
            match open_tunnel(&plan, false, queues, netlink) {
                Ok(tunnel) => {
                    tracing::info!(tunnel = name, "created");
                    addresses.note(name, own);
                    tunnels.push(OpenTunnel { plan, tunnel });
                }
                Err(error) => {
                    tracing::error!(%error, tunnel = name, "it is not created");
                    let is_other = matches!(error, StartError::TunnelExists { .. });
                    if !is_other && let Err(error) = netlink.delete(name) {
                        tracing::warn!(%error, tunnel = name, "it stays halfway");
                    }
                }
            }
        }
    }

    /// The addresses of its tunnels, which may change while a process is served.
    pub fn addresses(&self) -> Arc<TunnelAddresses> {
        self.addresses.clone()
    }

    /// The queues of its tunnels, which may be left to another program while a process is served.
    pub fn queues(&self) -> Arc<TunnelQueues> {
        self.queues.clone()
    }

    /// Whether a link has a program, and thereby AF_XDP sockets.
    pub fn has_programs(&self) -> bool {
        let mut attached = self.programs.iter().filter_map(|it| it.attachment.as_ref());
        attached.any(|attachment| attachment.backend() == Backend::Xdp)
    }

    /// Keeps state that outlives this process in `ways`.
    #[must_use]
    pub fn remembering(mut self, ways: Ways) -> Privileged {
        self.ways = ways;
        self
    }

    /// Serves a dataplane process until it hangs up.
    ///
    /// # Errors
    /// The process sent an invalid request, or Linux refused to carry messages.
    pub fn serve(&mut self, channel: &Channel) -> io::Result<()> {
        while let Some((request, fds)) = channel.receive::<Request>()? {
            if let Request::Tunnel { name } = &request {
                self.send_tunnel(name, channel)?;
                continue;
            }
            if let Request::Socket { interface } = &request {
                self.send_socket(interface, channel)?;
                continue;
            }
            let answer = self.answer(&request, &fds);
            let reply = answer.unwrap_or_else(|reason| Reply::refused(&reason));
            let link = match (&request, &reply) {
                (Request::Attach { interface }, Reply::Attached { .. }) => self.link(interface),
                _ => None,
            };
            let fds: Vec<BorrowedFd<'_>> = link.iter().map(AsFd::as_fd).collect();
            match reply.send(channel, &fds) {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
                sent => sent?,
            }
        }
        Ok(())
    }

    fn answer(&mut self, request: &Request, fds: &[OwnedFd]) -> Answer {
        match request {
            Request::Attach { interface } => self.attach(interface),
            Request::Detach { interface } => {
                let program = self.program(interface)?;
                program.attachment = None;
                Ok(Reply::Done)
            }
            Request::SetSocket { interface, queue } => {
                let [socket] = fds else { return Err("one socket belongs to a queue".into()) };
                self.set_socket(interface, *queue, Some(socket.as_fd()))
            }
            Request::UnsetSocket { interface, queue } => self.set_socket(interface, *queue, None),
            Request::Queues { interface } => {
                self.program(interface)?;
                let queues = self.netlink.queues(interface).map_err(|error| error.to_string())?;
                let Queues { receive, transmit } = queues;
                Ok(Reply::Queues { receive, transmit })
            }
            Request::SetFlow { interface, flow, accept } => {
                self.program(interface)?.set_flow(*flow, *accept)?;
                Ok(Reply::Done)
            }
            Request::Verdicts { interface } => self.verdicts(interface),
            Request::NotNeighbours { interface } => self.not_neighbours(interface),
            Request::OtherVersions { interface } => self.other_versions(interface),
            Request::SetMtu { tunnel, mtu } => {
                let OpenTunnel { plan, tunnel } = find_tunnel(&self.tunnels, tunnel)?;
                if !(tunnel_mtu_min(&plan.config.addresses)..=plan.config.mtu).contains(mtu) {
                    return Err(format!("{mtu} is no MTU of {}", tunnel.name()));
                }
                done(tunnel.set_mtu(*mtu, &self.netlink))
            }
            Request::SetCarrier { tunnel, carrier } => {
                let OpenTunnel { tunnel, .. } = find_tunnel(&self.tunnels, tunnel)?;
                done(tunnel.set_carrier(*carrier, &self.netlink))
            }
            Request::Resolve { interface, address } => {
                self.resolve(*interface, || self.netlink.resolve(*interface, *address))
            }
            Request::ResolveAgain { interface, address } => {
                self.resolve(*interface, || self.netlink.resolve_again(*interface, *address))
            }
            Request::Recall { way } => Ok(Reply::Recalled(self.ways.recall(*way))),
            Request::Keep { way, newest } => self.ways.keep(*way, *newest).map(|()| Reply::Done),
            Request::Tunnel { .. } | Request::Socket { .. } => {
                Err("it comes with descriptors".into())
            }
            Request::RecallStamp => Ok(Reply::Stamp(self.ways.sessions.stamp())),
            Request::KeepStamp { stamp } => {
                self.ways.sessions.keep_stamp(*stamp).map(|()| Reply::Done)
            }
            Request::RecallPlace { name } => Ok(Reply::Place(self.ways.sessions.place(name))),
            Request::KeepPlace { name, at } => {
                self.ways.sessions.keep_place(name, *at).map(|()| Reply::Done)
            }
        }
    }

    fn program(&mut self, interface: &str) -> Result<&mut Program, String> {
        let mut programs = self.programs.iter_mut();
        let found = programs.find(|program| program.interface == interface);
        found.ok_or_else(|| format!("{} is not an interface of a link", interface.escape_debug()))
    }

    fn link(&mut self, interface: &str) -> Option<OwnedFd> {
        self.program(interface).ok()?.attachment.as_ref()?.link()
    }

    /// The attached program, or a newly attached one, with no flow and no socket.
    fn attach(&mut self, interface: &str) -> Answer {
        let now = match self.netlink.interface(interface) {
            Ok(now) => now,
            Err(error) if error.is_absence() => {
                self.program(interface)?.attachment = None;
                return Ok(Reply::Absent);
            }
            Err(error) => return Err(error.to_string()),
        };
        let mut links = self.topology.links.iter();
        let link = links.position(|link| link.interface == interface);
        let link = link.ok_or("no link has this interface")?;
        let local = own::address(&self.topology, link, &self.netlink, &now).ok();
        let queues = self.netlink.queues(interface).map_or(0, |queues| queues.receive);
        // A program must be detached before another is attached if its interface is gone, has
        // another address, fewer queues or no Ethernet header any more, or was suspended.
        let is_other = |attachment: &mut Attachment| {
            let is_moved = attachment.local().is_some() && attachment.local() != local;
            let is_unfit = attachment.backend() == Backend::Xdp && now.mac.is_none();
            let is_on_other = attachment.index() != now.index || attachment.lacks_queues(queues);
            is_moved || is_unfit || is_on_other || attachment.was_suspended()
        };
        let program = self.program(interface)?;
        program.attachment.take_if(is_other);
        program.clear()?;
        if program.attachment.is_none() {
            let opened = match choice::attach(&self.topology, link, &self.netlink) {
                Err(error) if error.is_absence() => return Ok(Reply::Absent),
                opened => opened.map_err(|error| error.to_string())?,
            };
            self.program(interface)?.attachment = Some(opened);
        }
        let Some(attachment) = &self.program(interface)?.attachment else {
            return Ok(Reply::Absent);
        };
        let (mode, reason) = attachment.mode();
        let (native, reason) = (mode == XdpMode::Native, reason.to_owned());
        match attachment.local() {
            Some(local) => Ok(Reply::Attached { native, reason, local }),
            None => Ok(Reply::Unattached { reason }),
        }
    }

    fn set_socket(
        &mut self,
        interface: &str,
        queue: u32,
        socket: Option<BorrowedFd<'_>>,
    ) -> Answer {
        if queue >= XSKS_MAX {
            return Err(format!("there is no place for queue {queue}"));
        }
        let Some(attachment) = &mut self.program(interface)?.attachment else {
            return Ok(Reply::Done);
        };
        done(match socket {
            Some(socket) => attachment.set_socket(queue, socket),
            None => attachment.unset_socket(queue),
        })
    }

    fn verdicts(&mut self, interface: &str) -> Answer {
        let mut sum = [0; Verdict::COUNT as usize];
        if let Some(attachment) = &self.program(interface)?.attachment {
            attachment.add_verdicts(&mut sum).map_err(|error| error.to_string())?;
        }
        Ok(Reply::Verdicts(sum.to_vec()))
    }

    fn not_neighbours(&mut self, interface: &str) -> Answer {
        let attachment = &self.program(interface)?.attachment;
        let addresses = attachment.as_ref().map(Attachment::not_neighbours).transpose();
        let addresses = addresses.map_err(|error| error.to_string())?;
        Ok(Reply::NotNeighbours(addresses.unwrap_or_default()))
    }

    fn other_versions(&mut self, interface: &str) -> Answer {
        let attachment = &self.program(interface)?.attachment;
        let senders = attachment.as_ref().map(Attachment::other_versions).transpose();
        let senders = senders.map_err(|error| error.to_string())?;
        Ok(Reply::OtherVersions(senders.unwrap_or_default()))
    }

    /// Only on interfaces of links: other neighbours are not the dataplane's business.
    fn resolve(&self, interface: u32, ask: impl Fn() -> Result<(), StartError>) -> Answer {
        // By name: links with UDP sockets have no program.
        let is_it = |link: &LinkConfig| {
            self.netlink.interface(&link.interface).is_ok_and(|found| found.index == interface)
        };
        if !self.topology.links.iter().any(is_it) {
            return Err(format!("interface {interface} is not one of a link"));
        }
        done(ask())
    }

    /// A UDP socket on the interface of a link: one opened after the unprivileged process started.
    fn send_socket(&self, interface: &str, channel: &Channel) -> io::Result<()> {
        let mut links = self.topology.links.iter();
        let bound = match links.position(|link| link.interface == interface) {
            Some(link) => udp::bound(&self.topology, link).map_err(|error| error.to_string()),
            None => Err(format!("{} is not an interface of a link", interface.escape_debug())),
        };
        match bound {
            Ok(socket) => Reply::Socket.send(channel, &[socket.as_fd()]),
            Err(reason) => Reply::refused(&reason).send(channel, &[]),
        }
    }

    /// The queues of a tunnel. A deleted tunnel is recreated.
    fn send_tunnel(&mut self, name: &str, channel: &Channel) -> io::Result<()> {
        let refuse = |reason: String| Reply::refused(&reason).send(channel, &[]);
        let Some(held) = self.tunnels.iter_mut().find(|held| held.plan.config.name == name) else {
            return refuse(format!("{} is not a tunnel", name.escape_debug()));
        };
        if held.tunnel.look() {
            if let Some(addresses) = self.addresses.now().remove(name) {
                held.plan.config.addresses = addresses;
            }
            match Tunnel::open_lasting(&held.plan, false, &self.netlink) {
                Ok(tunnel) => {
                    held.tunnel = Arc::new(tunnel);
                    self.queues.note(held.tunnel.clone());
                }
                Err(error) => return refuse(error.to_string()),
            }
        }
        let tunnel = &held.tunnel;
        let queues: Vec<BorrowedFd<'_>> =
            (0..tunnel.queues()).map(|queue| tunnel.queue_fd(queue)).collect();
        let offload = tunnel.offload().into();
        Reply::Tunnel { offload, reason: tunnel.reason().to_owned() }.send(channel, &queues)
    }
}

impl Drop for Privileged {
    fn drop(&mut self) {
        for OpenTunnel { tunnel, .. } in self.tunnels.iter().filter(|_| !self.leaves_tunnels) {
            remove(tunnel, &self.netlink);
        }
    }
}

/// Removes the interface of a tunnel.
fn remove(tunnel: &Tunnel, netlink: &Netlink) {
    // A tunnel that was moved to another network namespace has no name here.
    if let Err(error) = tunnel.end_with_descriptors() {
        tracing::warn!(%error, tunnel = tunnel.name(), "it stays if it was moved");
    }
    if let Err(error) = netlink.delete(tunnel.name()) {
        tracing::debug!(%error, tunnel = tunnel.name(), "it is gone or was moved");
    }
}

impl Program {
    fn set_flow(&mut self, flow: u32, accept: bool) -> Result<(), String> {
        let Some(attachment) = &mut self.attachment else { return Ok(()) };
        attachment.set_flow(flow, accept).map_err(|error| error.to_string())?;
        if accept {
            self.flows.insert(flow);
        } else {
            self.flows.remove(&flow);
        }
        Ok(())
    }

    /// Accepts nothing, and directs packets nowhere.
    fn clear(&mut self) -> Result<(), String> {
        for flow in std::mem::take(&mut self.flows) {
            self.set_flow(flow, false)?;
        }
        let Some(attachment) = &mut self.attachment else { return Ok(()) };
        // Linux removed the sockets of an ended process from the map.
        attachment.unset_sockets();
        Ok(())
    }
}

/// A tunnel: the one whose queues were left, with the packets in them, or a newly opened one.
fn open_tunnel(
    plan: &TunnelPlan,
    is_left: bool,
    queues: &TunnelQueues,
    netlink: &Netlink,
) -> Result<Arc<Tunnel>, StartError> {
    let name = &plan.config.name;
    if let Some(tunnel) = queues.find(name)
        && tunnel.adopts(plan, netlink)?
    {
        return Ok(tunnel);
    }
    // Linux lends the interface to one owner only.
    queues.forget(name);
    let tunnel = Arc::new(Tunnel::open_lasting(plan, is_left, netlink)?);
    queues.note(tunnel.clone());
    Ok(tunnel)
}

/// Addresses of the tunnels that `topology` names.
fn addresses(topology: &Topology) -> Left {
    let tunnels = topology.tunnels.iter();
    tunnels.map(|tunnel| (tunnel.name.clone(), tunnel.addresses.clone())).collect()
}

/// `None` if a link has to wait: its program is attached when a process requests it.
fn or_later<T>(outcome: Result<T, StartError>) -> Result<Option<T>, StartError> {
    match outcome {
        Err(error) if error.is_absence() => Ok(None),
        outcome => outcome.map(Some),
    }
}

fn find_tunnel<'a>(tunnels: &'a [OpenTunnel], name: &str) -> Result<&'a OpenTunnel, String> {
    let found = tunnels.iter().find(|held| held.plan.config.name == name);
    found.ok_or_else(|| format!("{} is not a tunnel", name.escape_debug()))
}

fn done<E: std::fmt::Display>(outcome: Result<(), E>) -> Answer {
    outcome.map(|()| Reply::Done).map_err(|error| error.to_string())
}
