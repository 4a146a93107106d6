//! PCI devices behind an IOMMU, which `vfio-pci` passes to a program: the transport `vfio` of
//! `recoded-fpga` with a RAID controller of QEMU as the card. It has no engine, but its registers
//! are in BAR 0, it uses DMA, and it raises interrupts.
//!
//! ```text
//!  frame: INIT, address of the queues' page --+
//!  queues: sizes, and the addresses of  ------+-- replies: the context of the frame
//!                                             +-- head: replies so far
//! ```

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use recoded_code::engine::Arena;
use recoded_fpga::transport::vfio::Vfio;
use recoded_fpga::{MemoryError, Transport};
use recoded_netns::{binary, process};

use super::{Case, Machine};
use crate::LabError;
use crate::guest::Guest;

/// Devices without a driver of Linux.
pub const MACHINE: Machine = Machine {
    name: "iommu",
    nics: &[],
    behind_iommu: &[
        "megasas,addr=0x10",
        "edu,addr=0x11",
        "sdhci-pci,addr=0x12",
        "virtio-balloon-pci,addr=0x13",
    ],
    modules: &["vfio", "vfio_iommu_type1", "vfio_pci_core", "vfio_pci", "iommufd"],
    seconds: 180,
    cases: &CASES,
    ..Machine::USUAL
};

const CASES: [Case; 2] = [
    Case {
        name: "vfio-dma",
        shows: "transport vfio of FPGA cards: BAR, DMA both ways, MSI-X, and no access without a map",
        run: dma,
    },
    Case {
        name: "vfio-refusals",
        shows: "devices that transport vfio cannot use are refused with the cause",
        run: refusals,
    },
];

/// Reads and writes memory.
const CONTROLLER: &str = "0000:00:10.0";
/// Its BAR 0 has 1 MiB, and another magic number.
const OTHER_CARD: &str = "0000:00:11.0";
/// Its BAR 0 has 256 bytes.
const SMALL_BAR: &str = "0000:00:12.0";
/// `virtio-pci` has it.
const OTHER_DRIVER: &str = "0000:00:13.0";
/// No device.
const NOTHING: &str = "0000:00:1e.0";

// Registers of the controller, and values of its interface, from Linux's driver.
const STATUS: u32 = 0xB0;
const INTERRUPT_MASK: u32 = 0x34;
const FRAME_LOW: u32 = 0xC0;
const FRAME_HIGH: u32 = 0xC4;
/// States before and after the first frame: Linux cannot reset this controller.
const STATES: [u32; 2] = [0xB, 0xC];
const DISABLED: u32 = !0;

/// Regions of the memory mapped for the controller.
const FRAME: u64 = 0;
const QUEUES: u64 = 0x1000;
const HEAD: u64 = 0x2000;
const TAIL: u64 = 0x2100;
const REPLIES: u64 = 0x3000;
const BYTES: usize = 0x4000;

/// Number of a frame, which the reply returns.
const CONTEXT: u32 = 0x5EED_1234;

/// Timeout for an interrupt.
const INTERRUPT_PATIENCE: Duration = Duration::from_secs(60);

/// A controller with memory.
struct Controller {
    vfio: Vfio,
    memory: u64,
}

impl Controller {
    fn open() -> Result<Controller, LabError> {
        let mut vfio = Vfio::open(CONTROLLER).map_err(wrong)?;
        let status = vfio.read32(STATUS);
        if !STATES.contains(&(status >> 28)) {
            return LabError::wrong(format!("the controller's status is {status:#x}"));
        }
        let memory = vfio.allocate(BYTES).map_err(wrong)?;
        Ok(Controller { vfio, memory })
    }

    /// Makes it read a frame and write a reply to this address. Returns the status of the frame,
    /// and the time until the interrupt.
    fn reply_to(&mut self, replies: u64) -> Result<(u8, Duration), LabError> {
        let memory = self.memory;
        // With interrupts off it forgets an earlier address.
        self.vfio.write32(INTERRUPT_MASK, DISABLED);
        self.vfio.write32(INTERRUPT_MASK, 0);
        let halves = |address: u64| [address as u32, (address >> 32) as u32];
        let mut frame = vec![0x00FF_0000, 0, CONTEXT, 0, 0, 32];
        frame.extend(halves(memory + QUEUES));
        let mut queues = vec![0, 8];
        queues.extend([replies, memory + HEAD, memory + TAIL].into_iter().flat_map(halves));
        for (place, words) in [(FRAME, frame), (QUEUES, queues), (HEAD, vec![0])] {
            let bytes: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
            self.vfio.write(memory + place, &bytes).map_err(wrong)?;
        }
        let [low, high] = halves(memory + FRAME);
        let began = Instant::now();
        self.vfio.write32(FRAME_HIGH, high);
        self.vfio.write32(FRAME_LOW, low);
        self.vfio.wait(INTERRUPT_PATIENCE);
        let took = began.elapsed();
        let [head, first] = [self.word(HEAD)?, self.word(FRAME)?];
        if head != 1 {
            return LabError::wrong(format!("head is {head}, frame begins with {first:#x}"));
        }
        Ok((first.to_le_bytes()[2], took))
    }

    fn word(&mut self, place: u64) -> Result<u32, LabError> {
        let mut bytes = [0; 4];
        self.vfio.read(self.memory + place, &mut bytes).map_err(wrong)?;
        Ok(u32::from_le_bytes(bytes))
    }
}

