//! Slow memory, failing memory, silent memory, invalid descriptors, resets: every job ends with a
//! completion or the driver with an error, and the engine works afterwards.

mod common;

use std::time::Duration;

use common::{Rig, Shape, below, random, within};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use recoded_fpga::layout::{Descriptor, error, field, flag, op, register, status};
use recoded_fpga::sim::{MemoryFaults, MemoryModel, Simulation};
use recoded_fpga::{Driver, DriverError, DriverOptions, Transport};
use recoded_gf::Field;

const SHAPE: Shape = Shape {
    field: Field::Gf256x11D,
    rows: 20,
    columns: 18,
    row_bytes: 700,
    is_listed: true,
    is_unaligned: true,
};

fn rig() -> Rig {
    Rig::new(MemoryModel::default(), DriverOptions::default(), ChaCha8Rng::seed_from_u64(1))
}

/// A correct job: the engine is alive.
fn assert_alive(rig: &mut Rig) {
    let job = rig.job(SHAPE);
    rig.run(&[job]);
}

#[test]
fn products_are_right_whatever_the_memory_does() {
    let mut random = random(1);
    for round in 0..18 {
        let model = MemoryModel {
            read_latency: within(&mut random, 1..400) as u64,
            write_latency: within(&mut random, 1..400) as u64,
            latency_jitter: [0, 3, 200][round % 3],
            beats_per_1024: [1024, 300, 700][round % 3],
            back_pressure: [0.0, 0.3, 0.8][round / 6],
            seed: round as u64,
        };
        println!("{model:?}");
        let mut rig = Rig::new(model, DriverOptions::default(), random.clone());
        let jobs: Vec<_> = (0..10)
            .map(|_| {
                let shape = Shape {
                    field: Field::ALL[below(&mut random, Field::ALL.len())],
                    rows: within(&mut random, 1..40),
                    columns: within(&mut random, 1..40),
                    row_bytes: within(&mut random, 1..1200),
                    is_listed: below(&mut random, 2) == 1,
                    is_unaligned: true,
                };
                rig.job(shape)
            })
            .collect();
        rig.run(&jobs);
    }
}

/// The tables in the tile matter, and the comparison detects a wrong bit in one of them.
#[test]
fn a_flipped_table_bit_is_noticed() {
    let mut rig = rig();
    let shape = Shape { rows: 16, columns: 16, row_bytes: 9000, ..SHAPE };
    let job = rig.job(shape);
    rig.submit(job.descriptor);
    rig.driver.announce();
    // Tables are loaded by then, and most bytes are still to come.
    rig.driver.transport().run(800);
    rig.driver.transport().flip_table_bit();
    assert_eq!(rig.wait().status, status::OK);
    assert!(!rig.is_right(&job), "a wrong table must give wrong bytes");
    // Every job loads its own tables.
    assert_alive(&mut rig);
}

#[test]
fn bad_descriptors_end_with_their_status() {
    let mut rig = rig();
    let good = rig.job(SHAPE);
    let good = good.descriptor;
    let bad = [
        (Descriptor { op: 3, ..good }, status::OPERATION),
        (Descriptor { op: 255, ..good }, status::OPERATION),
        (Descriptor { field: 4, ..good }, status::FIELD),
        (Descriptor { field: field::GF2 | 0x80, ..good }, status::FIELD),
        (Descriptor { k: 0, ..good }, status::SIZE),
        (Descriptor { n: 0, ..good }, status::SIZE),
        (Descriptor { k: 257, ..good }, status::SIZE),
        (Descriptor { n: 257, ..good }, status::SIZE),
        (Descriptor { k: u16::MAX, n: u16::MAX, ..good }, status::SIZE),
        (Descriptor { row_bytes: 0, ..good }, status::LENGTH),
        (Descriptor { row_bytes: 9217, ..good }, status::LENGTH),
        (Descriptor { row_bytes: u32::MAX, ..good }, status::LENGTH),
        (Descriptor { row_bytes: 1 << 16, ..good }, status::LENGTH),
        (Descriptor { coefficients: 0, ..good }, status::ADDRESS),
        (Descriptor { coefficients: good.coefficients + 1, ..good }, status::ADDRESS),
        (Descriptor { sources: 0, ..good }, status::ADDRESS),
        (Descriptor { sources: good.sources + 8, ..good }, status::ADDRESS),
        (Descriptor { destinations: 0, ..good }, status::ADDRESS),
        (Descriptor { destinations: good.destinations + 32, ..good }, status::ADDRESS),
    ];
    // One after another, between good ones, and many at once.
    for (descriptor, expected) in bad {
        rig.clear();
        rig.submit(descriptor);
        assert_eq!(rig.wait().status, expected, "{descriptor:?}");
        assert_alive(&mut rig);
    }
    for _ in 0..3 {
        bad.iter().for_each(|(descriptor, _)| rig.submit(*descriptor));
        for (descriptor, expected) in bad {
            assert_eq!(rig.wait().status, expected, "{descriptor:?}");
        }
    }
    assert_alive(&mut rig);
}

