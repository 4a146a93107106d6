//! The transports of a card, with files, memfds, a pipe and an eventfd in place of its devices, and
//! behind these a model of the card: it knows registers, rings and products, and no clock. None of
//! this has run on a card.

mod model_card;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use model_card::{ModelCard, memfd};
use model_card::{fake_vfio, fake_vfio::FakeLinux};
use recoded_code::engine::{Bundle, Completed, Cpu, Engine, Error, Partition, check};
use recoded_fpga::layout::{MAGIC_VALUE, register};
use recoded_fpga::transport::vfio::{Vfio, VfioError};
use recoded_fpga::transport::xdma::{Xdma, XdmaFiles};
use recoded_fpga::{
    Driver, DriverError, DriverOptions, EngineOptions, FpgaEngine, MemoryError, Transport,
};
use recoded_offload::{By, Config, Device, Mode, OpenEngine, SpotCheck};

/// Start of the card's memory; not 0, so that addresses are not offsets.
const BASE: u64 = 0x10_0000;

const CARD_BYTES: u64 = 64 << 20;

fn options() -> EngineOptions {
    let driver = DriverOptions {
        ring_log2: 3,
        // The model shares this machine with other programs.
        hang_timeout: Duration::from_secs(20),
        reset_timeout: Duration::from_millis(50),
    };
    EngineOptions { driver, lanes: 2, lane_bytes: 1 << 20, kept_bytes: 1 << 20 }
}

/// The devices of an XDMA card, with the model behind them.
fn xdma(interrupts: bool) -> (Xdma, ModelCard) {
    let (registers, memory) = (memfd(4096), memfd(BASE + CARD_BYTES));
    let clone = |file: &File| file.try_clone().expect("a descriptor");
    let (events, raise) = interrupts.then(|| io::pipe().expect("a pipe")).unzip();
    let raise = raise.map(|raise| (File::from(OwnedFd::from(raise)), 4));
    let files = XdmaFiles {
        user: clone(&registers),
        to_card: clone(&memory),
        from_card: clone(&memory),
        events: events.map(|events| File::from(OwnedFd::from(events))),
    };
    let card = ModelCard::start(registers, 0, memory, raise);
    (Xdma::over(files, BASE..BASE + CARD_BYTES, "xdma:0".into()), card)
}

fn run(engine: &mut dyn Engine, bundle: Bundle) -> (Bundle, Result<(), Error>) {
    engine.submit(bundle).expect("the engine takes it");
    let begun = Instant::now();
    loop {
        if let Some(Completed { bundle, result }) = engine.poll() {
            return (bundle, result);
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "nothing comes back");
        std::thread::yield_now();
    }
}

fn bundles_are_right(transport: impl Transport, name: &str) {
    let mut engine = FpgaEngine::open(transport, options()).expect("the card is there");
    assert_eq!(engine.name(), name);
    for seed in 0..4 {
        let (bundle, result) = run(&mut engine, check::sample(seed));
        assert_eq!(result, Ok(()), "seed {seed}");
        assert!(check::agrees(&bundle), "seed {seed}");
    }
}

#[test]
fn bundles_through_xdma_are_right() {
    let (transport, card) = xdma(false);
    bundles_are_right(transport, "fpga, xdma:0");
    assert!(card.stop() > 4);
}

#[test]
fn bundles_through_vfio_are_right() {
    for (linux, log) in [FakeLinux::new(), FakeLinux::with_iommufd()] {
        bundles_through_vfio(linux, &log);
    }
}

fn bundles_through_vfio(linux: FakeLinux, log: &Mutex<fake_vfio::Log>) {
    let transport = Vfio::open_with(linux, fake_vfio::ADDRESS).expect("the card is there");
    bundles_are_right(transport, "fpga, vfio:0000:03:00.0");
    let log = log.lock().expect("no test panics");
    // All mappings are removed when the card has been reset.
    assert!(log.mapped > 6 && log.mapped == log.unmapped, "{log:?}");
    assert_eq!(log.resets, 2, "at the start and at the end");
    assert_eq!(log.command & 6, 6, "the card answers at its BARs, and is a bus master");
}

/// The driver waits for the interrupt, not for the next poll.
#[test]
fn interrupts_end_waiting() {
    let (linux, _) = FakeLinux::new();
    let vfio = Vfio::open_with(linux, fake_vfio::ADDRESS).expect("the card is there");
    let (xdma, _card) = xdma(true);
    one_interrupt_ends_waiting(vfio);
    one_interrupt_ends_waiting(xdma);
}

