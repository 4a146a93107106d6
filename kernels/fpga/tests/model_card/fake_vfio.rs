//! Linux's replies about a VFIO device, with memfds for container, group and device.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use recoded_fpga::transport::vfio::{Linux, Request};

use super::{CardMemory, ModelCard, memfd};

pub const ADDRESS: &str = "0000:03:00.0";

/// BAR 0 in the device's file, and its configuration space.
const BAR: u64 = 0x4000;
const CONFIGURATION: u64 = 0x1000;

/// Number of iommufd's space.
const SPACE: u8 = 9;

/// Injected faults.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    NoGroup,
    NoContainer,
    OldVersion,
    NoIommu,
    NotOurs,
    NotViable,
    NoDevice,
    SmallBar,
    NoMemory,
    NoInterrupts,
    /// Memory of bundles is not mapped: no more may be locked.
    NoArenas,
    /// The device's own file exists, and iommufd does not.
    NoIommufd,
    Bound,
    NoSpace,
    NotAttached,
}

/// The requests.
#[derive(Default, Debug)]
pub struct Log {
    pub mapped: usize,
    pub unmapped: usize,
    pub resets: usize,
    /// Arenas that were not mapped.
    pub refused: usize,
    /// Memory that the card reaches.
    pub reached: Mapped,
    /// Whether memory of bundles stays mapped despite requests.
    pub keeps_arenas: bool,
    /// Whether the card has stopped.
    pub is_stalled: Arc<AtomicBool>,
    /// The PCI command at the last reset.
    pub command: u16,
}

impl Log {
    /// Bytes of bundle memory that the card may read, and those that it may write.
    pub fn arenas(&self) -> [usize; 2] {
        let reached = self.reached.lock().expect("no test panics");
        let of = |writes| move |one: &&Reached| one.there >= ARENAS && one.writes == writes;
        [false, true].map(|writes| reached.iter().filter(of(writes)).count())
    }
}

/// Memory that the card reaches.
#[derive(Debug)]
pub struct Reached {
    pub there: u64,
    pub here: u64,
    pub bytes: u64,
    pub writes: bool,
}

pub type Mapped = Arc<Mutex<Vec<Reached>>>;

/// DMA addresses of memory of bundles.
pub const ARENAS: u64 = 1 << 37;

pub struct FakeLinux {
    refusal: Option<Refusal>,
    has_iommufd: bool,
    has_card: bool,
    device: File,
    mapped: Mapped,
    log: Arc<Mutex<Log>>,
    card: Option<ModelCard>,
}

impl FakeLinux {
    pub fn new() -> (Self, Arc<Mutex<Log>>) {
        let mapped = Mapped::default();
        let log = Log { reached: Arc::clone(&mapped), ..Log::default() };
        let log = Arc::new(Mutex::new(log));
        let device = memfd(BAR + 4096);
        super::write_identity(&device, BAR);
        let fake = Self {
            refusal: None,
            has_iommufd: false,
            has_card: true,
            device,
            mapped,
            log: Arc::clone(&log),
            card: None,
        };
        (fake, log)
    }

    /// A Linux with device files that refuses containers.
    pub fn with_iommufd() -> (Self, Arc<Mutex<Log>>) {
        let (fake, log) = Self::new();
        (Self { refusal: Some(Refusal::NoContainer), has_iommufd: true, ..fake }, log)
    }

    pub fn with_iommufd_refusing(refusal: Refusal) -> Self {
        Self { refusal: Some(refusal), ..Self::with_iommufd().0 }
    }

    pub fn refusing(refusal: Refusal) -> Self {
        Self { refusal: Some(refusal), ..Self::new().0 }
    }

    pub fn and_refusing(self, refusal: Refusal) -> Self {
        Self { refusal: Some(refusal), ..self }
    }

    /// Without a computing card.
    pub fn without_card(mut self) -> Self {
        self.has_card = false;
        self
    }

    fn refuses(&self, refusal: Refusal) -> io::Result<()> {
        let is_refused = self.refusal == Some(refusal);
        if is_refused { Err(io::ErrorKind::NotFound.into()) } else { Ok(()) }
    }

