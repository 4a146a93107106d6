//! A card behind Linux's VFIO driver: registers in a mapped BAR, memory of the host that the card
//! reads and writes through the IOMMU. The bitstream must let the engine's AXI master reach PCIe,
//! by IOMMU addresses.
//!
//! ```text
//!  /dev/iommu               iommufd: a space of DMA addresses
//!    /dev/vfio/devices/N    device
//!  or, where Linux has no iommufd for the device,
//!  /dev/vfio/vfio           container: a space of DMA addresses
//!    /dev/vfio/N            group: what the IOMMU cannot tell apart
//!      device
//!  device: BAR 0: 4 KiB of registers; configuration space: bus master; an eventfd
//! ```
//!
//! Memory of bundles is mapped in place, for the card to read sources from and to write
//! destinations to (`arenas`); the rings and coefficients have memory of their own.
//!
//! Nothing here has run on a card: the tests put memfds, an eventfd and a model of the card behind
//! it, and [`Linux`] covers the calls that no file can. In virtual machines of `tests/lab` it opens
//! another device behind an emulated IOMMU, by the container.

mod calls;
mod space;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};

pub use calls::{Kernel, Linux, Request};
use recoded_code::engine::Arena;
use space::Space;

use super::arenas::{ADDRESSES, Access, Arenas, Iommu};
use super::mapping::{Mapping, populate};
use super::window::Window;
use super::xdma::wait_readable;
use super::{MemoryError, Transport};

/// The reason why a card cannot be used through VFIO.
#[derive(Debug, thiserror::Error)]
pub enum VfioError {
    /// A failed open or request.
    #[error("{what}: {error}")]
    Call {
        /// The failed action.
        what: &'static str,
        /// Linux's error.
        error: io::Error,
    },
    /// No IOMMU group.
    #[error("PCI device {address} has no IOMMU group: is the IOMMU on, and the device there?")]
    NoGroup {
        /// The device.
        address: String,
    },
    /// The VFIO interface is unsupported.
    #[error("VFIO of version {version} without a type 1 IOMMU is not supported")]
    Version {
        /// Version of the interface.
        version: i32,
    },
    /// Another driver owns a device of the group.
    #[error("group {group} is not viable: bind all of its devices to vfio-pci")]
    NotViable {
        /// Number of the group.
        group: u32,
    },
    /// BAR 0 is no register page.
    #[error("BAR 0 of {bytes} bytes, flags {flags:#x}, cannot be mapped as a register page")]
    Bar {
        /// Its size.
        bytes: u64,
        /// Its access flags.
        flags: u32,
    },
}

/// One card.
pub struct Vfio<L: Linux + 'static = Kernel> {
    registers: Mapping,
    interrupt: Option<File>,
    // In closing order: the card stops writing when its device is closed.
    device: File,
    arenas: Arenas<Dma<L>>,
    memory: Vec<(u64, Mapping)>,
    window: Window,
    name: String,
    begun: Instant,
}

/// The DMA addresses of one card, and their mapper.
struct Dma<L> {
    linux: L,
    space: Space,
}

impl<L: Linux + 'static> Iommu for Dma<L> {
    fn map(&mut self, here: usize, there: u64, bytes: u64, access: Access) -> io::Result<()> {
        if access == Access::Read {
            populate(here, bytes as usize)?;
        }
        self.space.map(&mut self.linux, here as u64, there, bytes, access)
    }

    fn unmap(&mut self, there: u64, bytes: u64) -> io::Result<()> {
        self.space.unmap(&mut self.linux, there, bytes)
    }
}

impl Vfio {
    /// Opens the PCI device at `address`, such as `0000:03:00.0`, which is bound to `vfio-pci`.
    ///
    /// # Errors
    /// See [`VfioError`].
    pub fn open(address: &str) -> Result<Self, VfioError> {
        Self::open_with(Kernel, address)
    }
}