fn one_interrupt_ends_waiting(transport: impl Transport) {
    let mut driver = Driver::open(transport, options().driver).expect("the card is there");
    let nop = recoded_fpga::layout::Descriptor {
        op: recoded_fpga::layout::op::NOP,
        ..Default::default()
    };
    driver.submit(nop).expect("room");
    driver.announce();
    let begun = Instant::now();
    driver.transport().wait(Duration::from_secs(30));
    assert!(begun.elapsed() < Duration::from_secs(20), "it waited for the end of its time");
    assert!(driver.poll().expect("it works").is_some(), "what interrupts is done");
    // It was taken: without another one, the time passes.
    driver.transport().wait(Duration::from_millis(2));
    assert!(driver.poll().expect("it works").is_none());
}

#[test]
fn copies_of_any_size_arrive_and_nothing_outside_is_touched() {
    let (mut transport, _card) = xdma(false);
    copies_arrive(&mut transport);
    let (linux, _) = FakeLinux::new();
    copies_arrive(&mut Vfio::open_with(linux, fake_vfio::ADDRESS).expect("the card is there"));
}

fn copies_arrive(transport: &mut impl Transport) {
    // More than is copied at once.
    let bytes = (3 << 20) + 17;
    let address = transport.allocate(bytes).expect("room");
    assert!(address.is_multiple_of(4096));
    let mut read = vec![1; bytes];
    transport.read(address, &mut read).expect("it is allocated");
    assert!(read.iter().all(|byte| *byte == 0), "memory is zeroed");
    let written: Vec<u8> = (0..bytes).map(|index| (index % 251) as u8).collect();
    transport.write(address, &written).expect("it is allocated");
    transport.read(address, &mut read).expect("it is allocated");
    assert!(read == written);
    for (address, bytes) in [(0, 1), (address - 1, 1), (u64::MAX, 1), (address, 1 << 30)] {
        let outside = transport.read(address, &mut vec![0; bytes]);
        assert_eq!(outside, Err(MemoryError::Outside { address, bytes }));
        assert!(transport.write(address, &vec![0; bytes]).is_err());
    }
    let refused = transport.allocate(1 << 40);
    assert_eq!(refused.map_err(|error| matches!(error, MemoryError::NoRoom { .. })), Err(true));
}

/// Devices that do not belong to the engine, or fail, are errors with a reason.
#[test]
fn xdma_devices_that_fail_are_errors() {
    let null = || File::open("/dev/null").expect("it is there");
    let files = |user: File| XdmaFiles { user, to_card: null(), from_card: null(), events: None };
    let open = |files| {
        let transport = Xdma::over(files, 0..CARD_BYTES, "xdma:0".into());
        FpgaEngine::open(transport, options()).err().expect("it is no card")
    };
    // Reading ends at once; PCIe returns all ones for a missing card.
    assert_eq!(open(files(null())), DriverError::Magic { magic: u32::MAX });
    assert_eq!(open(files(memfd(4096))), DriverError::Magic { magic: 0 });
    // This shape would cause a division by zero.
    let registers = memfd(4096);
    for (offset, value) in [(register::MAGIC, MAGIC_VALUE), (register::VERSION, 1)] {
        registers.write_all_at(&value.to_le_bytes(), offset.into()).expect("a memfd");
    }
    assert!(matches!(open(files(registers)), DriverError::Shape { .. }));
    // Registers of a card, but its memory cannot be written to.
    let registers = memfd(4096);
    model_card::write_identity(&registers, 0);
    let error = open(files(registers));
    assert!(matches!(error, DriverError::Memory(MemoryError::Device { .. })), "{error}");
}

/// Its memory vanishes while it works: the engine returns its bundles, and accepts nothing more.
#[test]
fn card_that_goes_away_is_lost_and_loses_no_bundle() {
    let (registers, memory) = (memfd(4096), memfd(BASE + CARD_BYTES));
    let clone = |file: &File| file.try_clone().expect("a descriptor");
    let files = XdmaFiles {
        user: clone(&registers),
        to_card: clone(&memory),
        from_card: clone(&memory),
        events: None,
    };
    let transport = Xdma::over(files, BASE..BASE + CARD_BYTES, "xdma:0".into());
    // No response.
    model_card::write_identity(&registers, 0);
    let mut engine = FpgaEngine::open(transport, options()).expect("registers are there");
    engine.submit(check::sample(1)).expect("a lane");
    assert!(engine.poll().is_none());
    memory.set_len(0).expect("a memfd");
    let (bundle, result) = {
        let Completed { bundle, result } = engine.poll().expect("it comes back");
        (bundle, result)
    };
    let error = result.expect_err("it is lost");
    assert!(error.is_fatal() && error.to_string().contains("copying"), "{error}");
    let mut bundle = bundle.retain().restore();
    Cpu::new(1, Partition::FullBlock).expect("a CPU").run(&mut bundle);
    assert!(check::agrees(&bundle));
    assert!(engine.submit(check::sample(2)).expect_err("lost").error.is_fatal());
}

