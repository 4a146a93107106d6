//! The privileged half as the dataplane process sees it.

use super::message::{Offload, Reply, Request};
use crate::channel::Channel;
use crate::error::StartError;
use crate::memory::{Newest, WayId};
use crate::other_versions::OtherVersions;
use crate::report::Verdicts;
use crate::tunnel::{self, Tunnel, TunnelPlan};
use recoded_wire::steer::Verdict;
use recoded_xsk::{Queues, XdpMode};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

/// Sends requests to the privileged half, one at a time, from any thread.
#[derive(Debug)]
pub struct Client(Mutex<Channel>);

/// The program or sockets of a link.
pub(crate) enum Attached {
    /// A program: its mode and why it is not better, this node's address that it accepts packets
    /// for, and a descriptor that keeps it attached.
    Program { mode: XdpMode, reason: String, local: IpAddr, link: Option<OwnedFd> },
    /// No program, since the link uses UDP sockets, and the reason.
    Sockets { reason: String },
}

/// The reason why the privileged half refused or failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AskError {
    /// It cannot be reached, or its reply is invalid.
    #[error("the supervisor does not answer ({0})")]
    Channel(#[from] io::Error),
    /// The interface is unknown or gone.
    #[error("there is no interface of that name")]
    Absent,
    /// The privileged half or Linux refused.
    #[error("{reason}")]
    Refused {
        /// Its reason.
        reason: String,
    },
}

impl Client {
    /// A client on `channel`.
    pub fn new(channel: Channel) -> Client {
        Client(Mutex::new(channel))
    }

