//! The calls to Linux for an XDP program, by aya: loaded, attached, its maps. A build without the
//! feature `xdp` has `xdp_absent.rs` instead, with the same names.

mod link;

mod owner;

use crate::bpf_link::{KILLED_RETRY, LeftPrograms};
use crate::error::{StartError, shortened};
use crate::netlink::Netlink;
use crate::other_versions::OtherVersions;
use crate::own;
use crate::report::Verdicts;
use crate::topology::{LinkConfig, Topology};
use aya::maps::{HashMap, PerCpuArray, XskMap};
use aya::programs::links::FdLink;
use aya::programs::{ProgramError, Xdp, loaded_programs};
use aya::{Ebpf, EbpfLoader};
use link::BpfLink;
use owner::Owner;
use recoded_wire::other_version::OtherVersion;
use recoded_wire::packet::{AddressWords, address_words, words_address};
use recoded_wire::steer::{
    ANY_ADDRESS, GLOBAL_LOCAL, GLOBAL_PORT, MAP_FLOWS, MAP_NEIGHBOURS, MAP_NOT_NEIGHBOURS,
    MAP_VERDICTS, MAP_XSKS, PROGRAM,
};
use recoded_xsk::{ModePreference, XdpMode, replace_program};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// The reason why a map of a program cannot be read or changed.
pub(crate) use aya::maps::MapError;

/// The object that `ebpf/` builds and the repository keeps.
static OBJECT: &[u8] = aya::include_bytes_aligned!("../../../../ebpf/recoded.bpf.o");

/// A program on an interface, and its maps.
pub(crate) struct Program {
    ebpf: Ebpf,
    /// `None` if this Linux has no `bpf_link` (before 5.9).
    link: Option<BpfLink>,
}

impl Program {
    /// Replaces the neighbours: adds new ones first, so that none that stays is refused meanwhile.
    pub(crate) fn set_neighbours(&mut self, wanted: &[IpAddr]) -> Result<(), MapError> {
        let ebpf = &mut self.ebpf;
        for address in wanted {
            set_neighbour(ebpf, *address)?;
        }
        let wanted: Vec<AddressWords> = wanted.iter().copied().map(address_words).collect();
        let map = ebpf.map_mut(MAP_NEIGHBOURS).ok_or_else(|| missing(MAP_NEIGHBOURS))?;
        let mut neighbours: HashMap<_, AddressWords, u32> = HashMap::try_from(map)?;
        let known = neighbours.keys().collect::<Result<Vec<_>, _>>()?;
        let mut gone = known.iter().filter(|words| !wanted.contains(words));
        gone.try_for_each(|words| neighbours.remove(words))
    }

    /// Detaches the program; its maps stay.
    pub(crate) fn detach(&mut self) -> Result<(), String> {
        drop(self.link.take());
        let detached = program(&mut self.ebpf).and_then(|program| program.unload());
        detached.map_err(|error| error.to_string())
    }

    /// A further descriptor of the `bpf_link`, if there can be one.
    pub(crate) fn link(&self) -> Option<OwnedFd> {
        self.link.as_ref()?.share()
    }

    pub(crate) fn set_socket(
        &mut self,
        queue: u32,
        socket: BorrowedFd<'_>,
    ) -> Result<(), MapError> {
        sockets(&mut self.ebpf)?.set(queue, socket.as_raw_fd(), 0)
    }

    pub(crate) fn unset_socket(&mut self, queue: u32) -> Result<(), MapError> {
        sockets(&mut self.ebpf)?.unset(queue)
    }

    pub(crate) fn set_flow(&mut self, flow: u32, accept: bool) -> Result<(), MapError> {
        let map = self.ebpf.map_mut(MAP_FLOWS).ok_or_else(|| missing(MAP_FLOWS))?;
        let mut flows: HashMap<_, u32, u32> = HashMap::try_from(map)?;
        if accept {
            return flows.insert(flow, 1, 0);
        }
        match flows.remove(&flow) {
            Err(MapError::KeyNotFound) => Ok(()),
            outcome => outcome,
        }
    }