/// A list names a null address: nothing is written.
#[test]
fn a_null_address_in_a_list_ends_the_job() {
    let mut rig = rig();
    for (which, row) in [(0, 0), (0, 17), (1, 0), (1, 19)] {
        rig.clear();
        let job = rig.job(SHAPE);
        let list = [job.descriptor.sources, job.descriptor.destinations][which];
        rig.write(list + 8 * row, &[0; 8]);
        rig.submit(job.descriptor);
        assert_eq!(rig.wait().status, status::ADDRESS);
        assert_alive(&mut rig);
    }
    // Entries beyond the last row are ignored.
    let job = rig.job(SHAPE);
    rig.write(job.descriptor.sources + 8 * 18, &[0; 8]);
    rig.run(&[job]);
}

#[test]
fn refused_reads_and_writes_end_with_their_status() {
    let mut rig = rig();
    for what in 0..5 {
        rig.clear();
        let job = rig.job(SHAPE);
        let Descriptor { coefficients, sources, destinations, .. } = job.descriptor;
        let row = |rig: &mut Rig, list: u64| {
            u64::from_le_bytes(rig.read(list + 8, 8).try_into().expect("eight bytes"))
        };
        let (source, destination) = (row(&mut rig, sources), row(&mut rig, destinations));
        let beat = |address: u64| address..address + 64;
        let faults = rig.driver.transport().faults();
        match what {
            0 => faults.failing_reads.push(beat(coefficients)),
            1 => faults.failing_reads.push(beat(source)),
            2 => faults.failing_reads.push(beat(sources)),
            3 => faults.failing_reads.push(beat(destinations)),
            _ => faults.failing_writes.push(beat(destination)),
        }
        rig.submit(job.descriptor);
        let expected = if what == 4 { status::WRITE } else { status::READ };
        assert_eq!(rig.wait().status, expected);
        let bit = if what == 4 { error::WRITE } else { error::READ };
        assert_eq!(rig.driver.errors() >> bit & 1, 1, "errors are sticky");
        *rig.driver.transport().faults() = MemoryFaults::default();
        rig.driver.transport().write32(register::ERROR, u32::MAX);
        assert_eq!(rig.driver.errors(), 0, "until they are cleared");
        assert_alive(&mut rig);
    }
}

/// Addresses outside of all memory are refused by the bus.
#[test]
fn addresses_outside_of_memory_end_with_their_status() {
    let mut rig = rig();
    let good = rig.job(Shape { is_listed: false, ..SHAPE }).descriptor;
    let outside = 0xDEAD_0000_0040;
    for (descriptor, expected) in [
        (Descriptor { sources: outside, ..good }, status::READ),
        (Descriptor { sources: u64::MAX, ..good }, status::READ),
        (Descriptor { coefficients: outside, ..good }, status::READ),
        (Descriptor { destinations: outside, ..good }, status::WRITE),
        (
            Descriptor { sources: outside, flags: 1 << flag::DESTINATION_STRIDE, ..good },
            status::READ,
        ),
    ] {
        rig.submit(descriptor);
        assert_eq!(rig.wait().status, expected, "{descriptor:?}");
        assert_alive(&mut rig);
    }
}

#[test]
fn a_descriptor_that_cannot_be_read_ends_with_its_status() {
    let mut rig = rig();
    let job = rig.job(SHAPE);
    rig.driver.transport().faults().failing_reads.push(0..u64::MAX);
    rig.submit(job.descriptor);
    assert_eq!(rig.wait().status, status::DESCRIPTOR);
    assert_eq!(rig.driver.errors() >> error::DESCRIPTOR & 1, 1);
    *rig.driver.transport().faults() = MemoryFaults::default();
    assert_alive(&mut rig);
}

#[test]
fn rings_wrap_many_times_with_every_phase() {
    let options = DriverOptions { ring_log2: 2, ..DriverOptions::default() };
    let mut random = random(2);
    let mut rig = Rig::new(MemoryModel::default(), options, random.clone());
    for _ in 0..12 {
        rig.clear();
        let jobs: Vec<_> = (0..within(&mut random, 1..12))
            .map(|_| rig.job(Shape { rows: 3, columns: 4, row_bytes: 50, ..SHAPE }))
            .collect();
        rig.run(&jobs);
    }
    let nothing = rig.driver.poll();
    assert_eq!(nothing, Ok(None));
}

