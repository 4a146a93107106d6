//! This project's engine: clocks per job for jobs of many shapes, back to back, and the causes of
//! stalls. To the engine, encoding, recoding and decoding are the same operation.

use recoded_fpga::layout::{Descriptor, counter, field, op, status};
use recoded_fpga::sim::{MemoryModel, Simulation};
use recoded_fpga::{Counters, Driver, DriverOptions, Transport, tiled_bytes};
use recoded_gf::Field;
use serde::Serialize;

use super::{card, gbit};
use crate::error::BenchError;

/// Jobs of one shape with one memory.
#[derive(Serialize)]
pub struct JobCycles {
    pub memory: &'static str,
    /// Sources, and as many destinations.
    pub size: usize,
    pub row_bytes: usize,
    pub is_unaligned: bool,
    pub jobs: u64,
    pub cycles_per_job: f64,
    pub gbit_per_second: f64,
    /// Clocks per job that the tile stalled.
    pub stalled_for_tables: f64,
    pub stalled_for_input: f64,
    pub stalled_for_output: f64,
    /// The bottleneck: the longest of these stalls, if it exceeds a tenth of the time.
    pub limit: &'static str,
}

/// From the card's own memory.
pub const HBM: &str = "HBM";
/// From the host's.
pub const PCIE: &str = "PCIe";

/// Memories that a card may have before it.
pub fn memory(name: &str) -> MemoryModel {
    match name {
        // 12 GB/s each way at 300 MHz is 40 of 64 bytes per clock; 1 us is 300 clocks.
        PCIE => MemoryModel {
            read_latency: 300,
            write_latency: 300,
            beats_per_1024: 640,
            ..MemoryModel::default()
        },
        _ => MemoryModel::default(),
    }
}

#[derive(Copy, Clone)]
pub struct JobShape {
    pub size: usize,
    pub row_bytes: usize,
    pub is_unaligned: bool,
}

fn shapes(is_quick: bool) -> Vec<JobShape> {
    let sizes: &[usize] = if is_quick { &[16, 32] } else { &[16, 32, 64, 128] };
    let lengths: &[usize] = match is_quick {
        true => &[256, 1500],
        false => &[64, 128, 256, 512, 1000, 1500, 4096, 9000],
    };
    let of = |size, row_bytes| {
        [false, true].map(|is_unaligned| JobShape { size, row_bytes, is_unaligned })
    };
    sizes.iter().flat_map(|&size| lengths.iter().flat_map(move |&bytes| of(size, bytes))).collect()
}

/// Every shape with each memory, and the clocks simulated for it.
pub fn measure(is_quick: bool) -> Result<(Vec<JobCycles>, u64), BenchError> {
    let (mut rows, mut clocks) = (Vec::new(), 0);
    for name in [HBM, PCIE] {
        for shape in shapes(is_quick) {
            let products = shape.size * shape.size * shape.row_bytes;
            let jobs = if is_quick { 6 } else { (PRODUCTS / products).clamp(6, 200) as u64 };
            let row = measure_shape(name, shape, jobs)?;
            clocks += (row.cycles_per_job * jobs as f64) as u64;
            rows.push(row);
        }
    }
    Ok((rows, clocks))
}

/// Does `jobs` back to back, by addresses in a list.
pub fn measure_shape(
    name: &'static str,
    shape: JobShape,
    jobs: u64,
) -> Result<JobCycles, BenchError> {
    let simulation = Simulation::new(memory(name), 16 << 20);
    let mut driver = Driver::open(simulation, DriverOptions::default()).map_err(card)?;
    let descriptor = prepare(&mut driver, shape)?;
    let before = driver.counters();
    for _ in 0..jobs {
        driver.submit(descriptor).map_err(card)?;
    }
    let begun = driver.transport().cycle();
    while let Some(completion) = driver.wait().map_err(card)? {
        assert_eq!(completion.status, status::OK, "the card refuses a job");
    }
    let cycles = driver.transport().cycle() - begun;
    let after = driver.counters();
    let grown = |number| Counters::get(&after, number) - before.get(number);
    let per_job = |clocks: u64| clocks as f64 / jobs as f64;
    let stalls = [counter::STALL_TABLES, counter::STALL_INPUT, counter::STALL_OUTPUT];
    let [tables, input, output] = stalls.map(|number| per_job(grown(number)));
    let JobShape { size, row_bytes, is_unaligned } = shape;
    Ok(JobCycles {
        memory: name,
        size,
        row_bytes,
        is_unaligned,
        jobs,
        cycles_per_job: per_job(cycles),
        gbit_per_second: gbit(grown(counter::BYTES_OUT), cycles),
        stalled_for_tables: tables,
        stalled_for_input: input,
        stalled_for_output: output,
        limit: limit([tables, input, output], per_job(cycles)),
    })
}

fn limit([tables, input, output]: [f64; 3], clocks: f64) -> &'static str {
    match tables.max(input).max(output) {
        longest if longest < clocks / 10.0 => "tile",
        longest if longest == tables => "tables",
        longest if longest == input => "reading",
        _ => "writing",
    }
}

/// Rows, their addresses and room for coefficients in the card's memory.
fn prepare(driver: &mut Driver<Simulation>, shape: JobShape) -> Result<Descriptor, BenchError> {
    let JobShape { size, row_bytes, is_unaligned } = shape;
    let tile = driver.shape().tile();
    let memory = driver.transport();
    let coefficients = memory.allocate(tiled_bytes(size, size, tile)).map_err(card)?;
    let mut lists = [0; 2];
    for list in &mut lists {
        let stride = row_bytes.next_multiple_of(64) + 64;
        let first = memory.allocate(stride * size + 64).map_err(card)?;
        // Offsets 0, 11, 22, ... in a beat, as in packets.
        let shift = |row: usize| if is_unaligned { 11 * row % 64 } else { 0 };
        let addresses = (0..size).map(|row| first + (stride * row + shift(row)) as u64);
        let bytes: Vec<u8> = addresses.flat_map(u64::to_le_bytes).collect();
        *list = memory.allocate(bytes.len()).map_err(card)?;
        memory.write(*list, &bytes).map_err(card)?;
    }
    Ok(Descriptor {
        op: op::MULTIPLY,
        field: field::GF256,
        polynomial: Field::Gf256x11D.polynomial() as u8,
        k: size as u16,
        n: size as u16,
        row_bytes: row_bytes as u32,
        coefficients,
        sources: lists[0],
        destinations: lists[1],
        ..Descriptor::default()
    })
}

/// A table of them.
pub fn table(rows: &[JobCycles]) -> String {
    let head = "| K = N | bytes | unaligned | memory | clocks/job | Gbit/s | tables | input | output \
                | limit |\n|---|---|---|---|---|---|---|---|---|---|";
    let line = |row: &JobCycles| {
        let unaligned = if row.is_unaligned { "yes" } else { "no" };
        format!(
            "| {} | {} | {unaligned} | {} | {:.0} | {:.1} | {:.0} | {:.0} | {:.0} | {} |",
            row.size,
            row.row_bytes,
            row.memory,
            row.cycles_per_job,
            row.gbit_per_second,
            row.stalled_for_tables,
            row.stalled_for_input,
            row.stalled_for_output,
            row.limit
        )
    };
    [head.to_owned()].into_iter().chain(rows.iter().map(line)).collect::<Vec<_>>().join("\n")
}

/// Products of a coefficient and a byte for each shape: about a tenth of a second of work.
const PRODUCTS: usize = 20_000_000;