/// Memory of the transport, and of bundles: mapped read-only, mapped read-write, and unmapped.
fn dma(_: &Guest) -> Result<String, LabError> {
    bind(CONTROLLER)?;
    let mut controller = Controller::open()?;
    let (status, took) = controller.reply_to(controller.memory + REPLIES)?;
    let reply = controller.word(REPLIES)?;
    let interrupts = fs::read_to_string("/proc/interrupts").unwrap_or_default();
    let raised = interrupts.lines().find(|line| line.contains("vfio-msi"));
    let is_raised = raised.is_some_and(|line| line.split_whitespace().nth(1) != Some("0"));
    if status != 0 || reply != CONTEXT || !is_raised || took >= INTERRUPT_PATIENCE {
        return LabError::wrong(format!(
            "status {status}, reply {reply:#x}, {took:?}, interrupts: {raised:?}"
        ));
    }
    let mut arenas = [Arena::new(BYTES), Arena::new(BYTES)];
    let read_only = controller.vfio.share(&arenas[0]);
    let writable = controller.vfio.share_mut(&mut arenas[1]);
    let (Some(read_only), Some(writable)) = (read_only, writable) else {
        return LabError::wrong("memory of bundles cannot be shared");
    };
    controller.reply_to(read_only)?;
    controller.reply_to(writable)?;
    expect_first(&arenas, [0, CONTEXT], "read-only, writable")?;
    if !controller.vfio.unshare() {
        return LabError::wrong("Linux does not end the sharing");
    }
    arenas[1].fill(0);
    controller.reply_to(writable)?;
    expect_first(&arenas, [0, 0], "no longer shared")?;
    let outside = controller.vfio.read(0, &mut [0; 4]);
    if !matches!(outside, Err(MemoryError::Outside { .. })) {
        return LabError::wrong(format!("memory that is not shared: {outside:?}"));
    }
    drop(controller);
    // A released device can be opened again.
    let mut controller = Controller::open()?;
    controller.reply_to(controller.memory + REPLIES)?;
    let way = if Path::new("/dev/vfio/devices").exists() { "iommufd" } else { "container" };
    Ok(format!("{way}; interrupt after {:.1} ms", took.as_secs_f64() * 1e3))
}

/// The first word of each arena.
fn expect_first(arenas: &[Arena; 2], words: [u32; 2], what: &str) -> Result<(), LabError> {
    let first = |arena: &Arena| arena.first_chunk().copied().map(u32::from_le_bytes);
    let found = arenas.each_ref().map(first);
    match found == words.map(Some) {
        true => Ok(()),
        false => LabError::wrong(format!("{what}: {found:x?} instead of {words:x?}")),
    }
}

/// A device that cannot be used, and words of the refusal.
struct Refusal {
    device: &'static str,
    is_bound: bool,
    words: &'static str,
}

const REFUSALS: [Refusal; 5] = [
    Refusal { device: NOTHING, is_bound: false, words: "has no IOMMU group" },
    Refusal { device: OTHER_CARD, is_bound: false, words: "is the device bound to vfio-pci?" },
    Refusal { device: OTHER_DRIVER, is_bound: false, words: "is the device bound to vfio-pci?" },
    Refusal { device: SMALL_BAR, is_bound: true, words: "BAR 0 of 256 bytes" },
    Refusal {
        device: OTHER_CARD,
        is_bound: true,
        words: "no engine behind these registers: magic",
    },
];

/// As `recodectl engines` reports them.
fn refusals(_: &Guest) -> Result<String, LabError> {
    for Refusal { device, is_bound, words } in REFUSALS {
        if is_bound {
            bind(device)?;
        }
        expect_refusal(device, words)?;
    }
    bind(CONTROLLER)?;
    let _in_use = Controller::open()?;
    expect_refusal(CONTROLLER, "has another program opened it?")?;
    Ok(format!("{} in words", REFUSALS.len() + 1))
}

fn expect_refusal(device: &str, words: &str) -> Result<(), LabError> {
    let mut command = Command::new(binary("recodectl"));
    command.args(["engines", "--seconds", "0", "--fpga", &format!("vfio:{device}")]);
    let said = process::output(&mut command)?;
    let text = format!("{} {}", said.stdout, said.stderr);
    println!("lab: {device}: {text}");
    match text.contains(words) {
        true => Ok(()),
        false => LabError::wrong(format!("{device}: '{words}' is missing: {text}")),
    }
}

/// Gives a device to `vfio-pci`.
fn bind(device: &str) -> Result<(), LabError> {
    let folder = Path::new("/sys/bus/pci/devices").join(device);
    let write = |path: &Path, text: &str| fs::write(path, text).map_err(LabError::file(path));
    write(&folder.join("driver_override"), "vfio-pci")?;
    if !folder.join("driver").exists() {
        write(Path::new("/sys/bus/pci/drivers_probe"), device)?;
    }
    match fs::read_link(folder.join("driver")) {
        Ok(driver) if driver.ends_with("vfio-pci") => Ok(()),
        driver => LabError::wrong(format!("{device} has driver {driver:?}")),
    }
}

fn wrong(error: impl std::error::Error) -> LabError {
    LabError::Wrong(error.to_string())
}
