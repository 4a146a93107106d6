//! The XDP program of one interface: attached, and its maps.
//!
//! Each interface gets its own copy of the program and of its maps, since the socket map is indexed
//! by receive queue only. The program is attached by a `bpf_link`, which a process owns: however
//! that process ends, the program is detached. The owner may differ from the process that sees
//! packets ([`crate::privileged`]); then each call here is a request to it. The packet process also
//! holds a descriptor of the `bpf_link`, so packets keep flowing when the owner is killed. A
//! process that calls `execve` leaves its links open, and its successor replaces the programs on
//! them ([`crate::bpf_link`]). [`crate::xdp`] has the calls to Linux.
//!
//! Order, held by `resources` and `runtime`: attach, open the sockets, enter them into the map;
//! and the reverse at the end.

use crate::error::StartError;
use crate::other_versions::OtherVersions;
use crate::privileged::{AskError, Attached, Client};
use crate::report::Verdicts;
use crate::suspension::Since;
use crate::topology::{Backend, Topology};
use crate::xdp::{MapError, Placed, Program};
use recoded_xsk::XdpMode;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

/// The XDP program on one interface. Detaches when dropped.
pub(crate) struct Attachment {
    interface: String,
    /// Linux's index of the interface; 0 if not known here.
    index: u32,
    /// Receive queues when the program was attached; 0 if not known here.
    queues: u32,
    /// When the program was attached.
    since: Since,
    /// The local address that the program accepts packets for; `None` without a program.
    local: Option<IpAddr>,
    program: Holder,
    mode: XdpMode,
    reason: String,
    /// Queues whose packets go to a socket.
    entered: BTreeSet<u32>,
}

/// The holder of the program and its maps.
enum Holder {
    /// This process.
    Here(Box<Program>),
    /// The privileged process; with a descriptor of the `bpf_link`, if it has one to give.
    Privileged(Arc<Client>, Option<OwnedFd>),
    /// No program: the link has UDP sockets.
    Absent,
}