impl<L: Linux + 'static> Vfio<L> {
    /// The same with any Linux.
    ///
    /// # Errors
    /// See [`VfioError`].
    pub fn open_with(mut linux: L, address: &str) -> Result<Self, VfioError> {
        let (device, space) = Space::open(&mut linux, address)?;
        // Not every device can be reset; the engine also resets itself.
        let _ = linux.call(device.as_fd(), Request::DeviceReset, &mut []);
        let registers = registers(&mut linux, &device)?;
        make_bus_master(&mut linux, &device)?;
        let interrupt = interrupt(&mut linux, &device);
        Ok(Self {
            registers,
            interrupt,
            device,
            arenas: Arenas::new(Dma { linux, space }, DMA_END - ADDRESSES),
            memory: Vec::new(),
            window: Window::new(DMA_FIRST..DMA_END - ADDRESSES),
            name: format!("vfio:{address}"),
            begun: Instant::now(),
        })
    }

    /// The pages at `address`, and the offset in them.
    fn find(&self, address: u64, bytes: usize) -> Result<(&Mapping, usize), MemoryError> {
        let within = |(start, pages): &&(u64, Mapping)| {
            let offset = address.checked_sub(*start);
            let end = offset.and_then(|offset| offset.checked_add(bytes as u64));
            end.is_some_and(|end| end <= pages.bytes() as u64)
        };
        let found = self.memory.iter().find(within);
        let (start, pages) = found.ok_or(MemoryError::Outside { address, bytes })?;
        Ok((pages, (address - start) as usize))
    }
}

impl<L: Linux + 'static> Transport for Vfio<L> {
    fn read32(&mut self, offset: u32) -> u32 {
        self.registers.read32(offset as usize)
    }

    fn write32(&mut self, offset: u32, value: u32) {
        self.registers.write32(offset as usize, value);
    }

    fn allocate(&mut self, bytes: usize) -> Result<u64, MemoryError> {
        let bytes = bytes.max(1).next_multiple_of(PAGE_BYTES_MAX);
        let address = self.window.allocate(bytes, PAGE_BYTES_MAX as u64)?;
        let failed = |error: io::Error| MemoryError::Device { address, bytes, kind: error.kind() };
        let pages = Mapping::anonymous(bytes).map_err(failed)?;
        let here = pages.address() as usize;
        let map = |dma: &mut Dma<L>| dma.map(here, address, bytes as u64, Access::ReadWrite);
        self.arenas.with(map).map_err(failed)?;
        self.memory.push((address, pages));
        Ok(address)
    }

    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), MemoryError> {
        let (pages, offset) = self.find(address, bytes.len())?;
        pages.write(offset, bytes);
        Ok(())
    }

    fn read(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), MemoryError> {
        let (pages, offset) = self.find(address, bytes.len())?;
        pages.read(offset, bytes);
        Ok(())
    }

    fn share(&mut self, arena: &Arena) -> Option<u64> {
        self.arenas.share(arena)
    }

    fn share_mut(&mut self, arena: &mut Arena) -> Option<u64> {
        self.arenas.share_mut(arena)
    }

    fn unshare(&mut self) -> bool {
        self.arenas.end()
    }

    fn describe(&self) -> String {
        self.name.clone()
    }

    fn wait(&mut self, timeout: Duration) {
        match &mut self.interrupt {
            Some(interrupt) => wait_readable(interrupt, &mut [0; 8], timeout),
            None => std::thread::sleep(timeout.min(POLL_INTERVAL)),
        }
    }

    fn now(&self) -> Duration {
        self.begun.elapsed()
    }
}

impl<L: Linux + 'static> Drop for Vfio<L> {
    /// A card that still writes must not find other memory: it is reset, and its DMA ends, before
    /// the pages are unmapped. Closing the files does the same once more.
    fn drop(&mut self) {
        let device = self.device.as_fd();
        self.arenas.with(|dma| {
            let _ = dma.linux.call(device, Request::DeviceReset, &mut []);
            for (address, pages) in &self.memory {
                let _ = dma.unmap(*address, pages.bytes() as u64);
            }
        });
        self.arenas.end();
    }
}

fn call(what: &'static str) -> impl FnOnce(io::Error) -> VfioError {
    move |error| VfioError::Call { what, error }
}