#[test]
fn vfio_that_refuses_is_an_error_with_a_reason() {
    let cases: [(fake_vfio::Refusal, &str); 9] = [
        (fake_vfio::Refusal::NoGroup, "no IOMMU group"),
        (fake_vfio::Refusal::NoContainer, "/dev/vfio/vfio"),
        (fake_vfio::Refusal::OldVersion, "version 7"),
        (fake_vfio::Refusal::NoIommu, "type 1"),
        (fake_vfio::Refusal::NotOurs, "vfio-pci"),
        (fake_vfio::Refusal::NotViable, "not viable"),
        (fake_vfio::Refusal::NoDevice, "VFIO device"),
        (fake_vfio::Refusal::SmallBar, "BAR 0"),
        (fake_vfio::Refusal::NoMemory, "copying"),
    ];
    for (refusal, reason) in cases {
        let linux = FakeLinux::refusing(refusal);
        let opened = Vfio::open_with(linux, fake_vfio::ADDRESS);
        let said = match opened {
            Err(error) => error.to_string(),
            Ok(transport) => {
                let opened = FpgaEngine::open(transport, options());
                opened.err().map(|error| error.to_string()).unwrap_or_default()
            }
        };
        assert!(said.contains(reason), "{refusal:?}: {said:?}");
    }
    let unknown = Vfio::open("ffff:ff:1f.7").err();
    assert!(matches!(unknown, Some(VfioError::NoGroup { .. })), "{unknown:?}");
}

/// A refusal by iommufd is an error; if it is missing, or may not be opened, the container is used.
#[test]
fn iommufd_that_refuses_is_an_error_with_a_reason() {
    let cases = [
        (fake_vfio::Refusal::Bound, "another program"),
        (fake_vfio::Refusal::NoSpace, "address space of iommufd"),
        (fake_vfio::Refusal::NotAttached, "attaching"),
        (fake_vfio::Refusal::SmallBar, "BAR 0"),
    ];
    for (refusal, reason) in cases {
        let linux = FakeLinux::with_iommufd_refusing(refusal);
        let error = Vfio::open_with(linux, fake_vfio::ADDRESS).err().map(|e| e.to_string());
        assert!(error.as_ref().is_some_and(|e| e.contains(reason)), "{refusal:?}: {error:?}");
    }
    let linux = FakeLinux::with_iommufd_refusing(fake_vfio::Refusal::NoIommufd);
    let transport = Vfio::open_with(linux, fake_vfio::ADDRESS).expect("through the container");
    bundles_are_right(transport, "fpga, vfio:0000:03:00.0");
}

/// Cards without interrupts are polled.
#[test]
fn vfio_without_interrupts_is_polled() {
    let linux = FakeLinux::refusing(fake_vfio::Refusal::NoInterrupts);
    let transport = Vfio::open_with(linux, fake_vfio::ADDRESS).expect("the card is there");
    bundles_are_right(transport, "fpga, vfio:0000:03:00.0");
}

/// The queue opens such a card, checks it and uses it.
#[test]
fn queue_uses_a_card_through_xdma() {
    let open: OpenEngine = Arc::new(|| {
        let (transport, card) = xdma(true);
        // It works until the files are closed.
        card.detach();
        let engine = FpgaEngine::open(transport, options());
        engine
            .map(|engine| Box::new(engine) as Box<dyn Engine>)
            .map_err(|error| Error::Absent { reason: error.to_string() })
    });
    let config = Config {
        mode: Mode::Device,
        watchdog_min: Duration::from_secs(20),
        hang_min: Duration::from_secs(60),
        spot_check: SpotCheck::All,
        measure: false,
        ..Config::default()
    };
    let device = Device::new(config, open);
    let cpu = Cpu::new(1, Partition::FullBlock).expect("a CPU");
    let done = device.run((0..4).map(check::sample).collect(), &cpu);
    assert!(done.iter().all(|(bundle, by)| *by == By::Device && check::agrees(bundle)));
}

/// Another program that owns the card keeps it.
#[test]
fn locks_of_the_register_device_exclude_each_other() {
    let file = tempfile();
    file.0.try_lock().expect("it is free");
    let second = OpenOptions::new().read(true).open(&file.1).expect("it is there");
    assert!(second.try_lock().is_err());
    std::fs::remove_file(&file.1).expect("it is there");
}

fn tempfile() -> (File, std::path::PathBuf) {
    let path = std::env::temp_dir().join(format!("recoded-fpga-{}", std::process::id()));
    (File::create(&path).expect("a temporary file"), path)
}