    fn ask(
        &self,
        request: &Request,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(Reply, Vec<OwnedFd>), AskError> {
        let channel = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        channel.send(request, fds)?;
        match channel.receive()?.ok_or_else(|| io::Error::from(io::ErrorKind::BrokenPipe))? {
            (Reply::Refused { reason }, _) => Err(AskError::Refused { reason }),
            (Reply::Absent, _) => Err(AskError::Absent),
            answer => Ok(answer),
        }
    }

    fn command(&self, request: &Request) -> Result<(), AskError> {
        match self.ask(request, &[])?.0 {
            Reply::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// Attaches the program of an interface's link.
    pub(crate) fn attach(&self, interface: &str) -> Result<Attached, AskError> {
        let request = Request::Attach { interface: interface.to_owned() };
        let (reply, fds) = self.ask(&request, &[])?;
        let link = fds.into_iter().next();
        match reply {
            Reply::Attached { native, reason, local } => {
                let mode = if native { XdpMode::Native } else { XdpMode::Generic };
                Ok(Attached::Program { mode, reason, local, link })
            }
            Reply::Unattached { reason } => Ok(Attached::Sockets { reason }),
            other => Err(unexpected(&other)),
        }
    }

    /// A UDP socket on an interface, bound.
    pub(crate) fn socket(&self, interface: &str) -> Result<OwnedFd, AskError> {
        let request = Request::Socket { interface: interface.to_owned() };
        match self.ask(&request, &[])? {
            (Reply::Socket, mut fds) if fds.len() == 1 => Ok(fds.remove(0)),
            (other, _) => Err(unexpected(&other)),
        }
    }

    pub(crate) fn detach(&self, interface: &str) -> Result<(), AskError> {
        self.command(&Request::Detach { interface: interface.to_owned() })
    }

    pub(crate) fn set_socket(
        &self,
        interface: &str,
        queue: u32,
        socket: BorrowedFd<'_>,
    ) -> Result<(), AskError> {
        let request = Request::SetSocket { interface: interface.to_owned(), queue };
        match self.ask(&request, &[socket])?.0 {
            Reply::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    pub(crate) fn queues(&self, interface: &str) -> Result<Queues, AskError> {
        match self.ask(&Request::Queues { interface: interface.to_owned() }, &[])?.0 {
            Reply::Queues { receive, transmit } => Ok(Queues { receive, transmit }),
            other => Err(unexpected(&other)),
        }
    }

    pub(crate) fn unset_socket(&self, interface: &str, queue: u32) -> Result<(), AskError> {
        self.command(&Request::UnsetSocket { interface: interface.to_owned(), queue })
    }

    pub(crate) fn set_flow(
        &self,
        interface: &str,
        flow: u32,
        accept: bool,
    ) -> Result<(), AskError> {
        self.command(&Request::SetFlow { interface: interface.to_owned(), flow, accept })
    }

    pub(crate) fn verdicts(&self, interface: &str) -> Result<Verdicts, AskError> {
        let request = Request::Verdicts { interface: interface.to_owned() };
        let counts = match self.ask(&request, &[])?.0 {
            Reply::Verdicts(counts) => counts,
            other => return Err(unexpected(&other)),
        };
        counts.try_into().map_err(|counts: Vec<u64>| AskError::Refused {
            reason: format!("{} verdicts, not {}", counts.len(), Verdict::COUNT),
        })
    }

    pub(crate) fn not_neighbours(&self, interface: &str) -> Result<Vec<IpAddr>, AskError> {
        let request = Request::NotNeighbours { interface: interface.to_owned() };
        match self.ask(&request, &[])?.0 {
            Reply::NotNeighbours(addresses) => Ok(addresses),
            other => Err(unexpected(&other)),
        }
    }

    pub(crate) fn other_versions(&self, interface: &str) -> Result<OtherVersions, AskError> {
        let request = Request::OtherVersions { interface: interface.to_owned() };
        match self.ask(&request, &[])?.0 {
            Reply::OtherVersions(senders) => Ok(senders),
            other => Err(unexpected(&other)),
        }
    }

    pub(crate) fn tunnel(&self, plan: &TunnelPlan) -> Result<Tunnel, StartError> {
        let name = plan.config.name.clone();
        let failed =
            |reason: String| StartError::Privileged { what: format!("tunnel {name}"), reason };
        let request = Request::Tunnel { name: name.clone() };
        match self.ask(&request, &[]).map_err(|error| failed(error.to_string()))? {
            (Reply::Tunnel { offload, reason }, queues) if !queues.is_empty() => {
                let tunnel = Tunnel::of_queues(name, queues, offload.into(), reason);
                Ok(tunnel.with_mtu(plan.config.mtu))
            }
            (other, _) => Err(failed(unexpected(&other).to_string())),
        }
    }

    pub(crate) fn set_mtu(&self, tunnel: &str, mtu: u16) -> Result<(), AskError> {
        self.command(&Request::SetMtu { tunnel: tunnel.to_owned(), mtu })
    }

    pub(crate) fn set_carrier(&self, tunnel: &str, carrier: bool) -> Result<(), AskError> {
        self.command(&Request::SetCarrier { tunnel: tunnel.to_owned(), carrier })
    }

    pub(crate) fn recall(&self, way: WayId) -> Result<Option<Newest>, AskError> {
        match self.ask(&Request::Recall { way }, &[])?.0 {
            Reply::Recalled(newest) => Ok(newest),
            other => Err(unexpected(&other)),
        }
    }

    pub(crate) fn keep(&self, way: WayId, newest: Newest) -> Result<(), AskError> {
        self.command(&Request::Keep { way, newest })
    }

    pub(crate) fn recall_stamp(&self) -> Result<u64, AskError> {
        match self.ask(&Request::RecallStamp, &[])?.0 {
            Reply::Stamp(stamp) => Ok(stamp),
            other => Err(unexpected(&other)),
        }
    }

    pub(crate) fn keep_stamp(&self, stamp: u64) -> Result<(), AskError> {
        self.command(&Request::KeepStamp { stamp })
    }

    pub(crate) fn recall_place(&self, name: &str) -> Result<Option<SocketAddr>, AskError> {
        match self.ask(&Request::RecallPlace { name: name.to_owned() }, &[])?.0 {
            Reply::Place(at) => Ok(at),
            other => Err(unexpected(&other)),
        }
    }

    pub(crate) fn keep_place(&self, name: &str, at: SocketAddr) -> Result<(), AskError> {
        self.command(&Request::KeepPlace { name: name.to_owned(), at })
    }

    pub(crate) fn resolve(&self, interface: u32, address: IpAddr) -> Result<(), AskError> {
        self.command(&Request::Resolve { interface, address })
    }

    pub(crate) fn resolve_again(&self, interface: u32, address: IpAddr) -> Result<(), AskError> {
        self.command(&Request::ResolveAgain { interface, address })
    }
}

fn unexpected(reply: &Reply) -> AskError {
    AskError::Refused { reason: format!("an unexpected answer: {reply:?}") }
}

impl From<Offload> for tunnel::Offload {
    fn from(offload: Offload) -> tunnel::Offload {
        match offload {
            Offload::None => tunnel::Offload::None,
            Offload::Tcp => tunnel::Offload::Tcp,
            Offload::TcpAndUdp => tunnel::Offload::TcpAndUdp,
        }
    }
}

impl From<tunnel::Offload> for Offload {
    fn from(offload: tunnel::Offload) -> Offload {
        match offload {
            tunnel::Offload::None => Offload::None,
            tunnel::Offload::Tcp => Offload::Tcp,
            tunnel::Offload::TcpAndUdp => Offload::TcpAndUdp,
        }
    }
}