/// Size, flags and offset in the device's file of a region.
fn region(linux: &mut impl Linux, device: &File, index: u32) -> io::Result<(u64, u32, u64)> {
    let mut info = words([32, 0, index, 0, 0, 0, 0, 0]);
    linux.call(device.as_fd(), Request::DeviceGetRegionInfo, &mut info)?;
    let wide = |low| u64::from(word(&info, low)) | u64::from(word(&info, low + 1)) << 32;
    Ok((wide(4), word(&info, 1), wide(6)))
}

fn registers(linux: &mut impl Linux, device: &File) -> Result<Mapping, VfioError> {
    let (bytes, flags, offset) = region(linux, device, BAR_0).map_err(call("BAR 0"))?;
    let needed = REGION_READ | REGION_WRITE | REGION_MMAP;
    if bytes < REGISTER_BYTES as u64 || flags & needed != needed {
        return Err(VfioError::Bar { bytes, flags });
    }
    Mapping::of(device, offset, REGISTER_BYTES).map_err(call("mapping BAR 0"))
}

/// Lets the card respond at its BARs, and start reads and writes of its own.
fn make_bus_master(linux: &mut impl Linux, device: &File) -> Result<(), VfioError> {
    let (_, _, offset) =
        region(linux, device, CONFIGURATION).map_err(call("configuration space"))?;
    let place = offset + PCI_COMMAND;
    let mut command = [0; 2];
    device.read_exact_at(&mut command, place).map_err(call("reading the PCI command"))?;
    let command = u16::from_le_bytes(command) | PCI_MEMORY | PCI_BUS_MASTER;
    device.write_all_at(&command.to_le_bytes(), place).map_err(call("making it a bus master"))
}

/// An eventfd raised by interrupts; `None` if the card has none and is polled.
fn interrupt(linux: &mut impl Linux, device: &File) -> Option<File> {
    for index in [IRQ_MSIX, IRQ_MSI] {
        let mut info = words([16, 0, index, 0]);
        let asked = linux.call(device.as_fd(), Request::DeviceGetIrqInfo, &mut info);
        if asked.is_err() || word(&info, 3) == 0 {
            continue;
        }
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let raised = File::from(eventfd(0, flags).ok()?);
        let mut set = words([24, IRQ_EVENTFD | IRQ_TRIGGER, index, 0, 1]);
        set.extend(raised.as_raw_fd().to_le_bytes());
        if linux.call(device.as_fd(), Request::DeviceSetIrqs, &mut set).is_ok() {
            return Some(raised);
        }
    }
    None
}

/// Words in Linux's memory layout: VFIO is supported on little-endian machines only.
fn words<const N: usize>(values: [u32; N]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn word(bytes: &[u8], index: usize) -> u32 {
    let [a, b, c, d] = [0, 1, 2, 3].map(|byte| bytes.get(4 * index + byte).copied().unwrap_or(0));
    u32::from_le_bytes([a, b, c, d])
}

// From linux/vfio.h.
const BAR_0: u32 = 0;
const CONFIGURATION: u32 = 7;
const REGION_READ: u32 = 1;
const REGION_WRITE: u32 = 2;
const REGION_MMAP: u32 = 4;
const IRQ_MSI: u32 = 1;
const IRQ_MSIX: u32 = 2;
const IRQ_EVENTFD: u32 = 4;
const IRQ_TRIGGER: u32 = 32;

// From the PCI specification.
const PCI_COMMAND: u64 = 4;
const PCI_MEMORY: u16 = 2;
const PCI_BUS_MASTER: u16 = 4;

const REGISTER_BYTES: usize = 4096;

/// Addresses of the host's memory for the card: above the range that x86 reserves for interrupts,
/// and below the 39 bits of the smallest IOMMUs.
const DMA_FIRST: u64 = 1 << 32;
const DMA_END: u64 = 1 << 38;

/// The largest page of the machines that Linux runs on, which the IOMMU maps as a whole.
const PAGE_BYTES_MAX: usize = 1 << 16;

/// Interval between polls of a card that does not interrupt.
const POLL_INTERVAL: Duration = Duration::from_micros(20);
