//! The XDP program of one interface: loaded, attached, and its maps.
//!
//! Each interface gets its own copy of the program and of its maps, since the socket map is indexed
//! by receive queue only. The program is attached by a `bpf_link`, which a process owns: however
//! that process ends, the program is detached. The owner may differ from the process that sees
//! packets ([`crate::privileged`]); then each call here is a request to it. The packet process also
//! holds a descriptor of the `bpf_link`, so packets keep flowing when the owner is killed. A
//! process that calls `execve` leaves its links open, and its successor replaces the programs on
//! them ([`crate::bpf_link`]).
//!
//! Order, held by `resources` and `runtime`: attach, open the sockets, enter them into the map;
//! and the reverse at the end.

use crate::bpf_link::{BpfLink, LeftPrograms};
use crate::error::StartError;
use crate::netlink::Netlink;
use crate::own;
use crate::privileged::{AskError, Attached, Client};
use crate::program_owner::Owner;
use crate::report::Verdicts;
use crate::suspension::Since;
use crate::topology::{Backend, LinkConfig, Topology};
use aya::maps::{HashMap, MapError, PerCpuArray, XskMap};
use aya::programs::links::FdLink;
use aya::programs::{ProgramError, Xdp, loaded_programs};
use aya::{Ebpf, EbpfLoader};
use recoded_wire::packet::{AddressWords, address_words, words_address};
use recoded_wire::steer::{
    ANY_ADDRESS, GLOBAL_LOCAL, GLOBAL_PORT, MAP_FLOWS, MAP_NEIGHBOURS, MAP_NOT_NEIGHBOURS,
    MAP_VERDICTS, MAP_XSKS, PROGRAM,
};
use recoded_xsk::{ModePreference, XdpMode, replace_program};
use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The object that `ebpf/` builds and the repository keeps.
static OBJECT: &[u8] = aya::include_bytes_aligned!("../../../ebpf/recoded.bpf.o");

/// Our program on one interface. Detaches when dropped.
pub(crate) struct Attachment {
    interface: String,
    /// Linux's index of the interface; 0 if not known here.
    index: u32,
    /// Receive queues when the program was attached; 0 if not known here.
    queues: u32,
    /// When the program was attached.
    since: Since,
    /// Our address that the program accepts packets for; `None` without a program.
    local: Option<IpAddr>,
    program: Holder,
    mode: XdpMode,
    reason: String,
    /// Queues whose packets go to a socket.
    entered: BTreeSet<u32>,
}

