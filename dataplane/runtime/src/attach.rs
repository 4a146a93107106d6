//! The XDP program of one interface: loaded, attached, and its three maps.
//!
//! Each interface gets its own copy of the program and of its maps, since the socket map is indexed
//! by receive queue alone. The program is attached by a `bpf_link`, which the process owns: however
//! the process ends, the program goes with it.
//!
//! Order, held by `resources` and `runtime`: attach, open the sockets, enter them into the map;
//! and the reverse at the end.

use crate::error::StartError;
use crate::netlink::Netlink;
use aya::maps::{HashMap, MapError, PerCpuArray, XskMap};
use aya::programs::{ProgramError, Xdp, loaded_programs};
use aya::{Ebpf, EbpfLoader};
use recoded_wire::steer::{GLOBAL_PORT, MAP_FLOWS, MAP_VERDICTS, MAP_XSKS, PROGRAM, Verdict};
use recoded_xsk::{ModePreference, XdpMode};
use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// The object that `ebpf/` builds and the repository keeps.
static OBJECT: &[u8] = aya::include_bytes_aligned!("../../../ebpf/recoded.bpf.o");

/// Counters of [`Verdict`], in their order.
pub(crate) type Verdicts = [u64; Verdict::COUNT as usize];

/// Our program on one interface. Detaches when dropped.
pub(crate) struct Attachment {
    interface: String,
    ebpf: Ebpf,
    mode: XdpMode,
    reason: String,
}

impl Attachment {
    /// Loads the program for UDP port `port` and attaches it: native if `preference` allows and the
    /// driver can, generic otherwise.
    ///
    /// # Errors
    /// [`StartError::ForeignProgram`], [`StartError::NoNativeXdp`], [`StartError::NotPermitted`],
    /// [`StartError::Program`].
    pub(crate) fn open(
        interface: &str,
        port: u16,
        preference: ModePreference,
        netlink: &Netlink,
    ) -> Result<Attachment, StartError> {
        let index = netlink.interface(interface)?.index;
        let refused = |error: &(dyn std::error::Error + 'static)| match errno(error) {
            Some(EPERM) => StartError::NotPermitted { missing: "CAP_BPF or CAP_SYS_ADMIN".into() },
            _ => StartError::Program { interface: interface.to_owned(), reason: chain(error) },
        };
        let mut ebpf = EbpfLoader::new()
            .override_global(GLOBAL_PORT, &port, true)
            .load(OBJECT)
            .map_err(|error| refused(&error))?;
        let program = program(&mut ebpf).map_err(|error| refused(&error))?;
        program.load().map_err(|error| refused(&error))?;

        let mut reason = String::new();
        if preference == ModePreference::Generic {
            "native XDP: not tried, `generic` is configured".clone_into(&mut reason);
        } else {
            match attach(program, index, XdpMode::Native) {
                Ok(()) => {
                    let interface = interface.to_owned();
                    return Ok(Attachment { interface, ebpf, mode: XdpMode::Native, reason });
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
        match attach(program, index, XdpMode::Generic) {
            Ok(()) => {
                let interface = interface.to_owned();
                Ok(Attachment { interface, ebpf, mode: XdpMode::Generic, reason })
            }
            Err(error) if is_taken(&error) => Err(foreign(interface, netlink)),
            Err(error) => Err(refused(&error)),
        }
    }

    /// Takes the program off the interface; the maps stay.
    pub(crate) fn detach(&mut self) {
        let detached = program(&mut self.ebpf).and_then(|program| program.unload());
        if let Err(error) = detached {
            tracing::debug!(%error, interface = self.interface, "it had no program any more");
        }
    }

    pub(crate) fn interface(&self) -> &str {
        &self.interface
    }

    /// How the program runs, and why not better.
    pub(crate) fn mode(&self) -> (XdpMode, &str) {
        (self.mode, &self.reason)
    }

    /// Directs the packets of `queue` to `socket`, whose fill ring must be primed.
    pub(crate) fn set_socket(
        &mut self,
        queue: u32,
        socket: BorrowedFd<'_>,
    ) -> Result<(), MapError> {
        self.sockets()?.set(queue, std::os::fd::AsRawFd::as_raw_fd(&socket), 0)
    }

    /// Directs the packets of `queue` nowhere.
    pub(crate) fn unset_socket(&mut self, queue: u32) -> Result<(), MapError> {
        self.sockets()?.unset(queue)
    }

    /// Accepts packets of a flow, or refuses them.
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

    /// Adds the verdict counters of all CPUs to `sum`.
    pub(crate) fn add_verdicts(&self, sum: &mut Verdicts) -> Result<(), MapError> {
        let map = self.ebpf.map(MAP_VERDICTS).ok_or_else(|| missing(MAP_VERDICTS))?;
        let counters: PerCpuArray<_, u64> = PerCpuArray::try_from(map)?;
        for (index, total) in (0..).zip(sum.iter_mut()) {
            *total += counters.get(&index, 0)?.iter().sum::<u64>();
        }
        Ok(())
    }

    fn sockets(&mut self) -> Result<XskMap<&mut aya::maps::MapData>, MapError> {
        XskMap::try_from(self.ebpf.map_mut(MAP_XSKS).ok_or_else(|| missing(MAP_XSKS))?)
    }
}

fn program(ebpf: &mut Ebpf) -> Result<&mut Xdp, ProgramError> {
    let program = ebpf.program_mut(PROGRAM).ok_or(ProgramError::NotLoaded)?;
    program.try_into()
}

/// Attaches, and tries again while the interface is taken: the program of a process that has just
/// been killed goes a moment after it.
fn attach(program: &mut Xdp, index: u32, mode: XdpMode) -> Result<(), ProgramError> {
    let end = Instant::now() + TAKEN_RETRY;
    let flag = match mode {
        XdpMode::Native => aya::programs::XdpMode::Driver,
        XdpMode::Generic => aya::programs::XdpMode::Skb,
    };
    loop {
        match program.attach_to_if_index(index, flag) {
            // The link stays with the program, and the program with `Ebpf`.
            Ok(_) => return Ok(()),
            Err(error) if is_taken(&error) && Instant::now() < end => {
                std::thread::sleep(TAKEN_PAUSE);
            }
            Err(error) => return Err(error),
        }
    }
}

fn is_taken(error: &ProgramError) -> bool {
    matches!(errno(error), Some(EBUSY | EEXIST))
}

/// Names the program that blocks ours, as far as Linux reports it.
fn foreign(interface: &str, netlink: &Netlink) -> StartError {
    let id = netlink.interface(interface).ok().and_then(|interface| interface.program);
    let program = match id {
        Some(id) => match program_name(id) {
            Some(name) => format!("id {id}, name `{name}`"),
            None => format!("id {id}"),
        },
        None => "of unknown id".to_owned(),
    };
    StartError::ForeignProgram { interface: interface.to_owned(), program }
}

fn program_name(id: u32) -> Option<String> {
    let program = loaded_programs().flatten().find(|program| program.id() == id)?;
    program.name_as_str().filter(|name| !name.is_empty()).map(str::to_owned)
}

/// The system error at the bottom of an error, if that is what it is.
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

const EPERM: i32 = 1;
/// Another `bpf_link`, or any other program, holds the interface.
const EBUSY: i32 = 16;
/// A program is attached in the other mode.
const EEXIST: i32 = 17;
/// Linux needs some tens of milliseconds to clean up after a killed process, more under load.
const TAKEN_RETRY: Duration = Duration::from_millis(500);
const TAKEN_PAUSE: Duration = Duration::from_millis(20);