/// The reason why a map of a program cannot be read or changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SteerError {
    /// Linux refuses.
    #[error(transparent)]
    Map(#[from] MapError),
    /// The privileged process refuses.
    #[error(transparent)]
    Ask(#[from] AskError),
}

impl Attachment {
    /// Has the privileged process attach it.
    pub(crate) fn ask(interface: &str, privileged: &Arc<Client>) -> Result<Attachment, StartError> {
        let (mode, reason, local, link) =
            match privileged.attach(interface).map_err(|error| match error {
                AskError::Absent => StartError::NoSuchInterface { interface: interface.to_owned() },
                error => StartError::Privileged {
                    what: format!("a program on {interface}"),
                    reason: error.to_string(),
                },
            })? {
                Attached::Program { mode, reason, local, link } => (mode, reason, local, link),
                Attached::Sockets { reason } => return Ok(Attachment::none(interface, reason)),
            };
        let program = Holder::Privileged(privileged.clone(), link);
        let (interface, entered) = (interface.to_owned(), BTreeSet::new());
        Ok(Attachment {
            interface,
            index: 0,
            queues: 0,
            since: Since::now(),
            local: Some(local),
            program,
            mode,
            reason,
            entered,
        })
    }

    /// A placeholder for the program of an interface that is gone: `privileged` accepts the
    /// requests and ignores them.
    pub(crate) fn absent(interface: &str, privileged: &Arc<Client>) -> Attachment {
        Attachment {
            interface: interface.to_owned(),
            index: 0,
            queues: 0,
            since: Since::now(),
            local: None,
            program: Holder::Privileged(privileged.clone(), None),
            mode: XdpMode::Generic,
            reason: "the interface is gone".to_owned(),
            entered: BTreeSet::new(),
        }
    }

    /// A placeholder for an interface that needs no program, and the reason.
    pub(crate) fn none(interface: &str, reason: String) -> Attachment {
        Attachment {
            interface: interface.to_owned(),
            index: 0,
            queues: 0,
            since: Since::now(),
            local: None,
            program: Holder::Absent,
            mode: XdpMode::Generic,
            reason,
            entered: BTreeSet::new(),
        }
    }

    /// Replaces the neighbours of a link by those of the topology: adds new ones first, so that
    /// none that stays is refused meanwhile. The privileged process changes its own maps itself.
    pub(crate) fn set_neighbours(
        &mut self,
        topology: &Topology,
        link: usize,
    ) -> Result<(), MapError> {
        let Holder::Here(program) = &mut self.program else { return Ok(()) };
        let hops = topology.hops.iter().filter(|hop| hop.link == link);
        let wanted: Vec<IpAddr> = hops.map(|hop| hop.address).collect();
        program.set_neighbours(&wanted)
    }

    /// Detaches the program from the interface; maps held here stay.
    pub(crate) fn detach(&mut self) {
        let detached = match &mut self.program {
            Holder::Here(program) => program.detach(),
            Holder::Privileged(privileged, link) => {
                drop(link.take());
                privileged.detach(&self.interface).map_err(|error| error.to_string())
            }
            Holder::Absent => Ok(()),
        };
        if let Err(error) = detached {
            tracing::debug!(error, interface = self.interface, "it had no program any more");
        }
    }

    pub(crate) fn interface(&self) -> &str {
        &self.interface
    }

    /// A further descriptor of the `bpf_link`: the program stays while either is open. `None` if
    /// there is none or Linux refuses; the program then ends with this process.
    pub(crate) fn link(&self) -> Option<OwnedFd> {
        let Holder::Here(program) = &self.program else { return None };
        program.link()
    }

    /// Linux's index of the interface that the program is on.
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// Whether a queue added after the program has none: veth runs the program on the queues that
    /// the interface had when it was attached.
    pub(crate) fn lacks_queues(&self, now: u32) -> bool {
        matches!(self.program, Holder::Here(..)) && self.queues < now
    }

    /// Whether the driver may run without the program, as the box was suspended.
    pub(crate) fn was_suspended(&self) -> bool {
        matches!(self.program, Holder::Here(..)) && self.since.was_suspended()
    }

    /// The local address that the program accepts packets for; `None` without a program.
    pub(crate) fn local(&self) -> Option<IpAddr> {
        self.local
    }

    /// The backend that carries the packets of the link.
    pub(crate) fn backend(&self) -> Backend {
        match self.program {
            Holder::Absent => Backend::Udp,
            Holder::Here(..) | Holder::Privileged(..) => Backend::Xdp,
        }
    }

    /// How the program runs, and why not better; why there is none.
    pub(crate) fn mode(&self) -> (XdpMode, &str) {
        (self.mode, &self.reason)
    }

    /// Directs the packets of `queue` to `socket`; its fill ring must be primed.
    pub(crate) fn set_socket(
        &mut self,
        queue: u32,
        socket: BorrowedFd<'_>,
    ) -> Result<(), SteerError> {
        match &mut self.program {
            Holder::Here(program) => program.set_socket(queue, socket)?,
            Holder::Privileged(it, _) => it.set_socket(&self.interface, queue, socket)?,
            Holder::Absent => {}
        }
        self.entered.insert(queue);
        Ok(())
    }

    /// Directs the packets of all queues nowhere.
    pub(crate) fn unset_sockets(&mut self) {
        for queue in std::mem::take(&mut self.entered) {
            if let Err(error) = self.unset_socket(queue) {
                tracing::debug!(%error, queue, "the socket was not in the map");
            }
        }
    }

    /// Directs the packets of `queue` nowhere.
    pub(crate) fn unset_socket(&mut self, queue: u32) -> Result<(), SteerError> {
        match &mut self.program {
            Holder::Here(program) => program.unset_socket(queue)?,
            Holder::Privileged(it, _) => it.unset_socket(&self.interface, queue)?,
            Holder::Absent => {}
        }
        self.entered.remove(&queue);
        Ok(())
    }

    /// Accepts packets of a flow, or refuses them.
    pub(crate) fn set_flow(&mut self, flow: u32, accept: bool) -> Result<(), SteerError> {
        match &mut self.program {
            Holder::Here(program) => Ok(program.set_flow(flow, accept)?),
            Holder::Privileged(it, _) => Ok(it.set_flow(&self.interface, flow, accept)?),
            Holder::Absent => Ok(()),
        }
    }

    /// Adds the verdict counters of all CPUs to `sum`.
    pub(crate) fn add_verdicts(&self, sum: &mut Verdicts) -> Result<(), SteerError> {
        match &self.program {
            Holder::Here(program) => program.add_verdicts(sum)?,
            Holder::Privileged(it, _) => {
                let counts = it.verdicts(&self.interface)?;
                sum.iter_mut().zip(counts).for_each(|(total, count)| *total += count);
            }
            Holder::Absent => {}
        }
        Ok(())
    }

    /// The addresses refused last, at most one for each CPU.
    pub(crate) fn not_neighbours(&self) -> Result<Vec<IpAddr>, SteerError> {
        match &self.program {
            Holder::Here(program) => Ok(program.not_neighbours()?),
            Holder::Privileged(it, _) => Ok(it.not_neighbours(&self.interface)?),
            Holder::Absent => Ok(Vec::new()),
        }
    }

    /// The neighbours that send packets of another version.
    pub(crate) fn other_versions(&self) -> Result<OtherVersions, SteerError> {
        match &self.program {
            Holder::Here(program) => Ok(program.other_versions()?),
            Holder::Privileged(it, _) => Ok(it.other_versions(&self.interface)?),
            Holder::Absent => Ok(OtherVersions::default()),
        }
    }

    /// The program of this process on an interface.
    pub(crate) fn here(placed: Placed) -> Attachment {
        let Placed { interface, index, queues, local, program, mode, reason } = placed;
        Attachment {
            interface,
            index,
            queues,
            since: Since::now(),
            local: Some(local),
            program: Holder::Here(Box::new(program)),
            mode,
            reason,
            entered: BTreeSet::new(),
        }
    }
}