/// The holder of the program and its maps.
enum Holder {
    /// This process, with the `bpf_link`, unless this Linux has none (before 5.9).
    Here(Box<Ebpf>, Option<BpfLink>),
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
        let Holder::Here(ebpf, _) = &mut self.program else { return Ok(()) };
        let hops = topology.hops.iter().filter(|hop| hop.link == link);
        let wanted: Vec<IpAddr> = hops.map(|hop| hop.address).collect();
        for address in &wanted {
            set_neighbour(ebpf, *address)?;
        }
        let wanted: Vec<AddressWords> = wanted.into_iter().map(address_words).collect();
        let map = ebpf.map_mut(MAP_NEIGHBOURS).ok_or_else(|| missing(MAP_NEIGHBOURS))?;
        let mut neighbours: HashMap<_, AddressWords, u32> = HashMap::try_from(map)?;
        let known = neighbours.keys().collect::<Result<Vec<_>, _>>()?;
        let mut gone = known.iter().filter(|words| !wanted.contains(words));
        gone.try_for_each(|words| neighbours.remove(words))
    }

    /// Detaches the program from the interface; maps held here stay.
    pub(crate) fn detach(&mut self) {
        let detached = match &mut self.program {
            Holder::Here(ebpf, link) => {
                drop(link.take());
                let detached = program(ebpf).and_then(|program| program.unload());
                detached.map_err(|error| error.to_string())
            }
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
        let Holder::Here(_, Some(link)) = &self.program else { return None };
        link.share()
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

    /// Our address that the program accepts packets for; `None` without a program.
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
            Holder::Here(ebpf, _) => {
                sockets(ebpf)?.set(queue, std::os::fd::AsRawFd::as_raw_fd(&socket), 0)?;
            }
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
            Holder::Here(ebpf, _) => sockets(ebpf)?.unset(queue)?,
            Holder::Privileged(it, _) => it.unset_socket(&self.interface, queue)?,
            Holder::Absent => {}
        }
        self.entered.remove(&queue);
        Ok(())
    }

    /// Accepts packets of a flow, or refuses them.
    pub(crate) fn set_flow(&mut self, flow: u32, accept: bool) -> Result<(), SteerError> {
        let ebpf = match &mut self.program {
            Holder::Here(ebpf, _) => ebpf,
            Holder::Privileged(it, _) => return Ok(it.set_flow(&self.interface, flow, accept)?),
            Holder::Absent => return Ok(()),
        };
        let map = ebpf.map_mut(MAP_FLOWS).ok_or_else(|| missing(MAP_FLOWS))?;
        let mut flows: HashMap<_, u32, u32> = HashMap::try_from(map)?;
        if accept {
            return Ok(flows.insert(flow, 1, 0)?);
        }
        match flows.remove(&flow) {
            Err(MapError::KeyNotFound) => Ok(()),
            outcome => Ok(outcome?),
        }
    }

    /// Adds the verdict counters of all CPUs to `sum`.
    pub(crate) fn add_verdicts(&self, sum: &mut Verdicts) -> Result<(), SteerError> {
        let ebpf = match &self.program {
            Holder::Here(ebpf, _) => ebpf,
            Holder::Privileged(it, _) => {
                let counts = it.verdicts(&self.interface)?;
                sum.iter_mut().zip(counts).for_each(|(total, count)| *total += count);
                return Ok(());
            }
            Holder::Absent => return Ok(()),
        };
        let map = ebpf.map(MAP_VERDICTS).ok_or_else(|| missing(MAP_VERDICTS))?;
        let counters: PerCpuArray<_, u64> = PerCpuArray::try_from(map)?;
        for (index, total) in (0..).zip(sum.iter_mut()) {
            *total += counters.get(&index, 0)?.iter().sum::<u64>();
        }
        Ok(())
    }

    /// The addresses refused last, at most one for each CPU.
    pub(crate) fn not_neighbours(&self) -> Result<Vec<IpAddr>, SteerError> {
        let ebpf = match &self.program {
            Holder::Here(ebpf, _) => ebpf,
            Holder::Privileged(it, _) => return Ok(it.not_neighbours(&self.interface)?),
            Holder::Absent => return Ok(Vec::new()),
        };
        let map = ebpf.map(MAP_NOT_NEIGHBOURS).ok_or_else(|| missing(MAP_NOT_NEIGHBOURS))?;
        let last: PerCpuArray<_, AddressWords> = PerCpuArray::try_from(map)?;
        let last = last.get(&0, 0)?;
        let seen = last.iter().copied().filter(|words| *words != ANY_ADDRESS);
        Ok(seen.map(words_address).collect())
    }
}

/// A program that is loaded and not attached.
pub(crate) struct Loaded {
    interface: String,
    local: IpAddr,
    ebpf: Ebpf,
}