/// A barrier is completed after all jobs before it, and jobs after it read what those wrote.
#[test]
fn jobs_after_a_barrier_read_what_jobs_before_it_wrote() {
    let mut rig = rig();
    let shape = Shape { rows: 16, columns: 16, row_bytes: 1000, is_listed: false, ..SHAPE };
    let ones: Vec<u8> = (0..256).map(|at| u8::from(at % 17 == 0)).collect();
    let first = rig.job(shape);
    let mut copy = rig.job_with(shape, &ones).descriptor;
    copy.sources = first.descriptor.destinations;
    copy.source_stride = first.descriptor.destination_stride;
    rig.submit(first.descriptor);
    rig.submit(Descriptor { op: op::BARRIER, ..Descriptor::default() });
    rig.submit(copy);
    rig.submit(Descriptor { op: op::NOP, ..Descriptor::default() });
    for _ in 0..4 {
        assert_eq!(rig.wait().status, status::OK);
    }
    assert!(rig.is_right(&first));
    for row in 0..16 {
        let made = rig.read(first.descriptor.destinations + row * 1001, 1000);
        let copied = rig.read(copy.destinations + row * u64::from(copy.destination_stride), 1000);
        assert_eq!(made, copied, "row {row}");
    }
}

#[test]
fn a_reset_in_flight_drops_jobs_and_the_engine_starts_over() {
    let mut random = random(3);
    let model = MemoryModel { back_pressure: 0.2, ..MemoryModel::default() };
    let mut rig = Rig::new(model, DriverOptions::default(), random.clone());
    for _ in 0..25 {
        rig.clear();
        for _ in 0..6 {
            let job = rig.job(SHAPE);
            rig.submit(job.descriptor);
        }
        rig.driver.announce();
        rig.driver.transport().run(within(&mut random, 0..3000) as u64);
        rig.driver.reset().expect("memory answers");
        assert_eq!(rig.driver.in_flight(), 0);
        assert_alive(&mut rig);
    }
}

/// Memory stops responding: the driver reports that, and that the card cannot be reset. It can when
/// memory responds again.
#[test]
fn silent_memory_is_a_hang_and_not_the_end() {
    let (hang_timeout, reset_timeout) = (Duration::from_micros(100), Duration::from_micros(20));
    let options = DriverOptions { hang_timeout, reset_timeout, ..DriverOptions::default() };
    let mut rig = Rig::new(MemoryModel::default(), options, ChaCha8Rng::seed_from_u64(4));
    let job = rig.job(SHAPE);
    rig.submit(job.descriptor);
    rig.driver.announce();
    rig.driver.transport().run(400);
    rig.driver.transport().faults().is_silent = true;
    let error = rig.driver.wait();
    assert!(matches!(error, Err(DriverError::Hang { in_flight: 1, .. })), "{error:?}");
    assert_eq!(rig.driver.reset(), Err(DriverError::Reset));
    rig.driver.transport().faults().is_silent = false;
    rig.driver.reset().expect("memory answers again");
    assert_alive(&mut rig);
}

#[test]
fn a_doorbell_beyond_the_ring_is_ignored_and_noted() {
    let mut rig = rig();
    assert_alive(&mut rig);
    rig.driver.transport().write32(register::SUBMISSION_TAIL, 100_000);
    rig.driver.transport().run(100);
    assert_eq!(rig.driver.errors(), 1 << error::DOORBELL);
    assert_alive(&mut rig);
}

#[test]
fn completions_wait_for_the_host_to_make_room() {
    let options = DriverOptions { ring_log2: 2, ..DriverOptions::default() };
    let mut rig = Rig::new(MemoryModel::default(), options, ChaCha8Rng::seed_from_u64(5));
    let nop = Descriptor { op: op::NOP, ..Descriptor::default() };
    (0..4).for_each(|_| rig.submit(nop));
    rig.driver.announce();
    rig.driver.transport().run(2000);
    // Four more by hand, while the host has taken none of the first.
    rig.driver.transport().write32(register::SUBMISSION_TAIL, 8);
    rig.driver.transport().run(2000);
    let written = rig.driver.transport().read32(register::COMPLETION_TAIL);
    assert_eq!(written, 4, "the ring has four places");
    rig.driver.transport().write32(register::COMPLETION_HEAD, 4);
    rig.driver.transport().run(2000);
    assert_eq!(rig.driver.transport().read32(register::COMPLETION_TAIL), 8);
}

/// Registers of something else, or of nothing.
#[test]
fn a_card_that_is_none_is_refused() {
    struct Nothing(Simulation);
    impl Transport for Nothing {
        fn read32(&mut self, _: u32) -> u32 {
            u32::MAX
        }
        fn write32(&mut self, _: u32, _: u32) {}
        fn describe(&self) -> String {
            "nothing".into()
        }
        fn allocate(&mut self, bytes: usize) -> Result<u64, recoded_fpga::MemoryError> {
            self.0.allocate(bytes)
        }
        fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), recoded_fpga::MemoryError> {
            self.0.write(address, bytes)
        }
        fn read(&mut self, at: u64, bytes: &mut [u8]) -> Result<(), recoded_fpga::MemoryError> {
            self.0.read(at, bytes)
        }
        fn wait(&mut self, timeout: Duration) {
            self.0.wait(timeout);
        }
        fn now(&self) -> Duration {
            self.0.now()
        }
    }
    let nothing = Nothing(Simulation::new(MemoryModel::default(), 1 << 20));
    let error = Driver::open(nothing, DriverOptions::default()).err();
    assert_eq!(error, Some(DriverError::Magic { magic: u32::MAX }));
}