    fn map(&self, request: Request, argument: &[u8]) -> io::Result<()> {
        if self.refusal == Some(Refusal::NoMemory) {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        // Read, and perhaps written, by the card; by iommufd also at this address.
        let (writes, places) = if request == Request::MapDma {
            assert!([1, 3].contains(&word(argument, 4)));
            (word(argument, 4) == 3, [8, 16, 24])
        } else {
            assert!([5, 7].contains(&word(argument, 4)));
            assert_eq!([8, 12].map(|at| word(argument, at)), [SPACE.into(), 0]);
            (word(argument, 4) == 7, [16, 32, 24])
        };
        let [here, there, bytes] = places.map(|at| wide(argument, at));
        assert!([here, there, bytes].iter().all(|value| value % 4096 == 0));
        if self.refusal == Some(Refusal::NoArenas) && there >= ARENAS {
            self.log.lock().expect("no test panics").refused += 1;
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        self.log.lock().expect("no test panics").mapped += 1;
        let mut mapped = self.mapped.lock().expect("no test panics");
        let is_apart = |one: &Reached| there + bytes <= one.there || one.there + one.bytes <= there;
        assert!(mapped.iter().all(is_apart), "{there:#x} is mapped already");
        mapped.push(Reached { there, here, bytes, writes });
        Ok(())
    }

    fn unmap(&self, request: Request, argument: &[u8]) -> io::Result<()> {
        let space = if request == Request::UnmapDma { 0 } else { SPACE.into() };
        assert_eq!(word(argument, 4), space);
        let [there, bytes] = [8, 16].map(|at| wide(argument, at));
        let mut log = self.log.lock().expect("no test panics");
        if log.keeps_arenas && there >= ARENAS {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        let mut mapped = self.mapped.lock().expect("no test panics");
        let found = mapped.iter().position(|one| (one.there, one.bytes) == (there, bytes));
        mapped.swap_remove(found.expect("it was mapped"));
        log.unmapped += 1;
        Ok(())
    }

    fn start(&mut self, raise: Option<File>) {
        if !self.has_card {
            return;
        }
        let registers = self.device.try_clone().expect("a descriptor");
        let memory = ThroughIommu {
            own: OpenOptions::new().read(true).write(true).open("/proc/self/mem").expect("ours"),
            mapped: Arc::clone(&self.mapped),
            is_stalled: Arc::clone(&self.log.lock().expect("no test panics").is_stalled),
        };
        let raise = raise.map(|raise| (raise, 8));
        self.card = Some(ModelCard::start(registers, BAR, memory, raise));
    }
}

impl Linux for FakeLinux {
    fn open(&mut self, path: &Path) -> io::Result<OwnedFd> {
        match path.to_str() {
            Some("/dev/vfio/vfio") => self.refuses(Refusal::NoContainer)?,
            Some("/dev/vfio/17") => self.refuses(Refusal::NotOurs)?,
            Some("/dev/vfio/devices/vfio5") => return self.device.try_clone().map(OwnedFd::from),
            Some("/dev/iommu") => self.refuses(Refusal::NoIommufd)?,
            other => panic!("opens {other:?}"),
        }
        Ok(memfd(0).into())
    }

    fn read_link(&mut self, path: &Path) -> io::Result<PathBuf> {
        assert_eq!(path, Path::new("/sys/bus/pci/devices/0000:03:00.0/iommu_group"));
        self.refuses(Refusal::NoGroup)?;
        Ok("../../../kernel/iommu_groups/17".into())
    }

    fn entry(&mut self, folder: &Path) -> io::Result<OsString> {
        assert_eq!(folder, Path::new("/sys/bus/pci/devices/0000:03:00.0/vfio-dev"));
        if self.has_iommufd { Ok("vfio5".into()) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    fn device(&mut self, _: BorrowedFd<'_>, address: &str) -> io::Result<OwnedFd> {
        assert_eq!(address, ADDRESS);
        self.refuses(Refusal::NoDevice)?;
        self.device.try_clone().map(OwnedFd::from)
    }

    fn call(
        &mut self,
        _: BorrowedFd<'_>,
        request: Request,
        argument: &mut [u8],
    ) -> io::Result<i32> {
        assert_eq!(argument.len(), request.argument_bytes());
        let mut log = self.log.lock().expect("no test panics");
        match request {
            Request::GetApiVersion => {
                return Ok(if self.refusal == Some(Refusal::OldVersion) { 7 } else { 0 });
            }
            Request::CheckExtension(kind) => {
                assert_eq!(kind, 3);
                return Ok(i32::from(self.refusal != Some(Refusal::NoIommu)));
            }
            Request::SetIommu(_) | Request::GroupSetContainer => {}
            Request::GroupGetStatus => {
                argument[4] = u8::from(self.refusal != Some(Refusal::NotViable));
            }
            Request::DeviceGetRegionInfo => {
                let is_small = self.refusal == Some(Refusal::SmallBar);
                let (bytes, place) = match word(argument, 8) {
                    0 => (if is_small { 256_u64 } else { 4096 }, BAR),
                    7 => (256, CONFIGURATION),
                    other => panic!("region {other}"),
                };
                argument[4] = 7;
                argument[16..24].copy_from_slice(&bytes.to_le_bytes());
                argument[24..32].copy_from_slice(&place.to_le_bytes());
            }
            Request::DeviceGetIrqInfo => {
                // Only MSI-X, and that may be missing.
                let has = self.refusal != Some(Refusal::NoInterrupts) && word(argument, 8) == 2;
                argument[12] = u8::from(has);
                drop(log);
                if self.refusal == Some(Refusal::NoInterrupts) && self.card.is_none() {
                    self.start(None);
                }
            }
            Request::DeviceSetIrqs => {
                let raised = word(argument, 20) as RawFd;
                drop(log);
                self.start(Some(duplicate(raised)));
                return Ok(0);
            }
            Request::DeviceReset => {
                log.resets += 1;
                let mut command = [0; 2];
                self.device.read_exact_at(&mut command, CONFIGURATION + 4)?;
                log.command = u16::from_le_bytes(command);
                drop(log);
                // It does not write any more.
                self.card.take().map(ModelCard::stop);
                return Ok(0);
            }
            Request::DeviceBindIommufd => self.refuses(Refusal::Bound)?,
            Request::IoasAlloc => {
                self.refuses(Refusal::NoSpace)?;
                argument[8] = SPACE;
            }
            Request::DeviceAttach => {
                assert_eq!(word(argument, 8), SPACE.into());
                self.refuses(Refusal::NotAttached)?;
            }
            Request::MapDma | Request::IoasMap => {
                drop(log);
                self.map(request, argument)?;
            }
            Request::UnmapDma | Request::IoasUnmap => {
                drop(log);
                self.unmap(request, argument)?;
            }
        }
        Ok(0)
    }
}

fn wide(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// Duplicates an eventfd, as Linux does.
fn duplicate(fd: RawFd) -> File {
    // SAFETY: the caller has it open, and keeps it open during this call.
    let given = unsafe { BorrowedFd::borrow_raw(fd) };
    File::from(given.try_clone_to_owned().expect("a descriptor"))
}

/// The host's memory by DMA address.
struct ThroughIommu {
    own: File,
    mapped: Mapped,
    is_stalled: Arc<AtomicBool>,
}

impl ThroughIommu {
    /// Accesses memory at an address of this process, which is also the offset in `/proc/self/mem`;
    /// it stays mapped meanwhile.
    fn at(
        &self,
        address: u64,
        bytes: usize,
        writes: bool,
        act: impl FnOnce(&File, u64) -> io::Result<()>,
    ) -> bool {
        let mapped = self.mapped.lock().expect("no test panics");
        let place = mapped.iter().filter(|one| one.writes || !writes).find_map(|one| {
            let offset = address.checked_sub(one.there)?;
            (offset + bytes as u64 <= one.bytes).then_some(one.here + offset)
        });
        place.is_some_and(|place| act(&self.own, place).is_ok())
    }
}

impl CardMemory for ThroughIommu {
    fn is_well(&self) -> bool {
        !self.is_stalled.load(Ordering::Relaxed)
    }

    fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        self.at(address, bytes.len(), false, |own, place| own.read_exact_at(bytes, place))
    }

    fn write(&self, address: u64, bytes: &[u8]) -> bool {
        self.at(address, bytes.len(), true, |own, place| own.write_all_at(bytes, place))
    }
}