impl Loaded {
    /// Loads the program for the packets of the neighbours on a link. This takes most of the time,
    /// and can be done while another program is on the interface.
    ///
    /// # Errors
    /// As [`Attachment::open`].
    pub(crate) fn new(
        topology: &Topology,
        link: usize,
        netlink: &Netlink,
    ) -> Result<Loaded, StartError> {
        let LinkConfig { interface, .. } = &topology.links[link];
        let local = own::address(topology, link, netlink, &netlink.interface(interface)?)?;
        let refused = |error: &(dyn std::error::Error + 'static)| refused(interface, error);
        let mut ebpf = EbpfLoader::new()
            .override_global(GLOBAL_PORT, &topology.port, true)
            .override_global(GLOBAL_LOCAL, &address_words(local), true)
            .load(OBJECT)
            .map_err(|error| refused(&error))?;
        let neighbours = topology.hops.iter().filter(|hop| hop.link == link);
        let mut neighbours = neighbours.map(|hop| hop.address);
        neighbours
            .try_for_each(|address| set_neighbour(&mut ebpf, address))
            .map_err(|error| refused(&error))?;
        let program = program(&mut ebpf).map_err(|error| refused(&error))?;
        program.load().map_err(|error| refused(&error))?;
        Ok(Loaded { interface: interface.to_owned(), local, ebpf })
    }

    /// Attaches it, as [`Attachment::open`] does, replacing the one in `left` where possible.
    pub(crate) fn attach(
        self,
        preference: ModePreference,
        netlink: &Netlink,
        left: &mut LeftPrograms,
    ) -> Result<Attachment, StartError> {
        let Loaded { interface, local, mut ebpf } = self;
        let interface = interface.as_str();
        let now = netlink.interface(interface)?;
        let queues = netlink.queues(interface).map_or(0, |queues| queues.receive);
        let (index, place) =
            (now.index, AttachPoint { interface, index: now.index, queues, local });
        let program = program(&mut ebpf).map_err(|error| refused(interface, &error))?;

        let link = left.take(index).zip(now.mode.filter(|mode| is_as_wanted(*mode, preference)));
        if let Some((link, mode)) = link {
            match replace(program, &link) {
                Ok(()) => {
                    let reason = match (mode, preference) {
                        (XdpMode::Native, _) => String::new(),
                        (_, ModePreference::Generic) => NOT_TRIED.to_owned(),
                        _ => "native XDP: the driver refused it before the takeover".to_owned(),
                    };
                    let link = Some(BpfLink::Open(link));
                    return Ok(held(place, ebpf, link, mode, reason));
                }
                // Dropping the link detaches the program that it holds.
                Err(error) => tracing::warn!(error, interface, "the program is attached again"),
            }
        }
        let mut reason = String::new();
        if preference == ModePreference::Generic {
            NOT_TRIED.clone_into(&mut reason);
        } else {
            match attach(program, interface, index, XdpMode::Native, netlink) {
                Ok(link) => {
                    return Ok(held(place, ebpf, link, XdpMode::Native, reason));
                }
                Err(error) if is_taken(&error) => return Err(foreign(interface, netlink)),
                Err(error) if preference != ModePreference::Auto => {
                    let (interface, reason) = (interface.to_owned(), chain(&error));
                    return Err(StartError::NoNativeXdp { interface, reason });
                }
                Err(error) => {
                    reason = format!("native XDP: the driver refused it ({})", chain(&error))
                }
            }
        }
        match attach(program, interface, index, XdpMode::Generic, netlink) {
            Ok(link) => Ok(held(place, ebpf, link, XdpMode::Generic, reason)),
            Err(error) if is_taken(&error) => Err(foreign(interface, netlink)),
            Err(error) => Err(refused(interface, &error)),
        }
    }
}

fn refused(interface: &str, error: &(dyn std::error::Error + 'static)) -> StartError {
    match errno(error) {
        Some(EPERM) => {
            StartError::NotPermitted { missing: "CAP_BPF and CAP_PERFMON, or CAP_SYS_ADMIN".into() }
        }
        _ => StartError::Program { interface: interface.to_owned(), reason: chain(error) },
    }
}

/// The place and the purpose of an attachment.
#[derive(Copy, Clone)]
struct AttachPoint<'a> {
    interface: &'a str,
    index: u32,
    queues: u32,
    local: IpAddr,
}

fn held(
    AttachPoint { interface, index, queues, local }: AttachPoint<'_>,
    ebpf: Ebpf,
    link: Option<BpfLink>,
    mode: XdpMode,
    reason: String,
) -> Attachment {
    let program = Holder::Here(Box::new(ebpf), link);
    let (interface, entered) = (interface.to_owned(), BTreeSet::new());
    let (local, since) = (Some(local), Since::now());
    Attachment { interface, index, queues, since, local, program, mode, reason, entered }
}

fn set_neighbour(ebpf: &mut Ebpf, address: IpAddr) -> Result<(), MapError> {
    let map = ebpf.map_mut(MAP_NEIGHBOURS).ok_or_else(|| missing(MAP_NEIGHBOURS))?;
    let mut neighbours: HashMap<_, AddressWords, u32> = HashMap::try_from(map)?;
    neighbours.insert(address_words(address), 1, 0)
}

fn sockets(ebpf: &mut Ebpf) -> Result<XskMap<&mut aya::maps::MapData>, MapError> {
    XskMap::try_from(ebpf.map_mut(MAP_XSKS).ok_or_else(|| missing(MAP_XSKS))?)
}

fn program(ebpf: &mut Ebpf) -> Result<&mut Xdp, ProgramError> {
    let program = ebpf.program_mut(PROGRAM).ok_or(ProgramError::NotLoaded)?;
    program.try_into()
}

fn replace(program: &Xdp, link: &OwnedFd) -> Result<(), String> {
    let loaded = program.fd().map_err(|error| error.to_string())?;
    replace_program(link.as_fd(), loaded.as_fd()).map_err(|error| error.to_string())
}

/// Whether a program attached in this mode satisfies the preference.
fn is_as_wanted(mode: XdpMode, preference: ModePreference) -> bool {
    match preference {
        ModePreference::Auto => true,
        ModePreference::Generic => mode == XdpMode::Generic,
        _ => mode == XdpMode::Native,
    }
}

/// Attaches, and retries while the interface is taken: Linux detaches the program of a killed
/// process a moment later.
fn attach(
    program: &mut Xdp,
    interface: &str,
    index: u32,
    mode: XdpMode,
    netlink: &Netlink,
) -> Result<Option<BpfLink>, ProgramError> {
    let began = Instant::now();
    let mut patience = TAKEN_RETRY;
    let flag = match mode {
        XdpMode::Native => aya::programs::XdpMode::Driver,
        XdpMode::Generic => aya::programs::XdpMode::Skb,
    };
    loop {
        match program.attach_to_if_index(index, flag) {
            // Without `bpf_link`, aya's descriptor goes back into the program.
            Ok(id) => {
                let link = program.take_link(id)?;
                return match FdLink::try_from(link) {
                    Ok(link) => Ok(Some(BpfLink::new(link, interface))),
                    Err(_) => Err(ProgramError::NotAttached),
                };
            }
            Err(error) if is_taken(&error) && began.elapsed() < patience => {
                std::thread::sleep(TAKEN_PAUSE);
            }
            Err(error) if is_taken(&error) && patience == TAKEN_RETRY => {
                let id = attached(interface, netlink);
                if !id.is_none_or(|id| may_be_own(program_name(id).as_deref())) {
                    return Err(error);
                }
                patience = KILLED_RETRY;
            }
            Err(error) => return Err(error),
        }
    }
}

fn is_taken(error: &ProgramError) -> bool {
    matches!(errno(error), Some(EBUSY | EEXIST))
}

/// Names the program that blocks this one, as far as Linux reports it.
fn foreign(interface: &str, netlink: &Netlink) -> StartError {
    let id = attached(interface, netlink);
    let program = match id {
        Some(id) => match program_name(id) {
            Some(name) => format!("id {id}, name `{name}`"),
            None => format!("id {id}"),
        },
        None => "of unknown id".to_owned(),
    };
    let cure = id.map_or(Owner::Unknown, Owner::of).cure(interface);
    StartError::ForeignProgram { interface: interface.to_owned(), program, cure }
}

/// Id of the XDP program on an interface.
fn attached(interface: &str, netlink: &Netlink) -> Option<u32> {
    netlink.interface(interface).ok().and_then(|interface| interface.program)
}

fn program_name(id: u32) -> Option<String> {
    let program = loaded_programs().flatten().find(|program| program.id() == id)?;
    program.name_as_str().filter(|name| !name.is_empty()).map(str::to_owned)
}

/// Whether a program of this name may belong to a killed dataplane process. Without CAP_SYS_ADMIN,
/// as under the systemd unit, the name is unknown.
fn may_be_own(name: Option<&str>) -> bool {
    name.is_none_or(|name| name == PROGRAM)
}

/// The system error at the root of an error, if there is one.
fn errno(error: &(dyn std::error::Error + 'static)) -> Option<i32> {
    let mut current = Some(error);
    while let Some(error) = current {
        if let Some(io) = error.downcast_ref::<io::Error>() {
            return io.raw_os_error();
        }
        current = error.source();
    }
    None
}

/// An error and its causes in one line.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut current = error.source();
    while let Some(cause) = current {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        current = cause.source();
    }
    text
}

fn missing(name: &str) -> MapError {
    MapError::InvalidName { name: name.to_owned() }
}

/// Why there is no native program where generic is configured.
const NOT_TRIED: &str = "native XDP: not tried, `generic` is configured";

const EPERM: i32 = 1;
/// Another `bpf_link`, or any other program, holds the interface.
const EBUSY: i32 = 16;
/// A program is attached in the other mode.
const EEXIST: i32 = 17;
/// Time for another program to leave the interface.
const TAKEN_RETRY: Duration = Duration::from_millis(500);
/// The same for programs and queues of a killed dataplane process: Linux takes some tens of
/// milliseconds to clean up after it, seconds on a busy machine. Giving up earlier leaves the node
/// without packets, or rolls a reload back.
pub(crate) const KILLED_RETRY: Duration = Duration::from_secs(5);
const TAKEN_PAUSE: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_of_unknown_name_may_be_that_of_a_killed_process() {
        assert!(may_be_own(None) && may_be_own(Some(PROGRAM)));
        assert!(!may_be_own(Some("xdp_filter")));
    }
}
