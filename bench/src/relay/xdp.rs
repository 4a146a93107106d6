//! The committed eBPF objects as the benchmark uses them: steering in front of a socket, and
//! forwarding without user space.

use std::os::fd::{AsFd, AsRawFd};

use aya::maps::{Array, DevMap, HashMap, XskMap};
use aya::programs::{Xdp, XdpMode};
use aya::{Ebpf, EbpfLoader};
use recoded_wire::DEFAULT_PORT;
use recoded_wire::steer::{GLOBAL_PORT, MAP_FLOWS, MAP_XSKS, PROGRAM};
use recoded_xsk::Socket;
use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketType, socket};

use crate::error::BenchError;
use crate::relay::bed::{End, OUT, SINK};
use crate::relay::packets::FLOW;

static STEERING: &[u8] = aya::include_bytes_aligned!("../../../ebpf/recoded.bpf.o");
static FORWARDING: &[u8] = aya::include_bytes_aligned!("../../../ebpf/link.bpf.o");

/// The steering program on one interface. Detaches when dropped.
pub struct Steering {
    ebpf: Ebpf,
}

impl Steering {
    /// Attaches it natively to `end`, in the namespace of the calling thread.
    ///
    /// # Errors
    /// [`BenchError`] when Linux refuses the object, the program or the interface.
    pub fn attach(end: &End) -> Result<Steering, BenchError> {
        let mut ebpf =
            EbpfLoader::new().override_global(GLOBAL_PORT, &DEFAULT_PORT, true).load(STEERING)?;
        let mut flows: HashMap<_, u32, u32> = HashMap::try_from(map(&mut ebpf, MAP_FLOWS)?)?;
        flows.insert(FLOW, 1, 0)?;
        attach(&mut ebpf, PROGRAM, end)?;
        Ok(Steering { ebpf })
    }

    /// Directs the packets of queue 0 to `socket`.
    ///
    /// # Errors
    /// [`BenchError::Map`] when Linux refuses the socket.
    pub fn enter(&mut self, socket: &Socket) -> Result<(), BenchError> {
        let mut sockets = XskMap::try_from(map(&mut self.ebpf, MAP_XSKS)?)?;
        Ok(sockets.set(0, socket.fd().as_fd().as_raw_fd(), 0)?)
    }
}

/// A program attached to one interface. Detaches when dropped.
pub struct Attached {
    _ebpf: Ebpf,
}

impl Attached {
    /// Redirects from `end` to [`OUT`] without leaving XDP. For the namespace of the calling
    /// thread.
    ///
    /// # Errors
    /// [`BenchError`] when Linux refuses the object, the program or an interface.
    pub fn redirect(end: &End) -> Result<Attached, BenchError> {
        let mut ebpf = EbpfLoader::new().load(FORWARDING)?;
        let mut header = [0; 12];
        header[..6].copy_from_slice(&SINK.mac);
        header[6..].copy_from_slice(&OUT.mac);
        let mut macs: Array<_, [u8; 12]> = Array::try_from(map(&mut ebpf, "MACS")?)?;
        macs.set(0, header, 0)?;
        let mut devices = DevMap::try_from(map(&mut ebpf, "DEVICES")?)?;
        devices.set(0, interface_index(OUT.name)?, None, 0)?;
        attach(&mut ebpf, "forward", end)?;
        Ok(Attached { _ebpf: ebpf })
    }

    /// Passes everything from `end` to Linux. A virtual cable delivers packets sent by XDP only if
    /// the far end polls, and a program there makes it poll. Applies to the namespace of the
    /// calling thread.
    ///
    /// # Errors
    /// [`BenchError`] if Linux refuses the object, the program or the interface.
    pub fn pass(end: &End) -> Result<Attached, BenchError> {
        let mut ebpf = EbpfLoader::new().load(FORWARDING)?;
        attach(&mut ebpf, "pass", end)?;
        Ok(Attached { _ebpf: ebpf })
    }
}

/// Index of an interface in the namespace of the calling thread.
///
/// # Errors
/// [`BenchError::Os`].
pub fn interface_index(name: &str) -> Result<u32, BenchError> {
    socket(AddressFamily::INET, SocketType::DGRAM, None)
        .and_then(|socket| name_to_index(socket, name))
        .map_err(BenchError::os(format!("looking for {name}")))
}

fn map<'a>(ebpf: &'a mut Ebpf, name: &'static str) -> Result<&'a mut aya::maps::Map, BenchError> {
    ebpf.map_mut(name).ok_or(BenchError::NoSuchItem(name))
}

fn attach(ebpf: &mut Ebpf, name: &'static str, end: &End) -> Result<(), BenchError> {
    let program = ebpf.program_mut(name).ok_or(BenchError::NoSuchItem(name))?;
    let program: &mut Xdp = program.try_into()?;
    program.load()?;
    program.attach(end.name, XdpMode::Driver)?;
    Ok(())
}