    pub(crate) fn add_verdicts(&self, sum: &mut Verdicts) -> Result<(), MapError> {
        let map = self.ebpf.map(MAP_VERDICTS).ok_or_else(|| missing(MAP_VERDICTS))?;
        let counters: PerCpuArray<_, u64> = PerCpuArray::try_from(map)?;
        for (index, total) in (0..).zip(sum.iter_mut()) {
            *total += counters.get(&index, 0)?.iter().sum::<u64>();
        }
        Ok(())
    }

    pub(crate) fn not_neighbours(&self) -> Result<Vec<IpAddr>, MapError> {
        let map = self.ebpf.map(MAP_NOT_NEIGHBOURS).ok_or_else(|| missing(MAP_NOT_NEIGHBOURS))?;
        let last: PerCpuArray<_, AddressWords> = PerCpuArray::try_from(map)?;
        let last = last.get(&0, 0)?;
        let seen = last.iter().copied().filter(|words| *words != ANY_ADDRESS);
        Ok(seen.map(words_address).collect())
    }

    pub(crate) fn other_versions(&self) -> Result<OtherVersions, MapError> {
        let map = self.ebpf.map(MAP_NEIGHBOURS).ok_or_else(|| missing(MAP_NEIGHBOURS))?;
        let neighbours: HashMap<_, AddressWords, u32> = HashMap::try_from(map)?;
        let mut all = OtherVersions::new();
        for entry in neighbours.iter() {
            let (words, bits) = entry?;
            all.add_one(words_address(words), OtherVersion::from_bits(bits));
        }
        Ok(all)
    }
}

/// A program on an interface.
pub(crate) struct Placed {
    pub(crate) interface: String,
    /// Linux's index of the interface, and its receive queues.
    pub(crate) index: u32,
    pub(crate) queues: u32,
    /// The local address that the program accepts packets for.
    pub(crate) local: IpAddr,
    pub(crate) program: Program,
    pub(crate) mode: XdpMode,
    /// Why the mode is not better.
    pub(crate) reason: String,
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
    /// [`StartError::NotPermitted`] or [`StartError::Program`], or there is no such interface.
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

    /// Attaches it in the best mode that `preference` allows, replacing the one in `left` where
    /// possible.
    pub(crate) fn attach(
        self,
        preference: ModePreference,
        netlink: &Netlink,
        left: &mut LeftPrograms,
    ) -> Result<Placed, StartError> {
        let Loaded { interface, local, mut ebpf } = self;
        let interface = interface.as_str();
        let now = netlink.interface(interface)?;
        let queues = netlink.queues(interface).map_or(0, |queues| queues.receive);
        let index = now.index;
        let placed = |program, mode, reason| {
            let interface = interface.to_owned();
            Placed { interface, index, queues, local, program, mode, reason }
        };
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
                    return Ok(placed(Program { ebpf, link }, mode, reason));
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
                    return Ok(placed(Program { ebpf, link }, XdpMode::Native, reason));
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
            Ok(link) => Ok(placed(Program { ebpf, link }, XdpMode::Generic, reason)),
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

fn set_neighbour(ebpf: &mut Ebpf, address: IpAddr) -> Result<(), MapError> {
    let map = ebpf.map_mut(MAP_NEIGHBOURS).ok_or_else(|| missing(MAP_NEIGHBOURS))?;
    let mut neighbours: HashMap<_, AddressWords, u32> = HashMap::try_from(map)?;
    // Packets that were counted for it stay.
    match neighbours.get(&address_words(address), 0) {
        Ok(_) => Ok(()),
        Err(_) => neighbours.insert(address_words(address), 0, 0),
    }
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

/// An error and its causes in one line. Linux's verifier adds what it looked at, which may be
/// thousands of lines.
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
    shortened(&text)
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
