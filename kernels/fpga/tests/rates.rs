//! Clocks that jobs take, back to back: the engine's target at the assumed 300 MHz. Clocks are
//! counted, and are the same on every machine.

use recoded_fpga::layout::{Descriptor, counter, op, status};
use recoded_fpga::sim::{CLOCK_KHZ, MemoryModel, Simulation};
use recoded_fpga::{Counters, Driver, DriverOptions, Transport, tiled_bytes};

/// Gbit/s of destinations for jobs of `k` sources and `n` destinations, from the first doorbell to
/// the last completion: descriptors, lists, gathering, tables and write back included.
fn gbit(k: usize, n: usize, row_bytes: usize, jobs: u32) -> f64 {
    let simulation = Simulation::new(MemoryModel::default(), 16 << 20);
    let mut driver = Driver::open(simulation, DriverOptions::default()).expect("the card is there");
    let tile = driver.shape().tile();
    let memory = driver.transport();
    let coefficients = memory.allocate(tiled_bytes(n, k, tile)).expect("room");
    let stride = row_bytes.next_multiple_of(64) + 64;
    let [sources, destinations] = [k, n].map(|rows| {
        let first = memory.allocate(stride * rows).expect("room");
        let addresses = (0..rows).map(|row| first + (stride * row) as u64);
        let bytes: Vec<u8> = addresses.flat_map(u64::to_le_bytes).collect();
        let list = memory.allocate(bytes.len()).expect("room");
        memory.write(list, &bytes).expect("it is allocated");
        list
    });
    // Rows by lists of addresses, as packets lie.
    let descriptor = Descriptor {
        op: op::MULTIPLY,
        polynomial: 0x1D,
        k: k as u16,
        n: n as u16,
        row_bytes: row_bytes as u32,
        coefficients,
        sources,
        destinations,
        ..Descriptor::default()
    };
    let before = driver.counters();
    (0..jobs).for_each(|_| assert!(driver.submit(descriptor).is_ok()));
    let begun = driver.transport().cycle();
    while let Some(completion) = driver.wait().expect("it works") {
        assert_eq!(completion.status, status::OK);
    }
    let clocks = driver.transport().cycle() - begun;
    let bytes = Counters::get(&driver.counters(), counter::BYTES_OUT)
        - Counters::get(&before, counter::BYTES_OUT);
    assert_eq!(bytes, u64::from(jobs) * (n * row_bytes) as u64);
    let rate = bytes as f64 * 8.0 * CLOCK_KHZ as f64 / 1e6 / clocks as f64;
    println!("{k} sources, {n} destinations of {row_bytes} bytes: {rate:.1} Gbit/s");
    rate
}

/// Encoding, recoding 16 packets to 16 and decoding are the same to the engine.
#[test]
fn generations_of_16_reach_100_gbit() {
    assert!(gbit(16, 16, 1500, 60) >= 100.0);
}

/// The limit of the tile: 1,024 products a clock.
#[test]
fn large_generations_reach_nine_tenths_of_the_tile() {
    for (size, jobs, limit) in [(32, 40, 76.8), (64, 16, 38.4), (128, 8, 19.2)] {
        assert!(gbit(size, size, 1500, jobs) >= 0.9 * limit, "{size}");
    }
}

/// Making tables does not starve the tile at this length.
#[test]
fn packets_of_256_bytes_reach_seven_tenths_of_the_rate_of_long_ones() {
    assert!(gbit(16, 16, 256, 200) >= 0.7 * gbit(16, 16, 1500, 60));
}
